"""A running Peik as one value: what its APIs, its node and its programs may reach."""

from typing import TYPE_CHECKING

import msgspec

from peik.admin.audit import Audit
from peik.admin.keys import Keyring
from peik.alerts.service import AlertService
from peik.alerts.watch import ClockWatch, Watching
from peik.backups.keeper import Keeper
from peik.broadcasts.engine import Broadcaster
from peik.broadcasts.service import BroadcastService
from peik.clock import Clock
from peik.contacts.engine import ContactCollector
from peik.core.events import Events
from peik.erasure.service import Eraser
from peik.inbox.consumers import Consumers
from peik.inbox.outages import Outages
from peik.inbox.service import InboxService
from peik.inbox.sources import Receiver
from peik.inbox.upkeep import InboxUpkeep
from peik.jobs.hosts import Hosts
from peik.jobs.service import JobService
from peik.jobs.wiring import JobWorkers
from peik.monitoring.counts import Answering
from peik.monitoring.figures import Figures
from peik.monitoring.overview import Overview
from peik.monitoring.pulse import NodeStandings
from peik.notifications.queue import Releasing
from peik.notifications.service import NotificationService
from peik.outbox.courier import Courier
from peik.outbox.hooks import Hooks
from peik.outbox.leases import Leases
from peik.outbox.service import OutboxService
from peik.outbox.timekeeper import Timekeeper
from peik.outbox.wiring import AccountWays
from peik.secrets.service import Custodian
from peik.settings.config import Config
from peik.storage.open import AnyStore
from peik.storage.spool import SpoolPort
from peik.telegram.routes import Passthrough
from peik.web.limits import RequestLimits

if TYPE_CHECKING:
    from peik.accounts.service import AccountService


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A running Peik, for its APIs, pages and programs."""

    config: Config
    clock: Clock
    settled: Clock
    clock_watch: ClockWatch
    desk: OutboxService
    courier: Courier
    spool: SpoolPort
    events: Events
    store: AnyStore
    leases: Leases
    timekeeper: Timekeeper
    keyring: Keyring
    gate: RequestLimits
    answering: Answering
    hooks: Hooks
    outages: Outages
    consumers: Consumers
    receiver: Receiver
    upkeep: InboxUpkeep
    alerts: AlertService
    inbox: InboxService
    passage: Passthrough
    ways: AccountWays
    sessions: "AccountService | None"  # None: nothing in the settings asks for accounts
    jobs: JobService
    job_hands: JobWorkers
    hosts: Hosts
    figures: Figures
    overview: Overview
    standings: NodeStandings
    watching: Watching
    audit: Audit
    notifications: NotificationService
    census: ContactCollector
    releasing: Releasing
    broadcasts: BroadcastService
    broadcaster: Broadcaster
    custodian: Custodian
    backups: Keeper | None  # None: none are made by the clock
    forgetter: Eraser
