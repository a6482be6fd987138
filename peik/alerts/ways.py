"""The ways by which alerts reach people. Each has a queue of its own: one that is blocked holds up no other."""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from peik.alerts.matters import MatterKind
from peik.errors import Problem, StartError, Unavailable, described, to_install
from peik.wakeup import Wakeup

QUEUE_MAX = 100  # alerts that wait for one way
RETRY_S = 10.0

Send = Callable[[str, str, str], Awaitable[None]]  # a chat, a text, a key under which it is sent once


class AlertText(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    kind: MatterKind
    text: str


class Note:
    """One alert on its way to everybody."""

    __slots__ = ("_left", "_on_done", "said")

    def __init__(self, said: AlertText, *, on_done: Callable[[], None]) -> None:
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


class AlertWay(Protocol):
    @property
    def name(self) -> str:
        """In words, without what is secret."""

    async def tell(self, waiting: Sequence[AlertText]) -> int:
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

    async def tell(self, waiting: Sequence[AlertText]) -> int:
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
    def __init__(self, way: AlertWay) -> None:
        self.way = way
        self._waiting: deque[tuple[Note, AlertText]] = deque()
        self._dropped = 0
        self._bell = Wakeup()

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
    def __init__(self, ways: Sequence[AlertWay]) -> None:
        self._queues = [_Queue(way) for way in ways]

    @property
    def all(self) -> list[AlertWay]:
        return [queue.way for queue in self._queues]

    def put(self, note: Note) -> None:
        """Never waits: what is too much is dropped, counted and told of."""
        note.begin(len(self._queues))
        for queue in self._queues:
            queue.put(note)

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        return [group.create_task(queue.run()) for queue in self._queues]


# Alerts by Apprise: mail, other messengers, a pager. Telegram may be what is down.
#
# Its library is called in a thread of its own with a time limit. A call that hangs is left behind; it can never hold
# up Peik, nor keep it from ending.


CALL_S = 30.0
WAITS_S = (15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)  # after each failure; then it is given up
AT_ONCE_MAX = 10  # alerts in one message
HANGING_MAX = 4  # calls that did not come back

P = ParamSpec("P")
T = TypeVar("T")
Notify = Callable[[str, str, MatterKind], bool]  # a title, a body; whether it went. It may take its time, and raise.


def ways_of(urls: Sequence[str]) -> list[AlertWay]:
    """Raises StartError if Apprise is not there, or does not know one of them. What they say is secret, and never shown."""
    if not urls:
        return []
    try:
        import apprise
    except ImportError:
        raise StartError(f"PEIK_ALERT_URLS needs Apprise: {to_install('alerts')}.") from None
    logger = logging.getLogger(apprise.LOGGER_NAME)
    if not any(isinstance(one, _Hush) for one in logger.filters):
        logger.addFilter(_Hush())
    kinds = {
        MatterKind.BEGAN: apprise.NotifyType.FAILURE,
        MatterKind.AGAIN: apprise.NotifyType.WARNING,
        MatterKind.OVER: apprise.NotifyType.SUCCESS,
        MatterKind.TEST: apprise.NotifyType.INFO,
    }

    def notify_by(url: str, number: int) -> Notify:
        one = apprise.Apprise()
        with _hushed():
            is_known = one.add(url)
        if not is_known:
            raise StartError(f"PEIK_ALERT_URLS: address {number} is none that Apprise knows. See docs/alerts.md.")

        def notify(title: str, body: str, kind: MatterKind) -> bool:
            with _hushed():
                return bool(one.notify(body=body, title=title, notify_type=kinds[kind]))

        return notify

    return [AppriseWay(_shown(url), notify_by(url, number)) for number, url in enumerate(urls, 1)]


class AppriseWay:
    def __init__(
        self, name: str, notify: Notify, *, call_s: float = CALL_S, waits_s: Sequence[float] = WAITS_S
    ) -> None:
        self.name = name
        self._notify = notify
        self._call_s = call_s
        self._waits_s = waits_s
        self._hanging = 0
        self._counting = threading.Lock()

    async def tell(self, waiting: Sequence[AlertText]) -> int:
        """What has waited through a failure goes as one message."""
        together = list(waiting[:AT_ONCE_MAX])
        title = "Peik" if len(together) == 1 else f"Peik: {len(together)} alerts"
        kind = together[0].kind if len(together) == 1 else MatterKind.BEGAN
        body = "\n\n".join(one.text for one in together)
        for wait_s in self._waits_s:
            if await self._call(title, body, kind) is None:
                break
            await asyncio.sleep(wait_s)
        return len(together)

    async def test(self, text: str, key: str) -> str | None:
        return await self._call("Peik", text, MatterKind.TEST)

    async def _call(self, title: str, body: str, kind: MatterKind) -> str | None:
        """None: it went; else why not, in words that hold nothing secret."""
        if self._hanging >= HANGING_MAX:
            return "The calls before did not come back."

        def work() -> str | None:
            try:
                return None if self._notify(title, body, kind) else "It was not taken there."
            except Exception as error:  # noqa: BLE001  whatever a plugin of Apprise does wrong
                return described(error).partition(":")[0]
            finally:
                with self._counting:
                    self._hanging -= 1

        with self._counting:
            self._hanging += 1
        try:
            async with asyncio.timeout(self._call_s):
                return await asyncio.get_running_loop().run_in_executor(_Thread(), work)
        except TimeoutError:
            return f"It did not answer within {self._call_s:.0f} s."


class _Thread(concurrent.futures.Executor):
    """A thread for one call. Nobody waits for it, not even the end of the process: it may never come back."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "concurrent.futures.Future[T]":
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()  # from now on it can only be left behind

        def run() -> None:
            future.set_result(fn(*args, **kwargs))

        threading.Thread(target=run, name="peik-alert", daemon=True).start()
        return future


_quiet = threading.local()


class _Hush(logging.Filter):
    """Apprise logs whole addresses, secrets and all. What it says of ours is left out; what it says to others stays."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_quiet, "is_on", False)


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    _quiet.is_on = True
    try:
        yield
    finally:
        _quiet.is_on = False


def _shown(url: str) -> str:
    """Without what is secret: tokens can be anywhere in such an address, the host among them."""
    return f"{urllib.parse.urlsplit(url).scheme or 'an address'}://…"
