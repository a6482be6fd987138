"""What doors show of arrivals, consumers and inboxes. Ids are strings, times are RFC 3339, secrets never appear."""

from collections.abc import Sequence

import msgspec

from peik.core.arrival import DEFAULT_CONSUMER, Arrival, wire_id
from peik.core.trace import trace_of
from peik.core.units import rfc3339
from peik.inbox.service import InboxView, Recovery
from peik.inbox.store import ArrivalDelivery, ArrivalView, Consumer, InboxTally
from peik.outbox.answers import ReplyAnswer, TraceAnswers
from peik.outbox.store import BotRecord

_TEXT_CHARS_MAX = 200


def arrival_view(view: ArrivalView, *, consumer: str | None = None) -> dict[str, object]:
    """A line of a list. `state` is how it stands with one consumer: the one that was asked for, or the default one."""
    arrival = view.arrival
    return {
        "id": str(arrival.id),
        "bot_id": str(arrival.bot_id),
        "number": arrival.number,
        "update_id": wire_id(arrival.number),
        "telegram_update_id": arrival.update_id,
        "epoch": arrival.epoch,
        "type": arrival.type,
        "lane": str(arrival.lane),
        "chat_id": str(arrival.lane) if isinstance(arrival.lane, int) else None,
        "user_id": None if arrival.user_id is None else str(arrival.user_id),
        "message_id": None if arrival.message_id is None else str(arrival.message_id),
        "text": text_of(arrival),
        "trace": trace_of(arrival.bot_id, arrival.number),
        "state": _state(view, consumer),
        "sent_at": rfc3339(arrival.sent_at_ms),
        "received_at": rfc3339(arrival.received_at_ms),
        "replay_of": None if arrival.replay_of is None else str(arrival.replay_of),
        "deliveries": [_delivery_view(delivery) for delivery in view.deliveries],
    }


def whole_arrival_view(view: ArrivalView, answers: TraceAnswers) -> dict[str, object]:
    """One arrival with the update itself, as a bot gets it, and the letters that answer it."""
    return {
        **arrival_view(view),
        "update": msgspec.Raw(view.arrival.wire()),
        "answers": [ReplyAnswer.of(view.arrival, letter) for letter in answers.letters],
        "answers_are_cut": answers.is_cut,
    }


def _state(view: ArrivalView, consumer: str | None) -> str | None:
    """None: this consumer never sees it, since it is a replay for another."""
    named = {delivery.consumer: delivery.state for delivery in view.deliveries}
    if consumer is None and len(named) == 1:
        return str(next(iter(named.values())))
    found = named.get(consumer or DEFAULT_CONSUMER)
    return None if found is None else str(found)


def _delivery_view(delivery: ArrivalDelivery) -> dict[str, object]:
    return {
        "consumer": delivery.consumer,
        "state": delivery.state,
        "tries": delivery.tries,
        "due_at": rfc3339(delivery.due_at_ms),
        "failed_reason": delivery.failed_reason,
        "settled_at": rfc3339(delivery.settled_at_ms),
        "history": [_line(line) for line in _decode_history(delivery.history or "[]")],
    }


_decode_history = msgspec.json.Decoder(list[dict[str, object]]).decode


def _line(line: dict[str, object]) -> dict[str, object]:
    at = line.get("at")
    return {**line, "at": rfc3339(at)} if isinstance(at, int) else line


class _Body(msgspec.Struct):
    text: object = None
    caption: object = None
    data: object = None
    query: object = None


_decode_payload = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_body = msgspec.json.Decoder(_Body).decode


def text_of(arrival: Arrival) -> str | None:
    """What the user wrote or pressed, if anything; the beginning of it."""
    try:
        body = _decode_body(_decode_payload(arrival.payload)[arrival.type])
    except (msgspec.DecodeError, KeyError):
        return None
    for words in (body.text, body.caption, body.data, body.query):
        if isinstance(words, str) and words:
            return words[:_TEXT_CHARS_MAX]
    return None


def consumer_view(consumer: Consumer) -> dict[str, object]:
    return {
        "bot_id": str(consumer.bot_id),
        "name": consumer.name,
        "kind": consumer.kind,
        "url": consumer.url,
        "has_secret": consumer.secret is not None,
        "allowed_updates": None if consumer.allowed is None else sorted(consumer.allowed),
        "max_connections": consumer.connections_max,
        "acknowledged_up_to": consumer.progress.watermark,
        "seen_at": rfc3339(consumer.seen_at_ms),
        "created_at": rfc3339(consumer.created_at_ms),
    }


def tally_view(tally: InboxTally) -> dict[str, object]:
    return {
        **consumer_view(tally.consumer),
        "open": tally.open,
        "delayed": tally.delayed,
        "failed": tally.failed,
        "oldest_open_at": rfc3339(tally.oldest_open_at_ms),
    }


def inbox_view(bot: BotRecord, inbox: InboxView) -> dict[str, object]:
    state = inbox.state
    return {
        "bot_id": str(bot.bot_id),
        "source": bot.inbound,
        "epoch": None if state is None else state.epoch,
        "last_update_id": None if state is None else state.last_update_id,
        "last_number": None if state is None else state.last_number,
        "started_at": None if state is None else rfc3339(state.started_at_ms),
        "seen_at": None if state is None else rfc3339(state.seen_at_ms),
        "received_at": None if state is None else rfc3339(state.received_at_ms),
        "expired": 0 if state is None else state.expired,
        "expires_at": rfc3339(inbox.expires_at_ms),
        "consumers": [tally_view(tally) for tally in inbox.tallies],
    }


def inbox_stats(tallies: Sequence[InboxTally]) -> dict[str, object]:
    """The inbox's part of the counts: over all consumers, and per bot and consumer."""
    names = ("open", "delayed", "failed")
    bots: dict[str, dict[str, dict[str, int]]] = {}
    for tally in tallies:
        counts = {"open": tally.open, "delayed": tally.delayed, "failed": tally.failed}
        bots.setdefault(str(tally.consumer.bot_id), {})[tally.consumer.name] = counts
    every = [counts for consumers in bots.values() for counts in consumers.values()]
    total: dict[str, object] = {name: sum(counts[name] for counts in every) for name in names}
    return {**total, "bots": bots}


def recovery_view(recovery: Recovery) -> dict[str, object]:
    return {
        "bot_id": str(recovery.bot_id),
        "found": recovery.found,
        "stored": recovery.stored,
        "duplicates": recovery.duplicates,
        "expired": recovery.expired,
        "took_s": round(recovery.took_s, 3),
    }
