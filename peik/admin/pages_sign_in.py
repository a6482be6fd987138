"""Signing in, by an API key, by name and password or by OpenID Connect, and signing out again."""

import base64
import hashlib
import hmac
import re
import secrets
import urllib.parse
import zlib

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from peik.admin.model import Role
from peik.admin.oidc import BACK, BEGUN_MS, Oidc, OidcFailed
from peik.admin.sign_ins import AGE_MS, HOME_MS, Attempts, csrf_of, who_of
from peik.errors import Denied, Forbidden, Problem, TooMany, Unavailable
from peik.web.access import too_often
from peik.web.dashboard.board import COOKIE, Board, Page, Visitor, cookie_of, fields_of, is_https, is_own_form, own_path
from peik.web.dashboard.fields import Typed
from peik.web.limits import address_of as sender_of

PATH = "/admin/sign-in"
OIDC_PATH = f"{PATH}/oidc"
_FORM_COOKIE = "peik_form"  # ties the form to this browser before there is a session
_FORM_BYTES = 16
_FORM_TOKEN = re.compile(r"[A-Za-z0-9_-]{22}")  # those bytes, as we write them
_DEVICE_COOKIE = "peik_device"  # stays after a sign-out: strangers cannot lock out anyone who has signed in here
_DEVICE_CHARS_MAX = 100
_OIDC_COOKIE = "peik_oidc"  # while somebody is at the provider
_NEXT_CHARS_MAX = 1000  # of the page that was asked for: it is in that cookie
_FIELD_CHARS_MAX = 500
_TYPED_CHARS_MAX = 48 * 1024  # of a form that comes back, packed: a long text, or some thousand ids


class SignInForm(msgspec.Struct, frozen=True):
    """What somebody filled in: a key, or a name and a password."""

    key: str
    name: str
    password: str

    def __repr__(self) -> str:
        return "SignInForm(…)"


_OIDC_DETAILS = {
    "oidc_unreachable": "The sign-in service does not answer as it should. Try again later; the audit log says why.",
    "oidc_broken_off": "The sign-in service did not let you in. Begin again, or ask whoever runs it.",
    "oidc_not_begun": "This sign-in was not begun in this browser, or too long ago. Begin again.",
    "oidc_not_believed": "What the sign-in service sent cannot be believed. The audit log says why.",
    "oidc_no_role": "The sign-in service knows you, but nobody has given you a role here. Ask an admin of this Peik.",
}


