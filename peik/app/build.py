"""Builds Peik: the one place, with the `wiring` of each slice, that knows the concrete classes. It opens and starts nothing."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from peik.accounts.wiring import Kit, sessions_of
from peik.admin.audit import Audit
from peik.admin.keys import Keyring
from peik.alerts.wiring import watch_of
from peik.app.context import Context
from peik.app.runtime import Runtime
from peik.archive.store import Archive
from peik.backups.wiring import keeper_of
from peik.broadcasts.service import BroadcastService
from peik.broadcasts.wiring import broadcasts_of
from peik.clock import Clock, SettledClock
from peik.core.events import Events
from peik.core.nodes import CHORES
from peik.erasure.service import Eraser
from peik.erasure.wiring import eraser_of
from peik.errors import StartError
from peik.inbox.store import PushPort
from peik.inbox.wiring import inbox_of
from peik.jobs.service import JobService
from peik.jobs.store import JobKinds
from peik.jobs.wiring import jobs_of
from peik.monitoring.wiring import figures_of
from peik.notifications.wiring import notifications_of
from peik.outbox.store import Poster
from peik.outbox.wiring import Outbox, outbox_of
from peik.schedules.engine import Scheduler, Schedules
from peik.schedules.service import Maker, ScheduleBook, ScheduleService
from peik.secrets.service import Custodian
from peik.settings.config import Config
from peik.storage.open import AnyStore
from peik.telegram.port import Carrier
from peik.telegram.wiring import passthrough_of
from peik.web.limits import RequestLimits

if TYPE_CHECKING:
    from peik.accounts.service import AccountService


def build(
    context: Context,
    *,
    carriers: Sequence[Carrier],
    poster: Poster,
    pusher: PushPort,
    kit: Kit | None = None,
    job_kinds: JobKinds | None = None,
    custodian: Custodian | None = None,
) -> Runtime:
    """What sends and what receives; then accounts, jobs and outreach on both; in the end those who look at it all.
    Raises StartError."""
    config, clock, events, store = context.config, context.clock, context.events, context.store
    accounts: AccountService | None = None
    figures = figures_of(context)  # first: they count what is told from here on
    outbox = outbox_of(
        context, carriers, poster, line_of=lambda user_id: None if accounts is None else accounts.line_of(user_id)
    )
    inbox = inbox_of(context, outbox, pusher)
    outbox.workers.all.append(outbox.ways)
    if kit is not None:
        accounts = sessions_of(context, outbox, kit, poster)
    jobs = jobs_of(context, outbox, job_kinds or JobKinds())
    broadcasts = broadcasts_of(context, outbox)
    return Runtime(
        **msgspec.structs.asdict(context),
        outbox=outbox,
        inbox=inbox,
        passthrough=passthrough_of(context, outbox.routes),
        accounts=accounts,
        jobs=jobs,
        notifications=notifications_of(context, outbox),
        broadcasts=broadcasts,
        schedules=_schedules(context, outbox, broadcasts=broadcasts.service, jobs=jobs.service),
        watch=watch_of(context, outbox, figures=figures, inbox=inbox.service, jobs=jobs, accounts=accounts),
        keyring=_keyring(context),
        limits=RequestLimits(stranger=config.rate_ip, wrong=config.rate_wrong, key=config.rate_key),
        audit=Audit(store.documents, clock, events, keep_s=config.keep_audit),
        secrets=custodian or custodian_of(config, store, clock=clock, events=events),
        backups=keeper_of(config, documents=store.documents, clock=clock, events=events),
        eraser=_eraser(context, outbox, accounts),
    )


def _schedules(context: Context, outbox: Outbox, *, broadcasts: BroadcastService, jobs: JobService) -> Schedules:
    # The clock that this process began with is believed, as for letters with a time; how long Peik was off does not matter here.
    time = SettledClock(context.clock, settles_s=context.config.clock_settles)
    book = ScheduleBook(context.store.documents)
    maker = Maker(letters=outbox.service, broadcasts=broadcasts, jobs=jobs, clock=context.clock)
    engine = Scheduler(
        book,
        maker,
        time=time,
        clock=context.clock,
        events=context.events,
        is_ours=lambda: outbox.leases.is_live(CHORES),
        is_shared=context.store.nodes.lease_s is not None,
    )
    service = ScheduleService(book, maker, clock=time, events=context.events, look=engine.look)
    return Schedules(service=service, engine=engine)


def _keyring(context: Context) -> Keyring:
    return Keyring(
        store=context.store,
        documents=context.store.documents,
        clock=context.clock,
        events=context.events,
        hooks_may_be_private=context.config.hooks_allow_private,
    )


def _eraser(context: Context, outbox: Outbox, accounts: "AccountService | None") -> Eraser:
    return eraser_of(
        context.config,
        clock=context.clock,
        settled=context.settled,
        events=context.events,
        letters=outbox.service,
        bots=lambda: [bot.bot_id for bot in outbox.service.bots()],
        store=context.store,
        archive=None if accounts is None else partial(_archive_of, accounts),
        is_live=True,
        reread=outbox.courier.reread_chats,
    )


async def _archive_of(accounts: "AccountService") -> Archive:
    """Looked at when somebody is forgotten: it may open long after this node was built. Raises Unavailable until then."""
    return accounts.archive


def custodian_of(config: Config, store: AnyStore, *, clock: Clock, events: Events) -> Custodian:
    if config.secret_key is None and config.secret_key_old is not None:
        raise StartError("PEIK_SECRET_KEY_OLD is set without PEIK_SECRET_KEY. Set both, or neither.")
    return Custodian(
        store.sealed,
        store.seals,
        documents=store.documents,
        nodes=store.nodes,
        clock=clock,
        events=events,
        renews=config.secret_key_old is not None,
    )
