"""The door of the dashboard: finds out who knocks, whether they may, and whether a form is theirs; then asks the page.

Everything that changes something goes by here, and so into the audit log: begun before, ended after.
"""

import hmac
import re
import traceback
import urllib.parse
from collections import defaultdict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router

from peik.core.role import Role
from peik.doors.dashboard.assets import PREFIX, Assets
from peik.doors.dashboard.board import COOKIE, Board, Page, Visitor, came_from, is_https
from peik.doors.dashboard.headers import cookie_of, is_own_form, secured
from peik.doors.dashboard.sign_in import PATH, SignInPages, address_of
from peik.doors.dashboard.words import language_of
from peik.doors.forms import KIND_BYTES_MAX
from peik.errors import BadInput, Denied, Forbidden, NotFound, Problem, TooLarge, Unavailable
from peik.events import Surprise

BODY_BYTES_MAX = 34 * 1024 * 1024  # a list of a million chats, and what is around it
PLAIN_BYTES_MAX = 8 * 1024 * 1024  # a form without files
STRANGERS_BYTES_MAX = 16 * 1024  # a key, a name, a password
FIELDS_MAX = 1000
FILES_MAX = 2
FIELD_BYTES_MAX = 2 * 1024 * 1024
THEMES = ("auto", "light", "dark")
_PREFERRED_S = 365 * 86_400
_VERBS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Door:
    """An ASGI application for all paths of the dashboard."""

    def __init__(self, board: Board, pages: tuple[Page, ...], *, sign_in: SignInPages, assets: Assets) -> None:
        self._board = board
        self._sign_in = sign_in
        self._assets = assets
        rows: dict[str, dict[str, Page]] = defaultdict(dict)
        for page in pages:
            assert page[0] in ("GET", "POST"), "forms know no other verbs"
            rows[page[1]][page[0]] = page
        in_order = sorted(rows, key=lambda path: path.count("{"))  # `new` is no id of a letter
        routes = [
            Route(PATH, self._guarded(self._strangers), methods=_VERBS),
            Route(PREFIX + "{name}", self._static, methods=["GET"]),
            Route("/admin/", self._home, methods=["GET"]),
            *(Route(path, self._guarded(self._by_verb(rows[path])), methods=_VERBS) for path in in_order),
        ]
        self._router = Router(routes, redirect_slashes=False, default=self._nowhere)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    # ---- what needs no sign-in ----

    async def _static(self, request: Request) -> Response:
        found = self._assets.answer(request.path_params["name"])
        return secured(found if found is not None else Response("Not found", 404, media_type="text/plain"))

    async def _home(self, request: Request) -> Response:
        return secured(RedirectResponse("/admin", 303))

    async def _strangers(self, request: Request) -> Response:
        language, theme = _preferred(request)
        if request.method == "POST":
            await _read_form(request, bytes_max=STRANGERS_BYTES_MAX)
            return await self._sign_in.post(request, language=language, theme=theme)
        return self._sign_in.form(request, language=language, theme=theme)

    async def _nowhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._guarded(self._by_verb({"GET": ("GET", "", self._missing, Role.VIEWER, "")}))
        await (await answer(Request(scope, receive)))(scope, receive, send)

    async def _missing(self, request: Request, visitor: Visitor) -> Response:
        raise NotFound(code="no_page", detail="There is no such page.")

    # ---- what does ----

    def _by_verb(self, rows: dict[str, Page]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            row = rows.get("GET" if request.method == "HEAD" else request.method)
            visitor = await self._visitor(request)
            if visitor is None:
                if request.method in ("GET", "HEAD"):
                    return _to_sign_in(request)
                raise Forbidden(code="signed_out", detail="You are not signed in (any more). Sign in, and try again.")
            if row is None:
                return secured(Response("Method not allowed", 405, {"Allow": ", ".join(rows)}, media_type="text/plain"))
            try:
                return await self._ask(request, visitor, row)
            except Unavailable as problem:
                return self._board.problem_page(request, visitor, problem)
            except Problem as problem:
                if request.method == "POST" and not isinstance(problem, Denied):
                    return self._back_with(request, visitor, problem)
                return self._board.problem_page(request, visitor, problem)

        return answer

    async def _visitor(self, request: Request) -> Visitor | None:
        token = cookie_of(request, COOKIE)
        found = await self._board.sign_ins.find(token) if token else None
        if found is None:
            return None
        language, theme = _preferred(request)
        return Visitor(name=found.name, role=found.role, key=found.key, csrf=found.csrf, language=language, theme=theme)

    async def _ask(self, request: Request, visitor: Visitor, row: Page) -> Response:
        verb, _, endpoint, needed, action = row
        if verb == "GET":
            self._must_be(visitor, needed)
            return await endpoint(request, visitor)
        audit, target = self._board.audit, "/".join(map(str, request.path_params.values()))
        audit.refusals.check(visitor.name)
        line = await audit.begin(who=visitor.name, action=action, target=target, address=address_of(request))
        try:
            self._must_be(visitor, needed)
            await _check_form(request, visitor)
            response = await endpoint(request, visitor)
        except Problem as problem:
            if isinstance(problem, Denied):
                audit.refusals.note(visitor.name)
            await audit.end(line, is_done=False, detail=f"{problem.code}: {problem.detail}")
            raise
        state = request.state
        await audit.end(
            line,
            is_done=response.status_code < 400,
            target=getattr(state, "target", None),
            detail=getattr(state, "detail", ""),
        )
        return response

    def _must_be(self, visitor: Visitor, needed: Role) -> None:
        if not visitor.role.allows(needed):
            raise Forbidden(
                code=f"needs_{needed}", detail=f"This is for the role {needed}; you are signed in as {visitor.role}."
            )

    def _back_with(self, request: Request, visitor: Visitor, problem: Problem) -> Response:
        known = f"problem_{problem.code}"
        said, words = (known, {}) if self._board.knows(known) else ("problem_said", {"text": problem.detail})
        return self._board.back(request, visitor, came_from(request), said=said, is_bad=True, **words)

    # ---- whatever happens ----

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """No answer without its headers, no traceback for anybody."""

        async def guarded(request: Request) -> Response:
            try:
                response = await answer(request)
            except Problem as problem:
                response = self._plain_problem(request, problem)
            except (ClientDisconnect, HTTPException, MultiPartException):
                response = self._plain_problem(request, _bad_form())
            except Exception as error:  # noqa: BLE001  it is told, without its words, which may hold a secret
                told = f"{type(error).__name__} in {_place_of(error)}"
                self._board.peik.events.tell(Surprise(where="dashboard", error=told))
                surprise = Problem(code="surprise", detail="Something went wrong inside Peik; its log says what.")
                surprise.status = 500
                response = self._plain_problem(request, surprise)
            finally:
                await request.close()  # files of its form
            _keep_preferred(request, response)
            return secured(response)

        return guarded

    def _plain_problem(self, request: Request, problem: Problem) -> Response:
        """For whom we do not know, or cannot know now."""
        language, theme = _preferred(request)
        body = self._board.render(
            "problem.html",
            request=request,
            visitor=None,
            language=language,
            theme=theme,
            context={"problem": problem, "back_url": "/admin"},
        )
        return Response(body, problem.status, media_type="text/html; charset=utf-8")


def _place_of(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename.rpartition('/')[2]}:{last.lineno}"


async def _check_form(request: Request, visitor: Visitor) -> None:
    await _read_form(request)
    given = (await request.form()).get("csrf", "")
    is_ours = isinstance(given, str) and hmac.compare_digest(given.encode(), visitor.csrf.encode())
    if not (is_ours and is_own_form(request)):
        raise Forbidden(code="foreign_form", detail="This form did not come from here, or it is too old. Try again.")


async def _read_form(request: Request, *, bytes_max: int = BODY_BYTES_MAX) -> None:
    """Within bounds. The request remembers it, so that `await request.form()` gives the same again."""
    given = request.headers.get("content-type", "").lower()
    kind, _, parameters = given.partition(";")
    is_plain = kind.strip() != "multipart/form-data"
    if len(given) > KIND_BYTES_MAX or (bytes_max <= STRANGERS_BYTES_MAX and not is_plain):
        raise _bad_form()
    try:
        size = int(request.headers.get("content-length", ""))
    except ValueError:
        raise _bad_form() from None
    # Forms come in the page's own charset. Some others take Python minutes to read, or hold what is no character at all.
    if "charset" in parameters and not re.search(r"charset=\"?utf-?8\"?\s*(;|$)", parameters):
        raise _bad_form()
    most = min(bytes_max, PLAIN_BYTES_MAX) if is_plain else bytes_max
    if size > most:
        raise TooLarge(code="form_too_large", detail=f"A form like this may have up to {most >> 10} KB.")
    await request.form(max_files=FILES_MAX, max_fields=FIELDS_MAX, max_part_size=FIELD_BYTES_MAX)


def _bad_form() -> BadInput:
    return BadInput(code="bad_form", detail="The form could not be read. Go back, and try again.")


def _to_sign_in(request: Request) -> Response:
    if request.url.path == "/admin" and not request.url.query:
        return RedirectResponse(PATH, 303)
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{PATH}?{urllib.parse.urlencode({'next': wanted})}", 303)


def _preferred(request: Request) -> tuple[str, str]:
    """Language and theme: as the link says, as the browser remembers, as it comes."""
    language = language_of(
        request.query_params.get("lang"), cookie_of(request, "peik_lang"), request.headers.get("accept-language")
    )
    wanted = request.query_params.get("theme") or cookie_of(request, "peik_theme") or "auto"
    return language, wanted if wanted in THEMES else "auto"


def _keep_preferred(request: Request, response: Response) -> None:
    language, theme = _preferred(request)
    for name, cookie, value in (("lang", "peik_lang", language), ("theme", "peik_theme", theme)):
        if request.query_params.get(name) == value:
            response.set_cookie(
                cookie, value, max_age=_PREFERRED_S, path="/admin", samesite="lax", secure=is_https(request)
            )
