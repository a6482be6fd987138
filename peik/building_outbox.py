"""How the outbox is put together: the desk, who sends for it, and who acts beside it for the same bots."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from peik.building_accounts import AccountWays
from peik.building_ground import Ground
from peik.building_routes import routes_of
from peik.carrier_ports import Carrier
from peik.config import Config
from peik.core.problem import Problem
from peik.core.token import Token
from peik.desk import Defaults, Desk
from peik.engine.courier import Courier
from peik.engine.hooks import Hooks
from peik.engine.leases import Lease, Leases
from peik.engine.routes import Routes
from peik.engine.sender import Sender, Terms
from peik.engine.timekeeper import Timekeeper
from peik.errors import StartError
from peik.guests import Guests
from peik.hook_ports import Poster
from peik.ports import BotRecord, Retention
from peik.sessions.ports import Line


class Outbox(msgspec.Struct, frozen=True, kw_only=True):
    leases: Leases
    routes: Routes
    ways: AccountWays
    courier: Courier
    hands: "Hands"
    desk: Desk
    timekeeper: Timekeeper
    hooks: Hooks


def outbox_of(
    ground: Ground, carriers: Sequence[Carrier], poster: Poster, *, line_of: Callable[[int], Line | None]
) -> Outbox:
    """`line_of`: the connection of an account, by its user id."""
    config, clock, events, store = ground.config, ground.clock, ground.events, ground.store
    leases = Leases(store=store.nodes, clock=clock, events=events)
    routes = routes_of(ground, carriers, probe_token=lambda: courier.probe_token())
    timekeeper = _timekeeper(ground)
    ways = AccountWays(line_of, clock=clock, chance=ground.chance, events=events, trial_s=config.route_trial)
    courier = _courier(ground, leases, routes, ways)
    store.listen(courier)
    hands = Hands(courier, leases)
    desk = Desk(
        store=store,
        engine=hands,
        clock=clock,
        events=events,
        defaults=_defaults(config),
        expect=timekeeper.expect,
        guests=Guests(store.papers, clock),
    )
    return Outbox(
        leases=leases,
        routes=routes,
        ways=ways,
        courier=courier,
        hands=hands,
        desk=desk,
        timekeeper=timekeeper,
        hooks=Hooks(store=store, poster=poster, clock=clock, settled=ground.settled, events=events),
    )


def _timekeeper(ground: Ground) -> Timekeeper:
    config = ground.config
    retention = Retention(
        completed_ms=int(config.keep_completed * 1000),
        dead_ms=int(config.keep_dead * 1000),
        log_ms=int(config.keep_log * 1000),
    )
    return Timekeeper(
        store=ground.store,
        clock=ground.clock,
        settled=ground.settled,
        events=ground.events,
        retention=retention,
        remove_blobs=ground.spool.remove,
    )


def _courier(ground: Ground, leases: Leases, routes: Routes, ways: AccountWays) -> Courier:
    config, clock, events = ground.config, ground.clock, ground.events
    terms = Terms(
        in_flight_max=config.in_flight,
        timeout_s=config.timeout,
        upload_timeout_s=config.upload_timeout,
        is_paced=config.pace,
    )

    def make_sender(bot: BotRecord, lease: Lease) -> Sender:
        by = ways.of(bot) if bot.token.is_account else routes
        return Sender(
            bot, lease, store=ground.store, routes=by, spool=ground.spool, clock=clock, events=events, terms=terms
        )

    return Courier(clock=clock, events=events, lease_of=leases.of, make_sender=make_sender, routes=routes)


def _defaults(config: Config) -> Defaults:
    return Defaults(
        attempts=config.attempts,
        backoff_ms=config.backoff_ms,
        hooks_may_be_private=config.hooks_allow_private,
        may_be_pushed=config.public_url is not None,
    )


def tokens_of(config: Config) -> list[Token]:
    """Those of the settings. Raises StartError for one that is none."""
    try:
        return [Token(text) for text in config.tokens()]
    except Problem as problem:
        raise StartError(f"BOT_TOKEN or PEIK_BOT_TOKENS: {problem.detail}") from None


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
