"""What people look for among letters in the SQLite store: pages, counts, causes of death. Functions on a connection.

A look walks letters from the newest down along the index that fits its filter best, and never further than a bound.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice

import apsw
import msgspec

from peik.core.letter import State
from peik.outbox.store import Cause, Counted, LetterFilter, LetterPage, LetterView
from peik.storage import rules
from peik.storage.rules import ways_of
from peik.storage.sqlite.rows import PHASE_OF, view_from_row
from peik.storage.sqlite.statements import Row, Value, load, run_many

# Which open letters of the SQLite store a look goes through, the newest first. Functions on a connection.
#
# The index of open letters is ordered bot by bot. So the bots' own walks are merged: a look costs one step to the
# newest of each bot that has any, and then what it looks at, however many letters lie behind.


_SQL = load("sqlite_people.sql")
_FIRST_STRETCH, _STRETCH_MAX = 8, 1024  # ids that are read at once of a bot: few if it takes turns with many others

# The phase that such letters have, and the column of the tallies that counts them.
_PLACES: dict[State, tuple[int, str]] = {State.WAITING: (0, "in_lane"), State.DELAYED: (1, "apart")}


def is_walked(wanted: LetterFilter) -> bool:
    return rules.way_of(wanted) in rules.BOT_BY_BOT


def standing_of(connection: apsw.Connection, wanted: LetterFilter, of_bots: str, bound: dict[str, Value]) -> int:
    """How many letters stand where such letters do, from the tallies."""
    assert wanted.state is not None
    _, column = _PLACES[wanted.state]
    query = _SQL["standing"].replace("{column}", column).replace("{of_bots}", of_bots)
    ((letters,),) = connection.execute(query, bound)
    return int(letters)


def newest(
    connection: apsw.Connection,
    wanted: LetterFilter,
    *,
    within: str,
    of_bots: str,
    bound: dict[str, Value],
    most: int,
) -> list[int]:
    """Ids of letters that wait or are delayed, bots all together, the newest first."""
    assert wanted.state is not None
    phase, column = _PLACES[wanted.state]
    bound = bound | {"phase": phase, "looked": most}
    heads = _SQL["heads"].replace("{column}", column).replace("{of_bots}", of_bots).replace("{within}", within)
    stretch = _SQL["stretch"].replace("{within}", within)
    walks = [
        _walk(connection, stretch, bound | {"bot": bot_id}, int(head))
        for bot_id, head in connection.execute(heads, bound).fetchall()
        if head is not None
    ]
    if wanted.state is State.DELAYED:
        walks.append(iter(_ids(connection, _SQL["newest_backing_off"].replace("{within}", within), bound)))
    return list(islice(heapq.merge(*walks, reverse=True), most))


def _walk(connection: apsw.Connection, stretch: str, bound: dict[str, Value], head: int) -> Iterator[int]:
    yield head
    below, many = head, _FIRST_STRETCH
    while ids := _ids(connection, stretch, bound | {"below": below, "many": many}):
        yield from ids
        if len(ids) < many:
            return
        below, many = ids[-1], min(4 * many, _STRETCH_MAX)


def _ids(connection: apsw.Connection, query: str, bound: dict[str, Value]) -> list[int]:
    """Read to their end at once: others ask the same statement in between."""
    return [value for (value,) in connection.execute(query, bound).fetchall() if isinstance(value, int)]


_STATE_SQL = {
    State.WAITING: "l.phase = 0 AND m.letter_id IS NULL AND (l.due_at IS NULL OR l.due_at <= :now)",
    State.DELAYED: "m.letter_id IS NULL AND (l.phase = 1 OR (l.phase = 0 AND l.due_at > :now))",
    State.ACTIVE: "m.letter_id IS NOT NULL",
    State.COMPLETED: "l.phase = 2",
    State.FAILED: "l.phase = 3",
    State.CANCELLED: "l.phase = 4",
}


def where(wanted: LetterFilter, at_ms: int) -> tuple[str, dict[str, Value]]:
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
        ("trace", wanted.trace, "l.trace IN (:trace, '~' || :trace)"),
        ("since", wanted.since_ms, "l.created_at >= :since"),
        ("until", wanted.until_ms, "l.created_at <= :until"),
        ("error", wanted.error, "instr(lower(l.failed_reason), lower(:error)) > 0"),
        ("cause", wanted.cause, "cause_of(l.failed_reason) = :cause"),
    )
    for name, value, term in plain:
        if value is not None:
            terms.append(term)
            bound[name] = value
    if wanted.text is not None:
        ways = {f"text{index}": way for index, way in enumerate(ways_of(wanted.text))}
        terms.append("(" + " OR ".join(f"instr(lower(l.params), lower(:{name})) > 0" for name in ways) + ")")
        bound |= ways
    if wanted.bot_ids is not None:
        terms.append("l.bot_id IN (SELECT value FROM json_each(:bot_ids))")
        bound["bot_ids"] = _bots(wanted.bot_ids)
    return " AND ".join(terms), bound


def page(
    connection: apsw.Connection, wanted: LetterFilter, *, before: int | None, limit: int, at_ms: int
) -> LetterPage:
    terms, bound = where(wanted, at_ms)
    look = _Look(connection, wanted, before, bound)
    letters: list[LetterView] = []
    oldest: int | None = None
    for is_plain, most in look.steps():
        looked, asked = look.at(most, is_plain=is_plain)
        asked["limit"] = limit
        query = _SQL["page"].replace("{looked}", looked).replace("{where}", terms)
        letters = [view_from_row(row, at_ms=at_ms) for row in connection.execute(query, asked)]
        oldest = None if len(letters) >= limit else _oldest(connection, looked, asked, most)
        if oldest is None:
            break
    return rules.turned(letters, limit=limit, oldest_looked=oldest)


def count(connection: apsw.Connection, wanted: LetterFilter, *, most: int, at_ms: int) -> Counted:
    terms, bound = where(wanted, at_ms)
    looked, asked = _Look(connection, wanted, None, bound).at(rules.LOOKED_MAX)
    asked["limit"] = most
    query = _SQL["count"].replace("{looked}", looked).replace("{where}", terms)
    ((letters,),) = connection.execute(query, asked)
    is_cut = letters < most and _oldest(connection, looked, asked, rules.LOOKED_MAX) is not None
    return Counted(letters=letters, is_least=letters >= most or is_cut)


def views(connection: apsw.Connection, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
    ids: list[Row] = [(letter_id,) for letter_id in sorted(set(letter_ids))]
    return [view_from_row(row, at_ms=at_ms) for row in run_many(connection, _SQL["views"], ids)]


def causes(
    connection: apsw.Connection, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int
) -> list[Cause]:
    bots = None if bot_ids is None else _bots(bot_ids)
    bound = {"since": since_ms or 0, "bot_ids": bots, "looked": rules.CAUSES_LOOKED_MAX}
    return rules.grouped(connection.execute(_SQL["causes"], bound), limit=limit)


def oldest_waiting(connection: apsw.Connection) -> dict[int, int]:
    return {row[0]: row[1] for row in connection.execute(_SQL["oldest_waiting"])}


class _Look:
    """Which letters are looked at, the newest first."""

    def __init__(
        self, connection: apsw.Connection, wanted: LetterFilter, before: int | None, bound: dict[str, Value]
    ) -> None:
        self._connection = connection
        self._wanted = wanted
        ids: tuple[tuple[str, int | None, str], ...] = (
            ("before", before, "o.id < :before"),
            ("since_id", _id_at(connection, wanted.since_ms, -rules.CLOCK_SLACK_MS), "o.id >= :since_id"),
            ("until_id", _id_at(connection, wanted.until_ms, rules.CLOCK_SLACK_MS), "o.id < :until_id"),
        )
        self._within = " AND ".join(["1", *(term for _, value, term in ids if value is not None)])
        self._of_bots = "1"
        if wanted.bot_id is not None:
            self._of_bots = "b.bot_id = :bot_id"
        elif wanted.bot_ids is not None:
            self._of_bots = "b.bot_id IN (SELECT value FROM json_each(:bot_ids))"
        self._bound = bound | {name: value for name, value, _ in ids if value is not None}
        if wanted.state in rules.ENDS:
            self._bound["ended"] = PHASE_OF[wanted.state]

    def steps(self) -> tuple[tuple[bool, int], ...]:
        """How far to look, in turn, and whether among all letters. Where many are open over many bots, the newest of all
        letters nearly always make a page, and nobody has to ask each bot for its own."""
        is_open_to_all = is_walked(self._wanted) and self._wanted.bot_id is None
        if is_open_to_all:
            standing = standing_of(self._connection, self._wanted, self._of_bots, self._bound)
            is_open_to_all = standing > rules.LOOKED_FIRST
        return ((is_open_to_all, rules.LOOKED_FIRST), (False, rules.LOOKED_MAX))

    def at(self, most: int, *, is_plain: bool = False) -> tuple[str, dict[str, Value]]:
        """A query for their ids, and all that is bound."""
        asked = self._bound | {"looked": most}
        if not is_plain and is_walked(self._wanted):
            ids = newest(
                self._connection,
                self._wanted,
                within=self._within,
                of_bots=self._of_bots,
                bound=self._bound,
                most=most,
            )
            return _SQL["newest_listed"], asked | {"ids": msgspec.json.encode(ids).decode()}
        way = "newest" if is_plain else rules.way_of(self._wanted)
        return _SQL[way].replace("{within}", self._within).replace("{of_bots}", self._of_bots), asked


def _oldest(connection: apsw.Connection, looked: str, bound: dict[str, Value], most: int) -> int | None:
    """The oldest letter that was looked at, if the bound ended the look."""
    ((seen, oldest),) = connection.execute(_SQL["looked"].replace("{looked}", looked), bound)
    return oldest if seen >= most else None


def _id_at(connection: apsw.Connection, at_ms: int | None, slack_ms: int) -> int | None:
    """The first id of then or later, with room on the safe side: ids rise with time as far as the clock does."""
    if at_ms is None:
        return None
    ((low, high),) = connection.execute(_SQL["id_range"])
    while low < high:
        middle = (low + high) // 2
        row = next(connection.execute(_SQL["created_at"], (middle,)))
        if row[1] < at_ms + slack_ms:
            low = row[0] + 1
        else:
            high = middle
    return int(low)


def _bots(bot_ids: frozenset[int]) -> str:
    return msgspec.json.encode(sorted(bot_ids)).decode()
