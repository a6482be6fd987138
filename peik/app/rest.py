"""REST as one application: the routes of all APIs, what is said of them in OpenAPI, and the fast way for those with traffic."""

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from peik import __version__
from peik.admin.api import Audited
from peik.admin.model import weakness_of
from peik.app.apis import API_CLASSES, apis_of
from peik.app.runtime import Runtime
from peik.errors import Problem
from peik.inbox.webhook_endpoint import PUSHES, WebhookDoor
from peik.monitoring.pulse import Pulse
from peik.web import responses
from peik.web.access import Access
from peik.web.openapi import Json, OperationRow, opened, page, shape
from peik.web.operations import rows_of, schemas_of
from peik.web.responses import Endpoint, Route
from peik.web.routes import FastRoutes, Receive, Scope, Send, routes_of

# The OpenAPI document of the REST door: one row per operation, schemas made from the very types that read the bodies.


Described = tuple[str, str, str, str, str]  # verb, path, its sentences, operation id, tag

_SCHEMAS: Json = {
    "Problem": shape(
        type={"type": "string"},
        title={"type": "string"},
        status={"type": "integer"},
        code={"type": "string", "description": "Stable; for programs."},
        detail={"type": "string", "description": "What to do next; for people."},
    ),
}


OPERATIONS: dict[str, OperationRow] = {
    **rows_of(*API_CLASSES),
}


def document(routes: Iterable[Described]) -> Json:
    """OpenAPI 3.1 of these routes. A route without a row in OPERATIONS is a mistake that a test finds."""
    paths: dict[str, Json] = {}
    for verb, path, text, operation_id, tag in routes:
        paths.setdefault(path, {})[verb.lower()] = _operation(operation_id, tag, text)
    bodies = [operation.body for operation in OPERATIONS.values() if operation.body is not None]
    _, made = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
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
            "schemas": opened({**_SCHEMAS, **schemas_of(*API_CLASSES), **made}),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    }


def _operation(operation_id: str, tag: str, text: str) -> Json:
    row = OPERATIONS[operation_id]
    responses: Json = {str(status): _answer(schema, row) for status, schema in row.answers.items()}
    for status in (*(() if row.is_open else (401, 403)), *row.problems, 429):
        responses[str(status)] = _problem()
    described: Json = {
        "operationId": operation_id,
        "tags": [tag],
        "summary": text.split("\n")[0],
        "parameters": list(row.parameters),
        "responses": responses,
    }
    if row.is_open:
        described["security"] = []
    if row.body is not None:
        described["requestBody"] = _request_body(row)
    return described


def _answer(schema: str, row: OperationRow) -> Json:
    if not schema:
        return {"description": "Done."}
    named = [{"$ref": f"#/components/schemas/{name}"} for name in schema.split("|")]
    content: Json = {row.media_type: {"schema": named[0] if len(named) == 1 else {"anyOf": named}}}
    for other in row.other_media_types:
        content[other] = {"schema": {"type": "string"}}
    return {"description": schema.replace("|", " or "), "content": content}


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
    if row.form is not None:
        field, file = row.form.field, row.form.file
        content["multipart/form-data"] = {
            "schema": {
                "type": "object",
                "properties": {
                    field: {"type": "string", "description": "The same JSON object, as a field."},
                    file: {"type": "string", "format": "binary", "description": row.form.text},
                },
                "required": [field],
            },
            "encoding": {field: {"contentType": "application/json"}},
        }
    return {"required": not row.is_body_optional, "content": content}


_VERBS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
_TRAFFIC = ("/v1/letters", "/v1/letters/batch")
_encode = msgspec.json.Encoder().encode


class Rest(Starlette):
    """What carries traffic goes past the framework."""

    shortcuts: FastRoutes
    pushes: WebhookDoor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.shortcuts(scope, receive, send)


def build(peik: Runtime, key: str, pulse: Pulse | None = None) -> Rest:
    # Plain routes, described by their declarations: a framework that reads bodies and writes documents by itself would cost a
    # tenth of a millisecond a request, and its pages load scripts from other hosts.
    app = Rest()
    app.add_exception_handler(Problem, responses.on_problem)
    app.add_exception_handler(HTTPException, responses.on_http_error)
    app.add_exception_handler(ClientDisconnect, responses.on_gone)
    app.add_exception_handler(Exception, responses.on_surprise)
    app.pushes = WebhookDoor(peik.outbox.service, peik.inbox.receiver.pushed, gate=peik.limits, now=peik.clock.mono)
    app.add_route(f"{PUSHES}{{bot_id}}", app.pushes.answer, methods=_VERBS)
    routes = all_routes(peik, key, pulse)
    audited = Audited(peik.audit, access_of(peik, key))
    verbs: dict[str, dict[str, Endpoint]] = defaultdict(dict)
    for verb, path, endpoint, operation_id, _ in routes:
        verbs[path][verb] = audited.wrap(verb, endpoint, operation_id)
    # Paths without places first: `/v1/letters/cancel` is no letter.
    by_verb = {path: _by_verb(endpoints) for path, endpoints in verbs.items()}
    for path, endpoint in sorted(by_verb.items(), key=lambda one: "{" in one[0]):
        app.add_route(path, endpoint, methods=_VERBS)
    app.shortcuts = FastRoutes(
        super(Rest, app).__call__,
        exact={path: by_verb[path] for path in _TRAFFIC},
        under={PUSHES: (app.pushes.answer, "bot_id")},
    )
    openapi, docs = _described(
        tuple((verb, path, endpoint.__doc__ or "", name, tag) for verb, path, endpoint, name, tag in routes)
    )
    _serve_text(app, "/openapi.json", openapi, "application/json")
    _serve_text(app, "/docs", docs, "text/html; charset=utf-8")
    return app


@lru_cache(maxsize=4)
def _described(routes: tuple[Described, ...]) -> tuple[bytes, bytes]:
    """What is said of the routes, for programs and for people: the same for every Peik of a process."""
    described = document(routes)
    return _encode(described), page(described).encode()


def all_routes(peik: Runtime, key: str, pulse: Pulse | None = None) -> tuple[Route, ...]:
    access = access_of(peik, key)
    apis = apis_of(peik, pulse=pulse, weakness=weakness_of(key))
    declared = (routes_of(api, access, body_max=peik.config.body_max) for api in apis)
    return (*(route for routes in declared for route in routes),)


def sections(app: Starlette) -> frozenset[str]:
    """What may follow `/v1/`."""
    paths = [str(getattr(route, "path", "")) for route in app.routes]
    return frozenset(path.split("/")[2] for path in paths if path.startswith("/v1/"))


def access_of(peik: Runtime, key: str) -> Access:
    return Access(key, find=peik.keyring.find, wall_ms=peik.clock.wall_ms, gate=peik.limits, now=peik.clock.mono)


_LOOKED_AT = frozenset({"/health", "/ready"})


def _by_verb(endpoints: dict[str, Endpoint]) -> Endpoint:
    """One route per path, so that a verb that it does not know is answered 405 with those that it does."""
    allowed = ", ".join(endpoints)

    async def answer(request: Request) -> Response:
        # Balancers and watchdogs ask with HEAD whether Peik is there. The connection leaves the body out.
        is_looked_at = request.method == "HEAD" and request.url.path in _LOOKED_AT
        endpoint = endpoints.get("GET" if is_looked_at else request.method)
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": allowed})
        return await endpoint(request)

    return answer


def _serve_text(app: Starlette, path: str, body: bytes, media_type: str) -> None:
    async def answer(request: Request) -> Response:
        return Response(body, media_type=media_type)

    app.add_route(path, answer, methods=["GET"])
