"""Letters, bots, lanes and chats as the world sees them: one shape for REST, the library and webhooks. Ids are strings, times
are RFC 3339, tokens never appear."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from peik.core.arrival import Arrival
from peik.core.letter import OnUncertain, State, priority_of
from peik.core.trace import Certainty, arrival_in, certainty, plain, trace_of
from peik.core.units import rfc3339
from peik.inbox.answers import InboxStatsAnswer
from peik.outbox.message_log import MessageLogPage
from peik.outbox.store import (
    BotRecord,
    Cause,
    ChatRecord,
    LaneView,
    LetterFilter,
    LetterPage,
    LetterView,
    LoggedMessage,
    Tally,
)
from peik.web.operations import Count, Id, Moment, Object

if TYPE_CHECKING:
    from peik.inbox.service import InboxService
    from peik.inbox.store import ArrivalView
    from peik.outbox.service import OutboxService


class _Line(msgspec.Struct):
    at: int
    outcome: str
    code: int | None = None
    words: str | None = None
    retry_after_s: float | None = None


_decode_history = msgspec.json.Decoder(list[_Line]).decode


class TryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One try of a letter, and what Telegram said to it."""

    at: Moment
    outcome: str
    code: int | msgspec.UnsetType = msgspec.UNSET
    words: str | msgspec.UnsetType = msgspec.UNSET
    retry_after_s: float | msgspec.UnsetType = msgspec.UNSET


class LetterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    bot_id: Id
    method: str
    chat_id: str
    thread_id: str | None
    state: State
    priority: Annotated[int, msgspec.Meta(ge=-1, le=2)]
    progress: Annotated[int, msgspec.Meta(ge=0, le=100)]
    attempts: int
    attempts_made: int
    uncertain_tries: int
    failed_reason: str | None
    on_uncertain: OnUncertain
    result: Annotated[Any, msgspec.Meta(description="Telegram's own answer, once it has arrived.")]
    merged_into: Id | None
    params: Object
    metadata: Object | None
    trace: Annotated[str | None, msgspec.Meta(description="What it answers: see tracing.")]
    trace_certainty: Certainty | None
    history: list[TryAnswer]
    created_at: Moment
    send_at: Moment | None
    expires_at: Moment | None
    finished_at: Moment | None
    why: Annotated[
        str | msgspec.UnsetType | None, msgspec.Meta(description="Why it waits, where one letter is asked for.")
    ] = msgspec.UNSET
    provisional_ids: Annotated[
        list[int] | msgspec.UnsetType,
        msgspec.Meta(
            description="The message ids that its bot was told before there were any, where one letter is asked for."
        ),
    ] = msgspec.UNSET

    @classmethod
    def of(
        cls,
        view: LetterView,
        *,
        why: str | msgspec.UnsetType | None = msgspec.UNSET,
        provisional_ids: list[int] | msgspec.UnsetType = msgspec.UNSET,
    ) -> "LetterAnswer":
        return cls(
            id=str(view.id),
            bot_id=str(view.bot_id),
            method=view.method,
            chat_id=str(view.chat),
            thread_id=str(view.thread) if view.thread else None,
            state=view.state,
            priority=priority_of(view.rank),
            progress=100 if view.state is State.COMPLETED else 0,
            attempts=view.attempts,
            attempts_made=max(view.attempts_made, 0),
            uncertain_tries=view.uncertain_tries,
            failed_reason=view.failed_reason,
            on_uncertain=view.on_uncertain,
            result=None if view.result is None else msgspec.Raw(view.result.encode()),
            merged_into=None if view.merged_into is None else str(view.merged_into),
            params=msgspec.Raw(view.params.encode()),
            metadata=None if view.metadata is None else msgspec.Raw(view.metadata.encode()),
            trace=None if view.trace is None else plain(view.trace),
            trace_certainty=None if view.trace is None else certainty(view.trace),
            history=_history(view),
            created_at=rfc3339(view.created_at_ms),
            send_at=_send_at(view),
            expires_at=rfc3339(view.expires_at_ms),
            finished_at=rfc3339(view.settled_at_ms) if view.state.is_final else None,
            why=why,
            provisional_ids=provisional_ids,
        )


def _send_at(view: LetterView) -> str | None:
    is_waiting_for_it = view.state is State.DELAYED and view.merged_into is None
    return rfc3339(view.due_at_ms) if is_waiting_for_it else None


