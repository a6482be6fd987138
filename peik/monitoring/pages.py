"""The first page: how Peik stands, at one look. What it shows is counted elsewhere; here it is drawn."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC
from functools import cache, partial
from pathlib import Path

import msgspec
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from peik.admin.model import Role
from peik.alerts.rules import BY_NAME
from peik.core.nodes import CHORES
from peik.errors import NotFound, StartError, StoreUnavailable
from peik.monitoring.figures import PARTS_MAX, SPANS, Breakdown
from peik.monitoring.nodes import nodes_of
from peik.monitoring.overview import of_bots
from peik.monitoring.values import FAMILIES, BotLine, OverviewView, PartRow, Percentiles, Point
from peik.outbox.store import Cause
from peik.settings.config import Config, GivenSetting, find, shown_address
from peik.settings.table import SETTINGS, Setting
from peik.web import dashboard
from peik.web.dashboard.board import Board, Page, Visitor, must_see, must_see_all
from peik.web.dashboard.render import COLOURS, ChartBar, Dot, day_text, lines, spark, stacked, zone_named

CAUSES_MAX = 5
CAUSES_FRESH_S = 5.0  # so long they are kept: for them every dead letter of a day is looked at
_CAUSES_KEPT_MAX = 100  # keys that see different bots
BOTS_MAX = 20  # the busiest; the page of bots has them all
_DAY_MS = 86_400_000

Now = Callable[[], Awaitable[OverviewView]]


class OverviewPages:
    def __init__(self, board: Board, now: Now) -> None:
        self._board = board
        self._now = now
        self._kept: dict[frozenset[int] | None, tuple[float, Sequence[Cause]]] = {}

    def table(self) -> tuple[Page, ...]:
        return (
            ("GET", "/admin", self.overview, Role.VIEWER, ""),
            ("GET", "/admin/queues", self.queues, Role.VIEWER, ""),
        )

    async def overview(self, request: Request, visitor: Visitor) -> Response:
        view = await self._now()
        if visitor.bot_ids is not None:
            view = of_bots(view, visitor.key.serves)
        is_day = request.query_params.get("span") == "day"
        points = view.last_day if is_day else view.last_hour
        return self._board.page(
            request,
            visitor,
            "overview.html",
            view=view,
            rules=BY_NAME,
            bots=_busiest(view),
            is_day=is_day,
            figures=view.day if is_day else view.hour,
            per_second=view.now.delivered / view.now.seconds if view.now.seconds else 0.0,
            is_whole=visitor.bot_ids is None,
            causes=await self._causes(visitor, view.at_ms),
            throughput=self._throughput(visitor, points),
            latency=self._latency(visitor, points),
        )

    async def queues(self, request: Request, visitor: Visitor) -> Response:
        """As other queues call their board: the letters by state."""
        return RedirectResponse("/admin/letters", 303)

    async def _causes(self, visitor: Visitor, now_ms: int) -> Sequence[Cause]:
        mono, bot_ids = self._board.peik.clock.mono(), visitor.bot_ids
        until, causes = self._kept.get(bot_ids, (mono, ()))
        if mono < until:
            return causes
        try:
            causes = await self._board.peik.outbox.service.causes(
                bot_ids=bot_ids, since_ms=now_ms - _DAY_MS, limit=CAUSES_MAX
            )
        except StoreUnavailable:
            return causes  # as they were: the page is needed most when the store fails
        if len(self._kept) >= _CAUSES_KEPT_MAX:
            self._kept.clear()
        self._kept[bot_ids] = (mono + CAUSES_FRESH_S, causes)
        return causes

    def _throughput(self, visitor: Visitor, points: Sequence[Point]) -> Markup:
        return stacked(
            [ChartBar(at_ms=point.at_ms, parts=(point.delivered, point.failed)) for point in points],
            title=self._board.say(visitor, "overview_throughput"),
            names=(self._board.say(visitor, "overview_delivered"), self._board.say(visitor, "overview_failed")),
            zone=zone_named(visitor.zone) or UTC,
        )

    def _latency(self, visitor: Visitor, points: Sequence[Point]) -> Markup:
        dots = [Dot(at_ms=point.at_ms, values=_percentiles(point)) for point in points]
        title, zone = self._board.say(visitor, "overview_latency"), zone_named(visitor.zone) or UTC
        return lines(dots, title=title, language=visitor.language, zone=zone)


def _percentiles(point: Point) -> tuple[float | None, ...]:
    return _shares(point.end_to_end)


def _busiest(view: OverviewView) -> list[BotLine]:
    def waits(bot: BotLine) -> int:
        return bot.letters.waiting + bot.letters.delayed + bot.letters.active

    return sorted(view.bots, key=waits, reverse=True)[:BOTS_MAX]


# Charts by bot, method and kind of jobs.


CHART_ROWS_MAX = 50
CHART_NAMES = 3  # that are drawn beside each other; the others together
CHART_COLOURS = (1, 3, 4, 5)  # nobody's is that of failures


class ChartPages:
    def __init__(self, board: Board, breakdown: Breakdown) -> None:
        self._board = board
        self._breakdown = breakdown

    def table(self) -> tuple[Page, ...]:
        return (("GET", "/admin/charts", self.show, Role.VIEWER, ""),)

    async def show(self, request: Request, visitor: Visitor) -> Response:
        query = request.query_params
        families = FAMILIES if visitor.bot_ids is None else ("bot",)  # a method is many bots'
        by, span = query.get("by", "bot"), query.get("span", "day")
        by, span = by if by in families else "bot", span if span in SPANS else "day"
        name = query.get("name", "")[:200]
        if by == "bot" and name.isdecimal():
            must_see(visitor, int(name))
        seen = await self._breakdown.seen(span)
        rows = seen.rows(by, lambda one: visitor.bot_ids is None or (one.isdecimal() and visitor.key.serves(int(one))))
        one = seen.row(by, name) if name else None
        ended, took = self._of_one(visitor, one, by, span) if one else self._of_all(visitor, rows, by, span)
        return self._board.page(
            request,
            visitor,
            "charts.html",
            families=families,
            by=by,
            span=span,
            spans=tuple(SPANS),
            one=one,
            rows=rows[:CHART_ROWS_MAX],
            left_out=max(0, len(rows) - CHART_ROWS_MAX),
            shown=list(zip(CHART_COLOURS, rows[:CHART_NAMES], strict=False)),
            others=CHART_COLOURS[-1],
            has_others=len(rows) > CHART_NAMES,
            ended=ended,
            took=took,
            spark=spark,
            most=PARTS_MAX,
        )

    def _of_one(self, visitor: Visitor, row: PartRow, by: str, span: str) -> tuple[Markup, Markup]:
        say = partial(self._board.say, visitor)
        names = [say("charts_done" if by == "kind" else "overview_delivered"), say("overview_failed")]
        bars = [ChartBar(at_ms=one.at_ms, parts=(one.done, one.failed)) for one in row.points]
        dots = [Dot(at_ms=one.at_ms, values=_shares(one.took)) for one in row.points]
        return self._drawn(visitor, bars, dots, names=names, by=by, span=span, colours=COLOURS)

    def _of_all(self, visitor: Visitor, rows: Sequence[PartRow], by: str, span: str) -> tuple[Markup, Markup]:
        shown, others = rows[:CHART_NAMES], rows[CHART_NAMES:]
        names = [self._name(row.name, by) for row in shown]
        if others:
            names.append(self._board.say(visitor, "charts_others"))
        bars, dots = [], []
        for place in range(SPANS[span].steps if rows else 0):
            points = [row.points[place] for row in shown]
            rest = [sum(row.points[place].done for row in others)] if others else []
            bars.append(ChartBar(at_ms=points[0].at_ms, parts=(*(one.done for one in points), *rest)))
            values = tuple(None if one.took is None else one.took.p95_s for one in points)
            dots.append(Dot(at_ms=points[0].at_ms, values=values))
        return self._drawn(visitor, bars, dots, names=names, by=by, span=span, colours=CHART_COLOURS)

    def _drawn(
        self,
        visitor: Visitor,
        bars: list[ChartBar],
        dots: list[Dot],
        *,
        names: Sequence[str],
        by: str,
        span: str,
        colours: Sequence[int],
    ) -> tuple[Markup, Markup]:
        zone = zone_named(visitor.zone) or UTC
        is_long = SPANS[span].step_s * SPANS[span].steps > _DAY_MS // 1000
        stamp = partial(day_text, zone=zone, language=visitor.language) if is_long else None
        is_kind = by == "kind"
        first = self._board.say(visitor, "charts_runs" if is_kind else "overview_throughput")
        second = self._board.say(visitor, "charts_run_time" if is_kind else "overview_latency")
        return (
            stacked(bars, title=first, names=names, zone=zone, stamp=stamp, colours=colours),
            lines(dots, title=second, language=visitor.language, zone=zone, stamp=stamp, colours=colours),
        )

    def _name(self, name: str, by: str) -> str:
        bot = self._board.peik.outbox.service.known(int(name)) if by == "bot" and name.isdecimal() else None
        return f"@{bot.username}" if bot is not None and bot.username else name


def _shares(took: Percentiles | None) -> tuple[float | None, ...]:
    return (None, None, None) if took is None else msgspec.structs.astuple(took)


# Pages: nodes. Who serves which bots, and asking one to let its bots go.


class NodePages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._store = board.peik.store.nodes
        self._nodes = nodes_of(board.peik)

    def table(self) -> tuple[Page, ...]:
        return (
            ("GET", "/admin/nodes", self.show, Role.VIEWER, ""),
            ("POST", "/admin/nodes/{name}/drain", self.drain, Role.ADMIN, "nodes.drain"),
            ("POST", "/admin/nodes/{name}/resume", self.resume, Role.ADMIN, "nodes.resume"),
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        return self._board.page(
            request,
            visitor,
            "nodes.html",
            nodes=await self._nodes.known(),
            own=self._store.node,
            chores=CHORES,
            lease_s=self._store.lease_s,
            store=self._board.peik.config.store_kind,
        )

    async def drain(self, request: Request, visitor: Visitor) -> Response:
        return await self._drain(request, visitor, is_draining=True)

    async def resume(self, request: Request, visitor: Visitor) -> Response:
        return await self._drain(request, visitor, is_draining=False)

    async def _drain(self, request: Request, visitor: Visitor, *, is_draining: bool) -> Response:
        must_see_all(visitor)
        node = await self._nodes.drain(request.path_params["name"], is_draining=is_draining)
        said = "nodes_draining" if is_draining else "nodes_resumed"
        return self._board.back(request, visitor, "/admin/nodes", said=said, name=node.name)


# The settings in force: each with its value, where it was found and what it is for. Secrets are only said to be
# there.


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    variable: str
    value: str | None  # None: not set
    is_secret: bool
    is_default: bool
    source: str | None  # None: a flag, or a file that has been changed since the start
    help: str


# The runbook, by the alert that leads to it: docs/runbook.md, which docs/generate.py brings here, and its translations.


_CODE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)]*)\)")
_HELP = Path(dashboard.__file__).with_name("help")


class HelpSection(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one trouble: the name of the alert, and paragraphs, or lists of points."""

    name: str
    paragraphs: tuple[Markup, ...]
    points: tuple[Markup, ...]


