"""One bot's queue of updates with Telegram's own rules: ids, lifetimes, caps, what an offset deletes.

See docs/telegram.md, The update queue.
"""

import heapq
import random
from collections import deque
from collections.abc import Iterator

import msgspec

QueueId = tuple[str, object]

# The last three are off unless asked for (docs/telegram.md, Update types).
ALL_TYPES = (
    "message", "edited_message", "channel_post", "edited_channel_post", "business_connection", "business_message",
    "edited_business_message", "deleted_business_messages", "guest_message", "inline_query", "chosen_inline_result",
    "callback_query", "shipping_query", "pre_checkout_query", "purchased_paid_media", "poll", "poll_answer",
    "my_chat_member", "chat_join_request", "chat_boost", "removed_chat_boost", "managed_bot", "subscription",
    "stopped_message_generation", "chat_member", "message_reaction", "message_reaction_count",
)  # fmt: skip
DEFAULT_TYPES = frozenset(ALL_TYPES[:-3])

EVENTS_MAX = 100_000
EVENTS_BYTES_MAX = 128 << 20
EVENT_BYTES_MAX = 512 << 10
ANSWER_BYTES_MAX = 4 << 20
ID_MAX = 2_000_000_000
DAY_S = 86_400.0
WEEK_S = 7 * DAY_S

# Seconds in the queue. The day of a message or membership runs from its own date, not from its arrival here.
SHORT_LIVES_S = {
    "chosen_inline_result": 600.0,
    "callback_query": 150.0,
    "shipping_query": 150.0,
    "pre_checkout_query": 150.0,
    "inline_query": 30.0,
}

# Updates of one line are pushed to a webhook strictly one after another (docs/telegram.md, Webhook delivery). The id's source
# stands beside the line's name.
_LINES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(ALL_TYPES[:4], ("message", "chat")),
    **dict.fromkeys(("business_message", "edited_business_message", "deleted_business_messages"), ("business", "chat")),
    "guest_message": ("message", "chat"),
    "callback_query": ("callback", "from"),
    "inline_query": ("inline", "from"),
    "chosen_inline_result": ("chosen", "from"),
    "shipping_query": ("payment", "from"),
    "pre_checkout_query": ("payment", "from"),
    "my_chat_member": ("my_member", "chat"),
    "chat_member": ("member", "from"),
    "chat_join_request": ("member", "from"),
    "chat_boost": ("boost", "chat"),
    "removed_chat_boost": ("boost", "chat"),
    "stopped_message_generation": ("message", "chat"),
    "message_reaction": ("reaction", "chat"),
    "message_reaction_count": ("reaction_count", "chat"),
}


class UpdateEvent(msgspec.Struct, kw_only=True):
    """One update in the queue."""

    id: int
    type: str
    body: bytes  # the whole Update object
    expires_at: float
    queue_id: QueueId
    is_gone: bool = False  # acknowledged, expired or cleared


