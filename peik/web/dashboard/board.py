"""What all pages of the dashboard share: who looks at it, how a page is rendered, how one goes back with a word."""

import hashlib
import hmac
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from peik.admin.audit import Audit
from peik.admin.model import Key, Role
from peik.admin.people import People
from peik.admin.sign_ins import SignIns
from peik.app.runtime import Runtime
from peik.errors import NotFound, Problem
from peik.web.access import Caller
from peik.web.dashboard.render import Renderer, zone_named

# What every answer of the dashboard says to the browser about safety, what cookies the browser shows, and whether a
# form came from a page of ours.


_POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "object-src 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def secured(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def cookie_of(request: Request, name: str) -> str | None:
    """What the browser shows under a name of ours; of several, the first, which has the longest path (RFC 6265 §5.4).

    Not by Starlette or the standard library: `http.cookies` is quadratic before Python 3.11.10 and 3.12.6 (CVE-2024-7592). Our
    own values need no quotes, so that nothing has to be unescaped.
    """
    headers: list[tuple[bytes, bytes]] = request.scope["headers"]
    for header, value in headers:
        if header == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                found, _, text = pair.partition("=")
                if found.strip() == name:
                    return text.strip()
    return None


def is_own_form(request: Request) -> bool:
    """Whether the browser says that a page of ours sent it. One that says nothing has only the hidden field to show."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urllib.parse.urlsplit(origin).netloc == request.headers.get("host", "")


def surely_own_form(request: Request) -> bool:
    """The same, of a browser that does say it: what others made it send is not shown to anybody as theirs."""
    is_said = request.headers.get("sec-fetch-site") == "same-origin" or bool(request.headers.get("origin"))
    return is_said and is_own_form(request)


COOKIE = "peik_session"
FLASH = "peik_said"
FLASH_S = 60
ZONE = "peik_zone"
_FLASH_CHARS_MAX = 1500  # a cookie holds 4 KB, and Persian takes six characters for one in it
_WORD_CHARS = (200, 60, 20, 5, 0)  # that is cut off words until they fit
LIVE = "x-peik-live"  # a page asked for again by its own script


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks at the dashboard. `key` is the API key that was signed in with, or stands for a person."""

    name: str
    role: Role
    key: Key
    csrf: str
    language: str
    theme: str
    zone: str = "UTC"

    @property
    def bot_ids(self) -> frozenset[int] | None:
        """The bots of the key; None: all of them."""
        return self.key.bot_ids

    @property
    def caller(self) -> Caller:
        """The same as REST's doors know it: `narrow`, `must_see`, `must_serve`, `must_serve_all`, `own`."""
        return Caller(self.key)

    def may(self, role: Role | str) -> bool:
        return self.role.allows(Role(role))


Endpoint = Callable[[Request, Visitor], Awaitable[Response]]
Page = tuple[str, str, Endpoint, Role, str]  # verb, path, endpoint, who may, what the audit log calls it


class Flash(msgspec.Struct, frozen=True):
    """A word that is shown once, on the next page."""

    key: str
    words: dict[str, str] = {}
    is_bad: bool = False


