"""How the inbox is put together: what it needs of the outbox and the routes comes in as small functions."""

from collections.abc import Collection, Sequence
from functools import partial

import msgspec

from peik.app.context import Context
from peik.backups.model import restored_at_ms
from peik.core.address import AddressReach
from peik.core.letter import Chat, LetterCall
from peik.core.methods import classify
from peik.core.notice import limited_text
from peik.core.outcome import Delivered, judge
from peik.errors import Conflict, NotFound
from peik.inbox.consumers import ConsumerLimits, Consumers
from peik.inbox.intake import Intake
from peik.inbox.outages import Outages, OutageSettlement
from peik.inbox.poller import Poller, PollTerms
from peik.inbox.service import InboxService, Recovery
from peik.inbox.sources import Receiver
from peik.inbox.store import ArrivalRetention, OutgoingPush, PushPort
from peik.inbox.texts import load_texts
from peik.inbox.upkeep import InboxUpkeep
from peik.inbox.webhooks import PushedUpdates, WebhookKeeper
from peik.outbox.leases import Leases
from peik.outbox.store import BotRecord
from peik.outbox.wiring import Outbox
from peik.settings.config import Config
from peik.settings.values import RouteKind
from peik.telegram.port import Request

ANSWER_S = 10.0  # for an answer to a button press; Telegram takes none that comes much later
HOUR_MS = 3600 * 1000


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    service: InboxService
    receiver: Receiver
    outages: Outages
    consumers: Consumers
    upkeep: InboxUpkeep


def inbox_of(context: Context, outbox: Outbox, pusher: PushPort) -> Inbox:
    outages = _outages(context, outbox)
    consumers = _consumers(context, outbox, outages, pusher)
    receiver = _receiver(context, outbox, outages)
    outbox.workers.all.append(receiver)
    outbox.workers.all.append(consumers)
    inbox = InboxService(
        store=context.store.inbox,
        clock=context.clock,
        events=context.events,
        missed_after_s=context.config.missed_after,
        runners=consumers,
        outages=outages,
        recover=lambda bot_id: _recover(outbox.leases, receiver, outbox.service.bot(bot_id)),
        likely_s=context.config.trace_likely,
        redelivery_s=context.config.polling_redelivery.of,
        reach_of=partial(_reach_of, context, outbox),
        consumers_max=context.config.consumers_max,
        as_told=outbox.service.provisional.arrivals,
    )
    return Inbox(service=inbox, receiver=receiver, outages=outages, consumers=consumers, upkeep=_upkeep(context))


async def _reach_of(context: Context, outbox: Outbox, bot_id: int) -> AddressReach:
    return context.config.pushes_reach(is_guest=await outbox.service.guests.has(bot_id))


def _outages(context: Context, outbox: Outbox) -> Outages:
    config, clock, events, store = context.config, context.clock, context.events, context.store
    service, routes = outbox.service, outbox.routes

    def bot(bot_id: int) -> BotRecord | None:
        try:
            return service.bot(bot_id)
        except NotFound:
            return None

    async def accept(bot_id: int, calls: Sequence[OutgoingPush]) -> None:
        await service.accept([_call(bot_id, call) for call in calls])

    async def answer(bot_id: int, method: str, params: bytes) -> bool:
        token = service.bot(bot_id).token
        reply = await routes.carry(Request(token=token, method=method, params=params, timeout_s=ANSWER_S))
        return isinstance(judge(reply, method=method), Delivered)

    return Outages(
        store=store.inbox,
        clock=clock,
        events=events,
        settling=OutageSettlement(
            store=store.inbox, clock=clock, texts=load_texts(config.texts), accept=accept, answer=answer
        ),
        bot=bot,
        policy=config.missed,
        missed_after_s=config.missed_after,
    )


def _call(bot_id: int, call: OutgoingPush) -> LetterCall:
    return LetterCall(
        bot_id=bot_id,
        method=call.method,
        params=call.params,
        idempotency_key=call.idempotency_key,
        metadata=call.metadata,
    )


