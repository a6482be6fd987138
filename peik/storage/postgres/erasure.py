"""Forgetting a person in the PostgreSQL store. Removed rows are vacuumed away at the end; their pages are the server's."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.core.arrival import FORGOTTEN_LANE
from peik.core.letter import State
from peik.erasure.model import ErasedPerson
from peik.erasure.store import Blank, KeptKey, LoggedLine, Traces
from peik.secrets.seals import KeptSecret, SealChange, is_secret
from peik.storage.postgres import queries, session
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.documents import DocumentWriter
from peik.storage.postgres.errors import is_refusal, translate
from peik.storage.postgres.jobs import JobLedger, PostgresJobs
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresSession
from peik.storage.postgres.writer import PostgresWays
from peik.storage.rules import scrubbed_story
from peik.storage.sqlite.rows import TALLY_COLUMNS

T = TypeVar("T")

_SQL = load("forgetting.sql")
_DEAD = 3  # the phase of a story: nothing is done with it any more but to look at it
_VACUUM_S = 900.0  # it keeps nobody waiting; but a server may hang
_EMPTIED = (
    "letters", "results", "hooks", "idempotency", "message_log", "arrivals", "deliveries", "contacts", "chats", "handled",
    "jobs", "job_days", "papers",
)  # fmt: skip
REMAINS = (
    "PostgreSQL was asked to vacuum: removed rows cannot be read by any query, but their bytes stay in free space of its pages, "
    "in its write-ahead log and on its replicas until these are used anew."
)


class PostgresForgetting:
    """See `peik.erasure.store.Forgetting`. Made by the store when it is opened."""

    def __init__(
        self,
        ways: PostgresWays,
        *,
        papers: DocumentWriter,
        jobs: PostgresJobs,
        connect: Callable[[], Awaitable[PostgresSession]],
    ) -> None:
        self._write, self._read = ways.write, ways.read
        self._papers = papers
        self._jobs = jobs
        self._connect = connect

    # ---- letters ----

    async def drop_letters(self, letter_ids: Sequence[int]) -> int:
        return await self._write(lambda batch: _drop_letters(batch, list(letter_ids)))

    async def logged(self, cursor: str | None, limit: int) -> tuple[list[LoggedLine], str | None]:
        rows = await self._read(lambda one: one.rows(_SQL["logged"], after=int(cursor or 0), limit=limit))
        lines = [
            LoggedLine(
                id=row[0],
                bot_id=row[1],
                chat=None if row[2] is None else queries.decode(row[2]),
                user_id=row[3],
                error=row[4],
            )
            for row in rows
        ]
        return lines, str(lines[-1].id) if len(lines) == limit else None

    async def drop_logged(self, ids: Sequence[int]) -> int:
        return await self._write(lambda batch: batch.session.run(_SQL["drop_logged"], ids=list(ids)))

    async def kept_keys(self, cursor: str | None, limit: int) -> tuple[list[KeptKey], str | None]:
        bot, key = (-(2**63), "") if cursor is None else msgspec.json.decode(cursor, type=tuple[int, str])
        rows = await self._read(lambda one: one.rows(_SQL["kept_keys"], bot=bot, key=key, limit=limit))
        keys = [KeptKey(bot_id=row[0], key=row[1]) for row in rows]
        return keys, msgspec.json.encode((keys[-1].bot_id, keys[-1].key)).decode() if len(keys) == limit else None

    async def drop_keys(self, keys: Sequence[KeptKey]) -> int:
        bots, names = [one.bot_id for one in keys], [one.key for one in keys]
        return await self._write(lambda batch: batch.session.run(_SQL["drop_keys"], bots=bots, keys=names))

    # ---- arrivals ----

    async def blank_arrivals(self, blanks: Sequence[Blank], *, person: ErasedPerson) -> int:
        ids = [one.arrival_id for one in blanks]
        bots = [row[0] for row in await self._read(lambda one: one.rows(_SQL["bots_of_arrivals"], ids=ids))]

        async def work(batch: PostgresBatch) -> int:
            return sum([await _blank(batch.session, one, person) for one in blanks])

        return await self._write(work, inboxes=bots)

    # ---- what a bot knows of a chat ----

    async def traces(self, bot_id: int, chat_id: int) -> Traces:
        bound = _of_chat(bot_id, chat_id)

        async def work(reader: PostgresSession) -> Traces:
            count = {name: await reader.number(_SQL[f"count_{name}"], **bound) for name in Traces.__struct_fields__}
            return Traces(**count)

        return await self._read(work)

    async def drop_traces(self, bot_id: int, chat_id: int) -> Traces:
        bound = _of_chat(bot_id, chat_id)

        async def work(batch: PostgresBatch) -> tuple[int, int]:
            known = await batch.session.run(_SQL["drop_chats"], **bound)
            if known:
                batch.telling.chats(bot_id)
            return known, await batch.session.run(_SQL["drop_handled"], **bound)

        contacts = await self._papers.run(lambda one: one.run(_SQL["drop_contacts"], **bound), bots=[bot_id])
        known, handled = await self._write(work)
        return Traces(contacts=contacts, chats=known, handled=handled)

    # ---- jobs ----

    async def drop_jobs(self, job_ids: Sequence[int]) -> int:
        async def work(batch: PostgresBatch) -> int:
            ledger = JobLedger(batch.session)
            gone = await batch.session.returned(_SQL["drop_jobs"], jobs=list(job_ids))
            for kind, state in gone:
                ledger.move(kind, State(state), None)
            await ledger.write()
            return len(gone)

        return await self._jobs.write(work, jobs=job_ids, weight=len(job_ids))

    async def drop_job_days(self, users: Sequence[str], *, is_dry: bool) -> int:
        bound = {"users": list(users)}
        count = await self._read(lambda one: one.number(_SQL["count_job_days"], **bound))
        if count and not is_dry:
            kinds = [row[0] for row in await self._read(lambda one: one.rows(_SQL["kinds_of_days"], **bound))]
            await self._jobs.write(lambda batch: batch.session.run(_SQL["drop_job_days"], **bound), kinds=kinds)
        return count

    # ---- the files ----

    async def overwrite(self, *, is_on: bool) -> None:
        """PostgreSQL has no such thing."""

    async def wipe(self, *, is_alone: bool) -> list[str]:
        one = await self._connect()
        try:
            # One after the other: a table that somebody keeps locked does not keep the others from it.
            for table in _EMPTIED:
                try:
                    await one.connection.execute(f"VACUUM {table}", timeout=_VACUUM_S)
                except (asyncpg.PostgresError, TimeoutError) as error:
                    why = type(error).__name__
                    return [f"PostgreSQL did not vacuum {table} ({why}): do it, or leave it to autovacuum.", REMAINS]
        finally:
            await session.end(one)
        return [REMAINS]


def _of_chat(bot_id: int, chat_id: int) -> dict[str, Any]:
    return {"bot": bot_id, "chat": chat_id, "keys": [queries.encode(chat_id), queries.encode(f"user:{chat_id}")]}


async def _drop_letters(batch: PostgresBatch, letter_ids: list[int]) -> int:
    one = batch.session
    await batch.lock([row[0] for row in await one.rows(_SQL["bots_of"], letters=letter_ids)])
    ended = await one.rows(_SQL["ended_letters"], letters=letter_ids)
    ids = [row["id"] for row in ended]
    if not ids:
        return 0
    for name in ("drop_results", "drop_hooks", "drop_keys_of_letters", "drop_letters"):
        await one.run(_SQL[name], letters=ids)
    files: list[tuple[int, str]] = []
    for row in ended:
        batch.uncount(row["bot_id"], TALLY_COLUMNS[row["phase"]])
        enclosed = msgspec.json.decode(row["enclosed"]) if row["enclosed"] else []
        batch.blobs_freed.extend(file["blob"] for file in enclosed)
        files += [(row["bot_id"], file["digest"]) for file in enclosed]
    if files:
        bots, digests = [bot for bot, _ in files], [digest for _, digest in files]
        await one.run(_SQL["drop_file_ids"], bots=bots, digests=digests)
    return len(ids)


async def _blank(one: PostgresSession, blank: Blank, person: ErasedPerson) -> int:
    row = await one.row(_SQL["arrival"], id=blank.arrival_id)
    if row is None:
        return 0
    bot_id, number, only_for = row
    query = _SQL["blank_theirs" if blank.is_theirs else "blank_named"]
    await one.run(query, id=blank.arrival_id, payload=blank.payload, lane=queries.encode(FORGOTTEN_LANE))
    for consumer, phase, reason, history in await one.rows(
        _SQL["stories"], bot=bot_id, number=number, only_for=only_for
    ):
        if blank.is_theirs and phase == _DEAD:
            await one.run(_SQL["drop_story"], consumer=consumer, number=number)
        else:
            reason, history = scrubbed_story(person, reason, history, is_theirs=blank.is_theirs)
            await one.run(_SQL["blank_story"], consumer=consumer, number=number, reason=reason, history=history)
    return 1


# What is secret in the PostgreSQL store, as it is stored: read, replaced, and its tables written anew.


_SEALED_SQL = load("sealed.sql")


class PostgresSealed:
    """See `peik.secrets.seals.SealStore`."""

    def __init__(self, ways: PostgresWays, *, connect: Callable[[], Awaitable[PostgresSession]]) -> None:
        self._write = ways.write
        self._connect = connect

    async def kept(self) -> list[KeptSecret]:
        async def read(batch: PostgresBatch) -> list[KeptSecret]:
            rows = [tuple(row) for row in await batch.session.rows(_SEALED_SQL["kept"])]
            return [KeptSecret(place=place, text=text) for place, text in rows if is_secret(text)]

        return await self._write(read)  # by the writer, so that nothing that was stored before is missing

    async def change(self, changes: Sequence[SealChange]) -> int:
        async def work(batch: PostgresBatch) -> int:
            return sum([await _change(batch.session, one) for one in changes])

        return await self._write(work)

    async def is_ours(self) -> bool:
        return True

    async def scrub(self, traces: Sequence[str], *, may_rewrite: bool) -> str | None:
        """The tables are small, and are locked for as long as it takes to write them anew. The server's own log, its replicas
        and its backups are not ours to change."""
        if not may_rewrite:
            return (
                "Old rows are left in the tables until the server reuses their room; the next start writes them anew."
            )
        one = await self._connect()
        try:
            for name in ("rewrite_bots", "rewrite_keys", "rewrite_consumers", "rewrite_secrets"):
                await one.connection.execute(_SEALED_SQL[name].text)
        except Exception as error:
            if not is_refusal(error):
                raise
            return f"The tables could not be written anew, and old rows may be left in them: {translate(error)}"
        finally:
            await session.end(one)
        return None


async def _change(one: PostgresSession, change: SealChange) -> int:
    kind, _, name = change.place.partition(":")
    if kind == "secret" and change.before is None:
        return await one.run(_SEALED_SQL["make_secret"], name=name, after=change.after)
    if kind == "secret" and change.after is None:
        return await one.run(_SEALED_SQL["drop_secret"], name=name, before=change.before)
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
    return await one.run(_SEALED_SQL[f"change_{kind}"], before=change.before, after=change.after, **bound)
