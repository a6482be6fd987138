"""The OpenAPI document of the REST door: one row per operation, schemas made from the very types that read the bodies."""

from collections.abc import Iterable

import msgspec

from peik import __version__
from peik.accounts.api import SESSION_OPERATIONS, SESSION_SCHEMAS
from peik.admin.api import AUDIT_OPERATIONS, AUDIT_SCHEMAS, KeyBody
from peik.alerts.api import AlertApi
from peik.archive.api import MESSAGE_OPERATIONS, MESSAGE_SCHEMAS
from peik.broadcasts.api import BROADCAST_OPERATIONS, BROADCAST_SCHEMAS
from peik.core.letter import State
from peik.core.trace import HEADER
from peik.erasure.api import ErasureApi
from peik.importing.api import IMPORT_OPERATIONS, IMPORT_SCHEMAS
from peik.inbox.api import INBOX_OPERATIONS, INBOX_SCHEMAS
from peik.jobs.api import JOB_OPERATIONS, JOB_SCHEMAS
from peik.monitoring.api import OVERVIEW_OPERATIONS, OVERVIEW_SCHEMAS
from peik.monitoring.nodes import NodeApi
from peik.notifications.api import OUTREACH_OPERATIONS, OUTREACH_SCHEMAS
from peik.outbox.api import BotBody, BotChange, CancelBody, ChangeBody, ChatBody, FilterBody, ResolveBody
from peik.secrets.api import SecretApi
from peik.web.bodies import CHAT_PATTERN, BatchBody, LetterBody
from peik.web.openapi import (
    BOT,
    CURSOR,
    ID,
    LIMIT,
    SECONDS,
    TIME,
    TRACE,
    WORD,
    Json,
    OperationRow,
    in_path,
    in_query,
    nullable,
    shape,
)
from peik.web.operations import rows_of, schemas_of

Described = tuple[str, str, str, str, str]  # verb, path, its sentences, operation id, tag

