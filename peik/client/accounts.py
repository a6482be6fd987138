"""The part of the library that is about accounts: the registry of sessions, signing in, and what they saw and see."""

import enum
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from peik.accounts.feeds import READER_CHARS_MAX, FeedFilter
from peik.archive.store import Direction, EventFilter, LineKind, MessageFilter
from peik.client.calls import When, instant_ms
from peik.client.transport import (
    AccountSession,
    ArchivedEvent,
    ArchivedMessage,
    Changes,
    FeedLine,
    ImportedFile,
    New,
    QrLogin,
    SessionChat,
)
from peik.errors import BadInput

if TYPE_CHECKING:
    from peik.client.transport import AccountsTransport

PAGE = 500
NAME_CHARS_MAX = READER_CHARS_MAX - len("/events")  # REST keeps a second place under some names

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

    def _accounts(self) -> "AccountsTransport":
        raise NotImplementedError

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
        new = New(agent_id=agent_id, phone=phone, metadata=metadata, proxy=proxy, file=file, session_id=session_id)
        return await self._accounts().create(new)

    async def get_session_by_id(self, session_id: str) -> AccountSession | None:
        return await self._accounts().by_id(session_id)

    async def get_session_by_phone(self, phone: str) -> AccountSession | None:
        """The one that was made last, if there are several."""
        return await self._accounts().by_phone(phone)

    async def get_sessions_by_agent(self, agent_id: str) -> list[AccountSession]:
        return await self._accounts().sessions(agent_id=agent_id, is_active=None)

    async def get_all_active_sessions(self) -> list[AccountSession]:
        """Those that were not deactivated, whatever state they are in."""
        return await self._accounts().sessions(agent_id=None, is_active=True)

    async def update_session_phone(self, session_id: SessionId, phone: str) -> AccountSession:
        return await self._accounts().change(_id(session_id), Changes(phone=phone))

    async def update_session_connected(self, session_id: SessionId, is_connected: bool) -> AccountSession:
        """For programs that run the account themselves. Peik notes this by itself for sessions that it runs."""
        return await self._accounts().change(_id(session_id), Changes(is_connected=is_connected))

    async def update_session_activity(self, session_id: SessionId) -> None:
        """Note that it did or heard something now; not more often than every few seconds."""
        await self._accounts().note_activity(_id(session_id))

    async def update_session_metadata(self, session_id: SessionId, metadata: Mapping[str, object]) -> AccountSession:
        """These keys take these values, and None removes one; others stay."""
        return await self._accounts().change(_id(session_id), Changes(metadata=metadata))

    async def deactivate_session(self, session_id: SessionId) -> AccountSession:
        """It is kept, and does not run any more, until `activate_session`."""
        return await self._accounts().change(_id(session_id), Changes(is_active=False))

    async def activate_session(self, session_id: SessionId) -> AccountSession:
        return await self._accounts().change(_id(session_id), Changes(is_active=True))

    async def delete_session(self, session_id: SessionId) -> bool:
        """Whether there was one. What it saw stays in the archive. Raises Conflict while it has letters to send."""
        return await self._accounts().delete(_id(session_id))

    async def cleanup_old_sessions(self, days: float | None = None) -> int:
        """Remove those that are revoked, failed or deactivated, and that nobody used for so long (30 days): how many."""
        return await self._accounts().cleanup(days)

    async def set_session_proxy(self, session_id: SessionId, proxy: str | None) -> AccountSession:
        """From the next connect on. None: straight."""
        return await self._accounts().change(_id(session_id), Changes(proxy=proxy))

    # ---- signing in ----

    async def send_code(
        self, session_id: SessionId, phone: str | None = None, *, by_sms: bool = False
    ) -> AccountSession:
        """Have Telegram send a code to the account. It is durable: `give_code` may come from another process."""
        return await self._accounts().send_code(_id(session_id), phone, by_sms=by_sms)

    async def give_code(self, session_id: SessionId, code: str) -> AccountSession:
        """Its state is "active" then, or "password_needed"."""
        return await self._accounts().give_code(_id(session_id), code)

    async def give_password(self, session_id: SessionId, password: str) -> AccountSession:
        return await self._accounts().give_password(_id(session_id), password)

    async def qr_login(self, session_id: SessionId) -> QrLogin:
        """What to show as a QR code. Whether somebody scanned it is seen in the session's state."""
        return await self._accounts().qr(_id(session_id))

    async def cancel_sign_in(self, session_id: SessionId) -> AccountSession:
        return await self._accounts().cancel_sign_in(_id(session_id))

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
        return self._accounts().import_files(
            [Path(one) for one in given], agent_id=agent_id, check=check, keep_files=keep_files
        )

    # ---- running ----

    async def start_session(self, session_id: SessionId) -> AccountSession:
        """Run it again after `stop_session`."""
        return await self._accounts().start(_id(session_id))

    async def stop_session(self, session_id: SessionId) -> AccountSession:
        """Disconnect it, until `start_session`. Its letters wait."""
        return await self._accounts().stop(_id(session_id))

    async def restart_session(self, session_id: SessionId) -> AccountSession:
        """Connect anew."""
        return await self._accounts().restart(_id(session_id))

    async def log_out_session(self, session_id: SessionId) -> AccountSession:
        """At Telegram, too: to run again it has to sign in again."""
        return await self._accounts().log_out(_id(session_id))

    # ---- chats and their history ----

    async def chats_of_session(self, session_id: SessionId) -> list[SessionChat]:
        """Chats of which something is known, in the order of their ids."""
        return await self._accounts().chats(_id(session_id))

    async def crawl_chat(self, session_id: SessionId, chat_id: int, *, until: When | None = None) -> SessionChat:
        """Archive the chat's history backwards, down to a time or to its first message. It goes on after restarts."""
        return await self._accounts().crawl(_id(session_id), chat_id, until_ms=instant_ms(until, "until"))

    async def stop_crawl(self, session_id: SessionId, chat_id: int) -> SessionChat:
        return await self._accounts().stop_crawl(_id(session_id), chat_id)

    # ---- what they saw ----

    async def find_messages(self, **which: Unpack[MessageSearch]) -> AsyncIterator[ArchivedMessage]:
        """All messages of a filter, the newest first, read page by page: `async for message in peik.find_messages(…)`."""
        wanted = _messages(which)
        cursor: str | None = None
        while True:
            page = await self._accounts().messages(wanted, cursor=cursor, limit=PAGE)
            for message in page.messages:
                yield message
            cursor = page.next
            if cursor is None:
                return

    async def count_messages(self, **which: Unpack[MessageSearch]) -> int:
        return await self._accounts().count_messages(_messages(which))

    async def message_versions(self, session_id: SessionId, *, chat_id: int, message_id: int) -> list[ArchivedMessage]:
        """All that the message ever said, the oldest first, the one in force last, each with its `raw`. Raises NotFound."""
        return await self._accounts().versions(_id(session_id), chat_id, message_id)

    async def find_events(self, **which: Unpack[EventSearch]) -> AsyncIterator[ArchivedEvent]:
        """All events of a filter, the newest first, read page by page."""
        wanted = _events(which)
        cursor: str | None = None
        while True:
            page = await self._accounts().events(wanted, cursor=cursor, limit=PAGE)
            for event in page.events:
                yield event
            cursor = page.next
            if cursor is None:
                return

    async def forget_person(self, user_id: int) -> dict[str, int]:
        """Remove all that a person wrote and did from the archive: how many rows went, by kind."""
        return await self._accounts().forget_person(user_id)

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
            0 < len(reader) <= NAME_CHARS_MAX and reader.isprintable() and "/" not in reader
        ):
            raise BadInput(
                code="bad_reader", detail=f"A reader has a name of 1 to {NAME_CHARS_MAX} characters, without a slash."
            )
        if reader is not None and after is not None:
            raise BadInput(code="two_places", detail="Give a place, or the name of a reader; not both.")
        named = None if session_id is None else _id(session_id)
        wanted = FeedFilter(session_id=named, agent_id=agent_id, chat_id=chat_id, kinds=_kinds(kinds))
        return self._accounts().listen(wanted, after=_places(after, named), reader=reader)

    async def forget_reader(self, reader: str) -> bool:
        """Where this reader was is forgotten. Whether it was known."""
        return await self._accounts().forget_reader(reader)


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


