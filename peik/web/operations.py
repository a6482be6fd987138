"""Operations of the API. Each is declared once, on the method that does it:

    class AlertApi:
        @operation("GET", "/v1/alerts", name="listAlerts", tag="health", scope="read", problems=(503,))
        async def list_alerts(self, caller: Caller) -> AlertsAnswer:
            '''Problems that go on, on all nodes.'''

The route, the OpenAPI document, the reference page, the name in the audit log and the client's call come from it. What the
method takes is what a request has: `caller`, a `str` for each {place} of the path, and `body`, a Struct. What it returns is
the answer: a Struct whose name ends in Answer; clients know it by its name without that.
"""

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from peik.admin.model import Scope
from peik.web.openapi import ID, Json, OperationRow, in_path

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from peik.web.access import Access
    from peik.web.responses import Endpoint, Route

Moment = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Id = Annotated[str, msgspec.Meta(pattern=ID["pattern"])]
Count = Annotated[int, msgspec.Meta(ge=0)]

SMALL_BODY = 64 * 1024
_ANSWER = "Answer"
_SCHEMAS = "#/components/schemas/"
_PLACE = re.compile(r"\{(\w+)\}")
_MARK = "__operation__"
F = TypeVar("F", bound=Callable[..., Awaitable[object]])


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # stable: clients are generated with it, and the audit log has it
    verb: str
    path: str
    tag: str
    scope: Scope
    is_for_all: bool  # it concerns Peik as a whole, and not the bots of a key
    method: str
    text: str
    body: type | None
    body_bytes_max: int
    example: object
    answer: type
    status: int
    problems: tuple[int, ...]
    place_schemas: dict[str, Json]

    def path_of(self, **places: str) -> str:
        """Where it is asked. Each place is one part of the path, whatever is in it."""
        from urllib.parse import quote

        return _PLACE.sub(lambda found: quote(places[found[1]], safe=""), self.path)


def operation(
    verb: str,
    path: str,
    *,
    name: str,
    tag: str,
    scope: Scope,
    is_for_all: bool = False,
    status: int = 200,
    problems: tuple[int, ...] = (),
    example: object = None,
    body_bytes_max: int = SMALL_BODY,
    places: Mapping[str, Json] | None = None,
) -> Callable[[F], F]:
    """Declare what the method under it is. `places`: the schemas of {places} in its path that are no ids."""

    def declare(handler: F) -> F:
        hints = typing.get_type_hints(handler, include_extras=True)
        taken = set(inspect.signature(handler).parameters) - {"self"}
        named = set(_PLACE.findall(path))
        assert taken == {"caller", *named, *({"body"} & taken)}, f"{name}: {sorted(taken)} do not fit {path}"
        declared = Operation(
            name=name,
            verb=verb,
            path=path,
            tag=tag,
            scope=scope,
            is_for_all=is_for_all,
            method=handler.__name__,
            text=inspect.cleandoc(handler.__doc__ or ""),
            body=hints.get("body"),
            body_bytes_max=body_bytes_max,
            example=example,
            answer=hints["return"],
            status=status,
            problems=problems,
            place_schemas=dict(places or {}),
        )
        setattr(handler, _MARK, declared)
        return handler

    return declare


def declared(handler: object) -> Operation:
    """What a method was declared to be."""
    found: Operation = getattr(handler, _MARK)
    return found


def operations_of(api: type) -> Iterator[Operation]:
    """All of an API's, in the order in which they stand there."""
    for one in vars(api).values():
        if hasattr(one, _MARK):
            yield declared(one)


# ---- as routes ----


def routes_of(api: object, access: "Access") -> "tuple[Route, ...]":
    return tuple(
        (one.verb, one.path, _endpoint(api, one, access), one.name, one.tag) for one in operations_of(type(api))
    )


def _endpoint(api: object, one: Operation, access: "Access") -> "Endpoint":
    from peik.web.bodies import decode, read_body
    from peik.web.responses import json_response

    handler = getattr(api, one.method)
    places = _PLACE.findall(one.path)

    async def endpoint(request: "Request") -> "Response":
        caller = access.admit(request, one.scope)
        if one.is_for_all:
            caller.must_serve_all()
        given: dict[str, object] = {name: request.path_params[name] for name in places}
        if one.body is not None:
            given["body"] = decode(one.body, await read_body(request, bytes_max=one.body_bytes_max))
        return json_response(await handler(caller=caller, **given), one.status)

    endpoint.__doc__ = one.text
    return endpoint


# ---- as a document ----


def rows_of(*apis: type) -> dict[str, OperationRow]:
    """What the OpenAPI document says of them."""
    return {
        one.name: OperationRow(
            answers={one.status: schema_name(one.answer)},
            parameters=tuple(in_path(name, one.place_schemas.get(name, ID)) for name in _PLACE.findall(one.path)),
            body=one.body,
            example=one.example,
            problems=one.problems,
        )
        for api in apis
        for one in operations_of(api)
    }


def schemas_of(*apis: type) -> Json:
    """Of all that they answer with."""
    answers = list(dict.fromkeys(one.answer for api in apis for one in operations_of(api)))
    _, made = msgspec.json.schema_components(answers, ref_template=_SCHEMAS + "{name}")
    return {name.removesuffix(_ANSWER): _renamed(schema) for name, schema in made.items()}


def schema_name(answer: type) -> str:
    return answer.__name__.removesuffix(_ANSWER)


def _renamed(schema: Any) -> Any:
    match schema:
        case dict():
            return {key: _renamed(value) for key, value in schema.items() if key != "title"}
        case list():
            return [_renamed(value) for value in schema]
        case str() if schema.startswith(_SCHEMAS):
            return schema.removesuffix(_ANSWER)
    return schema