@cache
def runbook(language: str) -> Mapping[str, HelpSection]:
    """By the name of the alert, in the order of the page."""
    text = (_HELP / f"runbook.{language}.md").read_text(encoding="utf-8")
    found = (_section(part) for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:])
    return {section.name: section for section in found}


def _section(part: str) -> HelpSection:
    name, _, body = re.split(r"^## ", part, flags=re.MULTILINE)[0].partition("\n")
    told, *points = re.split(r"^- ", body.strip(), flags=re.MULTILINE)
    return HelpSection(
        name=name.strip(),
        paragraphs=tuple(_marked_up(one) for one in told.split("\n\n") if one.strip()),
        points=tuple(map(_marked_up, points)),
    )


def _marked_up(text: str) -> Markup:
    """The few marks that the runbook has: code, bold, and links, of which those within it lead somewhere here."""
    made, after = Markup(), 0
    text = " ".join(text.split())
    for mark in _CODE.finditer(text):
        made += escape(text[after : mark.start()])
        after = mark.end()
        code, bold, link, target = mark.groups()
        if code:
            made += Markup('<code dir="ltr">{}</code>').format(code)
        elif bold:
            made += Markup("<strong>{}</strong>").format(bold)
        elif target.startswith("#"):
            made += Markup('<a href="/admin/help/{}">{}</a>').format(target[1:], link)
        else:
            made += escape(link)
    return made + escape(text[after:])


