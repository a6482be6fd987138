"""setWebhook and its kin, and what an acknowledged push may ask for in return.

See docs/telegram.md, Setting a webhook.
"""

import ipaddress
import re
from urllib.parse import urlsplit

import msgspec

from peik.testing.answer import (
    Answer,
    Described,
    Json,
    Params,
    Pending,
    Refusal,
    bad,
    failure,
    flag,
    integer,
    sequence,
    success,
    text_of,
    too_many,
)
from peik.testing.faults import MIB
from peik.testing.sends import Handler
from peik.testing.updates import ALL_TYPES, DEFAULT_TYPES, Deliveries, UpdateEvent
from peik.testing.world import SimBot, SimCall, Webhook, World

# getUpdates: what it answers, when it parks, and whom it throws out.
#
# See docs/telegram.md, Polling, and docs/telegram.md, Conflicts.


LONG_POLL_S_MAX = 50
CONFLICT_DELAY_S = 3.0

WEBHOOK_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)
OTHER_POLL = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
BY_SET_WEBHOOK = "Conflict: terminated by setWebhook request"


def get_updates(world: World, call: SimCall) -> object:
    bot, poller = call.bot, call.bot.poller
    if bot.webhook is not None or bot.webhook_check is not None:
        return conflict(bot, WEBHOOK_ACTIVE, call.now)
    offset = integer(call.params, "offset")
    limit = min(max(integer(call.params, "limit", 100), 1), 100)
    timeout_s: float = min(max(integer(call.params, "timeout"), 0), LONG_POLL_S_MAX)
    allow(bot, call.params)

    if world.options.anti_busy_loop and offset == poller.offset:
        if call.now < poller.started_at + 3.0:
            timeout_s = max(timeout_s, 3.0)
        if call.now < poller.started_at + 0.5:
            limit = 1
    poller.offset, poller.started_at = offset, call.now

    events = _read(world, bot, offset, limit)
    if events or timeout_s == 0:
        return batch(events)
    # Only now is an older poll thrown out: a second poller that finds updates just takes them.
    throw_out(bot, OTHER_POLL, call.now)
    parked = Pending(due_at=call.now + timeout_s, ask=lambda: _wake(world, bot, parked, offset=offset, limit=limit))
    poller.parked = parked
    return parked


def _wake(world: World, bot: SimBot, parked: Pending, *, offset: int, limit: int) -> Answer:
    if bot.poller.parked is parked:
        bot.poller.parked = None
    return success(batch(_read(world, bot, offset, limit)))


def _read(world: World, bot: SimBot, offset: int, limit: int) -> list[UpdateEvent]:
    expired_before = bot.queue.expired
    events = bot.queue.get(offset=offset, limit=limit, now=world.now())
    world.counters.updates_expired += bot.queue.expired - expired_before
    return events


def batch(events: list[UpdateEvent]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join([event.body for event in events]) + b"]")


def allow(bot: SimBot, params: Params) -> None:
    """Take over `allowed_updates`: kept from call to call, shared by polling and webhook."""
    if "allowed_updates" not in params:
        return
    try:
        names = sequence(params, "allowed_updates", what="strings")
    except Refusal:
        return  # what cannot be read counts as absent
    if names is None:
        return
    known = frozenset(str(name).lower() for name in names) & frozenset(ALL_TYPES)
    bot.allowed = known or DEFAULT_TYPES


def throw_out(bot: SimBot, text: str, now: float) -> None:
    """End the parked poll, if there is one, with a 409: the newest caller wins."""
    parked, bot.poller.parked = bot.poller.parked, None
    if parked is not None:
        parked.settle(failure(Refusal(409, text)), due_at=_conflict_at(bot, now))


def conflict(bot: SimBot, text: str, now: float) -> Pending:
    due_at = _conflict_at(bot, now)
    if due_at <= now:
        raise Refusal(409, text)
    return Pending(due_at=due_at, answer=failure(Refusal(409, text)))


def _conflict_at(bot: SimBot, now: float) -> float:
    if now >= bot.poller.next_conflict_at:
        bot.poller.next_conflict_at = now + CONFLICT_DELAY_S
        return now
    return now + CONFLICT_DELAY_S


POLLING: dict[str, Handler] = {"getUpdates": get_updates}


PORTS = frozenset({80, 88, 443, 8443})
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")
OTHER_SET = "Conflict: terminated by other setWebhook"


class WebhookCheck(Pending):
    """A setWebhook that waits for one TCP connect. Whoever carries it out tells `Telegram.connected` how that went."""

    __slots__ = ("_world", "bot", "call", "host", "port", "webhook")

    def __init__(self, world: World, call: SimCall, webhook: Webhook, *, host: str, port: int) -> None:
        super().__init__(
            due_at=call.now + world.options.webhook_timeout_s, ask=lambda: self.end("Connection timed out")
        )
        self._world = world
        self.bot = call.bot
        self.call = call
        self.webhook = webhook
        self.host = host
        self.port = port

    def end(self, error: str) -> Answer:
        """The answer, now that the connect is over; "" is no error."""
        if self.bot.webhook_check is self:
            self.bot.webhook_check = None
            if not error:
                return success(_install(self._world, self.call, self.webhook))
        # The old webhook is gone by now.
        return failure(bad(f"bad webhook: {error}"))


