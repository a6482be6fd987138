"""Tells the people who run Peik what they should know, as letters to their chats. It listens to events and to nothing else.

What is worth an alert stands in one table, `peik.ops.alert_rules`. An alert never blocks or fails the stream of events: it is
dropped before that, and counted.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from peik import events
from peik.bell import Bell
from peik.clock import Clock
from peik.errors import Problem, Unavailable
from peik.ops.alert_rule import Rule
from peik.ops.alert_rules import RULES
from peik.ops.ongoing import Troubles
from peik.ops.overview_values import Ongoing
from peik.ops.shown_rules import SHOWN

__all__ = ["QUEUE_MAX", "RULES", "Alerts"]

QUEUE_MAX = 100  # alerts that wait to be accepted
REMEMBERED_MAX = 1000  # fingerprints
RETRY_S = 10.0

Send = Callable[[str, str, str], Awaitable[None]]


class _Matter:
    """What happened under one fingerprint."""

    __slots__ = ("count", "newest", "recent", "rule", "told_at", "wait_until")

    def __init__(self, rule: Rule[events.Event]) -> None:
        self.rule = rule
        self.recent: deque[float] = deque(maxlen=rule.at_least)
        self.count = 0
        self.newest: events.Event | None = None
        self.told_at = float("-inf")
        self.wait_until: float | None = None


class Alerts:
    """A listener with a queue. Without chats it tells nobody, and still knows what goes on."""

    def __init__(
        self,
        *,
        chats: Sequence[str],
        clock: Clock,
        send: Send,
        rules: "Sequence[Rule[events.Event]] | None" = None,
        is_served: Callable[[int], bool] = lambda bot_id: True,
    ) -> None:
        self._chats = tuple(chats)
        self._clock = clock
        self._send = send
        self._rules = RULES if rules is None else rules
        shown = (*self._rules, *SHOWN)
        self._watched = {kind for rule in shown for kind in (rule.event, rule.ends, rule.over)}
        self._troubles = Troubles(clock=clock, rules=shown, is_served=is_served)
        self._matters: dict[str, _Matter] = {}
        self._queue: deque[str] = deque()
        self._dropped = 0
        self._told = 0
        self._bell = Bell()

    def __call__(self, told: Sequence[events.Event]) -> None:
        for event in told:
            if type(event) in self._watched:
                self._troubles.hear(event)
                if self._chats:
                    self._hear(event)

    def ongoing(self) -> list[Ongoing]:
        """What is worth an alert and is not over, as far as this node knows; the newest first."""
        return self._troubles.ongoing()

    async def run(self) -> None:
        """Until cancelled. What cannot be accepted now is tried again; what can never be is left."""
        while self._chats:
            self._look()
            while self._queue:
                await self._tell(self._queue.popleft())
            await self._bell.wait(self._next_at())

    # ---- what happened ----

    def _hear(self, event: events.Event) -> None:
        for rule in self._rules:
            if type(event) is rule.ends:
                self._forget(rule.fingerprint(event))
            elif type(event) is rule.event and rule.is_meant(event):
                self._note(rule.fingerprint(event), rule, event)

    def _forget(self, fingerprint: str) -> None:
        """What has not been told yet is over, and need not be."""
        matter = self._matters.get(fingerprint)
        if matter is not None:
            matter.count, matter.newest, matter.wait_until = 0, None, None

    def _note(self, fingerprint: str, rule: "Rule[events.Event]", event: events.Event) -> None:
        now = self._clock.mono()
        matter = self._matters.get(fingerprint)
        if matter is None:
            if len(self._matters) >= REMEMBERED_MAX:
                del self._matters[next(iter(self._matters))]
            matter = self._matters[fingerprint] = _Matter(rule)
        matter.recent.append(now)
        if len(matter.recent) < rule.at_least or now - matter.recent[0] > rule.within_s:
            return
        is_quiet = now - matter.told_at < rule.repeat_s
        if is_quiet and not rule.is_counted:
            return
        matter.count += 1
        matter.newest = event
        if matter.wait_until is None:
            matter.wait_until = matter.told_at + rule.repeat_s if is_quiet else now + rule.after_s
        self._bell.ring()

    # ---- what is told ----

    def _next_at(self) -> float | None:
        return min((one.wait_until for one in self._matters.values() if one.wait_until is not None), default=None)

    def _look(self) -> None:
        now = self._clock.mono()
        for matter in self._matters.values():
            if matter.wait_until is None or matter.wait_until > now or matter.newest is None:
                continue
            self._put(f"Peik: {matter.rule.text(matter.newest, matter.count)}")
            matter.count, matter.newest, matter.wait_until, matter.told_at = 0, None, None, now

    def _put(self, text: str) -> None:
        if len(self._queue) >= QUEUE_MAX:
            self._dropped += 1
            return
        if self._dropped:
            text += f"\n({self._dropped} more alerts could not be sent before this one; the log has them.)"
            self._dropped = 0
        self._queue.append(text)

    async def _tell(self, text: str) -> None:
        self._told += 1  # two alerts of one moment are two letters
        key = f"alert:{self._clock.wall_ms()}:{self._told}"
        for place, chat in enumerate(self._chats):
            is_accepted = False
            while not is_accepted:
                try:
                    await self._send(chat, text, f"{key}:{place}")
                except Unavailable:
                    await asyncio.sleep(RETRY_S)
                    continue
                except Problem:
                    pass  # a chat that is none, or no bot yet: the log has the event itself
                is_accepted = True
