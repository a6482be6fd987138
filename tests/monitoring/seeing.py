"""The overview of a Peik that runs, put together as Peik does it."""

from peik.app.runtime import Runtime
from peik.monitoring.figures import Figures
from peik.monitoring.overview import Overview
from peik.monitoring.pulse import NodeStandings
from peik.monitoring.wiring import figures_of, overview_of


def seen(office: Runtime) -> tuple[Figures, Overview, NodeStandings]:
    figures = figures_of(store=office.store, clock=office.clock, settled=office.clock, events=office.events)
    overview, standings = overview_of(
        figures=figures,
        store=office.store,
        clock=office.clock,
        desk=office.desk,
        inbox=office.inbox,
        routes=office.courier.routes,
        leases=office.leases,
        alerts=office.alerts,
        jobs=office.jobs,
        hosts=office.hosts,
        sessions=office.sessions,
    )
    return figures, overview, standings
