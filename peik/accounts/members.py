"""Who is in groups and channels: lists that are read now and then, for chats that somebody asked it for, and kept with every
change.

What is to be read, how often, and when it was read last, stands among the session's metadata, like what is archived of which
chat. A list is compared with the one before. News are told first, by keys that a second look after a crash makes again, and then
kept.
"""

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from peik.accounts.budget import PatientRequests
from peik.accounts.client import AccountClient, ChatMember, ClientError, Trouble
from peik.accounts.events import MembersRead, SessionFed
from peik.accounts.feeds import lines_of_events
from peik.accounts.history import ChatStates
from peik.accounts.registry import Registry, WatchedMembers, watched_of
from peik.archive.store import Archive, Happening, MemberRecord
from peik.clock import Clock
from peik.core.events import Events
from peik.errors import NotFound

PAGE = 200  # Telegram gives no more at once
KEPT_AT_ONCE = 500
AGAIN_S = 600.0  # after trouble inside Telegram
JOINED, LEFT, CHANGED = "joined", "left", "member_changed"


class _Reading:
    """One look at one chat, page by page."""

    def __init__(self, chat_id: int) -> None:
        self.chat_id = chat_id
        self.found: dict[int, ChatMember] = {}
        self.following: int | None = 0
        self.is_whole = True
        self.is_second = False  # somebody seems to be gone: a list that changes while it is read may leave one out


