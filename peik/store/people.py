"""What people do to letters in the SQLite store: cancel, retry, resolve, clear; lanes and chats. Lists are in `looking`."""

from collections import defaultdict
from collections.abc import Sequence

import apsw
import msgspec

from peik.core.letter import Chat, LaneKey, Letter, State
from peik.core.lifecycle import UNCERTAIN, Move, Try
from peik.errors import Conflict, NotFound
from peik.ports import ChatRecord, LaneView, LetterFilter, LetterView, Stub
from peik.store import looking, reading
from peik.store.change_rules import must_be_open
from peik.store.commit import Batch
from peik.store.rows import PHASE_APART, PHASE_IN_LANE, PHASE_OF, TALLY_COLUMNS, letter_from_row
from peik.store.statements import Row, Value, load, run_many

_SQL = load("sqlite_people.sql")
_MAIN = load("sqlite.sql")


def cancel(batch: Batch, letter_id: int, at_ms: int) -> Stub:
    """Take a letter back. Raises Conflict if it is in flight or has ended."""
    view = known_view(batch, letter_id, at_ms)
    must_be_open(view)
    phase = phase_of(batch, letter_id)
    batch.connection.execute(_SQL["cancel"], {"id": letter_id, "at": at_ms})
    batch.count(view.bot_id, phase, PHASE_OF[State.CANCELLED])
    batch.free_blobs([(letter_id,)])
    batch.release([letter_id])
    return Stub(letter_id=letter_id, bot_id=view.bot_id, lane=(view.chat, view.thread))


def retry(batch: Batch, letter_id: int, at_ms: int) -> list[Letter]:
    """Send a dead letter again. Raises Conflict if it is not dead."""
    view = known_view(batch, letter_id, at_ms)
    if view.state is not State.FAILED:
        raise Conflict(code="not_dead", detail=f"Letter {letter_id} is {view.state}; only dead letters are sent again.")
    return _revive(batch, [(letter_id, view.bot_id)], at_ms)


def resolve(batch: Batch, letter_id: int, at_ms: int, *, arrived: bool) -> list[Letter]:
    """What a person saw of an uncertain letter: it arrived, or it is to be sent again."""
    view = known_view(batch, letter_id, at_ms)
    if view.state is not State.FAILED or view.failed_reason != UNCERTAIN:
        raise Conflict(
            code="not_uncertain", detail=f"Letter {letter_id} is not uncertain; there is nothing to resolve."
        )
    if not arrived:
        return _revive(batch, [(letter_id, view.bot_id)], at_ms)
    line = _line(at_ms, Move.RESOLVE, "somebody saw that it had arrived")
    batch.connection.execute(_SQL["resolve"], {"id": letter_id, "at": at_ms, "line": line})
    batch.count(view.bot_id, PHASE_OF[State.FAILED], PHASE_OF[State.COMPLETED])
    batch.free_blobs([(letter_id,)])
    return []


def retry_dead(batch: Batch, wanted: LetterFilter, at_ms: int, limit: int) -> list[Letter]:
    return _revive(batch, _dead(batch, wanted, at_ms, limit), at_ms)


def clear_dead(batch: Batch, wanted: LetterFilter, at_ms: int, limit: int) -> int:
    """Dead letters go into the message log, their files are freed."""
    found = _dead(batch, wanted, at_ms, limit)
    ids: list[Row] = [(letter_id,) for letter_id, _ in found]
    if ids:
        batch.free_blobs(ids)
        for name in ("log_letters", "drop_results", "drop_letters"):
            run_many(batch.connection, _MAIN[name], ids)
        for _, bot_id in found:
            batch.uncount(bot_id, TALLY_COLUMNS[PHASE_OF[State.FAILED]])
    return len(ids)


def _dead(batch: Batch, wanted: LetterFilter, at_ms: int, limit: int) -> list[tuple[int, int]]:
    where, bound = looking.where(wanted, at_ms)
    rows = batch.connection.execute(_SQL["find_dead"].replace("{where}", where), bound | {"limit": limit})
    return [(row[0], row[1]) for row in rows]


def _revive(batch: Batch, dead: Sequence[tuple[int, int]], at_ms: int) -> list[Letter]:
    per_bot: dict[int, list[int]] = defaultdict(list)
    for letter_id, bot_id in dead:
        per_bot[bot_id].append(letter_id)
    line = _line(at_ms, Move.RETRY, "sent again by hand")
    rows: list[Row] = []
    for bot_id, letter_ids in per_bot.items():
        count = len(letter_ids)
        ((_, after),) = run_many(batch.connection, _MAIN["number"], [(bot_id, count, 0, 0)])
        assert isinstance(after, int)
        rows.extend((letter_id, number, line) for number, letter_id in enumerate(letter_ids, start=after - count))
        batch.count(bot_id, PHASE_OF[State.FAILED], PHASE_IN_LANE, count)
    if not rows:
        return []
    run_many(batch.connection, _SQL["revive"], rows)
    revived = run_many(batch.connection, reading.LETTERS, [(row[0],) for row in rows])
    return [letter_from_row(row) for row in revived]


def lanes(connection: apsw.Connection, bot_id: int, chat: Chat | None, *, limit: int, most: int) -> list[LaneView]:
    bound = {"bot": bot_id, "chat": chat, "limit": limit, "most": most}
    rows = connection.execute(_SQL["lanes"], bound)
    return [LaneView(bot_id=bot_id, chat=row[0], thread=row[1], head=row[2], waiting=row[3]) for row in rows]


def head_of(connection: apsw.Connection, bot_id: int, lane: LaneKey) -> int | None:
    bound: dict[str, Value] = {"bot": bot_id, "chat": lane[0], "thread": lane[1]}
    return reading.number(connection, _SQL["ahead"], bound) or None


def known_chats(connection: apsw.Connection, bot_id: int, after: Chat | None, limit: int) -> list[ChatRecord]:
    rows = connection.execute(_SQL["known_chats"], {"bot": bot_id, "after": after, "limit": limit})
    return [
        ChatRecord(
            bot_id=bot_id, chat=row[0], same_as=row[1], shut_reason=row[2], shut_at_ms=row[3], held_until_ms=row[4]
        )
        for row in rows
    ]


def known_view(batch: Batch, letter_id: int, at_ms: int) -> LetterView:
    view = reading.view(batch.connection, letter_id, at_ms)
    if view is None:
        raise NotFound(code="unknown_letter", detail=f"There is no letter {letter_id} here (any more).")
    return view


def phase_of(batch: Batch, letter_id: int) -> int:
    for _, _, phase in run_many(batch.connection, _MAIN["phases"], [(letter_id,)]):
        assert isinstance(phase, int)
        return phase
    return PHASE_APART


def _line(at_ms: int, move: Move, words: str) -> str:
    return msgspec.json.encode(Try(at=at_ms, outcome=str(move), words=words)).decode()
