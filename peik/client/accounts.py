"""The part of the library that is about accounts: the registry of sessions, signing in, and what they saw and see."""

import enum
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

import msgspec

from peik.accounts.api import MembersQuery, SessionApi, SessionsQuery
from peik.accounts.feeds import FeedFilter
from peik.archive.api import READER_CHARS_MAX, EventsQuery, MessageApi, MessageQuery, MessagesQuery
from peik.archive.store import Direction, LineKind
from peik.client.calls import When, instant_ms
from peik.client.transport import (
    AccountSession,
    ArchivedEvent,
    ArchivedMessage,
    ChatMemberInfo,
    EventPage,
    FeedLine,
    ImportedFile,
    MemberList,
    MessagePage,
    MessageVersions,
    QrLogin,
    SessionChat,
    SessionPage,
)
from peik.core.units import rfc3339
from peik.errors import BadInput, NotFound

if TYPE_CHECKING:
    from peik.client.transport import Transport

PAGE = 500
STEP_S = 90.0  # Telegram is asked, perhaps by way of a proxy
_NO_SESSION = frozenset({"no_such_session", "malformed_session_id"})

SessionId = AccountSession | str
After = Mapping[str, int] | int
Word = TypeVar("Word", bound=enum.StrEnum)


class EventSearch(TypedDict, total=False):
    """Which events; what is not given does not matter. Times are those of the archive."""

    session_id: SessionId
    agent_id: str
    event_type: str
    chat_id: int
    since: When
    until: When


class MessageSearch(TypedDict, total=False):
    """Which messages; what is not given does not matter. Times are those of the messages, `text` means whole words."""

    session_id: SessionId
    agent_id: str
    chat_id: int
    direction: Direction | str
    sender_id: int
    kind: str
    since: When
    until: When
    text: str
    deleted: bool


