"""What forgetting a person asks of a store, beside what its other parts offer, and what each place that is looked through is."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from peik.core.letter import Chat
from peik.erasure.model import ErasedPerson, Found


class ErasurePart(Protocol):
    """Somebody who keeps records of people, and forgets one of them. It may be asked again and again: what is gone is not counted
    twice. Everything is done in bounded commits, so that anyone who sends waits no longer than for one of them."""

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        """By place, what became of it; in a dry run, what would. Raises StoreUnavailable: what was done until then is done."""


class LoggedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the message log: of a letter that is gone."""

    id: int
    bot_id: int
    chat: Chat | None
    user_id: str | None
    error: str | None
    text: str | None = None


class KeptKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of idempotency."""

    bot_id: int
    key: str


class Blank(msgspec.Struct, frozen=True, kw_only=True):
    """What is to stand in place of an arrival's payload. `is_theirs`: the arrival is the person's own, and loses its lane, its
    sender and its failures; else only what is named in them goes."""

    arrival_id: int
    payload: str
    is_theirs: bool


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """What a bot knows of a private chat beside letters and arrivals: how many records."""

    contacts: int = 0
    chats: int = 0  # reachable or not, held, other names of it
    handled: int = 0  # messages of it that an MTProto client has seen


class Forgetting(Protocol):
    """Every method that writes answers after a durable commit, or raises StoreUnavailable. What is not there any more is passed
    over. Order, numbers and counts of all else stay right."""

    async def drop_letters(self, letter_ids: Sequence[int]) -> int:
        """Ended letters go with their results, keys, hooks and files, and leave no line in the message log. How many went; one
        that has not ended, or was sent again meanwhile, stays."""

    async def logged(self, cursor: str | None, limit: int) -> tuple[list[LoggedLine], str | None]:
        """The message log, about `limit` lines at a time; None: that was the last page."""

    async def drop_logged(self, ids: Sequence[int]) -> int: ...

    async def kept_keys(self, cursor: str | None, limit: int) -> tuple[list[KeptKey], str | None]: ...

    async def drop_keys(self, keys: Sequence[KeptKey]) -> int: ...

    async def blank_arrivals(self, blanks: Sequence[Blank], *, person: ErasedPerson) -> int:
        """The arrivals keep their ids and numbers, so that every reader's place stays right, and Telegram's second copy of one is
        still known as such."""

    async def traces(self, bot_id: int, chat_id: int) -> Traces: ...

    async def drop_traces(self, bot_id: int, chat_id: int) -> Traces:
        """All of them. What went."""

    async def drop_jobs(self, job_ids: Sequence[int]) -> int:
        """Ended jobs. How many went; one that was run again meanwhile stays."""

    async def drop_job_days(self, users: Sequence[str], *, is_dry: bool) -> int:
        """What these users had of each day. How many records."""

    async def overwrite(self, *, is_on: bool) -> None:
        """From now on what anybody removes by this process is overwritten, where that can be asked for; or not any more."""

    async def wipe(self, *, is_alone: bool) -> list[str]:
        """See that what was removed is not left lying in the files, as far as it can be done from here; what is left of it, in
        words for people. `is_alone`: nobody else has the store, and nobody waits."""
