"""Trouble on command: which fault strikes which request. Deciding only; the server (or a virtual network) carries it out."""

import enum
import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from peik.errors import BadInput
from peik.testing.answer import JSON_TYPE, Answer, Refusal, encode, failure, too_many

# Every figure of the simulated Telegram that may be changed, also while it runs: Telegram moves its limits too.
#
# See docs/telegram.md, Flood limits.


MIB = 1 << 20


class Limits(msgspec.Struct, kw_only=True):
    """How fast a bot may send before it is answered 429."""

    on: bool = True
    bot_per_s: float = 30.0  # bulk only: a reply to a person who has just been active is not counted
    bot_burst: int = 30
    paid_per_s: float = 1000.0  # with allow_paid_broadcast
    chat_per_s: float = 1.0  # in a private chat
    chat_burst: int = 5
    group_per_min: int = 20  # groups, supergroups and channels
    group_edits_per_min: int = 20  # of their own; in private chats they are not limited
    reply_window_s: float = 60.0
    flood_s_min: int = 1  # the least retry_after
    flood_lengthens_s: float = 0.0  # added by each send that comes during a flood wait


class Options(msgspec.Struct, kw_only=True):
    """How strict, how large and how patient the simulated Telegram is."""

    mode: Literal["cloud", "local"] = "cloud"  # sizes, webhook rules, the answer to a malformed token
    accept_any_token: bool = True  # a well-formed token becomes a bot at its first use
    accept_any_chat: bool = True  # an unknown chat id becomes a willing person or group at its first use
    limits: Limits = msgspec.field(default_factory=Limits)

    anti_busy_loop: bool = True  # the 3 s and 0.5 s rules of getUpdates (docs/telegram.md, Polling)
    poll_batch_s: float = 0.001  # a parked poll is woken 1-2 ms after the first update
    verify_webhooks: bool = False  # a TCP connect before setWebhook is answered
    webhook_timeout_s: float = 60.0

    callback_s: float = 30.0  # how long an answer to a button press is taken (docs/telegram.md, Answers in time)
    inline_s: float = 20.0
    checkout_s: float = 10.0

    ledger_max: int | None = None  # None keeps every delivery
    messages_max: int = 200_000  # in all chats together; older ones can be neither edited nor replied to
    files_bytes_max: int = 256 * MIB  # per bot; the contents of older files are forgotten

    def change(self, patch: dict[str, object]) -> None:
        """Set some options, nested `limits` too. Raises BadInput for a wrong name or type, and then nothing has changed."""
        whole = msgspec.to_builtins(self)
        limits = patch.get("limits")
        unknown = set(patch) - set(whole)
        if isinstance(limits, dict):
            unknown |= {f"limits.{name}" for name in set(limits) - set(whole["limits"])}
            patch = {**patch, "limits": {**whole["limits"], **limits}}
        if unknown:
            raise BadInput(code="unknown_option", detail=f"There is no option {', '.join(sorted(unknown))}.")
        try:
            fresh = msgspec.convert({**whole, **patch}, Options)
        except msgspec.ValidationError as error:
            raise BadInput(code="wrong_option", detail=str(error)) from error
        for name in whole:
            setattr(self, name, getattr(fresh, name))

    @property
    def upload_bytes_max(self) -> int:
        return 50_000_000 if self.mode == "cloud" else 2_000_000_000

    @property
    def download_bytes_max(self) -> int | None:
        return 20 * MIB if self.mode == "cloud" else None


class Kind(enum.StrEnum):
    """What can go wrong, and what a client sees of it."""

    # Connections.
    REFUSE = "refuse"  # nobody listens: ECONNREFUSED
    DARK = "dark"  # nobody listens, and open connections are reset
    RESET_ON_ACCEPT = "reset_on_accept"  # connected, then reset
    CLOSE_AFTER = "close_after"  # closed, unannounced, after `requests` answers
    CLOSE_IDLE = "close_idle"  # closed, unannounced, after `idle_s` without a request
    STALE = "stale"  # after `requests` answers the next request on that connection meets a reset
    # Before the request has an effect.
    HANG = "hang"  # no answer, ever; with `after` the request has had its effect
    LOSE_BEFORE = "lose_before"  # dropped without effect
    FLOOD = "flood"  # 429 with `retry_after`
    ERROR = "error"  # `status`, as JSON or nginx's HTML; with `after` the request has had its effect
    LATE = "late"  # takes effect only after a while, even if the client has gone (docs/telegram.md, Slow sends)
    # After it.
    LOSE_AFTER = "lose_after"  # took effect, dropped before the answer
    TRUNCATE = "truncate"  # took effect, part of the answer, then the end
    GARBAGE = "garbage"  # not HTTP; with `after` the request has had its effect
    SLOW = "slow"  # took effect, the answer comes after a while; joins with any other fault


CONNECTION_KINDS = frozenset(
    {Kind.REFUSE, Kind.DARK, Kind.RESET_ON_ACCEPT, Kind.CLOSE_AFTER, Kind.CLOSE_IDLE, Kind.STALE}
)


