"""Declared operations as routes of the server: a request is admitted, read, handed to the method, and its answer is written."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from peik.errors import Problem
from peik.web import responses
from peik.web.access import Access, Caller, header_in
from peik.web.bodies import read_body, read_traced
from peik.web.operations import HEADER_NAMES, SMALL_BODY, Operation, Streamed, Told, Written, mark, operations_of
from peik.web.parse import decoded, params_of, read_query
from peik.web.responses import Endpoint, Flow, Route

_encode = msgspec.json.Encoder().encode


def routes_of(api: object, access: Access, *, body_max: int = SMALL_BODY) -> tuple[Route, ...]:
    """`body_max`: of bodies that have no bound of their own. An API with `is_open` asks nobody for a key, whatever its
    declarations say: a setting may be so."""
    return tuple(
        (one.verb, one.path, _endpoint(api, one, access, body_max), one.name, one.tag)
        for one in operations_of(type(api))
    )


def _endpoint(api: object, one: Operation, access: Access, body_max: int) -> Endpoint:
    handler = getattr(api, one.method)
    must_be_ready: Callable[[], None] | None = getattr(api, "must_be_ready", None)
    bytes_max = body_max if one.body_bytes_max is None else one.body_bytes_max
    decoder = None if one.body is None else msgspec.json.Decoder(one.body)
    is_open = getattr(api, "is_open", False)

    async def endpoint(request: Request) -> Response:
        given: dict[str, object] = {"caller": None if is_open else _caller(request, one, access)}
        if must_be_ready is not None:
            must_be_ready()
        for name, param in one.places.items():
            given[name] = param.value_of(request.path_params[name], name)
        if one.query is not None:
            given["query"] = read_query(one.query, _words(request, one.query) if request.scope["query_string"] else {})
        if one.headers is not None:
            given["headers"] = _headers(request, one.headers)
        if one.read_files is not None:
            given["body"], given["files"] = await one.read_files(api, request)
        elif decoder is not None:
            text = await read_body(request, bytes_max=bytes_max)
            if not one.is_body_optional or text.strip():
                given["body"] = decoded(decoder.decode, text)
        return _response(await handler(**given), one)

    endpoint.__doc__ = one.text
    mark(endpoint, one)
    return endpoint


def _caller(request: Request, one: Operation, access: Access) -> Caller | None:
    if one.scope is None:
        return access.known(request)
    caller = access.admit(request, one.scope)
    if one.is_for_all:
        caller.must_serve_all()
    return caller


def _words(request: Request, query: type[msgspec.Struct]) -> Mapping[str, str]:
    said = request.query_params
    lists = [name for name, param in params_of(query).items() if param.is_list and name in said]
    return {**said, **{name: ",".join(said.getlist(name)) for name in lists}} if lists else said


def _headers(request: Request, kind: type[msgspec.Struct]) -> msgspec.Struct:
    said: dict[str, str | None] = {}
    for name in kind.__struct_fields__:
        if name == "trace":
            said[name] = read_traced(request)
        else:
            said[name] = header_in(request.scope, HEADER_NAMES[name].lower().encode())
    return kind(**said)


def _response(answer: object, one: Operation) -> Response:
    status, headers = next(iter(one.answers)), None
    if isinstance(answer, Told):
        status, headers, answer = answer.status, dict(answer.headers) or None, answer.answer
    if isinstance(answer, Streamed):
        return Flow(answer.chunks, media_type=answer.media_type, headers=answer.headers, stall_s=answer.stall_s)
    if isinstance(answer, Written):
        return Response(answer.body, status, dict(answer.headers) or None, media_type=answer.media_type)
    if answer is None:
        return Response(status_code=status)
    return Response(_encode(answer), status, headers, media_type="application/json")


# The way past the framework for the few paths that carry traffic: no router, and none of the layers that wrap every request.
#
# What such a path answers, also to its mistakes, is what the framework would have made of the same endpoint.


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class FastRoutes:
    """An ASGI application before another one. `exact`: endpoints by their paths; `under`: by the beginning of a path, which
    ends with a slash, and whose one word after it is asked as the parameter that is named beside it."""

    def __init__(
        self, otherwise: App, *, exact: Mapping[str, Endpoint], under: Mapping[str, tuple[Endpoint, str]]
    ) -> None:
        self._otherwise = otherwise
        self._exact = exact
        self._under = under

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._found(scope) if scope["type"] == "http" else None
        if endpoint is None:
            await self._otherwise(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await endpoint(request)
        except Problem as problem:
            response = responses.problem_response(problem)
        except HTTPException as error:
            response = await responses.on_http_error(request, error)
        except ClientDisconnect as gone:
            response = await responses.on_gone(request, gone)
        except Exception as surprise:
            # The server tells of it, as of any that an application lets through.
            await (await responses.on_surprise(request, surprise))(scope, receive, send)
            raise
        await send_response(send, response)

    def _found(self, scope: Scope) -> Endpoint | None:
        path: str = scope["path"]
        endpoint = self._exact.get(path)
        if endpoint is not None:
            return endpoint
        edge = path.rfind("/") + 1
        found = self._under.get(path[:edge])
        if found is None or edge == len(path):
            return None
        scope["path_params"] = {found[1]: path[edge:]}
        return found[0]


async def send_response(send: Send, response: Response) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})
