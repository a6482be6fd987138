"""REST: accounts of people. Registering, signing in, running, and reading the histories of their chats."""

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.accounts.answers import chat_view, session_view
from peik.admin.model import Scope
from peik.archive.store import Session, SessionFilter, SessionState
from peik.core.units import rfc3339
from peik.errors import BadInput, Conflict, NotFound
from peik.web.access import Access
from peik.web.bodies import read_body, read_limit
from peik.web.openapi import LIMIT, TIME, WORD, WORD_CHARS_MAX, Json, OperationRow, in_path, in_query, nullable, shape
from peik.web.parse import decode, instant_ms
from peik.web.responses import Route, json_response, svg

if TYPE_CHECKING:
    from peik.accounts.service import AccountService

_SMALL_BODY = 64 * 1024
SESSION_ID_PATTERN = "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"  # as the registry gives and takes them
CHAT_NUMBER_PATTERN = "^-?[1-9][0-9]{0,15}$"
OLD_DAYS = 30
DAYS_MAX = 36_500
_SVG = "image/svg+xml"
_FILTERS = ("agent_id", "state", "active", "phone", "cursor", "limit")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_SECRET_OF_A_MINUTE = {"Cache-Control": "no-store"}
_NO_BODY = b"{}"

T = TypeVar("T")
_Text = str | msgspec.UnsetType
_Flag = bool | msgspec.UnsetType


class SessionBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/sessions`."""

    agent_id: str
    phone: str | None = None
    metadata: dict[str, Any] | None = None
    proxy: str | None = None
    file: str | None = None
    session_id: str | None = None


class SessionChange(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/sessions/{session_id}`. What is not given stays. Keys of `metadata` are merged, and null removes one."""

    phone: _Text = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    proxy: _Text | None = msgspec.UNSET
    is_active: _Flag = msgspec.UNSET
    is_connected: _Flag = msgspec.UNSET


class CodeWanted(msgspec.Struct, forbid_unknown_fields=True):
    """`POST …/code`. Without a phone, that of the session."""

    phone: str | None = None
    by_sms: bool = False


class SignInBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST …/sign-in`: the code, as text or as a number."""

    code: str | int


class PasswordBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST …/password`."""

    password: str


class CleanupBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/sessions/cleanup`."""

    days: float = OLD_DAYS


class CrawlBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST …/crawl`. Without `until`, down to the first message."""

    until: int | float | str | None = None


