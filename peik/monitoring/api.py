"""REST: how Peik stands, on one page: backlog, throughput, latency, routes, inboxes, alerts, nodes, jobs, accounts; its ways to
Telegram; and whether it is well, for those who ask often."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec

from peik import __version__
from peik.core.units import rfc3339
from peik.errors import BadInput, Unavailable
from peik.monitoring.values import FAMILIES, InboxLine, Ongoing, OverviewView, PartRow, Percentiles, Point
from peik.outbox.answers import LetterCountsAnswer
from peik.settings.values import StoreKind
from peik.web.access import Caller
from peik.web.operations import Id, Moment, operation
from peik.web.parse import TEXT, Param, parse_id, whole_number

if TYPE_CHECKING:
    from peik.archive.api import ArchiveHealth
    from peik.monitoring.figures import Breakdown
    from peik.monitoring.overview import Overview
    from peik.monitoring.pulse import Pulse
    from peik.telegram.routes import Routes, RouteStatus

A = TypeVar("A", bound=msgspec.Struct)

# ---- the overview ----


class FiguresAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in one stretch of time, on all nodes."""

    at: Annotated[Moment, msgspec.Meta(description="When this stretch of time began.")]
    seconds: int
    accepted: int
    delivered: int
    failed: int
    uncertain: Annotated[int, msgspec.Meta(description="Tries that may have arrived.")]
    retried: int
    held: Annotated[int, msgspec.Meta(description="How often Telegram asked to wait (429).")]
    held_s: float
    updates: int
    jobs_done: int
    jobs_failed: int
    end_to_end: Annotated[Percentiles | None, msgspec.Meta(description="From accepted to delivered.")]
    tries: Annotated[Percentiles | None, msgspec.Meta(description="One call of Telegram.")]


class OverviewBotAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    username: str | None
    is_account: bool
    paused: str | None
    letters: LetterCountsAnswer
    oldest_waiting_at: Moment | None


