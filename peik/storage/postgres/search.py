"""What people look for among letters in the PostgreSQL store: pages, counts, causes of death. Functions on a session.

A look walks letters from the newest down along the index that fits its filter best, and never further than a bound.
"""

from collections.abc import Sequence

from peik.core.letter import CAUSE_CHARS_MAX, State
from peik.outbox.store import Cause, Counted, LetterFilter, LetterPage, LetterView
from peik.storage import rules
from peik.storage.postgres import queries, reads
from peik.storage.postgres.queries import NamedQuery, filled, load
from peik.storage.postgres.session import PostgresSession
from peik.storage.rules import ways_of
from peik.storage.sqlite.rows import PHASE_OF

_SQL = load("people.sql")
LOOKED_MAX = 25_000  # letters that are looked at for one page, or one count: a step to each costs more than in a file

_STATE_SQL = {
    State.WAITING: "l.phase = 0 AND m.letter_id IS NULL AND (l.due_at IS NULL OR l.due_at <= :now)",
    State.DELAYED: "m.letter_id IS NULL AND (l.phase = 1 OR (l.phase = 0 AND l.due_at > :now))",
    State.ACTIVE: "m.letter_id IS NOT NULL",
    State.COMPLETED: "l.phase = 2",
    State.FAILED: "l.phase = 3",
    State.CANCELLED: "l.phase = 4",
}
# As peik.core.letter says it; what is longer ends with the same sign.
_PLAIN = """regexp_replace(regexp_replace(coalesce(l.failed_reason, ''), '"[^"]*"', '"…"', 'g'), '[0-9]+', 'N', 'g')"""
_CAUSE = f"CASE WHEN length({_PLAIN}) <= {CAUSE_CHARS_MAX} THEN {_PLAIN} ELSE left({_PLAIN}, {CAUSE_CHARS_MAX - 1}) || '…' END"


def where(wanted: LetterFilter, at_ms: int) -> tuple[str, dict[str, object]]:
    """The conditions of a filter and what is bound to them."""
    terms = ["true"]
    bound: dict[str, object] = {"now": at_ms}
    if wanted.state is not None:
        terms.append(f"({_STATE_SQL[wanted.state]})")
    plain: tuple[tuple[str, object, str], ...] = (
        ("bot_id", wanted.bot_id, "l.bot_id = :bot_id"),
        ("bot_ids", None if wanted.bot_ids is None else sorted(wanted.bot_ids), "l.bot_id = ANY (:bot_ids::bigint[])"),
        ("chat", None if wanted.chat is None else queries.encode(wanted.chat), "l.chat = :chat"),
        ("user_id", wanted.user_id, "l.user_id = :user_id"),
        ("message_type", wanted.message_type, "l.message_type = :message_type"),
        ("method", wanted.method, "l.method = :method"),
        ("trace", wanted.trace, "l.trace IN (:trace, '~' || :trace)"),
        ("since", wanted.since_ms, "l.created_at >= :since"),
        ("until", wanted.until_ms, "l.created_at <= :until"),
        ("error", wanted.error, "strpos(lower(l.failed_reason), lower(:error)) > 0"),
        ("cause", wanted.cause, f"{_CAUSE} = :cause"),
    )
    for name, value, term in plain:
        if value is not None:
            terms.append(term)
            bound[name] = value
    if wanted.text is not None:
        ways = {f"text{index}": way for index, way in enumerate(ways_of(wanted.text))}
        terms.append("(" + " OR ".join(f"strpos(lower(l.params), lower(:{name})) > 0" for name in ways) + ")")
        bound |= ways
    return " AND ".join(terms), bound