_LETTER = shape(
    id=ID,
    bot_id=ID,
    method={"type": "string"},
    chat_id={"type": "string"},
    thread_id=nullable({"type": "string"}),
    state={"type": "string", "enum": [str(state) for state in State]},
    priority={"type": "integer", "minimum": -1, "maximum": 2},
    progress={"type": "integer", "minimum": 0, "maximum": 100},
    attempts={"type": "integer"},
    attempts_made={"type": "integer"},
    uncertain_tries={"type": "integer"},
    failed_reason=nullable({"type": "string"}),
    on_uncertain={"type": "string", "enum": ["resend", "hold"]},
    result={"description": "Telegram's own answer, once it has arrived."},
    merged_into=nullable(ID),
    params={"type": "object"},
    metadata=nullable({"type": "object"}),
    trace=nullable({"type": "string", "description": "What it answers: see tracing."}),
    trace_certainty=nullable({"type": "string", "enum": ["exact", "likely"]}),
    history={"type": "array", "items": {"type": "object"}},
    created_at=TIME,
    send_at=nullable(TIME),
    expires_at=nullable(TIME),
    finished_at=nullable(TIME),
)
_KEY: Json = {
    "id": ID,
    "name": {"type": "string"},
    "scopes": {"type": "array", "items": {"type": "string", "enum": ["read", "send", "admin"]}},
    "bot_ids": nullable({"type": "array", "items": ID}),
    "created_at": TIME,
    "expires_at": nullable(TIME),
    "last_used_at": nullable(TIME),
    "webhook_url": nullable({"type": "string"}),
    "rate": nullable(
        {"type": "string", "description": "Its own limit, such as `20/s burst 100`; null: PEIK_RATE_KEY."}
    ),
}
_BOT = shape(
    bot_id=ID,
    username=nullable({"type": "string"}),
    is_account={"type": "boolean", "description": "An account of a person: see its session."},
    inbound={"type": "string", "enum": ["polling", "webhook", "off"]},
    paused=nullable({"type": "string"}),
    limits=nullable({"type": "object"}),
    created_at=TIME,
)
_BOT["properties"]["node"] = nullable({"type": "string"}) | {
    "description": "The node that serves it, where bots are listed or shown. Null: none does just now."
}
_COUNTS: Json = {
    name: {"type": "integer"} for name in ("waiting", "active", "completed", "failed", "delayed", "cancelled")
}
_COUNTED = shape(
    count={"type": "integer"},
    is_least={"type": "boolean", "description": "There may be more: nobody counted further."},
)
_SCHEMAS: Json = {
    "Problem": shape(
        type={"type": "string"},
        title={"type": "string"},
        status={"type": "integer"},
        code={"type": "string", "description": "Stable; for programs."},
        detail={"type": "string", "description": "What to do next; for people."},
    ),
    "Letter": _LETTER,
    "Accepted": shape(id=ID, state={"type": "string"}),
    "AcceptedBatch": shape(ids={"type": "array", "items": ID}),
    "Letters": shape(
        letters={"type": "array", "items": {"$ref": "#/components/schemas/Letter"}},
        next_cursor=nullable(ID),
        is_cut={"type": "boolean", "description": "The page ended for the many letters that were looked at: go on."},
    ),
    "Stats": shape(
        **_COUNTS,
        bots={"type": "object", "additionalProperties": shape(**_COUNTS)},
        inbox={"type": "object", "description": "What waits for the consumers of arrivals, over all and per bot."},
    ),
    "Bot": _BOT,
    "Bots": shape(bots={"type": "array", "items": {"$ref": "#/components/schemas/Bot"}}),
    "Lanes": shape(lanes={"type": "array", "items": {"type": "object"}}),
    "Chats": shape(chats={"type": "array", "items": {"type": "object"}}, next_cursor=nullable({"type": "string"})),
    "Chat": shape(bot_id=ID, chat_id={"type": "string"}),
    "Retried": shape(retried={"type": "integer"}),
    "Counted": _COUNTED,
    "Cleared": {"anyOf": [shape(cleared={"type": "integer"}), _COUNTED]},
    "Cancelled": {"anyOf": [shape(cancelled={"type": "integer"}), _COUNTED]},
    "Causes": shape(
        causes={
            "type": "array",
            "items": shape(
                reason={"type": "string", "description": "As the filter `cause` takes it."},
                is_uncertain={"type": "boolean"},
                count={"type": "integer"},
                methods={"type": "array", "items": {"type": "string"}},
                newest_id=ID,
                newest_at=TIME,
            ),
        }
    ),
    "Routes": shape(routes={"type": "array", "items": {"type": "object"}}),
    "Key": shape(**_KEY),
    "NewKey": {
        **shape(**_KEY, key={"type": "string", "description": "Shown now and never again."}),
        "description": "With `webhook_secret` beside `key` if it has a webhook.",
    },
    "Keys": shape(keys={"type": "array", "items": {"$ref": "#/components/schemas/Key"}}),
    "WebhookSecret": shape(webhook_secret={"type": "string"}),
    "Ready": shape(status={"type": "string"}, version={"type": "string"}),
    "Health": shape(status={"type": "string"}, version={"type": "string"}, parts={"type": "object"}),
    **INBOX_SCHEMAS,
    **SESSION_SCHEMAS,
    **MESSAGE_SCHEMAS,
    **JOB_SCHEMAS,
    **BROADCAST_SCHEMAS,
    **OVERVIEW_SCHEMAS,
    **IMPORT_SCHEMAS,
    **AUDIT_SCHEMAS,
    **OUTREACH_SCHEMAS,
}


_DURATION: Json = {"anyOf": [{"type": "string", "pattern": "^[0-9]{1,3}(ms|s|m)$"}, SECONDS]}
_WAIT = in_query("wait", _DURATION, "Wait for the end, at most so long: 10s.")
_FILTERS = [
    BOT,
    in_query("chat_id", WORD, "A chat's number or @name."),
    in_query("user_id", WORD, "As given in the letter's metadata."),
    in_query("message_type", WORD, "As given in the letter's metadata."),
    in_query("method", WORD, "A Bot API method."),
    in_query(
        "since",
        {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]},
        "Accepted then or later; RFC 3339 or Unix seconds.",
    ),
    in_query(
        "until",
        {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]},
        "Accepted then or before; RFC 3339 or Unix seconds.",
    ),
    in_query("text", WORD, "Words in the parameters."),
    in_query("error", WORD, "Words in the reason of failure."),
    in_query("cause", WORD, "What it died of, as `GET /v1/dead/causes` says it."),
    in_query("trace", TRACE, "What they answer, for certain or likely."),
]
_ANSWERED = in_query("arrival_id", ID, "The arrival that they answer, for certain or likely.")
_SINCE_DIED = in_query(
    "since", {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]}, "Dead since then; RFC 3339 or Unix seconds."
)
_DRY_RUN = in_query("dry_run", {"type": "boolean"}, "Only count them.")
_STATE = in_query("state", {"type": "string", "enum": [str(state) for state in State]}, "Where letters stand.")


