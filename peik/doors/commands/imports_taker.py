"""Peik as an import reaches it: over REST, or its store by the very functions that REST uses."""

import datetime
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from peik.clock import SystemClock
from peik.config import Config
from peik.doors.commands.counter import Counter, Document
from peik.errors import Problem

if TYPE_CHECKING:
    from peik.desk import Desk
    from peik.ports import BotRecord
    from peik.store.choosing import AnyStore

Ask = Callable[..., Document]
FILE_S = 300.0  # for a batch on a slow disk


class ImportTaker:
    """See `peik.importing.bringing.Taker`. `ask` is a call of REST: verb, path, query, body."""

    def __init__(self, counter: Counter, ask: Ask, bot_id: str) -> None:
        self._counter = counter
        self._ask = ask
        self._bot_id = bot_id

    def newest_id(self) -> int:
        found = self._counter.letters({}, cursor=None, limit=1)["letters"]
        assert isinstance(found, list)
        return int(found[0]["id"]) if found else 0

    def accept(self, letters: Sequence[Document]) -> list[int]:
        body = {"letters": [{**letter, "bot_id": self._bot_id} for letter in letters]}
        ids = self._ask("POST", "/v1/letters/batch", body=body, timeout_s=FILE_S)["ids"]
        assert isinstance(ids, list)
        return [int(one) for one in ids]

    def add_people(self, people: Sequence[Document]) -> int:
        body = {"bot_id": self._bot_id, "contacts": list(people)}
        new = self._ask("POST", "/v1/imports/contacts", body=body, timeout_s=FILE_S)["new"]
        assert isinstance(new, int)
        return new

    def set_last_update(self, last_update_id: int) -> str:
        body = {"bot_id": self._bot_id, "last_update_id": last_update_id}
        try:
            self._ask("POST", "/v1/imports/offset", body=body)
        except Problem as problem:  # of the store, or told by REST
            if problem.code != "inbox_begun":
                raise
            return problem.detail
        return f"Peik goes on behind update {last_update_id}: what the bot has handled is not handed on again."

    def note(self, name: str, table: str) -> Document | None:
        found = self._ask("GET", "/v1/imports", {"bot_id": self._bot_id})["imports"]
        assert isinstance(found, list)
        note = next((one for one in found if (one["name"], one["table"]) == (name, table)), None)
        if note is None:
            return None
        begun_at = datetime.datetime.fromisoformat(note["begun_at"])
        return {**note, "begun_at_ms": int(begun_at.timestamp() * 1000)}

    def keep_note(self, note: Document) -> None:
        begun_at_ms = note["begun_at_ms"]
        assert isinstance(begun_at_ms, int)
        body = {name: note[name] for name in ("name", "table", "place", "letters")}
        self._ask("PUT", "/v1/imports", body={**body, "bot_id": self._bot_id, "begun_at": begun_at_ms / 1000})


def asking_store(
    config: Config,
    *,
    store: "AnyStore",
    desk: "Desk",
    run: Callable[[Coroutine[object, object, Any]], Any],
    know_chats: "Callable[[BotRecord], Coroutine[object, object, None]]",
    is_running: bool,
) -> Ask:
    """The calls of REST that an import makes, answered by the store."""
    from peik.building_importing import import_desk_of
    from peik.doors.bodies import call_of, decode, decode_batch, parse_id
    from peik.doors.rest_imports import (
        ImportBody,
        LastUpdateBody,
        PeopleBody,
        contacts_of,
        last_update_of,
        note_of,
        note_view,
    )

    clock = SystemClock()
    imports = import_desk_of(config, store, clock=clock)

    def bot_of(asked: object) -> "BotRecord":
        return desk.bot(parse_id(str(asked), "bot_id"))

    async def accept(raw: bytes) -> Document:
        calls = [call_of(letter) for letter in decode_batch(raw).letters]
        await know_chats(desk.bot(calls[0].bot_id))
        return {"ids": [str(one.letter_id) for one in await desk.accept(calls)]}

    async def contacts(raw: bytes) -> Document:
        body = decode(PeopleBody, raw)
        bot_id = bot_of(body.bot_id).bot_id
        people = contacts_of(bot_id, body, now_ms=clock.wall_ms())
        new = await imports.add_contacts(bot_id, people)
        return {"new": new, "known": len(people) - new}

    async def offset(raw: bytes) -> Document:
        body = decode(LastUpdateBody, raw)
        bot = bot_of(body.bot_id)
        is_received = is_running and bot.inbound != "off"
        await imports.set_last_update(bot.bot_id, last_update_of(body), is_received=is_received)
        return {"bot_id": str(bot.bot_id), "last_update_id": body.last_update_id}

    async def keep(raw: bytes) -> Document:
        body = decode(ImportBody, raw)
        note = note_of(bot_of(body.bot_id).bot_id, body)
        await imports.keep_note(note)
        return note_view(note)

    works = {
        "/v1/letters/batch": accept,
        "/v1/imports/contacts": contacts,
        "/v1/imports/offset": offset,
        "/v1/imports": keep,
    }

    async def notes(bot_id: str) -> Document:
        return {"imports": [note_view(note) for note in await imports.notes(bot_of(bot_id).bot_id)]}

    def ask(
        verb: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: Document | None = None,
        timeout_s: float | None = None,
    ) -> Document:
        work = notes((query or {})["bot_id"]) if verb == "GET" else works[path](msgspec.json.encode(body))
        document: Document = run(work)
        return document

    return ask
