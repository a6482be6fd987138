"""What a session sees goes into the archive and its feed, and only then does its place in Telegram's updates go on: a crash in
between tells it again, and keys make that once."""

import asyncio
from collections.abc import Sequence

from peik.archive_ports import FeedLine, Happening, Message
from peik.clock import Clock
from peik.events import Events
from peik.session_events import ArchiveGap, SessionFed
from peik.sessions.client import ClientError, Gap
from peik.sessions.feeding import lines_of_deleted, lines_of_events, lines_of_messages
from peik.sessions.ports import SeenBook
from peik.sessions.reconciling import Reconciler
from peik.sessions.registry import Registry

KEEP_S = 60.0  # an archive that does not answer for so long ends the connection: Telegram keeps what follows
CATCH_UP_S = 600.0  # by then what happened while it was away has come, and a gap is one of now


class Seeing:
    """The port `Listener`, for one connection. What the archive refuses is raised: the client then ends the connection, and
    all since the last state comes again."""

    def __init__(
        self,
        session_id: str,
        *,
        book: SeenBook,
        registry: Registry,
        reconciler: Reconciler,
        clock: Clock,
        events: Events,
        away_since_ms: int,
        agent_id: str,
    ) -> None:
        self._session_id = session_id
        self._agent_id = agent_id
        self._book = book
        self._registry = registry
        self._reconciler = reconciler
        self._clock = clock
        self._events = events
        self._away_since_ms = away_since_ms
        self._began_at = clock.mono()
        self.lost: asyncio.Future[ClientError] = asyncio.get_running_loop().create_future()

    async def on_messages(self, messages: Sequence[Message]) -> None:
        async with asyncio.timeout(KEEP_S):
            await self._book.keep_messages(messages)
            await self._feed(lines_of_messages(messages, at_ms=self._clock.wall_ms()))
            await self._registry.update_session_activity(self._session_id)

    async def on_deleted(self, chat_id: int | None, message_ids: Sequence[int]) -> None:
        at_ms = self._clock.wall_ms()
        async with asyncio.timeout(KEEP_S):
            await self._book.mark_deleted(self._session_id, chat_id, message_ids, at_ms=at_ms)
            await self._feed(lines_of_deleted(self._session_id, self._agent_id, chat_id, message_ids, at_ms=at_ms))

    async def on_happenings(self, happenings: Sequence[Happening]) -> None:
        async with asyncio.timeout(KEEP_S):
            await self._book.keep_events(happenings)
            await self._feed(lines_of_events(happenings, at_ms=self._clock.wall_ms()))
            await self._registry.update_session_activity(self._session_id)

    async def _feed(self, lines: Sequence[FeedLine]) -> None:
        count = await self._book.feed(lines)
        if count:
            self._events.tell(SessionFed(session_id=self._session_id, count=count))

    async def on_gap(self, gap: Gap) -> None:
        is_catching_up = self._clock.mono() - self._began_at < CATCH_UP_S
        since_ms = self._away_since_ms if is_catching_up else self._clock.wall_ms() - int(CATCH_UP_S * 1000)
        async with asyncio.timeout(KEEP_S):
            await self._reconciler.note_gap(gap.chat_id, since_ms=since_ms)
        self._events.tell(ArchiveGap(session_id=self._session_id, chat_id=gap.chat_id))

    async def on_state(self, state: bytes) -> None:
        async with asyncio.timeout(KEEP_S):
            await self._book.save_updates_state(self._session_id, state)

    def on_lost(self, error: ClientError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)
