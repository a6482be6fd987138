"""What the demo counts and what it looks like. Its own book: which letters Peik acknowledged, which of them arrived; the verdict
is made from nothing else. A story that scrolls over a small live panel; in a pipe or a dumb terminal, plain lines."""

import asyncio
import sys
import tomllib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from peik.demo.stage import DemoArrival, DemoFate, DemoStage, DemoStats, Unanswered

KEPT_S = 120.0  # how long a letter that has ended is still looked at: a repeat would have come by then


class Promise(msgspec.Struct):
    """A letter that Peik has acknowledged. Its text is unlike any other's, so the ledger can be matched by it."""

    letter_id: str
    chat_id: int
    text: str
    is_plain: bool  # of normal priority: only these must keep their order among each other
    promised_at: float
    fate: DemoFate | None = None

    @property
    def has_ended(self) -> bool:
        return self.fate is not None and self.fate.is_final


class DemoCounts(msgspec.Struct, kw_only=True):
    accepted: int = 0
    delivered: int = 0
    failed: int = 0  # reported as failed; some may have arrived, if that was uncertain
    failed_arrived: int = 0
    waiting: int = 0  # neither yet
    lost: int = 0
    doubled: int = 0  # arrivals beyond the first
    uncertain_tries: int = 0

    @property
    def is_good(self) -> bool:
        return self.lost == 0 and self.doubled <= self.uncertain_tries


class DemoBook:
    def __init__(self) -> None:
        self._promises: dict[str, Promise] = {}  # by text, in the order they were made
        self._arrived: Counter[str] = Counter()
        self.first_arrivals: dict[str, DemoArrival] = {}
        self._folded = DemoCounts()
        self.ledger_number = 0  # read so far
        self.arrivals = 0

    def promised(self, promise: Promise) -> None:
        self._promises[promise.text] = promise

    def arrived(self, arrivals: Iterable[DemoArrival]) -> None:
        for arrival in arrivals:
            self._arrived[arrival.text] += 1
            self.first_arrivals.setdefault(arrival.text, arrival)
            self.ledger_number = arrival.number
            self.arrivals += 1

    @property
    def is_empty(self) -> bool:
        return not self._promises and not self._folded.accepted

    def open_promises(self) -> list[Promise]:
        return [promise for promise in self._promises.values() if not promise.has_ended]

    def counts(self, *, is_over: bool = False) -> DemoCounts:
        """`is_over`: nothing is waited for any more, so what has neither arrived nor failed is lost."""
        counts = msgspec.structs.replace(self._folded)
        for promise in self._promises.values():
            self._count(promise, counts)
        if is_over:
            counts.lost += counts.waiting
            counts.waiting = 0
        return counts

    def _count(self, promise: Promise, counts: DemoCounts) -> None:
        times = self._arrived[promise.text]
        counts.accepted += 1
        counts.uncertain_tries += promise.fate.uncertain_tries if promise.fate else 0
        is_failed = promise.fate is not None and promise.fate.state == "failed"
        counts.failed += is_failed
        if times:
            counts.delivered += 1
            counts.doubled += times - 1
            counts.failed_arrived += is_failed
        elif not promise.has_ended:
            counts.waiting += 1
        elif not is_failed:
            counts.lost += 1  # Peik says completed, and nobody got it

    def fastest(self, texts: Iterable[str]) -> int:
        """The most first arrivals of these within any one second."""
        times = sorted(arrival.at for text in texts if (arrival := self.first_arrivals.get(text)))
        most = start = 0
        for end, at in enumerate(times):
            while times[start] <= at - 1.0:
                start += 1
            most = max(most, end - start + 1)
        return most

    def disordered(self, texts: Iterable[str]) -> tuple[int, int]:
        """How many chats these letters went to, and in how many the first arrivals were not in the order of acceptance."""
        chats: dict[int, list[int]] = defaultdict(list)
        for text in texts:
            promise, arrival = self._promises.get(text), self.first_arrivals.get(text)
            if promise is not None and arrival is not None and promise.is_plain:
                chats[promise.chat_id].append(arrival.number)
        return len(chats), sum(numbers != sorted(numbers) for numbers in chats.values())

    def fold(self, now: float) -> None:
        """Let go of what ended long ago, so that a demo that runs for days stays small."""
        for promise in list(self._promises.values()):
            if promise.has_ended and promise.promised_at < now - KEPT_S:
                self._count(promise, self._folded)
                del self._promises[promise.text], self._arrived[promise.text]
                self.first_arrivals.pop(promise.text, None)