def _consumers(context: Context, outbox: Outbox, outages: Outages, pusher: PushPort) -> Consumers:
    config, clock, events, store = context.config, context.clock, context.events, context.store
    service, routes = outbox.service, outbox.routes
    texts = load_texts(config.texts)

    async def accept(bot_id: int, method: str, params: bytes, idempotency_key: str) -> None:
        """A call that a bot put into its answer to a push. What cannot wait in a queue is carried at once, one time."""
        _, kind = classify(method)
        if kind is not None and kind.is_queued:
            await service.accept(
                [LetterCall(bot_id=bot_id, method=method, params=params, idempotency_key=idempotency_key)]
            )
        else:
            request = Request(token=service.bot(bot_id).token, method=method, params=params, timeout_s=ANSWER_S)
            await routes.carry(request)

    async def tell_limited(bot_id: int, user_id: int, chat: Chat, language_code: str | None) -> None:
        """Once an hour at most, however many consumers a bot has."""
        params = msgspec.json.encode({"chat_id": chat, "text": limited_text(texts.words(language_code))})
        key = f"limited:{user_id}:{clock.wall_ms() // HOUR_MS}"
        await service.accept([LetterCall(bot_id=bot_id, method="sendMessage", params=params, idempotency_key=key)])

    return Consumers(
        store=store.inbox,
        clock=clock,
        events=events,
        limits=ConsumerLimits(
            handlers=config.handlers,
            handler_timeout_s=config.handler_timeout,
            handler_attempts=config.handler_attempts,
            user_rate=config.user_rate,
            catch_up_rate=config.catch_up_rate,
            missed_after_s=config.missed_after,
        ),
        pusher=pusher,
        reach_of=partial(_reach_of, context, outbox),
        accept=accept,
        locks=store.nodes,
        is_served=outbox.leases.holds,
        is_live=outbox.leases.is_live,
        outages=outages,
        tell_limited=tell_limited,
        as_told=service.provisional.arrivals,
    )


def _receiver(context: Context, outbox: Outbox, outages: Outages) -> Receiver:
    config, clock, events, store = context.config, context.clock, context.events, context.store
    service, courier = outbox.service, outbox.courier

    async def spoke(bot_id: int, chats: Collection[Chat]) -> None:
        """A chat that could not be reached can be, if it is heard of: nearly always there is none such, and no cost."""
        for chat in chats:
            if courier.is_chat_shut(bot_id, chat):
                await service.open_chat(bot_id, courier.chat_of(bot_id, chat))

    terms = PollTerms(
        server=numbering_of(config),
        timeout_s=config.poll_timeout,
        update_types=config.update_types,
        public_url=config.public_url,
        missed_after_s=config.missed_after,
    )
    intake = Intake(store=store.inbox, clock=clock, events=events, spoke=spoke)
    pushed = PushedUpdates(store=store.inbox, secret_store=store, intake=intake, events=events)

    def make_poller(bot: BotRecord, is_visitor: bool) -> Poller:
        return Poller(
            bot,
            way=courier.routes,
            store=store.inbox,
            intake=intake,
            outages=outages,
            clock=clock,
            events=events,
            chance=context.chance,
            terms=terms,
            restored_at=partial(restored_at_ms, store.documents),
            is_visitor=is_visitor,
        )

    def make_keeper(bot: BotRecord) -> WebhookKeeper:
        return WebhookKeeper(
            bot,
            way=courier.routes,
            store=store.inbox,
            outages=outages,
            clock=clock,
            events=events,
            chance=context.chance,
            terms=terms,
            secret=pushed.secret,
        )

    receiver = Receiver(
        events=events,
        outages=outages,
        pushed=pushed,
        is_served=outbox.leases.holds,
        make_poller=make_poller,
        make_keeper=make_keeper,
    )
    courier.routes.when_back(receiver.wake_all)
    return receiver


def numbering_of(config: Config) -> str:
    """Whose numbers updates have: those of a local server of ours, if one is among the routes."""
    local = next((address.api_root for address in config.routes if address.kind is RouteKind.LOCAL), None)
    return local or config.api_root


async def _recover(leases: Leases, receiver: Receiver, bot: BotRecord) -> Recovery:
    if not leases.holds(bot.bot_id):
        detail = (
            "Another process fetches the updates of this bot. "
            "Ask that one (`peik nodes` or GET /v1/nodes says which it is)."
        )
        raise Conflict(code="not_owner", detail=detail)
    return await receiver.recover(bot)


def _upkeep(context: Context) -> InboxUpkeep:
    config = context.config
    retention = ArrivalRetention(
        read_ms=int(config.keep_arrivals * 1000),
        unread_ms=int(config.keep_unread * 1000),
        idle_ms=int(config.consumer_idle * 1000),
    )
    return InboxUpkeep(
        store=context.store.inbox,
        documents=context.store.documents,
        clock=context.settled,
        events=context.events,
        retention=retention,
    )