def _history(view: LetterView) -> list[TryAnswer]:
    """Every try. A plain delivery is not stored as a line, since the letter itself tells it."""
    lines = [
        TryAnswer(
            at=rfc3339(line.at),
            outcome=line.outcome,
            code=_or_unset(line.code),
            words=_or_unset(line.words),
            retry_after_s=_or_unset(line.retry_after_s),
        )
        for line in _decode_history(view.history or "[]")
    ]
    is_told = any(line.outcome == "delivered" for line in lines)
    if view.state is State.COMPLETED and view.merged_into is None and not is_told:
        lines.append(TryAnswer(at=rfc3339(view.settled_at_ms or 0), outcome="delivered"))
    return lines


def _or_unset(value: Any) -> Any:
    return msgspec.UNSET if value is None else value


class LettersAnswer(msgspec.Struct, frozen=True, kw_only=True):
    letters: list[LetterAnswer]
    next_cursor: Id | None
    is_cut: Annotated[bool, msgspec.Meta(description="The page ended for the many letters that were looked at: go on.")]

    @classmethod
    def of(cls, page: LetterPage) -> "LettersAnswer":
        return cls(
            letters=[LetterAnswer.of(view) for view in page.letters],
            next_cursor=None if page.cursor is None else str(page.cursor),
            is_cut=page.is_cut,
        )


class LoggedMessageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    bot_id: Id
    chat_id: str | None
    user_id: str | None
    message_type: str | None
    method: str
    text: Annotated[str | None, msgspec.Meta(description="Or the caption.")]
    state: State
    attempts_made: int
    error: str | None
    message_id: int | None
    created_at: Moment
    finished_at: Moment | None

    @classmethod
    def of(cls, one: LoggedMessage) -> "LoggedMessageAnswer":
        return cls(
            id=str(one.id),
            bot_id=str(one.bot_id),
            chat_id=None if one.chat is None else str(one.chat),
            user_id=one.user_id,
            message_type=one.message_type,
            method=one.method,
            text=one.text,
            state=one.state,
            attempts_made=one.attempts_made,
            error=one.error,
            message_id=one.message_id,
            created_at=rfc3339(one.created_at_ms),
            finished_at=rfc3339(one.finished_at_ms),
        )


