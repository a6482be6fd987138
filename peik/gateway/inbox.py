"""The methods that the gateway answers from the inbox: getUpdates, webhooks, close, logOut. Telegram never hears of them.

How long a poll waits, and what it gets: peik/inbox/readers.py.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from peik.app.runtime import Runtime
from peik.core.arrival import DEFAULT_CONSUMER
from peik.core.call import opened
from peik.errors import BadInput, Conflict
from peik.gateway.answers import GatewayAnswer, failure, success
from peik.gateway.params import GatewayParams
from peik.inbox.readers import HangsUp
from peik.inbox.service import CONNECTIONS_LIMIT
from peik.inbox.store import Consumer, ConsumerKind, InboxTally, PushHealth
from peik.outbox.store import BotRecord

CONNECTIONS_DEFAULT = 40
UPDATES_MAX = 100


class GatewayAsk(msgspec.Struct, frozen=True, kw_only=True):
    """A call of one of Peik's own methods."""

    bot: BotRecord
    consumer: str  # whose updates: "default", or the name after the @
    given: GatewayParams
    hangs_up: HangsUp | None = None  # returns when the client has closed its connection


Own = Callable[[GatewayAsk], Awaitable[GatewayAnswer]]

# Bots know these by their words (docs/telegram.md, Conflicts).
_CONFLICTS = {
    "other_poll": "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
    "webhook_active": (
        "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
    ),
    "webhook_set": "Conflict: terminated by setWebhook request",
}
_TRUE = b"true"