class Fault(msgspec.Struct, kw_only=True):
    """One standing order for trouble. `count` falls with every strike; at 0, or after `until`, it is over."""

    id: int = 0
    kind: Kind
    method: str | None = None
    chat: int | str | None = None
    bot: int | None = None
    probability: float = 1.0
    count: int | None = None
    until: float | None = None

    after: bool = False
    by_end: bool = False  # a dropped connection ends with FIN instead of RST
    status: int = 502
    words: str = ""  # Telegram's description; empty: the usual one of the status
    html: bool = False
    retry_after: int = 5
    least_s: float = 0.0  # SLOW and LATE wait between least_s and most_s
    most_s: float = 0.0
    requests: int = 1
    idle_s: float = 1.0
    share: float = 0.5  # of the answer's bytes, for TRUNCATE
    garbage: str = "\x00\x15not HTTP\r\n\r\n"

    def is_live(self, now: float) -> bool:
        return self.count != 0 and (self.until is None or now < self.until)

    def delay_s(self, chance: random.Random) -> float:
        return chance.uniform(self.least_s, max(self.least_s, self.most_s))


class Faults:
    """All standing orders. `changed` is called after every change, so that a listener can be closed or opened."""

    def __init__(self, *, now: Callable[[], float], chance: random.Random) -> None:
        self._now = now
        self._chance = chance
        self._next_id = 1
        self.standing: list[Fault] = []
        self.any_request = False  # the hot path asks this one thing
        self.any_connection = False
        self.changed: Callable[[], None] = lambda: None

    def add(self, kind: Kind | str, *, seconds: float | None = None, **details: object) -> Fault:
        """Order a fault; `seconds` is how long it lasts. Raises BadInput for a wrong name or value.

        Details: method, chat, bot, probability, count, and what the kind reads of after, by_end, status, words, html,
        retry_after, least_s, most_s, requests, idle_s, share, garbage.
        """
        if details.keys() - _DETAILS:
            names = ", ".join(sorted(details.keys() - _DETAILS))
            raise BadInput(
                code="unknown_fault_detail", detail=f"A fault has no {names}. It has: {', '.join(_DETAILS)}."
            )
        try:
            fault = msgspec.convert({"kind": str(kind), **details}, Fault)
        except msgspec.ValidationError as error:
            raise BadInput(code="wrong_fault", detail=f"{error}. Kinds: {', '.join(Kind)}.") from error
        fault.id = self._next_id
        self._next_id += 1
        if seconds is not None:
            fault.until = self._now() + seconds
        self.standing.append(fault)
        self._count()
        return fault

    def clear(self, which: Fault | Kind | str | int | None = None) -> None:
        """End one fault (itself or its id), all of one kind, or all."""
        if isinstance(which, Fault):
            which = which.id
        if which is None:
            self.standing = []
        elif isinstance(which, int):
            self.standing = [fault for fault in self.standing if fault.id != which]
        else:
            self.standing = [fault for fault in self.standing if fault.kind != which]
        self._count()

    def outage(self, seconds: float) -> Fault:
        """Cut everything off for so long."""
        return self.add(Kind.DARK, seconds=seconds)

    def dark(self, on: bool) -> None:
        """Cut everything off until told otherwise."""
        self.clear(Kind.DARK)
        if on:
            self.add(Kind.DARK)

    def strike(self, *, bot_id: int, method: str, chat: object) -> tuple[Fault | None, float]:
        """What this request meets: at most one fault, and how many seconds its answer is slowed by."""
        now = self._now()
        struck: Fault | None = None
        slow_s = 0.0
        has_ended = False
        for fault in self.standing:
            if fault.kind in CONNECTION_KINDS or (struck is not None and fault.kind is not Kind.SLOW):
                continue
            if not (fault.is_live(now) and _matches(fault, bot_id=bot_id, method=method, chat=chat)):
                continue
            if fault.probability < 1.0 and self._chance.random() >= fault.probability:
                continue
            if fault.count is not None:
                fault.count -= 1
            if fault.kind is Kind.SLOW:
                slow_s += fault.delay_s(self._chance)
            else:
                struck = fault
            has_ended = has_ended or fault.count == 0
        if has_ended:
            self._count()
        return struck, slow_s

    def connection(self, *kinds: Kind) -> Fault | None:
        """The first live fault of these connection kinds that strikes now."""
        now = self._now()
        for fault in self.standing:
            if fault.kind not in kinds or not fault.is_live(now):
                continue
            if fault.probability < 1.0 and self._chance.random() >= fault.probability:
                continue
            if fault.count is not None:
                fault.count -= 1
                if fault.count == 0:
                    self._count()
            return fault
        return None

    def is_live(self, *kinds: Kind) -> bool:
        now = self._now()
        return any(fault.kind in kinds and fault.is_live(now) for fault in self.standing)

    def next_end(self) -> float | None:
        """When the next standing fault ends by itself: the instant to look again whether to listen."""
        now = self._now()
        ends = [fault.until for fault in self.standing if fault.until is not None and fault.until > now]
        return min(ends, default=None)

    def sweep(self) -> None:
        """Forget what is over."""
        now = self._now()
        self.standing = [fault for fault in self.standing if fault.is_live(now)]
        self._note()

    def _count(self) -> None:
        self.sweep()
        self.changed()

    def _note(self) -> None:
        kinds: Iterable[Kind] = [fault.kind for fault in self.standing]
        self.any_connection = any(kind in CONNECTION_KINDS for kind in kinds)
        self.any_request = any(kind not in CONNECTION_KINDS for kind in kinds)


