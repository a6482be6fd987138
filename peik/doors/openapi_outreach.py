"""The OpenAPI document's part of users, notifications, templates and contacts: one row per operation."""

from peik.core.letter import State
from peik.doors.openapi_shapes import (
    BOT,
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
from peik.doors.rest_contacts import CHAT_ID_PATTERN, CURSOR_PATTERN, TYPES
from peik.doors.rest_notifications import ID_PATTERN, NotificationBatch, NotificationBody, TemplateBody
from peik.doors.rest_users import LinkBody, UserBody
from peik.notifications.shown import CLEARED
from peik.notifications.values import LANGUAGE_PATTERN, TYPE_PATTERN, USER_PATTERN

_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_FLAG: Json = {"type": "boolean"}
_USER_ID: Json = {"type": "string", "pattern": USER_PATTERN}
_TYPE: Json = {"type": "string", "pattern": TYPE_PATTERN}
_LANGUAGE: Json = {"type": "string", "pattern": LANGUAGE_PATTERN}
_NOTICE_ID: Json = {"type": "string", "pattern": ID_PATTERN}
_CHAT: Json = {"type": "string"}
_MOMENT: Json = {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]}
_STATE: Json = {
    "type": "string",
    "enum": [*(str(state) for state in State), CLEARED],
    "description": "waiting until its time, then as its letters stand; cleared: they are kept no more.",
}
_NEXT = nullable(_TEXT) | {"description": "The cursor of the next page; null at the end."}
_QUIET = shape(start=_TEXT, end=_TEXT, tz=_TEXT)

_USER = shape(
    user_id=_USER_ID,
    linked=_FLAG,
    bot_id=nullable(ID),
    chat_id=nullable(_CHAT),
    linked_at=nullable(TIME),
    language=nullable(_TEXT),
    quiet=nullable(_QUIET) | {"description": "Null: as the settings say."},
    code_expires_at=nullable(TIME) | {"description": "Of a code that was given out and not used yet."},
)
_NOTIFICATION = shape(
    id=_NOTICE_ID,
    user_id=nullable(_USER_ID),
    chat_id=nullable(_CHAT),
    bot_id=nullable(ID),
    type=_TYPE,
    title=_TEXT,
    message=_TEXT,
    priority=_WHOLE,
    state=_STATE,
    failed_reason=nullable(_TEXT),
    letter_id=nullable(ID) | {"description": "The first of its letters."},
    letter_ids={"type": "array", "items": ID},
    due_at=nullable(TIME) | {"description": "While it waits."},
    created_at=TIME,
    metadata=nullable({"type": "object"}),
)
_TEMPLATE = shape(type=_TYPE, language=_TEXT, text=_TEXT)
_CONTACT = shape(
    bot_id=ID,
    chat_id=_CHAT,
    type={"type": "string", "enum": list(TYPES)},
    name=nullable(_TEXT),
    username=nullable(_TEXT),
    language=nullable(_TEXT),
    first_seen_at=TIME,
    last_seen_at=TIME,
    gone=_FLAG | {"description": "The bot was blocked there, or thrown out."},
    campaign=nullable(_TEXT) | {"description": "What stood behind the first /start."},
)
_COUNTS: Json = {"type": "object", "additionalProperties": _WHOLE}

OUTREACH_SCHEMAS: Json = {
    "User": _USER,
    "Users": shape(users={"type": "array", "items": {"$ref": "#/components/schemas/User"}}, next_cursor=_NEXT),
    "LinkCode": shape(
        user_id=_USER_ID,
        bot_id=ID,
        code=_TEXT | {"description": "Shown this once."},
        url=nullable(_TEXT) | {"description": "Null: Telegram could not be asked for the bot's name."},
        expires_at=TIME,
    ),
    "Notification": _NOTIFICATION,
    "Notifications": shape(
        notifications={"type": "array", "items": {"$ref": "#/components/schemas/Notification"}}, next_cursor=_NEXT
    ),
    "AcceptedNotification": shape(id=_NOTICE_ID, letter_id=nullable(ID), state=_STATE, due_at=nullable(TIME)),
    "AcceptedNotifications": shape(
        notifications={"type": "array", "items": {"$ref": "#/components/schemas/AcceptedNotification"}}
    ),
    "Template": _TEMPLATE,
    "Templates": shape(
        templates={"type": "array", "items": {"$ref": "#/components/schemas/Template"}}, next_cursor=_NEXT
    ),
    "Contact": _CONTACT,
    "Contacts": shape(contacts={"type": "array", "items": {"$ref": "#/components/schemas/Contact"}}, next_cursor=_NEXT),
    "ContactStats": shape(
        bot_id=ID,
        total=_WHOLE,
        gone=_WHOLE,
        by_type=_COUNTS,
        by_language=_COUNTS | {"description": "Of private chats. Empty: not known; other: none of the usual ones."},
        since=nullable(TIME),
        new=_WHOLE,
        by_campaign=_COUNTS | {"description": "Of those that are new since then. Empty: they came by none."},
    ),
}

