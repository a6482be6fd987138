"""How the inbox is put together: what it needs of the desk and the routes comes in as small functions."""

import difflib
import random
import socket
from collections.abc import Callable, Collection, Sequence

import msgspec

from peik.clock import Clock
from peik.config import Config
from peik.core.letter import Chat
from peik.core.methods import classify
from peik.core.notice import limited_text
from peik.core.outcome import Delivered, judge
from peik.core.problem import Problem
from peik.core.token import Token
from peik.desk import Call, Desk
from peik.engine.courier import Courier
from peik.engine.routes import Routes
from peik.errors import Conflict, NotFound, StartError
from peik.events import Events
from peik.inbox.consumers import Consumers, Limits
from peik.inbox.desk import Recovery
from peik.inbox.intake import Intake
from peik.inbox.outages import Outages
from peik.inbox.poller import Poller, PollTerms
from peik.inbox.pushed import Pushed
from peik.inbox.receiver import Receiver
from peik.inbox.settling import Settling
from peik.inbox.texts import load_texts
from peik.inbox.upkeep import Upkeep
from peik.inbox.webhook_keeper import WebhookKeeper
from peik.inbox_ports import ArrivalRetention, Outgoing, Pusher
from peik.ops.alert_apprise import ways_of
from peik.ops.alert_papers import AlertPapers
from peik.ops.alert_rules import BY_NAME
from peik.ops.alerts import Alerts
from peik.ports import BotRecord, Request
from peik.settings_values import RouteKind
from peik.store.choosing import AnyStore

ANSWER_S = 10.0  # for an answer to a button press; Telegram takes none that comes much later
HOUR_MS = 3600 * 1000


def numbering_of(config: Config) -> str:
    """Whose numbers updates have: those of a local server of ours, if one is among the routes."""
    local = next((address.api_root for address in config.routes if address.kind is RouteKind.LOCAL), None)
    return local or config.api_root


def receiver_of(
    config: Config,
    *,
    events: Events,
    clock: Clock,
    chance: random.Random,
    store: AnyStore,
    desk: Desk,
    courier: Courier,
    outages: Outages,
    is_served: Callable[[int], bool],
) -> Receiver:
    async def spoke(bot_id: int, chats: Collection[Chat]) -> None:
        """A chat that could not be reached can be, if it is heard of: nearly always there is none such, and no cost."""
        for chat in chats:
            if courier.is_chat_shut(bot_id, chat):
                await desk.open_chat(bot_id, courier.chat_of(bot_id, chat))

    terms = PollTerms(
        server=numbering_of(config),
        timeout_s=config.poll_timeout,
        update_types=config.update_types,
        public_url=config.public_url,
        missed_after_s=config.missed_after,
    )
    intake = Intake(store=store.inbox, clock=clock, events=events, spoke=spoke)
    pushed = Pushed(store=store.inbox, secret_store=store, intake=intake, events=events)

    def make_poller(bot: BotRecord, is_visitor: bool) -> Poller:
        return Poller(
            bot,
            way=courier.routes,
            store=store.inbox,
            intake=intake,
            outages=outages,
            clock=clock,
            events=events,
            chance=chance,
            terms=terms,
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
            chance=chance,
            terms=terms,
            secret=pushed.secret,
        )

    receiver = Receiver(
        events=events,
        outages=outages,
        pushed=pushed,
        is_served=is_served,
        make_poller=make_poller,
        make_keeper=make_keeper,
    )
    courier.routes.when_back(receiver.wake_all)
    return receiver


async def recover_by(is_served: Callable[[int], bool], receiver: Receiver, bot: BotRecord) -> Recovery:
    if not is_served(bot.bot_id):
        detail = "Another process fetches the updates of this bot. Ask that one (GET /v1/nodes says which it is)."
        raise Conflict(code="not_owner", detail=detail)
    return await receiver.recover(bot)


def outages_of(config: Config, *, events: Events, clock: Clock, store: AnyStore, desk: Desk, routes: Routes) -> Outages:
    def bot(bot_id: int) -> BotRecord | None:
        try:
            return desk.bot(bot_id)
        except NotFound:
            return None

    async def accept(bot_id: int, calls: Sequence[Outgoing]) -> None:
        await desk.accept([_call(bot_id, call) for call in calls])

    async def answer(bot_id: int, method: str, params: bytes) -> bool:
        token = desk.bot(bot_id).token
        reply = await routes.carry(Request(token=token, method=method, params=params, timeout_s=ANSWER_S))
        return isinstance(judge(reply, method=method), Delivered)

    return Outages(
        store=store.inbox,
        clock=clock,
        events=events,
        settling=Settling(store=store.inbox, clock=clock, texts=load_texts(config.texts), accept=accept, answer=answer),
        bot=bot,
        policy=config.missed,
        missed_after_s=config.missed_after,
    )


