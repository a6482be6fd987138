"""The way into the store's commits: an operation goes into the next one, and who must hear of it does once it is durable."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions

from peik.core.letter import Draft, Letter
from peik.core.nodes import News
from peik.outbox.store import AcceptedLetter, StoreListener, Stub
from peik.storage.executor import Finished
from peik.storage.news import HeldBots, NewsPause, NodeNews
from peik.storage.redis import letters
from peik.storage.redis.client import RedisClient, Script, _run, _script, translate
from peik.storage.redis.records import encode
from peik.storage.redis.writer import QUIET, CommitDone, Effects, RedisOperation, RedisWriter
from peik.storage.rules import Changed

T = TypeVar("T")


class Commits:
    """What engines of this node hear comes first, then what the caller hears; other nodes are told after both."""

    def __init__(
        self,
        writer: RedisWriter,
        bell: "RedisNews",
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
        ours = self._bell.held.surely
        theirs = [letter for letter in fresh if letter.bot_id not in ours]
        if theirs:
            self._bell.tell(lambda telling: letters.tell_fresh(telling, theirs))
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
                telling.lanes.add(stub.bot_id)
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


# A part's own way to the server: a connection of its own, and scripts that know nothing but that part.
#
# So a letter never waits behind the work on jobs or a broadcast's ledger, and the scripts of letters, which are read at every
# call, stay as short as they are.


class PartClient(RedisClient):
    def __init__(self, url: str, *, commit: tuple[str, ...], read: tuple[str, ...]) -> None:
        super().__init__(url)
        self._commit_parts = commit
        self._read_parts = read

    def _commit_script(self, names: frozenset[str]) -> Script:
        return _script(self._commit_parts)

    async def read(self, *operations: Sequence[object]) -> list[Any]:
        script = _script(self._read_parts)
        try:
            answers: list[Any] = await _run(self._execute, "EVALSHA_RO", script, self.prefix, encode(operations))
        except exceptions.RedisError as error:
            raise translate(error) from error
        return answers


# The way of documents and known chats to the server: connections of their own, and scripts that know nothing else.


_COMMIT = ("prelude", "papers", "contacts", "contact_forgetting", "commit_end")
_READ = ("prelude", "paper_reading", "contact_reading", "read_end")


class DocumentWay:
    """What documents and known chats share: one client, one writer with group commit."""

    def __init__(self, url: str, bell: "RedisNews", *, node: str) -> None:
        self._client = PartClient(url, commit=_COMMIT, read=_READ)
        self._writer = RedisWriter(self._client, node=node)
        self.commits = Commits(self._writer, bell, listener=lambda: None, on_blobs_freed=lambda blobs: None)
        self.read = self._client.read

    async def open(self) -> None:
        await self._client.open()

    async def drained(self) -> None:
        """Returns when everything that was asked has been answered."""
        await self._writer.drained()

    async def abandon(self) -> None:
        await self._writer.abandon()
        await self._client.close()


# News between nodes on a channel of the server: told after a commit by a message of its own, heard while a store is open.


_AGAIN_S = 1.0
_UNREAD_MAX = 1000  # lines that nobody asked for; then only that there was something is kept


class RedisNews:
    """Tells and hears from `open` to `close`. What was told in vain is made good by the next message, which says "all"; what was
    missed while the connection was lost, by one "all" when it is back."""

    def __init__(self, client: RedisClient, *, node: str) -> None:
        self._client = client
        self._node = node
        self._channel = client.prefix + "news"
        self.held = HeldBots()
        self._unsaid = NodeNews()
        self._pause = NewsPause()
        self._saying: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()
        self._heard = NodeNews()
        self._unread = 0
        self._has_heard = asyncio.Event()
        self._is_listening = asyncio.Event()
        self._may_have_missed = False
        self._listener: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._listener = asyncio.get_running_loop().create_task(self._listen())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_S):
                await self._is_listening.wait()
        self._may_have_missed = True  # whenever it subscribes from now on

    async def close(self, *, is_told: bool) -> None:
        """`is_told`: what is still to be said is said first."""
        self._is_closing.set()
        for task, is_over in ((self._saying, not is_told), (self._listener, True)):
            if task is not None:
                if is_over:
                    task.cancel()
                await asyncio.wait([task])

    # ---- telling ----

    def tell(self, say: Callable[[NodeNews], None]) -> None:
        """Add to the next message. It goes out at once, or a moment after the one before; not after `close`: nobody would end
        the connection that it made."""
        say(self._unsaid)
        is_idle = self._saying is None or self._saying.done()
        if self._unsaid and is_idle and not self._is_closing.is_set():
            self._saying = asyncio.get_running_loop().create_task(self._say())

    async def _say(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unsaid:
            wait_s = self._pause.wait_s(loop.time())
            if wait_s:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._is_closing.wait()
            self._pause.said(loop.time())
            said, self._unsaid = self._unsaid, NodeNews()
            try:
                await self._client.publish(self._channel, said.line(self._node))
            except (exceptions.RedisError, OSError):
                self._unsaid.everything()
                return

    # ---- hearing ----

    async def news(self) -> News:
        await self._has_heard.wait()
        heard, self._heard, self._unread = self._heard, NodeNews(), 0
        self._has_heard.clear()
        return heard.news()

    def _note(self, line: bytes) -> None:
        self._unread += 1
        if self._unread > _UNREAD_MAX:
            self._heard, self._unread = NodeNews(), 0
            self._heard.everything()
        self._heard.hear(line, besides=self._node, may_be=self.held.may_be)
        if self._heard:
            self._has_heard.set()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_closing.is_set():
            tried_at = loop.time()
            with contextlib.suppress(exceptions.RedisError, OSError):
                await self._client.hear(self._channel, self._note, begun=self._begun)
            if loop.time() - tried_at < _AGAIN_S:  # else one that was good for a while is lost: another at once
                await asyncio.sleep(_AGAIN_S)

    def _begun(self) -> None:
        """From here on nothing is missed."""
        self._is_listening.set()
        if self._may_have_missed:
            self._heard.everything()
            self._has_heard.set()
