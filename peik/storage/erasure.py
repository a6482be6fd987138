"""Forgetting a person, and what is secret, as every SQL store does it."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from peik.core.arrival import FORGOTTEN_LANE
from peik.core.letter import Chat
from peik.erasure.model import ErasedPerson
from peik.erasure.store import Blank, KeptKey, LoggedLine, Traces
from peik.secrets.seals import KeptSecret, SealChange, is_secret
from peik.storage.rules import scrubbed_story
from peik.storage.sql import NamedQuery, SqlSession

T = TypeVar("T")

_DEAD = 3  # the phase of a story: nothing is done with it any more but to look at it


class SqlForgetting(ABC):
    """See `peik.erasure.store.Forgetting`. Made by the store when it is opened."""

    sql: ClassVar[Mapping[str, NamedQuery]]

    @abstractmethod
    async def _in_read(self, work: Callable[[SqlSession], Awaitable[T]]) -> T: ...

    @abstractmethod
    async def _in_commit(self, work: Callable[[SqlSession], Awaitable[T]], *, inboxes: Iterable[int] = ()) -> T:
        """Run something in the next commit, with these inboxes locked."""

    def _lane(self, chat: Chat) -> Any:
        """As a column keeps it."""
        return chat

    def _chat(self, lane: Any) -> Chat | None:
        return lane  # type: ignore[no-any-return]

    # ---- letters ----

    async def logged(self, cursor: str | None, limit: int) -> tuple[list[LoggedLine], str | None]:
        after = int(cursor or 0)
        rows = await self._in_read(lambda one: one.rows(self.sql["logged"], after=after, limit=limit))
        lines = [
            LoggedLine(id=row[0], bot_id=row[1], chat=self._chat(row[2]), user_id=row[3], error=row[4], text=row[5])
            for row in rows
        ]
        return lines, str(lines[-1].id) if len(lines) == limit else None

    async def drop_logged(self, ids: Sequence[int]) -> int:
        return await self._in_commit(lambda one: one.run(self.sql["drop_logged"], ids=list(ids)))

    async def kept_keys(self, cursor: str | None, limit: int) -> tuple[list[KeptKey], str | None]:
        bot, key = (-(2**63), "") if cursor is None else msgspec.json.decode(cursor, type=tuple[int, str])
        rows = await self._in_read(lambda one: one.rows(self.sql["kept_keys"], bot=bot, key=key, limit=limit))
        keys = [KeptKey(bot_id=row[0], key=row[1]) for row in rows]
        return keys, msgspec.json.encode((keys[-1].bot_id, keys[-1].key)).decode() if len(keys) == limit else None

    async def drop_keys(self, keys: Sequence[KeptKey]) -> int:
        rows = [(one.bot_id, one.key) for one in keys]
        return await self._in_commit(lambda one: one.write_many(self.sql["drop_keys"], rows))

    # ---- arrivals ----

    async def blank_arrivals(self, blanks: Sequence[Blank], *, person: ErasedPerson) -> int:
        ids = [one.arrival_id for one in blanks]
        bots = await self._in_read(lambda one: one.rows(self.sql["bots_of_arrivals"], ids=ids))

        async def work(one: SqlSession) -> int:
            return sum([await self._blank(one, blank, person) for blank in blanks])

        return await self._in_commit(work, inboxes=[row[0] for row in bots])

    async def _blank(self, one: SqlSession, blank: Blank, person: ErasedPerson) -> int:
        rows = await one.rows(self.sql["arrival"], id=blank.arrival_id)
        if not rows:
            return 0
        bot_id, number, only_for = rows[0]
        query = self.sql["blank_theirs" if blank.is_theirs else "blank_named"]
        await one.run(query, id=blank.arrival_id, payload=blank.payload, lane=self._lane(FORGOTTEN_LANE))
        stories = await one.rows(self.sql["stories"], bot=bot_id, number=number, only_for=only_for)
        for consumer, phase, reason, history in stories:
            story = {"consumer": consumer, "number": number}
            if blank.is_theirs and phase == _DEAD:
                await one.run(self.sql["drop_story"], **story)
            else:
                reason, history = scrubbed_story(person, reason, history, is_theirs=blank.is_theirs)
                await one.run(self.sql["blank_story"], **story, reason=reason, history=history)
        return 1

    # ---- what a bot knows of a chat ----

    async def traces(self, bot_id: int, chat_id: int) -> Traces:
        bound = self._of_chat(bot_id, chat_id)

        async def work(one: SqlSession) -> Traces:
            names = Traces.__struct_fields__
            return Traces(**{name: await one.number(self.sql[f"count_{name}"], **bound) for name in names})

        return await self._in_read(work)

    def _of_chat(self, bot_id: int, chat_id: int) -> dict[str, Any]:
        return {"bot": bot_id, "chat": chat_id, "keys": [self._lane(chat_id), self._lane(f"user:{chat_id}")]}


async def kept_secrets(one: SqlSession, sql: Mapping[str, NamedQuery]) -> list[KeptSecret]:
    """What is secret, as it is stored, with the place that it belongs to."""
    rows = [tuple(row) for row in await one.rows(sql["kept"])]
    return [KeptSecret(place=place, text=text) for place, text in rows if is_secret(text)]


async def change_secrets(one: SqlSession, sql: Mapping[str, NamedQuery], changes: Sequence[SealChange]) -> int:
    """How many were still as they had been read."""
    return sum([await _change(one, sql, change) for change in changes])


async def _change(one: SqlSession, sql: Mapping[str, NamedQuery], change: SealChange) -> int:
    kind, _, name = change.place.partition(":")
    if kind == "secret" and change.before is None:
        return await one.run(sql["make_secret"], name=name, after=change.after)
    if kind == "secret" and change.after is None:
        return await one.run(sql["drop_secret"], name=name, before=change.before)
    bound: dict[str, object]
    match kind:
        case "bot":
            bound = {"bot": int(name)}
        case "key":
            bound = {"digest": bytes.fromhex(name)}
        case "consumer":
            bot_id, _, whose = name.partition("@")
            bound = {"bot": int(bot_id), "name": whose}
        case _:
            bound = {"name": name}
    return await one.run(sql[f"change_{kind}"], before=change.before, after=change.after, **bound)
