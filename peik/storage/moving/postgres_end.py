"""The end of a move that is a schema of a PostgreSQL database."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg  # type: ignore[import-untyped,unused-ignore]
import msgspec

from peik.contacts.model import words_of
from peik.core.letter import Enclosed, State
from peik.errors import Conflict, NotFound, StartError
from peik.storage.moving import ends as progresses
from peik.storage.moving.ends import MoveProgress, RecordPage, after, cursor_of, fit_dates, load, without_nul
from peik.storage.moving.records import (
    KINDS,
    NUMBERED,
    ApiKey,
    KnownChat,
    MovedArrival,
    MovedLetter,
    MovedLogLine,
    MovedReader,
    Record,
    StoredContact,
    StoredJob,
    WaitingHook,
)
from peik.storage.moving.records import Sequence as LastId
from peik.storage.postgres import errors as failures
from peik.storage.postgres import queries, session
from peik.storage.postgres.nodes import PostgresFiles
from peik.storage.postgres.session import PostgresSession, read_address
from peik.storage.sqlite.jobs import COLUMNS

T = TypeVar("T")

_SQL = {
    name: body.replace("{sequence}", load("postgres.sql")["sequence"]) for name, body in load("postgres.sql").items()
}
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_OUTCOME = "What was moved before is kept: start again to go on."
_CONNECT_S = 5.0
_ANSWER_S = 600.0  # counting the rows of a large table takes its time

_spans = msgspec.json.Decoder(tuple[tuple[int, int], ...]).decode
_enclosed = msgspec.json.Decoder(tuple[Enclosed, ...]).decode


class PostgresEnd:
    """See `MoveEnd`. An origin is read as it stood at one moment."""

    def __init__(self, url: str) -> None:
        self._address = read_address(url)
        self._connection: Any = None
        self._beside: Any = None  # files: an origin's snapshot must not keep what was removed since
        self.shown = self._address.shown
        self.files = PostgresFiles(self._ask_files)

    async def open(self, *, is_target: bool) -> None:
        try:
            self._connection = await self._connect()
            self._beside = await self._connect()
        except (asyncpg.PostgresError, OSError) as error:  # an attempt that took too long is an OSError, too
            raise StartError(f"Cannot open {self.shown}: {failures.at_start(error)}") from error
        if is_target or await self._connection.fetchval(_SQL["is_store"]):
            await session.migrate(PostgresSession(self._connection), self._address)
        else:
            raise NotFound(code="no_store", detail=f"There is no store of Peik's at {self.shown}. Look at --from.")
        if not is_target:
            await self._connection.execute(_SNAPSHOT)

    async def look_again(self) -> None:
        if self._connection.is_in_transaction():
            await self._connection.execute("COMMIT")
            await self._connection.execute(_SNAPSHOT)

    async def _connect(self) -> Any:
        return await asyncpg.connect(
            self._address.url,
            timeout=_CONNECT_S,
            command_timeout=_ANSWER_S,
            server_settings={
                "application_name": "peik migrate",
                "search_path": self._address.schema,
                "synchronous_commit": "on",
                "idle_in_transaction_session_timeout": "0",
                "jit": "off",
            },
        )

    async def close(self) -> None:
        for connection in (self._connection, self._beside):
            if connection is not None:
                connection.terminate()

    async def used_by(self) -> str | None:
        name = await self._beside.fetchval(_SQL["used_by"])
        return None if name is None else f"{self.shown} is in use: the node {name} runs on it"

    async def lives(self) -> int:
        return int(await self._beside.fetchval(_SQL["lives"]))

    async def counts(self) -> dict[str, int]:
        found = {kind: await self._connection.fetchval(_counting(kind)) for kind in KINDS if kind != "sequences"}
        return {**found, "sequences": len((await self.page("sequences", None, 100)).records)}

    async def page(self, kind: str, cursor: str | None, limit: int) -> RecordPage:
        bound: list[object] = [*after(kind, cursor), limit]
        if kind == "chats":
            bound[1] = "" if cursor is None else queries.encode(bound[1])  # type: ignore[arg-type]
        elif kind == "sequences":
            bound.append(NUMBERED)
        rows = await self._connection.fetch(_SQL[f"read_{kind}"], *bound)
        records = [_record(kind, tuple(row)) for row in rows]
        return RecordPage(records, cursor_of(records[-1]) if len(records) == limit else None)

    async def job_states(self) -> dict[str, int]:
        return {row[0]: row[1] for row in await self._connection.fetch(_SQL["job_states"])}

    async def blobs(self) -> list[str]:
        rows = await self._connection.fetch(_SQL["blobs"])
        return sorted({file.blob for (text,) in rows for file in _enclosed(text)})

    async def progress(self) -> MoveProgress | None:
        if not await self._connection.fetchval(_SQL["has_marker"]):
            return None
        found = await self._connection.fetchval(_SQL["progress"])
        return None if found is None else progresses.decode(found)

    async def moved_to(self) -> str | None:
        if not await self._beside.fetchval(_SQL["has_moved"]):
            return None
        found = await self._beside.fetchval(_SQL["moved_to"])
        return None if found is None else str(found)

    async def note_moved(self, target: str | None) -> None:
        async with self._beside.transaction():
            await self._beside.execute(_SQL["take_back"])
            if target is not None:
                await self._beside.execute(_SQL["make_moved"])
                await self._beside.execute(_SQL["keep_moved"], target)

    async def begin(self, progress: MoveProgress) -> None:
        async with self._connection.transaction():
            await self._connection.execute(_SQL["make_marker"])
            await self._connection.execute(_SQL["keep_progress"], progresses.encode(progress))

    async def write(self, kind: str, records: Sequence[Record], progress: MoveProgress) -> None:
        async with self._connection.transaction():
            before = await self._connection.fetchval(_SQL["progress_held"])
            if before is None or progresses.decode(before).run != progress.run:
                raise Conflict(code="replaced", detail="Another `peik migrate` has taken this move over.")
            if kind == "sequences":
                for one in records:
                    assert isinstance(one, LastId)
                    await self._connection.execute(_SQL["write_sequence"], one.name, one.last)
            elif kind in _INSERTED and records:
                columns = zip(*map(msgspec.structs.astuple, records), strict=True)
                await self._connection.execute(_SQL[f"write_{kind}"], *columns)
            elif records:
                await self._copy(kind, records)
            await self._connection.execute(_SQL["keep_progress"], progresses.encode(progress))
            if progress.ended_at_ms is not None:
                await self._analyze(*_COLUMNS, "job_lines")
            elif kind in _ASKED and progress.of(kind).is_done:
                await self._analyze(kind)

    async def _analyze(self, *tables: str) -> None:
        await self._connection.execute(_SQL["analyze"].replace("{tables}", ", ".join(tables)))

    async def _copy(self, kind: str, records: Sequence[Record]) -> None:
        every: Any = records
        await self._copy_rows(kind, _COLUMNS[kind], [_row(record) for record in records])
        if kind == "letters":
            results = [(one.id, one.result) for one in every if one.result is not None]
            marks = [(one.id, one.bot_id, 0, one.marked_at, 0) for one in every if one.marked_at is not None]
            await self._copy_rows("results", ("letter_id", "result"), results)
            # Under nobody's epoch: the next holder of the lease finds them as those of one who died.
            await self._copy_rows("marks", ("letter_id", "bot_id", "epoch", "marked_at", "step"), marks)
        elif kind == "consumers":
            spans = [(one.id, *span) for one in every for span in one.spans]
            await self._copy_rows("spans", ("consumer_id", "first", "last"), spans)
        elif kind == "jobs":
            await self._connection.execute(_SQL["count_jobs_in"], *_job_counts(every))
        elif kind == "bots":
            await self._connection.execute(_SQL["fill_tallies"])

    async def _copy_rows(self, table: str, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
        if rows:
            await self._connection.copy_records_to_table(table, records=rows, columns=columns)

    def fit(self, record: Record) -> Record:
        return without_nul(fit_dates(record))

    def explain(self, error: BaseException) -> BaseException:
        theirs = (asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError, TimeoutError)
        return failures.translate(error, outcome=_OUTCOME) if isinstance(error, theirs) else error

    async def _ask_files(self, work: Callable[[PostgresSession], Awaitable[T]]) -> T:
        return await work(PostgresSession(self._beside))


def _counting(kind: str) -> str:
    return _SQL.get(f"count_{kind}") or _SQL["count"].replace("{table}", kind)


# ---- rows ----

_HOOK = MovedLetter.__struct_fields__.index("hook")
_CHAT_OF: dict[type[Record], int] = {MovedLetter: 5, KnownChat: 1, MovedLogLine: 2, MovedArrival: 6}
_COLUMN_OF = {
    ("idempotency", "name"): "key",
    ("message_log", "chat"): "chat_id",
    ("papers", "paper_key"): "key",
}
_ASKED = frozenset({"jobs", "job_lines"})  # what is looked into while the move is still under way
_INSERTED = frozenset({"job_lines", "job_means"})  # what has to be counted, or stands in a row that is there


def _columns(kind: str) -> tuple[str, ...]:
    names = [_COLUMN_OF.get((kind, field), field) for field in KINDS[kind].__struct_fields__]
    if kind == "letters":
        names = [*names[:_HOOK], "hook_key", "hook_url"]
    elif kind == "hooks":
        names[2:3] = ["hook_key", "hook_url"]
    elif kind == "keys":
        names.append("generation")
    elif kind == "consumers":
        names.remove("spans")
    elif kind == "contacts":
        names.append("words")
    elif kind == "jobs":
        names[:1] = COLUMNS
    return tuple(names)


_COLUMNS = {kind: _columns(kind) for kind in KINDS if kind != "sequences" and kind not in _INSERTED}


def _row(record: Record) -> tuple[object, ...]:
    row: list[Any] = list(record.cells())
    place = _CHAT_OF.get(type(record))
    if place is not None and row[place] is not None:
        row[place] = queries.encode(row[place])
    match record:
        case MovedLetter():
            row[_HOOK:] = _split(record.hook)
        case WaitingHook():
            row[2:3] = _split(record.hook)
        case ApiKey():
            row.append(record.id)  # a bell for nodes that run; it has to be different for each, and to rise from here
        case MovedReader():
            row.pop()
        case StoredContact():
            row.append(words_of(record.name, record.username))
    return tuple(row)


def _job_counts(jobs: Sequence[StoredJob]) -> list[list[str] | list[int]]:
    """Kinds, and of each how many are in each state: column by column."""
    counts: dict[str, Counter[State]] = defaultdict(Counter)
    for one in jobs:
        counts[one.job.kind][one.job.state] += 1
    return [list(counts), *([count[state] for count in counts.values()] for state in State)]


def _split(hook: int | str | None) -> tuple[int | None, str | None]:
    return (hook, None) if isinstance(hook, int) else (None, hook)


def _record(kind: str, row: tuple[Any, ...]) -> Record:
    made = KINDS[kind]
    cells = list(row)
    if kind == "letters":
        cells[_HOOK : _HOOK + 2] = [cells[_HOOK + 1] if cells[_HOOK] is None else cells[_HOOK]]
    elif kind == "hooks":
        cells[2:4] = [cells[3] if cells[2] is None else cells[2]]
    elif kind == "consumers":
        cells[-1] = _spans(cells[-1])
    place = _CHAT_OF.get(made)
    if place is not None and cells[place] is not None:
        cells[place] = queries.decode(cells[place])
    return made.of(cells)
