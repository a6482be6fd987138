"""What the REST door shows of letters, bots and counts. Ids are strings, times are RFC 3339, tokens never appear."""

from collections.abc import Mapping, Sequence

import msgspec

from peik.core.arrival import Arrival
from peik.core.trace import arrival_in, certainty, message_ids_in, trace_of
from peik.inbox.service import InboxService
from peik.inbox.store import ArrivalFilter, ArrivalView
from peik.outbox.answers import rfc3339
from peik.outbox.service import OutboxService
from peik.outbox.store import BotRecord, Cause, ChatRecord, LaneView, LetterFilter, LetterView, Tally
from peik.telegram.routes import RouteStatus


def bot_view(bot: BotRecord) -> dict[str, object]:
    return {
        "bot_id": str(bot.bot_id),
        "username": bot.username,
        "is_account": bot.token.is_account,
        "inbound": bot.inbound,
        "missed": bot.missed,
        "paused": bot.paused,
        "limits": None if bot.limits is None else msgspec.structs.asdict(bot.limits),
        "created_at": rfc3339(bot.created_at_ms),
    }


def route_view(status: RouteStatus, *, is_in_use: bool) -> dict[str, object]:
    return {
        "name": status.name,
        "kind": status.kind,
        "state": status.state,
        "in_use": is_in_use,
        "failures": status.failures,
        "why": status.why or None,
        "since": rfc3339(status.since_ms),
        "probe_at": rfc3339(status.probe_at_ms),
    }


def tally_view(tally: Tally) -> dict[str, int]:
    return {
        "waiting": tally.waiting,
        "active": tally.active,
        "completed": tally.completed,
        "failed": tally.failed,
        "delayed": tally.delayed,
        "cancelled": tally.cancelled,
    }


def stats_view(tallies: Mapping[int, Tally]) -> dict[str, object]:
    bots = {str(bot_id): tally_view(tally) for bot_id, tally in tallies.items()}
    total: dict[str, object] = {name: sum(counts[name] for counts in bots.values()) for name in tally_view(Tally())}
    return {**total, "bots": bots}


def lane_view(lane: LaneView, why: str | None) -> dict[str, object]:
    return {
        "bot_id": str(lane.bot_id),
        "chat_id": str(lane.chat),
        "thread_id": str(lane.thread) if lane.thread else None,
        "waiting": lane.waiting,
        "head": str(lane.head),
        "why": why,
    }


def cause_view(cause: Cause) -> dict[str, object]:
    return {
        "reason": cause.reason,
        "is_uncertain": cause.is_uncertain,
        "count": cause.letters,
        "methods": list(cause.methods),
        "newest_id": str(cause.newest_id),
        "newest_at": rfc3339(cause.newest_at_ms),
    }


def chat_view(chat: ChatRecord) -> dict[str, object]:
    return {
        "bot_id": str(chat.bot_id),
        "chat_id": str(chat.chat),
        "same_as": None if chat.same_as is None else str(chat.same_as),
        "reachable": chat.shut_reason is None,
        "reason": chat.shut_reason,
        "refused_at": rfc3339(chat.shut_at_ms),
        "held_until": rfc3339(chat.held_until_ms),
    }


# What doors show of a trace: the letters that answer an arrival, and the arrival that a letter answers.


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


async def answers_to(desk: OutboxService, wanted: LetterFilter) -> TraceAnswers:
    page = await desk.page(wanted, before=None, limit=ANSWERS_MAX)
    return TraceAnswers(letters=tuple(reversed(page.letters)), is_cut=page.cursor is not None)


async def arrival_behind(inbox: InboxService, letter: LetterView) -> ArrivalView | None:
    """The arrival that a letter answers, if it is (still) here."""
    named = None if letter.trace is None else arrival_in(letter.trace)
    if named is None:
        return None
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


def answers_view(arrival: Arrival, letters: Sequence[LetterView]) -> list[dict[str, object]]:
    return [answer_view(arrival, letter) for letter in letters]


def answer_view(arrival: Arrival, letter: LetterView) -> dict[str, object]:
    return {
        "letter_id": str(letter.id),
        "method": letter.method,
        "chat_id": str(letter.chat),
        "state": letter.state,
        "trace_certainty": None if letter.trace is None else certainty(letter.trace),
        "message_ids": [str(one) for one in message_ids_in(letter.result or "null")],
        "accepted_at": rfc3339(letter.created_at_ms),
        "finished_at": rfc3339(letter.settled_at_ms) if letter.state.is_final else None,
        "accepted_after_ms": after_ms(arrival, letter.created_at_ms),
        "finished_after_ms": ended_after_ms(arrival, letter),
    }


def after_ms(arrival: Arrival, at_ms: int) -> int:
    """How long after the update had come; never less than nothing, whatever clocks say."""
    return max(at_ms - arrival.received_at_ms, 0)


def ended_after_ms(arrival: Arrival, letter: LetterView) -> int | None:
    """The same for the end of a letter; None: it has not ended."""
    is_over = letter.state.is_final and letter.settled_at_ms is not None
    return after_ms(arrival, letter.settled_at_ms or 0) if is_over else None