class MemberLooks:
    """Of one connection of one session: a page at a time, in the account's turn."""

    def __init__(
        self,
        session_id: str,
        agent_id: str,
        chats: ChatStates,
        *,
        book: Archive,
        registry: Registry,
        asking: PatientRequests,
        clock: Clock,
        events: Events,
    ) -> None:
        self._session_id = session_id
        self._agent_id = agent_id
        self._chats = chats
        self._book = book
        self._registry = registry
        self._asking = asking
        self._clock = clock
        self._events = events
        self._reading: _Reading | None = None
        self._again_at: dict[int, float] = {}
        self._next_at: float | None = None

    def next_at(self) -> float | None:
        """When the next list is due, as was known at the last step."""
        return self._next_at

    async def step(self, client: AccountClient) -> bool:
        """One page. Whether there may be another. Raises ClientError if the line is gone."""
        watched = watched_of(await self._registry.need(self._session_id))
        reading = self._reading
        if reading is None or reading.chat_id not in watched:
            chat_id = await self._due(watched)
            if chat_id is None:
                self._reading = None
                return False
            reading = self._reading = _Reading(chat_id)
        try:
            await self._page(client, reading)
        except ClientError as error:
            if not client.is_connected or error.trouble is Trouble.REVOKED:
                raise
            self._reading = None
            self._again_at[reading.chat_id] = self._clock.mono() + AGAIN_S
            if error.trouble is Trouble.REFUSED:  # it is asked again at its next time
                await self._note(reading.chat_id, msgspec.structs.replace(watched[reading.chat_id], why=error.words))
            return True
        if reading.following is None:
            await self._finish(reading, watched[reading.chat_id])
        return True

    async def _due(self, watched: Mapping[int, WatchedMembers]) -> int | None:
        kept, now, wall_ms = await self._chats.kept(), self._clock.mono(), self._clock.wall_ms()
        due_at = {
            chat_id: max(now + (one.due_ms() - wall_ms) / 1000, self._again_at.get(chat_id, now))
            for chat_id, one in watched.items()
            if kept.has(chat_id)
        }
        first = min(due_at, key=lambda chat_id: (due_at[chat_id], chat_id), default=None)
        self._next_at = None if first is None else due_at[first]
        return first if first is not None and due_at[first] <= now else None

    async def _page(self, client: AccountClient, reading: _Reading) -> None:
        states = await self._chats.all()
        state = states.get(reading.chat_id)
        access = None if state is None else self._chats.access(state)
        page = await self._asking.members(client, reading.chat_id, access, offset=reading.following or 0, limit=PAGE)
        reading.found |= {one.user_id: one for one in page.members}
        reading.following = page.following
        if page.following is None:
            reading.is_whole = page.is_whole

    async def _finish(self, reading: _Reading, watched: WatchedMembers) -> None:
        chat_id, known = reading.chat_id, await self._known(reading.chat_id)
        gone = known.keys() - reading.found.keys() if reading.is_whole else set()
        if gone and not reading.is_second and len(reading.found) > PAGE:
            reading.is_second, reading.following = True, 0
            return
        self._reading = None
        self._again_at[chat_id] = self._clock.mono() + watched.every_s  # whatever becomes of the note
        at_ms = self._clock.wall_ms()
        changed = {
            user_id for user_id, one in reading.found.items() if user_id in known and _differs(known[user_id], one)
        }
        new = reading.found.keys() - known.keys()
        if watched.read_at_ms is not None:  # at the first look nobody came
            await self._tell(
                [
                    *(self._news(watched, JOINED, chat_id, reading.found[one], None) for one in sorted(new)),
                    *(self._news(watched, CHANGED, chat_id, reading.found[one], known[one]) for one in sorted(changed)),
                    *(self._news(watched, LEFT, chat_id, None, known[one]) for one in sorted(gone)),
                ]
            )
        ended = [msgspec.structs.replace(known[one], until_ms=at_ms) for one in sorted(gone | changed)]
        begun = [self._record(chat_id, reading.found[one], at_ms) for one in sorted(new | changed)]
        for part in _parts([*ended, *begun]):
            await self._book.save_members(part)
        count = len(reading.found) if reading.is_whole else None
        await self._note(
            chat_id, msgspec.structs.replace(watched, read_at_ms=at_ms, count=count, seen=len(reading.found), why=None)
        )
        self._events.tell(
            MembersRead(
                session_id=self._session_id,
                chat_id=chat_id,
                members=len(reading.found),
                is_whole=reading.is_whole,
                joined=len(new) if watched.read_at_ms is not None else 0,
                left=len(gone),
            )
        )

    async def _known(self, chat_id: int) -> dict[int, MemberRecord]:
        found: dict[int, MemberRecord] = {}
        while True:
            after = next(reversed(found), 0)
            page = await self._book.members(self._session_id, chat_id, at_ms=None, after=after, limit=KEPT_AT_ONCE)
            found |= {one.user_id: one for one in page}
            if len(page) < KEPT_AT_ONCE:
                return found

    def _record(self, chat_id: int, member: ChatMember, at_ms: int) -> MemberRecord:
        return MemberRecord(
            session_id=self._session_id,
            agent_id=self._agent_id,
            chat_id=chat_id,
            user_id=member.user_id,
            since_ms=at_ms,
            name=member.name,
            username=member.username,
            role=member.role,
        )

    def _news(
        self, watched: WatchedMembers, what: str, chat_id: int, now: ChatMember | None, before: MemberRecord | None
    ) -> Happening:
        user_id = now.user_id if now is not None else before.user_id if before is not None else 0
        name = f"{self._session_id}|members|{what}|{chat_id}|{user_id}|{watched.read_at_ms}"
        told = {
            "user_id": str(user_id),
            "now": None if now is None else {"name": now.name, "username": now.username, "role": now.role},
            "before": None
            if before is None
            else {"name": before.name, "username": before.username, "role": before.role},
        }
        return Happening(
            event_id=hashlib.blake2b(name.encode(), digest_size=16).hexdigest(),
            session_id=self._session_id,
            agent_id=self._agent_id,
            event_type=what,
            chat_id=chat_id,
            user_id=user_id,
            payload=msgspec.json.encode(told).decode(),
            created_at_ms=self._clock.wall_ms(),
        )

    async def _tell(self, news: list[Happening]) -> None:
        for start in range(0, len(news), KEPT_AT_ONCE):
            part = news[start : start + KEPT_AT_ONCE]
            await self._book.keep_events(part)
            count = await self._book.feed(lines_of_events(part, at_ms=self._clock.wall_ms()))
            if count:
                self._events.tell(SessionFed(session_id=self._session_id, count=count))

    async def _note(self, chat_id: int, watched: WatchedMembers) -> None:
        """Unless nobody wants it any more."""
        if watched.why is not None:
            watched = msgspec.structs.replace(watched, tried_at_ms=self._clock.wall_ms())
        try:
            await self._registry.note_members(self._session_id, chat_id, watched)
        except NotFound:
            return


def _differs(before: MemberRecord, now: ChatMember) -> bool:
    return (before.name, before.username, before.role) != (now.name, now.username, now.role)


def _parts(records: list[MemberRecord]) -> Iterator[list[MemberRecord]]:
    for start in range(0, len(records), KEPT_AT_ONCE):
        yield records[start : start + KEPT_AT_ONCE]