class SessionRoutes:
    def __init__(self, sessions: "AccountService | None", access: Access) -> None:
        self._sessions = sessions
        self._access = access

    def table(self) -> tuple[Route, ...]:
        one = "/v1/sessions/{session_id}"
        return (
            ("POST", "/v1/sessions", self.make_session, "makeSession", "sessions"),
            ("GET", "/v1/sessions", self.list_sessions, "listSessions", "sessions"),
            ("POST", "/v1/sessions/cleanup", self.clean_up, "cleanUpSessions", "sessions"),
            ("POST", "/v1/sessions/reseal", self.reseal, "resealSessions", "sessions"),
            ("GET", one, self.get_session, "getSession", "sessions"),
            ("PATCH", one, self.change_session, "changeSession", "sessions"),
            ("DELETE", one, self.remove_session, "removeSession", "sessions"),
            ("POST", f"{one}/code", self.send_code, "sendCode", "sessions"),
            ("POST", f"{one}/sign-in", self.sign_in, "signIn", "sessions"),
            ("DELETE", f"{one}/sign-in", self.cancel_sign_in, "cancelSignIn", "sessions"),
            ("POST", f"{one}/password", self.give_password, "givePassword", "sessions"),
            ("GET", f"{one}/qr", self.get_qr, "getQr", "sessions"),
            ("POST", f"{one}/start", self.start, "startSession", "sessions"),
            ("POST", f"{one}/stop", self.stop, "stopSession", "sessions"),
            ("POST", f"{one}/restart", self.restart, "restartSession", "sessions"),
            ("POST", f"{one}/log-out", self.log_out, "logOutSession", "sessions"),
            ("POST", f"{one}/activity", self.note_activity, "noteActivity", "sessions"),
            ("GET", f"{one}/chats", self.list_chats, "listSessionChats", "sessions"),
            ("POST", f"{one}/chats/{{chat_id}}/crawl", self.crawl, "crawlChat", "sessions"),
            ("DELETE", f"{one}/chats/{{chat_id}}/crawl", self.stop_crawl, "stopCrawl", "sessions"),
        )

    # ---- the registry ----

    async def make_session(self, request: Request) -> Response:
        """Register an account that is to be signed in, or that runs from a session file of Telethon."""
        desk = self._desk(request, "admin")
        body = await _read(SessionBody, request)
        session = await desk.create_session(
            body.agent_id,
            phone=body.phone,
            metadata=body.metadata,
            proxy=body.proxy,
            file=body.file,
            session_id=body.session_id,
        )
        return _shown(session, 201)

    async def list_sessions(self, request: Request) -> Response:
        """Accounts in the order of their ids, page by page."""
        desk = self._desk(request, "read")
        wanted = _filter(request)
        limit = read_limit(request)
        query = request.query_params
        after = _session_id(query["cursor"]) if "cursor" in query else None
        if "phone" in query:
            found = await desk.get_session_by_phone(query["phone"])
            page = [found] if found is not None and _fits(found, wanted, after) else []
        else:
            page = await desk.sessions(wanted, after=after, limit=limit + 1)
        shown = [session_view(session) for session in page[:limit]]
        return json_response({"sessions": shown, "next": page[limit - 1].session_id if len(page) > limit else None})

    async def clean_up(self, request: Request) -> Response:
        """Forget accounts that are revoked, failed or deactivated, and that nobody used for so many days."""
        desk = self._desk(request, "admin")
        days = (await _read(CleanupBody, request, is_optional=True)).days
        if not 0 <= days <= DAYS_MAX:
            raise BadInput(code="bad_days", detail=f"days is between 0 and {DAYS_MAX}.")
        return json_response({"removed": await desk.cleanup_old_sessions(days)})

    async def reseal(self, request: Request) -> Response:
        """Seal every account's key with the PEIK_SECRET_KEY of now, after it was changed."""
        desk = self._desk(request, "admin")
        return json_response(msgspec.to_builtins(await desk.reseal()))

    async def get_session(self, request: Request) -> Response:
        """One account: how it stands, and why."""
        return _shown(await self._desk(request, "read").session(_path_id(request)))

    async def change_session(self, request: Request) -> Response:
        """Change what is given, one after the other: proxy, phone, metadata, is_active, is_connected."""
        desk = self._desk(request, "admin")
        session_id = _path_id(request)
        body = await _read(SessionChange, request)
        session = await desk.session(session_id)
        if body.proxy is not msgspec.UNSET:
            session = await desk.set_proxy(session_id, body.proxy)
        if body.phone is not msgspec.UNSET:
            session = await desk.update_session_phone(session_id, body.phone)
        if body.metadata is not msgspec.UNSET:
            session = await desk.update_session_metadata(session_id, body.metadata)
        if body.is_active is not msgspec.UNSET:
            change = desk.activate_session if body.is_active else desk.deactivate_session
            session = await change(session_id)
        if body.is_connected is not msgspec.UNSET:
            session = await desk.update_session_connected(session_id, body.is_connected)
        return _shown(session)

    async def remove_session(self, request: Request) -> Response:
        """Forget an account that has no letters to send. What it saw stays in the archive, and Telegram is not told."""
        desk = self._desk(request, "admin")
        session_id = _path_id(request)
        if not await desk.delete_session(session_id):
            raise NotFound(code="no_such_session", detail=f"There is no session {session_id}.")
        return Response(status_code=204)

    # ---- signing in ----

    async def send_code(self, request: Request) -> Response:
        """Let Telegram send a code to the account's phone; by SMS if asked for."""
        desk = self._desk(request, "admin")
        body = await _read(CodeWanted, request, is_optional=True)
        return _shown(await desk.send_code(_path_id(request), body.phone, by_sms=body.by_sms))

    async def sign_in(self, request: Request) -> Response:
        """Give the code. The account is active then, or password_needed."""
        desk = self._desk(request, "admin")
        code = str((await _read(SignInBody, request)).code)
        return _shown(await desk.give_code(_path_id(request), code))

    async def give_password(self, request: Request) -> Response:
        """Give the password of an account with two-step verification."""
        desk = self._desk(request, "admin")
        password = (await _read(PasswordBody, request)).password
        if not 0 < len(password) <= 1024:
            raise BadInput(code="malformed_password", detail="password has 1 to 1024 characters.")
        return _shown(await desk.give_password(_path_id(request), password))

    async def cancel_sign_in(self, request: Request) -> Response:
        """Leave a sign-in that was begun."""
        return _shown(await self._desk(request, "admin").cancel_sign_in(_path_id(request)))

    async def get_qr(self, request: Request) -> Response:
        """Begin to sign in by QR: the code to be scanned at once, as an address and as a picture."""
        # It begins something at Telegram and is worth an account for a minute: a key that may only read gets none.
        qr = await self._desk(request, "admin").qr(_path_id(request))
        picture = svg(qr.url)
        if _SVG in request.headers.get("accept", ""):
            if picture is None:
                raise Conflict(code="no_pictures", detail="The picture needs a package: pip install 'peik[sessions]'.")
            return Response(picture, headers=_SECRET_OF_A_MINUTE, media_type=_SVG)
        answer = json_response({"url": qr.url, "expires_at": rfc3339(qr.expires_at_ms), "svg": picture})
        answer.headers.update(_SECRET_OF_A_MINUTE)
        return answer

    # ---- running ----

    async def start(self, request: Request) -> Response:
        """Let a paused or failed account run again."""
        return _shown(await self._desk(request, "admin").start(_path_id(request)))

    async def stop(self, request: Request) -> Response:
        """Pause an account: it is disconnected, and stays signed in."""
        return _shown(await self._desk(request, "admin").stop(_path_id(request)))

    async def restart(self, request: Request) -> Response:
        """Connect an account anew, on the node that it runs on."""
        return _shown(await self._desk(request, "admin").restart(_path_id(request)))

    async def log_out(self, request: Request) -> Response:
        """Sign out at Telegram: its key is worth nothing from then on."""
        return _shown(await self._desk(request, "admin").log_out(_path_id(request)))

    async def note_activity(self, request: Request) -> Response:
        """Note that the account was used now; kept every few seconds at most."""
        desk = self._desk(request, "admin")
        session_id = _path_id(request)
        await desk.update_session_activity(session_id)
        return _shown(await desk.session(session_id))

    # ---- chats ----

    async def list_chats(self, request: Request) -> Response:
        """The chats that something is known of, and how far."""
        chats = await self._desk(request, "read").chats(_path_id(request))
        return json_response({"chats": [chat_view(chat) for chat in chats]})

    async def crawl(self, request: Request) -> Response:
        """Read a chat's history backwards into the archive; it goes on after restarts until it is done."""
        desk = self._desk(request, "admin")
        body = await _read(CrawlBody, request, is_optional=True)
        until_ms = instant_ms(body.until, "until") or 0
        return json_response(
            chat_view(await desk.crawl(_path_id(request), _path_chat(request), until_ms=until_ms)), 202
        )

    async def stop_crawl(self, request: Request) -> Response:
        """Read no further. What was read stays, and another crawl goes on from there."""
        desk = self._desk(request, "admin")
        return json_response(chat_view(await desk.stop_crawl(_path_id(request), _path_chat(request))))

    # ---- ----

    def _desk(self, request: Request, scope: Scope) -> "AccountService":
        return admitted(self._access, request, scope, self._sessions)


