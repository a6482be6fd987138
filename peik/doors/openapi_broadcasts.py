"""The broadcasts' part of the OpenAPI document: one row per operation, and what the answers look like."""

from peik.broadcasts.desk import KEY_CHARS_MAX
from peik.core.broadcast import ASKED, Phase, RecipientState
from peik.doors.broadcast_bodies import BroadcastBody, PreviewBody, StartBody
from peik.doors.openapi_shapes import (
    CURSOR,
    ID,
    LIMIT,
    SECONDS,
    TIME,
    Json,
    Operation,
    in_path,
    in_query,
    nullable,
    shape,
)
from peik.doors.rest_broadcasts import FORMATS

_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_NUMBER: Json = {"type": "number"}
_STATE: Json = {"type": "string", "enum": [str(phase) for phase in Phase]}
_END: Json = {"type": "string", "enum": [str(state) for state in RecipientState]}

_BROADCAST = shape(
    id=ID,
    bot_id=ID,
    name=nullable(_TEXT),
    method=_TEXT,
    params={"type": "object"},
    state=_STATE,
    reason=nullable(_TEXT) | {"description": "Why it stopped or rests, if it did by itself."},
    steps={"type": "array", "items": {"type": "string", "enum": [str(step) for step in ASKED]}},
    audience={"type": "object"},
    total=_WHOLE | {"description": "Recipients that are written down. Known chats are when it starts."},
    counts=shape(**{str(state): _WHOLE for state in RecipientState}),
    unrecalled=_WHOLE | {"description": "Messages that could not be deleted in a recall."},
    progress={"type": "number", "minimum": 0, "maximum": 1},
    eta_s=nullable(SECONDS) | {"description": "About so long until its end; null: nobody knows, or it is halted."},
    canary=nullable({"type": "object"}),
    quiet=nullable({"type": "object"}),
    paid=nullable(
        shape(stars_max=_NUMBER, stars_most=_NUMBER | {"description": "What it has cost so far at the very most."})
    ),
    created_by=nullable(_TEXT),
    created_at=TIME,
    start_at=nullable(TIME),
    started_at=nullable(TIME),
    quiet_until=nullable(TIME),
    ended_at=nullable(TIME),
)
_CREATED: Json = {
    "allOf": [
        {"$ref": "#/components/schemas/Broadcast"},
        shape(duplicates=_WHOLE | {"description": "Recipients that were named more than once."}),
    ]
}

BROADCAST_SCHEMAS: Json = {
    "Broadcast": _BROADCAST,
    "CreatedBroadcast": _CREATED,
    "Broadcasts": shape(
        broadcasts={"type": "array", "items": {"$ref": "#/components/schemas/Broadcast"}},
        next_cursor=nullable(ID),
    ),
    "Estimate": shape(
        recipients=_WHOLE,
        suppressed=_WHOLE,
        is_least={
            "type": "boolean",
            "description": "Of a long list not all were looked at: suppressed are at least so many, recipients at most.",
        },
        messages=_WHOLE,
        per_s=nullable(_NUMBER),
        duration_s=SECONDS,
        done_at=TIME,
        stars=_NUMBER | {"description": "Likely, at the bot's pace."},
        stars_most=_NUMBER | {"description": "If none of the messages were free."},
        stars_max=nullable(_NUMBER),
    ),
    "Preview": shape(letter_id=ID),
    "Recipients": shape(
        recipients={
            "type": "array",
            "items": shape(
                number=ID,
                chat_id=_TEXT,
                state=_END,
                letter_id=nullable(ID),
                message_id=nullable(ID),
                message_ids={"type": "array", "items": ID},
                error=nullable(_TEXT),
                values=nullable({"type": "object", "additionalProperties": _TEXT}),
                uncertain_tries=_WHOLE,
                recall_letter_id=nullable(ID),
                queued_at=nullable(TIME),
                ended_at=nullable(TIME),
            ),
        },
        next_cursor=nullable(ID),
    ),
}

_OF = (in_path("broadcast_id"),)
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": "^[!-~]+$"},
    "description": "A repeat with the same key is the same broadcast, as long as that is kept.",
}
_STEP = Operation(answers={200: "Broadcast"}, parameters=_OF, problems=(404, 409, 503))

BROADCAST_OPERATIONS: dict[str, Operation] = {
    "createBroadcast": Operation(
        answers={201: "CreatedBroadcast"},
        parameters=(_KEY,),
        body=BroadcastBody,
        example={"method": "sendMessage", "params": {"text": "Salam"}, "audience": {"chat_ids": [42]}, "start": True},
        problems=(404, 409, 413, 422, 503),
    ),
    "listBroadcasts": Operation(
        answers={200: "Broadcasts"},
        parameters=(in_query("bot_id", ID, "Of this bot."), CURSOR, LIMIT),
        problems=(422, 503),
    ),
    "getBroadcast": Operation(answers={200: "Broadcast"}, parameters=_OF, problems=(404, 503)),
    "deleteBroadcast": Operation(answers={204: ""}, parameters=_OF, problems=(404, 409, 503)),
    "startBroadcast": Operation(
        answers={200: "Broadcast"},
        parameters=_OF,
        body=StartBody,
        example={"send_at": "2026-12-01T09:00:00Z"},
        is_body_optional=True,
        problems=(404, 409, 413, 422, 503),
    ),
    "pauseBroadcast": _STEP,
    "resumeBroadcast": _STEP,
    "cancelBroadcast": _STEP,
    "recallBroadcast": _STEP,
    "previewBroadcast": Operation(
        answers={202: "Preview"},
        parameters=_OF,
        body=PreviewBody,
        example={"chat_id": 42},
        problems=(404, 409, 413, 422, 503),
    ),
    "estimateBroadcast": Operation(answers={200: "Estimate"}, parameters=_OF, problems=(404, 503)),
    "listRecipients": Operation(
        answers={200: "Recipients"},
        parameters=(
            *_OF,
            in_query("state", _END, "How they stand."),
            in_query("format", {"type": "string", "enum": list(FORMATS)}, "All of them, as a file."),
            CURSOR,
            LIMIT,
        ),
        problems=(404, 422, 503),
        other_media_types=tuple(kind.partition(";")[0] for kind in FORMATS.values()),
    ),
}
