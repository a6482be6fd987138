"""The inbox's part of the OpenAPI document: one row per operation, and what the answers look like."""

from peik.core.letter import State
from peik.doors.openapi_shapes import (
    BOT,
    CURSOR,
    ID,
    LIMIT,
    SECONDS,
    TIME,
    WORD,
    Json,
    Operation,
    in_path,
    in_query,
    nullable,
    shape,
)
from peik.doors.rest_arrivals import AckBody, DeadArrivalsBody, ReplayBody, SeenBody
from peik.doors.rest_consumers import ConsumerBody
from peik.inbox.desk import STATES
from peik.inbox_ports import ConsumerKind

_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_ARRIVAL: Json = {
    "id": ID,
    "bot_id": ID,
    "number": _WHOLE | {"description": "Its place in the order of its bot."},
    "update_id": _WHOLE | {"description": "As bots get it: the number, under 2^31."},
    "telegram_update_id": _WHOLE,
    "epoch": _WHOLE,
    "type": _TEXT,
    "lane": _TEXT,
    "chat_id": nullable(_TEXT),
    "user_id": nullable(_TEXT),
    "message_id": nullable(_TEXT),
    "text": nullable(_TEXT),
    "trace": _TEXT | {"description": "What its answers are found by."},
    "state": nullable({"type": "string", "enum": [str(state) for state in State]}),
    "sent_at": nullable(TIME),
    "received_at": TIME,
    "replay_of": nullable(ID),
    "deliveries": {
        "type": "array",
        "items": shape(
            consumer=_TEXT,
            state={"type": "string", "enum": [str(state) for state in State]},
            tries=_WHOLE,
            due_at=nullable(TIME),
            failed_reason=nullable(_TEXT),
            settled_at=nullable(TIME),
            history={"type": "array", "items": {"type": "object"}},
        ),
    },
}
_ANSWER: Json = shape(
    letter_id=ID,
    method=_TEXT,
    chat_id=_TEXT,
    state={"type": "string", "enum": [str(state) for state in State]},
    trace_certainty=nullable({"type": "string", "enum": ["exact", "likely"]}),
    message_ids={"type": "array", "items": _TEXT},
    accepted_at=TIME,
    finished_at=nullable(TIME),
    accepted_after_ms=_WHOLE | {"description": "After the update had come."},
    finished_after_ms=nullable(_WHOLE),
)
_CONSUMER: Json = {
    "bot_id": ID,
    "name": _TEXT,
    "kind": {"type": "string", "enum": [str(kind) for kind in ConsumerKind]},
    "url": nullable(_TEXT),
    "has_secret": {"type": "boolean"},
    "allowed_updates": nullable({"type": "array", "items": _TEXT}),
    "max_connections": _WHOLE,
    "acknowledged_up_to": _WHOLE,
    "seen_at": nullable(TIME),
    "created_at": TIME,
}
_BACKLOG: Json = {
    **_CONSUMER,
    "open": _WHOLE,
    "delayed": _WHOLE,
    "failed": _WHOLE,
    "oldest_open_at": nullable(TIME),
}

INBOX_SCHEMAS: Json = {
    "Arrival": shape(
        **_ARRIVAL,
        update={"type": "object", "description": "The update as a bot gets it."},
        answers={"type": "array", "items": _ANSWER},
        answers_are_cut={"type": "boolean", "description": "There may be more of them: GET /v1/letters?arrival_id="},
    ),
    "Arrivals": shape(arrivals={"type": "array", "items": shape(**_ARRIVAL)}, next_cursor=nullable(ID)),
    "Events": {"type": "string", "description": "One event per arrival: its number as id, the update as data."},
    "Replayed": {
        "anyOf": [
            shape(replayed=_WHOLE, next_cursor=nullable(_TEXT)),
            shape(would_replay=_WHOLE | {"description": "Of a dry run."}),
        ],
    },
    "Noted": shape(noted=_WHOLE, matched=_WHOLE | {"description": "How many of them were here already."}),
    "Acknowledged": shape(consumer=_TEXT, acknowledged_up_to=_WHOLE),
    "Consumer": shape(**_CONSUMER),
    "Consumers": shape(consumers={"type": "array", "items": shape(**_BACKLOG)}),
    "Inboxes": shape(
        bots={
            "type": "array",
            "items": shape(
                bot_id=ID,
                source={"type": "string", "enum": ["polling", "webhook", "off"]},
                epoch=nullable(_WHOLE),
                last_update_id=nullable(_WHOLE),
                last_number=nullable(_WHOLE),
                started_at=nullable(TIME),
                seen_at=nullable(TIME),
                received_at=nullable(TIME),
                expired=_WHOLE,
                expires_at=nullable(TIME),
                consumers={"type": "array", "items": shape(**_BACKLOG)},
            ),
        }
    ),
    "Recovery": shape(
        bot_id=ID, found=_WHOLE, stored=_WHOLE, duplicates=_WHOLE, expired=nullable(_WHOLE), took_s={"type": "number"}
    ),
}

