"""How fast a bot may send: who is answered 429 and for how long. Pure arithmetic over instants.

See docs/telegram.md, Flood limits.
"""

import math
from collections import deque

import msgspec

from peik.testing.answer import Refusal, too_many
from peik.testing.options import Limits

_SLACK = 1e-6  # instants are floats: exactly one second apart must count as one second


class Bucket(msgspec.Struct):
    """A leaky bucket as one number: the instant at which it will be empty."""

    empty_at: float = 0.0

    def wait_s(self, now: float, *, per_s: float, burst: float) -> float:
        """How long until one more fits; 0 if it fits now."""
        return max(0.0, self.empty_at - now - (burst - 1) / per_s - _SLACK)

    def pour(self, now: float, *, per_s: float, amount: int) -> None:
        self.empty_at = max(self.empty_at, now) + amount / per_s


class ChatPace(msgspec.Struct):
    """One chat's recent past with one bot."""

    bucket: Bucket = msgspec.field(default_factory=Bucket)
    minute: deque[float] = msgspec.field(default_factory=deque)  # a group's last sends and edits
    held_until: float = 0.0


class BotPace(msgspec.Struct):
    """One bot's recent past."""

    bulk: Bucket = msgspec.field(default_factory=Bucket)
    paid: Bucket = msgspec.field(default_factory=Bucket)
    held_until: float = 0.0
    chats: dict[int, ChatPace] = msgspec.field(default_factory=dict)


_CHATS_MAX = 100_000


def charge(
    limits: Limits,
    pace: BotPace,
    now: float,
    *,
    chat_id: int,
    is_private: bool,
    is_reply: bool,
    amount: int = 1,
    is_paid: bool = False,
) -> None:
    """Count `amount` messages to a chat, or raise the 429 and count nothing. An album is its N items."""
    chat = pace.chats.get(chat_id)
    if chat is None:
        chat = pace.chats[chat_id] = ChatPace()
        if len(pace.chats) > _CHATS_MAX:
            _forget_idle(pace, now)

    _refuse_while_held(limits, chat, now)
    if is_private:
        wait_s = chat.bucket.wait_s(now, per_s=limits.chat_per_s, burst=limits.chat_burst)
    else:
        wait_s = _minute_wait_s(chat.minute, now, most=limits.group_per_min, amount=amount)
    if wait_s > 0.0:
        raise _flood(limits, chat, now, wait_s)

    if is_paid:
        wait_s = pace.paid.wait_s(now, per_s=limits.paid_per_s, burst=limits.paid_per_s)
        if wait_s > 0.0:
            raise too_many(max(limits.flood_s_min, math.ceil(wait_s)))
        pace.paid.pour(now, per_s=limits.paid_per_s, amount=amount)
    elif not is_reply:
        # Replies are not bulk: Telegram lets a busy bot answer a thousand people a second.
        _refuse_while_held(limits, pace, now)
        wait_s = pace.bulk.wait_s(now, per_s=limits.bot_per_s, burst=limits.bot_burst)
        if wait_s > 0.0:
            raise _flood(limits, pace, now, wait_s)
        pace.bulk.pour(now, per_s=limits.bot_per_s, amount=amount)

    if is_private:
        chat.bucket.pour(now, per_s=limits.chat_per_s, amount=amount)
    else:
        chat.minute.extend([now] * amount)


def charge_edit(limits: Limits, pace: BotPace, now: float, *, chat_id: int) -> None:
    """Edits in groups share the group's minute; elsewhere they are free."""
    chat = pace.chats.get(chat_id)
    if chat is None:
        chat = pace.chats[chat_id] = ChatPace()
    _refuse_while_held(limits, chat, now)
    wait_s = _minute_wait_s(chat.minute, now, most=limits.group_per_min, amount=1)
    if wait_s > 0.0:
        raise _flood(limits, chat, now, wait_s)
    chat.minute.append(now)


def _refuse_while_held(limits: Limits, scope: ChatPace | BotPace, now: float) -> None:
    if now < scope.held_until - _SLACK:
        scope.held_until += limits.flood_lengthens_s
        raise too_many(math.ceil(scope.held_until - now - _SLACK))


def _flood(limits: Limits, scope: ChatPace | BotPace, now: float, wait_s: float) -> Refusal:
    retry_after = max(limits.flood_s_min, math.ceil(wait_s))
    scope.held_until = now + retry_after
    return too_many(retry_after)


def _minute_wait_s(minute: deque[float], now: float, *, most: int, amount: int) -> float:
    while minute and minute[0] <= now - 60.0 + _SLACK:
        minute.popleft()
    # An amount above the whole minute's worth is let through an empty minute: else it could never be sent.
    too_many_by = len(minute) + min(amount, most) - most
    return 0.0 if too_many_by <= 0 else minute[too_many_by - 1] + 60.0 - now


def _forget_idle(pace: BotPace, now: float) -> None:
    for chat_id, chat in list(pace.chats.items()):
        is_quiet = not chat.minute or chat.minute[-1] <= now - 60.0
        if is_quiet and chat.bucket.empty_at <= now and chat.held_until <= now:
            del pace.chats[chat_id]