def admitted(access: Access, request: Request, scope: Scope, sessions: "AccountService | None") -> "AccountService":
    """The service of accounts, for a key that may ask it this and serves all bots. Raises Conflict if there is none."""
    access.admit(request, scope).must_serve_all()
    if sessions is None:
        raise Conflict(
            code="no_sessions",
            detail="Peik keeps no accounts here: set TELEGRAM_API_ID and TELEGRAM_API_HASH, or PEIK_ARCHIVE to read one.",
        )
    return sessions


async def _read(kind: type[T], request: Request, *, is_optional: bool = False) -> T:
    body = await read_body(request, bytes_max=_SMALL_BODY)
    return decode(kind, body or _NO_BODY if is_optional else body)


def _shown(session: Session, status: int = 200) -> Response:
    return json_response(session_view(session), status)


def _filter(request: Request) -> SessionFilter:
    query = request.query_params
    unknown = set(query) - set(_FILTERS)
    if unknown:
        raise BadInput(
            code="unknown_filter",
            detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {', '.join(_FILTERS)}.",
        )
    return SessionFilter(
        agent_id=_plain(query["agent_id"], "agent_id") if "agent_id" in query else None,
        states=_states(query["state"]) if "state" in query else None,
        is_active=_flag(query["active"], "active") if "active" in query else None,
    )