async def page(
    session: PostgresSession, wanted: LetterFilter, *, before: int | None, limit: int, at_ms: int
) -> LetterPage:
    terms, bound = where(wanted, at_ms)
    letters: list[LetterView] = []
    oldest: int | None = None
    for way, most in await _ways(session, wanted):
        looked, more = await _looked(session, wanted, before, way)
        query = filled(_SQL["page"], looked=looked, where=terms)
        asked = bound | more | {"limit": limit, "looked": most}
        letters = [reads.view_of(row, at_ms=at_ms) for row in await session.rows(query, **asked)]
        oldest = None if len(letters) >= limit else await _oldest(session, looked, asked, most)
        if oldest is None:
            break
    return rules.turned(letters, limit=limit, oldest_looked=oldest)


async def count(session: PostgresSession, wanted: LetterFilter, *, most: int, at_ms: int) -> Counted:
    terms, bound = where(wanted, at_ms)
    looked, more = await _looked(session, wanted, None, rules.way_of(wanted))
    asked = bound | more | {"limit": most, "looked": LOOKED_MAX}
    letters = await session.number(filled(_SQL["count"], looked=looked, where=terms), **asked)
    is_cut = letters < most and await _oldest(session, looked, asked, LOOKED_MAX) is not None
    return Counted(letters=letters, is_least=letters >= most or is_cut)


async def views(session: PostgresSession, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
    return sorted(await reads.views(session, letter_ids, at_ms), key=lambda view: view.id)


async def causes(
    session: PostgresSession, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int
) -> list[Cause]:
    bots = None if bot_ids is None else sorted(bot_ids)
    looked = rules.CAUSES_LOOKED_MAX
    rows = await session.rows(_SQL["causes"], since=since_ms or 0, bot_ids=bots, looked=looked)
    return rules.grouped(((row[0], row[1], row[2], row[3], row[4]) for row in rows), limit=limit)


async def oldest_waiting(session: PostgresSession) -> dict[int, int]:
    return {row[0]: row[1] for row in await session.rows(_SQL["oldest_waiting"])}


async def _ways(session: PostgresSession, wanted: LetterFilter) -> tuple[tuple[str, int], ...]:
    """How to look, and how far, in turn."""
    way = first = rules.way_of(wanted)
    if way in rules.BOT_BY_BOT and wanted.bot_id is None:
        row = await session.row(filled(_SQL["standing"], of_bots=_of_bots(wanted)), **_bots(wanted))
        assert row is not None
        if row[rules.BOT_BY_BOT.index(way)] > rules.LOOKED_FIRST:
            first = "newest"
    return ((first, rules.LOOKED_FIRST), (way, LOOKED_MAX))


def _of_bots(wanted: LetterFilter) -> str:
    if wanted.bot_id is not None:
        return "b.bot_id = :bot_id"
    return "true" if wanted.bot_ids is None else "b.bot_id = ANY (:bot_ids::bigint[])"


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
    within = " AND ".join(["true", *(term for _, value, term in ids if value is not None)])
    query: NamedQuery = filled(_SQL[way], within=within, of_bots=_of_bots(wanted))
    bound: dict[str, object] = {name: value for name, value, _ in ids if value is not None}
    return query.written, bound | ({"ended": PHASE_OF[wanted.state]} if wanted.state in rules.ENDS else {})


async def _oldest(session: PostgresSession, looked: str, bound: dict[str, object], most: int) -> int | None:
    """The oldest letter that was looked at, if the bound ended the look."""
    row = await session.row(filled(_SQL["looked"], looked=looked), **bound)
    return row[1] if row is not None and row[0] >= most else None


async def _id_at(session: PostgresSession, at_ms: int | None, slack_ms: int) -> int | None:
    """The first id of then or later, with room on the safe side: ids rise with time as far as the clocks do."""
    if at_ms is None:
        return None
    ((low, high),) = await session.rows(_SQL["id_range"])
    while low < high:
        middle = (low + high) // 2
        row = await session.row(_SQL["created_at"], id=middle)
        if row is None:  # it went since: another node cleans up
            high = middle
        elif row[1] < at_ms + slack_ms:
            low = row[0] + 1
        else:
            high = middle
    return int(low)