def _messages(given: Mapping[str, Any]) -> MessageFilter:
    wanted = _known(given, MessageSearch.__optional_keys__)
    direction = wanted.get("direction")
    return MessageFilter(
        session_id=_id(wanted["session_id"]) if "session_id" in wanted else None,
        agent_id=wanted.get("agent_id"),
        chat_id=wanted.get("chat_id"),
        direction=None if direction is None else _one_of(Direction, direction, "direction"),
        sender_id=wanted.get("sender_id"),
        kind=wanted.get("kind"),
        since_ms=instant_ms(wanted.get("since"), "since"),
        until_ms=instant_ms(wanted.get("until"), "until"),
        text=wanted.get("text"),
        is_deleted=wanted.get("deleted"),
    )


def _events(given: Mapping[str, Any]) -> EventFilter:
    wanted = _known(given, EventSearch.__optional_keys__)
    return EventFilter(
        session_id=_id(wanted["session_id"]) if "session_id" in wanted else None,
        agent_id=wanted.get("agent_id"),
        event_type=wanted.get("event_type"),
        chat_id=wanted.get("chat_id"),
        since_ms=instant_ms(wanted.get("since"), "since"),
        until_ms=instant_ms(wanted.get("until"), "until"),
    )


def _known(given: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Raises BadInput for a name that is no filter: a mistyped one must not mean "everything"."""
    unknown = given.keys() - names
    if unknown:
        raise BadInput(
            code="unknown_filter",
            detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {', '.join(sorted(names))}.",
        )
    return {name: value for name, value in given.items() if value is not None}


def _one_of(kind: type[Word], given: str, name: str) -> Word:
    try:
        return kind(given)
    except ValueError:
        raise BadInput(code="bad_request", detail=f"{name}: one of {', '.join(kind)}.") from None
