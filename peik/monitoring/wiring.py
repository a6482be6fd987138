"""How figures and the overview are put together: whom the overview asks, and what each node tells the others of itself."""

from typing import TYPE_CHECKING

from peik.alerts.service import AlertService
from peik.app.context import Context
from peik.inbox.service import InboxService
from peik.monitoring.counts import Counting
from peik.monitoring.figures import Figures
from peik.monitoring.overview import Overview, OverviewAsked
from peik.monitoring.pulse import NodeStandings

if TYPE_CHECKING:
    from peik.accounts.service import AccountService
    from peik.jobs.wiring import Jobs
    from peik.outbox.wiring import Outbox


def figures_of(context: Context) -> Figures:
    counting, store = Counting(), context.store
    context.events.listen(counting)
    return Figures(
        counting=counting,
        documents=store.documents,
        node=store.nodes.node,
        clock=context.clock,
        settled=context.settled,
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
        documents=store.documents,
        node=store.nodes.node,
        own=asked.standing,
        is_shared=store.nodes.lease_s is not None,
        clock=clock,
    )
    return Overview(asked, figures=figures, standings=standings, clock=clock), standings
