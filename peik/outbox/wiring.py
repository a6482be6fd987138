"""How the outbox is put together: the service, who sends for it, and who acts beside it for the same bots."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from peik.accounts.events import SessionUp
from peik.accounts.letters import AccountCarrier
from peik.app.context import Context
from peik.archive.store import Session
from peik.clock import Clock
from peik.core.events import Event, Events
from peik.core.nodes import CHORES
from peik.core.token import Token
from peik.errors import NotFound, Problem, StartError
from peik.outbox.courier import Courier, Timekeeper
from peik.outbox.hooks import Hooks
from peik.outbox.leases import Lease, Leases
from peik.outbox.message_log import MessageLogCopy
from peik.outbox.provisional import ProvisionalIds
from peik.outbox.sender import Sender, SenderTerms
from peik.outbox.service import Defaults, Guests, OutboxService
from peik.outbox.store import BotRecord, Poster, Retention
from peik.settings.config import Config
from peik.settings.values import PendingId, RouteKind, StoreKind
from peik.storage.message_log import message_log_of
from peik.telegram.port import Carrier
from peik.telegram.routes import Route, Routes
from peik.telegram.wiring import routes_of

if TYPE_CHECKING:
    from peik.accounts.runner import SessionRunner  # it needs packages beyond the core install

# Accounts as senders of letters: who may run them, and the way that their letters go.


class LeaseRights:
    """The port `Rights`: a session runs where its account's letters are sent from. One whose account is not known yet belongs
    to the node with the chores, which also enlists accounts."""

    def __init__(self, service: OutboxService, leases: Leases, accounts: "LetterAccounts") -> None:
        self._service = service
        self._leases = leases
        self._accounts = accounts

    def may_run(self, session: Session) -> bool:
        if session.user_id is None or self._service.known(session.user_id) is None:
            return self._leases.holds(CHORES)
        return self._leases.holds(session.user_id)

    async def enlist(self, sessions: Sequence[Session]) -> None:
        if not self._leases.holds(CHORES):
            return
        for session in sessions:
            if session.user_id is not None:
                await self._accounts.add(session.user_id, session.username)


class LetterAccounts:
    """The port `Accounts` of the sessions' service."""

    def __init__(self, service: OutboxService) -> None:
        self._service = service

    async def add(self, user_id: int, username: str | None) -> None:
        known = self._service.known(user_id)
        if known is None or (known.token.is_account and username not in (None, known.username)):
            await self._service.save_account(user_id, username)

    async def remove(self, user_id: int) -> None:
        known = self._service.known(user_id)
        if known is not None and known.token.is_account:
            try:
                await self._service.remove_bot(user_id)
            except NotFound:
                return  # another node was quicker


class AccountWays:
    """The way of each account's letters: its own connection, with a breaker of its own. One that is away holds up no other."""

    def __init__(
        self,
        line_of: "Callable[[int], SessionRunner | None]",
        *,
        clock: Clock,
        chance: random.Random,
        events: Events,
        trial_s: float,
    ) -> None:
        self._carrier = AccountCarrier(line_of)
        self._clock = clock
        self._chance = chance
        self._trial_s = trial_s
        self._unheard = Events()  # what becomes of an account's connection is told by its session
        self._ways: dict[int, Routes] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        events.listen(self._listen, SessionUp)

    def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def of(self, bot: BotRecord) -> Routes:
        if bot.bot_id not in self._ways:
            way = Route(
                f"account {bot.bot_id}",
                self._carrier,
                kind=RouteKind.DIRECT,
                clock=self._clock,
                chance=self._chance,
                events=self._unheard,
                probe_token=lambda: bot.token,
                trial_s=self._trial_s,
                is_watched=False,
            )
            routes = self._ways[bot.bot_id] = Routes([way], clock=self._clock, events=self._unheard)
            if self._group is not None:
                self._tasks[bot.bot_id] = self._group.create_task(routes.run())
        return self._ways[bot.bot_id]

    def add(self, bot: BotRecord) -> None:
        """See `peik.outbox.wiring.Hand`."""

    def remove(self, bot_id: int) -> None:
        self._ways.pop(bot_id, None)
        task = self._tasks.pop(bot_id, None)
        if task is not None:
            task.cancel()

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def close(self) -> None:
        await self._carrier.close()

    def _listen(self, told: Sequence[Event]) -> None:
        for event in told:
            if isinstance(event, SessionUp) and (routes := self._ways.get(event.bot_id)) is not None:
                routes.probe_now()


class Outbox(msgspec.Struct, frozen=True, kw_only=True):
    leases: Leases
    routes: Routes
    ways: AccountWays
    courier: Courier
    workers: "BotWorkers"
    service: OutboxService
    timekeeper: Timekeeper
    hooks: Hooks
    log_copy: MessageLogCopy | None = None