def set_webhook(world: World, call: SimCall) -> object:
    url = text_of(call.params, "url").strip()
    if not url:
        return delete_webhook(world, call)
    bot = call.bot
    if call.now < bot.webhook_set_at + 1.0 or bot.webhook_check is not None:
        raise too_many(1)
    webhook, host, port = _checked(world, call, url)
    bot.webhook_set_at = call.now
    allowed_before = bot.allowed
    allow(bot, call.params)
    if bot.webhook is not None and bot.allowed == allowed_before and _is_same(bot.webhook, webhook):
        if flag(call.params, "drop_pending_updates"):
            bot.queue.clear()
        return Described(result=True, description="Webhook is already set")
    bot.webhook = None
    throw_out(bot, BY_SET_WEBHOOK, call.now)
    if world.options.verify_webhooks:
        check = WebhookCheck(world, call, webhook, host=webhook.ip_address or host, port=port)
        bot.webhook_check = check
        return check
    return _install(world, call, webhook)


def _install(world: World, call: SimCall, webhook: Webhook) -> Described:
    bot = call.bot
    if flag(call.params, "drop_pending_updates"):
        bot.queue.clear()
    webhook.deliveries = Deliveries(bot.queue, connections_max=webhook.connections_max, chance=world.chance)
    bot.webhook = webhook
    world.note_applied(call, text=webhook.url)
    if world.updated is not None:
        world.updated(bot)
    return Described(result=True, description="Webhook was set")


def _checked(world: World, call: SimCall, url: str) -> tuple[Webhook, str, int]:
    """The webhook a request describes, with the host and port to connect to. Raises Telegram's refusals."""
    is_local = world.options.mode == "local"
    host, port = _address(url, is_local=is_local)
    secret = text_of(call.params, "secret_token")
    if secret and not _SECRET.fullmatch(secret):
        unallowed = len(secret) <= 256
        raise bad("secret token contains unallowed characters" if unallowed else "secret token is too long")
    certificate = call.files.get("certificate")
    if certificate is not None and len(certificate.content) > 3 * MIB:
        raise bad("certificate size is too big (3 MB maximum)")
    most = 100_000 if is_local else 100
    webhook = Webhook(
        url=url,
        secret_token=secret,
        ip_address=text_of(call.params, "ip_address"),
        connections_max=min(max(integer(call.params, "max_connections", 100 if is_local else 40), 1), most),
        certificate=certificate.content if certificate is not None else b"",
        deliveries=Deliveries(call.bot.queue, connections_max=1, chance=world.chance),
    )
    if not is_local:
        _refuse_reserved(webhook.ip_address or host)
    return webhook, host, port


def _address(url: str, *, is_local: bool) -> tuple[str, int]:
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        raise bad("invalid webhook URL specified") from None
    if not host or parts.scheme not in {"http", "https"}:
        raise bad("invalid webhook URL specified")
    if not is_local:
        if parts.scheme != "https":
            raise bad("bad webhook: An HTTPS URL must be provided for webhook")
        if port not in PORTS:
            raise bad("bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")
    return host, port


def _refuse_reserved(host: str) -> None:
    if host == "localhost":
        raise bad("bad webhook: IP address 127.0.0.1 is reserved")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if address.version == 6:
        raise bad("bad webhook: IPv6-only addresses are not allowed")
    if not address.is_global:
        raise bad(f"bad webhook: IP address {host} is reserved")


def _is_same(one: Webhook, other: Webhook) -> bool:
    names = ("url", "secret_token", "ip_address", "connections_max")
    # A certificate always counts as new.
    return not other.certificate and all(getattr(one, name) == getattr(other, name) for name in names)


def delete_webhook(world: World, call: SimCall) -> object:
    bot = call.bot
    if flag(call.params, "drop_pending_updates"):
        bot.queue.clear()
    if bot.webhook_check is not None:
        bot.webhook_check.settle(failure(Refusal(409, OTHER_SET)), due_at=call.now)
        bot.webhook_check = None
    if bot.webhook is None:
        return Described(result=True, description="Webhook is already deleted")
    bot.webhook = None
    world.note_applied(call)
    return Described(result=True, description="Webhook was deleted")


def webhook_info(world: World, call: SimCall) -> object:
    bot, webhook = call.bot, call.bot.webhook
    bot.queue.expire(call.now)
    info: Json = {
        "url": webhook.url if webhook else "",
        "has_custom_certificate": bool(webhook and webhook.certificate),
        "pending_update_count": bot.queue.size,
    }
    if webhook is not None:
        info["max_connections"] = webhook.connections_max
        info["ip_address"] = webhook.ip_address or "<unknown>"
        if webhook.error_at is not None:
            info |= {"last_error_date": int(webhook.error_at), "last_error_message": webhook.error}
    if bot.allowed != DEFAULT_TYPES:
        info["allowed_updates"] = [name for name in ALL_TYPES if name in bot.allowed]
    return info


# What a webhook's answer may not call (docs/telegram.md, Methods in webhook answers).
_NOT_IN_ANSWERS = frozenset({"setwebhook", "deletewebhook", "close", "logout"})


def method_in_answer(params: Json) -> str | None:
    """The method that a 2xx body asks to be executed, if it is one that may."""
    name = params.get("method")
    if not isinstance(name, str) or name.lower() in _NOT_IN_ANSWERS or name.lower().startswith("get"):
        return None
    return name


def note_failure(bot: SimBot, reason: str, *, now: float) -> None:
    if bot.webhook is not None:
        bot.webhook.error_at, bot.webhook.error = now, reason


WEBHOOKS: dict[str, Handler] = {
    "setWebhook": set_webhook,
    "deleteWebhook": delete_webhook,
    "getWebhookInfo": webhook_info,
}
