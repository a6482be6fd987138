"""What rows of the OpenAPI document are made of: the small schemas and parameters that operations share."""

from collections.abc import Mapping
from typing import Any

import msgspec

from peik.doors.queries import LIMIT_DEFAULT, LIMIT_MAX, WORD_CHARS_MAX

Json = dict[str, Any]

ID: Json = {"type": "string", "pattern": "^[0-9]{1,18}$"}
TIME: Json = {"type": "string", "format": "date-time"}
TRACE: Json = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$"}


def nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def shape(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def in_path(name: str, schema: Json = ID) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def in_query(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


SECONDS: Json = {"type": "number", "minimum": 0}
LIMIT = in_query(
    "limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}, "How many."
)
BOT = in_query("bot_id", ID, "The bot; may be left out when there is one.")
WORD: Json = {"type": "string", "minLength": 1, "maxLength": WORD_CHARS_MAX}
CURSOR = in_query("cursor", ID, "The next_cursor of the page before.")


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a client must know of one operation."""

    answers: Mapping[int, str]  # status → schema; "" for no body
    parameters: tuple[Json, ...] = ()
    body: type | None = None
    example: object = None
    problems: tuple[int, ...] = ()
    takes_files: bool = False
    is_body_optional: bool = False
    media_type: str = "application/json"  # of the answers
    other_media_types: tuple[str, ...] = ()  # that they also come in, if it is asked for
