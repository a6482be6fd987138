"""What the inbox asks of its store, and the values that they exchange. The letters' side is in `peik.outbox.store`."""

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from peik.core.address import AddressReach
from peik.core.arrival import Arrival, ConsumerProgress, Span, Update
from peik.core.letter import Chat, State
from peik.errors import BadInput


class InboxState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a bot's updates at Telegram. Times are None before the first one."""

    bot_id: int
    epoch: int = 1  # of Telegram's numbering: rises when the ids begin anew
    server: str = ""  # whose numbering it is: the API root
    last_update_id: int | None = None  # the last of the last committed batch, never the highest
    newest_update_id: int | None = None  # the highest of the epoch that is here, whichever way it came
    started_at_ms: int | None = None
    seen_at_ms: int | None = None  # when Telegram last answered a poll, or pushed
    received_at_ms: int | None = None  # when the last update came
    last_number: int = 0
    expired: int = 0  # updates that Telegram threw away before we came, where the ids allow to know


class TakenIn(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit made of updates. Duplicates take no number."""

    stored: int
    duplicates: int
    last_number: int
    epoch: int


STATES = (State.WAITING, State.DELAYED, State.COMPLETED, State.FAILED)  # that arrivals can be found by
NAME_PATTERN = "^[A-Za-z0-9_.-]{1,64}$"  # of consumers


def check_name(name: str) -> None:
    """Of a consumer."""
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise BadInput(code="bad_consumer", detail="A consumer's name has 1 to 64 characters out of A-Z a-z 0-9 _ . -.")


class ConsumerKind(enum.StrEnum):
    NONE = "none"  # known, and not used yet
    POLL = "poll"  # getUpdates through the gateway
    PUSH = "push"  # a POST per update
    HANDLER = "handler"  # functions in a program that uses the library
    STREAM = "stream"  # server-sent events


class Consumer(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever reads a bot's arrivals, with a cursor of its own. `progress` is the store's to change."""

    id: int
    bot_id: int
    name: str
    kind: ConsumerKind = ConsumerKind.NONE
    url: str | None = None
    secret: str | None = None
    allowed: frozenset[str] | None = None  # types of updates; None: those that Telegram gives if nobody asks
    connections_max: int = 40
    progress: ConsumerProgress = ConsumerProgress(watermark=0)
    seen_at_ms: int | None = None
    created_at_ms: int = 0

    def __repr__(self) -> str:
        return f"Consumer({self.id}, {self.bot_id}@{self.name}, {self.kind})"  # a url and a secret can be secrets


class Deferral(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival whose handing on failed, and when it is tried again. `entry` is a line of its history, as JSON."""

    number: int
    tries: int
    due_at_ms: int
    entry: str | None = None
    lane: Chat | None = None  # filled in by the store when read


class Burial(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival that is given up: from now on a dead arrival, with its whole history."""

    number: int
    tries: int
    reason: str
    entry: str


class ArrivalDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """How an arrival stands with one consumer."""

    consumer: str
    state: State  # waiting, delayed, completed or failed; who is at work on it just now is known to the engine alone
    tries: int = 0
    due_at_ms: int | None = None
    failed_reason: str | None = None
    settled_at_ms: int | None = None
    history: str | None = None  # a JSON array


class ArrivalView(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival as people see it."""

    arrival: Arrival
    deliveries: tuple[ArrivalDelivery, ...]


class ArrivalFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which arrivals. What is None does not matter. `state` is meant with `consumer`."""

    bot_id: int | None = None
    bot_ids: frozenset[int] | None = None  # what the asker may see
    consumer: str | None = None  # None: the default one
    state: State | None = None
    type: str | None = None
    chat: Chat | None = None
    user_id: int | None = None
    since_ms: int | None = None  # by the time of receipt
    until_ms: int | None = None
    first_number: int | None = None
    last_number: int | None = None
    text: str | None = None
    is_original: bool = False  # leave replays out, as `replay` itself does


class OutageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which Peik or its default consumer was away. Open arrivals up to `last_number` waited through it."""

    id: int
    bot_id: int
    began_at_ms: int
    ended_at_ms: int
    last_number: int
    settled_at_ms: int | None = None


class OutgoingPush(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the inbox has for the outbox: a notice to somebody, or a method in the answer to a push."""

    method: str
    params: bytes  # a JSON object
    idempotency_key: str | None = None
    metadata: bytes | None = None  # a JSON object


class HandingAgain(msgspec.Struct, frozen=True, kw_only=True):
    """What pollers of a consumer had in hand when they ended, as far as this process has seen it."""

    count: int  # since it has run
    at_ms: int  # when that was the last time
    arrival_ids: tuple[int, ...]  # the first ones of that time
    deaths: int  # in a row


class InboxTally(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer's backlog."""

    consumer: Consumer
    open: int  # waiting or being worked on
    delayed: int
    failed: int
    handed: int = 0  # of the open ones: confirmed by a poller that was not seen to deal with them yet
    oldest_open_at_ms: int | None = None  # when the oldest open one was received that nobody has in hand
    handed_again: HandingAgain | None = None


class ArrivalRetention(msgspec.Struct, frozen=True, kw_only=True):
    read_ms: int  # after every consumer had it
    unread_ms: int  # after it came
    idle_ms: int  # of consumers other than the default one
    handled_ms: int = 7 * 24 * 3600 * 1000  # notes of what an MTProto client has seen


class ArrivalsCleaned(msgspec.Struct, frozen=True, kw_only=True):
    gone: int
    unread: Mapping[int, int]  # per bot: how many went though somebody had not read them
    expired: tuple[Consumer, ...]  # consumers that nobody used


class PushAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a push: a status with the answer, or 0 and why there is none."""

    status: int = 0
    body: bytes = b""
    retry_after_s: float | None = None
    why: str = ""
    ip_address: str | None = None  # that it was taken to, if there was a connection


class PushHealth(msgspec.Struct, kw_only=True):
    """What came of the pushes to one address lately, in the process that makes them. For people: nothing is decided by it."""

    url: str
    ip_address: str | None = None
    error_at_ms: int | None = None  # of the last push that failed; it stays, as with Telegram, when others succeed
    error: str = ""

    def note(self, pushed: PushAnswer, *, error: str | None, at_ms: int) -> None:
        self.ip_address = pushed.ip_address or self.ip_address
        if error is not None:
            self.error_at_ms, self.error = at_ms, error


class PushPort(Protocol):
    """Takes updates to bots over HTTP, on connections that stay. It answers with facts and never raises for the network."""

    async def push(
        self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float, reach: AddressReach
    ) -> PushAnswer:
        """`reach`: whereto this bot may lead."""

    async def close(self) -> None: ...


class InboxStore(Protocol):
    """Where arrivals are kept. Every method that writes answers after a durable commit, or raises StoreUnavailable."""

    # sources
    async def open_inbox(self, bot_id: int, *, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
        """A source starts: (as it was before, as it is now). Another server is another epoch, read from its head.

        Makes the bot's default consumer if there is none, so that nothing that comes is ever without a reader.
        """

    async def inbox(self, bot_id: int) -> InboxState | None: ...

    async def take_in(
        self,
        bot_id: int,
        updates: Sequence[Update],
        *,
        at_ms: int,
        last_update_id: int | None,
        is_new_epoch: bool = False,
        expired: int = 0,
    ) -> TakenIn:
        """Store updates in order. `last_update_id` is what the next poll confirms; None leaves it (a webhook does).

        Duplicates are ignored: the same (bot, epoch, update_id), and in an epoch after the first the same payload in the
        same lane within the last 48 hours of an earlier one. What an MTProto client has handled already is stored and
        is over for the default consumer. The first update of a bot ever seeds its numbers with Telegram's own id.
        """

    async def note_seen(self, bot_id: int, *, at_ms: int) -> None:
        """Telegram answered, and there was nothing."""

    # consumers
    async def consumers(self, bot_id: int | None = None) -> list[Consumer]: ...

    async def ensure_consumer(self, bot_id: int, name: str, *, at_ms: int, most: int | None = None) -> Consumer:
        """The consumer of this name; made at its first use, and then it begins with the oldest arrival still kept. Raises
        Conflict if it would be more than `most` of the bot, besides the default one."""

    async def save_consumer(self, consumer: Consumer) -> None:
        """Its kind, url, secret, allowed types and connections. Never its progress or when it was seen."""

    async def touch_consumers(self, seen: Mapping[int, int]) -> None:
        """When these consumers (by id) were last there."""

    async def remove_consumer(self, consumer_id: int) -> None: ...

    # handing on
    async def arrivals_after(
        self, consumer_id: int, number: int, *, limit: int, bytes_max: int = 4 << 20, lane: Chat | None = None
    ) -> list[Arrival]:
        """What this consumer may see above a number, in order; with `lane`, of that lane alone. At least one, if any."""

    async def arrivals_from(self, bot_id: int, number: int, *, limit: int) -> list[Arrival]:
        """What came to a bot, above a number, in order, whoever has read it; replays are left out."""

    async def deferrals(self, consumer_id: int) -> list[Deferral]:
        """What is put off for this consumer, in the order of numbers."""

    async def settle_arrivals(
        self,
        consumer_id: int,
        *,
        over: Sequence[Span] = (),
        deferred: Sequence[Deferral] = (),
        dead: Sequence[Burial] = (),
        at_ms: int,
    ) -> ConsumerProgress:
        """What became of arrivals, in one commit. Dead ones are over too. Numbers that this consumer never sees do not
        keep its watermark back. Progress never goes back, whoever settles."""

    # outages
    async def open_outage(
        self, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last_number: int
    ) -> OutageRecord: ...

    async def outages(self, bot_id: int, *, is_open: bool) -> list[OutageRecord]:
        """The newest hundred, or all that are not settled yet."""

    async def settle_outage(self, outage_id: int, *, at_ms: int) -> None: ...

    # MTProto clients
    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]], *, at_ms: int) -> int:
        """(chat id, message id) of what was handled over MTProto: over for the default consumer, whether it is here
        already or comes later. How many were here."""

    # people
    async def find_arrivals(self, wanted: ArrivalFilter, *, before: int | None, limit: int) -> list[ArrivalView]:
        """The newest first, below an id; each with how it stands with the filter's consumer, or with all if none is named."""

    async def arrival(self, arrival_id: int) -> ArrivalView | None: ...

    async def count_arrivals(self, wanted: ArrivalFilter) -> int: ...

    async def replay(
        self, wanted: ArrivalFilter, consumer_id: int, *, after: int, up_to: int, limit: int, at_ms: int
    ) -> tuple[int, int | None]:
        """Hand arrivals of a filter to a consumer once more, oldest first, with new numbers, for it alone: those with
        ids above `after` and not above `up_to`. How many, and the last id; None when there are no more."""

    async def last_arrival_id(self) -> int: ...

    async def retry_dead_arrivals(self, wanted: ArrivalFilter, *, at_ms: int, limit: int) -> list[int]:
        """Dead arrivals join the end of their lanes as replays for the consumer that gave them up. The new ids."""

    async def clear_dead_arrivals(self, wanted: ArrivalFilter, *, limit: int) -> int: ...

    async def inbox_tallies(self, bot_id: int | None = None) -> list[InboxTally]: ...

    # upkeep
    async def clean_arrivals(self, retention: ArrivalRetention, *, at_ms: int, limit: int) -> ArrivalsCleaned: ...
