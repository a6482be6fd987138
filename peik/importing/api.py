"""REST: what an import needs beside letters: people, the place in Telegram's updates, notes of how far it is."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.documents import Contact
from peik.core.units import rfc3339
from peik.errors import BadInput
from peik.importing.service import ImportNote, ImportService
from peik.outbox.service import OutboxService
from peik.web.access import Access
from peik.web.bodies import read_body
from peik.web.openapi import BOT, ID, TIME, Json, OperationRow, nullable, shape
from peik.web.parse import decode, instant_ms, parse_id
from peik.web.responses import Route, json_response

CONTACTS_MAX = 5000
NAME_CHARS_MAX = 200
_SMALL_BODY = 16 * 1024
_BODY = 8 * 1024 * 1024
_Time = int | float | str | None
_SUPERGROUP = -1_000_000_000_000


class PersonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    chat_id: int | str
    name: str | None = None
    username: str | None = None
    language: str | None = None
    first_seen_at: _Time = None
    last_seen_at: _Time = None
    gone: bool = False
    campaign: str | None = None


class PeopleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/imports/contacts`."""

    contacts: list[PersonBody]
    bot_id: int | str | None = None


class LastUpdateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/imports/offset`: the last update that was handled before Peik."""

    last_update_id: int
    bot_id: int | str | None = None


class ImportBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`PUT /v1/imports`."""

    name: str
    table: str
    place: int | None
    begun_at: int | float | str
    letters: int
    bot_id: int | str | None = None


class ImportRoutes:
    def __init__(self, desk: OutboxService, imports: ImportService, access: Access) -> None:
        self._desk = desk
        self._imports = imports
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/imports", self.list_notes, "listImports", "imports"),
            ("PUT", "/v1/imports", self.put_note, "keepImport", "imports"),
            ("POST", "/v1/imports/contacts", self.post_contacts, "importContacts", "imports"),
            ("POST", "/v1/imports/offset", self.post_offset, "importOffset", "imports"),
        )

    async def list_notes(self, request: Request) -> Response:
        """How far imports of a bot are: one for each table that was brought."""
        bot_id = self._asked_bot(request)
        return json_response({"imports": [note_view(note) for note in await self._imports.notes(bot_id)]})

    async def put_note(self, request: Request) -> Response:
        """Keep how far an import is. `peik import` does, after every batch."""
        caller = self._access.admit(request, "admin")
        body = decode(ImportBody, await read_body(request, bytes_max=_SMALL_BODY))
        bot_id = self._desk.bot(caller.bot_id_of(_number(body.bot_id))).bot_id
        note = note_of(bot_id, body)
        await self._imports.keep_note(note)
        return json_response(note_view(note))

    async def post_contacts(self, request: Request) -> Response:
        """Take up people whom the bot knew before Peik. Those whom Peik knows stay as they are."""
        caller = self._access.admit(request, "admin")
        body = decode(PeopleBody, await read_body(request, bytes_max=_BODY))
        bot_id = self._desk.bot(caller.bot_id_of(_number(body.bot_id))).bot_id
        people = contacts_of(bot_id, body, now_ms=self._imports.now_ms())
        new = await self._imports.add_contacts(bot_id, people)
        return json_response({"new": new, "known": len(people) - new})

    async def post_offset(self, request: Request) -> Response:
        """Say which update was handled last, before Peik has received any: it goes on behind that one."""
        caller = self._access.admit(request, "admin")
        body = decode(LastUpdateBody, await read_body(request, bytes_max=_SMALL_BODY))
        bot = self._desk.bot(caller.bot_id_of(_number(body.bot_id)))
        await self._imports.set_last_update(bot.bot_id, last_update_of(body), is_received=bot.inbound != "off")
        return json_response({"bot_id": str(bot.bot_id), "last_update_id": body.last_update_id})

    def _asked_bot(self, request: Request) -> int:
        caller = self._access.admit(request, "read")
        if unknown := set(request.query_params) - {"bot_id"}:
            raise BadInput(
                code="unknown_filter", detail=f"There is no filter {', '.join(sorted(unknown))}; only bot_id."
            )
        return self._desk.bot(caller.bot_id_of(_number(request.query_params.get("bot_id")))).bot_id


def _number(asked: int | str | None) -> int | None:
    return parse_id(asked, "bot_id") if isinstance(asked, str) else asked


def contacts_of(bot_id: int, body: PeopleBody, *, now_ms: int) -> list[Contact]:
    if not 0 < len(body.contacts) <= CONTACTS_MAX:
        raise BadInput(code="bad_contacts", detail=f"contacts has 1 to {CONTACTS_MAX} entries.")
    return [_contact(bot_id, one, now_ms) for one in body.contacts]


def _contact(bot_id: int, body: PersonBody, now_ms: int) -> Contact:
    chat_id = _chat_id(body.chat_id)
    for name, most in (("name", 256), ("username", 64), ("language", 32), ("campaign", 64)):
        if len(getattr(body, name) or "") > most:
            raise BadInput(code="bad_contact", detail=f"{name} has at most {most} characters.")
    first = instant_ms(body.first_seen_at, "first_seen_at")
    last = instant_ms(body.last_seen_at, "last_seen_at")
    first_ms = min(one for one in (first, last, now_ms) if one is not None)
    kind = "private" if chat_id > 0 else "supergroup" if chat_id < _SUPERGROUP else "group"
    return Contact(
        bot_id=bot_id,
        chat_id=chat_id,
        type=kind,
        name=body.name,
        username=body.username,
        language=body.language if chat_id > 0 else None,
        first_seen_ms=first_ms,
        last_seen_ms=min(max(first_ms, last or first_ms), max(now_ms, first_ms)),
        is_gone=body.gone,
        campaign=body.campaign,
    )


def _chat_id(given: int | str) -> int:
    text = str(given)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16) or int(digits) == 0:
        raise BadInput(code="bad_chat_id", detail="chat_id must be a number, and not 0.")
    return int(text)


def last_update_of(body: LastUpdateBody) -> int:
    if not 0 < body.last_update_id < 2**31:
        raise BadInput(code="bad_last_update_id", detail="last_update_id is a number from 1 to 2147483647.")
    return body.last_update_id


def note_of(bot_id: int, body: ImportBody) -> ImportNote:
    for name, words in (("name", body.name), ("table", body.table)):
        if not 0 < len(words) <= NAME_CHARS_MAX:
            raise BadInput(code=f"bad_{name}", detail=f"{name} has 1 to {NAME_CHARS_MAX} characters.")
    if body.letters < 0 or abs(body.place or 0) >= 2**63 or body.letters >= 2**63:
        raise BadInput(code="bad_import", detail="place and letters are numbers of rows.")
    begun_at_ms = instant_ms(body.begun_at, "begun_at")
    assert begun_at_ms is not None
    return ImportNote(
        bot_id=bot_id,
        name=body.name,
        table=body.table,
        place=body.place,
        begun_at_ms=begun_at_ms,
        letters=body.letters,
    )


def note_view(note: ImportNote) -> dict[str, object]:
    return {
        "bot_id": str(note.bot_id),
        "name": note.name,
        "table": note.table,
        "place": note.place,
        "begun_at": rfc3339(note.begun_at_ms),
        "letters": note.letters,
    }


# The imports' part of the OpenAPI document.


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

IMPORT_OPERATIONS: dict[str, OperationRow] = {
    "listImports": OperationRow(answers={200: "Imports"}, parameters=(BOT,), problems=(403, 404, 422, 503)),
    "keepImport": OperationRow(
        answers={200: "Import"},
        body=ImportBody,
        example={"name": "bot", "table": "pending_messages", "place": 500, "begun_at": 1794800000, "letters": 500},
        problems=(403, 404, 413, 422, 503),
    ),
    "importContacts": OperationRow(
        answers={200: "ImportedContacts"},
        body=PeopleBody,
        example={"contacts": [{"chat_id": "42", "name": "Sara", "language": "fa", "first_seen_at": 1700000000}]},
        problems=(403, 404, 413, 422, 503),
    ),
    "importOffset": OperationRow(
        answers={200: "ImportedOffset"},
        body=LastUpdateBody,
        example={"last_update_id": 727334708},
        problems=(403, 404, 409, 413, 422, 503),
    ),
}
