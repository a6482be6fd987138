"""Templates become pages here: Jinja with everything escaped, and the few functions that all templates may use."""

import hashlib
import json
import re
import secrets
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, tzinfo
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import jinja2
import msgspec
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from peik import __version__
from peik.admin.model import Role
from peik.clock import Clock, zone_of
from peik.core.translation import translations
from peik.core.units import gregorian_of, jalali_of
from peik.errors import BadInput, Problem
from peik.settings.config import shown_address
from peik.web.dashboard.bubble import bubble_of

# The words of the dashboard in its languages: `texts/*.toml`, a table per key with one text per language. Read once.


LANGUAGES = {"en": "English", "fa": "فارسی", "ru": "Русский", "uz": "Oʻzbekcha"}  # noqa: RUF001  that is how it is written
RTL = frozenset({"fa"})
_TEXTS = Path(__file__).with_name("texts")


class DashboardWords(msgspec.Struct, frozen=True):
    """Every text by key and language."""

    texts: Mapping[str, Mapping[str, str]]

    def __contains__(self, key: object) -> bool:
        return key in self.texts

    def say(self, language: str, key: str, /, **places: object) -> str:
        """The text with its places filled. A key that nobody wrote a text for is shown as itself: a page never fails for it."""
        versions = self.texts.get(key)
        if versions is None:
            return f"[{key}]"
        return (versions.get(language) or versions["en"]).format(**places)


@cache
def load(folder: Path = _TEXTS) -> DashboardWords:
    """All files of the folder, read once. A key stands in one of them only."""
    texts: dict[str, Mapping[str, str]] = {}
    for path in sorted(folder.glob("*.toml")):
        for key, versions in tomllib.loads(path.read_text(encoding="utf-8")).items():
            assert key not in texts, f"{key} is in two files, one of them {path.name}"
            texts[key] = versions
    return DashboardWords(texts)


def language_of(wanted: str | None, kept: str | None, accepted: str | None) -> str:
    """Which language to speak: what was asked for now, what was asked for once, what the browser would like best."""
    for code in (wanted, kept):
        if code in LANGUAGES:
            return code
    ranked: list[tuple[float, str]] = []
    for place, part in enumerate((accepted or "").split(",")[:20]):
        tag, _, weight = part.strip().partition(";q=")
        try:
            rank = float(weight) if weight else 1.0
        except ValueError:
            continue
        code = tag.partition("-")[0].lower()
        if code in LANGUAGES:
            ranked.append((rank - place / 1000, code))
    return max(ranked)[1] if ranked else "en"


_CODE = re.compile(r"[a-z]+(_[a-z]+)+: ")  # of a problem, before its words


def said_as(language: str, text: str) -> str:
    """What Peik says in English, in a language. Words of others, and names, stay as they are."""
    return translations().text(language, text if language == "en" else _CODE.sub("", text, count=1))


def explained(language: str, text: str) -> Markup:
    """The same for a page, with Telegram's own words behind it."""
    said = translations().say(language, text if language == "en" else _CODE.sub("", text, count=1))
    quote = Markup(' <bdi class="dim" lang="en" dir="ltr">({})</bdi>').format(said.quote) if said.quote else ""
    return escape(said.text) + quote


def _begun(words: Markup) -> Markup:
    """With a capital, as a sentence begins; but for names, which keep their letters."""
    first = words.split(" ", 1)[0]
    return words if re.search(r"[^\w\s,:]", first) else words[:1].upper() + words[1:]


# Instants as people read them, and how long ago.

JALALI = frozenset({"fa"})
_MOMENT = re.compile(
    r"([0-9]{4})[-/]([0-9]{1,2})[-/]([0-9]{1,2})"
    r"(?:[T ,\u060c]+([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,6})?)?)?",
    re.ASCII,
)
_JALALI_BEFORE = 1700  # no year of the other calendar that anybody means lies below
# What the menu offers; a browser tells its own.
ZONES = (
    "UTC", "Asia/Tehran", "Asia/Tashkent", "Asia/Samarkand", "Asia/Kabul", "Asia/Dushanbe", "Asia/Dubai", "Asia/Almaty",
    "Europe/Moscow", "Europe/Istanbul", "Europe/Berlin", "Europe/London", "America/New_York", "America/Los_Angeles",
)  # fmt: skip


