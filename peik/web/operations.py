"""Operations of the API. Each is declared once, on the method that does it:

    class JobApi:
        @operation("GET", "/v1/jobs/{job_id}", name="getJob", tag="jobs", scope="read", problems=(404, 422))
        async def get_job(self, caller: Caller, job_id: NumberInPath, query: WaitQuery) -> JobAnswer:
            '''One job; with `?wait=10s`, once it has ended.'''

The route, the OpenAPI document, the reference page, the name in the audit log and the call of every client come from it. What
the method takes is what a request has: `caller`; a value for each {place} of the path, read as its annotation says; `query`,
`body` and `headers`, Structs; `files`. What it returns is the answer: a Struct whose name ends in Answer (clients know it by
its name without that), None, or one of `Told`, `Streamed` and `Written`. Of the last two a class is made that says in its
docstring what comes: `class EventsAnswer(Streamed)`.

A client asks by the method: `await client.ask(JobApi.get_job, job_id=7, query=WaitQuery(wait=10))`.
"""

import inspect
import re
import types
import typing
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from peik.admin.model import Scope
from peik.core.trace import HEADER
from peik.web.openapi import ID, LETTER_FORM, TRACE, FormRow, Json, OperationRow, in_header, in_path, in_query
from peik.web.parse import KEY, TRACED, Param, decode, param_in, params_of, read_query, required_in, write_query

if TYPE_CHECKING:
    from starlette.requests import Request

    from peik.web.access import Caller

Moment = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Id = Annotated[str, msgspec.Meta(pattern=ID["pattern"])]
Count = Annotated[int, msgspec.Meta(ge=0)]
Object = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]  # JSON that is passed on as it is

SMALL_BODY = 64 * 1024
_ANSWER = "Answer"
_SCHEMAS = "#/components/schemas/"
_PLACE = re.compile(r"\{(\w+)\}")
_MARK = "__operation__"
_REST = {"query", "body", "files", "headers"}  # that a method may take besides its caller and the places of its path
_encode = msgspec.json.Encoder().encode
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Awaitable[object]])


# ---- what a request has besides, and what an answer may be ----


class TraceHeaders(msgspec.Struct, frozen=True, kw_only=True):
    trace: str | None = None  # what it answers


# An empty header says nothing.
_TRACE = Param(
    TRACED.read, TRACE | {"pattern": f"^({TRACE['pattern'][1:-1]})?$"}, "What it answers; `traceparent` is read, too."
)


class CallHeaders(msgspec.Struct, frozen=True, kw_only=True):
    idempotency_key: Annotated[str | None, KEY] = None
    trace: Annotated[str | None, _TRACE] = None


class AcceptHeaders(msgspec.Struct, frozen=True, kw_only=True):
    accept: str | None = None


class StreamHeaders(msgspec.Struct, frozen=True, kw_only=True):
    last_event_id: str | None = None


HEADER_NAMES = {
    "trace": HEADER,
    "idempotency_key": "Idempotency-Key",
    "accept": "Accept",
    "last_event_id": "Last-Event-ID",
}


class Told(msgspec.Struct, Generic[T], frozen=True):
    """An answer with a status of its own, or with headers."""

    answer: T
    status: int = 200
    headers: Mapping[str, str] = {}


