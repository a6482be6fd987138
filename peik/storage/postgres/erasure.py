"""Forgetting a person in the PostgreSQL store. Removed rows are vacuumed away at the end; their pages are the server's."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.core.letter import Chat, State
from peik.erasure.store import Traces
from peik.secrets.seals import KeptSecret, SealChange
from peik.storage.erasure import SqlForgetting, change_secrets, kept_secrets
from peik.storage.postgres import queries, session
from peik.storage.postgres.commit import PostgresBatch
from peik.storage.postgres.documents import DocumentWriter
from peik.storage.postgres.errors import is_refusal, translate
from peik.storage.postgres.jobs import JobLedger, PostgresJobs
from peik.storage.postgres.queries import load
from peik.storage.postgres.session import PostgresSession
from peik.storage.postgres.writer import PostgresWays
from peik.storage.sql import SqlSession
from peik.storage.sqlite.rows import TALLY_COLUMNS

T = TypeVar("T")

_SQL = load("forgetting.sql")
_VACUUM_S = 900.0  # it keeps nobody waiting; but a server may hang
_EMPTIED = (
    "letters", "results", "hooks", "idempotency", "message_log", "arrivals", "deliveries", "contacts", "chats", "handled",
    "jobs", "job_days", "papers",
)  # fmt: skip
REMAINS = (
    "PostgreSQL was asked to vacuum: removed rows cannot be read by any query, but their bytes stay in free space of its pages, "
    "in its write-ahead log and on its replicas until these are used again."
)


class PostgresForgetting(SqlForgetting):
    """See `peik.erasure.store.Forgetting`. Made by the store when it is opened."""

    sql = _SQL

    def __init__(
        self,
        ways: PostgresWays,
        *,
        documents: DocumentWriter,
        jobs: PostgresJobs,
        connect: Callable[[], Awaitable[PostgresSession]],
    ) -> None:
        self._write, self._read = ways.write, ways.read
        self._documents = documents
        self._jobs = jobs
        self._connect = connect

    async def _in_read(self, work: Callable[[SqlSession], Awaitable[T]]) -> T:
        return await self._read(work)

    async def _in_commit(self, work: Callable[[SqlSession], Awaitable[T]], *, inboxes: Iterable[int] = ()) -> T:
        return await self._write(lambda batch: work(batch.session), inboxes=inboxes)

    _lane = staticmethod(queries.encode)

    def _chat(self, lane: Any) -> Chat | None:
        return None if lane is None else queries.decode(lane)

    # ---- letters ----

    async def drop_letters(self, letter_ids: Sequence[int]) -> int:
        return await self._write(lambda batch: _drop_letters(batch, list(letter_ids)))

    async def drop_traces(self, bot_id: int, chat_id: int) -> Traces:
        bound = self._of_chat(bot_id, chat_id)

        async def work(batch: PostgresBatch) -> tuple[int, int]:
            known = await batch.session.run(_SQL["drop_chats"], **bound)
            if known:
                batch.telling.chats.add(bot_id)
            return known, await batch.session.run(_SQL["drop_handled"], **bound)

        contacts = await self._documents.run(lambda one: one.run(_SQL["drop_contacts"], **bound), bots=[bot_id])
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


# What is secret in the PostgreSQL store, as it is stored: read, replaced, and its tables written again.


_SEALED_SQL = load("sealed.sql")


class PostgresSealed:
    """See `peik.secrets.seals.SealStore`."""

    def __init__(self, ways: PostgresWays, *, connect: Callable[[], Awaitable[PostgresSession]]) -> None:
        self._write = ways.write
        self._connect = connect

    async def kept(self) -> list[KeptSecret]:
        # By the writer, so that nothing that was stored before is missing.
        return await self._write(lambda batch: kept_secrets(batch.session, _SEALED_SQL))

    async def change(self, changes: Sequence[SealChange]) -> int:
        return await self._write(lambda batch: change_secrets(batch.session, _SEALED_SQL, changes))

    async def is_ours(self) -> bool:
        return True

    async def scrub(self, traces: Sequence[str], *, may_rewrite: bool) -> str | None:
        """The tables are small, and are locked for as long as it takes to write them again. The server's own log, its replicas
        and its backups are not ours to change."""
        if not may_rewrite:
            return "Old rows are left in the tables until the server reuses their room; the next start rewrites them."
        one = await self._connect()
        try:
            for name in ("rewrite_bots", "rewrite_keys", "rewrite_consumers", "rewrite_secrets"):
                await one.connection.execute(_SEALED_SQL[name].text)
        except Exception as error:
            if not is_refusal(error):
                raise
            return f"The tables could not be rewritten, and old rows may be left in them: {translate(error)}"
        finally:
            await session.end(one)
        return None
