"""The first page: how Peik stands, at one look. What it shows is counted elsewhere; here it is drawn."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from peik.core.role import Role
from peik.doors.dashboard.board import Board, Page, Visitor
from peik.doors.dashboard.charts import Bar, Dot, lines, stacked
from peik.errors import StoreUnavailable
from peik.ops.alert_rules import todo_of
from peik.ops.overview import of_bots
from peik.ops.overview_values import BotLine, OverviewView, Point
from peik.ports import Cause

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
            view = of_bots(view, visitor.sees)
        is_day = request.query_params.get("span") == "day"
        points = view.last_day if is_day else view.last_hour
        return self._board.page(
            request,
            visitor,
            "overview.html",
            view=view,
            todo=todo_of,
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
            causes = await self._board.peik.desk.causes(bot_ids=bot_ids, since_ms=now_ms - _DAY_MS, limit=CAUSES_MAX)
        except StoreUnavailable:
            return causes  # as they were: the page is needed most when the store fails
        if len(self._kept) >= _CAUSES_KEPT_MAX:
            self._kept.clear()
        self._kept[bot_ids] = (mono + CAUSES_FRESH_S, causes)
        return causes

    def _throughput(self, visitor: Visitor, points: Sequence[Point]) -> Markup:
        return stacked(
            [Bar(at_ms=point.at_ms, parts=(point.delivered, point.failed)) for point in points],
            title=self._board.say(visitor, "overview_throughput"),
            names=(self._board.say(visitor, "overview_delivered"), self._board.say(visitor, "overview_failed")),
        )

    def _latency(self, visitor: Visitor, points: Sequence[Point]) -> Markup:
        dots = [Dot(at_ms=point.at_ms, values=_percentiles(point)) for point in points]
        return lines(dots, title=self._board.say(visitor, "overview_latency"))


def _percentiles(point: Point) -> tuple[float | None, ...]:
    return (None, None, None) if point.end_to_end is None else msgspec.structs.astuple(point.end_to_end)


def _busiest(view: OverviewView) -> list[BotLine]:
    def waits(bot: BotLine) -> int:
        return bot.letters.waiting + bot.letters.delayed + bot.letters.active

    return sorted(view.bots, key=waits, reverse=True)[:BOTS_MAX]
