"""What the PostgreSQL store reads: fronts of lanes for the engines, views for people. Functions on a session, no state."""

from collections.abc import Iterable, Sequence

import msgspec

from peik.core.letter import CAUSE_CHARS_MAX, LaneKey, Letter, State, is_edit
from peik.core.lifecycle import Try
from peik.outbox.store import (
    BotRecord,
    Cause,
    ChatRecord,
    Counted,
    FoundInFlight,
    LetterFilter,
    LetterPage,
    LetterView,
    LoggedMessage,
    SentMessage,
    Sweep,
    Tally,
)
from peik.secrets.seals import PLAIN, Seals
from peik.storage import rules
from peik.storage.postgres import queries
from peik.storage.postgres.queries import NamedQuery, filled, load
from peik.storage.postgres.session import PostgresSession
from peik.storage.sql import Row
from peik.storage.sqlite.rows import (
    LETTER_COLUMNS,
    PHASE_OF,
    bot_from_row,
    chat_from_row,
    letter_from_row,
    logged_from_row,
    view_from_row,
)

_SQL = load("letters.sql")
_NODES = load("nodes.sql")
_LETTER = ", ".join(f"l.{column}" for column in LETTER_COLUMNS)
_CHAT = LETTER_COLUMNS.index("chat")
_VIEW_CHAT = 4  # its place in `view` and `find`
_BEFORE_ALL = ("", -(2**63))

SWEEP = filled(_SQL["sweep"], letter=_LETTER, front=_SQL["front"].written)
FRONTS = filled(_SQL["fronts"], letter=_LETTER, front=_SQL["front"].written)
LETTERS = filled(_SQL["letters"], letter=_LETTER)
LEFT_IN_FLIGHT = filled(_SQL["left_in_flight"], letter=_LETTER)
_IDS_AT_ONCE = 5000
NEW_LETTERS = filled(_NODES["new_letters"], letter=_LETTER)

_history = msgspec.json.Decoder(list[Try]).decode


def letter_of(row: Row) -> Letter:
    values = list(row)
    values[_CHAT] = queries.decode(values[_CHAT])
    return letter_from_row(tuple(values))


def view_of(row: Row, *, at_ms: int) -> LetterView:
    values = list(row)
    values[_VIEW_CHAT] = queries.decode(values[_VIEW_CHAT])
    return view_from_row(tuple(values), at_ms=at_ms)


async def sweep(
    session: PostgresSession, bot_id: int, rank: int, after: LaneKey | None, *, lanes: int, letters: int
) -> Sweep:
    chat, thread = _BEFORE_ALL if after is None else (queries.encode(after[0]), after[1])
    rows = await session.rows(SWEEP, bot=bot_id, rank=rank, chat=chat, thread=thread, lanes=lanes, letters=letters + 1)
    found = _fronts((), rows, letters)
    return Sweep(lanes=found, last=next(reversed(found)) if len(found) >= lanes else None)


async def fronts(
    session: PostgresSession, bot_id: int, keys: Sequence[LaneKey], *, letters: int
) -> dict[LaneKey, FoundInFlight]:
    encoded = [queries.encode(chat) for chat, _ in keys]
    rows = await session.rows(
        FRONTS, bot=bot_id, chats=encoded, threads=[thread for _, thread in keys], letters=letters + 1
    )
    return _fronts(keys, rows, letters)


def _fronts(keys: Iterable[LaneKey], rows: Sequence[Row], letters: int) -> dict[LaneKey, FoundInFlight]:
    """Each rank gave one more than wanted; the front is the first of them in the lane's order."""
    lanes: dict[LaneKey, list[Letter]] = {key: [] for key in keys}
    for row in rows:
        letter = letter_of(row)
        lanes.setdefault(letter.lane, []).append(letter)
    return {key: FoundInFlight(letters=front[:letters], more=len(front) > letters) for key, front in lanes.items()}


async def letters_by_id(session: PostgresSession, letter_ids: Sequence[int]) -> list[Letter]:
    """In the order of their numbers."""
    return [letter_of(row) for row in await session.rows(LETTERS, letters=letter_ids)]


async def new_letters(session: PostgresSession, ranges: Sequence[tuple[int, int, int]]) -> list[Letter]:
    bots = list({bot_id for bot_id, _, _ in ranges})
    ids = sorted({one for _, first, last in ranges for one in range(first, last + 1)})
    found: list[Letter] = []
    for start in range(0, len(ids), _IDS_AT_ONCE):
        rows = await session.rows(NEW_LETTERS, bots=bots, ids=ids[start : start + _IDS_AT_ONCE])
        found += [letter_of(row) for row in rows]
    return found


async def adopt_marks(session: PostgresSession, bot_id: int, epoch: int) -> list[Letter]:
    """What the lease's holder before had in flight; from now on it is this one's to settle."""
    adopted = await session.returned(_SQL["adopt_marks"], epoch=epoch, bot=bot_id)
    if not adopted:
        return []
    return [letter_of(row) for row in await session.rows(LEFT_IN_FLIGHT, bot=bot_id)]