NAME_PATTERN = "^[A-Za-z0-9_.-]{1,64}$"
_MOMENT: Json = {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]}
_CONSUMER_NAME = in_query(
    "consumer", {"type": "string", "pattern": NAME_PATTERN}, "The consumer; the default one if not given."
)
_FILTERS = (
    BOT,
    _CONSUMER_NAME,
    in_query("type", WORD, "A type of updates, such as message."),
    in_query("chat_id", WORD, "A chat's number, or a lane such as poll:7."),
    in_query("user_id", ID, "Who wrote it."),
    in_query("since", _MOMENT, "Received then or later; RFC 3339 or Unix seconds."),
    in_query("until", _MOMENT, "Received then or before."),
    in_query("first_number", ID, "From this number on."),
    in_query("last_number", ID, "Up to this number."),
    in_query("text", WORD, "Words in the update."),
)
_STATE = in_query(
    "state", {"type": "string", "enum": [str(state) for state in STATES]}, "How it stands with the consumer."
)
_DEAD = in_query(
    "state", {"type": "string", "enum": [str(State.FAILED)]}, "That of dead arrivals, if it is said at all."
)
_OF_CONSUMER = (in_path("bot_id"), in_path("name", {"type": "string", "pattern": NAME_PATTERN}))

INBOX_OPERATIONS: dict[str, Operation] = {
    "listArrivals": Operation(
        answers={200: "Arrivals"}, parameters=(_STATE, *_FILTERS, CURSOR, LIMIT), problems=(403, 422)
    ),
    "streamArrivals": Operation(
        answers={200: "Events"},
        parameters=(
            BOT,
            in_query("consumer", {"type": "string", "pattern": NAME_PATTERN}, "A durable consumer, made at first use."),
            in_query("type", WORD, "Types of updates, comma-separated."),
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "pattern": "^[0-9]{0,18}$"},  # empty as if it were not there
                "description": "The last event that was handled. With a consumer it acknowledges everything up to it.",
            },
        ),
        problems=(404, 409, 422, 503),
        media_type="text/event-stream",
    ),
    "listDeadArrivals": Operation(
        answers={200: "Arrivals"}, parameters=(_DEAD, *_FILTERS, CURSOR, LIMIT), problems=(403, 422)
    ),
    "clearDeadArrivals": Operation(answers={200: "Cleared"}, parameters=(_DEAD, *_FILTERS), problems=(403, 422, 503)),
    "retryDeadArrivals": Operation(
        answers={202: "Retried"},
        body=DeadArrivalsBody,
        example={"consumer": "default", "since": "2026-11-15T08:30:00Z"},
        problems=(403, 413, 422, 503),
        is_body_optional=True,
    ),
    "replayArrivals": Operation(
        answers={200: "Replayed"},
        body=ReplayBody,
        example={"consumer": "default", "since": "2026-11-15T08:30:00Z", "dry_run": True},
        problems=(403, 404, 413, 422, 503),
    ),
    "noteSeen": Operation(
        answers={200: "Noted"},
        body=SeenBody,
        example={"messages": [{"chat_id": 123456789, "message_id": 42}]},
        problems=(403, 404, 413, 422, 503),
    ),
    "acknowledgeArrivals": Operation(
        answers={200: "Acknowledged"},
        body=AckBody,
        example={"consumer": "default", "number": 42},
        problems=(403, 404, 413, 422, 503),
    ),
    "getArrival": Operation(answers={200: "Arrival"}, parameters=(in_path("arrival_id"),), problems=(404, 422)),
    "retryArrival": Operation(
        answers={202: "Arrival"},
        parameters=(in_path("arrival_id"), _CONSUMER_NAME),
        problems=(404, 409, 422, 503),
    ),
    "getInbox": Operation(answers={200: "Inboxes"}, parameters=(BOT,), problems=(403, 404, 422)),
    "recoverBot": Operation(
        answers={200: "Recovery"}, parameters=(in_path("bot_id"),), problems=(403, 404, 409, 422, 503)
    ),
    "listConsumers": Operation(answers={200: "Consumers"}, parameters=(BOT,), problems=(403, 422)),
    "setConsumer": Operation(
        answers={200: "Consumer"},
        parameters=_OF_CONSUMER,
        body=ConsumerBody,
        example={"url": "https://bot.example/updates", "secret": "as-long-as-you-like"},
        problems=(403, 404, 409, 413, 422, 503),
    ),
    "removeConsumer": Operation(answers={204: ""}, parameters=_OF_CONSUMER, problems=(403, 404, 422, 503)),
}
