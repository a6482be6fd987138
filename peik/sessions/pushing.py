"""What is archived, posted to one webhook: at least once, signed, in order for each session.

Its place is that of a reader in the archive, and moves on when the lines were taken; so a crash, or an endpoint that is away
for a day, loses nothing that is still kept (PEIK_KEEP_FEED). One node does this for all, under the lease of the chores.
"""

import asyncio
import hashlib
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from peik.archive_ports import Archive, FeedLine
from peik.clock import Clock
from peik.core.hook import Verdict, judge, signed_headers
from peik.errors import StoreUnavailable
from peik.events import Events, StoreFailed
from peik.hook_ports import Posted, Poster
from peik.session_events import PushBack, PushFailed, PushRefused
from peik.sessions.following import Feeds, Follower, Wanted
from peik.shown import rfc3339

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


class Pushing:
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
        self._waiting: deque[FeedLine] = deque()  # read, and not taken by the endpoint yet
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
        return await self._feeds.follow(Wanted(), after=None, reader=READER)

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
            if verdict is not Verdict.AGAIN:
                self._went(batch, is_refused=verdict is Verdict.STOP)
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

    def _went(self, batch: Sequence[FeedLine], *, is_refused: bool) -> None:
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


def _batch(waiting: Sequence[FeedLine]) -> list[FeedLine]:
    """What goes in one message, from the beginning of those that wait."""
    batch: list[FeedLine] = []
    size_bytes = 0
    for line in waiting:
        size_bytes += len(line.body.encode())
        if batch and (len(batch) >= BATCH_LINES or size_bytes > BATCH_BYTES):
            break
        batch.append(line)
    return batch


def _body(batch: Sequence[FeedLine], *, at_ms: int) -> bytes:
    message = {
        "type": "session.lines",
        "timestamp": rfc3339(at_ms),
        "data": {"lines": [_line(line) for line in batch]},
    }
    return msgspec.json.encode(message)


def _line(line: FeedLine) -> dict[str, object]:
    return {
        "id": f"{line.session_id}:{line.number}",
        "session_id": line.session_id,
        "agent_id": line.agent_id,
        "number": line.number,
        "type": line.kind,
        "at": rfc3339(line.at_ms),
        "data": msgspec.Raw(line.body.encode()),
    }


def _id(batch: Sequence[FeedLine]) -> str:
    """The same for every try. A digest, because a session may have any name, and a header may not."""
    named = "\n".join(f"{line.session_id}:{line.number}" for line in batch)
    return f"msg_{hashlib.blake2b(named.encode(), digest_size=16, person=b'peik feed').hexdigest()}"


def _without_path(url: str) -> str:
    """There may be something secret in the path."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