def consumers_of(
    config: Config,
    *,
    events: Events,
    clock: Clock,
    store: AnyStore,
    desk: Desk,
    routes: Routes,
    outages: Outages,
    pusher: Pusher,
    is_served: Callable[[int], bool],
    is_live: Callable[[int], bool],
) -> Consumers:
    texts = load_texts(config.texts)

    async def accept(bot_id: int, method: str, params: bytes, *, idempotency_key: str) -> None:
        """A call that a bot put into its answer to a push. What cannot wait in a queue is carried at once, one time."""
        _, kind = classify(method)
        if kind is not None and kind.is_queued:
            await desk.accept([Call(bot_id=bot_id, method=method, params=params, idempotency_key=idempotency_key)])
        else:
            request = Request(token=desk.bot(bot_id).token, method=method, params=params, timeout_s=ANSWER_S)
            await routes.carry(request)

    async def tell_limited(bot_id: int, user_id: int, chat: Chat, language_code: str | None) -> None:
        """Once an hour at most, however many consumers a bot has."""
        params = msgspec.json.encode({"chat_id": chat, "text": limited_text(texts.words(language_code))})
        key = f"limited:{user_id}:{clock.wall_ms() // HOUR_MS}"
        await desk.accept([Call(bot_id=bot_id, method="sendMessage", params=params, idempotency_key=key)])

    return Consumers(
        store=store.inbox,
        clock=clock,
        events=events,
        limits=Limits(
            handlers=config.handlers,
            handler_timeout_s=config.handler_timeout,
            handler_attempts=config.handler_attempts,
            user_rate=config.user_rate,
            catch_up_rate=config.catch_up_rate,
            missed_after_s=config.missed_after,
        ),
        pusher=pusher,
        accept=accept,
        locks=store.nodes,
        is_served=is_served,
        is_live=is_live,
        outages=outages,
        tell_limited=tell_limited,
    )


def upkeep_of(config: Config, *, events: Events, clock: Clock, store: AnyStore) -> Upkeep:
    retention = ArrivalRetention(
        read_ms=int(config.keep_arrivals * 1000),
        unread_ms=int(config.keep_unread * 1000),
        idle_ms=int(config.consumer_idle * 1000),
    )
    return Upkeep(store=store.inbox, clock=clock, events=events, retention=retention)


def alerts_of(
    config: Config,
    *,
    clock: Clock,
    desk: Desk,
    store: AnyStore,
    is_served: Callable[[int], bool],
    has_chores: Callable[[], bool],
) -> Alerts:
    """Raises StartError for a rule that is none, or an address that Apprise does not know."""
    for name in config.alerts_off:
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, BY_NAME, n=1)
            hint = f" Did you mean {near[0]}?" if near else " docs/reference/alerts.md names all."
            raise StartError(f"PEIK_ALERTS_OFF: there is no rule {name}.{hint}")
    first = [token_of(text).bot_id for text in config.tokens()]

    def messenger() -> int | None:
        """The first bot of the settings that may send; failing that, any. None: let the desk say what is wrong."""
        able = [bot.bot_id for bot in desk.bots() if bot.paused is None and not bot.token.is_account]
        return next((bot_id for bot_id in [*first, *able] if bot_id in able), None)

    async def send(chat: str, text: str, idempotency_key: str) -> None:
        chat_id = int(chat) if chat.removeprefix("-").isdecimal() else chat
        params = msgspec.json.encode({"chat_id": chat_id, "text": text, "link_preview_options": {"is_disabled": True}})
        outgoing = Outgoing(
            method="sendMessage", params=params, idempotency_key=idempotency_key, metadata=b'{"message_type":"alert"}'
        )
        await desk.accept([_call(messenger() or 0, outgoing)])

    async def living() -> set[str]:
        return {one.name for one in await store.nodes.nodes()}

    return Alerts(
        chats=config.admin_chats,
        clock=clock,
        send=send,
        is_served=is_served,
        more_ways=ways_of(config.alert_urls),
        papers=AlertPapers(store.papers, node=store.nodes.node),
        machine="" if store.nodes.lease_s is None else socket.gethostname(),
        off=config.alerts_off,
        has_chores=has_chores,
        living=None if store.nodes.lease_s is None else living,
    )


def _call(bot_id: int, call: Outgoing) -> Call:
    return Call(
        bot_id=bot_id,
        method=call.method,
        params=call.params,
        idempotency_key=call.idempotency_key,
        metadata=call.metadata,
    )


def token_of(text: str) -> Token:
    try:
        return Token(text)
    except Problem as problem:
        raise StartError(f"BOT_TOKEN or PEIK_BOT_TOKENS: {problem.detail}") from None