class UpdateQueue:
    """Updates in order. Deleting is the only acknowledgement there is."""

    def __init__(self, chance: random.Random, *, jumps: bool = True) -> None:
        self._chance = chance
        # The cloud's ids jump after a silent week; a local server's go on (docs/telegram.md, Update ids).
        self._jumps = jumps
        self._events: deque[UpdateEvent] = deque()
        self._tail_id: int | None = None  # the id of the next update
        self._pushed_at = 0.0
        self._pushed = 0
        self._ends: list[tuple[float, int, UpdateEvent]] = []  # a heap by expiry, so that no push has to look at all
        self._bytes = 0
        self._is_turned = False  # a lower id stands behind a higher one
        self.size = 0
        self.expired = 0

    def __iter__(self) -> Iterator[UpdateEvent]:
        return (event for event in self._events if not event.is_gone)

    @property
    def head_id(self) -> int:
        self._trim()
        return self._events[0].id if self._events else (self._tail_id or 0)

    @property
    def tail_id(self) -> int:
        return self._tail_id or 0

    def push(
        self, kind: str, payload: bytes, *, now: float, expires_at: float, queue_id: QueueId | None
    ) -> UpdateEvent | None:
        """Append an update; None if a cap discarded it. It is the newest that is lost, in silence."""
        self.expire(now)
        if self.size >= EVENTS_MAX or len(payload) > EVENT_BYTES_MAX or self._bytes + len(payload) > EVENTS_BYTES_MAX:
            return None
        event_id = self._next_id(now)
        body = b'{"update_id":%d,"%s":%s}' % (event_id, kind.encode(), payload)
        line = queue_id or (kind, event_id)
        event = UpdateEvent(id=event_id, type=kind, body=body, expires_at=expires_at, queue_id=line)
        self._is_turned = bool(self._events) and (self._is_turned or event_id < self._events[-1].id)
        self._events.append(event)
        self._bytes += len(body)
        self.size += 1
        self._pushed_at = now
        self._pushed += 1
        heapq.heappush(self._ends, (expires_at, self._pushed, event))
        return event

    def get(self, *, offset: int, limit: int, now: float) -> list[UpdateEvent]:
        """The next updates. Everything below the offset is deleted by asking, whether or not the answer arrives.

        See docs/telegram.md, Polling.
        """
        if offset < 0:
            self.clear(keep=-offset)
        elif offset > 0 and self._tail_id is not None and self.head_id - EVENTS_MAX <= offset <= self._tail_id + 10:
            self._delete_below(offset)
        # Any other offset is insane and therefore ignored: delivery restarts at the head, nothing is confirmed.
        self.expire(now)
        found: list[UpdateEvent] = []
        size_bytes = 0
        for event in self._events:
            if event.is_gone:
                continue
            size_bytes += len(event.body)
            if len(found) == limit or (found and size_bytes > ANSWER_BYTES_MAX):
                break
            found.append(event)
        return found

    def drop(self, event: UpdateEvent) -> None:
        """Acknowledge one update, as a webhook's 2xx does; that leaves holes."""
        if not event.is_gone:
            event.is_gone = True
            self.size -= 1
            self._bytes -= len(event.body)
            self._trim()

    def clear(self, *, keep: int = 0) -> None:
        """Delete all but the last `keep`."""
        surplus = self.size - keep
        for event in list(self._events):
            if surplus <= 0:
                break
            if not event.is_gone:
                self.drop(event)
                surplus -= 1

    def expire(self, now: float) -> None:
        """Delete what has outlived its time. Lifetimes differ, so that the short-lived go from between the others."""
        while self._ends and (self._ends[0][0] < now or self._ends[0][2].is_gone):
            event = heapq.heappop(self._ends)[2]
            if not event.is_gone:
                self.drop(event)
                self.expired += 1

    def _delete_below(self, offset: int) -> None:
        if self._is_turned:  # anyone who has the last one below it has all that stand before that, whatever their ids
            has_it = [event for event in self if event.id < offset][-1:]
            while has_it and not has_it[0].is_gone:
                self.drop(self._events[0])
        while self._events and self._events[0].id < offset:
            self.drop(self._events[0])

    def _trim(self) -> None:
        while self._events and self._events[0].is_gone:
            self._events.popleft()

    def _next_id(self, now: float) -> int:
        is_exhausted = self._tail_id is not None and self._tail_id >= ID_MAX
        is_silent = self._jumps and self._tail_id is not None and now - self._pushed_at >= WEEK_S
        if self._tail_id is None or is_exhausted or is_silent:
            self.clear()
            self._tail_id = self._chance.randint(2_000_001, 1_000_000_000)
        event_id = self._tail_id
        self._tail_id += 1
        return event_id


def expiry(kind: str, *, now: float, date: float | None) -> float:
    """When an update of this kind leaves the queue; `date` is the message's or event's own."""
    return now + SHORT_LIVES_S[kind] if kind in SHORT_LIVES_S else (now if date is None else date) + DAY_S


def queue_id(kind: str, payload: dict[str, object]) -> QueueId | None:
    """The webhook line this update waits in; None is a line of its own."""
    if kind in {"poll", "poll_answer"}:
        return ("poll", payload.get("poll_id") or payload.get("id"))
    line, source = _LINES.get(kind, ("", ""))
    owner = payload.get(source)
    return (line, owner.get("id")) if isinstance(owner, dict) else None


# How updates go to a webhook: which one when, and what follows a failure.


RETRY_AFTER_S_MAX = 3600.0
RESEND_S_MAX = 60.0
STRUGGLING_AFTER_S = 10.0
GONE_S_MAX = 23 * 3600.0


class PushResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one push ended: a status, or 0 and the network's own word for it."""

    status: int = 0
    error: str = ""
    retry_after_s: float | None = None
    body: bytes = b""
    content_type: str = ""
    keeps_connection: bool = False

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def reason(self) -> str:
        return self.error or f"Wrong response from the webhook: {self.status} {_REASONS.get(self.status, '')}".strip()


class PushLine(msgspec.Struct, kw_only=True):
    """Updates that go one after another; a failing head blocks the rest."""

    events: deque[UpdateEvent] = msgspec.field(default_factory=deque)
    wake_at: float = 0.0
    failures: int = 0
    delay_s: float = 1.0
    is_in_flight: bool = False


