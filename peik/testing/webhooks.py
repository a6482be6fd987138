"""setWebhook and its kin, and what an acknowledged push may ask for in return.

See docs/telegram.md, Setting a webhook.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from peik.testing import polling
from peik.testing.answer import Answer, Described, Pending, Refusal, bad, failure, success, too_many
from peik.testing.bots import Bot, Webhook
from peik.testing.deliveries import Deliveries
from peik.testing.options import MIB
from peik.testing.params import Json, flag, integer, text_of
from peik.testing.sends import Handler
from peik.testing.updates import ALL_TYPES, DEFAULT_TYPES
from peik.testing.world import Call, World

PORTS = frozenset({80, 88, 443, 8443})
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")
OTHER_SET = "Conflict: terminated by other setWebhook"


class Check(Pending):
    """A setWebhook that waits for one TCP connect. Whoever carries it out tells `Telegram.connected` how that went."""

    __slots__ = ("_world", "bot", "call", "host", "port", "webhook")

    def __init__(self, world: World, call: Call, webhook: Webhook, *, host: str, port: int) -> None:
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


def set_webhook(world: World, call: Call) -> object:
    url = text_of(call.params, "url").strip()
    if not url:
        return delete_webhook(world, call)
    bot = call.bot
    if call.now < bot.webhook_set_at + 1.0 or bot.webhook_check is not None:
        raise too_many(1)
    webhook, host, port = _checked(world, call, url)
    bot.webhook_set_at = call.now
    allowed_before = bot.allowed
    polling.allow(bot, call.params)
    if bot.webhook is not None and bot.allowed == allowed_before and _is_same(bot.webhook, webhook):
        if flag(call.params, "drop_pending_updates"):
            bot.queue.clear()
        return Described(result=True, description="Webhook is already set")
    bot.webhook = None
    polling.throw_out(bot, polling.BY_SET_WEBHOOK, call.now)
    if world.options.verify_webhooks:
        check = Check(world, call, webhook, host=webhook.ip_address or host, port=port)
        bot.webhook_check = check
        return check
    return _install(world, call, webhook)


def _install(world: World, call: Call, webhook: Webhook) -> Described:
    bot = call.bot
    if flag(call.params, "drop_pending_updates"):
        bot.queue.clear()
    webhook.deliveries = Deliveries(bot.queue, connections_max=webhook.connections_max, chance=world.chance)
    bot.webhook = webhook
    world.note_applied(call, text=webhook.url)
    if world.updated is not None:
        world.updated(bot)
    return Described(result=True, description="Webhook was set")


def _checked(world: World, call: Call, url: str) -> tuple[Webhook, str, int]:
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
        has_certificate=certificate is not None,
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
    return not other.has_certificate and all(getattr(one, name) == getattr(other, name) for name in names)


def delete_webhook(world: World, call: Call) -> object:
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


def webhook_info(world: World, call: Call) -> object:
    bot, webhook = call.bot, call.bot.webhook
    bot.queue.expire(call.now)
    info: Json = {
        "url": webhook.url if webhook else "",
        "has_custom_certificate": bool(webhook and webhook.has_certificate),
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


def note_failure(bot: Bot, reason: str, *, now: float) -> None:
    if bot.webhook is not None:
        bot.webhook.error_at, bot.webhook.error = now, reason


WEBHOOKS: dict[str, Handler] = {
    "setWebhook": set_webhook,
    "deleteWebhook": delete_webhook,
    "getWebhookInfo": webhook_info,
}
