"""What a session's feed says of what was archived. The keys make that the same is told once, whoever sees it again. Pure."""

import asyncio
import hashlib
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from peik.accounts.answers import ArchivedMessageAnswer, HappeningAnswer
from peik.accounts.events import PushBack, PushFailed, PushRefused, SessionFed
from peik.archive.store import Archive, FeedRecord, Happening, LineKind, Message
from peik.clock import Clock
from peik.core.events import Event, Events, StoreFailed
from peik.core.units import rfc3339
from peik.errors import BadInput, StoreUnavailable
from peik.outbox.hooks import HookVerdict, judge, signed_headers
from peik.outbox.store import Posted, Poster


def lines_of_messages(messages: Sequence[Message], *, at_ms: int) -> list[FeedRecord]:
    return [
        FeedRecord(
            session_id=one.session_id,
            agent_id=one.agent_id,
            key=f"m {one.chat_id} {one.message_id} {one.edited_at_ms}",
            kind=LineKind.EDITED if one.edited_at_ms else LineKind.MESSAGE,
            chat_id=one.chat_id,
            user_id=one.sender_id,
            body=_written(ArchivedMessageAnswer.of(one)),
            at_ms=at_ms,
        )
        for one in messages
    ]


def lines_of_deleted(
    session_id: str, agent_id: str, chat_id: int | None, message_ids: Sequence[int], *, at_ms: int
) -> list[FeedRecord]:
    """`chat_id` None: some private chat or basic group; Telegram does not tell which, and the ids are enough to know."""
    return [
        FeedRecord(
            session_id=session_id,
            agent_id=agent_id,
            key=f"d {chat_id or 0} {message_id}",
            kind=LineKind.DELETED,
            chat_id=chat_id,
            body=_written(
                {
                    "session_id": session_id,
                    "agent_id": agent_id,
                    "chat_id": None if chat_id is None else str(chat_id),
                    "message_id": str(message_id),
                    "deleted_at": rfc3339(at_ms),
                }
            ),
            at_ms=at_ms,
        )
        for message_id in message_ids
    ]


def lines_of_events(events: Sequence[Happening], *, at_ms: int) -> list[FeedRecord]:
    return [
        FeedRecord(
            session_id=one.session_id,
            agent_id=one.agent_id,
            key=f"e {one.event_id}",
            kind=LineKind.EVENT,
            chat_id=one.chat_id,
            user_id=one.user_id,
            body=_written(HappeningAnswer.of(one)),
            at_ms=at_ms,
        )
        for one in events
    ]


def _written(told: object) -> str:
    return msgspec.json.encode(told).decode()


# Readers of feeds: each hears what was archived, in order for each session, from the place where it was.
#
# News within this process rings at once; what other nodes wrote is found by a look every second.


FOLLOW_LOOK_S = 1.0
PAGE = 200
READER_CHARS_MAX = 64
NUMBER_MAX = 10**18  # of a line


class FeedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines. What is None does not matter."""

    session_id: str | None = None
    agent_id: str | None = None
    chat_id: int | None = None
    kinds: frozenset[LineKind] | None = None

    def has(self, line: FeedRecord) -> bool:
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

    async def follow(self, wanted: FeedFilter, *, after: Mapping[str, int] | None, reader: str | None) -> "Follower":
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
        wanted: FeedFilter,
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

    async def next(self, *, timeout_s: float) -> list[FeedRecord]:
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
                    async with asyncio.timeout(min(FOLLOW_LOOK_S, left_s)):
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

    async def _read(self) -> list[FeedRecord]:
        wanted = self._wanted
        ends = await self._archive.fed_to(None if wanted.session_id is None else [wanted.session_id])
        found: list[FeedRecord] = []
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


# What is archived, posted to one webhook: at least once, signed, in order for each session.
#
# Its place is that of a reader in the archive, and moves on when the lines were taken; so a crash, or an endpoint
# that is away for a day, loses nothing that is still kept (PEIK_KEEP_FEED). One node does this for all, under the
# lease of the chores.


READER = "@webhook"
BEGUN = "@"  # in the place of a session: this reader has begun, also where no session has a feed yet
BATCH_LINES = 100
BATCH_BYTES = 512 * 1024  # a line that is longer goes alone
TRY_S = 15.0  # as for other webhooks
PAUSE_S = 1.0
PAUSE_S_MAX = 300.0
LOOK_S = 1.0
LIFE_S = 3600.0  # places that nobody renews are forgotten with old lines
RETRY_S = 2.0


class FeedPush:
    def __init__(
        self,
        *,
        url: str,
        archive: Archive,
        feeds: Feeds,
        poster: Poster,
        secret: Callable[[], Awaitable[str]],
        may_push: Callable[[], bool],
        clock: Clock,
        events: Events,
    ) -> None:
        self._url = url
        self._archive = archive
        self._feeds = feeds
        self._poster = poster
        self._secret = secret
        self._may_push = may_push
        self._clock = clock
        self._events = events
        self._endpoint = _without_path(url)
        self._follower: Follower | None = None
        self._waiting: deque[FeedRecord] = deque()  # read, and not taken by the endpoint yet
        self._taken: dict[str, int] = {}  # places that are not saved yet
        self._alive_at = clock.mono()
        self._failed_at: float | None = None

    async def run(self) -> None:
        while not self._feeds.is_over:
            try:
                if self._may_push():
                    await self._step()
                else:
                    self._leave()
                    await asyncio.sleep(LOOK_S)
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="the webhook of accounts", why=error.detail))
                await asyncio.sleep(RETRY_S)

    async def _step(self) -> None:
        """Whatever fails here with the store is where it was, and is taken up again by the next step."""
        if self._follower is None:
            self._follower = await self._begin()
        await self._move_on()
        if not self._waiting:
            self._waiting.extend(await self._follower.next(timeout_s=LOOK_S))
        if self._waiting:
            await self._deliver()
        else:
            await self._stay(self._follower.places)

    async def _move_on(self) -> None:
        if self._taken:
            await self._save(self._taken)
            self._taken = {}

    async def _begin(self) -> Follower:
        """From where this reader was; the first time from now on: nobody asked for a flood of history."""
        if not await self._archive.places(READER):
            ends = await self._archive.fed_to()
            await self._save({BEGUN: 1, **{session_id: fed.last for session_id, fed in ends.items()}})
        return await self._feeds.follow(FeedFilter(), after=None, reader=READER)

    def _leave(self) -> None:
        """Another node does this now, from the places that are saved."""
        self._follower = None
        self._waiting.clear()
        self._taken = {}
        self._well(is_left=True)

    async def _stay(self, places: Mapping[str, int]) -> None:
        """A sign of life, so that the places of quiet sessions are not forgotten."""
        if self._clock.mono() - self._alive_at >= LIFE_S:
            await self._save(places)
            self._alive_at = self._clock.mono()

    async def _save(self, places: Mapping[str, int]) -> None:
        await self._archive.save_places(READER, places, at_ms=self._clock.wall_ms())

    # ---- one batch: post, judge, go on ----

    async def _deliver(self) -> None:
        batch = _batch(self._waiting)
        body = _body(batch, at_ms=self._clock.wall_ms())
        pause_s = PAUSE_S
        while self._may_push():
            posted = await self._post(_id(batch), body)
            verdict = judge(posted.status)
            if verdict is not HookVerdict.AGAIN:
                self._went(batch, is_refused=verdict is HookVerdict.STOP)
                await self._move_on()
                return
            self._ill(f"it answered {posted.status}" if posted.status else posted.why)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)
            await self._stay({BEGUN: 1})

    async def _post(self, message_id: str, body: bytes) -> Posted:
        headers = signed_headers(
            secret=await self._secret(), message_id=message_id, at_s=self._clock.wall_ms() // 1000, body=body
        )
        return await self._poster.post(self._url, headers, body, timeout_s=TRY_S)

    def _went(self, batch: Sequence[FeedRecord], *, is_refused: bool) -> None:
        for line in batch:
            self._taken[line.session_id] = line.number
            self._waiting.popleft()
        self._well()
        if is_refused:
            self._events.tell(PushRefused(endpoint=self._endpoint, count=len(batch)))

    def _ill(self, why: str) -> None:
        if self._failed_at is None:
            self._failed_at = self._clock.mono()
            self._events.tell(PushFailed(endpoint=self._endpoint, why=why))

    def _well(self, *, is_left: bool = False) -> None:
        if self._failed_at is not None:
            away_s = self._clock.mono() - self._failed_at
            self._failed_at = None
            self._events.tell(PushBack(endpoint=self._endpoint, away_s=away_s, is_left=is_left))


def _batch(waiting: Sequence[FeedRecord]) -> list[FeedRecord]:
    """What goes in one message, from the beginning of those that wait."""
    batch: list[FeedRecord] = []
    size_bytes = 0
    for line in waiting:
        size_bytes += len(line.body.encode())
        if batch and (len(batch) >= BATCH_LINES or size_bytes > BATCH_BYTES):
            break
        batch.append(line)
    return batch


def _body(batch: Sequence[FeedRecord], *, at_ms: int) -> bytes:
    message = {
        "type": "session.lines",
        "timestamp": rfc3339(at_ms),
        "data": {"lines": [_line(line) for line in batch]},
    }
    return msgspec.json.encode(message)


def _line(line: FeedRecord) -> dict[str, object]:
    return {
        "id": f"{line.session_id}:{line.number}",
        "session_id": line.session_id,
        "agent_id": line.agent_id,
        "number": line.number,
        "type": line.kind,
        "at": rfc3339(line.at_ms),
        "data": msgspec.Raw(line.body.encode()),
    }


def _id(batch: Sequence[FeedRecord]) -> str:
    """The same for every try. A digest, because a session may have any name, and a header may not."""
    named = "\n".join(f"{line.session_id}:{line.number}" for line in batch)
    return f"msg_{hashlib.blake2b(named.encode(), digest_size=16, person=b'peik feed').hexdigest()}"


def _without_path(url: str) -> str:
    """There may be something secret in the path."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
