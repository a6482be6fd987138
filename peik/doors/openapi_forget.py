"""Forgetting's part of the OpenAPI document."""

from peik.doors.openapi_shapes import TIME, Json, Operation, nullable, shape
from peik.doors.rest_forget import ForgetEverywhereBody

_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}

FORGET_SCHEMAS: Json = {
    "ForgottenPerson": shape(
        id=nullable(_TEXT) | {"description": "Of the act, as in the audit log; null of a dry run."},
        mark=_TEXT | {"description": "A keyed hash of the person: the same one has the same."},
        dry_run={"type": "boolean"},
        state=_TEXT
        | {
            "enum": ["done", "going_on", "dry_run"],
            "description": "going_on: something is in use just now, or the last look is to come. Peik ends it by itself.",
        },
        count=_COUNT | {"description": "Records that were removed or blanked, or would be."},
        places={
            "type": "object",
            "description": "By place (docs/forget.md): removed, blanked, and left for later because it is in use.",
            "additionalProperties": shape(removed=_COUNT, blanked=_COUNT, left=_COUNT),
        },
        notes={"type": "array", "items": _TEXT, "description": "What remains in files of a server, and for how long."},
        backups={
            "type": "array",
            "description": "Backups that still hold what was removed. They are never changed.",
            "items": shape(path=_TEXT, made_at=TIME, goes_at=nullable(TIME)),
        },
    ),
}

FORGET_OPERATIONS: dict[str, Operation] = {
    "forgetEverywhere": Operation(
        answers={200: "ForgottenPerson"},
        body=ForgetEverywhereBody,
        example={"user_id": "123456789", "dry_run": True},
        problems=(403, 404, 413, 422, 503),
    ),
}
