"""Signing in, by an API key or by name and password, and signing out again."""

import hmac
import secrets

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from peik.admins.attempts import Attempts
from peik.admins.sign_ins import AGE_MS, csrf_of, who_of
from peik.core.role import Role
from peik.doors.dashboard.board import Board, Page, Visitor, fields_of, is_https, own_path
from peik.doors.dashboard.headers import is_own_form
from peik.errors import Denied, Forbidden, Problem

PATH = "/admin/sign-in"
COOKIE = "peik_session"
_FORM_COOKIE = "peik_form"  # ties the form to this browser before there is a session
_FIELD_CHARS_MAX = 500


class Given(msgspec.Struct, frozen=True):
    """What somebody filled in: a key, or a name and a password."""

    key: str
    name: str
    password: str

    def __repr__(self) -> str:
        return "Given(…)"


class SignInPages:
    def __init__(self, board: Board, attempts: Attempts) -> None:
        self._board = board
        self._attempts = attempts

    def table(self) -> tuple[Page, ...]:
        """What needs a sign-in itself. The form is the door's own: it is the only page for strangers."""
        return (
            ("POST", "/admin/sign-out", self.sign_out, Role.VIEWER, "sign_out"),
            ("POST", "/admin/sign-out-everywhere", self.sign_out_everywhere, Role.VIEWER, "sign_out.everywhere"),
        )

    # ---- for strangers ----

    def form(
        self,
        request: Request,
        *,
        language: str,
        theme: str,
        problem: Problem | None = None,
        next_url: str | None = None,
    ) -> Response:
        token = request.cookies.get(_FORM_COOKIE) or secrets.token_urlsafe(16)
        body = self._board.render(
            "sign_in.html",
            request=request,
            visitor=None,
            language=language,
            theme=theme,
            context={
                "problem": problem,
                "csrf": csrf_of(token),
                "next_url": own_path(next_url if next_url is not None else request.query_params.get("next", "")),
            },
        )
        response = Response(body, 200 if problem is None else problem.status, media_type="text/html; charset=utf-8")
        response.set_cookie(_FORM_COOKIE, token, path="/admin", httponly=True, samesite="lax", secure=is_https(request))
        return response

    async def post(self, request: Request, *, language: str, theme: str) -> Response:
        fields = fields_of(await request.form())
        next_url = own_path(fields.get("next", ""))
        try:
            self._check_form(request, fields)
            token = await self._sign_in(
                Given(*(fields.get(name, "")[:_FIELD_CHARS_MAX] for name in ("key", "name", "password"))),
                address=address_of(request),
            )
        except (Denied, Forbidden) as problem:
            return self.form(request, language=language, theme=theme, problem=problem, next_url=next_url)
        response = RedirectResponse(next_url, 303)
        response.set_cookie(
            COOKIE,
            token,
            max_age=AGE_MS // 1000,
            path="/admin",
            httponly=True,
            samesite="lax",
            secure=is_https(request),
        )
        response.delete_cookie(_FORM_COOKIE, path="/admin")
        return response

    def _check_form(self, request: Request, fields: dict[str, str]) -> None:
        token = request.cookies.get(_FORM_COOKIE, "")
        is_ours = hmac.compare_digest(csrf_of(token).encode(), fields.get("csrf", "").encode())
        if not (token and is_ours and is_own_form(request)):
            raise Forbidden(
                code="foreign_form", detail="This form did not come from here, or it is too old. Try again."
            )

    async def _sign_in(self, given: Given, *, address: str) -> str:
        """The token for the browser. Raises Denied, Forbidden."""
        by_name = None if given.key else given.name
        places = await self._attempts.begin(name=by_name, address=address)
        sign_ins, audit = self._board.sign_ins, self._board.audit
        if given.key:
            key = sign_ins.key(given.key)
            if key is None:
                await audit.note(
                    who="?", action="sign_in", target="key", is_done=False, detail="wrong_key", address=address
                )
                raise Denied(code="wrong_sign_in_key", detail="This key is not known here, or its time is over.")
            who, token = who_of(key), await sign_ins.sign_in_key(key, address=address)
        else:
            person = await self._board.people.is_right(given.name, given.password)
            if person is None:
                # What was written as a name may be a password in the wrong field, so that only known names are noted.
                known = await self._board.people.person(given.name)
                who = "?" if known is None else known.name
                await audit.note(
                    who=who,
                    action="sign_in",
                    target="password",
                    is_done=False,
                    detail="wrong_password",
                    address=address,
                )
                raise Denied(code="wrong_sign_in", detail="Name and password do not belong together.")
            who, token = person.name, await sign_ins.sign_in_person(person, address=address)
        await self._attempts.forgive(places)
        target = "key" if given.key else "password"
        await audit.note(who=who, action="sign_in", target=target, is_done=True, address=address)
        return token

    # ---- for those who are in ----

    async def sign_out(self, request: Request, visitor: Visitor) -> Response:
        await self._board.sign_ins.sign_out(request.cookies[COOKIE])
        return _left()

    async def sign_out_everywhere(self, request: Request, visitor: Visitor) -> Response:
        await self._board.sign_ins.sign_out_everywhere(request.cookies[COOKIE])
        return _left()


def address_of(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _left() -> Response:
    response = RedirectResponse(PATH, 303)
    response.delete_cookie(COOKIE, path="/admin")
    return response
