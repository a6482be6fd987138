"""The registry of sessions: twelve calls, each right when several nodes make it at once."""

import enum
import re
import secrets
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

import msgspec

from peik.archive.store import Archive, ChatState, Session, SessionFilter, SessionState
from peik.clock import Clock
from peik.errors import BadInput, Conflict, NotFound

ACTIVITY_S = 5.0  # activity is noted this often at most: it is shown, and nothing rests on it
OLD_DAYS = 30
DAY_MS = 86_400_000
TRIES_MAX = 10  # of a change that others get in the way of
METADATA_BYTES_MAX = 16_384
_PAGE = 500
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_UNFIT = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
)  # what not every database, or no line of a log, can hold
_NO_IDS = frozenset({"cleanup", "import", "reseal"})  # they have a meaning of their own in paths
_OVER = frozenset({SessionState.REVOKED, SessionState.FAILED})


class Registry:
    def __init__(self, book: Archive, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._noted: dict[str, float] = {}  # when activity was last noted

    async def create_session(
        self,
        agent_id: str,
        *,
        phone: str | None = None,
        metadata: Mapping[str, object] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Raises Conflict if the id or the phone is taken."""
        if not 0 < len(agent_id) <= 200 or _UNFIT.search(agent_id):
            raise BadInput(code="malformed_agent_id", detail="agent_id should be a name of 1 to 200 characters.")
        if session_id is not None and (not _ID.fullmatch(session_id) or session_id in _NO_IDS):
            raise BadInput(
                code="malformed_session_id", detail="session_id should have 1 to 64 letters, digits, and . _ - only."
            )
        now_ms = self._clock.wall_ms()
        session = Session(
            session_id=session_id or secrets.token_hex(12),
            agent_id=agent_id,
            phone=None if phone is None else normal_phone(phone),
            metadata=_written({} if metadata is None else metadata),
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        return await self._book.add_session(session)

    async def get_session_by_id(self, session_id: str) -> Session | None:
        return await self._book.session(session_id)

    async def get_session_by_phone(self, phone: str) -> Session | None:
        return await self._book.session_by_phone(normal_phone(phone))

    async def get_sessions_by_agent(self, agent_id: str) -> list[Session]:
        return await self.all(SessionFilter(agent_id=agent_id))

    async def get_all_active_sessions(self) -> list[Session]:
        """Those that were not deactivated, whatever state they are in."""
        return await self.all(SessionFilter(is_active=True))

    async def update_session_phone(self, session_id: str, phone: str) -> Session:
        number = normal_phone(phone)
        return await self.change(session_id, lambda old: msgspec.structs.replace(old, phone=number))

    async def update_session_connected(self, session_id: str, is_connected: bool) -> Session:
        return await self.change(session_id, lambda old: msgspec.structs.replace(old, is_connected=is_connected))

    async def update_session_activity(self, session_id: str) -> None:
        """Note that it did or heard something now; not more often than every few seconds."""
        now = self._clock.mono()
        if now - self._noted.get(session_id, float("-inf")) < ACTIVITY_S:
            return
        self._noted[session_id] = now
        at_ms = self._clock.wall_ms()
        await self.change(
            session_id, lambda old: msgspec.structs.replace(old, active_at_ms=max(at_ms, old.active_at_ms or 0))
        )

    async def update_session_metadata(self, session_id: str, metadata: Mapping[str, object]) -> Session:
        """These keys take these values, and null removes one; others stay."""

        def merged(old: Session) -> Session:
            known: dict[str, object] = msgspec.json.decode(old.metadata)
            kept = {key: value for key, value in {**known, **metadata}.items() if value is not None}
            return msgspec.structs.replace(old, metadata=_written(kept))

        return await self.change(session_id, merged)

    async def update_session_keep(self, session_id: str, keep: Mapping[str, "KeepMode | None"]) -> Session:
        """What is archived of these chats from now on; None removes a choice, others stay. Raises BadInput."""
        for place in keep:
            check_place(place)

        def chosen(old: Session) -> Session:
            modes = {place: mode for place, mode in {**kept_of(old).modes, **keep}.items() if mode is not None}
            return _with_own(old, KEEP, modes)

        return await self.change(session_id, chosen)

    async def watch_members(self, session_id: str, chat_id: int, every_s: float | None) -> Session:
        """Read who is in this chat so often from now on; None: not any more."""

        def chosen(old: Session) -> Session:
            watched = watched_of(old)
            if every_s is None:
                watched.pop(chat_id, None)
            else:
                before = watched.get(chat_id, WatchedMembers(every_s=every_s))
                watched[chat_id] = msgspec.structs.replace(before, every_s=every_s)
            return _with_own(old, MEMBERS, {str(one): watched[one] for one in watched})

        return await self.change(session_id, chosen)

    async def count_deed(self, session_id: str, what: str, count: int, most: int) -> Session:
        """Telegram limits accounts that join and look up many, without a figure, and for days. We stop before, whichever node and
        process did it. Raises Conflict."""
        now_ms = self._clock.wall_ms()

        def counted(old: Session) -> Session:
            deeds = _deeds_of(old)
            recent = [one for one in deeds.get(what, ()) if now_ms - one[0] < DAY_MS]
            done = sum(one[1] for one in recent)
            if done + count > most:
                raise Conflict(
                    code="too_many_a_day",
                    detail=f"This account did so {done} times in the last 24 hours; {most} are allowed. Telegram limits "
                    "accounts that do it more often.",
                )
            return _with_own(old, DEEDS, {**deeds, what: [*recent, (now_ms, count)]})

        return await self.change(session_id, counted)

    async def note_members(self, session_id: str, chat_id: int, found: "WatchedMembers") -> Session:
        """What a look at it found, unless nobody wants it any more."""

        def noted(old: Session) -> Session:
            watched = watched_of(old)
            if chat_id in watched:
                watched[chat_id] = msgspec.structs.replace(found, every_s=watched[chat_id].every_s)
            return _with_own(old, MEMBERS, {str(one): watched[one] for one in watched})

        return await self.change(session_id, noted)

    async def deactivate_session(self, session_id: str) -> Session:
        """It is kept, and does not run any more."""
        return await self.change(
            session_id, lambda old: msgspec.structs.replace(old, is_active=False, is_connected=False)
        )

    async def delete_session(self, session_id: str) -> bool:
        """Whether there was one. What it saw stays in the archive."""
        self._noted.pop(session_id, None)
        return await self._book.remove_session(session_id)

    async def cleanup_old_sessions(self, days: float = OLD_DAYS, *, at_ms: int | None = None) -> int:
        """Remove those that are over (revoked, failed or deactivated) and that nobody used for so long: how many."""
        before_ms = (self._clock.wall_ms() if at_ms is None else at_ms) - int(days * 86_400_000)
        removed = await self._book.remove_old_sessions(before_ms=before_ms, states=_OVER)
        for session_id in removed:
            self._noted.pop(session_id, None)
        return len(removed)

    # What the twelve are made of; the others in this folder use these too.

    async def all(self, wanted: SessionFilter) -> list[Session]:
        found: list[Session] = []
        while True:
            after = found[-1].session_id if found else None
            page = await self._book.sessions(wanted, after=after, limit=_PAGE)
            found.extend(page)
            if len(page) < _PAGE:
                return found

    async def need(self, session_id: str) -> Session:
        """Raises NotFound."""
        found = await self._book.session(session_id)
        if found is None:
            raise NotFound(code="no_such_session", detail=f"There is no session {session_id}.")
        return found

    async def change(self, session_id: str, make: Callable[[Session], Session]) -> Session:
        """Save what `make` makes of the session as it is now. `make` may be called again if others were quicker."""
        old = await self.need(session_id)
        for _ in range(TRIES_MAX):
            new = make(old)
            if new == old:
                return old
            try:
                return await self._book.save_session(msgspec.structs.replace(new, updated_at_ms=self._clock.wall_ms()))
            except Conflict:
                newer = await self.need(session_id)
                if newer.version == old.version:
                    raise  # it is something else, such as a phone that is taken
                old = newer
        raise Conflict(code="session_busy", detail=f"Session {session_id} is being changed by others all the time.")


def normal_phone(text: str) -> str:
    """A phone number as E.164 has it: +998901234567. Raises BadInput, in which the number is not repeated."""
    digits = []
    for char in text.strip():
        digit = unicodedata.digit(char, None)  # Persian and Arabic digits, too
        if digit is not None:
            digits.append(str(digit))
        elif char == "+" and not digits:
            digits.append("+")
        elif not (char.isspace() or char in "-\u2013().\u200e\u200f\u202a\u202c"):
            digits.append("?")
    number = "".join(digits)
    number = "+" + (number.removeprefix("00") if number.startswith("00") else number.removeprefix("+"))
    if not (8 <= len(number) <= 16 and number[1:].isdecimal() and number[1] != "0"):
        raise BadInput(
            code="malformed_phone", detail="A phone number should be written with its country, like +998 90 123 45 67."
        )
    return number


def _written(metadata: Mapping[str, object]) -> str:
    try:
        text = msgspec.json.encode(dict(metadata))
    except (TypeError, ValueError):
        raise BadInput(code="malformed_metadata", detail="Metadata should be what JSON can hold.") from None
    if len(text) > METADATA_BYTES_MAX:
        raise BadInput(code="large_metadata", detail=f"Metadata may have {METADATA_BYTES_MAX} bytes as JSON.")
    return text.decode()


# What is archived of which chat, as the owner of a session chose. It is kept among the metadata: they are in every archive,
# go with the session when it moves, and of two who change them at once none is lost.


KEEP, MEMBERS, DEEDS = "peik_keep", "peik_members", "peik_deeds"  # in the metadata
_OURS = frozenset({KEEP, MEMBERS, DEEDS})
PLACES = ("all", "private", "groups")
_CHAT = re.compile("-?[1-9][0-9]{0,15}")


class KeepMode(enum.StrEnum):
    ALL = "all"
    NOTHING = "nothing"  # neither messages nor events, and no history is read


class KeptChats(msgspec.Struct, frozen=True, kw_only=True):
    """By chat, or by kind of chat: `private`, `groups` (with supergroups and channels) and `all`; the narrowest counts."""

    modes: Mapping[str, KeepMode] = {}

    def of(self, chat_id: int) -> KeepMode:
        for place in (str(chat_id), "private" if chat_id > 0 else "groups", "all"):
            if place in self.modes:
                return self.modes[place]
        return KeepMode.ALL

    def has(self, chat_id: int | None) -> bool:
        """Whether it is archived at all; also what happens in no chat is."""
        return chat_id is None or self.of(chat_id) is not KeepMode.NOTHING


def kept_of(session: Session) -> KeptChats:
    known: dict[str, object] = msgspec.json.decode(session.metadata)
    try:
        return KeptChats(modes=msgspec.convert(known.get(KEEP, {}), dict[str, KeepMode]))
    except msgspec.ValidationError:
        return KeptChats()  # not by us: who wrote it among the metadata chose nothing


def own_metadata(session: Session) -> str:
    """What its owner wrote there."""
    known: dict[str, object] = msgspec.json.decode(session.metadata)
    if not _OURS & known.keys():
        return session.metadata
    return _written({key: value for key, value in known.items() if key not in _OURS})


def _with_own(session: Session, key: str, value: Mapping[str, object]) -> Session:
    """With something of Peik's among its metadata; nothing where there is nothing."""
    known: dict[str, object] = msgspec.json.decode(session.metadata)
    rest = {name: one for name, one in known.items() if name != key}
    metadata = _written({**rest, key: msgspec.to_builtins(value)} if value else rest)
    return session if metadata == session.metadata else msgspec.structs.replace(session, metadata=metadata)


# Whose members are read, and how often.


class WatchedMembers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    every_s: float
    read_at_ms: int | None = None
    tried_at_ms: int | None = None  # when Telegram did not show them
    count: int | None = None  # None: Telegram does not show all of them
    seen: int = 0  # how many it showed
    why: str | None = None  # Telegram does not show them, as a sentence

    def due_ms(self) -> int:
        last_ms = max(self.read_at_ms or 0, self.tried_at_ms or 0)
        return last_ms + int(self.every_s * 1000) if last_ms else 0


def _deeds_of(session: Session) -> dict[str, list[tuple[int, int]]]:
    """When it joined or looked up, and how many."""
    known: dict[str, object] = msgspec.json.decode(session.metadata)
    try:
        return msgspec.convert(known.get(DEEDS, {}), dict[str, list[tuple[int, int]]])
    except msgspec.ValidationError:
        return {}  # not by us


def watched_of(session: Session) -> dict[int, WatchedMembers]:
    """By chat."""
    known: dict[str, object] = msgspec.json.decode(session.metadata)
    try:
        found = msgspec.convert(known.get(MEMBERS, {}), dict[str, WatchedMembers])
        return {int(chat_id): one for chat_id, one in found.items()}
    except (msgspec.ValidationError, ValueError):
        return {}  # not by us


def check_place(place: str) -> None:
    """Raises BadInput."""
    if place not in PLACES and not _CHAT.fullmatch(place):
        raise BadInput(
            code="bad_keep", detail=f"What is kept is chosen for the number of a chat, or for {', '.join(PLACES)}."
        )


# What each secret of a session is bound to when it is sealed: one that is moved to another place does not open.


def secret_context(session_id: str) -> str:
    return f"session:{session_id}:secret"


def proxy_context(session_id: str) -> str:
    return f"session:{session_id}:proxy"


def half_context(session_id: str) -> str:
    return f"session:{session_id}:signing in"


# Sessions that are over leave, and the accounts that nobody is signed in as with them.


class AccountPort(Protocol):
    """What is known of accounts as senders of letters."""

    async def add(self, user_id: int, username: str | None) -> None:
        """Letters may go out for it."""

    async def remove(self, user_id: int) -> None:
        """No letters go out for it any more. Raises Conflict while it has letters to send."""


async def remove_old_sessions(
    registry: Registry, accounts: AccountPort, days: float, *, at_ms: int | None = None
) -> int:
    """How many went. An account that still has letters to send stays: somebody has to say what becomes of them."""
    before = {one.session_id: one.user_id for one in await registry.all(SessionFilter())}
    count = await registry.cleanup_old_sessions(days, at_ms=at_ms)
    if count:
        left = await registry.all(SessionFilter())
        kept = {one.session_id for one in left}
        gone = {user_id for session_id, user_id in before.items() if session_id not in kept and user_id is not None}
        for user_id in gone - {one.user_id for one in left}:
            with suppress(Conflict):
                await accounts.remove(user_id)
    return count


# How an account stands, in one line with its reason and what to do. Pure: from what the registry knows of it.


class HealthGrade(enum.StrEnum):
    OK = "ok"
    WAITING = "waiting"  # it passes by itself
    FAILING = "failing"  # it tries again by itself, and something does not work
    ENDED = "ended"  # nothing happens until somebody does something
    OFF = "off"  # its owner wants it so, or has not finished signing it in


class SessionHealth(msgspec.Struct, frozen=True, kw_only=True):
    grade: HealthGrade
    line: str
    todo: str | None = None  # what to do about it, for whoever may


_OFF: dict[SessionState, tuple[str, str]] = {
    SessionState.NEW: ("Nobody is signed in.", "Sign it in: peik sessions sign-in {}"),
    SessionState.CODE_SENT: ("A code was sent.", "Give the code: peik sessions sign-in {}"),
    SessionState.PASSWORD_NEEDED: ("Its password is needed.", "Give the password: peik sessions sign-in {}"),
    SessionState.PAUSED: ("Its owner paused it.", "Let it run: peik sessions start {}"),
}
_ENDED: dict[SessionState, tuple[str, str]] = {
    SessionState.REVOKED: ("Telegram ended the session.", "Sign it in again: peik sessions sign-in {}"),
    SessionState.FAILED: ("It cannot run.", "Mend what it says, then: peik sessions start {}"),
}


def health_of(session: Session) -> SessionHealth:
    state, why = session.state, session.state_reason
    if not session.is_active:
        todo = f"Let it run again: peik sessions activate {session.session_id}"
        return SessionHealth(grade=HealthGrade.OFF, line="Deactivated by its owner.", todo=todo)
    for grade, table in ((HealthGrade.OFF, _OFF), (HealthGrade.ENDED, _ENDED)):
        if state in table:
            usual, todo = table[state]
            return SessionHealth(grade=grade, line=why or usual, todo=todo.format(session.session_id))
    if state is SessionState.FLOOD_WAIT:
        todo = "Wait, and send and read less with it: accounts that behave like machines are banned."
        return SessionHealth(grade=HealthGrade.WAITING, line=why or "Telegram asks it to wait.", todo=todo)
    if session.is_connected:
        if why is None:
            return SessionHealth(grade=HealthGrade.OK, line="Connected.")
        if "PEER_FLOOD" in why:
            todo = "Write to nobody first with it, and ask @SpamBot in Telegram how long it lasts."
            return SessionHealth(grade=HealthGrade.FAILING, line=f"Connected. {why}", todo=todo)
        todo = f"See its chats (peik sessions chats {session.session_id}) and the runbook, session-behind."
        return SessionHealth(grade=HealthGrade.FAILING, line=f"Connected. {why}", todo=todo)
    if why is None:
        todo = "If it stays so: see whether a Peik runs on this archive, and its log."
        return SessionHealth(grade=HealthGrade.WAITING, line="Not connected yet.", todo=todo)
    todo = "Look at the network and at its proxy; it tries again by itself."
    return SessionHealth(grade=HealthGrade.FAILING, line=why, todo=todo)


def progress_of(state: ChatState) -> float | None:
    """How much of a crawl to the first message is done, by the numbers of its messages: 0 to 1. None: it cannot be said."""
    if state.crawled_to == 0:
        return 1.0
    if state.crawl_until_ms != 0 or state.crawled_to is None or state.newest_id <= 0:
        return None  # nobody asked for it, or only down to a date
    return max(0.0, 1.0 - state.crawled_to / state.newest_id) if state.crawled else 0.0