class Board:
    """`peik` is all that a page may ask; `people`, `sign_ins` and `audit` are the dashboard's own."""

    def __init__(self, peik: Runtime, renderer: Renderer, *, people: People, sign_ins: SignIns, audit: Audit) -> None:
        self.peik = peik
        self.people = people
        self.sign_ins = sign_ins
        self.audit = audit
        self._renderer = renderer
        self.render = renderer.render

    def say(self, visitor: Visitor, key: str, **words: object) -> str:
        return self._renderer.words.say(visitor.language, key, **words)

    def problem_text(self, visitor: Visitor, problem: Problem) -> str:
        return self._renderer.problem_text(visitor.language, problem)

    def page(
        self, request: Request, visitor: Visitor, template: str, *, status: int = 200, **context: object
    ) -> Response:
        """A whole page. `problem=` of the context is shown above it."""
        # What the door has to say on it: of a form that was refused, or that comes back after a sign-in.
        refused: Problem | None = getattr(request.state, "problem", None)
        said, is_live = getattr(request.state, "said", None), LIVE in request.headers
        kept = None if is_live else cookie_of(request, FLASH)
        if kept is not None and said is None:
            said = read_said(kept, visitor.csrf)
        if refused is not None:
            status, said, context = refused.status, None, {**context, "problem": refused, "is_refused": True}
        body = self._renderer.render(template, request=request, visitor=visitor, said=said, context=context)
        response = Response(body, status, media_type="text/html; charset=utf-8")
        if kept is not None:
            response.delete_cookie(FLASH, path="/admin")
        return response

    def back(
        self, request: Request, visitor: Visitor, url: str, *, said: str, is_bad: bool = False, **words: object
    ) -> Response:
        """See the page `url` next, with a word on it."""
        response = RedirectResponse(url, 303)
        texts = {name: str(word)[:200] for name, word in words.items()}
        written = write_said(Flash(said, texts, is_bad), visitor.csrf)
        response.set_cookie(
            FLASH, written, max_age=FLASH_S, path="/admin", httponly=True, samesite="lax", secure=is_https(request)
        )
        return response

    def note(self, request: Request, *, target: str | None = None, detail: str = "") -> None:
        """What the audit log shall say of this request beyond its path."""
        request.state.target = target
        request.state.detail = detail

    def problem_page(self, request: Request, visitor: Visitor, problem: Problem) -> Response:
        """What went wrong, in words, with the way back."""
        return self.page(
            request, visitor, "problem.html", status=problem.status, problem=problem, back_url=came_from(request)
        )


def write_said(said: Flash, secret: str) -> str:
    """As a cookie, sealed with a secret of the visitor: others on the same host can plant cookies, but no words of ours."""
    for chars in _WORD_CHARS:
        short = Flash(said.key, {name: word[:chars] for name, word in said.words.items()}, said.is_bad)
        written = urllib.parse.quote(msgspec.json.encode(short).decode(), safe="")
        if len(written) <= _FLASH_CHARS_MAX:
            break
    return f"{_seal(written, secret)}.{written}"


def read_said(text: str, secret: str) -> Flash | None:
    seal, _, written = text.partition(".")
    if not hmac.compare_digest(seal.encode(), _seal(written, secret).encode()):
        return None
    try:
        return msgspec.json.decode(urllib.parse.unquote(written), type=Flash)
    except msgspec.DecodeError:
        return None


def _seal(written: str, secret: str) -> str:
    return hashlib.blake2b(written.encode(), key=secret.encode(), digest_size=16).hexdigest()


def zone_of_visit(request: Request) -> str:
    """The zone in which somebody reads and writes times: as the menu says, or as the browser told. A cookie takes no slash."""
    for name in (request.query_params.get("tz"), (cookie_of(request, ZONE) or "").replace(".", "/")):
        if zone_named(name) is not None:
            return str(name)
    return "UTC"


def is_https(request: Request) -> bool:
    """Also behind a proxy that does not say so: what the browser calls its own address is enough to keep a cookie from plain
    HTTP, and anyone who lies about it harms himself."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def came_from(request: Request) -> str:
    """The page of ours that the request came from."""
    return own_path(urllib.parse.urlsplit(request.headers.get("referer", "")).path)


def own_path(text: str) -> str:
    """The text if it is a path of the dashboard, else its first page: nobody is sent elsewhere from here."""
    is_ours = text == "/admin" or text.startswith(("/admin/", "/admin?"))
    return text if is_ours and text.isprintable() and "\\" not in text else "/admin"


def fields_of(form: Mapping[str, object]) -> dict[str, str]:
    """The texts of a form, without blanks around them; files are left out."""
    return {name: value.strip() for name, value in form.items() if isinstance(value, str)}


# How far a visitor reaches: one who signed in with a key of some bots sees these, and nothing that concerns them all.


def must_see(visitor: Visitor, bot_id: int) -> None:
    """Raises NotFound for a bot that this visitor does not see, in the words for one that is not there."""
    if not visitor.key.serves(bot_id):
        raise NotFound(code="unknown_bot", detail=f"Bot {bot_id} is not known here.")


def must_see_all(visitor: Visitor) -> None:
    """For what concerns Peik as a whole. Raises Forbidden for the key of some bots only."""
    visitor.caller.must_serve_all()
