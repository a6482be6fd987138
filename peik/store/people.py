"""What people ask of letters in the SQLite store: find, cancel, retry, resolve, clear. Functions on a batch or a connection."""

from collections import defaultdict
from collections.abc import Sequence

import apsw
import msgspec

from peik.core.letter import Chat, LaneKey, Letter, State
from peik.core.lifecycle import UNCERTAIN, Move, Try
from peik.errors import Conflict, NotFound
from peik.ports import ChatRecord, LaneView, LetterFilter, LetterView, Stub
from peik.store import reading
from peik.store.commit import Batch
from peik.store.rows import PHASE_APART, PHASE_IN_LANE, PHASE_OF, TALLY_COLUMNS, letter_from_row, view_from_row
from peik.store.statements import Row, Value, load, run_many

_SQL = load("sqlite_people.sql")
_MAIN = load("sqlite.sql")

_STATE_SQL = {
    State.WAITING: "l.phase = 0 AND m.letter_id IS NULL AND (l.due_at IS NULL OR l.due_at <= :now)",
    State.DELAYED: "m.letter_id IS NULL AND (l.phase = 1 OR (l.phase = 0 AND l.due_at > :now))",
    State.ACTIVE: "m.letter_id IS NOT NULL",
    State.COMPLETED: "l.phase = 2",
    State.FAILED: "l.phase = 3",
    State.CANCELLED: "l.phase = 4",
}


def _where(wanted: LetterFilter, at_ms: int) -> tuple[str, dict[str, Value]]:
    """The conditions of a filter and what is bound to them."""
    terms = ["1"]
    bound: dict[str, Value] = {"now": at_ms}
    if wanted.state is not None:
        terms.append(f"({_STATE_SQL[wanted.state]})")
    plain: tuple[tuple[str, Value, str], ...] = (
        ("bot_id", wanted.bot_id, "l.bot_id = :bot_id"),
        ("chat", wanted.chat, "l.chat = :chat"),
        ("user_id", wanted.user_id, "l.user_id = :user_id"),
        ("message_type", wanted.message_type, "l.message_type = :message_type"),
        ("method", wanted.method, "l.method = :method"),
        ("since", wanted.since_ms, "l.created_at >= :since"),
        ("text", wanted.text, "instr(lower(l.params), lower(:text)) > 0"),
        ("error", wanted.error, "instr(lower(l.failed_reason), lower(:error)) > 0"),
    )
    for name, value, term in plain:
        if value is not None:
            terms.append(term)
            bound[name] = value
    if wanted.bot_ids is not None:
        terms.append("l.bot_id IN (SELECT value FROM json_each(:bot_ids))")
        bound["bot_ids"] = msgspec.json.encode(sorted(wanted.bot_ids)).decode()
    return " AND ".join(terms), bound


def find(
    connection: apsw.Connection, wanted: LetterFilter, *, before: int | None, limit: int, at_ms: int
) -> list[LetterView]:
    where, bound = _where(wanted, at_ms)
    if before is not None:
        where += " AND l.id < :before"
        bound["before"] = before
    rows = connection.execute(_SQL["find"].replace("{where}", where), bound | {"limit": limit})
    return [view_from_row(row, at_ms=at_ms) for row in rows]


def cancel(batch: Batch, letter_id: int, at_ms: int) -> Stub:
    """Take a letter back. Raises Conflict if it is in flight or has ended."""
    view = _view(batch, letter_id, at_ms)
    if view.state is State.ACTIVE:
        raise Conflict(code="in_flight", detail=f"Letter {letter_id} is being sent right now; it cannot be taken back.")
    if view.state.is_final:
        raise Conflict(code="already_ended", detail=f"Letter {letter_id} has ended already: it is {view.state}.")
    phase = _phase(batch, letter_id)
    batch.connection.execute(_SQL["cancel"], {"id": letter_id, "at": at_ms})
    batch.count(view.bot_id, phase, PHASE_OF[State.CANCELLED])
    batch.free_blobs([(letter_id,)])
    batch.release_dependents([letter_id])
    return Stub(letter_id=letter_id, bot_id=view.bot_id, lane=(view.chat, view.thread))


def retry(batch: Batch, letter_id: int, at_ms: int) -> list[Letter]:
    """Send a dead letter again. Raises Conflict if it is not dead."""
    view = _view(batch, letter_id, at_ms)
    if view.state is not State.FAILED:
        raise Conflict(code="not_dead", detail=f"Letter {letter_id} is {view.state}; only dead letters are sent again.")
    return _revive(batch, [(letter_id, view.bot_id)], at_ms)


def resolve(batch: Batch, letter_id: int, at_ms: int, *, arrived: bool) -> list[Letter]:
    """What a person saw of an uncertain letter: it arrived, or it is to be sent again."""
    view = _view(batch, letter_id, at_ms)
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
    where, bound = _where(wanted, at_ms)
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


def _view(batch: Batch, letter_id: int, at_ms: int) -> LetterView:
    view = reading.view(batch.connection, letter_id, at_ms)
    if view is None:
        raise NotFound(code="unknown_letter", detail=f"There is no letter {letter_id} here (any more).")
    return view


def _phase(batch: Batch, letter_id: int) -> int:
    for _, _, phase in run_many(batch.connection, _MAIN["phases"], [(letter_id,)]):
        assert isinstance(phase, int)
        return phase
    return PHASE_APART


def _line(at_ms: int, move: Move, words: str) -> str:
    return msgspec.json.encode(Try(at=at_ms, outcome=str(move), words=words)).decode()