class AccountCalls:
    """Accounts of people that Peik signs in as, and the archive of what they saw. Letters are sent as an account by the
    ordinary methods, with `bot_id=session.user_id`.

    Sessions run in the process that owns the store, as letters are sent there; others may ask and read. Where nothing in the
    settings asks for accounts, all of these raise Conflict "no_sessions" with what to set.
    """

    def _open_transport(self) -> "Transport":
        raise NotImplementedError

    async def _step(
        self,
        handler: Callable[..., Awaitable[object]],
        session_id: SessionId,
        body: Mapping[str, object] | None = None,
    ) -> AccountSession:
        return await self._open_transport().ask(
            handler, into=AccountSession, session_id=_id(session_id), body=body, timeout_s=STEP_S
        )

    async def _change(self, session_id: SessionId, **changes: object) -> AccountSession:
        return await self._open_transport().ask(
            SessionApi.change_session, into=AccountSession, session_id=_id(session_id), body=changes
        )

    # ---- the registry ----

    async def create_session(
        self,
        agent_id: str,
        *,
        phone: str | None = None,
        metadata: Mapping[str, object] | None = None,
        proxy: str | None = None,
        file: str | None = None,
        session_id: str | None = None,
    ) -> AccountSession:
        """Register an account of an agent's; `send_code` or `qr_login` signs in. Raises Conflict if the phone is taken.

        `proxy` is socks5://, socks4:// or http://user:password@host:port. With `file` it runs from this Telethon file in
        the folder `sessions_dir`, which is signed in already.
        """
        body = {
            "agent_id": agent_id,
            "phone": phone,
            "metadata": None if metadata is None else _written(metadata),
            "proxy": proxy,
            "file": file,
            "session_id": session_id,
        }
        return await self._open_transport().ask(SessionApi.make_session, into=AccountSession, body=body)

    async def get_session_by_id(self, session_id: str) -> AccountSession | None:
        try:
            return await self._open_transport().ask(SessionApi.get_session, into=AccountSession, session_id=session_id)
        except (NotFound, BadInput) as error:
            if error.code not in _NO_SESSION:
                raise
            return None

    async def get_session_by_phone(self, phone: str) -> AccountSession | None:
        """The one that was made last, if there are several."""
        found = await self._open_transport().ask(
            SessionApi.list_sessions, into=SessionPage, query=SessionsQuery(phone=phone)
        )
        return next(iter(found.sessions), None)

    async def get_sessions_by_agent(self, agent_id: str) -> list[AccountSession]:
        return await self._sessions(agent_id=agent_id)

    async def get_all_active_sessions(self) -> list[AccountSession]:
        """Those that were not deactivated, whatever state they are in."""
        return await self._sessions(is_active=True)

    async def _sessions(self, *, agent_id: str | None = None, is_active: bool | None = None) -> list[AccountSession]:
        """All of them, in the order of their ids."""
        found: list[AccountSession] = []
        cursor: str | None = None
        while True:
            query = SessionsQuery(agent_id=agent_id, active=is_active, cursor=cursor, limit=PAGE)
            page = await self._open_transport().ask(SessionApi.list_sessions, into=SessionPage, query=query)
            found.extend(page.sessions)
            cursor = page.next
            if cursor is None:
                return found

    async def update_session_phone(self, session_id: SessionId, phone: str) -> AccountSession:
        return await self._change(session_id, phone=phone)

    async def update_session_connected(self, session_id: SessionId, is_connected: bool) -> AccountSession:
        """For programs that run the account themselves. Peik notes this by itself for sessions that it runs."""
        return await self._change(session_id, is_connected=is_connected)

    async def update_session_activity(self, session_id: SessionId) -> None:
        """Note that it did or heard something now; not more often than every few seconds."""
        await self._open_transport().ask(SessionApi.note_activity, into=AccountSession, session_id=_id(session_id))

    async def update_session_metadata(self, session_id: SessionId, metadata: Mapping[str, object]) -> AccountSession:
        """These keys take these values, and None removes one; others stay."""
        return await self._change(session_id, metadata=_written(metadata))

    async def update_session_keep(
        self, session_id: SessionId, keep: Mapping[int | str, Literal["all", "nothing"] | None]
    ) -> AccountSession:
        """What is archived from now on, by the number of a chat or for `all`, `private`, `groups`; the narrowest counts, and None
        removes a choice."""
        return await self._change(session_id, keep={str(place): mode for place, mode in keep.items()})

    async def deactivate_session(self, session_id: SessionId) -> AccountSession:
        """It is kept, and does not run any more, until `activate_session`."""
        return await self._change(session_id, is_active=False)

    async def activate_session(self, session_id: SessionId) -> AccountSession:
        return await self._change(session_id, is_active=True)

    async def delete_session(self, session_id: SessionId) -> bool:
        """Whether there was one. What it saw stays in the archive. Raises Conflict while it has letters to send."""
        try:
            await self._open_transport().ask(SessionApi.remove_session, into=NoneType, session_id=_id(session_id))
        except (NotFound, BadInput) as error:
            if error.code not in _NO_SESSION:
                raise
            return False
        return True

    async def cleanup_old_sessions(self, days: float | None = None) -> int:
        """Remove those that are revoked, failed or deactivated, and that nobody used for so long (30 days): how many."""
        body = {} if days is None else {"days": days}
        return (await self._open_transport().ask(SessionApi.clean_up, into=dict[str, int], body=body))["removed"]

    async def set_session_proxy(self, session_id: SessionId, proxy: str | None) -> AccountSession:
        """From the next connect on. None: straight."""
        return await self._change(session_id, proxy=proxy)

    # ---- signing in ----

    async def send_code(
        self, session_id: SessionId, phone: str | None = None, *, by_sms: bool = False
    ) -> AccountSession:
        """Have Telegram send a code to the account. It is durable: `give_code` may come from another process."""
        return await self._step(SessionApi.send_code, session_id, {"phone": phone, "by_sms": by_sms})

    async def give_code(self, session_id: SessionId, code: str) -> AccountSession:
        """Its state is "active" then, or "password_needed"."""
        return await self._step(SessionApi.sign_in, session_id, {"code": code})

    async def give_password(self, session_id: SessionId, password: str) -> AccountSession:
        return await self._step(SessionApi.give_password, session_id, {"password": password})

    async def qr_login(self, session_id: SessionId) -> QrLogin:
        """What to show as a QR code. Whether somebody scanned it is seen in the session's state."""
        return await self._open_transport().ask(
            SessionApi.get_qr, into=QrLogin, session_id=_id(session_id), timeout_s=STEP_S
        )

    async def cancel_sign_in(self, session_id: SessionId) -> AccountSession:
        return await self._step(SessionApi.cancel_sign_in, session_id)

    def import_sessions(
        self,
        paths: Sequence[Path | str] | Path | str,
        *,
        agent_id: str,
        check: bool = False,
        keep_files: bool = False,
    ) -> AsyncGenerator[ImportedFile, None]:
        """Take in session files of Telethon, or all in a folder: one report for each, as it comes. Only with `Peik.open`.

        A file is never changed. `check` asks Telegram about each before it is registered; with `keep_files` the sessions
        run from copies in the folder `sessions_dir`, and else from sealed keys.
        """
        given = [paths] if isinstance(paths, (str, Path)) else paths
        return self._open_transport().import_files(
            [Path(one) for one in given], agent_id=agent_id, check=check, keep_files=keep_files
        )

    async def import_session_string(
        self, string: str, *, agent_id: str, passphrase: str | None = None, check: bool = False
    ) -> AccountSession:
        """Take in an account by its session string: of Telethon 1, or as `export_session` gave it."""
        body = {"agent_id": agent_id, "string": string, "passphrase": passphrase, "check": check}
        return await self._open_transport().ask(
            SessionApi.import_session, into=AccountSession, body=body, timeout_s=STEP_S
        )

    async def export_session(self, session_id: SessionId, *, passphrase: str | None) -> str:
        """The key of a paused account as one line, sealed with the passphrase; with None as Telethon has it. Whoever has that is
        the account."""
        body = {"plain": True} if passphrase is None else {"passphrase": passphrase}
        answer = await self._open_transport().ask(
            SessionApi.export_session, into=dict[str, Any], session_id=_id(session_id), body=body, timeout_s=STEP_S
        )
        return str(answer["string"])

    # ---- running ----

    async def start_session(self, session_id: SessionId) -> AccountSession:
        """Run it again after `stop_session`."""
        return await self._step(SessionApi.start, session_id)

    async def stop_session(self, session_id: SessionId) -> AccountSession:
        """Disconnect it, until `start_session`. Its letters wait."""
        return await self._step(SessionApi.stop, session_id)

    async def restart_session(self, session_id: SessionId) -> AccountSession:
        """Connect anew."""
        return await self._step(SessionApi.restart, session_id)

    async def log_out_session(self, session_id: SessionId) -> AccountSession:
        """At Telegram, too: to run again it has to sign in again."""
        return await self._step(SessionApi.log_out, session_id)

    # ---- contacts, and joining ----

    async def join_chat(self, session_id: SessionId, link: str) -> SessionChat:
        """By an invite link, a link to a public chat, or @name. What is written there from then on is archived."""
        return await self._open_transport().ask(
            SessionApi.join, into=SessionChat, session_id=_id(session_id), body={"link": link}, timeout_s=STEP_S
        )

    async def contacts_of_session(self, session_id: SessionId) -> list[dict[str, Any]]:
        """The account's own contacts: user_id, phone, first_name, last_name, username."""
        answer = await self._open_transport().ask(
            SessionApi.list_contacts, into=dict[str, list[dict[str, Any]]], session_id=_id(session_id), timeout_s=STEP_S
        )
        return answer["contacts"]

    async def add_contacts(
        self, session_id: SessionId, contacts: Sequence[Mapping[str, str]]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Add people by `phone` and `first_name`: those who have an account, and the phones to be given again another day."""
        answer = await self._open_transport().ask(
            SessionApi.add_contacts,
            into=dict[str, Any],
            session_id=_id(session_id),
            body={"contacts": [dict(one) for one in contacts]},
            timeout_s=STEP_S,
        )
        return answer["contacts"], answer["later"]

    # ---- chats and their history ----

    async def chats_of_session(self, session_id: SessionId) -> list[SessionChat]:
        """Chats of which something is known, in the order of their ids."""
        answer = await self._open_transport().ask(
            SessionApi.list_chats, into=dict[str, list[SessionChat]], session_id=_id(session_id)
        )
        return answer["chats"]

    async def crawl_chat(self, session_id: SessionId, chat_id: int, *, until: When | None = None) -> SessionChat:
        """Archive the chat's history backwards, down to a time or to its first message. It goes on after restarts."""
        body = {} if until is None else {"until": rfc3339(instant_ms(until, "until"))}
        return await self._open_transport().ask(
            SessionApi.crawl, into=SessionChat, session_id=_id(session_id), chat_id=chat_id, body=body
        )

    async def estimate_crawl(self, session_id: SessionId, chat_id: int) -> dict[str, Any]:
        """How long it would take to read what is not read yet: messages, requests, seconds, others. Nothing is read."""
        return await self._open_transport().ask(
            SessionApi.estimate_crawl,
            into=dict[str, Any],
            session_id=_id(session_id),
            chat_id=chat_id,
            timeout_s=STEP_S,
        )

    async def watch_members(self, session_id: SessionId, chat_id: int, *, every_s: float = 86_400.0) -> None:
        """Read who is in a group or channel now, and so often from now on. Who came, left and changed are events."""
        await self._open_transport().ask(
            SessionApi.watch_members,
            into=dict[str, Any],
            session_id=_id(session_id),
            chat_id=chat_id,
            body={"every_s": every_s},
        )

    async def unwatch_members(self, session_id: SessionId, chat_id: int) -> None:
        """What is known of them stays."""
        await self._open_transport().ask(
            SessionApi.unwatch_members, into=NoneType, session_id=_id(session_id), chat_id=chat_id
        )

    async def members_of_chat(
        self, session_id: SessionId, chat_id: int, *, at: When | None = None
    ) -> list[ChatMemberInfo]:
        """Who is there as far as is known, or was at a time, by their ids."""
        found: list[ChatMemberInfo] = []
        cursor: int | None = None
        while True:
            query = MembersQuery(at=instant_ms(at, "at"), cursor=cursor, limit=PAGE)
            page = await self._open_transport().ask(
                SessionApi.list_members, into=MemberList, session_id=_id(session_id), chat_id=chat_id, query=query
            )
            found.extend(page.members)
            if page.next is None:
                return found
            cursor = int(page.next)

    async def stop_crawl(self, session_id: SessionId, chat_id: int) -> SessionChat:
        return await self._open_transport().ask(
            SessionApi.stop_crawl, into=SessionChat, session_id=_id(session_id), chat_id=chat_id
        )

    # ---- what they saw ----

    async def find_messages(self, **which: Unpack[MessageSearch]) -> AsyncIterator[ArchivedMessage]:
        """All messages of a filter, the newest first, read page by page: `async for message in peik.find_messages(…)`."""
        wanted = _messages(which)
        cursor: str | None = None
        while True:
            query = MessagesQuery(**wanted, cursor=cursor, limit=PAGE)
            page = await self._open_transport().ask(MessageApi.list_messages, into=MessagePage, query=query)
            for message in page.messages:
                yield message
            cursor = page.next
            if cursor is None:
                return

    async def count_messages(self, **which: Unpack[MessageSearch]) -> int:
        query = MessageQuery(**_messages(which))
        return (await self._open_transport().ask(MessageApi.count_messages, into=dict[str, int], query=query))["count"]

    async def message_versions(self, session_id: SessionId, *, chat_id: int, message_id: int) -> list[ArchivedMessage]:
        """All that the message ever said, the oldest first, the one in force last, each with its `raw`. Raises NotFound."""
        found = await self._open_transport().ask(
            MessageApi.get_message,
            into=MessageVersions,
            session_id=_id(session_id),
            chat_id=chat_id,
            message_id=message_id,
        )
        return found.versions

    async def find_events(self, **which: Unpack[EventSearch]) -> AsyncIterator[ArchivedEvent]:
        """All events of a filter, the newest first, read page by page."""
        wanted = _times(_known(which, EventSearch.__optional_keys__))
        cursor: str | None = None
        while True:
            query = EventsQuery(**wanted, cursor=cursor, limit=PAGE)
            page = await self._open_transport().ask(MessageApi.list_events, into=EventPage, query=query)
            for event in page.events:
                yield event
            cursor = page.next
            if cursor is None:
                return

    async def forget_person(self, user_id: int) -> dict[str, int]:
        """Remove all that a person wrote and did from the archive: how many rows went, by kind."""
        body = {"user_id": user_id}
        return (await self._open_transport().ask(MessageApi.forget, into=dict[str, dict[str, int]], body=body))[
            "removed"
        ]

    # ---- what they see ----

    def listen(
        self,
        session_id: SessionId | None = None,
        agent_id: str | None = None,
        chat_id: int | None = None,
        kinds: Collection[LineKind | str] | None = None,
        reader: str | None = None,
        after: After | None = None,
    ) -> AsyncGenerator[FeedLine, None]:
        """What is archived, in order for each session, as it comes: `async for line in peik.listen(reader="crm"):`.

        With a reader's name it goes on where that reader was, at first with all that is kept (setting `keep_feed`); a line
        is confirmed when the next one is asked for, so that one whose handling crashed is told again. Without one it begins
        now, or behind `after`: the number of the last line (of one session), or numbers by session, as your program kept
        them; a session that is not named there is told from the beginning.

        It goes on through restarts of a server and of the archive, and ends when this Peik is closed.
        """
        if reader is not None and not (
            0 < len(reader) <= READER_CHARS_MAX and reader.isprintable() and "/" not in reader
        ):
            raise BadInput(
                code="bad_reader", detail=f"A reader has a name of 1 to {READER_CHARS_MAX} characters, without a slash."
            )
        if reader is not None and after is not None:
            raise BadInput(code="two_places", detail="Give a place, or the name of a reader; not both.")
        named = None if session_id is None else _id(session_id)
        wanted = FeedFilter(session_id=named, agent_id=agent_id, chat_id=chat_id, kinds=_kinds(kinds))
        return self._open_transport().listen(wanted, after=_places(after, named), reader=reader)

    async def forget_reader(self, reader: str) -> bool:
        """Where this reader was is forgotten. Whether it was known."""
        try:
            await self._open_transport().ask(MessageApi.forget_reader, into=NoneType, name=reader)
        except NotFound as error:
            if error.code != "unknown_reader":
                raise
            return False
        return True


def _written(metadata: Mapping[str, object]) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(dict(metadata)))
    except (TypeError, ValueError):
        raise BadInput(code="malformed_metadata", detail="Metadata should be what JSON can hold.") from None