_DETAILS = tuple(name for name in Fault.__struct_fields__ if name not in {"id", "kind", "until"})


def _matches(fault: Fault, *, bot_id: int, method: str, chat: object) -> bool:
    if fault.bot is not None and fault.bot != bot_id:
        return False
    if fault.method is not None and fault.method.lower() != method.lower():
        return False
    return fault.chat is None or str(fault.chat) == str(chat)


# How fast a bot may send: who is answered 429 and for how long. Pure arithmetic over instants.
#
# See docs/telegram.md, Flood limits.


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
    minute: deque[float] = msgspec.field(default_factory=deque)  # a group's last sends
    edits: deque[float] = msgspec.field(default_factory=deque)  # and edits
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
    """Edits in groups have a minute of their own; elsewhere they are free."""
    chat = pace.chats.get(chat_id)
    if chat is None:
        chat = pace.chats[chat_id] = ChatPace()
    _refuse_while_held(limits, chat, now)
    wait_s = _minute_wait_s(chat.edits, now, most=limits.group_edits_per_min, amount=1)
    if wait_s > 0.0:
        raise _flood(limits, chat, now, wait_s)
    chat.edits.append(now)


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
        is_quiet = all(not past or past[-1] <= now - 60.0 for past in (chat.minute, chat.edits))
        if is_quiet and chat.bucket.empty_at <= now and chat.held_until <= now:
            del pace.chats[chat_id]


# What becomes of one request on its way to Telegram and back. A value; a server or a virtual network plays it.


_HTML = (
    "<html>\r\n<head><title>{0}</title></head>\r\n<body>\r\n<center><h1>{0}</h1></center>\r\n"
    "<hr><center>nginx/1.18.0</center>\r\n</body>\r\n</html>\r\n"
)

REASONS = {500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}


class How(enum.Enum):
    """How the client's side of it ends."""

    ANSWER = enum.auto()
    HANG = enum.auto()
    RESET = enum.auto()
    END = enum.auto()  # closed in good order, without an answer
    CUT = enum.auto()  # part of the answer, then closed
    GARBAGE = enum.auto()


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """Let `late_s` pass, process the request if `processes`, let `slow_s` pass, then end as `how` says.

    `answer` replaces what processing gave, if it is set.
    """

    how: How = How.ANSWER
    processes: bool = True
    answer: Answer | None = None
    late_s: float = 0.0
    slow_s: float = 0.0
    share: float = 1.0
    garbage: bytes = b""


PLAIN = Exchange()


def planned(fault: Fault | None, *, late_s: float, slow_s: float) -> Exchange:
    """The exchange that a fault makes of a request."""
    if fault is None:
        return Exchange(slow_s=slow_s) if slow_s else PLAIN
    dropped = How.END if fault.by_end else How.RESET
    match fault.kind:
        case Kind.HANG:
            return Exchange(how=How.HANG, processes=fault.after)
        case Kind.LOSE_BEFORE:
            return Exchange(how=dropped, processes=False, slow_s=slow_s)
        case Kind.LOSE_AFTER:
            return Exchange(how=dropped, slow_s=slow_s)
        case Kind.FLOOD:
            return Exchange(processes=False, answer=failure(too_many(fault.retry_after)), slow_s=slow_s)
        case Kind.ERROR:
            return Exchange(
                processes=fault.after,
                answer=error_answer(fault.status, html=fault.html, words=fault.words),
                slow_s=slow_s,
            )
        case Kind.LATE:
            return Exchange(late_s=late_s, slow_s=slow_s)
        case Kind.TRUNCATE:
            return Exchange(how=How.CUT, share=fault.share, slow_s=slow_s)
        case Kind.GARBAGE:
            return Exchange(
                how=How.GARBAGE, processes=fault.after, garbage=fault.garbage.encode("latin-1"), slow_s=slow_s
            )
        case _:
            return PLAIN


def error_answer(status: int, *, html: bool, words: str = "") -> Answer:
    """A 5xx as the Bot API server gives it, or as the nginx before it does."""
    reason = REASONS.get(status, "Error")
    if html:
        return Answer(status, _HTML.format(f"{status} {reason}").encode(), (("Content-Type", "text/html"),))
    return Answer(status, encode({"ok": False, "error_code": status, "description": words or reason}), (JSON_TYPE,))