_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Streamed(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that goes on. `stall_s`: a reader who takes nothing for so long has gone."""

    chunks: AsyncGenerator[bytes, None]
    media_type: str = "text/event-stream"
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: _UNBUFFERED)
    stall_s: float | None = None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is no JSON."""

    body: bytes
    media_type: str
    headers: Mapping[str, str] = {}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # stable: clients are generated with it, and the audit log has it
    verb: str
    path: str
    tag: str
    scope: Scope | None  # None: for everybody; who shows a key is known all the same
    is_for_all: bool  # it concerns Peik as a whole, and not the bots of a key
    is_traffic: bool  # programs do it all day: it is not in the audit log
    method: str
    text: str
    places: dict[str, Param]
    query: type[msgspec.Struct] | None
    headers: type[msgspec.Struct] | None
    body: Any  # a type, or a union of them
    is_body_optional: bool
    body_bytes_max: int | None  # None: as PEIK_BODY_MAX says
    read_files: "Callable[[Any, Request], Awaitable[tuple[object, object]]] | None"
    form: FormRow | None
    example: object
    answers: dict[int, Any]  # by status: a type, the name of a schema, or None for nothing
    media_type: str
    other_media_types: tuple[str, ...]
    problems: tuple[int, ...]

    def path_of(self, **places: object) -> str:
        """Where it is asked. Each place is one part of the path, whatever is in it."""
        return _PLACE.sub(lambda found: quote(str(places[found[1]]), safe=""), self.path)


def operation(
    verb: str,
    path: str,
    *,
    name: str,
    tag: str,
    scope: Scope | None,
    is_for_all: bool = False,
    is_traffic: bool = False,
    status: int | None = None,
    answers: Mapping[int, Any] | None = None,
    media_type: str = "application/json",
    other_media_types: tuple[str, ...] = (),
    problems: tuple[int, ...] = (),
    example: object = None,
    body_bytes_max: int | None = SMALL_BODY,
    read_files: "Callable[[Any, Request], Awaitable[tuple[object, object]]] | None" = None,
    form: FormRow = LETTER_FORM,
) -> Callable[[F], F]:
    """Declare what the method under it is.

    `answers`: what it answers by status, where that is more than one thing; `read_files`: how a body is read that may
    have files, given the API and the request; the method takes them as `files`. `form`: what such a body has in it."""

    def declare(handler: F) -> F:
        hints = typing.get_type_hints(handler, include_extras=True)
        parameters = dict(inspect.signature(handler).parameters)
        taken = set(parameters) - {"self"}
        named = _PLACE.findall(path)
        assert taken == {"caller", *named, *(_REST & taken)}, f"{name}: {sorted(taken)} do not fit {path}"
        answer = _plain_type(hints["return"])
        declared = Operation(
            name=name,
            verb=verb,
            path=path,
            tag=tag,
            scope=scope,
            is_for_all=is_for_all,
            is_traffic=is_traffic,
            method=handler.__name__,
            text=inspect.cleandoc(handler.__doc__ or ""),
            places={place: param_in(hints[place]) or Param(_as_it_is, ID) for place in named},
            query=hints.get("query"),
            headers=hints.get("headers"),
            body=_without_none(hints.get("body")),
            is_body_optional="body" in taken and parameters["body"].default is not inspect.Parameter.empty,
            body_bytes_max=body_bytes_max,
            read_files=read_files,
            form=None if read_files is None else form,
            example=example,
            answers=dict(answers or {status or (204 if answer is None else 200): answer}),
            media_type=media_type,
            other_media_types=other_media_types,
            problems=problems,
        )
        mark(handler, declared)
        return handler

    return declare


def _as_it_is(text: str, name: str) -> str:
    return text


def _plain_type(hint: Any) -> Any:
    """The type of an answer without what only its sending needs."""
    if typing.get_origin(hint) is Told:
        return typing.get_args(hint)[0]
    return None if hint is type(None) else hint


def _without_none(hint: Any) -> Any:
    kinds = [one for one in typing.get_args(hint) if one is not type(None)]
    return kinds[0] if isinstance(hint, types.UnionType) and len(kinds) == 1 else hint


def declared(handler: object) -> Operation:
    """What a method was declared to be; the endpoint of a route knows it, too."""
    found: Operation = getattr(handler, _MARK)
    return found


def is_declared(handler: object) -> bool:
    return hasattr(handler, _MARK)


def mark(handler: object, one: Operation) -> None:
    setattr(handler, _MARK, one)


def operations_of(api: type) -> Iterator[Operation]:
    """All of an API's, in the order in which they stand there."""
    for one in vars(api).values():
        if is_declared(one):
            yield declared(one)


# ---- as a client asks ----


class Asked(NamedTuple):
    """A request for an operation."""

    verb: str
    target: str  # path and query
    body: bytes | None
    headers: dict[str, str]


def request_for(one: Operation, given: Mapping[str, Any]) -> Asked:
    """`given`: values by the names under which the method takes them. A query may be words, and a body a document."""
    query = given.get("query") or {}
    words = write_query(query) if isinstance(query, msgspec.Struct) else dict(query)
    target = one.path_of(**{name: given[name] for name in one.places}) + (f"?{urlencode(words)}" if words else "")
    body = given.get("body")
    said = given.get("headers")
    headers = {} if said is None else {HEADER_NAMES[name]: getattr(said, name) for name in said.__struct_fields__}
    return Asked(
        verb=one.verb,
        target=target,
        body=None if body is None else _encode(body),
        headers={name: value for name, value in headers.items() if value is not None},
    )


async def answer_here(api: object, one: Operation, caller: "Caller", given: Mapping[str, Any]) -> Any:
    """The same without a server: the method itself is asked, with what it takes read as a request's would be."""
    taken: dict[str, Any] = {"caller": caller}
    for name, param in one.places.items():
        taken[name] = param.value_of(str(given[name]), name)
    if one.query is not None:
        query = given.get("query") or {}
        taken["query"] = query if isinstance(query, one.query) else read_query(one.query, query)
    if one.headers is not None:
        taken["headers"] = given.get("headers") or one.headers()
    if given.get("body") is not None:
        taken["body"] = decode(one.body, _encode(given["body"]))
    if "files" in given:
        taken["files"] = given["files"]
    answer = await getattr(api, one.method)(**taken)
    return answer.answer if isinstance(answer, Told) else answer


def api_name(handler: Callable[..., object]) -> str:
    """The class whose method it is."""
    return handler.__qualname__.rpartition(".")[0]


# ---- as a document ----


def rows_of(*apis: type) -> dict[str, OperationRow]:
    """What the OpenAPI document says of them."""
    return {
        one.name: OperationRow(
            answers={status: schema_name(answer) for status, answer in one.answers.items()},
            parameters=(*_parameters(one),),
            body=one.body,
            is_body_optional=one.is_body_optional,
            form=one.form,
            example=one.example,
            problems=one.problems,
            media_type=one.media_type,
            other_media_types=one.other_media_types,
            is_open=one.scope is None,
        )
        for api in apis
        for one in operations_of(api)
    }


def _parameters(one: Operation) -> Iterator[Json]:
    for name, param in one.places.items():
        yield in_path(name, param.schema)
    if one.query is not None:
        required = required_in(one.query)
        for name, param in params_of(one.query).items():
            yield in_query(name, param.schema, param.text) | {"required": name in required}
    said = {} if one.headers is None else typing.get_type_hints(one.headers, include_extras=True)
    for name, hint in said.items():
        if (header := param_in(hint)) is not None:  # the others are usual ones of HTTP
            yield in_header(HEADER_NAMES[name], header.schema, header.text)


def schemas_of(*apis: type) -> Json:
    """Of all that they answer with."""
    answers = [answer for api in apis for one in operations_of(api) for answer in one.answers.values()]
    single = [one for answer in answers for one in (typing.get_args(answer) or (answer,))]
    kinds = list(dict.fromkeys(one for one in single if isinstance(one, type) and issubclass(one, msgspec.Struct)))
    texts = [one for one in kinds if issubclass(one, Streamed | Written)]
    structs = [one for one in kinds if one not in texts]
    _, made = msgspec.json.schema_components(structs, ref_template=_SCHEMAS + "{name}")
    return {name.removesuffix(_ANSWER): _renamed(schema) for name, schema in made.items()} | {
        schema_name(one): {"type": "string", "description": inspect.cleandoc(one.__doc__ or "")} for one in texts
    }


def schema_name(answer: Any) -> str:
    """The names of several with a bar between them; empty for no body."""
    if isinstance(answer, types.UnionType):
        return "|".join(map(schema_name, typing.get_args(answer)))
    if answer is None or isinstance(answer, str):
        return answer or ""
    return str(answer.__name__).removesuffix(_ANSWER)


def _renamed(schema: Any) -> Any:
    match schema:
        case dict():
            # A property may be called so, too; then it is a schema, and no text.
            return {key: _renamed(value) for key, value in schema.items() if key != "title" or isinstance(value, dict)}
        case list():
            return [_renamed(value) for value in schema]
        case str() if schema.startswith(_SCHEMAS):
            return schema.removesuffix(_ANSWER)
    return schema
