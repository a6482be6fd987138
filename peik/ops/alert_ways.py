"""The ways by which alerts reach people. Each has a queue of its own: one that is blocked holds up no other."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from peik.bell import Bell
from peik.errors import Problem, Unavailable
from peik.ops.alert_matter import Kind

QUEUE_MAX = 100  # alerts that wait for one way
RETRY_S = 10.0

Send = Callable[[str, str, str], Awaitable[None]]  # a chat, a text, a key under which it is sent once


class Said(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    kind: Kind
    text: str


class Note:
    """One alert on its way to everybody."""

    __slots__ = ("_left", "_on_done", "said")

    def __init__(self, said: Said, *, on_done: Callable[[], None]) -> None:
        self.said = said
        self._on_done = on_done
        self._left = 0

    def begin(self, ways: int) -> None:
        self._left = ways
        if not ways:
            self._on_done()

    def end(self) -> None:
        """One way is done with it."""
        self._left -= 1
        if not self._left:
            self._on_done()


class Way(Protocol):
    @property
    def name(self) -> str:
        """In words, without what is secret."""

    async def tell(self, waiting: Sequence[Said]) -> int:
        """Bring the first of them, or several at once, however long it takes; how many these were. Never raises."""

    async def test(self, text: str, key: str) -> str | None:
        """Bring it now. None: it went; else why not."""


class ChatWay:
    """Letters to one chat, by the outbox: what is accepted arrives."""

    def __init__(self, chat: str, *, place: int, send: Send) -> None:
        self.name = f"chat {chat}"
        self._chat = chat
        self._place = place
        self._send = send

    async def tell(self, waiting: Sequence[Said]) -> int:
        first = waiting[0]
        while True:
            try:
                await self._send(self._chat, first.text, f"{first.key}:{self._place}")
            except Unavailable:
                await asyncio.sleep(RETRY_S)
                continue
            except Problem:
                pass  # a chat that is none, or no bot yet: the log has the event itself
            return 1

    async def test(self, text: str, key: str) -> str | None:
        try:
            await self._send(self._chat, text, f"{key}:{self._place}")
        except Problem as problem:
            return problem.detail
        return None


class _Queue:
    def __init__(self, way: Way) -> None:
        self.way = way
        self._waiting: deque[tuple[Note, Said]] = deque()
        self._dropped = 0
        self._bell = Bell()

    def put(self, note: Note) -> None:
        if len(self._waiting) >= QUEUE_MAX:
            self._dropped += 1
            note.end()
            return
        said = note.said
        if self._dropped:
            more = f"\n({self._dropped} more alerts could not be sent before this one; the log has them.)"
            said = msgspec.structs.replace(said, text=said.text + more)
            self._dropped = 0
        self._waiting.append((note, said))
        self._bell.ring()

    async def run(self) -> None:
        while True:
            while self._waiting:
                try:
                    done = await self.way.tell([said for _, said in self._waiting])
                except Exception:  # noqa: BLE001  a way must never end Peik; the log has the event itself
                    done = 1
                for _ in range(done):
                    self._waiting.popleft()[0].end()
            await self._bell.wait()


class Ways:
    def __init__(self, ways: Sequence[Way]) -> None:
        self._queues = [_Queue(way) for way in ways]

    @property
    def all(self) -> list[Way]:
        return [queue.way for queue in self._queues]

    def put(self, note: Note) -> None:
        """Never waits: what is too much is dropped, counted and told of."""
        note.begin(len(self._queues))
        for queue in self._queues:
            queue.put(note)

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        return [group.create_task(queue.run()) for queue in self._queues]