class GatewayInbox:
    def __init__(self, peik: Runtime) -> None:
        self._service = peik.outbox.service
        self._inbox = peik.inbox.service
        self._pushes = peik.inbox.consumers

    def table(self) -> dict[str, Own]:
        return {
            "getUpdates": self.get_updates,
            "setWebhook": self.set_webhook,
            "deleteWebhook": self.delete_webhook,
            "getWebhookInfo": self.get_webhook_info,
            "close": self.stay,
            "logOut": self.stay,
        }

    async def get_updates(self, ask: GatewayAsk) -> GatewayAnswer:
        """What this consumer has not acknowledged yet; it waits for something if there is nothing."""
        fields = ask.given.fields()
        await self._service.receive_for(ask.bot.bot_id)
        try:
            arrivals = await self._inbox.updates(
                ask.bot.bot_id,
                ask.consumer,
                offset=_whole(fields, "offset", 0),
                limit=_whole(fields, "limit", UPDATES_MAX) or UPDATES_MAX,
                timeout_s=float(_whole(fields, "timeout", 0)),
                allowed=_names(fields),
                hangs_up=ask.hangs_up,
            )
        except Conflict as conflict:
            return failure(409, _CONFLICTS.get(conflict.code, f"Conflict: {conflict.detail}"))
        return success(b"[%b]" % b",".join(arrival.wire() for arrival in arrivals))

    async def set_webhook(self, ask: GatewayAsk) -> GatewayAnswer:
        """Push this consumer's updates to the address, by the rules of a local Bot API server."""
        fields = ask.given.fields()
        url = _text(fields, "url")
        if not url:
            return await self.delete_webhook(ask)
        if "://" not in url:
            url = f"https://{url}"  # as Telegram's server takes it
        await self._service.receive_for(ask.bot.bot_id)
        await self._drop_pending(ask, fields)
        before = await self._known(ask)
        connections = _whole(fields, "max_connections", 0) or CONNECTIONS_DEFAULT
        try:
            after = await self._inbox.set_consumer(
                ask.bot.bot_id,
                ask.consumer,
                url=url,
                secret=_text(fields, "secret_token") or None,
                allowed=_names(fields),
                connections_max=min(max(connections, 1), CONNECTIONS_LIMIT),
            )
        except Conflict as conflict:
            return failure(409, f"Conflict: {conflict.detail}")
        except BadInput as problem:
            if problem.code == "bad_secret":
                return failure(400, "Bad Request: secret token contains unallowed characters")
            return failure(400, f"Bad Request: bad webhook: {problem.detail}")
        is_same = before is not None and _way(before) == _way(after)
        return success(_TRUE, description="Webhook is already set" if is_same else "Webhook was set")

    async def delete_webhook(self, ask: GatewayAsk) -> GatewayAnswer:
        """Let this consumer read for itself again. What waits for it goes on waiting unless it is to be dropped."""
        await self._drop_pending(ask, ask.given.fields())
        before = await self._known(ask)
        if before is None or before.kind is not ConsumerKind.PUSH:
            return success(_TRUE, description="Webhook is already deleted")
        await self._inbox.set_consumer(ask.bot.bot_id, ask.consumer, url=None)
        return success(_TRUE, description="Webhook was deleted")

    async def get_webhook_info(self, ask: GatewayAsk) -> GatewayAnswer:
        tally = await self._tally(ask)
        info: dict[str, object] = {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
        if tally is not None:
            consumer = tally.consumer
            info["pending_update_count"] = tally.open - tally.handed + tally.delayed
            if consumer.kind is ConsumerKind.PUSH and consumer.url is not None:
                info["url"] = consumer.url
                info["max_connections"] = consumer.connections_max
                info |= _health(self._pushes.push_health(consumer))
            if consumer.allowed is not None:
                info["allowed_updates"] = sorted(consumer.allowed)
        return success(msgspec.json.encode(info))

    async def stay(self, ask: GatewayAsk) -> GatewayAnswer:
        """`close` and `logOut`: said by a bot that leaves or moves. Peik's own session with Telegram goes on."""
        return success(_TRUE)

    async def _drop_pending(self, ask: GatewayAsk, fields: Mapping[str, object]) -> None:
        """All that is here is over for this consumer. Nothing is deleted, and no other consumer notices."""
        if not _flag(fields, "drop_pending_updates") or await self._known(ask) is None:
            return
        state = (await self._inbox.inbox(ask.bot.bot_id)).state
        if state is not None and state.last_number:
            await self._inbox.acknowledge(ask.bot.bot_id, ask.consumer, up_to=state.last_number)

    async def _known(self, ask: GatewayAsk) -> Consumer | None:
        consumers = await self._inbox.consumers(ask.bot.bot_id)
        return next((one for one in consumers if one.name == ask.consumer), None)

    async def _tally(self, ask: GatewayAsk) -> InboxTally | None:
        tallies = await self._inbox.tallies(ask.bot.bot_id)
        return next((one for one in tallies if one.consumer.name == ask.consumer), None)


def _health(health: PushHealth | None) -> dict[str, object]:
    if health is None:
        return {"ip_address": "<unknown>"}  # as Telegram says before it has resolved the name
    shown: dict[str, object] = {"ip_address": health.ip_address or "<unknown>"}
    if health.error_at_ms is not None:
        shown |= {"last_error_date": health.error_at_ms // 1000, "last_error_message": health.error}
    return shown


def _way(consumer: Consumer) -> tuple[object, ...]:
    is_pushed = consumer.kind is ConsumerKind.PUSH
    return (is_pushed, consumer.url, consumer.secret, consumer.allowed, consumer.connections_max)


def consumer_of(name: str | None) -> str:
    return name or DEFAULT_CONSUMER


# ---- parameters, each as Telegram's server reads it: what makes no sense counts as absent ----


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value.strip() if isinstance(value, str) else ""


def _whole(fields: Mapping[str, object], name: str, default: int) -> int:
    value = fields.get(name)
    if isinstance(value, float):
        return int(value)
    if isinstance(value, int):
        return value
    text = _text(fields, name)
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else default


def _flag(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    return value.strip().lower() in ("true", "yes", "1") if isinstance(value, str) else bool(value)


def _names(fields: Mapping[str, object]) -> list[str] | None:
    """`allowed_updates`. None: not said, or not to be understood; what was said before stays."""
    value = opened(fields.get("allowed_updates"))
    return [str(name) for name in value] if isinstance(value, list) else None
