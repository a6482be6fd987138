"""Builds Peik: the one place, with `building_inbox`, that knows the concrete classes. It opens and starts nothing."""

import random
import ssl
import urllib.parse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from peik.admins.audit import Audit
from peik.backups.keeper import Keeper
from peik.broadcasts.desk import BroadcastsDesk
from peik.broadcasts.engine import Broadcaster
from peik.building_accounts import AccountWays
from peik.building_backups import keeper_of
from peik.building_forgetting import forgetter_of
from peik.building_inbox import alerts_of, consumers_of, outages_of, receiver_of, recover_by, upkeep_of
from peik.building_jobs import JobHands, jobs_of
from peik.building_notifications import notifications_of, terms_of
from peik.building_outreach import broadcasts_of
from peik.building_overview import figures_of, overview_of, watching_of
from peik.building_sessions import Kit, sessions_of
from peik.carrier.botapi import BotApiCarrier
from peik.carrier.dialling import Connect
from peik.carrier.download import HttpDownloader
from peik.carrier.parted import PartedCarrier
from peik.carrier.poster import HttpPoster
from peik.carrier.proxy import Proxy, through_http, through_socks5
from peik.carrier.pusher import HttpPusher
from peik.carrier.trust import client_context
from peik.clock import Clock
from peik.config import Config
from peik.core.gate import Gate
from peik.core.token import Token
from peik.custody.custodian import Custodian
from peik.desk import Defaults, Desk
from peik.engine.courier import Courier
from peik.engine.hooks import Hooks
from peik.engine.leases import Lease, Leases
from peik.engine.passage import Passage
from peik.engine.route import Route
from peik.engine.routes import Routes
from peik.engine.sender import Sender, Terms
from peik.engine.timekeeper import Timekeeper
from peik.errors import StartError
from peik.events import Events
from peik.forgetting.desk import Forgetter
from peik.inbox.census import Census
from peik.inbox.consumers import Consumers
from peik.inbox.desk import InboxDesk
from peik.inbox.outages import Outages
from peik.inbox.receiver import Receiver
from peik.inbox.upkeep import Upkeep
from peik.inbox_ports import Pusher
from peik.jobs.desk import JobsDesk
from peik.jobs.hosts import Hosts
from peik.jobs.kinds import Kinds
from peik.keyring import Keyring
from peik.node_ports import CHORES
from peik.notifications.desk import NotificationsDesk
from peik.notifications.releasing import Releasing
from peik.ops.alerts import Alerts
from peik.ops.answering import Answering
from peik.ops.figures import Figures
from peik.ops.overview import Overview
from peik.ops.standing import Standings
from peik.ops.watching import Watching
from peik.ports import BotRecord, Carrier, Poster, Retention
from peik.settings_values import RouteAddress, RouteKind
from peik.store.choosing import AnyStore
from peik.store.spool import Spool

if TYPE_CHECKING:
    from peik.sessions.desk import SessionsDesk

POLLS_MAX = 20_000  # parked at once, one for each bot; what the machine gives in open files is the real bound


class Office(msgspec.Struct, frozen=True, kw_only=True):
    """A running Peik as its doors see it."""

    config: Config
    clock: Clock
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