_HELLO = {"method": "sendMessage", "params": {"chat_id": 123456789, "text": "Hello"}}
_OF_LETTER = (in_path("letter_id"),)

# Operations that are declared on the methods that do them.
DECLARED = (AlertApi, ErasureApi, NodeApi, SecretApi)

OPERATIONS: dict[str, OperationRow] = {
    **rows_of(*DECLARED),
    "acceptLetter": OperationRow(
        answers={200: "Letter", 202: "Accepted"},
        parameters=(
            _WAIT,
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                "description": "A repeat with the same key within 48 hours is the same letter.",
            },
            {
                "name": HEADER,
                "in": "header",
                "required": False,
                "schema": TRACE,
                "description": "What it answers; `traceparent` is read, too.",
            },
        ),
        body=LetterBody,
        example=_HELLO | {"priority": 1, "metadata": {"user_id": "42", "message_type": "receipt"}},
        problems=(404, 409, 413, 422, 503),
        takes_files=True,
    ),
    "acceptBatch": OperationRow(
        answers={202: "AcceptedBatch"},
        body=BatchBody,
        example={"letters": [_HELLO]},
        problems=(404, 409, 413, 422, 503),
    ),
    "getLetter": OperationRow(answers={200: "Letter"}, parameters=(*_OF_LETTER, _WAIT), problems=(404, 422)),
    "listLetters": OperationRow(
        answers={200: "Letters"}, parameters=(_STATE, *_FILTERS, _ANSWERED, CURSOR, LIMIT), problems=(403, 404, 422)
    ),
    "cancelLetter": OperationRow(answers={200: "Letter"}, parameters=_OF_LETTER, problems=(404, 409, 422, 503)),
    "cancelLetters": OperationRow(
        answers={200: "Cancelled"},
        body=CancelBody,
        example={"state": "delayed", "message_type": "reminder", "dry_run": True},
        problems=(413, 422, 503),
    ),
    "changeLetter": OperationRow(
        answers={200: "Letter"},
        parameters=_OF_LETTER,
        body=ChangeBody,
        example={"priority": 2, "send_at": "now"},
        problems=(404, 409, 413, 422, 503),
    ),
    "retryLetter": OperationRow(answers={202: "Letter"}, parameters=_OF_LETTER, problems=(404, 409, 422, 503)),
    "resolveLetter": OperationRow(
        answers={200: "Letter"},
        parameters=_OF_LETTER,
        body=ResolveBody,
        example={"arrived": True},
        problems=(404, 409, 413, 422, 503),
    ),
    "listDead": OperationRow(
        answers={200: "Letters"}, parameters=(_STATE, *_FILTERS, CURSOR, LIMIT), problems=(403, 422)
    ),
    "listCauses": OperationRow(answers={200: "Causes"}, parameters=(BOT, _SINCE_DIED, LIMIT), problems=(422,)),
    "retryDead": OperationRow(
        answers={200: "Counted", 202: "Retried"},
        body=FilterBody,
        example={"error": "timeout"},
        problems=(403, 413, 422, 503),
        is_body_optional=True,
    ),
    "clearDead": OperationRow(answers={200: "Cleared"}, parameters=(*_FILTERS, _DRY_RUN), problems=(403, 422, 503)),
    "listLanes": OperationRow(
        answers={200: "Lanes"},
        parameters=(BOT, in_query("chat_id", WORD, "One chat."), LIMIT),
        problems=(403, 404, 422),
    ),
    "listChats": OperationRow(
        answers={200: "Chats"},
        parameters=(BOT, in_query("cursor", WORD, "The next_cursor of the page before."), LIMIT),
        problems=(403, 404, 422),
    ),
    "changeChat": OperationRow(
        answers={200: "Chat"},
        parameters=(in_path("bot_id"), in_path("chat_id", {"type": "string", "pattern": CHAT_PATTERN})),
        body=ChatBody,
        example={"reachable": True},
        problems=(403, 404, 413, 422, 503),
    ),
    "getStats": OperationRow(answers={200: "Stats"}),
    "addBot": OperationRow(
        answers={200: "Bot", 201: "Bot"},
        body=BotBody,
        example={"token": "123456789:AAE-as-BotFather-gave-it", "inbound": "off"},
        problems=(403, 413, 422, 503),
    ),
    "listBots": OperationRow(answers={200: "Bots"}),
    "getBot": OperationRow(answers={200: "Bot"}, parameters=(in_path("bot_id"),), problems=(403, 404, 422)),
    "changeBot": OperationRow(
        answers={200: "Bot"},
        parameters=(in_path("bot_id"),),
        body=BotChange,
        example={"paused": True},
        problems=(403, 404, 413, 422, 503),
    ),
    "removeBot": OperationRow(answers={204: ""}, parameters=(in_path("bot_id"),), problems=(403, 404, 409, 422, 503)),
    "makeKey": OperationRow(
        answers={201: "NewKey"},
        body=KeyBody,
        example={"name": "shop", "scopes": ["send"], "webhook_url": "https://shop.example/hooks/peik"},
        problems=(404, 409, 413, 422, 503),
    ),
    "listKeys": OperationRow(answers={200: "Keys"}),
    "revokeKey": OperationRow(answers={204: ""}, parameters=(in_path("key_id"),), problems=(404, 422, 503)),
    "getWebhookSecret": OperationRow(answers={200: "WebhookSecret"}, problems=(503,)),
    "listRoutes": OperationRow(answers={200: "Routes"}),
    "getHealth": OperationRow(answers={200: "Health"}),
    "getReady": OperationRow(answers={200: "Ready"}, problems=(503,)),
    **INBOX_OPERATIONS,
    **SESSION_OPERATIONS,
    **MESSAGE_OPERATIONS,
    **JOB_OPERATIONS,
    **BROADCAST_OPERATIONS,
    **OVERVIEW_OPERATIONS,
    **IMPORT_OPERATIONS,
    **AUDIT_OPERATIONS,
    **OUTREACH_OPERATIONS,
}


