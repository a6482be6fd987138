"""A running Peik as one value: what its APIs, its node and its programs may reach."""

from typing import TYPE_CHECKING

from peik.admin.audit import Audit
from peik.admin.keys import Keyring
from peik.alerts.wiring import Watch
from peik.app.context import Context
from peik.backups.keeper import Keeper
from peik.broadcasts.wiring import Broadcasts
from peik.erasure.service import Eraser
from peik.inbox.wiring import Inbox
from peik.jobs.wiring import Jobs
from peik.notifications.wiring import Notifications
from peik.outbox.wiring import Outbox
from peik.schedules.engine import Schedules
from peik.secrets.service import Custodian
from peik.telegram.routes import Passthrough
from peik.web.limits import RequestLimits

if TYPE_CHECKING:
    from peik.accounts.service import AccountService


class Runtime(Context, frozen=True, kw_only=True):
    """What Peik stands on, and its slices: of each the service, and what runs by itself."""

    outbox: Outbox
    inbox: Inbox
    passthrough: Passthrough
    accounts: "AccountService | None"  # None: nothing in the settings asks for accounts
    jobs: Jobs
    notifications: Notifications
    broadcasts: Broadcasts
    schedules: Schedules
    watch: Watch
    keyring: Keyring
    limits: RequestLimits
    audit: Audit
    secrets: Custodian
    backups: Keeper | None  # None: none are made by the clock
    eraser: Eraser
