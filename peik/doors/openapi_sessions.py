"""The accounts' part of the OpenAPI document: one row per operation, and what the answers look like."""

from peik.archive_ports import SessionState
from peik.doors.openapi_shapes import LIMIT, TIME, WORD, Json, Operation, in_path, in_query, nullable, shape
from peik.doors.rest_sessions import (
    CHAT_NUMBER_PATTERN,
    SESSION_ID_PATTERN,
    CleanupBody,
    CodeWanted,
    CrawlBody,
    PasswordBody,
    SessionBody,
    SessionChange,
    SignInBody,
)

TEXT: Json = {"type": "string"}
WHOLE: Json = {"type": "integer"}
FLAG: Json = {"type": "boolean"}
SESSION_ID: Json = {"type": "string", "pattern": SESSION_ID_PATTERN}
CHAT_NUMBER: Json = {"type": "string", "pattern": CHAT_NUMBER_PATTERN}
_STATES = [str(state) for state in SessionState]

_SESSION = shape(
    session_id=SESSION_ID,
    agent_id=TEXT,
    phone=nullable(TEXT),
    user_id=nullable(TEXT) | {"description": "The account at Telegram, and the bot_id of letters that go out as it."},
    username=nullable(TEXT),
    state={"type": "string", "enum": _STATES},
    state_reason=nullable(TEXT) | {"description": "Why, as a sentence."},
    state_until=nullable(TIME) | {"description": "The end of a flood wait, or of a code's time."},
    is_connected=FLAG,
    is_active=FLAG | {"description": "False: deactivated by its owner; kept, and not run."},
    runs_from=nullable({"type": "string", "enum": ["key", "file"]}),
    has_proxy=FLAG,
    metadata={"type": "object"},
    created_at=TIME,
    updated_at=TIME,
    active_at=nullable(TIME),
)
_CHAT = shape(
    chat_id=TEXT,
    title=TEXT,
    newest_id=nullable(TEXT),
    crawl=shape(
        state={"type": "string", "enum": ["none", "running", "stopped", "whole"]},
        crawled=WHOLE,
        down_to=nullable(TEXT),
        until=nullable(TIME),
    ),
    updated_at=nullable(TIME),
)

SESSION_SCHEMAS: Json = {
    "Session": _SESSION,
    "Sessions": shape(
        sessions={"type": "array", "items": {"$ref": "#/components/schemas/Session"}},
        next=nullable(SESSION_ID) | {"description": "The cursor of the next page; null at the end."},
    ),
    "RemovedSessions": shape(removed=WHOLE),
    "Resealed": shape(
        renewed=WHOLE,
        lost={"type": "array", "items": TEXT, "description": "Sessions that no key opens: they have to sign in again."},
    ),
    "Qr": {
        **shape(
            url=TEXT | {"description": "tg://login?token=…: for as long as it lasts, whoever scans it signs in here."},
            expires_at=TIME,
            svg=nullable(TEXT) | {"description": "The picture; by itself with `Accept: image/svg+xml`."},
        ),
        "description": "Ask again when it is over. What became of it is in the session's state.",
    },
    "SessionChat": _CHAT,
    "SessionChats": shape(chats={"type": "array", "items": {"$ref": "#/components/schemas/SessionChat"}}),
}

_OF_SESSION = (in_path("session_id", SESSION_ID),)
_OF_CHAT = (*_OF_SESSION, in_path("chat_id", CHAT_NUMBER))
_STEP = (404, 409, 413, 422, 503)
_ASKED = (404, 409, 422, 503)


def _running() -> Operation:
    return Operation(answers={200: "Session"}, parameters=_OF_SESSION, problems=_ASKED)


SESSION_OPERATIONS: dict[str, Operation] = {
    "makeSession": Operation(
        answers={201: "Session"},
        body=SessionBody,
        example={"agent_id": "support", "phone": "+998 90 123 45 67", "metadata": {"owner": "Sara"}},
        problems=(409, 413, 422, 503),
    ),
    "listSessions": Operation(
        answers={200: "Sessions"},
        parameters=(
            in_query("agent_id", WORD, "Whose."),
            in_query(
                "state",
                {"type": "string", "pattern": f"^({'|'.join(_STATES)})(,({'|'.join(_STATES)}))*$"},
                "In these states, comma-separated.",
            ),
            in_query("active", {"type": "string", "enum": ["true", "false"]}, "Not deactivated, or deactivated."),
            in_query("phone", WORD, "The one that was made last with this phone, however it is written."),
            in_query("cursor", SESSION_ID, "The next of the page before."),
            LIMIT,
        ),
        problems=(409, 422, 503),
    ),
    "cleanUpSessions": Operation(
        answers={200: "RemovedSessions"},
        body=CleanupBody,
        example={"days": 30},
        problems=(409, 413, 422, 503),
        is_body_optional=True,
    ),
    "resealSessions": Operation(answers={200: "Resealed"}, problems=(409, 503)),
    "getSession": _running(),
    "changeSession": Operation(
        answers={200: "Session"},
        parameters=_OF_SESSION,
        body=SessionChange,
        example={"metadata": {"owner": "Ali", "shift": None}, "proxy": "socks5://user:password@proxy.example:1080"},
        problems=_STEP,
    ),
    "removeSession": Operation(answers={204: ""}, parameters=_OF_SESSION, problems=_ASKED),
    "sendCode": Operation(
        answers={200: "Session"},
        parameters=_OF_SESSION,
        body=CodeWanted,
        example={"phone": "+998 90 123 45 67"},
        problems=_STEP,
        is_body_optional=True,
    ),
    "signIn": Operation(
        answers={200: "Session"},
        parameters=_OF_SESSION,
        body=SignInBody,
        example={"code": "12345"},
        problems=_STEP,
    ),
    "cancelSignIn": _running(),
    "givePassword": Operation(
        answers={200: "Session"},
        parameters=_OF_SESSION,
        body=PasswordBody,
        example={"password": "of two-step verification"},
        problems=_STEP,
    ),
    "getQr": Operation(
        answers={200: "Qr"}, parameters=_OF_SESSION, problems=_ASKED, other_media_types=("image/svg+xml",)
    ),
    "startSession": _running(),
    "stopSession": _running(),
    "restartSession": _running(),
    "logOutSession": _running(),
    "noteActivity": _running(),
    "listSessionChats": Operation(answers={200: "SessionChats"}, parameters=_OF_SESSION, problems=_ASKED),
    "crawlChat": Operation(
        answers={202: "SessionChat"},
        parameters=_OF_CHAT,
        body=CrawlBody,
        example={"until": "2026-01-01T00:00:00Z"},
        problems=_STEP,
        is_body_optional=True,
    ),
    "stopCrawl": Operation(answers={200: "SessionChat"}, parameters=_OF_CHAT, problems=_ASKED),
}
