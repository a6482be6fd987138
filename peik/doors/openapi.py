"""The OpenAPI document of the REST door: one row per operation, schemas made from the very types that read the bodies."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from peik import __version__
from peik.core.letter import State
from peik.doors.bodies import BatchBody, LetterBody
from peik.doors.queries import CHAT_PATTERN, LIMIT_DEFAULT, LIMIT_MAX, WORD_CHARS_MAX
from peik.doors.replies import Route
from peik.doors.rest_bots import BotBody, BotChange
from peik.doors.rest_keys import KeyBody
from peik.doors.rest_letters import ChatBody, FilterBody, ResolveBody

Json = dict[str, Any]

_ID: Json = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_TIME: Json = {"type": "string", "format": "date-time"}


def _nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


_LETTER = _object(
    id=_ID,
    bot_id=_ID,
    method={"type": "string"},
    chat_id={"type": "string"},
    thread_id=_nullable({"type": "string"}),
    state={"type": "string", "enum": [str(state) for state in State]},
    priority={"type": "integer", "minimum": -1, "maximum": 2},
    progress={"type": "integer", "minimum": 0, "maximum": 100},
    attempts={"type": "integer"},
    attempts_made={"type": "integer"},
    uncertain_tries={"type": "integer"},
    failed_reason=_nullable({"type": "string"}),
    on_uncertain={"type": "string", "enum": ["resend", "hold"]},
    result={"description": "Telegram's own answer, once it has arrived."},
    merged_into=_nullable(_ID),
    params={"type": "object"},
    metadata=_nullable({"type": "object"}),
    history={"type": "array", "items": {"type": "object"}},
    created_at=_TIME,
    send_at=_nullable(_TIME),
    expires_at=_nullable(_TIME),
    finished_at=_nullable(_TIME),
)
_KEY: Json = {
    "id": _ID,
    "name": {"type": "string"},
    "scopes": {"type": "array", "items": {"type": "string", "enum": ["read", "send", "admin"]}},
    "bot_ids": _nullable({"type": "array", "items": _ID}),
    "created_at": _TIME,
    "expires_at": _nullable(_TIME),
    "last_used_at": _nullable(_TIME),
    "webhook_url": _nullable({"type": "string"}),
}
_COUNTS: Json = {
    name: {"type": "integer"} for name in ("waiting", "active", "completed", "failed", "delayed", "cancelled")
}
_SCHEMAS: Json = {
    "Problem": _object(
        type={"type": "string"},
        title={"type": "string"},
        status={"type": "integer"},
        code={"type": "string", "description": "Stable; for programs."},
        detail={"type": "string", "description": "What to do next; for people."},
    ),
    "Letter": _LETTER,
    "Accepted": _object(id=_ID, state={"type": "string"}),
    "AcceptedBatch": _object(ids={"type": "array", "items": _ID}),
    "Letters": _object(
        letters={"type": "array", "items": {"$ref": "#/components/schemas/Letter"}}, next_cursor=_nullable(_ID)
    ),
    "Stats": _object(**_COUNTS, bots={"type": "object", "additionalProperties": _object(**_COUNTS)}),
    "Bot": _object(
        bot_id=_ID,
        username=_nullable({"type": "string"}),
        inbound={"type": "string", "enum": ["polling", "webhook", "off"]},
        paused=_nullable({"type": "string"}),
        limits=_nullable({"type": "object"}),
        created_at=_TIME,
    ),
    "Bots": _object(bots={"type": "array", "items": {"$ref": "#/components/schemas/Bot"}}),
    "Lanes": _object(lanes={"type": "array", "items": {"type": "object"}}),
    "Chats": _object(chats={"type": "array", "items": {"type": "object"}}, next_cursor=_nullable({"type": "string"})),
    "Chat": _object(bot_id=_ID, chat_id={"type": "string"}),
    "Retried": _object(retried={"type": "integer"}),
    "Cleared": _object(cleared={"type": "integer"}),
    "Routes": _object(routes={"type": "array", "items": {"type": "object"}}),
    "Key": _object(**_KEY),
    "NewKey": {
        **_object(**_KEY, key={"type": "string", "description": "Shown now and never again."}),
        "description": "With `webhook_secret` beside `key` if it has a webhook.",
    },
    "Keys": _object(keys={"type": "array", "items": {"$ref": "#/components/schemas/Key"}}),
    "WebhookSecret": _object(webhook_secret={"type": "string"}),
    "Health": _object(status={"type": "string"}, version={"type": "string"}, parts={"type": "object"}),
}


def _path(name: str, schema: Json = _ID) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


_SECONDS: Json = {"type": "number", "minimum": 0}
_DURATION: Json = {"anyOf": [{"type": "string", "pattern": "^[0-9]{1,3}(ms|s|m)$"}, _SECONDS]}
_WAIT = _query("wait", _DURATION, "Wait for the end, at most so long: 10s.")
_LIMIT = _query("limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}, "How many.")
_BOT = _query("bot_id", _ID, "The bot; may be left out when there is one.")
_WORD: Json = {"type": "string", "minLength": 1, "maxLength": WORD_CHARS_MAX}
_FILTERS = [
    _BOT,
    _query("chat_id", _WORD, "A chat's number or @name."),
    _query("user_id", _WORD, "As given in the letter's metadata."),
    _query("message_type", _WORD, "As given in the letter's metadata."),
    _query("method", _WORD, "A Bot API method."),
    _query(
        "since",
        {"anyOf": [_TIME, _SECONDS | {"exclusiveMaximum": 1e11}]},
        "Accepted then or later; RFC 3339 or Unix seconds.",
    ),
    _query("text", _WORD, "Words in the parameters."),
    _query("error", _WORD, "Words in the reason of failure."),
]
_STATE = _query("state", {"type": "string", "enum": [str(state) for state in State]}, "Where letters stand.")
_CURSOR = _query("cursor", _ID, "The next_cursor of the page before.")


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a client must know of one operation."""

    answers: Mapping[int, str]  # status → schema; "" for no body
    parameters: tuple[Json, ...] = ()
    body: type | None = None
    example: object = None
    problems: tuple[int, ...] = ()
    takes_files: bool = False
    is_body_optional: bool = False


