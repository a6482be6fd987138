"""What people see in a terminal: tables, states in colour, times near now. Words of strangers cannot break out of it."""

import datetime
import functools
import itertools
import locale
import re
import sys
import unicodedata
import zoneinfo
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 1000  # nobody reads it in columns: do not fold
_STYLES = {
    "waiting": "yellow",
    "delayed": "magenta",
    "active": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
    "down": "red",
    "up": "green",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI"})

_ISOLATE, _END = "\u2068", "\u2069"


def console(*, stderr: bool = False) -> Console:
    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=_PIPED_WIDTH)


def print_out(shown: RenderableType) -> None:
    """On standard output. Where it is piped, a line ends with its last word."""
    out = console()
    if out.is_terminal:
        out.print(shown)
        return
    with out.capture() as captured:
        out.print(shown)
    sys.stdout.writelines(line.rstrip() + "\n" for line in captured.get().splitlines())


def plain(words: object, style: str = "") -> Text:
    """Words as one line of text that stays in its place.

    Control characters would steer the terminal, and right-to-left words would pull their neighbours' cells along
    where a terminal orders text itself: there they are shut in marks that isolate them, which take no room.
    """
    text = _CONTROL.sub(" ", str(words)).strip()
    if sys.stdout.isatty() and any(unicodedata.bidirectional(letter) in _RIGHT_TO_LEFT for letter in text):
        text = _ISOLATE + text + _END
    return Text(text, style=style, overflow="ellipsis")


def state(name: object) -> Text:
    return Text(str(name), style=_STYLES.get(str(name), ""))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Iterable[str] = (),
    counts: Iterable[str] = (),
    shrinking: Iterable[str] = (),
    empty: str,
) -> RenderableType:
    """A table, or a sentence if there is nothing to show.

    Where room is short, the last column is folded and those that shrink are cut; the others stay whole. Counts are numbers
    of something, which people read in thousands; other numbers are names.
    """
    counted, cut = set(counts), set(shrinking)
    numbers = counted | set(right)
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        is_rigid = column != columns[-1] and column not in cut
        made.add_column(column, justify="right" if column in numbers else "left", no_wrap=is_rigid)
    for row in rows:
        cells = [
            _cell(amount(cell) if name in counted and isinstance(cell, int) else cell, is_cut=name in cut)
            for name, cell in zip(columns, row, strict=True)
        ]
        made.add_row(*_kept_apart(cells))
    return made if made.row_count else plain(empty)


def _cell(words: object, *, is_cut: bool) -> Text:
    text = words if isinstance(words, Text) else plain("" if words is None else words)
    text.no_wrap = is_cut or None
    return text


def _kept_apart(cells: list[Text]) -> list[Text]:
    """A cell that is cut may lose the mark that ends its isolation: its neighbour begins with one more."""
    for cell, neighbour in itertools.pairwise(cells):
        if cell.plain.startswith(_ISOLATE):
            neighbour.plain = _END + neighbour.plain
    return cells


def facts(pairs: Iterable[tuple[str, object]]) -> RenderableType:
    """Names and what they are, one to a line; what is not known is left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in pairs:
        if value is not None and value != "":
            grid.add_row(name, value if isinstance(value, Text | Table) else plain(value))
    return grid


def when(text: object, zone: object = None) -> str:
    """An instant in local time, and how far it is from now. `zone`: in this one, with its name."""
    if not isinstance(text, str):
        return ""
    moment = datetime.datetime.fromisoformat(text)
    return f"{_local(moment, zone)} ({_near(moment)})"


def _local(moment: datetime.datetime, zone: object) -> str:
    if zone is None:
        return moment.astimezone().strftime(_time_form())
    try:
        local, name = moment.astimezone(zoneinfo.ZoneInfo(str(zone))), str(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):  # this machine does not know it
        local = moment.astimezone()
        name = local.tzname() or ""
    return f"{local.strftime(_time_form())} {name}"


def amount(count: int) -> str:
    """A count in thousands, which are parted as the locale has it, at a terminal; else by commas."""
    return f"{count:n}" if sys.stdout.isatty() and _is_set(locale.LC_NUMERIC) else f"{count:,}"


def _time_form() -> str:
    """Day and time as the locale writes them, for people at a terminal; else the form that every program can read."""
    return "%x %X" if sys.stdout.isatty() and _is_set(locale.LC_TIME) else "%Y-%m-%d %H:%M:%S"


@functools.cache
def _is_set(category: int) -> bool:
    """Whether the user has chosen a locale for this; the plain one, C, knows no thousands and writes 11/19/26."""
    try:
        return locale.setlocale(category, "").split(".")[0] not in ("C", "POSIX")
    except locale.Error:  # one that is not installed
        return False


def age(text: object) -> str:
    """How far an instant is from now, short enough for a column."""
    return _near(datetime.datetime.fromisoformat(text)).removesuffix(" ago") if isinstance(text, str) else ""


def _near(moment: datetime.datetime) -> str:
    seconds = (datetime.datetime.now(datetime.UTC) - moment).total_seconds()
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if abs(seconds) >= size * (2 if unit != "s" else 1):
            amount = f"{abs(seconds) / size:.0f} {unit}"
            return f"{amount} ago" if seconds > 0 else f"in {amount}"
    return "now"
