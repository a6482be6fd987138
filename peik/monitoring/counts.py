"""Counts what happens on this node, from its start on: a listener of events, and nothing else. It adds, and never waits."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from peik.accounts import events as session_events
from peik.broadcasts import model as broadcast_events
from peik.core import events
from peik.core.letter import State
from peik.core.lifecycle import EXPIRED, UNCERTAIN, Move
from peik.core.outcome import Delivered, Limited, Outcome, Refused, Uncertain, Unsent
from peik.jobs import events as job_events
from peik.monitoring import values
from peik.monitoring.values import BOUNDS_S, OTHER, Histogram, Parts, PartSums, Sums, merged
from peik.notifications import model as notification_events
from peik.schedules import model as schedule_events

LABELS_MAX = 2000  # of one metric: names of methods come from callers

_BROADCASTS_OVER = frozenset({"stopped", "cancelled", "completed", "recalled"})
_REASONS = {Move.EXPIRE: "expired", Move.SHUT_OUT: "unreachable", Move.ORPHAN: "orphaned"}


class Counting:
    """`whole` is what series are made of; `labelled` holds the rest, by metric and the values of its labels."""

    def __init__(self) -> None:
        self.whole = Sums()
        self.sent: dict[tuple[str, str, str], int] = {}  # tries by method, outcome and class of the error
        self.labelled: Counter[tuple[str, ...]] = Counter()
        self.broadcasts: dict[str, tuple[int, int]] = {}  # that go on: how many recipients, and how many are done
        self._bots: dict[int, PartSums] = {}  # since they were last taken
        self._methods: dict[str, PartSums] = {}
        self._kinds: dict[str, PartSums] = {}
        self._ring: Callable[[], None] | None = None
        self._ears: dict[type[events.Event], Callable[[Any], None]] = {
            events.Settled: self._settled,
            events.Accepted: self._accepted,
            events.Arrived: self._arrived,
            events.ArrivalSettled: self._arrival_settled,
            events.ArrivalDeferred: lambda event: self._add("arrivals", str(event.bot_id), "deferred"),
            events.Held: self._held,
            events.Intruder: lambda event: self._add("intruders", str(event.bot_id), event.kind),
            events.UpdatesExpired: lambda event: self._add("updates_expired", str(event.bot_id), count=event.count),
            events.UnreadDropped: lambda event: self._add("updates_dropped", str(event.bot_id), count=event.count),
            events.HookTold: lambda event: self._add("hooks", "told"),
            events.HookFailed: lambda event: self._add("hooks", "failed"),
            events.HookDropped: lambda event: self._add("hooks", "dropped"),
            events.RouteOpened: lambda event: self._add("route_openings", event.route),
            events.StoreFailed: lambda event: self._add("store_failures"),
            events.Surprise: lambda event: self._add("surprises"),
            events.LeasesLost: lambda event: self._add("leases_lost", count=event.lost),
            job_events.JobsQueued: lambda event: self._add("jobs_queued", event.kind, count=event.count),
            job_events.JobRan: self._job_ran,
            session_events.SessionFlooded: lambda event: self._flooded("session", event.wait_s),
            session_events.ArchiveGap: lambda event: self._add("archive_gaps"),
            session_events.HolesFilled: lambda event: self._add("archive_filled", count=event.found),
            session_events.LogDropped: lambda event: self._add("log_dropped", count=event.count),
            schedule_events.ScheduleRan: lambda event: self._add("schedule_runs", str(event.state)),
            schedule_events.ScheduleMissed: lambda event: self._add("schedule_runs", "missed", count=event.count),
            broadcast_events.BroadcastMoved: self._broadcast_moved,
            broadcast_events.BroadcastAdvanced: self._broadcast_advanced,
            notification_events.Notified: lambda event: self._add(
                "notifications", "later" if event.letter_id is None else "now"
            ),
            notification_events.LinkRefused: lambda event: self._add("links_refused"),
        }

    def __call__(self, told: Sequence[events.Event]) -> None:
        ears = self._ears
        arrived: list[events.Settled] = []
        for event in told:
            if type(event) is events.Settled and type(event.outcome) is Delivered:
                arrived.append(event)  # nearly all that is told: those of one commit are counted together
                continue
            hear = ears.get(type(event))
            if hear is not None:
                hear(event)
        if arrived:
            self._delivered(arrived)
        if self._ring is not None:
            ring, self._ring = self._ring, None
            ring()

    def when_next(self, ring: Callable[[], None]) -> None:
        """`ring` is called once, when something happens again."""
        self._ring = ring

    def take_parts(self) -> Parts:
        """What bots, methods and kinds of jobs did since this was last asked."""
        taken = {
            "bot": {str(bot_id): sums for bot_id, sums in self._bots.items()},
            "method": self._methods,
            "kind": self._kinds,
        }
        self._bots, self._methods, self._kinds = {}, {}, {}
        return taken

    def _bot(self, bot_id: int) -> PartSums:
        sums = self._bots.get(bot_id)
        if sums is None:
            sums = self._bots[bot_id] = PartSums()
        return sums

    def _method(self, method: str) -> PartSums:
        return _named(self._methods, method)

    # ---- letters ----

    def _accepted(self, event: events.Accepted) -> None:
        self.whole.counts[values.ACCEPTED] += event.count

    def _settled(self, event: events.Settled) -> None:
        """One that did not arrive, or is not over."""
        whole, outcome = self.whole, event.outcome
        if outcome is not None:
            self._not_delivered(event, outcome)
        if event.move is Move.BACK_OFF:
            whole.counts[values.RETRIED] += 1
            self._both(event, values.PART_RETRIED)
        elif event.state is State.FAILED:
            whole.counts[values.FAILED] += 1
            self._both(event, values.PART_FAILED)
            self._add("letters_failed", _reason(event))
        elif event.state is State.CANCELLED:
            self._add("letters_cancelled")
        elif event.move is Move.MERGE:
            self._add("letters_merged")

    def _delivered(self, arrived: Sequence[events.Settled]) -> None:
        """In all, by bot and by method. What is alike is added once."""
        whole = self.whole
        whole.counts[values.DELIVERED] += len(arrived)
        whole.tries.add_all([event.took_s for event in arrived if event.took_s is not None])
        whole.end_to_end.add_all([event.waited_s for event in arrived if event.waited_s is not None])
        alike = Counter(
            [
                (event.bot_id, event.method, None if event.waited_s is None else bisect_left(BOUNDS_S, event.waited_s))
                for event in arrived
            ]
        )
        for (bot_id, method, bucket), count in alike.items():
            self._try(method, "delivered", "", count=count)
            for sums in (self._bot(bot_id), self._method(method)):
                sums.counts[values.DONE] += count
                if bucket is not None:
                    sums.took[bucket] = sums.took.get(bucket, 0) + count

    def _both(self, event: events.Settled, place: int) -> None:
        self._bot(event.bot_id).counts[place] += 1
        self._method(event.method).counts[place] += 1

    def _not_delivered(self, event: events.Settled, outcome: Outcome) -> None:
        if event.took_s is not None and not isinstance(outcome, Unsent):
            self.whole.tries.add(event.took_s)
        match outcome:
            case Uncertain() | Limited(may_have_arrived=True):
                self.whole.counts[values.UNCERTAIN] += 1
                self._both(event, values.PART_UNCERTAIN)
            case Limited():
                self._method(event.method).counts[values.PART_HELD] += 1
        self._try(event.method, type(outcome).__name__.lower(), _error_class(outcome))

    def _try(self, method: str, outcome: str, error: str, *, count: int = 1) -> None:
        known = method if (method, outcome, error) in self.sent or len(self.sent) < LABELS_MAX else OTHER
        self.sent[known, outcome, error] = self.sent.get((known, outcome, error), 0) + count

    def _held(self, event: events.Held) -> None:
        self.whole.counts[values.HELD] += 1
        self._bot(event.bot_id).counts[values.PART_HELD] += 1
        self.whole.counts[values.HELD_MS] += int(event.wait_s * 1000)
        self._flooded("bot" if event.chat is None else "chat", event.wait_s)

    def _flooded(self, scope: str, wait_s: float) -> None:
        self._add("floods", scope)
        self._add("flood_ms", scope, count=int(wait_s * 1000))

    # ---- the rest ----

    def _arrived(self, event: events.Arrived) -> None:
        if event.stored:
            self.whole.counts[values.UPDATES] += event.stored
            self._bot(event.bot_id).counts[values.PART_UPDATES] += event.stored
            self._add("updates", str(event.bot_id), count=event.stored)
        if event.duplicates:
            self._add("updates_again", str(event.bot_id), count=event.duplicates)

    def _arrival_settled(self, event: events.ArrivalSettled) -> None:
        self._add("arrivals", str(event.bot_id), str(event.state))

    def _job_ran(self, event: job_events.JobRan) -> None:
        sums, bucket = _named(self._kinds, event.kind), bisect_left(BOUNDS_S, event.run_s)
        sums.took[bucket] = sums.took.get(bucket, 0) + 1
        if event.state is State.COMPLETED:
            self.whole.counts[values.JOBS_DONE] += 1
            sums.counts[values.DONE] += 1
        elif event.state is State.FAILED:
            self.whole.counts[values.JOBS_FAILED] += 1
            sums.counts[values.PART_FAILED] += 1
        elif event.state is not State.CANCELLED:
            sums.counts[values.PART_RETRIED] += 1
        self._add("job_runs", event.kind, str(event.end))
        self._add("job_run_ms", event.kind, count=int(event.run_s * 1000))

    def _broadcast_moved(self, event: broadcast_events.BroadcastMoved) -> None:
        self._add("broadcasts", event.state)
        if event.state in _BROADCASTS_OVER:
            self.broadcasts.pop(event.broadcast_id, None)

    def _broadcast_advanced(self, event: broadcast_events.BroadcastAdvanced) -> None:
        if event.done >= event.total:
            self.broadcasts.pop(event.broadcast_id, None)
        elif event.broadcast_id in self.broadcasts or len(self.broadcasts) < LABELS_MAX:
            self.broadcasts[event.broadcast_id] = (event.total, event.done)

    def _add(self, *labels: str, count: int = 1) -> None:
        if labels not in self.labelled and len(self.labelled) >= LABELS_MAX * 10:
            return  # far beyond what any installation has: counts are not worth the memory
        self.labelled[labels] += count


def _named(parts: dict[str, PartSums], name: str) -> PartSums:
    sums = parts.get(name)
    if sums is None:
        known = name if len(parts) < LABELS_MAX else OTHER
        sums = parts[known] = parts.get(known) or PartSums()
    return sums


def _error_class(outcome: Outcome) -> str:
    """Telegram's code, or what stands in its place."""
    match outcome:
        case Refused(code=code) | Uncertain(code=code):
            return str(code) if code else "none"
        case Limited():
            return "429"
        case _:
            return ""


