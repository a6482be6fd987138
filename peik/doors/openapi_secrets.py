"""The OpenAPI document's part about secrets in the store."""

from peik.doors.openapi_shapes import Json, Operation, shape

_COUNT: Json = {"type": "integer"}
_SENTENCE: Json = {"type": ["string", "null"]}

SECRET_SCHEMAS: Json = {
    "Secrets": shape(
        has_key={"type": "boolean", "description": "Whether PEIK_SECRET_KEY is set here."},
        plain=_COUNT,
        sealed=_COUNT | {"description": "With the first key."},
        older=_COUNT | {"description": "With another key that is here."},
        foreign=_COUNT | {"description": "With a key that is not here."},
        is_scrubbed={"type": "boolean", "description": "Nothing of texts that were replaced is left in the file."},
        advice=_SENTENCE | {"description": "The next step; null: all is well."},
    ),
    "SecretsSettled": shape(
        sealed=_COUNT | {"description": "That were plain."},
        renewed=_COUNT | {"description": "That were sealed with an older key."},
        left=_SENTENCE | {"description": "What is left of the old texts in the store's file."},
        accounts={"type": ["object", "null"], "description": "The same for keys of accounts; null: there are none."},
    ),
}

SECRET_OPERATIONS: dict[str, Operation] = {
    "getSecrets": Operation(answers={200: "Secrets"}, problems=(503,)),
    "rotateSecrets": Operation(answers={200: "SecretsSettled"}, problems=(409, 422, 503)),
}
