"""The imports' part of the OpenAPI document."""

from peik.doors.openapi_shapes import BOT, ID, TIME, Json, Operation, nullable, shape
from peik.doors.rest_imports import ImportBody, LastUpdateBody, PeopleBody

_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}

IMPORT_SCHEMAS: Json = {
    "Import": shape(
        bot_id=ID,
        name=_TEXT | {"description": "Of the source, as it stands in keys."},
        table=_TEXT,
        place=nullable(_WHOLE) | {"description": "The last row that was brought."},
        begun_at=TIME,
        letters=_WHOLE | {"description": "How many letters were made of it."},
    ),
    "Imports": shape(imports={"type": "array", "items": {"$ref": "#/components/schemas/Import"}}),
    "ImportedContacts": shape(new=_WHOLE, known=_WHOLE),
    "ImportedOffset": shape(bot_id=ID, last_update_id=_WHOLE),
}

IMPORT_OPERATIONS: dict[str, Operation] = {
    "listImports": Operation(answers={200: "Imports"}, parameters=(BOT,), problems=(403, 404, 422, 503)),
    "keepImport": Operation(
        answers={200: "Import"},
        body=ImportBody,
        example={"name": "bot", "table": "pending_messages", "place": 500, "begun_at": 1794800000, "letters": 500},
        problems=(403, 404, 413, 422, 503),
    ),
    "importContacts": Operation(
        answers={200: "ImportedContacts"},
        body=PeopleBody,
        example={"contacts": [{"chat_id": "42", "name": "Sara", "language": "fa", "first_seen_at": 1700000000}]},
        problems=(403, 404, 413, 422, 503),
    ),
    "importOffset": Operation(
        answers={200: "ImportedOffset"},
        body=LastUpdateBody,
        example={"last_update_id": 727334708},
        problems=(403, 404, 409, 413, 422, 503),
    ),
}
