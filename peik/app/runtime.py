"""A running Peik as one value: what its doors, its node and its programs may reach."""

from typing import TYPE_CHECKING

import msgspec

from peik.admin.audit import Audit
from peik.admin.keys import Keyring
from peik.alerts.service import Alerts
from peik.alerts.watch import ClockWatch, Watching
from peik.backups.keeper import Keeper
from peik.broadcasts.engine import Broadcaster
from peik.broadcasts.service import BroadcastsDesk
from peik.clock import Clock
from peik.contacts.engine import Census
from peik.core.events import Events
from peik.erasure.service import Forgetter
from peik.inbox.consumers import Consumers
from peik.inbox.outages import Outages
from peik.inbox.service import InboxDesk
from peik.inbox.sources import Receiver
from peik.inbox.upkeep import Upkeep
from peik.jobs.hosts import Hosts
from peik.jobs.service import JobsDesk
from peik.jobs.wiring import JobHands
from peik.monitoring.counts import Answering
from peik.monitoring.figures import Figures
from peik.monitoring.overview import Overview
from peik.monitoring.pulse import Standings
from peik.notifications.queue import Releasing
from peik.notifications.service import NotificationsDesk
from peik.outbox.courier import Courier
from peik.outbox.hooks import Hooks
from peik.outbox.leases import Leases
from peik.outbox.service import Desk
from peik.outbox.timekeeper import Timekeeper
from peik.outbox.wiring import AccountWays
from peik.secrets.service import Custodian
from peik.settings.config import Config
from peik.storage.open import AnyStore
from peik.storage.spool import Spool
from peik.telegram.passthrough import Passage
from peik.web.limits import Gate

if TYPE_CHECKING:
    from peik.accounts.service import SessionsDesk


class Office(msgspec.Struct, frozen=True, kw_only=True):
    """A running Peik as its doors see it."""

    config: Config
    clock: Clock
    settled: Clock
    clock_watch: ClockWatch
    desk: Desk
    courier: Courier
    spool: Spool
    events: Events
    store: AnyStore
    leases: Leases
    timekeeper: Timekeeper
    keyring: Keyring
    gate: Gate
    answering: Answering
    hooks: Hooks
    outages: Outages
    consumers: Consumers
    receiver: Receiver
    upkeep: Upkeep
    alerts: Alerts
    inbox: InboxDesk
    passage: Passage
    ways: AccountWays
    sessions: "SessionsDesk | None"  # None: nothing in the settings asks for accounts
    jobs: JobsDesk
    job_hands: JobHands
    hosts: Hosts
    figures: Figures
    overview: Overview
    standings: Standings
    watching: Watching
    audit: Audit
    notifications: NotificationsDesk
    census: Census
    releasing: Releasing
    broadcasts: BroadcastsDesk
    broadcaster: Broadcaster
    custodian: Custodian
    backups: Keeper | None  # None: none are made by the clock
    forgetter: Forgetter