_HELLO = {"method": "sendMessage", "params": {"chat_id": 123456789, "text": "Hello"}}
_OF_LETTER = (_path("letter_id"),)

OPERATIONS: dict[str, Operation] = {
    "acceptLetter": Operation(
        answers={200: "Letter", 202: "Accepted"},
        parameters=(
            _WAIT,
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
                "description": "A repeat with the same key within 48 hours is the same letter.",
            },
        ),
        body=LetterBody,
        example=_HELLO | {"priority": 1, "metadata": {"user_id": "42", "message_type": "receipt"}},
        problems=(404, 409, 413, 422, 503),
        takes_files=True,
    ),
    "acceptBatch": Operation(
        answers={202: "AcceptedBatch"},
        body=BatchBody,
        example={"letters": [_HELLO]},
        problems=(404, 409, 413, 422, 503),
    ),
    "getLetter": Operation(answers={200: "Letter"}, parameters=(*_OF_LETTER, _WAIT), problems=(404, 422)),
    "listLetters": Operation(
        answers={200: "Letters"}, parameters=(_STATE, *_FILTERS, _CURSOR, _LIMIT), problems=(403, 422)
    ),
    "cancelLetter": Operation(answers={200: "Letter"}, parameters=_OF_LETTER, problems=(404, 409, 422, 503)),
    "retryLetter": Operation(answers={202: "Letter"}, parameters=_OF_LETTER, problems=(404, 409, 422, 503)),
    "resolveLetter": Operation(
        answers={200: "Letter"},
        parameters=_OF_LETTER,
        body=ResolveBody,
        example={"arrived": True},
        problems=(404, 409, 413, 422, 503),
    ),
    "listDead": Operation(
        answers={200: "Letters"}, parameters=(_STATE, *_FILTERS, _CURSOR, _LIMIT), problems=(403, 422)
    ),
    "retryDead": Operation(
        answers={202: "Retried"},
        body=FilterBody,
        example={"error": "timeout"},
        problems=(403, 413, 422, 503),
        is_body_optional=True,
    ),
    "clearDead": Operation(answers={200: "Cleared"}, parameters=tuple(_FILTERS), problems=(403, 422, 503)),
    "listLanes": Operation(
        answers={200: "Lanes"},
        parameters=(_BOT, _query("chat_id", _WORD, "One chat."), _LIMIT),
        problems=(403, 404, 422),
    ),
    "listChats": Operation(
        answers={200: "Chats"},
        parameters=(_BOT, _query("cursor", _WORD, "The next_cursor of the page before."), _LIMIT),
        problems=(403, 404, 422),
    ),
    "changeChat": Operation(
        answers={200: "Chat"},
        parameters=(_path("bot_id"), _path("chat_id", {"type": "string", "pattern": CHAT_PATTERN})),
        body=ChatBody,
        example={"reachable": True},
        problems=(403, 404, 413, 422, 503),
    ),
    "getStats": Operation(answers={200: "Stats"}),
    "addBot": Operation(
        answers={200: "Bot", 201: "Bot"},
        body=BotBody,
        example={"token": "123456789:AAE-as-BotFather-gave-it", "inbound": "off"},
        problems=(403, 413, 422, 503),
    ),
    "listBots": Operation(answers={200: "Bots"}),
    "getBot": Operation(answers={200: "Bot"}, parameters=(_path("bot_id"),), problems=(403, 404, 422)),
    "changeBot": Operation(
        answers={200: "Bot"},
        parameters=(_path("bot_id"),),
        body=BotChange,
        example={"paused": True},
        problems=(403, 404, 413, 422, 503),
    ),
    "removeBot": Operation(answers={204: ""}, parameters=(_path("bot_id"),), problems=(403, 404, 409, 422, 503)),
    "makeKey": Operation(
        answers={201: "NewKey"},
        body=KeyBody,
        example={"name": "shop", "scopes": ["send"], "webhook_url": "https://shop.example/hooks/peik"},
        problems=(404, 409, 413, 422, 503),
    ),
    "listKeys": Operation(answers={200: "Keys"}),
    "revokeKey": Operation(answers={204: ""}, parameters=(_path("key_id"),), problems=(404, 422, 503)),
    "getWebhookSecret": Operation(answers={200: "WebhookSecret"}, problems=(503,)),
    "listRoutes": Operation(answers={200: "Routes"}),
    "getHealth": Operation(answers={200: "Health"}),
}


