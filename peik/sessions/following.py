"""Readers of feeds: each hears what was archived, in order for each session, from the place where it was.

News within this process rings at once; what other nodes wrote is found by a look every second.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from peik.archive_ports import Archive, FeedLine, LineKind
from peik.clock import Clock
from peik.core.problem import BadInput
from peik.events import Event, Events
from peik.session_events import SessionFed

LOOK_S = 1.0
PAGE = 200
READER_CHARS_MAX = 64


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines. What is None does not matter."""

    session_id: str | None = None
    agent_id: str | None = None
    chat_id: int | None = None
    kinds: frozenset[LineKind] | None = None

    def has(self, line: FeedLine) -> bool:
        return (
            (self.agent_id is None or line.agent_id == self.agent_id)
            and (self.chat_id is None or line.chat_id == self.chat_id)
            and (self.kinds is None or line.kind in self.kinds)
        )


class Feeds:
    def __init__(self, archive: Archive, clock: Clock, events: Events) -> None:
        self._archive = archive
        self._clock = clock
        self._followers: set[Follower] = set()
        self.is_over = False
        events.listen(self._listen, SessionFed)

    async def follow(self, wanted: Wanted, *, after: Mapping[str, int] | None, reader: str | None) -> "Follower":
        if reader is not None:
            if not 0 < len(reader) <= READER_CHARS_MAX or not reader.isprintable():
                raise BadInput(code="bad_reader", detail=f"A reader has a name of 1 to {READER_CHARS_MAX} characters.")
            places = await self._archive.places(reader)
        elif after is not None:
            places = dict(after)
        else:
            named = None if wanted.session_id is None else [wanted.session_id]
            places = {session_id: fed.last for session_id, fed in (await self._archive.fed_to(named)).items()}
        return Follower(self, self._archive, self._clock, wanted, places=places, reader=reader)

    def join(self, follower: "Follower") -> None:
        self._followers.add(follower)

    def leave(self, follower: "Follower") -> None:
        self._followers.discard(follower)

    def end(self) -> None:
        """Peik ends: nobody waits any more."""
        self.is_over = True
        for follower in self._followers:
            follower.ring()

    def _listen(self, told: Sequence[Event]) -> None:
        if self._followers and any(isinstance(event, SessionFed) for event in told):
            for follower in self._followers:
                follower.ring()


class Follower:
    """One reader. `places` is up to where it has had each session's feed, by what `next` gave."""

    def __init__(
        self,
        feeds: Feeds,
        archive: Archive,
        clock: Clock,
        wanted: Wanted,
        *,
        places: Mapping[str, int],
        reader: str | None,
    ) -> None:
        self._feeds = feeds
        self._archive = archive
        self._clock = clock
        self._wanted = wanted
        self._reader = reader
        self._agents: dict[str, str] = {}  # whose a session is, as far as its lines have told
        self._rung = asyncio.Event()
        self.places = dict(places)

    @property
    def is_over(self) -> bool:
        return self._feeds.is_over

    def ring(self) -> None:
        self._rung.set()

    async def next(self, *, timeout_s: float) -> list[FeedLine]:
        """The next lines, in order for each session. Empty: there was nothing in this time, or Peik ends. Raises
        StoreUnavailable; then the places are as they were."""
        deadline = self._clock.mono() + timeout_s
        self._feeds.join(self)
        try:
            while not self.is_over:
                self._rung.clear()
                lines = await self._read()
                left_s = deadline - self._clock.mono()
                if lines or left_s <= 0:
                    return lines
                try:
                    async with asyncio.timeout(min(LOOK_S, left_s)):
                        await self._rung.wait()
                except TimeoutError:
                    continue
            return []
        finally:
            self._feeds.leave(self)

    async def confirm(self) -> None:
        """What `next` gave so far is done with. A reader without a name keeps its places itself."""
        if self._reader is not None:
            await self._archive.save_places(self._reader, self.places, at_ms=self._clock.wall_ms())

    async def _read(self) -> list[FeedLine]:
        wanted = self._wanted
        ends = await self._archive.fed_to(None if wanted.session_id is None else [wanted.session_id])
        found: list[FeedLine] = []
        places = dict(self.places)
        for session_id, fed in sorted(ends.items()):
            if len(found) >= PAGE:
                break
            place = places.get(session_id, 0)
            if fed.last < place:  # an archive that was put back: what comes from now on is new
                places[session_id] = place = fed.last
            if fed.last == place:
                continue
            if wanted.agent_id is not None and self._agents.get(session_id, wanted.agent_id) != wanted.agent_id:
                places[session_id] = fed.last
                continue
            lines = await self._archive.fed(session_id, after=place, limit=PAGE)
            if lines:
                self._agents[session_id] = lines[0].agent_id
                found.extend(line for line in lines if wanted.has(line))
            # Lines that nobody kept are gone for good: the place is behind them.
            places[session_id] = lines[-1].number if lines else fed.last
        self.places = places
        return found
