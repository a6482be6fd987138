"""REST: what an import needs beside letters: people, the place in Telegram's updates, notes of how far it is."""

from typing import TYPE_CHECKING, Annotated

import msgspec

from peik.core.documents import Contact
from peik.core.units import rfc3339
from peik.errors import BadInput
from peik.importing.service import ImportNote, ImportService
from peik.web.access import Caller
from peik.web.operations import Id, Moment, operation
from peik.web.parse import BOT, Time, id_of, instant_ms

if TYPE_CHECKING:
    from peik.outbox.service import OutboxService
    from peik.outbox.store import BotRecord

CONTACTS_MAX = 5000
NAME_CHARS_MAX = 200
_SMALL_BODY = 16 * 1024
_BODY = 8 * 1024 * 1024
_SUPERGROUP = -1_000_000_000_000


class PersonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    chat_id: int | str
    name: str | None = None
    username: str | None = None
    language: str | None = None
    first_seen_at: Time = None
    last_seen_at: Time = None
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


class ImportsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bot_id: Annotated[int | None, BOT] = None


class ImportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    name: Annotated[str, msgspec.Meta(description="Of the source, as it stands in keys.")]
    table: str
    place: Annotated[int | None, msgspec.Meta(description="The last row that was brought.")]
    begun_at: Moment
    letters: Annotated[int, msgspec.Meta(description="How many letters were made of it.")]

    @classmethod
    def of(cls, note: ImportNote) -> "ImportAnswer":
        return cls(
            bot_id=str(note.bot_id),
            name=note.name,
            table=note.table,
            place=note.place,
            begun_at=rfc3339(note.begun_at_ms),
            letters=note.letters,
        )


class ImportsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    imports: list[ImportAnswer]


class ImportedContactsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    new: int
    known: int


class ImportedOffsetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    last_update_id: int


class ImportApi:
    def __init__(self, service: "OutboxService", imports: ImportService, *, is_running: bool = True) -> None:
        """`is_running`: somebody fetches the updates of bots, if they are to be fetched."""
        self._service = service
        self._imports = imports
        self._is_running = is_running

    @operation("GET", "/v1/imports", name="listImports", tag="imports", scope="read", problems=(403, 404, 422, 503))
    async def list_imports(self, caller: Caller, query: ImportsQuery) -> ImportsAnswer:
        """How far imports of a bot are: one for each table that was brought."""
        notes = await self._imports.notes(self._bot(caller, query.bot_id).bot_id)
        return ImportsAnswer(imports=[ImportAnswer.of(note) for note in notes])

    @operation(
        "PUT",
        "/v1/imports",
        name="keepImport",
        tag="imports",
        scope="admin",
        is_traffic=True,
        problems=(403, 404, 413, 422, 503),
        example={"name": "bot", "table": "pending_messages", "place": 500, "begun_at": 1794800000, "letters": 500},
        body_bytes_max=_SMALL_BODY,
    )
    async def keep_import(self, caller: Caller, body: ImportBody) -> ImportAnswer:
        """Keep how far an import is. `peik import` does, after every batch."""
        note = _note(self._bot(caller, body.bot_id).bot_id, body)
        await self._imports.keep_note(note)
        return ImportAnswer.of(note)

    @operation(
        "POST",
        "/v1/imports/contacts",
        name="importContacts",
        tag="imports",
        scope="admin",
        is_traffic=True,
        problems=(403, 404, 413, 422, 503),
        example={"contacts": [{"chat_id": "42", "name": "Sara", "language": "fa", "first_seen_at": 1700000000}]},
        body_bytes_max=_BODY,
    )
    async def import_contacts(self, caller: Caller, body: PeopleBody) -> ImportedContactsAnswer:
        """Take up people whom the bot knew before Peik. Those whom Peik knows stay as they are."""
        bot_id = self._bot(caller, body.bot_id).bot_id
        people = _contacts(bot_id, body, now_ms=self._imports.now_ms())
        new = await self._imports.add_contacts(bot_id, people)
        return ImportedContactsAnswer(new=new, known=len(people) - new)

    @operation(
        "POST",
        "/v1/imports/offset",
        name="importOffset",
        tag="imports",
        scope="admin",
        problems=(403, 404, 409, 413, 422, 503),
        example={"last_update_id": 727334708},
        body_bytes_max=_SMALL_BODY,
    )
    async def import_offset(self, caller: Caller, body: LastUpdateBody) -> ImportedOffsetAnswer:
        """Say which update was handled last, before Peik has received any: it goes on behind that one."""
        bot = self._bot(caller, body.bot_id)
        if not 0 < body.last_update_id < 2**31:
            raise BadInput(code="bad_last_update_id", detail="last_update_id is a number from 1 to 2147483647.")
        is_received = self._is_running and bot.inbound != "off"
        await self._imports.set_last_update(bot.bot_id, body.last_update_id, is_received=is_received)
        return ImportedOffsetAnswer(bot_id=str(bot.bot_id), last_update_id=body.last_update_id)

    def _bot(self, caller: Caller, asked: int | str | None) -> "BotRecord":
        return self._service.bot(caller.bot_id_of(id_of(asked, "bot_id")))


def _contacts(bot_id: int, body: PeopleBody, *, now_ms: int) -> list[Contact]:
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


def _note(bot_id: int, body: ImportBody) -> ImportNote:
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
