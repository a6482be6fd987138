"""The dashboard as an application: finds out who asks, whether they may, and whether a form is theirs; then asks the page.

Everything that changes something goes by here, and so into the audit log: begun before, ended after.
"""

import asyncio
import gzip
import hmac
import re
import traceback
import urllib.parse
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route, Router

from peik.accounts.pages import SessionPages
from peik.admin.audit import AdminUpkeep
from peik.admin.model import Role
from peik.admin.oidc import BACK, oidc_of
from peik.admin.pages import AuditPages, KeyPages, PeoplePages
from peik.admin.pages_sign_in import OIDC_PATH, PATH, SignInPages, address_of
from peik.admin.people import People
from peik.admin.sign_ins import Attempts, SignedIn, SignIns, csrf_of
from peik.app.runtime import Runtime
from peik.archive.pages import ArchivePages
from peik.broadcasts.pages import BroadcastPages
from peik.contacts.pages import ChatPages
from peik.contacts.pages_search import SearchPages
from peik.core.events import Event, Surprise
from peik.errors import BadInput, Denied, Forbidden, NotFound, Problem, StoreUnavailable, TooLarge, Unavailable
from peik.inbox.pages import ArrivalPages
from peik.jobs.pages import JobPages
from peik.monitoring.pages import ChartPages, HelpPages, NodePages, OverviewPages, SettingsPages
from peik.notifications.pages import NotificationPages
from peik.outbox.pages import LetterPages, OneLetterPage
from peik.outbox.pages_dead import DeadPages
from peik.outbox.pages_lanes import BotPages, LanePages
from peik.schedules.pages import SchedulePages
from peik.telegram.wiring import asker_of
from peik.web.bodies import KIND_BYTES_MAX
from peik.web.dashboard.board import (
    COOKIE,
    ZONE,
    Board,
    Flash,
    Page,
    Visitor,
    came_from,
    cookie_of,
    is_https,
    is_own_form,
    own_path,
    secured,
    surely_own_form,
    zone_of_visit,
)
from peik.web.dashboard.fields import CSRF, FROM, Typed, refilled, typed_in
from peik.web.dashboard.render import PREFIX, Assets, Renderer, language_of, load, unmasked
from peik.web.responses import RETRY_MS, ServerSentEvents, frame

