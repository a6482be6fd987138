"""The archive's part of the OpenAPI document: messages, events, the log, and the streams of them."""

from peik.archive.exporting import Form
from peik.archive_ports import LOG_LEVELS, Direction, LineKind
from peik.doors.archive_queries import CURSOR_CHARS_MAX, LIMIT_DEFAULT
from peik.doors.openapi_sessions import TEXT, WHOLE
from peik.doors.openapi_shapes import SECONDS, TIME, WORD, Json, Operation, in_path, in_query, nullable, shape
from peik.doors.queries import LIMIT_MAX
from peik.doors.rest_messages import ForgetBody, ReaderBody

_NUMBER: Json = {"type": "string", "pattern": "^-?[0-9]{1,18}$"}
_MOMENT: Json = {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]}
_NEXT = nullable(TEXT) | {"description": "The cursor of the next page; null at the end."}
_MESSAGE: Json = {
    "session_id": TEXT,
    "agent_id": TEXT,
    "chat_id": TEXT | {"description": "As the Bot API writes it: groups negative, channels and supergroups -100…"},
    "message_id": TEXT,
    "direction": {"type": "string", "enum": [str(direction) for direction in Direction]},
    "sender_id": nullable(TEXT),
    "date": TIME,
    "edited_at": nullable(TIME),
    "deleted_at": nullable(TIME),
    "kind": TEXT | {"description": "text, photo, video, voice, document, service, …"},
    "text": TEXT,
    "reply_to": nullable(TEXT),
    "grouped_id": nullable(TEXT),
    "media": nullable({"type": "object"}),
    "letter_id": nullable(TEXT) | {"description": "The letter that sent it."},
    "created_at": TIME | {"description": "When it was archived."},
}
_WHOLE_MESSAGE: Json = {**_MESSAGE, "raw": {"description": "The whole of it as Telegram told it."}}

MESSAGE_SCHEMAS: Json = {
    "Message": shape(
        **_WHOLE_MESSAGE,
        versions={"type": "array", "items": shape(**_WHOLE_MESSAGE), "description": "The oldest first."},
    ),
    "Messages": shape(messages={"type": "array", "items": shape(**_MESSAGE)}, next=_NEXT),
    "MessageCount": shape(count=WHOLE),
    "MessageExport": {"type": "string", "description": "One message per line, or as rows below a head."},
    "Forgotten": shape(removed={"type": "object", "additionalProperties": WHOLE}),
    "Reader": shape(reader=TEXT, places={"type": "object", "additionalProperties": WHOLE}),
    "ArchiveStats": shape(sessions=WHOLE, messages=WHOLE, versions=WHOLE, events=WHOLE),
    "Happenings": shape(
        events={
            "type": "array",
            "items": shape(
                event_id=TEXT,
                session_id=TEXT,
                agent_id=TEXT,
                event_type=TEXT | {"description": "joined, left, read, reaction, online, state, …"},
                chat_id=nullable(TEXT),
                user_id=nullable(TEXT),
                payload={"type": "object"},
                created_at=TIME,
            ),
        },
        next=_NEXT,
    ),
    "Logs": shape(
        logs={
            "type": "array",
            "items": shape(
                at=TIME,
                level={"type": "string", "enum": list(LOG_LEVELS)},
                event=TEXT,
                node=TEXT,
                session_id=nullable(TEXT),
                bot_id=nullable(TEXT),
                fields={"type": "object"},
            ),
        },
        next=_NEXT,
    ),
    "Lines": {
        "type": "string",
        "description": f"One event per line of a feed ({', '.join(LineKind)}), with the place behind it as id.",
    },
}

