"""A running Peik as one value: what its doors, its node and its programs may reach."""

from typing import TYPE_CHECKING

import msgspec

from peik.admins.audit import Audit
from peik.backups.keeper import Keeper
from peik.broadcasts.desk import BroadcastsDesk
from peik.broadcasts.engine import Broadcaster
from peik.building_accounts import AccountWays
from peik.building_jobs import JobHands
from peik.clock import Clock
from peik.config import Config
from peik.core.gate import Gate
from peik.custody.custodian import Custodian
from peik.desk import Desk
from peik.engine.courier import Courier
from peik.engine.hooks import Hooks
from peik.engine.leases import Leases
from peik.engine.passage import Passage
from peik.engine.timekeeper import Timekeeper
from peik.events import Events
from peik.forgetting.desk import Forgetter
from peik.inbox.census import Census
from peik.inbox.consumers import Consumers
from peik.inbox.desk import InboxDesk
from peik.inbox.outages import Outages
from peik.inbox.receiver import Receiver
from peik.inbox.upkeep import Upkeep
from peik.jobs.desk import JobsDesk
from peik.jobs.hosts import Hosts
from peik.keyring import Keyring
from peik.notifications.desk import NotificationsDesk
from peik.notifications.releasing import Releasing
from peik.ops.alerts import Alerts
from peik.ops.answering import Answering
from peik.ops.clock_watch import ClockWatch
from peik.ops.figures import Figures
from peik.ops.overview import Overview
from peik.ops.standing import Standings
from peik.ops.watching import Watching
from peik.store.choosing import AnyStore
from peik.store.spool import Spool

if TYPE_CHECKING:
    from peik.sessions.desk import SessionsDesk


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