def read_moment(text: str, zone: tzinfo) -> datetime | None:
    """A time as people write it, by either calendar. None: it is none, or names its zone itself."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    try:
        that_day = gregorian_of(year, month, day) if year < _JALALI_BEFORE else date(year, month, day)
        return datetime(that_day.year, that_day.month, that_day.day, hour, minute, second, tzinfo=zone)
    except ValueError:
        return None


def zone_named(name: str | None) -> tzinfo | None:
    """None: there is no such zone here."""
    if name is None or not re.fullmatch(r"[A-Za-z0-9_+\-]{1,40}(/[A-Za-z0-9_+\-]{1,40}){0,2}", name):
        return None
    try:
        return zone_of(name)
    except BadInput:
        return None


_STEPS = ((86_400, "age_days"), (3_600, "age_hours"), (60, "age_minutes"), (1, "age_seconds"))


def moment_text(ms: int, zone: tzinfo, language: str) -> str:
    """In the zone of whoever looks; for Persians by their own calendar."""
    moment = datetime.fromtimestamp(ms / 1000, zone)
    if language not in JALALI:
        return moment.strftime("%Y-%m-%d %H:%M:%S")
    year, month, day = jalali_of(moment)
    return f"{year}/{month:02}/{day:02} {moment:%H:%M:%S}"


def day_text(ms: int, *, zone: tzinfo, language: str) -> str:
    """Day and time without the year, for charts of several days."""
    return moment_text(ms, zone, language)[5:16]


# How thousands are parted, by language; a blank that breaks no line.
_THOUSANDS = {"en": ",", "fa": ",", "ru": "\u00a0", "uz": "\u00a0"}
_FIGURES = re.compile(r"[0-9]{4,}", re.ASCII)


def number_text(value: object, language: str) -> str:
    """A count as people read it: 12,345. What is no whole number stays as it is, but for figures in it such as 20000+."""
    return _FIGURES.sub(lambda found: f"{int(found[0]):,}".replace(",", _THOUSANDS[language]), str(value))


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ms_of(text: str) -> int:
    """An instant as the API writes it."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def span_text(seconds: float, say: Callable[..., str]) -> str:
    """A length of time in its largest unit."""
    for size, key in _STEPS:
        if seconds >= size:
            return say(key, count=int(seconds // size))
    return say("age_seconds", count=0)


def age_text(ms: int, now_ms: int, say: Callable[..., str]) -> str:
    """How long ago it was, or how long until it is."""
    away_s = (now_ms - ms) / 1000
    if abs(away_s) < 1:
        return say("age_now")
    return say("age_ago" if away_s > 0 else "age_ahead", span=span_text(abs(away_s), say))


# Style sheets and scripts: in memory, under names that hold a hash of what is in them, so that browsers keep them for
# ever.


PREFIX = "/admin/static/"
_STATIC = Path(__file__).with_name("static")
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True):
    body: bytes
    media_type: str


class Assets:
    def __init__(self, folder: Path = _STATIC) -> None:
        self._by_name: dict[str, Asset] = {}
        self._names: dict[str, str] = {}
        for path in sorted(folder.iterdir()):
            if path.suffix in _TYPES:
                body = path.read_bytes()
                digest = hashlib.blake2b(body, digest_size=6).hexdigest()
                name = f"{path.stem}.{digest}{path.suffix}"
                self._names[path.name] = name
                self._by_name[name] = Asset(body, _TYPES[path.suffix])

    def url(self, file: str) -> str:
        """Where the browser finds this file."""
        return PREFIX + self._names[file]

    def answer(self, name: str) -> Response | None:
        asset = self._by_name.get(name)
        if asset is None:
            return None
        return Response(asset.body, headers={"Cache-Control": _FOR_EVER}, media_type=asset.media_type)


# The way around: every section in its group, as far as there is such a page and the visitor may see it.


# What each needs: a role, and whether a key of some bots only may see it as well.
_GROUPS: tuple[tuple[str, tuple[tuple[str, str, Role, bool], ...]], ...] = (
    (
        "nav_now",
        (("nav_overview", "/admin", Role.VIEWER, True), ("nav_charts", "/admin/charts", Role.VIEWER, True)),
    ),
    (
        "nav_traffic",
        (
            ("nav_letters", "/admin/letters", Role.VIEWER, True),
            ("nav_dead", "/admin/dead", Role.VIEWER, True),
            ("nav_log", "/admin/log", Role.VIEWER, True),
            ("nav_lanes", "/admin/lanes", Role.VIEWER, True),
            ("nav_arrivals", "/admin/arrivals", Role.VIEWER, True),
            ("nav_chats", "/admin/chats", Role.VIEWER, True),
        ),
    ),
    (
        "nav_outreach",
        (
            ("nav_broadcasts", "/admin/broadcasts", Role.VIEWER, True),
            ("nav_notifications", "/admin/notifications", Role.VIEWER, True),
            ("nav_schedules", "/admin/schedules", Role.VIEWER, True),
        ),
    ),
    (
        "nav_work",
        (
            ("nav_jobs", "/admin/jobs", Role.VIEWER, False),
            ("nav_sessions", "/admin/sessions", Role.VIEWER, False),
            ("nav_archive", "/admin/archive", Role.VIEWER, False),
        ),
    ),
    (
        "nav_peik",
        (
            ("nav_bots", "/admin/bots", Role.VIEWER, True),
            ("nav_nodes", "/admin/nodes", Role.VIEWER, False),
            ("nav_keys", "/admin/keys", Role.ADMIN, False),
            ("nav_people", "/admin/people", Role.ADMIN, False),
            ("nav_audit", "/admin/audit", Role.ADMIN, False),
            ("nav_settings", "/admin/settings", Role.ADMIN, False),
        ),
    ),
)


class NavLink(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    path: str
    is_here: bool


class LinkGroup(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    links: tuple[NavLink, ...]


class Nav(msgspec.Struct, frozen=True):
    paths: frozenset[str]

    def has(self, path: str) -> bool:
        return path in self.paths

    def groups(self, role: Role, here: str, *, is_whole: bool) -> tuple[LinkGroup, ...]:
        groups = []
        for text, rows in _GROUPS:
            links = tuple(
                NavLink(text=key, path=path, is_here=_is_within(here, path))
                for key, path, needed, is_for_parts in rows
                if path in self.paths and role.allows(needed) and (is_whole or is_for_parts)
            )
            if links:
                groups.append(LinkGroup(text=text, links=links))
        return tuple(groups)


def _is_within(here: str, path: str) -> bool:
    return here == path or (path != "/admin" and here.startswith(path + "/"))


# Charts as SVG, drawn here: no script needs to run for them, and their colours come from the style sheet.


WIDTH, HEIGHT = 420, 160
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 8, 20
_TICKS = 4


class ChartBar(msgspec.Struct, frozen=True, kw_only=True):
    """What happened from an instant on, from the bottom up."""

    at_ms: int
    parts: tuple[float, ...]


class Dot(msgspec.Struct, frozen=True, kw_only=True):
    """One instant of several lines; None: there was nothing to measure."""

    at_ms: int
    values: tuple[float | None, ...]


Stamp = Callable[[int], str]  # an instant as an axis shows it
COLOURS = (1, 2, 3, 4, 5)  # 2 is that of failures


def stacked(
    bars: Sequence[ChartBar],
    *,
    title: str,
    names: Sequence[str],
    zone: tzinfo = UTC,
    stamp: Stamp | None = None,
    colours: Sequence[int] = COLOURS,
) -> Markup:
    """Bars of several parts each. Colours are f1, f2 … of the style sheet; the figures stand in their titles."""
    stamp = stamp or (lambda ms: _clock(ms, zone))
    top = nice_top(max((sum(bar.parts) for bar in bars), default=0))
    step = (WIDTH - _LEFT - _RIGHT) / max(len(bars), 1)
    drawn = []
    for place, bar in enumerate(bars):
        y = float(HEIGHT - _BOTTOM)
        x = _LEFT + place * step
        told = ", ".join(f"{name}: {part:g}" for name, part in zip(names, bar.parts, strict=True))
        pieces = []
        for number, part in zip(colours, bar.parts, strict=False):
            high = part / top * (HEIGHT - _TOP - _BOTTOM)
            y -= high
            if part:
                wide = max(step - 1, 0.6)
                pieces.append(
                    f'<rect class="f{number}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"/>'
                )
        if pieces:
            drawn.append(f"<g><title>{stamp(bar.at_ms)} {escape(told)}</title>{''.join(pieces)}</g>")
    return _framed("".join(drawn), title=title, top=top, unit=_count, times=[bar.at_ms for bar in bars], stamp=stamp)


def spark(values: Sequence[float], *, title: str) -> Markup:
    """Bars without axes, for a cell of a table."""
    top, step = max(values, default=0) or 1, 120 / max(len(values), 1)
    bars = "".join(
        f'<rect class="f1" x="{place * step:.1f}" y="{24 - value / top * 24:.1f}" width="{max(step - 0.4, 0.4):.1f}" '
        f'height="{value / top * 24:.1f}"/>'
        for place, value in enumerate(values)
        if value
    )
    return Markup(  # noqa: S704  figures, and words that are escaped
        f'<svg class="chart spark" viewBox="0 0 120 24" preserveAspectRatio="none" role="img" direction="ltr">'
        f"<title>{escape(title)}</title>{bars}</svg>"
    )


def lines(
    dots: Sequence[Dot],
    *,
    title: str,
    language: str = "en",
    zone: tzinfo = UTC,
    stamp: Stamp | None = None,
    colours: Sequence[int] = COLOURS,
) -> Markup:
    """Several lines of seconds over time, which break where nothing was measured. Classes are l1, l2 …"""
    stamp = stamp or (lambda ms: _clock(ms, zone))
    most = max((value for dot in dots for value in dot.values if value is not None), default=0)
    unit_s = next((size for size in (3600, 60) if most > size), 1)
    top = unit_s * nice_top(most / unit_s)
    step = (WIDTH - _LEFT - _RIGHT) / max(len(dots) - 1, 1)
    drawn = []
    for number in range(len(dots[0].values) if dots else 0):
        path, is_down = [], False
        for place, dot in enumerate(dots):
            value = dot.values[number]
            if value is not None:
                y = HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)
                # A line of no length has round ends: one measurement alone is a dot.
                path.append(
                    f"{'L' if is_down else 'M'}{_LEFT + place * step:.1f} {y:.1f}" + ("" if is_down else "h.01")
                )
            is_down = value is not None
        if path:
            drawn.append(f'<path class="l{colours[number]}" d="{"".join(path)}"/>')
    return _framed(
        "".join(drawn),
        title=title,
        top=top,
        unit=partial(seconds_text, language=language),
        times=[dot.at_ms for dot in dots],
        stamp=stamp,
    )


def nice_top(most: float) -> float:
    """The end of an axis: the next round figure above."""
    if most <= 0:
        return 1.0
    size = 10.0 ** (len(f"{int(most)}") - 1) if most >= 1 else 10.0 ** -_zeros(most)
    return next(step * size for step in (1, 2, 4, 5, 8, 10) if step * size >= most)


def _zeros(value: float) -> int:
    """How many places behind the point the first figure stands."""
    places = 0
    while value < 1 and places < 9:
        value *= 10
        places += 1
    return places


def _framed(
    inner: str, *, title: str, top: float, unit: Callable[[float], str], times: Sequence[int], stamp: Stamp
) -> Markup:
    axis = []
    for tick in range(_TICKS + 1):
        y = HEIGHT - _BOTTOM - tick / _TICKS * (HEIGHT - _TOP - _BOTTOM)
        axis.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if tick % 2 == 0:
            label = unit(top * tick / _TICKS)
            axis.append(f'<text x="{_LEFT - 4}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>')
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")) if times else ():
        at_ms = times[round(share * (len(times) - 1))]
        x = _LEFT + share * (WIDTH - _LEFT - _RIGHT)
        axis.append(f'<text x="{x:.1f}" y="{HEIGHT - 5}" text-anchor="{anchor}">{stamp(at_ms)}</text>')
    return Markup(  # noqa: S704  figures, and the words that were escaped
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" direction="ltr">'
        f"<title>{escape(title)}</title>{''.join(axis)}{inner}</svg>"
    )


def _clock(at_ms: int, zone: tzinfo) -> str:
    return datetime.fromtimestamp(at_ms / 1000, zone).strftime("%H:%M")


def _count(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


# Milliseconds, seconds, minutes, hours: short enough for an axis. Persians write the international signs.
_UNITS = {"ru": ("мс", "с", "мин", "ч"), "uz": ("ms", "s", "daq", "soat")}  # noqa: RUF001  that is how they are written


def seconds_text(value: float, language: str = "en") -> str:
    ms, seconds, minutes, hours = _UNITS.get(language, ("ms", "s", "min", "h"))
    if value >= 3600:
        return f"{value / 3600:.3g} {hours}"
    if value >= 60:
        return f"{value / 60:.3g} {minutes}"
    return f"{value:.3g} {seconds}" if value >= 1 or value == 0 else f"{value * 1000:.3g} {ms}"


if TYPE_CHECKING:
    from peik.web.dashboard.board import Flash, Visitor

_FOLDER = Path(__file__).with_name("templates")


class Renderer:
    def __init__(
        self,
        words: DashboardWords,
        assets: Assets,
        clock: Clock,
        *,
        alerts: "Callable[[Visitor], int]",
        bot_name: Callable[[int], str | None],
    ) -> None:
        """`alerts`: how many are ongoing that concern a visitor. Every page shows it. `bot_name`: its name at Telegram."""
        self.words = words
        self._clock = clock
        self._nav = Nav(frozenset())
        self._alerts = alerts
        self._jinja = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._jinja.globals.update(
            static=assets.url,
            languages=LANGUAGES,
            version=__version__,
            iso=iso,
            ms_of=ms_of,
            zones=ZONES,
            Role=Role,
            pretty=pretty,
            without_secrets=shown_address,
            bubble_of=bubble_of,
            bot_name=bot_name,
        )

    def problem_text(self, language: str, problem: Problem) -> str:
        known = f"problem_{problem.code}"
        return self.words.say(language, known) if known in self.words else said_as(language, problem.detail)

    def open(self, paths: Collection[str]) -> None:
        """Links lead to these pages only."""
        self._nav = Nav(frozenset(paths))

    def render(
        self,
        template: str,
        *,
        request: Request,
        visitor: "Visitor | None",
        language: str = "en",
        theme: str = "auto",
        said: "Flash | None" = None,
        context: Mapping[str, object],
    ) -> str:
        language = language if visitor is None else visitor.language
        now_ms = self._clock.wall_ms()
        path = request.url.path
        zone_name = "UTC" if visitor is None else visitor.zone
        zone = zone_named(zone_name) or UTC

        def say(key: str, **places: object) -> str:
            if "count" in places:
                places["count"] = number_text(places["count"], language)
            return self.words.say(language, key, **places)

        def number(value: object) -> object:
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            return number_text(value, language) if is_whole else value

        def with_query(**changed: object) -> str:
            """This page with some of its query changed; None takes one away."""
            query = {**request.query_params, **changed}
            kept = {name: value for name, value in query.items() if value not in (None, "")}
            return f"{path}?{urlencode(kept)}" if kept else path

        values: dict[str, object] = {
            "t": say,
            "num": number,
            "secs": partial(seconds_text, language=language),
            "knows": self.words.__contains__,
            "explain": lambda text: explained(language, text),
            "sentence": lambda text: _begun(explained(language, text)),
            "said_as": lambda text: said_as(language, text),
            "problem_text": lambda problem: self.problem_text(language, problem),
            "with_query": with_query,
            "query": dict(request.query_params),
            "path": path,
            "visitor": visitor,
            "csrf": "" if visitor is None else masked(visitor.csrf),
            "language": language,
            "direction": "rtl" if language in RTL else "ltr",
            "theme": theme if visitor is None else visitor.theme,
            "nav": () if visitor is None else self._nav.groups(visitor.role, path, is_whole=visitor.bot_ids is None),
            "has_page": self._nav.has,
            "alerts_count": 0 if visitor is None else self._alerts(visitor),
            "age": lambda ms: age_text(ms, now_ms, say),
            "now_ms": now_ms,
            "moment": lambda ms: moment_text(ms, zone, language),
            "zone_name": zone_name,
            "has_jalali": language in JALALI,
            "said": said,
            "problem": None,
            "is_refused": False,
            "page_url": with_query(),
        }
        return self._jinja.get_template(template).render({**values, **context})


def masked(word: str) -> str:
    """The word of a session in other figures each time: what is compressed gives itself away bit by bit to whoever can guess at
    it again and again (BREACH), if it stays the same."""
    plain = bytes.fromhex(word)
    mask = secrets.token_bytes(len(plain))
    return (mask + bytes(one ^ other for one, other in zip(mask, plain, strict=True))).hex()


def unmasked(given: str, *, chars: int) -> str:
    """The word itself, of `chars` figures. One that is not masked, of a page from before, stays as it is."""
    if len(given) != 2 * chars:
        return given
    try:
        both = bytes.fromhex(given)
    except ValueError:
        return given
    half = len(both) // 2
    return bytes(one ^ other for one, other in zip(both[:half], both[half:], strict=True)).hex()


def pretty(value: object) -> str:
    """JSON for people: indented, with letters of all scripts as they are. Text that is no JSON stays as it is."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