_CURSOR = in_query(
    "cursor", {"type": "string", "minLength": 1, "maxLength": CURSOR_CHARS_MAX}, "The next of the page before."
)
_LIMIT = in_query(
    "limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}, "How many."
)
_SESSION = in_query("session_id", WORD, "What this session saw.")
_AGENT = in_query("agent_id", WORD, "What sessions of this agent saw.")
_CHAT = in_query("chat_id", _NUMBER, "In this chat.")
_SPAN = (
    in_query("since", _MOMENT, "Then or later; RFC 3339 or Unix seconds."),
    in_query("until", _MOMENT, "Before then."),
)
_MESSAGES = (
    _SESSION,
    _AGENT,
    _CHAT,
    in_query("direction", {"type": "string", "enum": [str(direction) for direction in Direction]}, "To it, or by it."),
    in_query("sender_id", _NUMBER, "Who wrote it."),
    in_query("kind", WORD, "text, photo, video, …"),
    *_SPAN,
    in_query("text", WORD, "Whole words, in any order and case."),
    in_query("deleted", {"type": "string", "enum": ["true", "false"]}, "Deleted at Telegram, or not."),
)
_STREAM = Operation(
    answers={200: "Lines"},
    parameters=(
        _SESSION,
        _AGENT,
        _CHAT,
        in_query("kinds", WORD, "Which of message, edited, deleted and event, with commas between."),
        in_query("reader", WORD, "A name under which the archive keeps how far this reader is."),
        {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "pattern": "^[!-~]*$"},  # empty as if it were not there
            "description": "The last id that was had: it goes on behind it.",
        },
    ),
    problems=(409, 422, 503),
    media_type="text/event-stream",
)
_READ = (409, 422, 503)

MESSAGE_OPERATIONS: dict[str, Operation] = {
    "listMessages": Operation(answers={200: "Messages"}, parameters=(*_MESSAGES, _CURSOR, _LIMIT), problems=_READ),
    "countMessages": Operation(answers={200: "MessageCount"}, parameters=_MESSAGES, problems=_READ),
    "exportMessages": Operation(
        answers={200: "MessageExport"},
        parameters=(
            in_query("format", {"type": "string", "enum": [str(form) for form in Form]}, "JSON Lines if not given."),
            *_MESSAGES,
            _CURSOR,
            _LIMIT,
        ),
        problems=_READ,
        media_type="application/jsonl",
        other_media_types=("text/csv",),
    ),
    "streamMessages": _STREAM,
    "getArchiveStats": Operation(answers={200: "ArchiveStats"}, parameters=(_AGENT,), problems=_READ),
    "forgetPerson": Operation(
        answers={200: "Forgotten"}, body=ForgetBody, example={"user_id": "123456789"}, problems=(409, 413, 422, 503)
    ),
    "getMessage": Operation(
        answers={200: "Message"},
        parameters=(in_path("session_id", WORD), in_path("chat_id", _NUMBER), in_path("message_id", _NUMBER)),
        problems=(404, 409, 422, 503),
    ),
    "listEvents": Operation(
        answers={200: "Happenings"},
        parameters=(
            _SESSION,
            _AGENT,
            in_query("event_type", WORD, "joined, left, read, …"),
            _CHAT,
            *_SPAN,
            _CURSOR,
            _LIMIT,
        ),
        problems=_READ,
    ),
    "streamEvents": _STREAM,
    "getReader": Operation(answers={200: "Reader"}, parameters=(in_path("name", WORD),), problems=_READ),
    "setReader": Operation(
        answers={200: "Reader"},
        parameters=(in_path("name", WORD),),
        body=ReaderBody,
        example={"places": {"5f0c": 17}},
        problems=(409, 413, 422, 503),
    ),
    "forgetReader": Operation(answers={204: ""}, parameters=(in_path("name", WORD),), problems=(404, 409, 422, 503)),
    "listLogs": Operation(
        answers={200: "Logs"},
        parameters=(
            in_query("level", {"type": "string", "enum": list(LOG_LEVELS)}, "This one and worse."),
            in_query("event", WORD, "The name of an event."),
            in_query("session_id", WORD, "About this session."),
            in_query("bot_id", _NUMBER, "About this bot or account."),
            *_SPAN,
            in_query("text", WORD, "Anywhere in the line."),
            _CURSOR,
            _LIMIT,
        ),
        problems=_READ,
    ),
}