def _states(text: str) -> frozenset[SessionState]:
    try:
        return frozenset(SessionState(one.strip()) for one in text.split(","))
    except ValueError:
        raise BadInput(code="bad_state", detail=f"state is some of {', '.join(SessionState)}.") from None


def _flag(text: str, name: str) -> bool:
    if text not in ("true", "false"):
        raise BadInput(code=f"bad_{name}", detail=f"{name} is true or false.")
    return text == "true"


def _fits(session: Session, wanted: SessionFilter, after: str | None) -> bool:
    return (
        (wanted.agent_id is None or session.agent_id == wanted.agent_id)
        and (wanted.states is None or session.state in wanted.states)
        and (wanted.is_active is None or session.is_active is wanted.is_active)
        and (after is None or session.session_id > after)
    )


def _path_id(request: Request) -> str:
    return _session_id(request.path_params["session_id"])


def _session_id(text: str) -> str:
    if re.fullmatch(SESSION_ID_PATTERN, text) is None:
        raise BadInput(code="malformed_session_id", detail="A session's id has 1 to 64 letters, digits and . _ - only.")
    return text


def _path_chat(request: Request) -> int:
    text = request.path_params["chat_id"]
    if re.fullmatch(CHAT_NUMBER_PATTERN, text) is None:
        raise BadInput(code="bad_chat_id", detail="A chat of an account is named by its number.")
    return int(text)


def _plain(text: str, name: str) -> str:
    """A name that every database can be asked for."""
    if not 0 < len(text) <= WORD_CHARS_MAX or _UNPRINTABLE.search(text):
        raise BadInput(
            code=f"malformed_{name}",
            detail=f"{name} should be a name of 1 to {WORD_CHARS_MAX} characters, on one line.",
        )
    return text


# The accounts' part of the OpenAPI document: one row per operation, and what the answers look like.


TEXT: Json = {"type": "string"}
WHOLE: Json = {"type": "integer"}
FLAG: Json = {"type": "boolean"}
SESSION_ID: Json = {"type": "string", "pattern": SESSION_ID_PATTERN}
CHAT_NUMBER: Json = {"type": "string", "pattern": CHAT_NUMBER_PATTERN}
_STATES = [str(state) for state in SessionState]

_SESSION = shape(
    session_id=SESSION_ID,
    agent_id=TEXT,
    phone=nullable(TEXT),
    user_id=nullable(TEXT) | {"description": "The account at Telegram, and the bot_id of letters that go out as it."},
    username=nullable(TEXT),
    state={"type": "string", "enum": _STATES},
    state_reason=nullable(TEXT) | {"description": "Why, as a sentence."},
    state_until=nullable(TIME) | {"description": "The end of a flood wait, or of a code's time."},
    is_connected=FLAG,
    is_active=FLAG | {"description": "False: deactivated by its owner; kept, and not run."},
    runs_from=nullable({"type": "string", "enum": ["key", "file"]}),
    has_proxy=FLAG,
    metadata={"type": "object"},
    created_at=TIME,
    updated_at=TIME,
    active_at=nullable(TIME),
)
_CHAT = shape(
    chat_id=TEXT,
    title=TEXT,
    newest_id=nullable(TEXT),
    crawl=shape(
        state={"type": "string", "enum": ["none", "running", "stopped", "whole"]},
        crawled=WHOLE,
        down_to=nullable(TEXT),
        until=nullable(TIME),
    ),
    updated_at=nullable(TIME),
)

