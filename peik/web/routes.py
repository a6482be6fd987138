"""Declared operations as routes of the server: a request is admitted, read, handed to the method, and its answer is written."""

from collections.abc import Callable, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

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
