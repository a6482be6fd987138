"""All APIs of a running Peik: what its server answers over REST, and what the library asks in the same process."""

from peik.alerts.api import AlertApi
from peik.app.runtime import Runtime
from peik.erasure.api import ErasureApi
from peik.inbox.api import ArrivalApi, ConsumerApi
from peik.jobs.api import HostApi, JobApi
from peik.monitoring.nodes import NodeApi, Nodes
from peik.outbox.api import BotApi, LetterApi
from peik.secrets.api import SecretApi

API_CLASSES = (LetterApi, BotApi, ArrivalApi, ConsumerApi, JobApi, HostApi, AlertApi, ErasureApi, NodeApi, SecretApi)


def nodes_of(peik: Runtime) -> Nodes:
    return Nodes(
        peik.config,
        peik.store.nodes,
        clock=peik.clock,
        bot_ids=lambda: [bot.bot_id for bot in peik.desk.bots()],
        is_whole=lambda: peik.leases.is_whole,
    )


def apis_of(peik: Runtime) -> tuple[object, ...]:
    """One of each of `API_CLASSES`."""
    nodes = nodes_of(peik)
    return (
        LetterApi(peik.desk, peik.inbox, config=peik.config, spool=lambda: peik.spool),
        BotApi(peik.desk, nodes),
        ArrivalApi(peik.desk, peik.inbox),
        ConsumerApi(peik.desk, peik.inbox),
        AlertApi(peik.alerts, peik.overview),
        ErasureApi(peik.forgetter),
        NodeApi(nodes),
        SecretApi(peik.custodian, peik.sessions),
        JobApi(peik.jobs, peik.desk, config=peik.config),
        HostApi(peik.hosts, clock=peik.clock, node=peik.store.nodes.node),
    )