class HelpPages:
    def __init__(self, board: Board) -> None:
        self._board = board

    def table(self) -> tuple[Page, ...]:
        return (
            ("GET", "/admin/help", self.show, Role.VIEWER, ""),
            ("GET", "/admin/help/{name}", self.one, Role.VIEWER, ""),
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        return self._board.page(request, visitor, "help.html", sections=list(runbook(visitor.language).values()))

    async def one(self, request: Request, visitor: Visitor) -> Response:
        name = request.path_params["name"]
        section = runbook(visitor.language).get(name) or runbook("en").get(name)
        if section is None:
            raise NotFound(code="no_page", detail="There is no such page.")
        ongoing = [one for one in self._board.peik.watch.alerts.ongoing() if one.name == name]
        seen = [one for one in ongoing if visitor.bot_ids is None or visitor.key.serves(one.bot_id)]
        return self._board.page(
            request, visitor, "help_one.html", section=section, rule=BY_NAME.get(name), ongoing=seen
        )


class SettingsPages:
    def __init__(self, board: Board) -> None:
        self._board = board

    def table(self) -> tuple[Page, ...]:
        return (("GET", "/admin/settings", self.settings, Role.ADMIN, ""),)

    async def settings(self, request: Request, visitor: Visitor) -> Response:
        visitor.caller.must_serve_all()
        found = _found()
        groups: dict[str, list[Shown]] = {}
        for setting in SETTINGS:
            row = shown(setting, self._board.peik.config, found.get(setting.name))
            groups.setdefault(setting.group, []).append(row)
        return self._board.page(request, visitor, "settings.html", groups=groups)


def _found() -> Mapping[str, GivenSetting]:
    """As the settings are written now. They were right when Peik started; what is wrong by now is simply not found."""
    try:
        return find()
    except (StartError, OSError, ValueError):
        return {}


def shown(setting: Setting, config: Config, given: GivenSetting | None) -> Shown:
    """One row. What is in force is shown as it was written, if that is what is written there now."""
    value = getattr(config, setting.name)
    is_as_written = given is not None and _parsed(setting, given.text) == value
    return Shown(
        variable=setting.variable,
        value=_text(setting, value, given.text if given is not None and is_as_written else None),
        is_secret=setting.is_secret,
        is_default=_parsed(setting, setting.default) == value,
        source=given.source if given is not None and is_as_written else None,
        help=setting.help,
    )


def _parsed(setting: Setting, text: str | None) -> object:
    try:
        return None if text is None else setting.parse(text)
    except ValueError:
        return ValueError  # which no setting is


def _text(setting: Setting, value: object, written: str | None) -> str | None:
    if value is None or value == "" or value == ():
        return None
    if setting.name == "routes":
        return ", ".join(route.name for route in value) if isinstance(value, tuple) else None
    if setting.is_secret:
        return ""
    if setting.has_secret:
        return shown_address(str(value))
    if written is not None:
        return written
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)
