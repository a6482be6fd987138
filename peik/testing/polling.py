"""getUpdates: what it answers, when it parks, and whom it throws out.

See docs/telegram.md, Polling, and docs/telegram.md, Conflicts.
"""

import msgspec

from peik.testing.answer import Answer, Pending, Refusal, failure, success
from peik.testing.bots import Bot
from peik.testing.params import Params, integer, sequence
from peik.testing.sends import Handler
from peik.testing.updates import ALL_TYPES, DEFAULT_TYPES, Event
from peik.testing.world import Call, World

LONG_POLL_S_MAX = 50
CONFLICT_DELAY_S = 3.0

WEBHOOK_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)
OTHER_POLL = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
BY_SET_WEBHOOK = "Conflict: terminated by setWebhook request"


def get_updates(world: World, call: Call) -> object:
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


def _wake(world: World, bot: Bot, parked: Pending, *, offset: int, limit: int) -> Answer:
    if bot.poller.parked is parked:
        bot.poller.parked = None
    return success(batch(_read(world, bot, offset, limit)))


def _read(world: World, bot: Bot, offset: int, limit: int) -> list[Event]:
    expired_before = bot.queue.expired
    events = bot.queue.get(offset=offset, limit=limit, now=world.now())
    world.counters.updates_expired += bot.queue.expired - expired_before
    return events


def batch(events: list[Event]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join([event.body for event in events]) + b"]")


def allow(bot: Bot, params: Params) -> None:
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


def throw_out(bot: Bot, text: str, now: float) -> None:
    """End the parked poll, if there is one, with a 409: the newest caller wins."""
    parked, bot.poller.parked = bot.poller.parked, None
    if parked is not None:
        parked.settle(failure(Refusal(409, text)), due_at=_conflict_at(bot, now))


def conflict(bot: Bot, text: str, now: float) -> Pending:
    due_at = _conflict_at(bot, now)
    if due_at <= now:
        raise Refusal(409, text)
    return Pending(due_at=due_at, answer=failure(Refusal(409, text)))


def _conflict_at(bot: Bot, now: float) -> float:
    if now >= bot.poller.next_conflict_at:
        bot.poller.next_conflict_at = now + CONFLICT_DELAY_S
        return now
    return now + CONFLICT_DELAY_S


POLLING: dict[str, Handler] = {"getUpdates": get_updates}
