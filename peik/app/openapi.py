"""The OpenAPI document of the REST door: one row per operation, schemas made from the very types that read the bodies."""

from collections.abc import Iterable

import msgspec

from peik import __version__
from peik.app.apis import API_CLASSES
from peik.web.openapi import Json, OperationRow, shape
from peik.web.operations import rows_of, schemas_of

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
            "schemas": {**_SCHEMAS, **schemas_of(*API_CLASSES), **made},
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