def _reason(event: events.Settled) -> str:
    """The class of what made a letter dead: few, and the same for ever."""
    if event.reason == UNCERTAIN:
        return "uncertain"
    if event.reason == EXPIRED:
        return "expired"
    if isinstance(event.outcome, Refused):
        return "refused"
    return _REASONS.get(event.move, OTHER)


# How long requests take, by door (REST, gateway …) and kind: since the start, and within the last looks. It only
# adds.


LOOKS = 4  # of a quarter of a minute each

Place = tuple[str, str]  # the door, and which kind of request: few of each, and never an id


class Answering:
    def __init__(self) -> None:
        self.took: dict[Place, Histogram] = {}
        self._before: deque[dict[str, Histogram]] = deque([{}], maxlen=LOOKS)

    def add(self, place: Place, seconds: float) -> None:
        histogram = self.took.get(place)
        if histogram is None:
            histogram = self.took[place] = Histogram()
        histogram.add(seconds)

    def lately(self) -> dict[str, Histogram]:
        """Per door what was answered since the look before the last few. To be asked at each look, and by nobody else."""
        doors = {door for door, _ in self.took}
        now = {door: merged(one for place, one in self.took.items() if place[0] == door) for door in doors}
        then = self._before[0]
        self._before.append(now)
        return {door: one.since(then.get(door, Histogram())) for door, one in now.items()}