class OverviewRouteAnswer(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    name: str
    kind: str
    state: str
    is_in_use: bool
    why: str | None
    since: Moment
    probe_at: Moment | None


class OverviewHostAnswer(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    name: str
    state: str
    why: str | None
    since: Moment | None
    retry_at: Moment | None


class OverviewConsumerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    open: int
    handed: int
    delayed: int
    failed: int
    oldest_open_at: Moment | None
    seen_at: Moment | None


class OverviewInboxAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    source: str
    seen_at: Moment | None
    received_at: Moment | None
    expires_at: Annotated[
        Moment | None, msgspec.Meta(description="When Telegram drops the oldest update that may wait there.")
    ]
    expired: int
    consumers: list[OverviewConsumerAnswer]


class OverviewAlertAnswer(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    name: str
    bot_id: Id | None
    text: str
    since: Moment
    last: Moment
    count: int


class OverviewNodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str | None
    address: str | None
    started_at: Moment
    seen_at: Moment
    is_draining: bool
    is_this: bool
    bots: int


class OverviewJobsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    waiting: int
    delayed: int
    active: int
    completed: int
    failed: int
    cancelled: int


class OverviewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    at: Moment
    node: Annotated[str, msgspec.Meta(description="The node that answers.")]
    letters: LetterCountsAnswer
    oldest_waiting_at: Moment | None
    bots: list[OverviewBotAnswer]
    now: FiguresAnswer
    hour: FiguresAnswer
    day: FiguresAnswer
    last_hour: Annotated[
        list[FiguresAnswer],
        msgspec.Meta(description="A minute each, the oldest first; the last one is not over."),
    ]
    last_day: Annotated[list[FiguresAnswer], msgspec.Meta(description="A quarter of an hour each.")]
    routes: list[OverviewRouteAnswer]
    hosts: Annotated[list[OverviewHostAnswer], msgspec.Meta(description="Outside hosts of jobs that are not well.")]
    inbox: list[OverviewInboxAnswer]
    alerts: Annotated[list[OverviewAlertAnswer], msgspec.Meta(description="Troubles that go on, the newest first.")]
    nodes: list[OverviewNodeAnswer]
    jobs: Annotated[dict[str, OverviewJobsAnswer], msgspec.Meta(description="By kind.")]
    sessions: dict[str, int] | None
    session_health: dict[str, int] | None
    missing: Annotated[
        list[str], msgspec.Meta(description="What the store did not tell just now: it is shown as it was before.")
    ]

    @classmethod
    def of(cls, view: OverviewView) -> "OverviewAnswer":
        return cls(
            at=rfc3339(view.at_ms),
            node=view.node,
            letters=LetterCountsAnswer.of(view.letters),
            oldest_waiting_at=rfc3339(view.oldest_waiting_ms),
            bots=[
                OverviewBotAnswer(
                    bot_id=str(line.bot_id),
                    username=line.username,
                    is_account=line.is_account,
                    paused=line.paused,
                    letters=LetterCountsAnswer.of(line.letters),
                    oldest_waiting_at=rfc3339(line.oldest_waiting_ms),
                )
                for line in view.bots
            ],
            now=_figures(view.now),
            hour=_figures(view.hour),
            day=_figures(view.day),
            last_hour=[_figures(point) for point in view.last_hour],
            last_day=[_figures(point) for point in view.last_day],
            routes=_shown(OverviewRouteAnswer, view.routes),
            hosts=_shown(OverviewHostAnswer, view.hosts),
            inbox=[_inbox(line) for line in view.inbox],
            alerts=[_alert(one) for one in view.alerts],
            nodes=_shown(OverviewNodeAnswer, view.nodes),
            jobs={kind: OverviewJobsAnswer(**msgspec.structs.asdict(tally)) for kind, tally in view.jobs.items()},
            sessions=view.sessions,
            session_health=view.session_health,
            missing=list(view.missing),
        )


def _figures(point: Point) -> FiguresAnswer:
    return FiguresAnswer(**_times(point))


def _inbox(line: InboxLine) -> OverviewInboxAnswer:
    consumers = _shown(OverviewConsumerAnswer, line.consumers)
    return OverviewInboxAnswer(**_times(line) | {"bot_id": str(line.bot_id), "consumers": consumers})


def _alert(one: Ongoing) -> OverviewAlertAnswer:
    return OverviewAlertAnswer(**_times(one) | {"bot_id": str(one.bot_id) if one.bot_id else None})


def _shown(answer: type[A], lines: Iterable[msgspec.Struct]) -> list[A]:
    return [answer(**_times(line)) for line in lines]


def _times(line: msgspec.Struct) -> dict[str, Any]:
    """Instants as all of REST shows them: `since_ms` is `since`, and RFC 3339."""
    return {
        name.removesuffix("_ms"): rfc3339(value) if name.endswith("_ms") and isinstance(value, int | None) else value
        for name, value in msgspec.structs.asdict(line).items()
    }


def _one_of(names: Iterable[str], text: str) -> Param:
    known = tuple(names)

    def read(word: str, name: str) -> str:
        if word not in known:
            raise BadInput(code=f"bad_{name}", detail=f"{name} is one of {', '.join(known)}.")
        return word

    return Param(read, {"type": "string", "enum": list(known)}, text)


def _rows_max(word: str, name: str) -> int:
    number = whole_number(word, name)
    if not 1 <= number <= _ROWS_MAX:
        raise BadInput(code="bad_limit", detail=f"limit is between 1 and {_ROWS_MAX}.")
    return number


_ROWS_MAX = 500
_SPANS = "3h in steps of 5 minutes, day of half an hour, week of 3 hours, month (30 days) of 12 hours."


class FiguresQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: Annotated[str, _one_of(FAMILIES, "What is told apart; kind is that of jobs.")] = "bot"
    span: Annotated[str, _one_of(("3h", "day", "week", "month"), _SPANS)] = "day"
    name: Annotated[str | None, TEXT.saying("Only this bot (its number), method or kind.")] = None
    limit: Annotated[
        int, Param(_rows_max, {"type": "integer", "minimum": 1, "maximum": _ROWS_MAX, "default": 20}, "The busiest.")
    ] = 20


class FigureStepAnswer(msgspec.Struct, frozen=True, kw_only=True):
    at: Annotated[Moment, msgspec.Meta(description="When this stretch of time began.")]
    seconds: int
    done: Annotated[int, msgspec.Meta(description="Letters that were delivered, or jobs that completed.")]
    failed: int
    uncertain: Annotated[int, msgspec.Meta(description="Tries that may have arrived.")]
    retried: Annotated[int, msgspec.Meta(description="Tries, or runs, that were put off.")]
    held: Annotated[int, msgspec.Meta(description="How often Telegram asked to wait (429).")]
    updates: Annotated[int, msgspec.Meta(description="That a bot received.")]
    took: Annotated[
        Percentiles | None, msgspec.Meta(description="From accepted to delivered; of jobs, how long a run lasted.")
    ]


class FigureRowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(description="`other`: what is beyond the busiest of a stretch, together.")]
    total: FigureStepAnswer
    steps: Annotated[list[FigureStepAnswer], msgspec.Meta(description="The oldest first; the last one is not over.")]


class FiguresByAnswer(msgspec.Struct, frozen=True, kw_only=True):
    by: str
    span: str
    rows: Annotated[list[FigureRowAnswer], msgspec.Meta(description="The busiest first.")]


def _is_bot_of(caller: Caller, name: str) -> bool:
    return name.isdecimal() and caller.key.serves(int(name))


def _row(row: PartRow) -> FigureRowAnswer:
    (total,) = _shown(FigureStepAnswer, [row.total])
    return FigureRowAnswer(name=row.name, total=total, steps=_shown(FigureStepAnswer, row.points))


class OverviewApi:
    def __init__(self, overview: "Overview", breakdown: "Breakdown") -> None:
        self._overview = overview
        self._breakdown = breakdown

    @operation("GET", "/v1/figures", name="getFigures", tag="health", scope="read", problems=(422, 503))
    async def get_figures(self, caller: Caller, query: FiguresQuery) -> FiguresByAnswer:
        """What bots, methods or kinds of jobs did over time, on all nodes, for up to 30 days."""
        if query.by != "bot":
            caller.must_serve_all()
        seen = await self._breakdown.seen(query.span)
        if query.name is not None:
            if query.by == "bot":
                caller.must_serve(parse_id(query.name, "name"))
            rows = [seen.row(query.by, query.name)]
        else:
            rows = seen.rows(query.by, lambda name: caller.key.bot_ids is None or _is_bot_of(caller, name))
        return FiguresByAnswer(by=query.by, span=query.span, rows=[_row(row) for row in rows[: query.limit]])

    @operation("GET", "/v1/overview", name="getOverview", tag="health", scope="read")
    async def get_overview(self, caller: Caller) -> OverviewAnswer:
        """How everything stands now, and what happened in the last hour and the last day."""
        from peik.monitoring.overview import of_bots

        view = await self._overview.now()
        return OverviewAnswer.of(view if caller.key.bot_ids is None else of_bots(view, caller.key.serves))


# ---- ways to Telegram, and whether all is well ----


class RouteAnswer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    state: Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["closed", "open"]})]
    in_use: bool
    failures: int
    why: str | None
    since: Moment
    probe_at: Moment | None

    @classmethod
    def of(cls, status: "RouteStatus", *, is_in_use: bool) -> "RouteAnswer":
        return cls(
            name=status.name,
            kind=status.kind,
            state=status.state,
            in_use=is_in_use,
            failures=status.failures,
            why=status.why or None,
            since=rfc3339(status.since_ms),
            probe_at=rfc3339(status.probe_at_ms),
        )


class RoutesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    routes: list[RouteAnswer]


class StoreHealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: Annotated[str, msgspec.Meta(description="ok, or why calls cannot be stored, as a code.")]
    why: str | None
    kind: StoreKind
    weak: Annotated[list[str], msgspec.Meta(description="What of its settings breaks the promise.")]


class RouteHealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: str
    in_use: bool


class TelegramHealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["ok", "unreachable"]
    route: str
    why: str
    routes: list[RouteHealthAnswer]


class AccessHealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Only for a key that may see everything: it would tell strangers what to try."""

    status: str
    weak: list[str]


class PartHealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    kind: str
    why: str | None


class ProcessesHealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: Annotated[Literal["ok", "starting"], msgspec.Meta(description="starting: fewer serve than should.")]
    processes: int
    serving: int
    deaths: Annotated[
        int, msgspec.Meta(description="How often one has ended by itself since `peik serve` was started.")
    ]


class HealthPartsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    store: StoreHealthAnswer
    telegram: TelegramHealthAnswer
    access: AccessHealthAnswer | msgspec.UnsetType = msgspec.UNSET
    archive: Annotated[PartHealthAnswer | msgspec.UnsetType, msgspec.Meta(description="Where there are accounts.")] = (
        msgspec.UNSET
    )
    accounts: Annotated[
        PartHealthAnswer | msgspec.UnsetType,
        msgspec.Meta(description="Those that this node runs, where there are some."),
    ] = msgspec.UNSET
    cache: PartHealthAnswer | msgspec.UnsetType = msgspec.UNSET
    processes: Annotated[
        ProcessesHealthAnswer | msgspec.UnsetType, msgspec.Meta(description="Where PEIK_PROCESSES is above 1.")
    ] = msgspec.UNSET


class HealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["ok", "failing"]
    version: str
    parts: HealthPartsAnswer


class ReadyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    version: str


class HealthApi:
    def __init__(
        self,
        routes: "Routes",
        pulse: "Pulse",
        *,
        store_kind: StoreKind,
        archive: "ArchiveHealth | None",
        weakness: str | None,
    ) -> None:
        """`weakness`: of the admin key, in words."""
        self._routes = routes
        self._pulse = pulse
        self._store_kind = store_kind
        self._archive = archive
        self._weakness = weakness

    @operation("GET", "/v1/routes", name="listRoutes", tag="routes", scope="read", is_for_all=True)
    async def list_routes(self, caller: Caller) -> RoutesAnswer:
        """Every way to Telegram in the order of the settings: how it stands, and whether letters go by it."""
        statuses = self._routes.statuses()
        return RoutesAnswer(routes=[RouteAnswer.of(status, is_in_use=is_in_use) for status, is_in_use in statuses])

    @operation("GET", "/health", name="getHealth", tag="health", scope=None)
    async def get_health(self, caller: Caller | None) -> HealthAnswer:
        """200 while Peik is alive, whether or not Telegram can be reached; `status` is ok while calls can be stored."""
        trouble = await self._pulse.trouble()
        store = StoreHealthAnswer(
            status="ok" if trouble is None else trouble.code,
            why=None if trouble is None else trouble.detail,
            kind=self._store_kind,
            weak=list(await self._pulse.weaknesses()),
        )
        # Bots need no archive: `status` is about calls.
        beside = {} if self._archive is None else await self._archive.parts({"status": store.status, "why": store.why})
        parts = HealthPartsAnswer(
            store=store,
            telegram=self._telegram(),
            access=self._access() if caller is not None and caller.key.bot_ids is None else msgspec.UNSET,
            processes=self._processes(),
            **{name: msgspec.convert(part, PartHealthAnswer) for name, part in beside.items()},
        )
        return HealthAnswer(status="ok" if trouble is None else "failing", version=__version__, parts=parts)

    def _telegram(self) -> TelegramHealthAnswer:
        routes = self._routes
        return TelegramHealthAnswer(
            status="unreachable" if routes.is_open else "ok",
            route=routes.in_use.name,
            why=routes.in_use.status().why,
            routes=[
                RouteHealthAnswer(name=status.name, state=status.state, in_use=is_in_use)
                for status, is_in_use in routes.statuses()
            ],
        )

    def _processes(self) -> ProcessesHealthAnswer | msgspec.UnsetType:
        state = self._pulse.processes()
        if state is None:
            return msgspec.UNSET
        return ProcessesHealthAnswer(
            status="ok" if state.serving == state.processes else "starting",
            processes=state.processes,
            serving=state.serving,
            deaths=state.deaths,
        )

    def _access(self) -> AccessHealthAnswer:
        weak = [] if self._weakness is None else [f"PEIK_ADMIN_KEY can be guessed: {self._weakness}"]
        return AccessHealthAnswer(status="ok", weak=weak)

    @operation("GET", "/ready", name="getReady", tag="health", scope=None, problems=(503,))
    async def get_ready(self, caller: Caller | None) -> ReadyAnswer:
        """200 while a balancer may send requests here: the store answers, and this node does not drain."""
        trouble = await self._pulse.trouble()
        if trouble is not None:
            raise trouble
        if await self._pulse.is_draining():
            raise Unavailable(code="draining", detail="This node lets its bots go. Ask another one, or resume it.")
        return ReadyAnswer(status="ready", version=__version__)