class SignInPages:
    def __init__(self, board: Board, attempts: Attempts, oidc: Oidc | None = None) -> None:
        self._board = board
        self._attempts = attempts
        self._oidc = oidc

    @property
    def has_oidc(self) -> bool:
        return self._oidc is not None

    def table(self) -> tuple[Page, ...]:
        """What needs a sign-in itself. The form is the dashboard's own: it is the only page for strangers."""
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
        typed: Typed | None = None,
        name: str = "",
    ) -> Response:
        """`typed` is a form that comes back after the sign-in."""
        token = _form_token(request) or secrets.token_urlsafe(_FORM_BYTES)
        sealed = "" if typed is None else _sealed(typed, token)
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
                "typed": sealed if len(sealed) <= _TYPED_CHARS_MAX else "",
                "is_too_long": len(sealed) > _TYPED_CHARS_MAX,
                "name": name,
                **self._oidc_shown(request, own_path(next_url or request.query_params.get("next", ""))),
            },
        )
        response = Response(body, 200 if problem is None else problem.status, media_type="text/html; charset=utf-8")
        if isinstance(problem, TooMany):
            response.headers["Retry-After"] = str(problem.retry_after_s)
        response.set_cookie(_FORM_COOKIE, token, path="/admin", httponly=True, samesite="lax", secure=is_https(request))
        return response

    async def post(self, request: Request, *, language: str, theme: str) -> Response:
        form = await request.form()
        fields = fields_of(form)
        next_url = own_path(fields.get("next", ""))
        typed = _unsealed(fields.get("typed", ""), _form_token(request))
        try:
            self._check_form(request, fields)
            if fields.get("signed_in"):  # in another window, at the provider: the form is to come back here
                return await self._signed_in_elsewhere(request, typed, next_url)
            password = form.get("password")  # as it was typed, its spaces too
            given = SignInForm(
                fields.get("key", "")[:_FIELD_CHARS_MAX],
                fields.get("name", "")[:_FIELD_CHARS_MAX],
                password[:_FIELD_CHARS_MAX] if isinstance(password, str) else "",
            )
            address, device = address_of(request), (cookie_of(request, _DEVICE_COOKIE) or "")[:_DEVICE_CHARS_MAX]
            device = device or secrets.token_urlsafe(32)
            if given.key:
                token = await self._by_key(given.key, address=address)
            else:
                token = await self._by_password(given, address=address, device=device)
        except (Denied, TooMany) as problem:
            return self.form(
                request,
                language=language,
                theme=theme,
                problem=problem,
                next_url=next_url,
                typed=typed,
                name=fields.get("name", "")[:_FIELD_CHARS_MAX],
            )
        request.state.token, request.state.typed, request.state.next_url = token, typed, next_url
        response = await self._let_in(request, token, next_url)
        if not given.key:
            response.set_cookie(
                _DEVICE_COOKIE,
                device,
                max_age=HOME_MS // 1000,
                path="/admin/sign-in",
                httponly=True,
                samesite="lax",
                secure=is_https(request),
            )
        response.delete_cookie(_FORM_COOKIE, path="/admin")
        return response

    async def _let_in(self, request: Request, token: str, next_url: str) -> Response:
        if before := cookie_of(request, COOKIE):
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
        return response

    async def _signed_in_elsewhere(self, request: Request, typed: Typed | None, next_url: str) -> Response:
        token = cookie_of(request, COOKIE) or ""
        if not token or await self._board.sign_ins.find(token) is None:
            raise Denied(code="not_signed_in_yet", detail="You are not signed in yet. Sign in, and try again.")
        request.state.token, request.state.typed, request.state.next_url = token, typed, next_url
        return RedirectResponse(next_url, 303)

    # ---- by OpenID Connect ----

    def _oidc_shown(self, request: Request, next_url: str) -> dict[str, object]:
        """What the sign-in page shows of it."""
        if self._oidc is None:
            return {"oidc_name": None, "oidc_url": "", "oidc_end_url": None}
        asked = f"?{urllib.parse.urlencode({'next': next_url})}" if next_url != "/admin" else ""
        end_url = None
        if request.query_params.get("out") == "oidc":
            end_url = self._oidc.end_url(back_url=self._own_url(request, PATH))
        return {"oidc_name": self._oidc.name, "oidc_url": OIDC_PATH + asked, "oidc_end_url": end_url}

    def _own_url(self, request: Request, path: str) -> str:
        """As the browser has to find it."""
        own = None if self._oidc is None else self._oidc.own_url
        return (own or f"{request.url.scheme}://{request.headers.get('host', '')}") + path

    async def to_provider(self, request: Request, *, language: str, theme: str) -> Response:
        """The way there. What somebody typed does not come along; it waits where it is."""
        assert self._oidc is not None
        next_url = own_path(request.query_params.get("next", ""))
        next_url = next_url if len(next_url) <= _NEXT_CHARS_MAX else "/admin"
        try:
            begun = await self._oidc.begin(back_url=self._own_url(request, BACK), next_url=next_url)
        except OidcFailed as failed:
            await self._note_again("oidc", failed.why, address=address_of(request))
            return self._oidc_failed(request, failed, language=language, theme=theme, next_url=next_url)
        response = RedirectResponse(begun.url, 303)
        response.set_cookie(
            _OIDC_COOKIE,
            begun.word,
            max_age=BEGUN_MS // 1000,
            path=OIDC_PATH,
            httponly=True,
            samesite="lax",  # the provider's page sends the browser back here
            secure=self._own_url(request, "").startswith("https:"),
        )
        return response

    async def from_provider(self, request: Request, *, language: str, theme: str) -> Response:
        """The way back. Codes that are none are counted with wrong keys, so that nobody makes us ask the provider for ever."""
        assert self._oidc is not None
        given, address = request.query_params, address_of(request)
        gate, now, host = self._board.peik.limits, self._board.peik.clock.mono(), address or None
        try:
            if wait_s := gate.barred_s(host, now):
                await self._note_again("oidc", "too_many_requests", address=address)
                raise too_often(wait_s)
            if len(given.multi_items()) > len(given):
                raise OidcFailed("oidc_not_believed", "the answer says something twice")
            identity = await self._oidc.finish(
                cookie_of(request, _OIDC_COOKIE) or "", given, back_url=self._own_url(request, BACK)
            )
        except OidcFailed as failed:
            if failed.code != "oidc_no_role":
                gate.wrong_wait_s(host, given.get("state", "") + given.get("code", ""), now)
            await self._note_wrong(failed.who, "oidc", address=address, failed=f"{failed.code}: {failed.why}")
            response = self._oidc_failed(request, failed, language=language, theme=theme, next_url="/admin")
        except TooMany as problem:
            response = self.form(request, language=language, theme=theme, problem=problem, next_url="/admin")
        else:
            token = await self._board.sign_ins.sign_in_oidc(identity, address=address)
            await self._board.audit.note(
                who=identity.name,
                action="sign_in",
                target="oidc",
                is_done=True,
                detail=f"{identity.role}, {identity.subject}",
                address=address,
            )
            response = await self._let_in(request, token, own_path(identity.next_url))
        response.delete_cookie(_OIDC_COOKIE, path=OIDC_PATH)
        return response

    def _oidc_failed(
        self, request: Request, failed: OidcFailed, *, language: str, theme: str, next_url: str
    ) -> Response:
        kinds: dict[str, type[Problem]] = {"oidc_unreachable": Unavailable, "oidc_no_role": Forbidden}
        problem = kinds.get(failed.code, Denied)(code=failed.code, detail=_OIDC_DETAILS[failed.code])
        return self.form(request, language=language, theme=theme, problem=problem, next_url=next_url)

    def _check_form(self, request: Request, fields: dict[str, str]) -> None:
        token = _form_token(request)
        is_ours = hmac.compare_digest(csrf_of(token).encode(), fields.get("csrf", "").encode())
        if not (token and is_ours and is_own_form(request)):
            raise Forbidden(
                code="foreign_form", detail="This form did not come from here, or it is too old. Try again."
            )

    async def _by_key(self, text: str, *, address: str) -> str:
        """The token for the browser. Guesses are counted with those over REST and the gateway. Raises Denied, TooMany."""
        sign_ins, gate, now = self._board.sign_ins, self._board.peik.limits, self._board.peik.clock.mono()
        key, host = sign_ins.key(text), address or None
        wait_s = gate.wrong_wait_s(host, text, now) if key is None else gate.holder_wait_s(host, key.id, key.rate, now)
        if wait_s:
            await self._note_again("key", "too_many_requests", address=address)
            raise too_often(wait_s)
        if key is None:
            await self._note_wrong("?", "key", address=address, failed="wrong_key")
            raise Denied(code="wrong_sign_in_key", detail="This key is not known here, or its time is over.")
        token = await sign_ins.sign_in_key(key, address=address)
        await self._note(who_of(key), "key", address=address)
        return token

    async def _by_password(self, given: SignInForm, *, address: str, device: str) -> str:
        """The token for the browser. Raises Denied, Forbidden, and Unavailable if too many try at once."""
        people = self._board.people
        try:
            places = await self._attempts.begin(name=given.name, address=address, device=device)
        except Forbidden as problem:
            await self._note_again("password", problem.code, address=address)
            raise
        person = await people.is_right(given.name, given.password)
        if person is None:
            # What was written as a name may be a password in the wrong field, so that only known names are noted.
            known = await people.person(given.name)
            name = "?" if known is None else known.name
            await self._note_wrong(name, "password", address=address, failed="wrong_password")
            raise Denied(code="wrong_sign_in", detail="Name and password do not belong together.")
        token = await self._board.sign_ins.sign_in_person(person, address=address)
        await self._attempts.forgive(places, name=person.name, address=address, device=device)
        await self._note(person.name, "password", address=address)
        return token

    async def _note(self, who: str, target: str, *, address: str, failed: str = "") -> None:
        await self._board.audit.note(
            who=who, action="sign_in", target=target, is_done=not failed, detail=failed, address=address
        )

    async def _note_wrong(self, who: str, target: str, *, address: str, failed: str) -> None:
        """A line for each, and one for many if somebody goes on with what costs him no guess: the same wrong key."""
        refusals, sender = self._board.audit.refusals, f"sign-in {sender_of(address)}"
        try:
            refusals.check(sender)
        except Forbidden:
            await self._note_again(target, failed, address=address)
            return
        refusals.note(sender)
        await self._note(who, target, address=address, failed=failed)

    async def _note_again(self, target: str, failed: str, *, address: str) -> None:
        await self._board.audit.note_refused_again(
            who="?", action="sign_in", target=target, detail=failed, address=address
        )

    # ---- for those who are in ----

    async def sign_out(self, request: Request, visitor: Visitor) -> Response:
        await self._board.sign_ins.sign_out(cookie_of(request, COOKIE) or "")
        return _left(visitor)

    async def sign_out_everywhere(self, request: Request, visitor: Visitor) -> Response:
        await self._board.sign_ins.sign_out_everywhere(cookie_of(request, COOKIE) or "")
        return _left(visitor)


