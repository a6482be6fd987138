"""The demo's own book: which letters Peik acknowledged, which of them arrived. The verdict is made here, from nothing else."""

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from peik.demo.calls import Arrival, Fate

KEPT_S = 120.0  # how long a letter that has ended is still looked at: a repeat would have come by then


class Promise(msgspec.Struct):
    """A letter that Peik has acknowledged. Its text is unlike any other's, so the ledger can be matched by it."""

    letter_id: str
    chat_id: int
    text: str
    is_plain: bool  # of normal priority: only these must keep their order among each other
    promised_at: float
    fate: Fate | None = None

    @property
    def has_ended(self) -> bool:
        return self.fate is not None and self.fate.is_final


class Counts(msgspec.Struct, kw_only=True):
    accepted: int = 0
    delivered: int = 0
    failed: int = 0  # reported as failed; some may have arrived, if that was uncertain
    failed_arrived: int = 0
    waiting: int = 0  # neither yet
    lost: int = 0
    doubled: int = 0  # arrivals beyond the first
    uncertain_tries: int = 0

    @property
    def is_good(self) -> bool:
        return self.lost == 0 and self.doubled <= self.uncertain_tries


class Book:
    def __init__(self) -> None:
        self._promises: dict[str, Promise] = {}  # by text, in the order they were made
        self._arrived: Counter[str] = Counter()
        self._first_arrivals: dict[str, Arrival] = {}
        self._folded = Counts()
        self.ledger_number = 0  # read so far
        self.arrivals = 0

    def promised(self, promise: Promise) -> None:
        self._promises[promise.text] = promise

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        for arrival in arrivals:
            self._arrived[arrival.text] += 1
            self._first_arrivals.setdefault(arrival.text, arrival)
            self.ledger_number = arrival.number
            self.arrivals += 1

    def arrival(self, text: str) -> Arrival | None:
        return self._first_arrivals.get(text)

    @property
    def is_empty(self) -> bool:
        return not self._promises and not self._folded.accepted

    def open_promises(self) -> list[Promise]:
        return [promise for promise in self._promises.values() if not promise.has_ended]

    def counts(self, *, is_over: bool = False) -> Counts:
        """`is_over`: nothing is waited for any more, so what has neither arrived nor failed is lost."""
        counts = msgspec.structs.replace(self._folded)
        for promise in self._promises.values():
            self._count(promise, counts)
        if is_over:
            counts.lost += counts.waiting
            counts.waiting = 0
        return counts

    def _count(self, promise: Promise, counts: Counts) -> None:
        times = self._arrived[promise.text]
        counts.accepted += 1
        counts.uncertain_tries += promise.fate.uncertain_tries if promise.fate else 0
        is_failed = promise.fate is not None and promise.fate.state == "failed"
        counts.failed += is_failed
        if times:
            counts.delivered += 1
            counts.doubled += times - 1
            counts.failed_arrived += is_failed
        elif not promise.has_ended:
            counts.waiting += 1
        elif not is_failed:
            counts.lost += 1  # Peik says completed, and nobody got it

    def fastest(self, texts: Iterable[str]) -> int:
        """The most first arrivals of these within any one second."""
        times = sorted(arrival.at for text in texts if (arrival := self._first_arrivals.get(text)))
        most = start = 0
        for end, at in enumerate(times):
            while times[start] <= at - 1.0:
                start += 1
            most = max(most, end - start + 1)
        return most

    def disordered(self, texts: Iterable[str]) -> tuple[int, int]:
        """How many chats these letters went to, and in how many the first arrivals were not in the order of acceptance."""
        chats: dict[int, list[int]] = defaultdict(list)
        for text in texts:
            promise, arrival = self._promises.get(text), self._first_arrivals.get(text)
            if promise is not None and arrival is not None and promise.is_plain:
                chats[promise.chat_id].append(arrival.number)
        return len(chats), sum(numbers != sorted(numbers) for numbers in chats.values())

    def fold(self, now: float) -> None:
        """Let go of what ended long ago, so that a demo that runs for days stays small."""
        for promise in list(self._promises.values()):
            if promise.has_ended and promise.promised_at < now - KEPT_S:
                self._count(promise, self._folded)
                del self._promises[promise.text], self._arrived[promise.text]
                self._first_arrivals.pop(promise.text, None)
