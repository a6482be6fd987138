"""What the demo looks like: a story that scrolls over a small live panel; in a pipe or a dumb terminal, plain lines."""

import sys
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from peik.demo.book import Look

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
        self._shown = Look()

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

    def show(self, look: Look) -> None:
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

    def _panel(self, look: Look) -> RenderableType:
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


def _route(look: Look) -> str:
    if not look.is_peik_up:
        return "unknown"
    return "down" if look.is_route_open else "free"


def _light(name: str, state: str, *, is_good: bool) -> Text:
    return Text.assemble((f"{name} ", "dim"), ("● ", "green" if is_good else "red"), (f"{state:<7}", "bold"))


def _number(name: str, value: int, style: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), (f"{value:<4}", style))


def _bar(look: Look, width: int) -> Text:
    """Of all that was accepted: delivered, dead, still under way."""
    whole = max(1, look.accepted)
    delivered = min(width, width * look.delivered // whole)
    dead = min(width - delivered, -(-width * look.failed // whole)) if look.failed else 0
    rest = width - delivered - dead
    return Text.assemble(
        ("━" * delivered, "green"), ("━" * dead, "red"), ("━" * rest, "yellow" if look.accepted else "dim")
    )


def _chart(look: Look, width: int) -> Text:
    title = "arrivals  "
    bars = "".join(_BARS[min(8, -(-8 * count // _FULL_PER_BUCKET))] for count in look.flow)
    return Text.assemble((title, "dim"), (bars[-max(1, width - len(title)) :], "cyan"))