_OF_USER = (in_path("user_id", _USER_ID),)
_OF_TEMPLATE = (in_path("type", _TYPE), in_path("language", _LANGUAGE))
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    "description": "A repeat with the same key, while the notification is kept, is the same notification.",
}
_TASK = {"user_id": "lena", "type": "task_assigned", "title": "Task 17", "message": "Amir Temur 1, at noon"}

OUTREACH_OPERATIONS: dict[str, Operation] = {
    "listUsers": Operation(
        answers={200: "Users"},
        parameters=(in_query("cursor", _USER_ID, "The next_cursor of the page before."), LIMIT),
        problems=(422, 503),
    ),
    "changeUser": Operation(
        answers={200: "User"},
        parameters=_OF_USER,
        body=UserBody,
        example={"language": "fa", "quiet": {"start": "22:00", "end": "08:00", "tz": "Asia/Tehran"}},
        problems=(403, 404, 413, 422, 503),
    ),
    "linkUser": Operation(
        answers={201: "LinkCode"},
        parameters=_OF_USER,
        body=LinkBody,
        example={"expires_in": "15m", "language": "fa"},
        problems=(403, 404, 409, 413, 422, 503),
        is_body_optional=True,
    ),
    "getLink": Operation(answers={200: "User"}, parameters=_OF_USER, problems=(403, 422, 503)),
    "unlinkUser": Operation(answers={200: "User"}, parameters=_OF_USER, problems=(403, 404, 422, 503)),
    "notify": Operation(
        answers={202: "AcceptedNotification"},
        parameters=(_KEY,),
        body=NotificationBody,
        example=_TASK,
        problems=(403, 404, 409, 413, 422, 503),
    ),
    "notifyMany": Operation(
        answers={202: "AcceptedNotifications"},
        body=NotificationBatch,
        example={"notifications": [_TASK]},
        problems=(403, 404, 409, 413, 422, 503),
    ),
    "listNotifications": Operation(
        answers={200: "Notifications"},
        parameters=(
            in_query("user_id", _USER_ID, "Of this user."),
            in_query("cursor", _NOTICE_ID, "The next_cursor of the page before."),
            LIMIT,
        ),
        problems=(422, 503),
    ),
    "getNotification": Operation(
        answers={200: "Notification"}, parameters=(in_path("notification_id", _NOTICE_ID),), problems=(404, 422, 503)
    ),
    "listTemplates": Operation(
        answers={200: "Templates"},
        parameters=(in_query("cursor", _TEXT, "The next_cursor of the page before."), LIMIT),
        problems=(422, 503),
    ),
    "getTemplate": Operation(answers={200: "Template"}, parameters=_OF_TEMPLATE, problems=(404, 422, 503)),
    "saveTemplate": Operation(
        answers={200: "Template"},
        parameters=_OF_TEMPLATE,
        body=TemplateBody,
        example={"text": "<b>{title}</b> №{number}\n{message}"},
        problems=(403, 413, 422, 503),
    ),
    "removeTemplate": Operation(answers={204: ""}, parameters=_OF_TEMPLATE, problems=(403, 404, 422, 503)),
    "listContacts": Operation(
        answers={200: "Contacts"},
        parameters=(
            BOT,
            in_query("type", _TEXT, "Of these types, comma-separated."),
            in_query("language", _TEXT, "Of these languages, comma-separated; fa also means fa-IR, empty: not known."),
            in_query("seen_since", _MOMENT, "Seen then or later."),
            in_query("seen_before", _MOMENT, "Not seen since then."),
            in_query("gone", {"type": "string", "enum": ["true", "false"]}, "Whether the bot was blocked there."),
            in_query("text", WORD, "In name or username."),
            in_query("campaign", WORD, "Came by this campaign."),
            in_query("cursor", {"type": "string", "pattern": CURSOR_PATTERN}, "The next_cursor of the page before."),
            LIMIT,
        ),
        problems=(403, 404, 422, 503),
    ),
    "getContactStats": Operation(
        answers={200: "ContactStats"},
        parameters=(BOT, in_query("since", _MOMENT, "New since then; left out: all.")),
        problems=(403, 404, 422, 503),
    ),
    "getContact": Operation(
        answers={200: "Contact"},
        parameters=(in_path("bot_id"), in_path("chat_id", {"type": "string", "pattern": CHAT_ID_PATTERN})),
        problems=(403, 404, 422, 503),
    ),
}