# A form that was sent when its session was over goes round by the browser: nothing of it is stored here, and strangers fill
# no store. It is sealed with what ties the sign-in to this browser, so that nobody else's words come back in it.


def _sealed(typed: Typed, token: str) -> str:
    packed = base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(typed))).decode()
    return f"{_seal(packed, token)}.{packed}"


def _unsealed(text: str, token: str) -> Typed | None:
    seal, _, packed = text.partition(".")
    if not (token and packed and hmac.compare_digest(seal.encode(), _seal(packed, token).encode())):
        return None
    return msgspec.json.decode(zlib.decompress(base64.urlsafe_b64decode(packed)), type=Typed)


def _seal(packed: str, token: str) -> str:
    return hashlib.blake2b(packed.encode(), key=token.encode(), digest_size=16, person=b"typed").hexdigest()


def _form_token(request: Request) -> str:
    """What we tied this browser to; empty: nothing that is ours."""
    shown = cookie_of(request, _FORM_COOKIE) or ""
    return shown if _FORM_TOKEN.fullmatch(shown) else ""


def address_of(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _left(visitor: Visitor) -> Response:
    # At the provider he is signed in still; the page says so, and how to end that.
    response = RedirectResponse(f"{PATH}?out=oidc" if visitor.name.startswith("oidc ") else PATH, 303)
    response.delete_cookie(COOKIE, path="/admin")
    return response