SESSION_SCHEMAS: Json = {
    "Session": _SESSION,
    "Sessions": shape(
        sessions={"type": "array", "items": {"$ref": "#/components/schemas/Session"}},
        next=nullable(SESSION_ID) | {"description": "The cursor of the next page; null at the end."},
    ),
    "RemovedSessions": shape(removed=WHOLE),
    "Resealed": shape(
        renewed=WHOLE,
        lost={"type": "array", "items": TEXT, "description": "Sessions that no key opens: they have to sign in again."},
    ),
    "Qr": {
        **shape(
            url=TEXT | {"description": "tg://login?token=…: for as long as it lasts, whoever scans it signs in here."},
            expires_at=TIME,
            svg=nullable(TEXT) | {"description": "The picture; by itself with `Accept: image/svg+xml`."},
        ),
        "description": "Ask again when it is over. What became of it is in the session's state.",
    },
    "SessionChat": _CHAT,
    "SessionChats": shape(chats={"type": "array", "items": {"$ref": "#/components/schemas/SessionChat"}}),
}

_OF_SESSION = (in_path("session_id", SESSION_ID),)
_OF_CHAT = (*_OF_SESSION, in_path("chat_id", CHAT_NUMBER))
_STEP = (404, 409, 413, 422, 503)
_ASKED = (404, 409, 422, 503)


def _running() -> OperationRow:
    return OperationRow(answers={200: "Session"}, parameters=_OF_SESSION, problems=_ASKED)


SESSION_OPERATIONS: dict[str, OperationRow] = {
    "makeSession": OperationRow(
        answers={201: "Session"},
        body=SessionBody,
        example={"agent_id": "support", "phone": "+998 90 123 45 67", "metadata": {"owner": "Sara"}},
        problems=(409, 413, 422, 503),
    ),
    "listSessions": OperationRow(
        answers={200: "Sessions"},
        parameters=(
            in_query("agent_id", WORD, "Whose."),
            in_query(
                "state",
                {"type": "string", "pattern": f"^({'|'.join(_STATES)})(,({'|'.join(_STATES)}))*$"},
                "In these states, comma-separated.",
            ),
            in_query("active", {"type": "string", "enum": ["true", "false"]}, "Not deactivated, or deactivated."),
            in_query("phone", WORD, "The one that was made last with this phone, however it is written."),
            in_query("cursor", SESSION_ID, "The next of the page before."),
            LIMIT,
        ),
        problems=(409, 422, 503),
    ),
    "cleanUpSessions": OperationRow(
        answers={200: "RemovedSessions"},
        body=CleanupBody,
        example={"days": 30},
        problems=(409, 413, 422, 503),
        is_body_optional=True,
    ),
    "resealSessions": OperationRow(answers={200: "Resealed"}, problems=(409, 503)),
    "getSession": _running(),
    "changeSession": OperationRow(
        answers={200: "Session"},
        parameters=_OF_SESSION,
        body=SessionChange,
        example={"metadata": {"owner": "Ali", "shift": None}, "proxy": "socks5://user:password@proxy.example:1080"},
        problems=_STEP,
    ),
    "removeSession": OperationRow(answers={204: ""}, parameters=_OF_SESSION, problems=_ASKED),
    "sendCode": OperationRow(
        answers={200: "Session"},
        parameters=_OF_SESSION,
        body=CodeWanted,
        example={"phone": "+998 90 123 45 67"},
        problems=_STEP,
        is_body_optional=True,
    ),
    "signIn": OperationRow(
        answers={200: "Session"},
        parameters=_OF_SESSION,
        body=SignInBody,
        example={"code": "12345"},
        problems=_STEP,
    ),
    "cancelSignIn": _running(),
    "givePassword": OperationRow(
        answers={200: "Session"},
        parameters=_OF_SESSION,
        body=PasswordBody,
        example={"password": "of two-step verification"},
        problems=_STEP,
    ),
    "getQr": OperationRow(
        answers={200: "Qr"}, parameters=_OF_SESSION, problems=_ASKED, other_media_types=("image/svg+xml",)
    ),
    "startSession": _running(),
    "stopSession": _running(),
    "restartSession": _running(),
    "logOutSession": _running(),
    "noteActivity": _running(),
    "listSessionChats": OperationRow(answers={200: "SessionChats"}, parameters=_OF_SESSION, problems=_ASKED),
    "crawlChat": OperationRow(
        answers={202: "SessionChat"},
        parameters=_OF_CHAT,
        body=CrawlBody,
        example={"until": "2026-01-01T00:00:00Z"},
        problems=_STEP,
        is_body_optional=True,
    ),
    "stopCrawl": OperationRow(answers={200: "SessionChat"}, parameters=_OF_CHAT, problems=_ASKED),
}
