"""What people look for among letters in the SQLite store: pages, counts, causes of death. Functions on a connection.

A look walks letters from the newest down along the index that fits its filter best, and never further than a bound.
"""

from collections.abc import Sequence

import apsw
import msgspec

from peik.core.letter import State
from peik.ports import Cause, Counted, LetterFilter, LetterPage, LetterView
from peik.store import paging, walking
from peik.store.rows import PHASE_OF, view_from_row
from peik.store.statements import Row, Value, load, run_many
from peik.store.wording import ways_of

_SQL = load("sqlite_people.sql")

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
    return paging.turned(letters, limit=limit, oldest_looked=oldest)


def count(connection: apsw.Connection, wanted: LetterFilter, *, most: int, at_ms: int) -> Counted:
    terms, bound = where(wanted, at_ms)
    looked, asked = _Look(connection, wanted, None, bound).at(paging.LOOKED_MAX)
    asked["limit"] = most
    query = _SQL["count"].replace("{looked}", looked).replace("{where}", terms)
    ((letters,),) = connection.execute(query, asked)
    is_cut = letters < most and _oldest(connection, looked, asked, paging.LOOKED_MAX) is not None
    return Counted(letters=letters, is_least=letters >= most or is_cut)


def views(connection: apsw.Connection, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
    ids: list[Row] = [(letter_id,) for letter_id in sorted(set(letter_ids))]
    return [view_from_row(row, at_ms=at_ms) for row in run_many(connection, _SQL["views"], ids)]


def causes(
    connection: apsw.Connection, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int
) -> list[Cause]:
    bots = None if bot_ids is None else _bots(bot_ids)
    bound = {"since": since_ms or 0, "bot_ids": bots, "looked": paging.CAUSES_LOOKED_MAX}
    return paging.grouped(connection.execute(_SQL["causes"], bound), limit=limit)


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
            ("since_id", _id_at(connection, wanted.since_ms, -paging.CLOCK_SLACK_MS), "o.id >= :since_id"),
            ("until_id", _id_at(connection, wanted.until_ms, paging.CLOCK_SLACK_MS), "o.id < :until_id"),
        )
        self._within = " AND ".join(["1", *(term for _, value, term in ids if value is not None)])
        self._of_bots = "1"
        if wanted.bot_id is not None:
            self._of_bots = "b.bot_id = :bot_id"
        elif wanted.bot_ids is not None:
            self._of_bots = "b.bot_id IN (SELECT value FROM json_each(:bot_ids))"
        self._bound = bound | {name: value for name, value, _ in ids if value is not None}
        if wanted.state in paging.ENDS:
            self._bound["ended"] = PHASE_OF[wanted.state]

    def steps(self) -> tuple[tuple[bool, int], ...]:
        """How far to look, in turn, and whether among all letters. Where many are open over many bots, the newest of all
        letters nearly always make a page, and nobody has to ask each bot for its own."""
        is_open_to_all = walking.is_walked(self._wanted) and self._wanted.bot_id is None
        if is_open_to_all:
            standing = walking.standing(self._connection, self._wanted, self._of_bots, self._bound)
            is_open_to_all = standing > paging.LOOKED_FIRST
        return ((is_open_to_all, paging.LOOKED_FIRST), (False, paging.LOOKED_MAX))

    def at(self, most: int, *, is_plain: bool = False) -> tuple[str, dict[str, Value]]:
        """A query for their ids, and all that is bound."""
        asked = self._bound | {"looked": most}
        if not is_plain and walking.is_walked(self._wanted):
            ids = walking.newest(
                self._connection,
                self._wanted,
                within=self._within,
                of_bots=self._of_bots,
                bound=self._bound,
                most=most,
            )
            return _SQL["newest_listed"], asked | {"ids": msgspec.json.encode(ids).decode()}
        way = "newest" if is_plain else paging.way_of(self._wanted)
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
