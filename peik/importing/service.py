"""Peik's side of an import: people who are not known yet, the place in Telegram's updates, and notes of how far imports are.

Letters come by the outbox as all others do.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from peik.clock import Clock
from peik.core.documents import Contact, ContactStore, DocumentStore, Filing
from peik.errors import BadInput, Conflict
from peik.inbox.store import InboxStore

if TYPE_CHECKING:
    from peik.settings.config import Config
    from peik.storage.open import AnyStore

COLLECTION = "imports"
NOTES_MAX = 1000  # of one bot: each is a table of a file


class ImportNote(msgspec.Struct, frozen=True, kw_only=True):
    """How far the import of one table is. `place` None: nothing is brought yet."""

    bot_id: int
    name: str
    table: str
    place: int | None
    begun_at_ms: int
    letters: int


class ImportService:
    """`server`: whose numbering a bot's updates have, as its source will say."""

    def __init__(
        self, *, documents: DocumentStore, contacts: ContactStore, inbox: InboxStore, clock: Clock, server: str
    ) -> None:
        self._documents = documents
        self._contacts = contacts
        self._inbox = inbox
        self._clock = clock
        self._server = server

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    async def add_contacts(self, bot_id: int, people: Sequence[Contact]) -> int:
        """Take up those that are not known. Of the others Peik's own knowledge is newer. How many were new."""
        new = {one.chat_id: one for one in people}  # of several rows of one person the last counts
        found: int | None = None
        while True:
            # The census may go on meanwhile. What comes with a place that is over changes nothing: then once more, without
            # those whom it has met.
            place = await self._contacts.contacts_place(bot_id)
            new = {chat: one for chat, one in new.items() if await self._contacts.contact(bot_id, chat) is None}
            found = len(new) if found is None else found
            if not new:
                return found
            await self._contacts.save_contacts(bot_id, list(new.values()), place=place)
            if await self._contacts.contacts_place(bot_id) == place:
                return found

    async def set_last_update(self, bot_id: int, last_update_id: int, *, is_received: bool) -> None:
        """The next poll asks for what comes after this update. Raises Conflict (`inbox_begun`) if Peik has a place of its own.

        `is_received`: somebody fetches this bot's updates now, and would not hear of it.
        """
        state = await self._inbox.inbox(bot_id)
        own = None if state is None else state.last_update_id
        if own == last_update_id:
            return
        if own is not None or (state is not None and state.last_number > 0) or is_received:
            detail = f"Peik receives the updates of bot {bot_id} already, and goes on from its own place."
            raise Conflict(code="inbox_begun", detail=detail)
        at_ms = self._clock.wall_ms()
        await self._inbox.open_inbox(bot_id, server=self._server, at_ms=at_ms)
        await self._inbox.take_in(bot_id, [], at_ms=at_ms, last_update_id=last_update_id)

    async def notes(self, bot_id: int) -> list[ImportNote]:
        documents = await self._documents.documents(f"{COLLECTION}:{bot_id}", limit=NOTES_MAX)
        return [msgspec.json.decode(document.body, type=ImportNote) for document in documents]

    async def keep_note(self, note: ImportNote) -> None:
        collection, key = f"{COLLECTION}:{note.bot_id}", _key(note)
        if (
            await self._documents.document(collection, key) is None
            and await self._documents.count_documents(collection) >= NOTES_MAX
        ):
            raise BadInput(code="too_many_imports", detail=f"Peik keeps notes of {NOTES_MAX} imports of a bot.")
        await self._documents.file([Filing(collection=collection, key=key, body=msgspec.json.encode(note).decode())])


def _key(note: ImportNote) -> str:
    """Names of files and tables are of any script; keys of documents are not."""
    return hashlib.sha256(f"{note.name}\0{note.table}".encode()).hexdigest()


# Builds the service of imports, for a node and for a command on the store alike.


def import_service_of(config: "Config", store: "AnyStore", *, clock: Clock) -> ImportService:
    from peik.inbox.wiring import numbering_of  # with the engines of the inbox: who asks over HTTP needs none

    return ImportService(
        documents=store.documents,
        contacts=store.contacts,
        inbox=store.inbox,
        clock=clock,
        server=numbering_of(config),
    )
