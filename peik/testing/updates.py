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
    "chat_member", "message_reaction", "message_reaction_count",
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