def outbox_of(
    context: Context, carriers: Sequence[Carrier], poster: Poster, *, line_of: "Callable[[int], SessionRunner | None]"
) -> Outbox:
    """`line_of`: the connection of an account, by its user id."""
    config, clock, events, store = context.config, context.clock, context.events, context.store
    leases = Leases(store=store.nodes, clock=clock, events=events)
    routes = routes_of(context, carriers, probe_token=lambda: courier.probe_token())
    is_on = config.pending_id is PendingId.PROVISIONAL
    provisional = ProvisionalIds(
        store=store,
        documents=store.documents,
        clock=clock,
        is_on=is_on,
        same_chat=lambda bot_id, chat: courier.chat_of(bot_id, chat),
    )
    timekeeper = _timekeeper(context, provisional)
    ways = AccountWays(line_of, clock=clock, chance=context.chance, events=events, trial_s=config.route_trial)
    courier = _courier(context, leases, routes, ways)
    store.listen(courier)
    workers = BotWorkers(courier, leases)
    service = OutboxService(
        store=store,
        engine=workers,
        clock=clock,
        events=events,
        defaults=Defaults.of(config, may_be_pushed=config.public_url is not None),
        expect=timekeeper.expect,
        guests=Guests(store.documents, clock),
        provisional=provisional,
    )
    return Outbox(
        leases=leases,
        routes=routes,
        ways=ways,
        courier=courier,
        workers=workers,
        service=service,
        timekeeper=timekeeper,
        hooks=Hooks(store=store, poster=poster, clock=clock, settled=context.settled, events=events),
        log_copy=_log_copy(context, leases),
    )


def _log_copy(context: Context, leases: Leases) -> MessageLogCopy | None:
    """Raises StartError."""
    config = context.config
    if config.message_log is None:
        return None
    if config.store_kind is not StoreKind.REDIS:
        raise StartError(
            "PEIK_MESSAGE_LOG is for a store on Redis: this one keeps telegram_message_logs itself. Leave the setting out."
        )
    return MessageLogCopy(
        context.store,
        message_log_of(config.message_log),
        is_chief=lambda: leases.is_live(CHORES),
        keep_ms=int(config.keep_log * 1000),
        clock=context.clock,
        events=context.events,
    )


def _timekeeper(context: Context, provisional: ProvisionalIds) -> Timekeeper:
    config = context.config
    retention = Retention(
        completed_ms=int(config.keep_completed * 1000),
        dead_ms=int(config.keep_dead * 1000),
        log_ms=int(config.keep_log * 1000),
    )
    return Timekeeper(
        store=context.store,
        clock=context.clock,
        settled=context.settled,
        events=context.events,
        retention=retention,
        provisional=provisional,
        remove_blobs=context.spool.remove,
    )


def _courier(context: Context, leases: Leases, routes: Routes, ways: AccountWays) -> Courier:
    config, clock, events = context.config, context.clock, context.events
    terms = SenderTerms(
        in_flight_max=config.in_flight,
        timeout_s=config.timeout,
        upload_timeout_s=config.upload_timeout,
        is_paced=config.pace,
    )

    def make_sender(bot: BotRecord, lease: Lease) -> Sender:
        by = ways.of(bot) if bot.token.is_account else routes
        return Sender(
            bot, lease, store=context.store, routes=by, spool=context.spool, clock=clock, events=events, terms=terms
        )

    return Courier(clock=clock, events=events, lease_of=leases.of, make_sender=make_sender, routes=routes)


def tokens_of(config: Config) -> list[Token]:
    """Those of the settings. Raises StartError for one that is none."""
    try:
        return [Token(text) for text in config.tokens()]
    except Problem as problem:
        raise StartError(f"BOT_TOKEN or PEIK_BOT_TOKENS: {problem.detail}") from None


class BotWorker(Protocol):
    """Somebody who acts for bots."""

    def add(self, bot: BotRecord) -> None: ...

    def remove(self, bot_id: int) -> None: ...


class BotWorkers:
    """The service's engine: what it says of bots goes to everybody who acts for them, and the rest to the courier."""

    def __init__(self, courier: Courier, leases: Leases) -> None:
        self._courier = courier
        self._leases = leases
        self.all: list[BotWorker] = [courier]
        self.chat_of = courier.chat_of
        self.express = courier.express
        self.why = courier.why
        self.watch = courier.watch
        self.open_chat = courier.open_chat
        self.hold_chat = courier.hold_chat

    def add(self, bot: BotRecord) -> None:
        for hand in self.all:
            hand.add(bot)
        if not self._leases.holds(bot.bot_id):
            self._leases.ring()  # one that is new may be ours to act for

    def remove(self, bot_id: int) -> None:
        for hand in self.all:
            hand.remove(bot_id)
        self._leases.forget(bot_id)
