"""What the library answers with: letters, receipts and counts, the same whether Peik is in this process or far away."""

import datetime
from typing import Self

import msgspec

from peik.core.letter import OnUncertain, State
from peik.core.problem import Problem


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is durable: it will be delivered, or its failure will be seen, through any crash from here on.

    `state` is as it was at that moment. Given where Telegram wants a message id (`reply_to=letter`, `message_id=letter`),
    a letter stands for the message that it will become.
    """

    id: str
    state: State


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a letter's history."""

    at: datetime.datetime
    outcome: str
    code: int | None = None
    words: str | None = None
    retry_after_s: float | None = None


class Receipt(Letter, frozen=True, kw_only=True):
    """A letter with all that is known of it. `state` may be any: `is_delivered` says whether Telegram has taken it."""

    bot_id: int
    method: str
    chat_id: int | str
    thread_id: int | None = None
    priority: int
    progress: int
    attempts: int
    attempts_made: int
    uncertain_tries: int
    failed_reason: str | None = None
    on_uncertain: OnUncertain
    result: object = None  # what Telegram answered
    merged_into: str | None = None
    params: dict[str, object]
    metadata: dict[str, object] | None = None
    trace: str | None = None  # what it answers
    trace_certainty: str | None = None  # exact or likely
    history: tuple[Try, ...]
    created_at: datetime.datetime
    send_at: datetime.datetime | None = None
    expires_at: datetime.datetime | None = None
    finished_at: datetime.datetime | None = None
    why: str | None = None  # why it still waits, as a sentence

    def __post_init__(self) -> None:
        # REST writes ids as strings. A chat's number is a number to everybody who works with Telegram.
        if isinstance(self.chat_id, str) and self.chat_id.removeprefix("-").isdigit():
            msgspec.structs.force_setattr(self, "chat_id", int(self.chat_id))

    @property
    def is_delivered(self) -> bool:
        return self.state is State.COMPLETED

    @property
    def message_id(self) -> int | None:
        """Of the message that it became, the first one of an album; None as long as there is none."""
        first = self.result[0] if isinstance(self.result, list) and self.result else self.result
        found = first.get("message_id") if isinstance(first, dict) else None
        return found if isinstance(found, int) else None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many letters stand where."""

    waiting: int = 0
    active: int = 0
    completed: int = 0
    failed: int = 0
    delayed: int = 0
    cancelled: int = 0


class QueueStats(Counts, frozen=True, kw_only=True):
    """Of all bots together, and of each."""

    bots: dict[int, Counts]

    @classmethod
    def of(cls, bots: dict[int, Counts]) -> Self:
        totals = {name: sum(getattr(one, name) for one in bots.values()) for name in Counts.__struct_fields__}
        return cls(**totals, bots=bots)


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Letters of a list, the newest first. `before` is where the next page begins; None: there is none."""

    letters: tuple[Receipt, ...]
    before: str | None = msgspec.field(name="next_cursor")


class Refused(Problem):
    """A letter that somebody waited for has failed for good. `words` are Telegram's; the dead letter is in `receipt`."""

    status = 502

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.words = receipt.failed_reason or "no reason was given"
        super().__init__(code="refused", detail=f"Letter {receipt.id} was not delivered: {self.words}")


# Lax, because REST writes ids as strings.
decode_receipt = msgspec.json.Decoder(Receipt, strict=False).decode
decode_page = msgspec.json.Decoder(Page, strict=False).decode
decode_stats = msgspec.json.Decoder(QueueStats, strict=False).decode