def document(routes: Iterable[Route]) -> Json:
    """OpenAPI 3.1 of these routes. A route without a row in OPERATIONS is a mistake that a test finds."""
    paths: dict[str, Json] = {}
    for verb, path, endpoint, operation_id, tag in routes:
        paths.setdefault(path, {})[verb.lower()] = _operation(operation_id, tag, endpoint.__doc__ or "")
    bodies = [operation.body for operation in OPERATIONS.values() if operation.body is not None]
    _, made = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    # What stays as bytes in our types is still an object to a client.
    made["LetterBody"]["properties"] |= {"params": {"type": "object"}, "metadata": _nullable({"type": "object"})}
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
            "schemas": {**_SCHEMAS, **made},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def _operation(operation_id: str, tag: str, text: str) -> Json:
    row = OPERATIONS[operation_id]
    responses: Json = {str(status): _answer(schema) for status, schema in row.answers.items()}
    is_open = operation_id == "getHealth"
    for status in (*(() if is_open else (401, 403)), *row.problems):
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


def _answer(schema: str) -> Json:
    if not schema:
        return {"description": "Done."}
    return {
        "description": schema,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }


def _problem() -> Json:
    return {
        "description": "A problem, with a stable code and what to do next.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def _request_body(row: Operation) -> Json:
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
