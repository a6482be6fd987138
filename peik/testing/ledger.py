"""The ledger: what was really delivered, in order, and how often what was asked. Tests judge by it, so nothing here guesses."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping

import msgspec

from peik.testing.answer import UploadedFile, encode


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One message that a chat has got, or one other write that took effect."""

    number: int  # from 1, without gaps, in the order of effect
    at: float
    bot_id: int
    chat_id: int
    thread_id: int | None
    message_id: int
    method: str
    text: str  # the text or caption as the chat sees it
    digest: str  # of all parameters and files; equal digests are equal requests


class Ledger:
    """Deliveries in order. Bounded if asked; `total` counts those that were let go of too."""

    def __init__(self, size_max: int | None = None) -> None:
        self._rows: deque[Delivery] = deque(maxlen=size_max)
        self.total = 0

    def add(self, delivery: Delivery) -> None:
        self._rows.append(delivery)
        self.total += 1

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> Delivery:
        return self._rows[index]

    def where(
        self,
        *,
        bot_id: int | None = None,
        chat_id: int | None = None,
        thread_id: int | None = None,
        method: str | None = None,
        after: int = 0,
    ) -> list[Delivery]:
        """Those that match everything given; `after` is a number already seen."""
        return [
            row
            for row in self._rows
            if row.number > after
            and (bot_id is None or row.bot_id == bot_id)
            and (chat_id is None or row.chat_id == chat_id)
            and (thread_id is None or row.thread_id == thread_id)
            and (method is None or row.method.lower() == method.lower())
        ]

    def of_chat(self, chat_id: int, *, bot_id: int | None = None) -> list[Delivery]:
        return self.where(chat_id=chat_id, bot_id=bot_id)

    def texts(self, chat_id: int | None = None, *, bot_id: int | None = None) -> list[str]:
        return [row.text for row in self.where(chat_id=chat_id, bot_id=bot_id)]

    def clear(self) -> None:
        self._rows.clear()
        self.total = 0


class Counters:
    """How often what happened since the start or the last reset."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()  # by method, as Telegram spells it
        self.answers: Counter[int] = Counter()  # by status, of answers that were made, whether or not they arrived
        self.faults: Counter[str] = Counter()  # by kind
        self.limited = 0  # refused by our own limits
        self.lost_before = 0  # dropped on the way in: without effect
        self.lost_after = 0  # took effect, and the answer was lost
        self.updates_queued = 0
        self.updates_filtered = 0
        self.updates_discarded = 0  # a cap of the queue was reached
        self.updates_expired = 0
        self.downloads = 0  # of files, refused ones not counted
        self.pushes: Counter[str] = Counter()  # webhook pushes: "ok", "refused", "failed"

    def as_json(self) -> dict[str, object]:
        return {
            name: ({str(key): value for key, value in held.items()} if isinstance(held, Counter) else held)
            for name, held in vars(self).items()
        }


def digest(params: Mapping[str, object], files: Mapping[str, UploadedFile]) -> str:
    """A short fingerprint of a request, the same for the same request whatever the order of its parameters."""
    mark = hashlib.blake2b(encode(params, order="deterministic"), digest_size=8)
    for name in sorted(files):
        mark.update(name.encode())
        mark.update(files[name].content)
    return mark.hexdigest()
