"""REST: accounts of people. Registering, signing in, running, and reading the histories of their chats."""

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from peik.accounts.answers import (
    SESSION_ID_PATTERN,
    ArchivedMemberAnswer,
    SessionAnswer,
    SessionChatAnswer,
    SessionId,
    WatchedMembersAnswer,
)
from peik.accounts.client import PhoneContact
from peik.accounts.registry import KeepMode, kept_of, watched_of
from peik.archive.store import ChatState, Session, SessionFilter, SessionState
from peik.core.units import rfc3339
from peik.errors import BadInput, Conflict, NotFound, to_install
from peik.web.access import Caller
from peik.web.openapi import LIMIT_DEFAULT, WORD, WORD_CHARS_MAX, Json
from peik.web.operations import AcceptHeaders, Moment, Told, Written, operation
from peik.web.parse import CURSOR, LIMIT, MOMENT, TEXT, Param, instant_ms

if TYPE_CHECKING:
    from peik.accounts.service import AccountService

CHAT_NUMBER_PATTERN = "^-?[1-9][0-9]{0,15}$"
OLD_DAYS = 30
DAYS_MAX = 36_500
_SVG = "image/svg+xml"
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_SECRET_OF_A_MINUTE = {"Cache-Control": "no-store"}
_STATES = "|".join(SessionState)
_STEP = (404, 409, 413, 422, 503)
_ASKED = (404, 409, 422, 503)
_ONE = "/v1/sessions/{session_id}"
_read_operation = partial(operation, tag="sessions", scope="read", is_for_all=True)
_admin_operation = partial(operation, tag="sessions", scope="admin", is_for_all=True)

# ---- which accounts ----


def _session_id(text: str, name: str) -> str:
    if re.fullmatch(SESSION_ID_PATTERN, text) is None:
        raise BadInput(code="malformed_session_id", detail="A session's id has 1 to 64 letters, digits and . _ - only.")
    return text


def _chat_number(text: str, name: str) -> int:
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


def _states(text: str, name: str) -> frozenset[SessionState]:
    try:
        return frozenset(SessionState(one.strip()) for one in text.split(","))
    except ValueError:
        raise BadInput(code="bad_state", detail=f"state is some of {', '.join(SessionState)}.") from None


def _flag(text: str, name: str) -> bool:
    if text not in ("true", "false"):
        raise BadInput(code=f"bad_{name}", detail=f"{name} is true or false.")
    return text == "true"


FLAG = Param(_flag, {"type": "string", "enum": ["true", "false"]}, write=lambda flag: str(flag).lower())
_ID: Json = {"type": "string", "pattern": SESSION_ID_PATTERN}
_SOME_STATES: Json = {"type": "string", "pattern": f"^({_STATES})(,({_STATES}))*$"}

SessionInPath = Annotated[str, Param(_session_id, _ID)]
ChatNumberInPath = Annotated[int, Param(_chat_number, {"type": "string", "pattern": CHAT_NUMBER_PATTERN})]


class SessionsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent_id: Annotated[str | None, Param(_plain, WORD, "Whose.")] = None
    state: Annotated[
        frozenset[SessionState] | None,
        Param(
            _states, _SOME_STATES, "In these states, comma-separated.", write=lambda states: ",".join(sorted(states))
        ),
    ] = None
    active: Annotated[bool | None, FLAG.saying("Not deactivated, or deactivated.")] = None
    phone: Annotated[
        str | None, Param(TEXT.read, WORD, "The one that was made last with this phone, however it is written.")
    ] = None
    cursor: Annotated[str | None, Param(_session_id, _ID, "The next of the page before.")] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT

    def wanted(self) -> SessionFilter:
        return SessionFilter(agent_id=self.agent_id, states=self.state, is_active=self.active)

    def has(self, session: Session) -> bool:
        return (
            (self.agent_id is None or session.agent_id == self.agent_id)
            and (self.state is None or session.state in self.state)
            and (self.active is None or session.is_active is self.active)
            and (self.cursor is None or session.session_id > self.cursor)
        )


