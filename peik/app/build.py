"""Builds Peik: the one place, with the `wiring` of each slice, that knows the concrete classes. It opens and starts nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from peik.accounts.wiring import Kit, sessions_of
from peik.admin.audit import Audit
from peik.admin.keys import Keyring
from peik.alerts.wiring import watch_of
from peik.app.context import Context
from peik.app.runtime import Runtime
from peik.backups.wiring import keeper_of
from peik.broadcasts.wiring import broadcasts_of
from peik.clock import Clock
from peik.core.events import Events
from peik.erasure.service import Eraser
from peik.erasure.wiring import forgetter_of
from peik.errors import StartError
from peik.inbox.store import PushPort
from peik.inbox.wiring import inbox_of
from peik.jobs.store import JobKinds
from peik.jobs.wiring import jobs_of
from peik.monitoring.wiring import figures_of
from peik.notifications.wiring import notifications_of, terms_of
from peik.outbox.store import Poster
from peik.outbox.wiring import Outbox, outbox_of
from peik.secrets.service import Custodian
from peik.settings.config import Config
from peik.storage.open import AnyStore
from peik.telegram.port import Carrier
from peik.telegram.wiring import passage_of
from peik.web.limits import RequestLimits

if TYPE_CHECKING:
    from peik.accounts.service import AccountService


def build(
    ground: Context,
    *,
    carriers: Sequence[Carrier],
    poster: Poster,
    pusher: PushPort,
    kit: Kit | None = None,
    job_kinds: JobKinds | None = None,
    custodian: Custodian | None = None,
) -> Runtime:
    """What sends and what receives; then accounts, jobs and outreach upon both; in the end those who look at it all.
    Raises StartError."""
    config, clock, events, store = ground.config, ground.clock, ground.events, ground.store
    sessions: AccountService | None = None
    figures = figures_of(
        store=store, clock=clock, settled=ground.settled, events=events
    )  # first: they count what is told from here on
    outbox = outbox_of(
        ground, carriers, poster, line_of=lambda user_id: None if sessions is None else sessions.line_of(user_id)
    )
    inbox = inbox_of(ground, outbox, pusher)
    outbox.hands.join(outbox.ways)
    if kit is not None:
        sessions = sessions_of(ground, outbox, kit, poster)
    jobs = jobs_of(ground, outbox, job_kinds or JobKinds())
    notifying = notifications_of(
        terms_of(config),
        clock=clock,
        settled=ground.settled,
        events=events,
        store=store,
        desk=outbox.desk,
        routes=outbox.routes,
        leases=outbox.leases,
    )
    broadcasts, broadcaster = broadcasts_of(ground, outbox)
    watch = watch_of(ground, outbox, figures=figures, inbox=inbox.desk, jobs=jobs, sessions=sessions)
    return Runtime(
        config=config,
        clock=clock,
        settled=ground.settled,
        clock_watch=watch.clock,
        events=events,
        store=store,
        spool=ground.spool,
        desk=outbox.desk,
        courier=outbox.courier,
        leases=outbox.leases,
        timekeeper=outbox.timekeeper,
        hooks=outbox.hooks,
        ways=outbox.ways,
        passage=passage_of(ground, outbox.routes),
        inbox=inbox.desk,
        outages=inbox.outages,
        consumers=inbox.consumers,
        receiver=inbox.receiver,
        upkeep=inbox.upkeep,
        sessions=sessions,
        jobs=jobs.desk,
        job_hands=jobs.hands,
        hosts=jobs.hosts,
        notifications=notifying.desk,
        census=notifying.census,
        releasing=notifying.releasing,
        broadcasts=broadcasts,
        broadcaster=broadcaster,
        figures=figures,
        answering=watch.answering,
        alerts=watch.alerts,
        overview=watch.overview,
        standings=watch.standings,
        watching=watch.watching,
        keyring=_keyring(ground),
        gate=RequestLimits(stranger=config.rate_ip, wrong=config.rate_wrong, key=config.rate_key),
        audit=Audit(store.papers, clock, events, keep_s=config.keep_audit),
        custodian=custodian or custodian_of(config, store, clock=clock, events=events),
        backups=keeper_of(config, papers=store.papers, clock=clock, events=events),
        forgetter=_forgetter(ground, outbox, sessions),
    )


def _keyring(ground: Context) -> Keyring:
    return Keyring(
        store=ground.store,
        papers=ground.store.papers,
        clock=ground.clock,
        events=ground.events,
        hooks_may_be_private=ground.config.hooks_allow_private,
    )


def _forgetter(ground: Context, outbox: Outbox, sessions: "AccountService | None") -> Eraser:
    return forgetter_of(
        ground.config,
        clock=ground.clock,
        settled=ground.settled,
        events=ground.events,
        letters=outbox.desk,
        bots=lambda: [bot.bot_id for bot in outbox.desk.bots()],
        store=ground.store,
        archive=None if sessions is None else sessions.archive,
        is_live=True,
        reread=outbox.courier.reread_chats,
    )


def custodian_of(config: Config, store: AnyStore, *, clock: Clock, events: Events) -> Custodian:
    if config.secret_key is None and config.secret_key_old is not None:
        raise StartError("PEIK_SECRET_KEY_OLD is set without PEIK_SECRET_KEY. Set both, or neither.")
    return Custodian(
        store.sealed,
        store.seals,
        papers=store.papers,
        nodes=store.nodes,
        clock=clock,
        events=events,
        renews=config.secret_key_old is not None,
    )
