"""The alerts' part of the OpenAPI document."""

from peik.doors.openapi_shapes import ID, TIME, Json, Operation, nullable, shape
from peik.ops.alert_matter import Kind
from peik.ops.alert_rules import BY_NAME

_TEXT: Json = {"type": "string"}
_RULE: Json = _TEXT | {"description": f"One of docs/reference/alerts.md: {', '.join(BY_NAME)}."}

ALERT_SCHEMAS: Json = {
    "Alerts": shape(
        ongoing={
            "type": "array",
            "items": shape(
                rule=_RULE,
                node=_TEXT,
                bot_id=nullable(ID),
                text=_TEXT,
                since=TIME,
                last=TIME | {"description": "When it was heard of last."},
                count={"type": "integer"},
                todo=nullable(_TEXT) | {"description": "What to do, in one line."},
                runbook=nullable(_TEXT) | {"description": "Where the docs say more."},
            ),
        },
        last={
            "type": "array",
            "items": shape(
                at=TIME,
                kind={"type": "string", "enum": [str(kind) for kind in Kind if kind is not Kind.TEST]},
                rule=_RULE,
                node=_TEXT,
                bot_id=nullable(ID),
                text=_TEXT,
            ),
        },
    ),
    "AlertTest": shape(
        ways={
            "type": "array",
            "items": shape(
                way=_TEXT | {"description": "A chat, or the kind of an address."},
                is_done={
                    "type": "boolean",
                    "description": "It was taken there; of a chat: the letter is in the outbox.",
                },
                why=nullable(_TEXT),
            ),
        }
    ),
}

ALERT_OPERATIONS: dict[str, Operation] = {
    "listAlerts": Operation(answers={200: "Alerts"}, problems=(503,)),
    "testAlerts": Operation(answers={200: "AlertTest"}, problems=(403, 503)),
}
