"""All APIs of a running Peik: what its server answers over REST, and what the library asks in the same process."""

from peik.accounts.api import SessionApi
from peik.admin.api import AuditApi, KeyApi
from peik.alerts.api import AlertApi
from peik.app.runtime import Runtime
from peik.archive.api import ArchiveHealth, MessageApi
from peik.broadcasts.api import BroadcastApi
from peik.contacts.api import ContactApi
from peik.erasure.api import ErasureApi
from peik.importing.api import ImportApi
from peik.importing.service import import_service_of
from peik.inbox.api import ArrivalApi, ConsumerApi
from peik.jobs.api import HostApi, JobApi
from peik.monitoring.api import HealthApi, OverviewApi
from peik.monitoring.metrics import MetricsApi
from peik.monitoring.nodes import NodeApi, nodes_of
from peik.monitoring.pulse import Pulse
from peik.notifications.api import NotificationApi, UserApi
from peik.outbox.api import BotApi, LetterApi
from peik.schedules.api import ScheduleApi
from peik.secrets.api import SecretApi

API_CLASSES = (
    LetterApi,
    BotApi,
    ArrivalApi,
    ConsumerApi,
    JobApi,
    HostApi,
    BroadcastApi,
    ScheduleApi,
    UserApi,
    NotificationApi,
    ContactApi,
    SessionApi,
    MessageApi,
    AlertApi,
    ErasureApi,
    NodeApi,
    SecretApi,
    HealthApi,
    OverviewApi,
    MetricsApi,
    KeyApi,
    AuditApi,
    ImportApi,
)


def apis_of(peik: Runtime, *, pulse: Pulse | None = None, weakness: str | None = None) -> tuple[object, ...]:
    """One of each of `API_CLASSES`. `weakness`: of the admin key, in words."""
    nodes = nodes_of(peik)
    return (
        LetterApi(peik.outbox.service, peik.inbox.service, config=peik.config, spool=lambda: peik.spool),
        BotApi(peik.outbox.service, nodes),
        ArrivalApi(peik.outbox.service, peik.inbox.service),
        ConsumerApi(peik.outbox.service, peik.inbox.service),
        BroadcastApi(peik.broadcasts.service, config=peik.config, clock=peik.clock),
        ScheduleApi(peik.schedules.service),
        UserApi(peik.notifications.service.links),
        NotificationApi(peik.notifications.service),
        ContactApi(peik.outbox.service, peik.store.contacts),
        AlertApi(peik.watch.alerts, peik.watch.overview),
        ErasureApi(peik.eraser),
        MessageApi(peik.accounts),
        NodeApi(nodes),
        SecretApi(peik.secrets, peik.accounts),
        JobApi(peik.jobs.service, peik.outbox.service, config=peik.config),
        HostApi(peik.jobs.hosts, clock=peik.clock, node=peik.store.nodes.node),
        HealthApi(
            peik.outbox.courier.routes,
            pulse or pulse_of(peik),
            store_kind=peik.config.store_kind,
            archive=None if peik.accounts is None else ArchiveHealth(peik.config, peik.accounts, peik.clock),
            weakness=weakness,
        ),
        OverviewApi(peik.watch.overview, peik.watch.figures.breakdown),
        MetricsApi(
            peik.watch.overview,
            peik.watch.figures,
            is_open=peik.config.metrics == "open",
            store=str(peik.config.store_kind),
            temp_bytes=lambda: peik.jobs.workers.folders.view().held_bytes,
            answering=peik.watch.answering,
            documents=peik.store.documents,
        ),
        KeyApi(peik.outbox.service, keyring=peik.keyring, webhook_secret=peik.outbox.hooks.own_secret),
        AuditApi(peik.audit),
        ImportApi(peik.outbox.service, import_service_of(peik.config, peik.store, clock=peik.clock)),
        SessionApi(peik.accounts),
    )


def pulse_of(peik: Runtime) -> Pulse:
    return Pulse(store=peik.store.nodes, trouble=peik.store.trouble, clock=peik.clock, events=peik.events)