def document(routes: Iterable[Described]) -> Json:
    """OpenAPI 3.1 of these routes. A route without a row in OPERATIONS is a mistake that a test finds."""
    paths: dict[str, Json] = {}
    for verb, path, text, operation_id, tag in routes:
        paths.setdefault(path, {})[verb.lower()] = _operation(operation_id, tag, text)
    bodies = [operation.body for operation in OPERATIONS.values() if operation.body is not None]
    _, made = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    # What stays as bytes in our types is still an object to a client.
    made["LetterBody"]["properties"] |= {"params": {"type": "object"}, "metadata": nullable({"type": "object"})}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Peik",
            "version": __version__,
            "description": "The courier for Telegram: accepted means delivered, or its failure seen.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": {**_SCHEMAS, **schemas_of(*DECLARED), **made},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def _operation(operation_id: str, tag: str, text: str) -> Json:
    row = OPERATIONS[operation_id]
    responses: Json = {str(status): _answer(schema, row) for status, schema in row.answers.items()}
    is_open = operation_id in ("getHealth", "getReady")
    for status in (*(() if is_open else (401, 403)), *row.problems, 429):
        responses[str(status)] = _problem()
    described: Json = {
        "operationId": operation_id,
        "tags": [tag],
        "summary": text.split("\n")[0],
        "parameters": list(row.parameters),
        "responses": responses,
    }
    if is_open:
        described["security"] = []
    if row.body is not None:
        described["requestBody"] = _request_body(row)
    return described


def _answer(schema: str, row: OperationRow) -> Json:
    if not schema:
        return {"description": "Done."}
    content: Json = {row.media_type: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    for other in row.other_media_types:
        content[other] = {"schema": {"type": "string"}}
    return {"description": schema, "content": content}


def _problem() -> Json:
    return {
        "description": "A problem, with a stable code and what to do next.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def _request_body(row: OperationRow) -> Json:
    assert row.body is not None
    content: Json = {
        "application/json": {"schema": {"$ref": f"#/components/schemas/{row.body.__name__}"}, "example": row.example}
    }
    if row.takes_files:
        content["multipart/form-data"] = {
            "schema": {
                "type": "object",
                "properties": {
                    "letter": {"type": "string", "description": "The same JSON object, as a field."},
                    "document": {
                        "type": "string",
                        "format": "binary",
                        "description": "A file, under its parameter's name.",
                    },
                },
                "required": ["letter"],
            },
            "encoding": {"letter": {"contentType": "application/json"}},
        }
    return {"required": not row.is_body_optional, "content": content}
