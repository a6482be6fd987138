"""When to push which update to a webhook: lines, retries, connections. Decides; a pusher carries out.

See docs/telegram.md, Webhook delivery.
"""

import random
from collections import deque

import msgspec

from peik.testing.updates import QueueId, UpdateEvent, UpdateQueue

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
                    # This many lines and no more: stuck chats can stall the whole bot.
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
