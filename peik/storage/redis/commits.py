"""The way into the store's commits: an operation goes into the next one, and who must hear of it does once it is durable."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from peik.core.letter import Draft, Letter
from peik.outbox.store import AcceptedLetter, StoreListener, Stub
from peik.storage.executor import Finished
from peik.storage.news import NodeNews
from peik.storage.redis import letters
from peik.storage.redis.news import RedisNews
from peik.storage.redis.writer import QUIET, CommitDone, Effects, RedisOperation, RedisWriter
from peik.storage.rules import Changed

T = TypeVar("T")


class Commits:
    """What engines of this node hear comes first, then what the caller hears; other nodes are told after both."""

    def __init__(
        self,
        writer: RedisWriter,
        bell: RedisNews,
        *,
        listener: Callable[[], StoreListener | None],
        on_blobs_freed: Callable[[Sequence[str]], None],
    ) -> None:
        self._writer = writer
        self._bell = bell
        self._on_blobs_freed = on_blobs_freed
        self._listener = listener
        self._fresh: list[Letter] = []  # came with the group that is being answered, and nobody was told yet
        writer.on_answered = self._tell_fresh

    async def accept(self, drafts: Sequence[Draft], at_ms: int) -> list[AcceptedLetter]:
        future: asyncio.Future[list[AcceptedLetter]] = asyncio.get_running_loop().create_future()
        self._writer.submit(_Acceptance(drafts, at_ms, self, future))
        return await future

    def came(
        self, drafts: Sequence[Draft], accepted: Sequence[AcceptedLetter], fresh: Sequence[Letter], done: CommitDone
    ) -> None:
        """Letters are durable. The engines hear of all that came with one commit together, since most come one by one and
        each telling has its price; but before anything else that the commit did to their lanes."""
        self._fresh.extend(fresh)
        if done.effects is not QUIET or len(fresh) != len(drafts) or any(one.expires_at_ms for one in drafts):
            self.spread(done.effects, lambda telling: letters.tell_due(telling, drafts, accepted))

    def _tell_fresh(self) -> None:
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, []
        self._bell.tell(lambda telling: letters.tell_fresh(telling, fresh))
        try:
            self.offer(fresh)
        except Exception as error:  # noqa: BLE001  what comes after it is another operation's
            self._writer.surprised(error)

    async def write(
        self,
        name: str,
        *arguments: object,
        record: bytes | None = None,
        tell: Callable[[Any], None] = lambda value: None,
        news: Callable[[NodeNews, Any], None] = lambda telling, value: None,
    ) -> Any:
        """The answer of an operation, once that is durable. `tell` hears it before the caller does; `news` says what of it
        other nodes should know. A record stands before the arguments, by its place in ARGV."""

        def build(among: list[bytes]) -> list[object]:
            if record is None:
                return [name, *arguments]
            among.append(record)
            return [name, len(among) + 1, *arguments]

        return await self.submit(
            build,
            lambda done: done.value,
            tell=lambda done: tell(done.value),
            news=lambda telling, done: news(telling, done.value),
        )

    async def submit(
        self,
        build: Callable[[list[bytes]], list[object]],
        read: Callable[[CommitDone], T],
        *,
        weight: int = 1,
        tell: Callable[[CommitDone], None] = lambda done: None,
        news: Callable[[NodeNews, CommitDone], None] = lambda telling, done: None,
    ) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def finish(ended: Finished[CommitDone]) -> None:
            if ended.error is not None:
                if not future.done():  # nobody may be waiting any more
                    future.set_exception(ended.error)
                return
            done = ended.value()
            if not future.done():  # the one who waits wakes only after the listeners have been told
                future.set_result(read(done))
            self._tell_fresh()
            tell(done)
            self.spread(done.effects, lambda telling: news(telling, done))

        self._writer.submit(RedisOperation(build, finish, weight=weight))
        return await future

    def step(
        self,
        build: Callable[[list[bytes]], list[object]],
        done: Callable[[Finished[CommitDone]], None],
        *,
        weight: int,
    ) -> None:
        """The same without a future of its own: `done` calls `spread` when it has looked at the answer."""
        self._writer.submit(RedisOperation(build, done, weight=weight))

    def spread(self, effects: Effects, news: Callable[[NodeNews], None]) -> None:
        """Let the engines of this node know what an operation changed in their lanes, and the other nodes too."""
        self._tell_fresh()
        if effects is QUIET:
            self._bell.tell(news)
            return
        self.withdraw(effects.superseded)
        listener = self._listener()
        if effects.joined and listener is not None:
            listener.on_joined(effects.joined)
        if effects.followed and listener is not None:
            listener.on_followed(effects.followed)
        if effects.blobs_freed:
            self._on_blobs_freed(effects.blobs_freed)

        def say(telling: NodeNews) -> None:
            for one in effects.followed:
                telling.ended(one.bot_id, [one.letter_id])
            for stub in (*effects.superseded, *effects.joined):
                telling.lanes(stub.bot_id)
            news(telling)

        self._bell.tell(say)

    def offer(self, fresh: Sequence[Letter]) -> None:
        listener = self._listener()
        if fresh and listener is not None:
            listener.on_accepted(fresh)

    def tell_changed(self, change: Changed) -> None:
        """Somebody changed a letter that waited."""
        listener = self._listener()
        if change.left is not None:
            self.withdraw([change.left])
        if change.stands is not None and listener is not None:
            listener.on_joined([change.stands])
        if change.came is not None:
            self.offer([change.came])

    def withdraw(self, stubs: Sequence[Stub]) -> None:
        listener = self._listener()
        if stubs and listener is not None:
            listener.on_removed(stubs)


class _Acceptance:
    """Drafts on their way into a commit; see `RedisOperation`."""

    __slots__ = ("_at_ms", "_commits", "_drafts", "_future", "weight")

    def __init__(
        self, drafts: Sequence[Draft], at_ms: int, commits: Commits, future: asyncio.Future[list[AcceptedLetter]]
    ) -> None:
        self._drafts = drafts
        self._at_ms = at_ms
        self._commits = commits
        self._future = future
        self.weight = len(drafts)

    def build(self, among: list[bytes]) -> list[Any]:
        return ["accept", [letters.draft_row(one, self._at_ms, among) for one in self._drafts], self._at_ms]

    def done(self, ended: Finished[CommitDone]) -> None:
        if ended.error is not None:
            if not self._future.done():  # nobody may be waiting any more
                self._future.set_exception(ended.error)
            return
        done = ended.value()
        accepted, fresh = letters.came_in(self._drafts, done)
        if not self._future.done():
            self._future.set_result(accepted)
        self._commits.came(self._drafts, accepted, fresh, done)
