"""How figures and the overview are put together: whom the overview asks, and what each node tells the others of itself."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from peik.alerts.service import AlertService
from peik.app.context import Context
from peik.archive.store import SessionFilter
from peik.clock import Clock
from peik.core.nodes import NodeRecord
from peik.inbox.service import InboxService
from peik.inbox.store import InboxState, InboxTally
from peik.jobs.hosts import Hosts, HostState, HostView
from peik.jobs.service import JobService
from peik.jobs.store import JobTally
from peik.monitoring.counts import Counting
from peik.monitoring.figures import Figures
from peik.monitoring.overview import Overview
from peik.monitoring.pulse import NodeStanding, NodeStandings
from peik.monitoring.values import HostLine, RouteLine
from peik.outbox.leases import Leases
from peik.outbox.service import OutboxService
from peik.outbox.store import BotRecord, Tally
from peik.storage.open import AnyStore
from peik.telegram.routes import Routes

if TYPE_CHECKING:
    from peik.accounts.service import AccountService
    from peik.jobs.wiring import Jobs
    from peik.outbox.wiring import Outbox

SESSIONS_PAGE = 500


def figures_of(context: Context) -> Figures:
    counting, store = Counting(), context.store
    context.events.listen(counting)
    return Figures(
        counting=counting, papers=store.papers, node=store.nodes.node, clock=context.clock, settled=context.settled
    )


def overview_of(
    context: Context,
    outbox: "Outbox",
    *,
    figures: Figures,
    inbox: InboxService,
    alerts: AlertService,
    jobs: "Jobs",
    accounts: "AccountService | None",
) -> tuple[Overview, NodeStandings]:
    store, clock = context.store, context.clock
    asked = OverviewAsked(
        store=store,
        clock=clock,
        service=outbox.service,
        inbox=inbox,
        routes=outbox.routes,
        leases=outbox.leases,
        alerts=alerts,
        jobs=jobs.service,
        hosts=jobs.hosts,
        sessions=accounts,
    )
    standings = NodeStandings(
        papers=store.papers,
        node=store.nodes.node,
        own=asked.standing,
        is_shared=store.nodes.lease_s is not None,
        clock=clock,
    )
    return Overview(asked, figures=figures, standings=standings, clock=clock), standings


class OverviewAsked:
    """See `peik.monitoring.overview.Sources`."""

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
        return self._leases.is_whole

    def standing(self) -> NodeStanding:
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

    async def sessions(self) -> Mapping[str, int] | None:
        if self._sessions is None:
            return None
        states: Counter[str] = Counter()
        after, is_more = None, True
        while is_more:
            page = await self._sessions.archive.sessions(SessionFilter(), after=after, limit=SESSIONS_PAGE)
            states.update(str(session.state) for session in page)
            is_more = len(page) >= SESSIONS_PAGE
            after = page[-1].session_id if page else None
        return states


def _host_line(host: HostView, node: str, at_ms: int) -> HostLine:
    return HostLine(
        node=node,
        name=host.name,
        state=str(host.state),
        why=host.why,
        since_ms=None if host.since_s is None else at_ms - int(host.since_s * 1000),
        retry_at_ms=None if host.retry_s is None else at_ms + int(host.retry_s * 1000),
    )
