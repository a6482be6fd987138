"""Answers of the REST door: one way to write JSON, and what a row of its route table is."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

Endpoint = Callable[[Request], Awaitable[Response]]
Route = tuple[str, str, Endpoint, str, str]  # verb, path, endpoint, operation id, tag

_encode = msgspec.json.Encoder().encode


def json_response(value: object, status: int = 200) -> Response:
    return Response(_encode(value), status, media_type="application/json")
