"""How Peik stands, in one value, for everybody who wants to see it: it asks, keeps the answers for a moment, and never fails."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from peik.accounts.registry import health_of
from peik.alerts.service import AlertService
from peik.archive.store import SessionFilter
from peik.clock import Clock
from peik.core.arrival import expires_at_ms
from peik.core.nodes import CHORES, NodeRecord
from peik.errors import Unavailable
from peik.inbox.service import InboxService
from peik.inbox.store import InboxState, InboxTally
from peik.jobs.hosts import Hosts, HostState, HostView
from peik.jobs.service import JobService
from peik.jobs.store import JobTally
from peik.monitoring.figures import Figures
from peik.monitoring.pulse import NodeStanding, NodeStandings
from peik.monitoring.values import (
    BotLine,
    ConsumerLine,
    HostLine,
    InboxLine,
    NodeLine,
    OverviewView,
    Point,
    RouteLine,
)
from peik.outbox.leases import Leases
from peik.outbox.service import OutboxService
from peik.outbox.store import BotRecord, Tally
from peik.storage.open import AnyStore
from peik.telegram.routes import Routes

SessionCounts = tuple[Mapping[str, int], Mapping[str, int]]  # by state, and by grade of health

if TYPE_CHECKING:
    from peik.accounts.service import AccountService

# One part of the overview that somebody else knows: asked seldom enough that asking costs next to nothing.


ANSWER_S = 5.0
REST = 20  # times as long as the last answer took: asking takes a twentieth of a reader's time, at most

T = TypeVar("T")


class OverviewPart(Generic[T]):
    """What was answered last, for `fresh_s` at least. Not safe for two at once: anyone who has parts asks them in turn."""

    def __init__(
        self, name: str, ask: Callable[[], Awaitable[T]], empty: T, *, clock: Clock, fresh_s: float = 1.0
    ) -> None:
        self.name = name
        self.value = empty
        self.is_missing = True
        self._ask = ask
        self._clock = clock
        self._fresh_s = fresh_s
        self._ask_at = float("-inf")

    async def look(self) -> T:
        """The value. If it cannot be had now it is as it was before, and `is_missing`."""
        began_at = self._clock.mono()
        if began_at >= self._ask_at:
            try:
                async with asyncio.timeout(ANSWER_S):
                    self.value = await self._ask()
            except (Unavailable, TimeoutError):
                self.is_missing = True
            else:
                self.is_missing = False
            now = self._clock.mono()
            self._ask_at = now + max(self._fresh_s, (now - began_at) * REST)
        return self.value


FRESH_S = 1.0
INBOX_FRESH_S = 5.0
HOUR_STEP_S = 60
DAY_STEP_S = 900
SESSIONS_PAGE = 500
ALERT_CHARS_MAX = 1000


class OverviewAsked:
    """Whom the overview asks. What is awaited may raise Unavailable."""

    def __init__(
        self,
        *,
        store: AnyStore,
        clock: Clock,
        service: OutboxService,
        inbox: InboxService,
        routes: Routes,
        leases: Leases,
        alerts: AlertService,
        jobs: JobService,
        hosts: Hosts,
        sessions: "AccountService | None",
    ) -> None:
        self._store = store
        self._clock = clock
        self._service = service
        self._inbox = inbox
        self._routes = routes
        self._leases = leases
        self._alerts = alerts
        self._jobs = jobs
        self._hosts = hosts
        self._sessions = sessions

    # ---- what this node knows by itself ----

    def bots(self) -> Sequence[BotRecord]:
        return self._service.bots()

    def is_whole(self) -> bool:
        """Whether this node acts for all bots there are."""
        return self._leases.is_whole

    def standing(self) -> NodeStanding:
        """What only this node knows."""
        node, at_ms = self._store.nodes.node, self._clock.wall_ms()
        routes = [
            RouteLine(
                node=node,
                name=status.name,
                kind=str(status.kind),
                state=str(status.state),
                is_in_use=is_in_use,
                why=status.why or None,
                since_ms=status.since_ms,
                probe_at_ms=status.probe_at_ms,
            )
            for status, is_in_use in self._routes.statuses()
        ]
        unwell = [host for host in self._hosts.all() if host.state is not HostState.CLOSED]
        return NodeStanding(
            node=node,
            routes=tuple(routes),
            hosts=tuple(_host_line(host, node, at_ms) for host in unwell),
            alerts=tuple(self._alerts.ongoing()),
        )

    # ---- what the store knows ----

    async def tallies(self) -> Mapping[int, Tally]:
        return await self._service.tallies()

    async def oldest_waiting(self) -> Mapping[int, int]:
        return await self._service.oldest_waiting()

    async def inbox_tallies(self) -> Sequence[InboxTally]:
        return await self._inbox.tallies()

    async def inbox_states(self) -> Mapping[int, InboxState]:
        states = {}
        for bot in self._service.bots():
            if not bot.token.is_account:
                state = await self._store.inbox.inbox(bot.bot_id)
                if state is not None:
                    states[bot.bot_id] = state
        return states

    async def nodes(self) -> Sequence[NodeRecord]:
        return await self._store.nodes.nodes()

    async def jobs(self) -> Mapping[str, JobTally]:
        return await self._jobs.tallies()

    async def sessions(self) -> SessionCounts | None:
        """By state, and by health."""
        if self._sessions is None:
            return None
        states: Counter[str] = Counter()
        grades: Counter[str] = Counter()
        after, is_more = None, True
        while is_more:
            page = await self._sessions.archive.sessions(SessionFilter(), after=after, limit=SESSIONS_PAGE)
            states.update(str(session.state) for session in page)
            grades.update(str(health_of(session).grade) for session in page)
            is_more = len(page) >= SESSIONS_PAGE
            after = page[-1].session_id if page else None
        return states, grades


def _host_line(host: HostView, node: str, at_ms: int) -> HostLine:
    return HostLine(
        node=node,
        name=host.name,
        state=str(host.state),
        why=host.why,
        since_ms=None if host.since_s is None else at_ms - int(host.since_s * 1000),
        retry_at_ms=None if host.retry_s is None else at_ms + int(host.retry_s * 1000),
    )


class Overview:
    def __init__(self, sources: OverviewAsked, *, figures: Figures, standings: NodeStandings, clock: Clock) -> None:
        self._sources = sources
        self._figures = figures
        self._standings = standings
        self._clock = clock
        self._turn = asyncio.Lock()
        self._view: OverviewView | None = None
        self._until = 0.0
        self._tallies = OverviewPart[Mapping[int, Tally]]("letters", sources.tallies, {}, clock=clock)
        self._oldest = OverviewPart[Mapping[int, int]]("oldest_waiting", sources.oldest_waiting, {}, clock=clock)
        self._inbox = OverviewPart[Sequence[InboxTally]]("inbox", sources.inbox_tallies, (), clock=clock)
        self._states = OverviewPart[Mapping[int, InboxState]](
            "inbox", sources.inbox_states, {}, clock=clock, fresh_s=INBOX_FRESH_S
        )
        self._nodes = OverviewPart[Sequence[NodeRecord]]("nodes", sources.nodes, (), clock=clock)
        self._others = OverviewPart[Sequence[NodeStanding]]("nodes", self._ask_others, (), clock=clock)
        self._jobs = OverviewPart[Mapping[str, JobTally]]("jobs", sources.jobs, {}, clock=clock)
        self._sessions = OverviewPart[SessionCounts | None]("sessions", sources.sessions, None, clock=clock)
        self._series = OverviewPart[None]("figures", figures.refresh, None, clock=clock)
        # One after the other: a store with one reader has room for others in between.
        self._parts = (
            self._tallies,
            self._oldest,
            self._inbox,
            self._states,
            self._nodes,
            self._others,
            self._jobs,
            self._sessions,
            self._series,
        )

    async def now(self) -> OverviewView:
        """As it is, or was a second ago. However many ask, one looks."""
        async with self._turn:
            if self._view is None or self._clock.mono() >= self._until:
                for part in self._parts:
                    await part.look()
                self._view = self._seen()
                self._until = self._clock.mono() + FRESH_S
            return self._view

    async def _ask_others(self) -> Sequence[NodeStanding]:
        return await self._standings.others([node.name for node in self._nodes.value])

    def _seen(self) -> OverviewView:
        own = self._sources.standing()
        standings = (own, *self._others.value)
        last_hour, hour = self._figures.series(1, HOUR_STEP_S)
        last_day, day = self._figures.series(24, DAY_STEP_S)
        bots = tuple(self._bot_line(bot) for bot in self._sources.bots())
        consumers: dict[int, list[ConsumerLine]] = defaultdict(list)
        for tally in self._inbox.value:
            consumers[tally.consumer.bot_id].append(_consumer_line(tally))
        alerts = [
            msgspec.structs.replace(alert, node=one.node, text=alert.text[:ALERT_CHARS_MAX])
            for one in standings
            for alert in one.alerts
        ]
        return OverviewView(
            at_ms=self._clock.wall_ms(),
            node=own.node,
            letters=_total(self._tallies.value.values()),
            oldest_waiting_ms=min(self._oldest.value.values(), default=None),
            bots=bots,
            now=self._figures.now(),
            hour=hour,
            day=day,
            last_hour=last_hour,
            last_day=last_day,
            routes=tuple(route for one in standings for route in one.routes),
            hosts=tuple(host for one in standings for host in one.hosts),
            inbox=tuple(
                self._inbox_line(bot, tuple(consumers[bot.bot_id]))
                for bot in self._sources.bots()
                if self._has_inbox(bot)
            ),
            alerts=tuple(sorted(alerts, key=lambda alert: alert.last_ms, reverse=True)),
            nodes=tuple(self._node_line(node, own.node) for node in self._nodes.value),
            jobs=dict(self._jobs.value),
            sessions=None if self._sessions.value is None else dict(self._sessions.value[0]),
            session_health=None if self._sessions.value is None else dict(self._sessions.value[1]),
            missing=tuple(dict.fromkeys(part.name for part in self._parts if part.is_missing)),
        )

    def _bot_line(self, bot: BotRecord) -> BotLine:
        return BotLine(
            bot_id=bot.bot_id,
            username=bot.username,
            is_account=bot.token.is_account,
            paused=bot.paused,
            letters=self._tallies.value.get(bot.bot_id, Tally()),
            oldest_waiting_ms=self._oldest.value.get(bot.bot_id),
        )

    def _has_inbox(self, bot: BotRecord) -> bool:
        return not bot.token.is_account and (bot.inbound != "off" or bot.bot_id in self._states.value)

    def _inbox_line(self, bot: BotRecord, consumers: tuple[ConsumerLine, ...]) -> InboxLine:
        state = self._states.value.get(bot.bot_id)
        seen_at_ms = None if state is None else state.seen_at_ms
        return InboxLine(
            bot_id=bot.bot_id,
            source=bot.inbound,
            seen_at_ms=seen_at_ms,
            received_at_ms=None if state is None else state.received_at_ms,
            expires_at_ms=None if seen_at_ms is None or bot.inbound == "off" else expires_at_ms(seen_at_ms),
            expired=0 if state is None else state.expired,
            consumers=consumers,
        )

    def _node_line(self, node: NodeRecord, own: str) -> NodeLine:
        is_this = node.name == own
        bots = len([bot_id for bot_id in node.bots if bot_id != CHORES])
        return NodeLine(
            name=node.name,
            version=node.version or None,
            address=node.address,
            started_at_ms=node.started_at_ms,
            seen_at_ms=node.seen_at_ms,
            is_draining=node.is_draining,
            is_this=is_this,
            bots=len(self._sources.bots()) if is_this and self._sources.is_whole() else bots,
        )


def of_bots(view: OverviewView, sees: Callable[[int], bool]) -> OverviewView:
    """For somebody who may see some bots only: their lines. What is known of all together is left out."""
    bots = tuple(line for line in view.bots if sees(line.bot_id))
    waiting = [line.oldest_waiting_ms for line in bots if line.oldest_waiting_ms is not None]
    nothing = Point(at_ms=view.at_ms, seconds=1)
    return msgspec.structs.replace(
        view,
        letters=_total(line.letters for line in bots),
        oldest_waiting_ms=min(waiting, default=None),
        bots=bots,
        now=nothing,
        hour=nothing,
        day=nothing,
        last_hour=(),
        last_day=(),
        routes=(),
        hosts=(),
        inbox=tuple(line for line in view.inbox if sees(line.bot_id)),
        alerts=tuple(alert for alert in view.alerts if alert.bot_id and sees(alert.bot_id)),
        nodes=(),
        jobs={},
        sessions=None,
        session_health=None,
    )


def _total(tallies: Iterable[Tally]) -> Tally:
    found = list(tallies)
    return Tally(**{name: sum(getattr(one, name) for one in found) for name in Tally.__struct_fields__})


def _consumer_line(tally: InboxTally) -> ConsumerLine:
    return ConsumerLine(
        name=tally.consumer.name,
        kind=str(tally.consumer.kind),
        open=tally.open,
        handed=tally.handed,
        delayed=tally.delayed,
        failed=tally.failed,
        oldest_open_at_ms=tally.oldest_open_at_ms,
        seen_at_ms=tally.consumer.seen_at_ms,
    )