def build(
    config: Config,
    *,
    events: Events,
    clock: Clock,
    carriers: Sequence[Carrier],
    chance: random.Random,
    poster: Poster,
    pusher: Pusher,
    store: AnyStore,
    spool: Spool,
    kit: Kit | None = None,
    job_kinds: Kinds | None = None,
    custodian: Custodian | None = None,
) -> Office:
    figures = figures_of(store=store, clock=clock, events=events)
    answering = Answering()
    leases = Leases(store=store.nodes, clock=clock, events=events)
    routes = _routes(
        config, carriers, clock=clock, chance=chance, events=events, probe_token=lambda: courier.probe_token()
    )
    timekeeper = _timekeeper(config, store=store, clock=clock, events=events, spool=spool)
    terms = Terms(
        in_flight_max=config.in_flight,
        timeout_s=config.timeout,
        upload_timeout_s=config.upload_timeout,
        is_paced=config.pace,
    )

    ways = AccountWays(
        lambda user_id: None if sessions is None else sessions.line_of(user_id),
        clock=clock,
        chance=chance,
        events=events,
        trial_s=config.route_trial,
    )

    def make_sender(bot: BotRecord, lease: Lease) -> Sender:
        by = ways.of(bot) if bot.token.is_account else routes
        return Sender(bot, lease, store=store, routes=by, spool=spool, clock=clock, events=events, terms=terms)

    courier = Courier(clock=clock, events=events, lease_of=leases.of, make_sender=make_sender, routes=routes)
    store.listen(courier)
    hands = Hands(courier, leases)
    desk = Desk(
        store=store,
        engine=hands,
        clock=clock,
        events=events,
        defaults=Defaults(
            attempts=config.attempts,
            backoff_ms=config.backoff_ms,
            hooks_may_be_private=config.hooks_allow_private,
            may_be_pushed=config.public_url is not None,
        ),
        expect=timekeeper.expect,
    )
    outages = outages_of(config, events=events, clock=clock, store=store, desk=desk, routes=routes)
    consumers = consumers_of(
        config,
        events=events,
        clock=clock,
        store=store,
        desk=desk,
        routes=routes,
        outages=outages,
        pusher=pusher,
        is_served=leases.holds,
        is_live=leases.is_live,
    )
    receiver = receiver_of(
        config,
        events=events,
        clock=clock,
        chance=chance,
        store=store,
        desk=desk,
        courier=courier,
        outages=outages,
        is_served=leases.holds,
    )
    hands.join(receiver)
    hands.join(consumers)
    hands.join(ways)
    hooks = Hooks(store=store, poster=poster, clock=clock, events=events)
    sessions = None
    if kit is not None:
        sessions = sessions_of(
            config,
            kit,
            clock=clock,
            events=events,
            chance=chance,
            desk=desk,
            leases=leases,
            locks=store.nodes,
            poster=poster,
            own_secret=hooks.own_secret,
        )
        leases.when_beaten(sessions.beaten)
    jobs, job_hands, hosts = jobs_of(
        config,
        job_kinds or Kinds(),
        clock=clock,
        events=events,
        chance=chance,
        desk=desk,
        spool=spool,
        store=store,
        leases=leases,
    )
    notifying = notifications_of(
        terms_of(config), clock=clock, events=events, store=store, desk=desk, routes=routes, leases=leases
    )
    broadcasts, broadcaster = broadcasts_of(
        config, clock=clock, events=events, chance=chance, desk=desk, store=store, leases=leases
    )
    alerts = alerts_of(
        config,
        clock=clock,
        desk=desk,
        store=store,
        is_served=lambda bot_id: leases.holds(bot_id) and desk.known(bot_id) is not None,
        has_chores=lambda: leases.holds(CHORES),
    )
    events.listen(alerts)
    inbox = InboxDesk(
        store=store.inbox,
        clock=clock,
        events=events,
        missed_after_s=config.missed_after,
        runners=consumers,
        outages=outages,
        recover=lambda bot_id: recover_by(leases.holds, receiver, desk.bot(bot_id)),
        likely_s=config.trace_likely,
        urls_may_be_private=config.pushes_may_be_private,
    )
    overview, standings = overview_of(
        figures=figures,
        store=store,
        clock=clock,
        desk=desk,
        inbox=inbox,
        routes=routes,
        leases=leases,
        alerts=alerts,
        jobs=jobs,
        hosts=hosts,
        sessions=sessions,
    )
    return Office(
        config=config,
        clock=clock,
        desk=desk,
        courier=courier,
        spool=spool,
        events=events,
        store=store,
        leases=leases,
        timekeeper=timekeeper,
        keyring=Keyring(
            store=store,
            papers=store.papers,
            clock=clock,
            events=events,
            hooks_may_be_private=config.hooks_allow_private,
        ),
        gate=Gate(stranger=config.rate_ip, wrong=config.rate_wrong, key=config.rate_key),
        answering=answering,
        hooks=hooks,
        outages=outages,
        consumers=consumers,
        receiver=receiver,
        upkeep=upkeep_of(config, events=events, clock=clock, store=store),
        alerts=alerts,
        inbox=inbox,
        passage=Passage(
            routes=routes,
            downloaders={address.name: downloader_to(address, config) for address in config.routes},
            clock=clock,
            timeout_s=config.timeout,
            upload_timeout_s=config.upload_timeout,
        ),
        ways=ways,
        sessions=sessions,
        jobs=jobs,
        job_hands=job_hands,
        hosts=hosts,
        figures=figures,
        overview=overview,
        standings=standings,
        watching=watching_of(
            config,
            alerts=alerts,
            overview=overview,
            store=store,
            clock=clock,
            leases=leases,
            answering=answering,
        ),
        audit=Audit(store.papers, clock, events, keep_s=config.keep_audit),
        notifications=notifying.desk,
        census=notifying.census,
        releasing=notifying.releasing,
        broadcasts=broadcasts,
        broadcaster=broadcaster,
        custodian=custodian or custodian_of(config, store, clock=clock, events=events),
        backups=keeper_of(config, papers=store.papers, clock=clock, events=events),
        forgetter=forgetter_of(
            config,
            clock=clock,
            events=events,
            letters=desk,
            bots=lambda: [bot.bot_id for bot in desk.bots()],
            store=store,
            archive=None if sessions is None else sessions.archive,
            is_live=True,
            reread=courier.reread_chats,
        ),
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


def _routes(
    config: Config,
    carriers: Sequence[Carrier],
    *,
    clock: Clock,
    chance: random.Random,
    events: Events,
    probe_token: Callable[[], Token | None],
) -> Routes:
    ways = [
        Route(
            address.name,
            carrier,
            kind=address.kind,
            clock=clock,
            chance=chance,
            events=events,
            probe_token=probe_token,
            trial_s=config.route_trial,
            is_watched=len(carriers) > 1,
        )
        for address, carrier in zip(config.routes, carriers, strict=True)
    ]
    return Routes(ways, clock=clock, events=events)


def _timekeeper(config: Config, *, store: AnyStore, clock: Clock, events: Events, spool: Spool) -> Timekeeper:
    retention = Retention(
        completed_ms=int(config.keep_completed * 1000),
        dead_ms=int(config.keep_dead * 1000),
        log_ms=int(config.keep_log * 1000),
    )
    return Timekeeper(store=store, clock=clock, events=events, retention=retention, remove_blobs=spool.remove)


class Hand(Protocol):
    """Somebody who acts for bots."""

    def add(self, bot: BotRecord) -> None: ...

    def remove(self, bot_id: int) -> None: ...


class Hands:
    """The desk's engine: what it says of bots goes to everybody who acts for them, and the rest to the courier."""

    def __init__(self, courier: Courier, leases: Leases) -> None:
        self._courier = courier
        self._leases = leases
        self._all: list[Hand] = [courier]
        self.chat_of = courier.chat_of
        self.express = courier.express
        self.why = courier.why
        self.watch = courier.watch
        self.open_chat = courier.open_chat
        self.hold_chat = courier.hold_chat

    def join(self, hand: Hand) -> None:
        self._all.append(hand)

    def add(self, bot: BotRecord) -> None:
        for hand in self._all:
            hand.add(bot)
        if not self._leases.holds(bot.bot_id):
            self._leases.ring()  # one that is new may be ours to act for

    def remove(self, bot_id: int) -> None:
        for hand in self._all:
            hand.remove(bot_id)
        self._leases.forget(bot_id)


def carrier_to(address: RouteAddress, config: Config) -> Carrier:
    api_root = address.api_root or config.api_root
    trust = _trust(api_root, config)
    connect = _connect(address, api_root, trust)
    return PartedCarrier(
        # One connection per call in flight: a bot's calls never queue for a connection behind another's.
        letters=BotApiCarrier(
            api_root, connections_max=max(256, config.in_flight * 4), connect=connect, ssl_context=trust
        ),
        polls=BotApiCarrier(api_root, connections_max=POLLS_MAX, connect=connect, ssl_context=trust),
    )


def poster_of(config: Config) -> HttpPoster:
    trust = None if config.ca_file is None else client_context(config.ca_file)
    return HttpPoster(may_be_private=config.hooks_allow_private, ssl_context=trust)


def pusher_of(config: Config) -> HttpPusher:
    trust = None if config.ca_file is None else client_context(config.ca_file)
    return HttpPusher(may_be_private=config.pushes_may_be_private, ssl_context=trust)


def downloader_to(address: RouteAddress, config: Config) -> HttpDownloader:
    api_root = address.api_root or config.api_root
    trust = _trust(api_root, config)
    return HttpDownloader(api_root, connect=_connect(address, api_root, trust), ssl_context=trust)


def _trust(api_root: str, config: Config) -> ssl.SSLContext | None:
    return client_context(config.ca_file) if api_root.startswith("https:") else None


def _connect(address: RouteAddress, api_root: str, trust: ssl.SSLContext | None) -> Connect | None:
    """The way through a proxy. None: straight to the API root."""
    if address.kind not in (RouteKind.HTTP, RouteKind.SOCKS5):
        return None
    proxy = Proxy(host=address.host, port=address.port, user=address.user, password=address.password)
    parts = urllib.parse.urlsplit(api_root)
    is_tls = parts.scheme == "https"
    through = through_http if address.kind is RouteKind.HTTP else through_socks5
    return through(
        proxy,
        host=parts.hostname or "",
        port=parts.port or (443 if is_tls else 80),
        ssl_context=trust,
    )
