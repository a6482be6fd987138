"""Which troubles go on: what the table of alerts calls worth one, from when it began until it is over."""

from collections import deque
from collections.abc import Callable, Sequence

from peik import events
from peik.clock import Clock
from peik.core.token import without_tokens
from peik.ops.alert_rule import Rule
from peik.ops.overview_values import Ongoing

REMEMBERED_MAX = 1000


class _Trouble:
    __slots__ = ("began_at", "count", "newest", "newest_at", "recent", "rule", "since_ms")

    def __init__(self, rule: "Rule[events.Event]", event: events.Event, *, now: float, at_ms: int) -> None:
        self.rule = rule
        self.recent: deque[float] = deque(maxlen=rule.at_least)
        self.began_at = now
        self.since_ms = at_ms
        self.newest = event
        self.newest_at = now
        self.count = 0


class Troubles:
    """It only remembers. A trouble that has no end of its own is over when it was not heard of for a while; that of a bot
    also when another node serves the bot, or nobody any more."""

    def __init__(
        self, *, clock: Clock, rules: "Sequence[Rule[events.Event]]", is_served: Callable[[int], bool]
    ) -> None:
        self._clock = clock
        self._is_served = is_served
        self._rules = rules
        self._known: dict[str, _Trouble] = {}

    def hear(self, event: events.Event) -> None:
        for rule in self._rules:
            if rule.is_over_by(event):
                self._end(rule, event)
            elif type(event) is rule.event and rule.is_meant(event):
                self._note(rule.fingerprint(event), rule, event)

    def ongoing(self) -> list[Ongoing]:
        """The newest first."""
        now, at_ms = self._clock.mono(), self._clock.wall_ms()
        self._known = {name: one for name, one in self._known.items() if not self._is_past(one, now)}
        shown = [
            Ongoing(
                name=one.rule.event.__name__,
                bot_id=one.newest.bot_id,
                text=without_tokens(one.rule.text(one.newest, one.count)),  # the words of a foreign error may hold one
                since_ms=one.since_ms,
                last_ms=at_ms - int((now - one.newest_at) * 1000),
                count=one.count,
            )
            for one in self._known.values()
            if one.count and now - one.began_at >= one.rule.after_s
        ]
        return sorted(shown, key=lambda one: one.last_ms, reverse=True)

    def _note(self, fingerprint: str, rule: "Rule[events.Event]", event: events.Event) -> None:
        now = self._clock.mono()
        known = self._known.get(fingerprint)
        if known is None or self._is_past(known, now):
            if len(self._known) >= REMEMBERED_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[fingerprint] = _Trouble(rule, event, now=now, at_ms=self._clock.wall_ms())
        known.recent.append(now)
        known.newest, known.newest_at = event, now
        if known.count or (len(known.recent) >= rule.at_least and now - known.recent[0] <= rule.within_s):
            known.count = max(known.count + 1, rule.at_least)

    def _end(self, rule: "Rule[events.Event]", event: events.Event) -> None:
        for fingerprint, one in list(self._known.items()):
            if one.rule is rule and rule.is_same(one.newest, event):
                del self._known[fingerprint]

    def _is_past(self, trouble: _Trouble, now: float) -> bool:
        lasts_s, bot_id = trouble.rule.lasts_s, trouble.newest.bot_id
        has_faded = lasts_s is not None and now - trouble.newest_at >= lasts_s
        return has_faded or (bot_id != 0 and not self._is_served(bot_id))
