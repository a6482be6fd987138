"""The overview of a Peik that runs, put together as Peik does it."""

from peik.app.runtime import Runtime
from peik.monitoring.figures import Figures
from peik.monitoring.overview import Overview
from peik.monitoring.pulse import NodeStandings
from peik.monitoring.wiring import figures_of, overview_of


def seen(runtime: Runtime) -> tuple[Figures, Overview, NodeStandings]:
    figures = figures_of(runtime)
    overview, standings = overview_of(
        runtime,
        runtime.outbox,
        figures=figures,
        inbox=runtime.inbox.service,
        alerts=runtime.watch.alerts,
        jobs=runtime.jobs,
        accounts=runtime.accounts,
    )
    return figures, overview, standings