class Deliveries:
    """The plan of one webhook from its setting to its deletion."""

    def __init__(self, queue: UpdateQueue, *, connections_max: int, chance: random.Random) -> None:
        self._queue = queue
        self._chance = chance
        self._connections_max = connections_max
        self._unloaded: deque[UpdateEvent] = deque(queue)
        self._lines: dict[QueueId, PushLine] = {}
        self._connections = 0
        self._in_flight = 0
        self._opened_at: deque[float] = deque(maxlen=10)
        self._succeeded_at = float("-inf")
        self._gone_since: float | None = None
        self.should_delete = False  # 410 for 23 hours

    def offer(self, event: UpdateEvent) -> None:
        self._unloaded.append(event)

    def take(self, now: float) -> list[UpdateEvent]:
        """What to push now. Each must be given back to `done`."""
        self._load(now)
        taken = []
        for line in list(self._lines.values()):
            if line.is_in_flight or line.wake_at > now:
                continue
            if not self._get_connection(now):
                break
            line.is_in_flight = True
            self._in_flight += 1
            taken.append(line.events[0])
        return taken

    def done(self, event: UpdateEvent, result: PushResult, *, now: float) -> None:
        """Take in how a push ended, and plan what follows from it."""
        line = self._lines[event.queue_id]
        line.is_in_flight = False
        self._in_flight -= 1
        if not result.keeps_connection:
            self._connections -= 1
        self._judge_gone(result, now)
        if result.is_ok:
            self._succeeded_at = now
            self._finish(line, event)
        else:
            self._plan_retry(line, event, result, now)

    def next_at(self, now: float) -> float | None:
        """The next instant at which `take` may find something; None if only an update or a `done` can change that."""
        waiting = [line.wake_at for line in self._lines.values() if not line.is_in_flight]
        if not waiting or self._in_flight >= self._allowed(now):
            return None
        soonest = max(now, min(waiting))
        return soonest if self._connections > self._in_flight else max(soonest, self._may_open_at(now))

    def _load(self, now: float) -> None:
        for queue_id, line in list(self._lines.items()):
            while line.events and not line.is_in_flight and (line.events[0].is_gone or line.events[0].expires_at < now):
                self._finish(line, line.events[0])
            if not line.events:
                del self._lines[queue_id]
        while self._unloaded:
            event = self._unloaded[0]
            if not event.is_gone:
                line_or_none = self._lines.get(event.queue_id)
                if line_or_none is None:
                    # So many lines and no more: stuck chats can stall the whole bot.
                    if len(self._lines) >= 2 * self._connections_max:
                        return
                    line_or_none = self._lines[event.queue_id] = PushLine()
                line_or_none.events.append(event)
            self._unloaded.popleft()

    def _finish(self, line: PushLine, event: UpdateEvent) -> None:
        assert line.events[0] is event
        line.events.popleft()
        line.failures, line.delay_s, line.wake_at = 0, 1.0, 0.0
        self._queue.drop(event)

    def _plan_retry(self, line: PushLine, event: UpdateEvent, result: PushResult, now: float) -> None:
        if result.retry_after_s is not None:
            # Replaces the back-off and does not advance it.
            wait_s = min(max(result.retry_after_s, 0.0), RETRY_AFTER_S_MAX)
        elif line.failures == 0:
            wait_s = 0.0
            line.failures = 1
        else:
            line.delay_s = min(line.delay_s * 2, self._chance.uniform(RESEND_S_MAX, 2 * RESEND_S_MAX))
            line.failures += 1
            wait_s = line.delay_s
        line.wake_at = now + wait_s
        if event.is_gone or event.expires_at < line.wake_at:
            self._finish(line, event)

    def _judge_gone(self, result: PushResult, now: float) -> None:
        if result.status != 410:
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = now
        elif now - self._gone_since > GONE_S_MAX:
            self.should_delete = True

    def _is_struggling(self, now: float) -> bool:
        return self._succeeded_at + STRUGGLING_AFTER_S < now

    def _allowed(self, now: float) -> int:
        return 1 if self._is_struggling(now) else self._connections_max

    def _get_connection(self, now: float) -> bool:
        """One of the open connections, or a new one if that is allowed now."""
        if self._in_flight >= self._allowed(now):
            return False
        if self._connections > self._in_flight:
            return True
        if self._may_open_at(now) > now:
            return False
        self._connections += 1
        self._opened_at.append(now)
        return True

    def _may_open_at(self, now: float) -> float:
        if self._is_struggling(now):
            return self._opened_at[-1] + 2.0 if self._opened_at else now
        return self._opened_at[0] + 0.5 if len(self._opened_at) == 10 else now


_REASONS = {
    301: "Moved Permanently", 302: "Found", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    410: "Gone", 429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout",
}  # fmt: skip