class MessageLogAnswer(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[LoggedMessageAnswer]
    next_cursor: str | None
    is_cut: Annotated[bool, msgspec.Meta(description="The page ended for the many that were looked at: go on.")]

    @classmethod
    def of(cls, page: MessageLogPage) -> "MessageLogAnswer":
        return cls(
            messages=[LoggedMessageAnswer.of(one) for one in page.messages],
            next_cursor=page.cursor,
            is_cut=page.is_cut,
        )


class AcceptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: Id
    state: str


class AcceptedBatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    ids: list[Id]


class CountedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    is_least: Annotated[bool, msgspec.Meta(description="There may be more: nobody counted further.")]


class RetriedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    retried: int


class ClearedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    cleared: int


class CancelledAnswer(msgspec.Struct, frozen=True, kw_only=True):
    cancelled: int


class CauseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    reason: Annotated[str | None, msgspec.Meta(description="As the filter `cause` takes it.")]
    is_uncertain: bool
    count: int
    methods: list[str]
    newest_id: Id
    newest_at: Moment

    @classmethod
    def of(cls, cause: Cause) -> "CauseAnswer":
        return cls(
            reason=cause.reason,
            is_uncertain=cause.is_uncertain,
            count=cause.letters,
            methods=list(cause.methods),
            newest_id=str(cause.newest_id),
            newest_at=rfc3339(cause.newest_at_ms),
        )


class CausesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    causes: list[CauseAnswer]


class LetterCountsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    waiting: Count
    active: Count
    completed: Count
    failed: Count
    delayed: Count
    cancelled: Count

    @classmethod
    def of(cls, tally: Tally) -> "LetterCountsAnswer":
        return cls(
            waiting=tally.waiting,
            active=tally.active,
            completed=tally.completed,
            failed=tally.failed,
            delayed=tally.delayed,
            cancelled=tally.cancelled,
        )


class StatsAnswer(LetterCountsAnswer, frozen=True, kw_only=True):
    bots: dict[str, LetterCountsAnswer]
    inbox: Annotated[
        InboxStatsAnswer, msgspec.Meta(description="What waits for the consumers of arrivals, over all and per bot.")
    ]

    @classmethod
    def whole(cls, tallies: Mapping[int, Tally], inbox: InboxStatsAnswer) -> "StatsAnswer":
        bots = {str(bot_id): LetterCountsAnswer.of(tally) for bot_id, tally in tallies.items()}
        names = LetterCountsAnswer.__struct_fields__
        total = {name: sum(getattr(counts, name) for counts in bots.values()) for name in names}
        return cls(**total, bots=bots, inbox=inbox)


# ---- lanes, chats, bots ----


class LaneAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    chat_id: str
    thread_id: str | None
    waiting: int
    head: Annotated[Id, msgspec.Meta(description="The letter that is next.")]
    why: Annotated[str | None, msgspec.Meta(description="Why it waits.")]

    @classmethod
    def of(cls, lane: LaneView, why: str | None) -> "LaneAnswer":
        return cls(
            bot_id=str(lane.bot_id),
            chat_id=str(lane.chat),
            thread_id=str(lane.thread) if lane.thread else None,
            waiting=lane.waiting,
            head=str(lane.head),
            why=why,
        )


class LanesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    lanes: list[LaneAnswer]


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    chat_id: str
    same_as: str | None
    reachable: bool
    reason: str | None
    refused_at: Moment | None
    held_until: Moment | None

    @classmethod
    def of(cls, chat: ChatRecord) -> "ChatAnswer":
        return cls(
            bot_id=str(chat.bot_id),
            chat_id=str(chat.chat),
            same_as=None if chat.same_as is None else str(chat.same_as),
            reachable=chat.shut_reason is None,
            reason=chat.shut_reason,
            refused_at=rfc3339(chat.shut_at_ms),
            held_until=rfc3339(chat.held_until_ms),
        )


class ChatsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    chats: list[ChatAnswer]
    next_cursor: str | None


class ChangedChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    chat_id: str


class BotAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    username: str | None
    is_account: Annotated[bool, msgspec.Meta(description="An account of a person: see its session.")]
    inbound: Annotated[str, msgspec.Meta(extra_json_schema={"enum": ["polling", "webhook", "off"]})]
    missed: str | None
    paused: str | None
    limits: dict[str, Any] | None
    created_at: Moment
    node: Annotated[
        str | msgspec.UnsetType | None,
        msgspec.Meta(description="The node that serves it, where bots are listed or shown. Null: none does just now."),
    ] = msgspec.UNSET

    @classmethod
    def of(cls, bot: BotRecord, *, node: str | msgspec.UnsetType | None = msgspec.UNSET) -> "BotAnswer":
        return cls(
            bot_id=str(bot.bot_id),
            username=bot.username,
            is_account=bot.token.is_account,
            inbound=bot.inbound,
            missed=bot.missed,
            paused=bot.paused,
            limits=None if bot.limits is None else msgspec.structs.asdict(bot.limits),
            created_at=rfc3339(bot.created_at_ms),
            node=node,
        )


class BotsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bots: list[BotAnswer]


# What is shown of a trace: the letters that answer an arrival, and the arrival that a letter answers.


ANSWERS_MAX = 100
BEFORE_MS_MAX = 7 * 24 * 3600 * 1000  # an answer to another chat is looked for so far back
SKEW_MS = 60_000  # the clock of the node that took the update in may be ahead of the one that took the letter


class TraceAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The letters that answer an arrival, the oldest first. `is_cut`: there may be more."""

    letters: tuple[LetterView, ...]
    is_cut: bool


def wanted_of(arrival: Arrival) -> LetterFilter:
    """The letters that answer an arrival, for certain or likely. None of them is older than it is."""
    return LetterFilter(
        trace=trace_of(arrival.bot_id, arrival.number), since_ms=max(arrival.received_at_ms - SKEW_MS, 0)
    )


async def answers_to(service: "OutboxService", wanted: LetterFilter) -> TraceAnswers:
    page = await service.page(wanted, before=None, limit=ANSWERS_MAX)
    return TraceAnswers(letters=tuple(reversed(page.letters)), is_cut=page.cursor is not None)


async def arrival_behind(inbox: "InboxService", letter: LetterView) -> "ArrivalView | None":
    """The arrival that a letter answers, if it is (still) here."""
    named = None if letter.trace is None else arrival_in(letter.trace)
    if named is None:
        return None
    from peik.inbox.store import ArrivalFilter

    bot_id, number = named
    by_number = ArrivalFilter(bot_id=bot_id, first_number=number, last_number=number)
    # Redis has no way by number: it walks a chat, or a time. Most letters go to the chat that they answer.
    of_chat = msgspec.structs.replace(by_number, chat=letter.chat)
    of_week = msgspec.structs.replace(
        by_number, since_ms=letter.created_at_ms - BEFORE_MS_MAX, until_ms=letter.created_at_ms + SKEW_MS
    )
    for wanted in (of_chat, of_week):
        found = await inbox.arrivals(wanted, before=None, limit=1)
        if found:
            return found[0]
    return None