# ---- bodies and answers ----

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
    """`PATCH /v1/sessions/{session_id}`. What is not given stays. Keys of `metadata` and of `keep` are merged, and null removes
    one. `keep`: what is archived of which chat from now on, by its number, or of `all`, `private`, `groups`."""

    phone: _Text = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    proxy: _Text | None = msgspec.UNSET
    keep: dict[str, KeepMode | None] | msgspec.UnsetType = msgspec.UNSET
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


class SessionStringBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/sessions/import`. `check`: Telegram is asked about it first."""

    agent_id: str
    string: str
    passphrase: str | None = None
    check: bool = False


class ExportBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST …/export`. One of the two: a passphrase that seals it, or `plain`."""

    passphrase: str | None = None
    plain: bool = False


class JoinBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST …/join`: an invite link, a link to a public chat, or @name."""

    link: str


class NewContactBody(msgspec.Struct, forbid_unknown_fields=True):
    phone: str
    first_name: str
    last_name: str = ""


class PhoneContactsBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST …/contacts`: 1 to 100 at once, 300 a day."""

    contacts: list[NewContactBody]


class CleanupBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/sessions/cleanup`."""

    days: float = OLD_DAYS


class CrawlBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST …/crawl`. Without `until`, down to the first message."""

    until: int | float | str | None = None


class WatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PUT …/members`: so often, in seconds; an hour at least."""

    every_s: float = 86_400.0


class MembersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: Annotated[int | None, MOMENT.saying("As they were then.")] = None
    cursor: Annotated[int | None, CURSOR.saying("The next of the page before.")] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class SessionsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    sessions: list[SessionAnswer]
    next: Annotated[SessionId | None, msgspec.Meta(description="The cursor of the next page; null at the end.")]


class ExportedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    string: Annotated[
        str, msgspec.Meta(description="Whoever has it, and its passphrase if it is sealed, is the account. Shown once.")
    ]
    is_sealed: bool


class SessionContactAnswer(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str | None
    phone: str | None
    first_name: str
    last_name: str
    username: str | None

    @classmethod
    def of(cls, one: PhoneContact) -> "SessionContactAnswer":
        return cls(
            user_id=None if one.user_id is None else str(one.user_id),
            phone=one.phone,
            first_name=one.first_name,
            last_name=one.last_name,
            username=one.username,
        )


class SessionContactsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    contacts: list[SessionContactAnswer]


class AddedContactsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    contacts: Annotated[list[SessionContactAnswer], msgspec.Meta(description="Those who have an account.")]
    later: Annotated[list[str], msgspec.Meta(description="Phones that Telegram wants to be given again another day.")]


class CrawlEstimateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    messages: Annotated[int, msgspec.Meta(description="At most so many are left to be read.")]
    requests: int
    seconds: Annotated[
        float, msgspec.Meta(description="At the pace that is kept: 20 requests a minute for an account.")
    ]
    others: Annotated[int, msgspec.Meta(description="Crawls of the same account that go on meanwhile.")]


class RemovedSessionsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    removed: int


class ResealedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    renewed: int
    lost: Annotated[list[str], msgspec.Meta(description="Sessions that no key opens: they have to sign in again.")]


class MembersAnswer(msgspec.Struct, frozen=True, kw_only=True):
    members: list[ArchivedMemberAnswer]
    next: Annotated[str | None, msgspec.Meta(description="The cursor of the next page; null at the end.")]
    watched: Annotated[
        WatchedMembersAnswer | None, msgspec.Meta(description="How the list is read; null: it is not read any more.")
    ]


class QrAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Ask again when it is over. What became of it is in the session's state."""

    url: Annotated[
        str, msgspec.Meta(description="tg://login?token=…: for as long as it lasts, whoever scans it signs in here.")
    ]
    expires_at: Moment
    svg: Annotated[str | None, msgspec.Meta(description="The picture; by itself with `Accept: image/svg+xml`.")]


class SessionChatsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    chats: list[SessionChatAnswer]


class NeedsAccounts:
    """An API that asks the service of accounts, which is there if the settings ask for accounts."""

    def __init__(self, sessions: "AccountService | None") -> None:
        self._sessions = sessions

    def must_be_ready(self) -> None:
        """Raises Conflict if there is none."""
        if self._sessions is None:
            raise Conflict(
                code="no_sessions",
                detail="Peik keeps no accounts here: set TELEGRAM_API_ID and TELEGRAM_API_HASH, or PEIK_ARCHIVE to read one.",
            )

    @property
    def _service(self) -> "AccountService":
        self.must_be_ready()
        assert self._sessions is not None
        return self._sessions


class SessionApi(NeedsAccounts):
    # ---- the registry ----

    @_admin_operation(
        "POST",
        "/v1/sessions",
        name="makeSession",
        status=201,
        example={"agent_id": "support", "phone": "+998 90 123 45 67", "metadata": {"owner": "Sara"}},
        problems=(409, 413, 422, 503),
    )
    async def make_session(self, caller: Caller, body: SessionBody) -> SessionAnswer:
        """Register an account that is to be signed in, or that runs from a session file of Telethon."""
        session = await self._service.create_session(
            body.agent_id,
            phone=body.phone,
            metadata=body.metadata,
            proxy=body.proxy,
            file=body.file,
            session_id=body.session_id,
        )
        return SessionAnswer.of(session)

    @_read_operation("GET", "/v1/sessions", name="listSessions", problems=(409, 422, 503))
    async def list_sessions(self, caller: Caller, query: SessionsQuery) -> SessionsAnswer:
        """Accounts in the order of their ids, page by page."""
        if query.phone is not None:
            found = await self._service.get_session_by_phone(query.phone)
            page = [found] if found is not None and query.has(found) else []
        else:
            page = await self._service.archive.sessions(query.wanted(), after=query.cursor, limit=query.limit + 1)
        return SessionsAnswer(
            sessions=[SessionAnswer.of(session) for session in page[: query.limit]],
            next=page[query.limit - 1].session_id if len(page) > query.limit else None,
        )

    @_admin_operation(
        "POST", "/v1/sessions/cleanup", name="cleanUpSessions", example={"days": 30}, problems=(409, 413, 422, 503)
    )
    async def clean_up(self, caller: Caller, body: CleanupBody | None = None) -> RemovedSessionsAnswer:
        """Forget accounts that are revoked, failed or deactivated, and that nobody used for so many days."""
        days = (body or CleanupBody()).days
        if not 0 <= days <= DAYS_MAX:
            raise BadInput(code="bad_days", detail=f"days is between 0 and {DAYS_MAX}.")
        return RemovedSessionsAnswer(removed=await self._service.cleanup_old_sessions(days))

    @_admin_operation(
        "POST",
        "/v1/sessions/import",
        name="importSession",
        status=201,
        example={"agent_id": "support", "string": "peik1.…", "passphrase": "as it was exported with", "check": True},
        problems=(409, 413, 422, 503),
    )
    async def import_session(self, caller: Caller, body: SessionStringBody) -> SessionAnswer:
        """Take in an account by its session string: of Telethon 1, or as another Peik exported it."""
        session = await self._service.import_string(
            body.string, agent_id=body.agent_id, passphrase=body.passphrase, check=body.check
        )
        return SessionAnswer.of(session)

    @_admin_operation(
        "POST",
        f"{_ONE}/export",
        name="exportSession",
        example={"passphrase": "a sentence that nobody guesses"},
        answers={200: ExportedAnswer},
        problems=_STEP,
    )
    async def export_session(self, caller: Caller, session_id: SessionInPath, body: ExportBody) -> Told[ExportedAnswer]:
        """The key of an account that is paused or deactivated, as one line: sealed with a passphrase, or as Telethon has it."""
        if (body.passphrase is None) is not body.plain:
            raise BadInput(code="no_passphrase", detail="Give a passphrase that seals it, or say plain: true.")
        string = await self._service.export_string(session_id, passphrase=body.passphrase)
        return Told(ExportedAnswer(string=string, is_sealed=not body.plain), headers=_SECRET_OF_A_MINUTE)

    @_admin_operation("POST", "/v1/sessions/reseal", name="resealSessions", problems=(409, 503))
    async def reseal(self, caller: Caller) -> ResealedAnswer:
        """Seal every account's key with the PEIK_SECRET_KEY of now, after it was changed."""
        done = await self._service.reseal()
        return ResealedAnswer(renewed=done.renewed, lost=list(done.lost))

    @_read_operation("GET", _ONE, name="getSession", problems=_ASKED)
    async def get_session(self, caller: Caller, session_id: SessionInPath) -> SessionAnswer:
        """One account: how it stands, and why."""
        return SessionAnswer.of(await self._service.session(session_id))

    @_admin_operation(
        "PATCH",
        _ONE,
        name="changeSession",
        example={"metadata": {"owner": "Ali", "shift": None}, "proxy": "socks5://user:password@proxy.example:1080"},
        problems=_STEP,
    )
    async def change_session(self, caller: Caller, session_id: SessionInPath, body: SessionChange) -> SessionAnswer:
        """Change what is given, one after the other: proxy, phone, metadata, keep, is_active, is_connected."""
        service = self._service
        session = await service.session(session_id)
        if body.proxy is not msgspec.UNSET:
            session = await service.set_proxy(session_id, body.proxy)
        if body.phone is not msgspec.UNSET:
            session = await service.update_session_phone(session_id, body.phone)
        if body.metadata is not msgspec.UNSET:
            session = await service.update_session_metadata(session_id, body.metadata)
        if body.keep is not msgspec.UNSET:
            session = await service.update_session_keep(session_id, body.keep)
        if body.is_active is not msgspec.UNSET:
            change = service.activate_session if body.is_active else service.deactivate_session
            session = await change(session_id)
        if body.is_connected is not msgspec.UNSET:
            session = await service.update_session_connected(session_id, body.is_connected)
        return SessionAnswer.of(session)

    @_admin_operation("DELETE", _ONE, name="removeSession", problems=_ASKED)
    async def remove_session(self, caller: Caller, session_id: SessionInPath) -> None:
        """Forget an account that has no letters to send. What it saw stays in the archive, and Telegram is not told."""
        if not await self._service.delete_session(session_id):
            raise NotFound(code="no_such_session", detail=f"There is no session {session_id}.")

    # ---- signing in ----

    @_admin_operation("POST", f"{_ONE}/code", name="sendCode", example={"phone": "+998 90 123 45 67"}, problems=_STEP)
    async def send_code(
        self, caller: Caller, session_id: SessionInPath, body: CodeWanted | None = None
    ) -> SessionAnswer:
        """Let Telegram send a code to the account's phone; by SMS if asked for."""
        body = body or CodeWanted()
        return SessionAnswer.of(await self._service.signing_in.begin(session_id, body.phone, by_sms=body.by_sms))

    @_admin_operation("POST", f"{_ONE}/sign-in", name="signIn", example={"code": "12345"}, problems=_STEP)
    async def sign_in(self, caller: Caller, session_id: SessionInPath, body: SignInBody) -> SessionAnswer:
        """Give the code. The account is active then, or password_needed."""
        return SessionAnswer.of(await self._service.signing_in.give_code(session_id, str(body.code)))

    @_admin_operation("DELETE", f"{_ONE}/sign-in", name="cancelSignIn", problems=_ASKED)
    async def cancel_sign_in(self, caller: Caller, session_id: SessionInPath) -> SessionAnswer:
        """Leave a sign-in that was begun."""
        return SessionAnswer.of(await self._service.signing_in.cancel(session_id))

    @_admin_operation(
        "POST",
        f"{_ONE}/password",
        name="givePassword",
        example={"password": "of two-step verification"},
        problems=_STEP,
    )
    async def give_password(self, caller: Caller, session_id: SessionInPath, body: PasswordBody) -> SessionAnswer:
        """Give the password of an account with two-step verification."""
        if not 0 < len(body.password) <= 1024:
            raise BadInput(code="malformed_password", detail="password has 1 to 1024 characters.")
        return SessionAnswer.of(await self._service.signing_in.give_password(session_id, body.password))

    @_admin_operation(
        "GET", f"{_ONE}/qr", name="getQr", answers={200: QrAnswer}, other_media_types=(_SVG,), problems=_ASKED
    )
    async def get_qr(
        self, caller: Caller, session_id: SessionInPath, headers: AcceptHeaders
    ) -> Told[QrAnswer] | Written:
        """Begin to sign in by QR: the code to be scanned at once, as an address and as a picture."""
        # It begins something at Telegram and is worth an account for a minute: a key that may only read gets none.
        from peik.web.responses import svg

        qr = await self._service.signing_in.qr(session_id)
        picture = svg(qr.url)
        if _SVG in (headers.accept or ""):
            if picture is None:
                raise Conflict(code="no_pictures", detail=f"The picture needs a package: {to_install('sessions')}.")
            return Written(body=picture.encode(), media_type=_SVG, headers=_SECRET_OF_A_MINUTE)
        answer = QrAnswer(url=qr.url, expires_at=rfc3339(qr.expires_at_ms), svg=picture)
        return Told(answer, headers=_SECRET_OF_A_MINUTE)

    # ---- running ----

    @_admin_operation("POST", f"{_ONE}/start", name="startSession", problems=_ASKED)
    async def start(self, caller: Caller, session_id: SessionInPath) -> SessionAnswer:
        """Let a paused or failed account run again."""
        return SessionAnswer.of(await self._service.crew.start(session_id))

    @_admin_operation("POST", f"{_ONE}/stop", name="stopSession", problems=_ASKED)
    async def stop(self, caller: Caller, session_id: SessionInPath) -> SessionAnswer:
        """Pause an account: it is disconnected, and stays signed in."""
        return SessionAnswer.of(await self._service.crew.stop(session_id))

    @_admin_operation("POST", f"{_ONE}/restart", name="restartSession", problems=_ASKED)
    async def restart(self, caller: Caller, session_id: SessionInPath) -> SessionAnswer:
        """Reconnect an account, on the node that it runs on."""
        return SessionAnswer.of(await self._service.restart(session_id))

    @_admin_operation("POST", f"{_ONE}/log-out", name="logOutSession", problems=_ASKED)
    async def log_out(self, caller: Caller, session_id: SessionInPath) -> SessionAnswer:
        """Sign out at Telegram: its key is worth nothing from then on."""
        return SessionAnswer.of(await self._service.log_out(session_id))

    @_admin_operation("POST", f"{_ONE}/activity", name="noteActivity", problems=_ASKED)
    async def note_activity(self, caller: Caller, session_id: SessionInPath) -> SessionAnswer:
        """Note that the account was used now; kept every few seconds at most."""
        await self._service.update_session_activity(session_id)
        return SessionAnswer.of(await self._service.session(session_id))

    # ---- contacts, and joining ----

    @_admin_operation("GET", f"{_ONE}/contacts", name="listSessionContacts", problems=_ASKED)
    async def list_contacts(self, caller: Caller, session_id: SessionInPath) -> SessionContactsAnswer:
        """The account's own list of contacts, asked for at Telegram by the node that runs it."""
        found = await self._service.contacts(session_id)
        return SessionContactsAnswer(contacts=[SessionContactAnswer.of(one) for one in found])

    @_admin_operation(
        "POST",
        f"{_ONE}/contacts",
        name="addSessionContacts",
        example={"contacts": [{"phone": "+998 90 123 45 67", "first_name": "Sara"}]},
        answers={200: AddedContactsAnswer},
        problems=_STEP,
    )
    async def add_contacts(
        self, caller: Caller, session_id: SessionInPath, body: PhoneContactsBody
    ) -> AddedContactsAnswer:
        """Add people to the account's contacts by their phones, and learn who of them has an account."""
        wanted = [
            PhoneContact(phone=one.phone, first_name=one.first_name, last_name=one.last_name) for one in body.contacts
        ]
        added, later = await self._service.add_contacts(session_id, wanted)
        return AddedContactsAnswer(contacts=[SessionContactAnswer.of(one) for one in added], later=later)

    @_admin_operation(
        "POST", f"{_ONE}/join", name="joinChat", example={"link": "https://t.me/+AbCdEf0123456789"}, problems=_STEP
    )
    async def join(self, caller: Caller, session_id: SessionInPath, body: JoinBody) -> SessionChatAnswer:
        """Join a group or a channel by its invite link or its public name; what is written from then on is archived."""
        return await self._chat(session_id, await self._service.join(session_id, body.link))

    # ---- chats ----

    @_read_operation("GET", f"{_ONE}/chats", name="listSessionChats", problems=_ASKED)
    async def list_chats(self, caller: Caller, session_id: SessionInPath) -> SessionChatsAnswer:
        """The chats that something is known of, and how far."""
        kept = kept_of(await self._service.session(session_id))
        chats = await self._service.chats(session_id)
        return SessionChatsAnswer(chats=[SessionChatAnswer.of(chat, kept) for chat in chats])

    @_admin_operation(
        "POST",
        f"{_ONE}/chats/{{chat_id}}/crawl",
        name="crawlChat",
        status=202,
        example={"until": "2026-01-01T00:00:00Z"},
        problems=_STEP,
    )
    async def crawl(
        self, caller: Caller, session_id: SessionInPath, chat_id: ChatNumberInPath, body: CrawlBody | None = None
    ) -> SessionChatAnswer:
        """Read a chat's history backwards into the archive; it goes on after restarts until it is done."""
        until_ms = instant_ms((body or CrawlBody()).until, "until") or 0
        return await self._chat(session_id, await self._service.crawl(session_id, chat_id, until_ms=until_ms))

    @_admin_operation("GET", f"{_ONE}/chats/{{chat_id}}/crawl", name="estimateCrawl", problems=_ASKED)
    async def estimate_crawl(
        self, caller: Caller, session_id: SessionInPath, chat_id: ChatNumberInPath
    ) -> CrawlEstimateAnswer:
        """How long it would take to read what is not read yet of a chat's history. Telegram is asked how much there is."""
        found = await self._service.estimate_crawl(session_id, chat_id)
        return CrawlEstimateAnswer(
            messages=found.messages, requests=found.requests, seconds=found.seconds, others=found.others
        )

    @_admin_operation("DELETE", f"{_ONE}/chats/{{chat_id}}/crawl", name="stopCrawl", problems=_ASKED)
    async def stop_crawl(
        self, caller: Caller, session_id: SessionInPath, chat_id: ChatNumberInPath
    ) -> SessionChatAnswer:
        """Read no further. What was read stays, and another crawl goes on from there."""
        return await self._chat(session_id, await self._service.stop_crawl(session_id, chat_id))

    @_read_operation("GET", f"{_ONE}/chats/{{chat_id}}/members", name="listChatMembers", problems=_ASKED)
    async def list_members(
        self, caller: Caller, session_id: SessionInPath, chat_id: ChatNumberInPath, query: MembersQuery
    ) -> MembersAnswer:
        """Who is in a group or channel as far as is known, or was at a time; by their ids."""
        page = await self._service.members(
            session_id, chat_id, at_ms=query.at, after=query.cursor or 0, limit=query.limit + 1
        )
        watched = watched_of(await self._service.session(session_id)).get(chat_id)
        return MembersAnswer(
            members=[ArchivedMemberAnswer.of(one) for one in page[: query.limit]],
            next=str(page[query.limit - 1].user_id) if len(page) > query.limit else None,
            watched=None if watched is None else WatchedMembersAnswer.of(watched),
        )

    @_admin_operation(
        "PUT",
        f"{_ONE}/chats/{{chat_id}}/members",
        name="watchChatMembers",
        example={"every_s": 86400},
        problems=_STEP,
    )
    async def watch_members(
        self, caller: Caller, session_id: SessionInPath, chat_id: ChatNumberInPath, body: WatchBody | None = None
    ) -> WatchedMembersAnswer:
        """Read who is in a group or channel, now and so often from now on. Who came, left and changed are events."""
        session = await self._service.watch_members(session_id, chat_id, (body or WatchBody()).every_s)
        return WatchedMembersAnswer.of(watched_of(session)[chat_id])

    @_admin_operation(
        "DELETE", f"{_ONE}/chats/{{chat_id}}/members", name="unwatchChatMembers", status=204, problems=_ASKED
    )
    async def unwatch_members(self, caller: Caller, session_id: SessionInPath, chat_id: ChatNumberInPath) -> None:
        """Do not read who is in a chat any more. What is known stays."""
        await self._service.watch_members(session_id, chat_id, None)

    async def _chat(self, session_id: str, state: ChatState) -> SessionChatAnswer:
        return SessionChatAnswer.of(state, kept_of(await self._service.session(session_id)))