# Looks at Peik and at Telegram's ledger a few times a second: keeps the book, feeds the screen, wakes who waits for a
# fact.


LOOK_S = 0.1
_BUCKET_S = 0.5  # of the little chart
_BUCKETS = 86


class DemoLook(msgspec.Struct, kw_only=True):
    """How things stood a moment ago."""

    chapter: str = ""
    is_dark: bool = False
    is_peik_up: bool = True
    is_route_open: bool = False  # open as a breaker is open
    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    waiting: int = 0
    limited: int = 0
    flow: tuple[int, ...] = ()  # arrivals per half second, the newest last


class Stuck(Exception):
    """What the story waits for does not come."""


class DemoWatch:
    def __init__(self, stage: DemoStage, book: DemoBook, *, show: Callable[[DemoLook], None]) -> None:
        self._stage = stage
        self._book = book
        self._show = show
        self._looked = asyncio.Event()
        self._flow: deque[int] = deque([0] * _BUCKETS, maxlen=_BUCKETS)
        self._bucket_ends_at = 0.0
        self.now = DemoLook()

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        before = self._book.arrivals
        self._book.arrived(await self._stage.sim.arrivals(self._book.ledger_number))
        self._flow_in(self._book.arrivals - before)
        stats, is_route_open = await self._ask_peik()
        counts = self._book.counts()
        look = self.now
        look.is_peik_up = stats is not None
        look.is_route_open = is_route_open
        look.accepted, look.delivered = counts.accepted, counts.delivered
        if stats is not None:
            look.failed, look.waiting = stats.failed, stats.unfinished
        look.limited = (await self._stage.sim.counters()).limited
        look.flow = tuple(self._flow)
        self._show(look)
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()

    async def until(self, fact: Callable[[], bool], *, what: str, timeout_s: float = 60.0) -> None:
        """Wait for a look at which the fact holds, with its every part seen after this call. Raises Stuck."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._looked.wait()
                await self._looked.wait()  # the first of them may have been half over
                while not fact():
                    await self._looked.wait()
        except TimeoutError:
            log = "\n".join(self._stage.peik_log()[-15:])
            raise Stuck(
                f"The demo waited {int(timeout_s)} s without success {what}. Peik's last words:\n{log}"
            ) from None

    async def quiet(self) -> None:
        """Wait until nothing is under way."""
        await self.until(lambda: self.now.is_peik_up and not self.now.waiting, what="for all letters to end")

    def _flow_in(self, arrivals: int) -> None:
        now = asyncio.get_running_loop().time()
        if not self._bucket_ends_at:
            self._bucket_ends_at = now + _BUCKET_S
        while now >= self._bucket_ends_at:
            self._flow.append(0)
            self._bucket_ends_at += _BUCKET_S
        self._flow[-1] += arrivals

    async def _ask_peik(self) -> tuple[DemoStats | None, bool]:
        try:
            return await self._stage.peik.stats(), await self._stage.peik.is_route_open()
        except Unanswered:
            return None, False


# ---- words and looks ----

_BARS = " ▁▂▃▄▅▆▇█"
_FULL_PER_BUCKET = 15  # Telegram's 30 a second, per half second
_WIDTH_MAX = 100


class Narration:
    """The words of story.toml by name, in the language that is spoken: `narration.flow_lead`."""

    def __init__(self) -> None:
        self._texts = tomllib.loads((resources.files("peik.demo") / "story.toml").read_text(encoding="utf-8"))
        self.languages = tuple(self._texts)
        self.speak("en")

    def speak(self, language: str) -> None:
        self.language = language
        self._words: dict[str, Any] = self._texts[language]

    def __getattr__(self, name: str) -> Any:
        return self._words[name]


narration = Narration()


def language_of(environment: Mapping[str, str]) -> str:
    """Of the viewer, by the locale; English if the story is not told in theirs."""
    named = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := environment.get(name))), "")
    found = named[:2].lower()
    return found if found in narration.languages else "en"


class Screen:
    """`say` for the story, `show` for the counters. `close` takes the panel away; what was said stays."""

    def __init__(self) -> None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # a terminal that knows no “ must not end the demo
        self._console = Console(highlight=False)
        self._is_live = sys.stdout.isatty() and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._shown = DemoLook()

    def open(self, *, is_once: bool) -> None:
        self.say(f"[bold]{narration.title}[/]")
        self.say(narration.opening)
        self.say(narration.once if is_once else narration.on_and_on)
        self.say("")

    def chapter(self, heading: str, lead: str, /, **values: object) -> None:
        self.say("")
        self.say(f"[bold cyan]{heading}[/]")
        self.say(f"[italic]{lead}[/]", **values)

    def say(self, words: str, /, **values: object) -> None:
        text = _filled(words, values)
        if self._is_live:
            self._console.print(text)
        else:
            _write(text.plain)

    def note(self, words: str, /, **values: object) -> None:
        """One line of the story."""
        text = _filled(words, values)
        if self._is_live:
            hanging = Table.grid(padding=(0, 1))
            hanging.add_row(Text(" •", "green"), text)
            self._console.print(hanging)
        else:
            _write(f" • {text.plain}")

    def table(self, rows: list[tuple[str, int, bool]]) -> None:
        """Name, number, and whether the number is one to be glad of."""
        for name, number, is_good in rows:
            colour = "green" if is_good else "bold red"
            self.say(f"   [{colour}]{{number}}[/]  {{name}}", number=f"{number:>6}", name=name)

    def counters(self) -> None:
        """In plain lines the panel is a line, said at the turns of the story."""
        if not self._is_live:
            look = self._shown
            _write(f"   [route {_route(look)} | accepted {look.accepted} | waiting {look.waiting} |"
                   f" delivered {look.delivered} | dead {look.failed} | 429s {look.limited}]")  # fmt: skip

    def last(self, line: str) -> None:
        """As it is, never wrapped: tools read it."""
        self.close()
        _write(line)

    def show(self, look: DemoLook) -> None:
        self._shown = look
        if not self._is_live:
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._panel(look), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _panel(self, look: DemoLook) -> RenderableType:
        width = min(self._console.width - len("^C "), _WIDTH_MAX)  # its echo must not break the panel's last line
        lights = Table.grid(padding=(0, 3))
        lights.add_row(
            _light("Telegram", "dark" if look.is_dark else "up", is_good=not look.is_dark),
            _light("Peik", "up" if look.is_peik_up else "dead", is_good=look.is_peik_up),
            _light("route", _route(look), is_good=_route(look) == "free"),
        )
        numbers = Table.grid(padding=(0, 3))
        numbers.add_row(
            _number("accepted", look.accepted, "bold"),
            _number("waiting", look.waiting, "bold yellow" if look.waiting else "dim"),
            _number("delivered", look.delivered, "bold green"),
            _number("dead letters", look.failed, "bold red" if look.failed else "dim"),
            _number("429s", look.limited, "bold red" if look.limited else "dim"),
        )
        body = Group(lights, numbers, _bar(look, width - 4), _chart(look, width - 4))
        return Panel(body, title=look.chapter or None, title_align="left", border_style="cyan", width=width)


def _filled(words: str, values: Mapping[str, object]) -> Text:
    return Text.from_markup(words.format(**{name: escape(str(value)) for name, value in values.items()}))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _route(look: DemoLook) -> str:
    if not look.is_peik_up:
        return "unknown"
    return "down" if look.is_route_open else "free"


def _light(name: str, state: str, *, is_good: bool) -> Text:
    return Text.assemble((f"{name} ", "dim"), ("● ", "green" if is_good else "red"), (f"{state:<7}", "bold"))


def _number(name: str, value: int, style: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), (f"{value:<4}", style))


def _bar(look: DemoLook, width: int) -> Text:
    """Of all that was accepted: delivered, dead, still under way."""
    whole = max(1, look.accepted)
    delivered = min(width, width * look.delivered // whole)
    dead = min(width - delivered, -(-width * look.failed // whole)) if look.failed else 0
    rest = width - delivered - dead
    return Text.assemble(
        ("━" * delivered, "green"), ("━" * dead, "red"), ("━" * rest, "yellow" if look.accepted else "dim")
    )


def _chart(look: DemoLook, width: int) -> Text:
    title = "arrivals  "
    bars = "".join(_BARS[min(8, -(-8 * count // _FULL_PER_BUCKET))] for count in look.flow)
    return Text.assemble((title, "dim"), (bars[-max(1, width - len(title)) :], "cyan"))