async def recent_tries(session: PostgresSession, bot_id: int, since_ms: int) -> list[SentMessage]:
    """What Telegram may have counted since then: deliveries, and every try that may have arrived."""
    bound = {"bot": bot_id, "since": since_ms}
    sent = [
        SentMessage(chat=queries.decode(chat), weight=weight, at_ms=at, is_edit=is_edit(method))
        for chat, weight, method, at in await session.rows(_SQL["recent_sends"], **bound)
    ]
    for chat, weight, method, history in await session.rows(_SQL["recent_histories"], **bound):
        sent.extend(
            SentMessage(chat=queries.decode(chat), weight=weight, at_ms=one.at, is_edit=is_edit(method))
            for one in _history(history)
            if one.outcome == "uncertain" and one.at >= since_ms
        )
    return sorted(sent, key=lambda one: one.at_ms)


async def view(session: PostgresSession, letter_id: int, at_ms: int) -> LetterView | None:
    return next(iter(await views(session, [letter_id], at_ms)), None)


async def views(session: PostgresSession, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
    return [view_of(row, at_ms=at_ms) for row in await session.rows(_SQL["view"], letters=letter_ids)]


async def state(session: PostgresSession, letter_id: int, at_ms: int) -> State:
    """Where a letter stands that was accepted once: by itself, or by its line in the log, which may be gone too."""
    found = await view(session, letter_id, at_ms)
    if found is not None:
        return found.state
    return State(await session.text(_SQL["logged_status"], letter=letter_id) or State.COMPLETED)


async def tallies(session: PostgresSession, at_ms: int) -> dict[int, Tally]:
    return {
        row["bot_id"]: Tally(
            waiting=row["in_lane"] - row["active"] - row["backs_off"],
            delayed=row["apart"] + row["backs_off"],
            active=row["active"],
            completed=row["completed"],
            failed=row["failed"],
            cancelled=row["cancelled"],
        )
        for row in await session.rows(_SQL["tallies"], at=at_ms)
    }


async def ended_by_minute(session: PostgresSession, since_ms: int, until_ms: int) -> dict[int, tuple[int, int]]:
    rows = await session.rows(_SQL["ended_by_minute"], since=since_ms, until=until_ms)
    return {int(minute): (int(delivered), int(failed)) for minute, delivered, failed in rows}


async def bots(session: PostgresSession, seals: Seals = PLAIN) -> list[BotRecord]:
    return [bot_from_row(tuple(row), seals) for row in await session.rows(_SQL["bots"])]


async def known(session: PostgresSession, bot_id: int) -> list[ChatRecord]:
    return [chat_of(bot_id, row) for row in await session.rows(_SQL["chats"], bot=bot_id)]


def chat_of(bot_id: int, row: Row) -> ChatRecord:
    chat, *rest = row
    return chat_from_row(bot_id, (queries.decode(chat), *rest))


async def blobs(session: PostgresSession) -> set[str]:
    return {one["blob"] for row in await session.rows(_SQL["blobs"]) for one in msgspec.json.decode(row[0])}


# What people look for among letters in the PostgreSQL store: pages, counts, causes of death. Functions on a session.
#
# A look walks letters from the newest down along the index that fits its filter best, and never further than a bound.


_PEOPLE_SQL = load("people.sql")
LOOKED_MAX = 25_000  # letters that are looked at for one page, or one count: a step to each costs more than in a file

# As peik.core.letter says it; what is longer ends with the same sign.
_PLAIN = """regexp_replace(regexp_replace(coalesce(l.failed_reason, ''), '"[^"]*"', '"…"', 'g'), '[0-9]+', 'N', 'g')"""
_CAUSE = f"CASE WHEN length({_PLAIN}) <= {CAUSE_CHARS_MAX} THEN {_PLAIN} ELSE left({_PLAIN}, {CAUSE_CHARS_MAX - 1}) || '…' END"


def _among(name: str) -> str:
    return f"= ANY (:{name}::bigint[])"


_AMONG_BOTS = _among("bot_ids")
DIALECT = rules.Dialect("strpos", _CAUSE, _among, queries.encode, sorted)


async def logged(session: PostgresSession, below: tuple[int, int], limit: int) -> list[LoggedMessage]:
    rows = await session.rows(_SQL["logged"], at=below[0], id=below[1], limit=limit)
    return [logged_from_row([*row[:2], None if row[2] is None else queries.decode(row[2]), *row[3:]]) for row in rows]


async def page(
    session: PostgresSession, wanted: LetterFilter, *, before: int | None, limit: int, at_ms: int
) -> LetterPage:
    terms, bound = rules.where(wanted, at_ms, DIALECT)
    letters: list[LetterView] = []
    oldest: int | None = None
    for way, most in await _ways(session, wanted):
        looked, more = await _looked(session, wanted, before, way)
        query = filled(_PEOPLE_SQL["page"], looked=looked, where=terms)
        asked = bound | more | {"limit": limit, "looked": most}
        letters = [view_of(row, at_ms=at_ms) for row in await session.rows(query, **asked)]
        oldest = None if len(letters) >= limit else await _oldest(session, looked, asked, most)
        if oldest is None:
            break
    return rules.turned(letters, limit=limit, oldest_looked=oldest)


async def count(session: PostgresSession, wanted: LetterFilter, *, most: int, at_ms: int) -> Counted:
    terms, bound = rules.where(wanted, at_ms, DIALECT)
    looked, more = await _looked(session, wanted, None, rules.way_of(wanted))
    asked = bound | more | {"limit": most, "looked": LOOKED_MAX}
    letters = await session.number(filled(_PEOPLE_SQL["count"], looked=looked, where=terms), **asked)
    is_cut = letters < most and await _oldest(session, looked, asked, LOOKED_MAX) is not None
    return Counted(letters=letters, is_least=letters >= most or is_cut)


async def sorted_views(session: PostgresSession, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
    return sorted(await views(session, letter_ids, at_ms), key=lambda view: view.id)


async def causes(
    session: PostgresSession, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int
) -> list[Cause]:
    bots = None if bot_ids is None else sorted(bot_ids)
    looked = rules.CAUSES_LOOKED_MAX
    rows = await session.rows(_PEOPLE_SQL["causes"], since=since_ms or 0, bot_ids=bots, looked=looked)
    return rules.grouped(((row[0], row[1], row[2], row[3], row[4]) for row in rows), limit=limit)


async def oldest_waiting(session: PostgresSession) -> dict[int, int]:
    return {row[0]: row[1] for row in await session.rows(_PEOPLE_SQL["oldest_waiting"])}


async def _ways(session: PostgresSession, wanted: LetterFilter) -> tuple[tuple[str, int], ...]:
    """How to look, and how far, in turn."""
    way = first = rules.way_of(wanted)
    if way in rules.BOT_BY_BOT and wanted.bot_id is None:
        row = await session.row(filled(_PEOPLE_SQL["standing"], of_bots=_of_bots(wanted)), **_bots(wanted))
        assert row is not None
        if row[rules.BOT_BY_BOT.index(way)] > rules.LOOKED_FIRST:
            first = "newest"
    return ((first, rules.LOOKED_FIRST), (way, LOOKED_MAX))


def _of_bots(wanted: LetterFilter) -> str:
    if wanted.bot_id is not None:
        return "b.bot_id = :bot_id"
    return "true" if wanted.bot_ids is None else f"b.bot_id {_AMONG_BOTS}"


def _bots(wanted: LetterFilter) -> dict[str, object]:
    return {} if wanted.bot_ids is None else {"bot_ids": sorted(wanted.bot_ids)}


async def _looked(
    session: PostgresSession, wanted: LetterFilter, before: int | None, way: str
) -> tuple[str, dict[str, object]]:
    """Which letters are looked at, the newest first, up to :looked; and what that binds."""
    ids: tuple[tuple[str, int | None, str], ...] = (
        ("before", before, "o.id < :before"),
        ("since_id", await _id_at(session, wanted.since_ms, -rules.CLOCK_SLACK_MS), "o.id >= :since_id"),
        ("until_id", await _id_at(session, wanted.until_ms, rules.CLOCK_SLACK_MS), "o.id < :until_id"),
    )
    these = [] if wanted.ids is None else [f"o.id {_among('these')}"]
    within = " AND ".join(["true", *these, *(term for _, value, term in ids if value is not None)])
    query: NamedQuery = filled(_PEOPLE_SQL[way], within=within, of_bots=_of_bots(wanted))
    bound: dict[str, object] = {name: value for name, value, _ in ids if value is not None}
    return query.written, bound | ({"ended": PHASE_OF[wanted.state]} if wanted.state in rules.ENDS else {})


async def _oldest(session: PostgresSession, looked: str, bound: dict[str, object], most: int) -> int | None:
    """The oldest letter that was looked at, if the bound ended the look."""
    row = await session.row(filled(_PEOPLE_SQL["looked"], looked=looked), **bound)
    return row[1] if row is not None and row[0] >= most else None


async def _id_at(session: PostgresSession, at_ms: int | None, slack_ms: int) -> int | None:
    """The first id of then or later, with room on the safe side: ids rise with time as far as the clocks do."""
    if at_ms is None:
        return None
    ((low, high),) = await session.rows(_PEOPLE_SQL["id_range"])
    while low < high:
        middle = (low + high) // 2
        row = await session.row(_PEOPLE_SQL["created_at"], id=middle)
        if row is None:  # it went since: another node cleans up
            high = middle
        elif row[1] < at_ms + slack_ms:
            low = row[0] + 1
        else:
            high = middle
    return int(low)
