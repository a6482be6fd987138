"""The audit log's part of the OpenAPI document."""

from peik.admins.audit import Outcome
from peik.doors.openapi_shapes import LIMIT, TIME, WORD, Json, Operation, in_query, nullable, shape

_TEXT: Json = {"type": "string"}

AUDIT_SCHEMAS: Json = {
    "AuditLine": shape(
        id=_TEXT,
        at=TIME,
        who=_TEXT | {"description": "A person, `key <name>`, `admin key` or `command line`."},
        action=_TEXT | {"description": "The operation of REST, or what the dashboard calls it."},
        target=_TEXT,
        outcome={
            "type": "string",
            "enum": [str(outcome) for outcome in Outcome],
            "description": "begun: it is under way, or was cut off.",
        },
        detail=_TEXT,
        address=_TEXT,
    ),
    "AuditPage": shape(
        audit={"type": "array", "items": {"$ref": "#/components/schemas/AuditLine"}}, next_cursor=nullable(_TEXT)
    ),
}

AUDIT_OPERATIONS: dict[str, Operation] = {
    "listAudit": Operation(
        answers={200: "AuditPage"},
        parameters=(
            in_query("who", WORD, "Only what they did."),
            in_query("action", WORD, "Only this one; `letters` also finds `letters.retry`."),
            in_query("since", WORD, "RFC 3339, or Unix seconds."),
            in_query("until", WORD, "The same, left out itself."),
            in_query("cursor", WORD, "The next_cursor of the page before."),
            LIMIT,
        ),
        problems=(403, 422, 503),
    ),
}