def _id(session: SessionId) -> str:
    return session.session_id if isinstance(session, AccountSession) else session


def _kinds(given: Collection[LineKind | str] | None) -> frozenset[LineKind] | None:
    if given is None:
        return None
    named = [given] if isinstance(given, str) else given
    return frozenset(_one_of(LineKind, kind, "kinds") for kind in named)


def _places(after: After | None, session_id: str | None) -> Mapping[str, int] | None:
    if after is None or isinstance(after, Mapping):
        return after
    if session_id is None:
        detail = "A number is a place in the feed of one session: say which, or give numbers by session."
        raise BadInput(code="whose_place", detail=detail)
    return {session_id: after}


def _messages(given: Mapping[str, Any]) -> dict[str, Any]:
    """As fields of a query."""
    wanted = _times(_known(given, MessageSearch.__optional_keys__))
    if "direction" in wanted:
        wanted["direction"] = _one_of(Direction, wanted["direction"], "direction")
    return wanted


def _times(wanted: dict[str, Any]) -> dict[str, Any]:
    return {name: instant_ms(value, name) if name in ("since", "until") else value for name, value in wanted.items()}


def _known(given: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Raises BadInput for a name that is no filter: a mistyped one must not mean "everything"."""
    unknown = given.keys() - names
    if unknown:
        raise BadInput(
            code="unknown_filter",
            detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {', '.join(sorted(names))}.",
        )
    return {name: _id(value) if name == "session_id" else value for name, value in given.items() if value is not None}


def _one_of(kind: type[Word], given: str, name: str) -> Word:
    try:
        return kind(given)
    except ValueError:
        raise BadInput(code="bad_request", detail=f"{name}: one of {', '.join(kind)}.") from None