BODY_BYTES_MAX = 34 * 1024 * 1024  # a list of a million chats, and what is around it
PLAIN_BYTES_MAX = 8 * 1024 * 1024  # a form without files
STRANGERS_BYTES_MAX = 64 * 1024  # a key, a name, a password, and a form that is to come back after the sign-in
EXPIRED_BYTES_MAX = 1024 * 1024  # a form of somebody whose session is over
FIELDS_MAX = 1000
FILES_MAX = 2
FIELD_BYTES_MAX = 2 * 1024 * 1024
THEMES = ("auto", "light", "dark")
COMPRESSED_BYTES_MIN = 1024
_COMPRESSIBLE = frozenset({"text/html", "text/css", "text/javascript", "image/svg+xml"})
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", re.IGNORECASE)
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
        by_provider = ((OIDC_PATH, sign_in.to_provider), (BACK, sign_in.from_provider)) if sign_in.has_oidc else ()
        in_order = sorted(rows, key=lambda path: path.count("{"))  # `new` is no id of a letter
        routes = [
            Route(PATH, self._guarded(self._strangers), methods=_VERBS),
            *(Route(path, self._guarded(_preferring(answer)), methods=["GET"]) for path, answer in by_provider),
            Route(PREFIX + "{name}", self._static, methods=["GET"]),
            Route("/admin/", self._home, methods=["GET"]),
            *(Route(path, self._guarded(self._by_verb(rows[path])), methods=_VERBS) for path in in_order),
        ]
        self._router = Router(routes, redirect_slashes=False, default=self._nowhere)
        self._pages = [(Route(path, self._home), rows[path]["GET"]) for path in in_order if "GET" in rows[path]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._router(scope, receive, send)

    # ---- what needs no sign-in ----

    async def _static(self, request: Request) -> Response:
        found = self._assets.answer(request.path_params["name"])
        response = found if found is not None else Response("Not found", 404, media_type="text/plain")
        return await _compressed(request, secured(response))

    async def _home(self, request: Request) -> Response:
        return secured(RedirectResponse("/admin", 303))

    async def _strangers(self, request: Request) -> Response:
        language, theme = _preferred(request)
        if request.method == "POST":
            await _read_form(request, bytes_max=STRANGERS_BYTES_MAX)
            response = await self._sign_in.post(request, language=language, theme=theme)
            return await self._with_typed(request, response)
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
                return await self._expired(request)
            if row is None:
                return secured(Response("Method not allowed", 405, {"Allow": ", ".join(rows)}, media_type="text/plain"))
            try:
                return await self._ask(request, visitor, row)
            except Problem as problem:
                if request.method == "POST":
                    return await self._refused(request, visitor, problem)
                return self._board.problem_page(request, visitor, problem)

        return answer

    async def _visitor(self, request: Request) -> Visitor | None:
        token = cookie_of(request, COOKIE)
        found = await self._board.sign_ins.find(token) if token else None
        if found is None:
            return None
        return self._visitor_of(request, found)

    def _visitor_of(self, request: Request, found: SignedIn) -> Visitor:
        language, theme = _preferred(request)
        return Visitor(
            name=found.name,
            role=found.role,
            key=found.key,
            csrf=found.csrf,
            language=language,
            theme=theme,
            zone=zone_of_visit(request),
        )

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

    # ---- forms that come back ----

    async def _refused(self, request: Request, visitor: Visitor, problem: Problem) -> Response:
        """The form as it was filled in, with what is to be mended beside its field. A button without a form is said so on the
        page that it is on."""
        form = await request.form() if _is_read(request) else None
        # Who signed in again in another window has a form with an old word: it comes back with a new one, and does nothing.
        may_return = not isinstance(problem, Denied) or (problem.code == "foreign_form" and surely_own_form(request))
        url = came_from(request)
        if form is not None and may_return:
            named = form.get(FROM)
            url = own_path(named) if isinstance(named, str) and named else url
            typed = await typed_in(request.url.path, form)
            response = await self._form_again(request, visitor, url, typed, problem=problem)
            if response is not None:
                return response
        if isinstance(problem, Denied | Unavailable):
            return self._board.problem_page(request, visitor, problem)
        text = self._board.problem_text(visitor, problem)
        return self._board.back(request, visitor, url, said="problem_said", is_bad=True, text=text)

    async def _form_again(
        self, request: Request, visitor: Visitor, url: str, typed: Typed, *, problem: Problem | None = None
    ) -> Response | None:
        """The page with the form in it, filled in. None: there is no such page for this visitor, or no such form on it."""
        page = self._page_at(request, url)
        if page is None or not visitor.role.allows(page[1][3]):
            return None
        asked, (_, _, endpoint, _, _) = page
        if problem is not None:
            asked.state.problem = problem
        else:
            asked.state.said = Flash("sign_in_form_back")
        try:
            response = await endpoint(asked, visitor)
        except Problem:
            return None
        if not isinstance(response.body, bytes) or response.media_type != "text/html; charset=utf-8":
            return None
        found = refilled(
            response.body.decode(),
            typed,
            problem=problem,
            error="" if problem is None else self._board.problem_text(visitor, problem),
            kept_words=self._board.say(visitor, "base_file_kept", name="{name}"),
        )
        if not found.is_there:
            return None
        response.body = found.page.encode()
        response.headers["content-length"] = str(len(response.body))
        return response

    def _page_at(self, request: Request, url: str) -> tuple[Request, Page] | None:
        """What a browser would ask for to see a page of ours, and the page."""
        path, _, query = url.partition("?")
        path = urllib.parse.unquote(path)
        scope = {**request.scope, "method": "GET", "path": path, "raw_path": path.encode(), "state": {}}
        scope["query_string"] = query.encode()
        for route, page in self._pages:
            match, more = route.matches(scope)
            if match is Match.FULL:
                return Request({**scope, **more}), page
        return None

    async def _expired(self, request: Request) -> Response:
        """The sign-in, after which the form is there again as it was filled in. Nothing is stored for that: the browser keeps
        it, sealed, and what is secret not even that."""
        problem = Forbidden(code="signed_out", detail="You are not signed in (any more). Sign in, and try again.")
        if not surely_own_form(request):
            raise problem
        await _read_form(request, bytes_max=EXPIRED_BYTES_MAX)
        form = await request.form()
        token, given = cookie_of(request, COOKIE), form.get(CSRF)
        if token and not _is_word(given, csrf_of(token)):
            raise problem
        named = form.get(FROM)
        url = own_path(named) if isinstance(named, str) and named else came_from(request)
        typed = (await typed_in(request.url.path, form)).without_secrets()
        language, theme = _preferred(request)
        return self._sign_in.form(request, language=language, theme=theme, problem=problem, next_url=url, typed=typed)

    async def _with_typed(self, request: Request, signed: Response) -> Response:
        """What a sign-in leads to: the form that its session had ended before."""
        token, typed = getattr(request.state, "token", None), getattr(request.state, "typed", None)
        if token is None or typed is None:
            return signed
        found = await self._board.sign_ins.find(token)
        if found is None:
            return signed
        visitor = self._visitor_of(request, found)
        response = await self._form_again(request, visitor, request.state.next_url, typed)
        if response is None:
            return signed
        response.raw_headers.extend(pair for pair in signed.raw_headers if pair[0] == b"set-cookie")
        return response

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
            return await _compressed(request, secured(response))

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


def _preferring(answer: Callable[..., Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """For strangers: in the language and the colours that their browser wants."""

    async def asked(request: Request) -> Response:
        language, theme = _preferred(request)
        return await answer(request, language=language, theme=theme)

    return asked


def _place_of(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename.rpartition('/')[2]}:{last.lineno}"


async def _check_form(request: Request, visitor: Visitor) -> None:
    await _read_form(request)
    given = (await request.form()).get("csrf", "")
    if not (_is_word(given, visitor.csrf) and is_own_form(request)):
        raise Forbidden(code="foreign_form", detail="This form did not come from here, or it is too old. Try again.")


def _is_word(given: object, word: str) -> bool:
    """Whether a form carries the word of its session, masked or not."""
    shown = unmasked(given, chars=len(word)) if isinstance(given, str) else ""
    return hmac.compare_digest(shown.encode(), word.encode())


async def _compressed(request: Request, response: Response) -> Response:
    """For whoever takes it. Nothing that another site asked for, by which secrets could be guessed at from how long it gets; no
    answer to a form, which may show a new key; no stream."""
    body = getattr(response, "body", b"")
    if (
        request.method != "GET"
        or request.url.path == PATH
        or len(body) < COMPRESSED_BYTES_MIN
        or response.headers.get("content-type", "").partition(";")[0] not in _COMPRESSIBLE
        or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
        or not _GZIP.search(request.headers.get("accept-encoding", ""))
    ):
        return response
    response.body = await asyncio.to_thread(gzip.compress, bytes(body), 5, mtime=0)
    response.headers["content-length"] = str(len(response.body))
    response.headers["content-encoding"] = "gzip"
    response.headers["vary"] = "Accept-Encoding"
    return response


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


def _is_read(request: Request) -> bool:
    """Whether its form was within bounds: then it can be asked for again."""
    return getattr(request, "_form", None) is not None


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
    zone = zone_of_visit(request)
    for name, cookie, value in (("lang", "peik_lang", language), ("theme", "peik_theme", theme), ("tz", ZONE, zone)):
        if request.query_params.get(name) == value:
            response.set_cookie(
                cookie,
                value.replace("/", "."),
                max_age=_PREFERRED_S,
                path="/admin",
                samesite="lax",
                secure=is_https(request),
            )


# `/admin/live`: tells open pages that something has changed, and nothing more. They ask for themselves again.


READERS_MAX = 200
OWN_READERS_MAX = 20  # of one browser: it has no more connections to one server anyway
GAP_S = 2.0  # between two ticks, however much happens
SILENCE_S = 10.0  # without one: what happens on other nodes is not heard here
LIFE_S = 600.0  # then the browser comes again


class Live:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._readers: dict[asyncio.Event, str] = {}  # whose each is
        self._is_over = False
        board.peik.events.listen(self.hear)

    def table(self) -> tuple[Page, ...]:
        return (("GET", "/admin/live", self.follow, Role.VIEWER, ""),)

    def hear(self, told: Sequence[Event]) -> None:
        for reader in self._readers:
            reader.set()

    def end(self) -> None:
        self._is_over = True
        self.hear(())

    async def follow(self, request: Request, visitor: Visitor) -> Response:
        if self._is_full(visitor.csrf):
            raise Unavailable(code="too_many_readers", detail="Too many pages are open. Reload this one by hand.")
        return ServerSentEvents(self._ticks(cookie_of(request, COOKIE) or "", visitor.csrf))

    def _is_full(self, whose: str) -> bool:
        own = sum(one == whose for one in self._readers.values())
        return len(self._readers) >= READERS_MAX or own >= OWN_READERS_MAX

    async def _ticks(self, token: str, whose: str) -> AsyncGenerator[bytes, None]:
        if self._is_full(whose):  # many were let in at once
            return
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + LIFE_S
        changed = asyncio.Event()
        self._readers[changed] = whose
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            while not self._is_over and loop.time() < ends_at:
                try:
                    async with asyncio.timeout(SILENCE_S):
                        await changed.wait()
                except TimeoutError:
                    pass
                changed.clear()
                if not await self._is_signed_in(token):
                    return
                yield frame(b"tick", b"{}")
                if not self._is_over:
                    await asyncio.sleep(GAP_S)
        finally:
            del self._readers[changed]

    async def _is_signed_in(self, token: str) -> bool:
        try:
            return await self._board.sign_ins.find(token) is not None
        except StoreUnavailable:
            return True  # a tick tells nothing; the page that it makes the browser ask for says what is wrong


# The pages of everything around them: bots, nodes, keys, people, accounts, jobs, broadcasts.


def management_pages(board: Board) -> tuple[Page, ...]:
    return (
        *BotPages(board).table(),
        *NodePages(board).table(),
        *KeyPages(board).table(),
        *PeoplePages(board).table(),
        *AuditPages(board).table(),
        *SessionPages(board).table(),
        *ArchivePages(board).table(),
        *JobPages(board).table(),
        *BroadcastPages(board, board.peik.broadcasts.service).table(),
        *NotificationPages(board, board.peik.notifications.service).table(),
        *SchedulePages(board).table(),
    )


# The pages of letters and arrivals.


def traffic_pages(board: Board) -> tuple[Page, ...]:
    return (
        *LetterPages(board).table(),
        *OneLetterPage(board).table(),
        *DeadPages(board).table(),
        *LanePages(board).table(),
        *ArrivalPages(board).table(),
        *ChatPages(board).table(),
        *SearchPages(board).table(),
    )


# Puts the dashboard together and stands before another application, which gets every path that is not the
# dashboard's.


class Dashboard:
    def __init__(self, peik: Runtime, admin_key: str, otherwise: App) -> None:
        self._otherwise = otherwise
        self._alerts = peik.watch.alerts
        assets = Assets()
        renderer = Renderer(load(), assets, peik.clock, alerts=self._alerts_of, bot_name=self._name_of)
        self._known = peik.outbox.service.known
        documents = peik.store.documents
        people = People(documents, peik.clock)
        oidc = oidc_of(peik.config, documents, peik.clock, asker_of(peik.config))
        self.board = Board(
            peik,
            renderer,
            people=people,
            sign_ins=SignIns(
                documents,
                people,
                peik.clock,
                find_key=peik.keyring.find,
                admin_key=admin_key,
                oidc_stamp=None if oidc is None else oidc.stamp,
            ),
            audit=peik.audit,
        )
        self._live = Live(self.board)
        attempts = Attempts(documents, peik.clock)
        sign_in = SignInPages(self.board, attempts, oidc)
        self._upkeep = AdminUpkeep(
            audit=peik.audit,
            sign_ins=self.board.sign_ins,
            attempts=attempts,
            clock=peik.settled,
            events=peik.events,
        )
        self.pages: tuple[Page, ...] = (
            *sign_in.table(),
            *self._live.table(),
            *OverviewPages(self.board, peik.watch.overview.now).table(),
            *ChartPages(self.board, peik.watch.figures.breakdown).table(),
            *SettingsPages(self.board).table(),
            *HelpPages(self.board).table(),
            *traffic_pages(self.board),
            *management_pages(self.board),
        )
        renderer.open({path for verb, path, *_ in self.pages if verb == "GET"})
        self._door = Door(self.board, self.pages, sign_in=sign_in, assets=assets)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path == "/admin" or path.startswith("/admin/"):
            await self._door(scope, receive, send)
        elif path == "/" and scope["method"] in ("GET", "HEAD"):  # the address that `peik serve` prints, in a browser
            await RedirectResponse("/admin", status_code=303)(scope, receive, send)
        else:
            await self._otherwise(scope, receive, send)

    async def run(self) -> None:
        """Lets go of what is over, until cancelled."""
        await self._upkeep.run()

    def _alerts_of(self, visitor: Visitor) -> int:
        return sum(visitor.bot_ids is None or visitor.key.serves(alert.bot_id) for alert in self._alerts.ongoing())

    def _name_of(self, bot_id: int) -> str | None:
        bot = self._known(bot_id)
        return None if bot is None else bot.username

    def end(self) -> None:
        """Streams end, so that a server that stops need not wait for them."""
        self._live.end()
