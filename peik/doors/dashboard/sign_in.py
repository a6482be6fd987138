"""Signing in, by an API key or by name and password, and signing out again."""

import hmac
import secrets

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from peik.admins.attempts import Attempts
from peik.admins.sign_ins import AGE_MS, csrf_of, who_of
from peik.core.role import Role
from peik.doors.dashboard.board import COOKIE, Board, Page, Visitor, fields_of, is_https, own_path
from peik.doors.dashboard.headers import is_own_form
from peik.errors import Denied, Forbidden, Problem

PATH = "/admin/sign-in"
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
        form = await request.form()
        fields = fields_of(form)
        next_url = own_path(fields.get("next", ""))
        try:
            self._check_form(request, fields)
            password = form.get("password")  # as it was typed, its spaces too
            given = Given(
                fields.get("key", "")[:_FIELD_CHARS_MAX],
                fields.get("name", "")[:_FIELD_CHARS_MAX],
                password[:_FIELD_CHARS_MAX] if isinstance(password, str) else "",
            )
            address = address_of(request)
            if given.key:
                token = await self._by_key(given.key, address=address)
            else:
                token = await self._by_password(given, address=address)
        except Denied as problem:
            return self.form(request, language=language, theme=theme, problem=problem, next_url=next_url)
        if before := request.cookies.get(COOKIE):
            await self._board.sign_ins.sign_out(before)  # a browser is signed in as one
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

    async def _by_key(self, text: str, *, address: str) -> str:
        """The token for the browser. A right key opens whatever others have tried: it is too long to be guessed, so that
        brakes would only let strangers lock out its owner. Raises Denied, Forbidden."""
        sign_ins = self._board.sign_ins
        key = sign_ins.key(text)
        if key is None:
            await self._attempts.begin(name=None, address=address)
            await self._note("?", "key", address=address, failed="wrong_key")
            raise Denied(code="wrong_sign_in_key", detail="This key is not known here, or its time is over.")
        token = await sign_ins.sign_in_key(key, address=address)
        await self._note(who_of(key), "key", address=address)
        return token

    async def _by_password(self, given: Given, *, address: str) -> str:
        """The token for the browser. Raises Denied, Forbidden, and Unavailable if too many try at once."""
        people = self._board.people
        places = await self._attempts.begin(name=given.name, address=address)
        person = await people.is_right(given.name, given.password)
        if person is None:
            # What was written as a name may be a password in the wrong field, so that only known names are noted.
            known = await people.person(given.name)
            await self._note("?" if known is None else known.name, "password", address=address, failed="wrong_password")
            raise Denied(code="wrong_sign_in", detail="Name and password do not belong together.")
        token = await self._board.sign_ins.sign_in_person(person, address=address)
        await self._attempts.forgive(places, name=person.name, address=address)
        await self._note(person.name, "password", address=address)
        return token

    async def _note(self, who: str, target: str, *, address: str, failed: str = "") -> None:
        await self._board.audit.note(
            who=who, action="sign_in", target=target, is_done=not failed, detail=failed, address=address
        )

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
