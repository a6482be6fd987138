"""What the SQLite store reads: fronts of lanes for the engines, views for people. Functions on a connection, no state."""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import apsw
import msgspec

from peik.core.letter import LaneKey, Letter, State, is_edit
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
from peik.storage.sqlite.rows import (
    LETTER_COLUMNS,
    PHASE_OF,
    bot_from_row,
    chat_from_row,
    letter_from_row,
    letters_from_json,
    logged_from_row,
    view_from_row,
)
from peik.storage.sqlite.statements import Row, Value, load, run_many

_SQL = load("sqlite.sql")
_LETTER = ", ".join(f"l.{column}" for column in LETTER_COLUMNS)
_BEFORE_ALL: LaneKey = (-(2**63), 0)  # SQLite puts numbers before texts, and no chat has this one


def _front(chat: str, thread: str) -> str:
    inner = _SQL["front"].replace("json_array({columns})", f"json_array({', '.join(LETTER_COLUMNS)})")
    return inner.replace("{columns}", _LETTER).replace("{chat}", chat).replace("{thread}", thread)


SWEEP = _SQL["sweep"].replace("{front}", _front("lane.chat", "lane.thread"))
FRONTS = _SQL["fronts"].replace("{front}", _front("lane.value ->> 0", "lane.value ->> 1"))
LETTERS = _SQL["letters"].replace("{letter}", _LETTER)
LEFT_IN_FLIGHT = _SQL["left_in_flight"].replace("{letter}", _LETTER)


def sweep(
    connection: apsw.Connection, bot_id: int, rank: int, after: LaneKey | None, *, lanes: int, letters: int
) -> Sweep:
    chat, thread = _BEFORE_ALL if after is None else after
    bound = {"bot": bot_id, "rank": rank, "chat": chat, "thread": thread, "lanes": lanes, "letters": letters + 1}
    found = {(row[0], row[1]): _cut(row[2], letters) for row in connection.execute(SWEEP, bound)}
    last = next(reversed(found)) if len(found) >= lanes else None
    return Sweep(lanes=found, last=last)


def fronts(
    connection: apsw.Connection, bot_id: int, keys: Sequence[LaneKey], *, letters: int
) -> dict[LaneKey, FoundInFlight]:
    bound = {"bot": bot_id, "lanes": msgspec.json.encode(keys).decode(), "letters": letters + 1}
    return {(row[0], row[1]): _cut(row[2], letters) for row in connection.execute(FRONTS, bound)}


def _cut(text: str, letters: int) -> FoundInFlight:
    """Each rank gave one more than wanted; the front is the first of them in the lane's order."""
    front = letters_from_json(text)
    return FoundInFlight(letters=front[:letters], more=len(front) > letters)


def adopt_marks(connection: apsw.Connection, bot_id: int, epoch: int) -> list[Letter]:
    """What a dead owner had in flight; from now on it is this owner's to settle."""
    letters = [letter_from_row(row) for row in connection.execute(LEFT_IN_FLIGHT, (bot_id,))]
    connection.execute(_SQL["adopt_marks"], (epoch, bot_id))
    return letters


def view(connection: apsw.Connection, letter_id: int, at_ms: int) -> LetterView | None:
    for row in connection.execute(_SQL["view"], (letter_id,)):
        return view_from_row(row, at_ms=at_ms)
    return None


def state(connection: apsw.Connection, letter_id: int, at_ms: int) -> State:
    """Where a letter stands that was accepted once: by itself, or by its line in the log, which may be gone too."""
    found = view(connection, letter_id, at_ms)
    if found is not None:
        return found.state
    return State(text(connection, _SQL["logged_status"], (letter_id,)) or State.COMPLETED)


def logged(connection: apsw.Connection, below: tuple[int, int], limit: int) -> list[LoggedMessage]:
    rows = connection.execute(_SQL["logged"], {"at": below[0], "id": below[1], "limit": limit})
    return [logged_from_row(row) for row in rows]


def tallies(connection: apsw.Connection, at_ms: int) -> dict[int, Tally]:
    with connection:  # one snapshot for all three
        backing_off = {row[0]: row[1] for row in connection.execute(_SQL["backing_off"], (at_ms,))}
        in_flight = {row[0]: row[1] for row in connection.execute(_SQL["in_flight"])}
        rows = list(connection.execute(_SQL["tallies"]))
    counted = {}
    for bot_id, in_lane, apart, completed, failed, cancelled in rows:
        backs_off, active = backing_off.get(bot_id, 0), in_flight.get(bot_id, 0)
        counted[bot_id] = Tally(
            waiting=in_lane - active - backs_off,
            delayed=apart + backs_off,
            active=active,
            completed=completed,
            failed=failed,
            cancelled=cancelled,
        )
    return counted


def ended_by_minute(connection: apsw.Connection, since_ms: int, until_ms: int) -> dict[int, tuple[int, int]]:
    rows = connection.execute(_SQL["ended_by_minute"], {"since": since_ms, "until": until_ms})
    return {minute: (delivered, failed) for minute, delivered, failed in rows}


def bots(connection: apsw.Connection, seals: Seals = PLAIN) -> list[BotRecord]:
    return [bot_from_row(row, seals) for row in connection.execute(_SQL["bots"])]


def chats(connection: apsw.Connection, bot_id: int) -> list[ChatRecord]:
    return [chat_from_row(bot_id, row) for row in connection.execute(_SQL["chats"], (bot_id,))]


def blobs(connection: apsw.Connection) -> set[str]:
    return {one["blob"] for row in connection.execute(_SQL["blobs"]) for one in msgspec.json.decode(row[0])}


def text(connection: apsw.Connection, sql: str, bound: Row) -> str | None:
    for row in connection.execute(sql, bound):
        return str(row[0])
    return None


def number(connection: apsw.Connection, sql: str, bound: Row | dict[str, Value] = ()) -> int:
    """One number, 0 if there is none."""
    for row in connection.execute(sql, bound):
        return int(row[0] or 0)
    return 0


# What the last minute's sends were, for senders that begin: asked of the SQLite store by a thousand of them at once.
#
# Finding one bot's means to look through everybody's. So everyone who has asked by the time of a reading is answered by
# it, and what an answer tells is never older than its question.


class Question:
    """One bot's; `tries` once it is answered."""

    __slots__ = ("bot_id", "since_ms", "tries")

    def __init__(self, bot_id: int, since_ms: int) -> None:
        self.bot_id = bot_id
        self.since_ms = since_ms
        self.tries: list[SentMessage] | None = None


class RecentTries:
    """The questions that wait. They are put in by the event loop and taken out by the reader's thread."""

    def __init__(self) -> None:
        self._waiting: deque[Question] = deque()

    def ask(self, bot_id: int, since_ms: int) -> Question:
        question = Question(bot_id, since_ms)
        self._waiting.append(question)
        return question

    def answer(self, connection: apsw.Connection, question: Question) -> list[SentMessage]:
        """On the reader's thread. A reading that failed is made again for each who was to be answered by it."""
        if question.tries is None:
            together = {question}
            while self._waiting:  # nobody else takes from it
                together.add(self._waiting.popleft())
            _read(connection, list(together))
        assert question.tries is not None
        return question.tries


def _read(connection: apsw.Connection, questions: Sequence[Question]) -> None:
    bound = {
        "bots": msgspec.json.encode([one.bot_id for one in questions]).decode(),
        "since": min(one.since_ms for one in questions),
    }
    found: defaultdict[int, list[SentMessage]] = defaultdict(list)
    for bot_id, chat, weight, method, at_ms in connection.execute(_SQL["recent_tries"], bound):
        found[bot_id].append(SentMessage(chat=chat, weight=weight, at_ms=at_ms, is_edit=is_edit(method)))
    for one in questions:
        one.tries = [sent for sent in found[one.bot_id] if sent.at_ms >= one.since_ms]


# What people look for among letters in the SQLite store: pages, counts, causes of death. Functions on a connection.
#
# A look walks letters from the newest down along the index that fits its filter best, and never further than a bound.


# Which open letters of the SQLite store a look goes through, the newest first. Functions on a connection.
#
# The index of open letters is ordered bot by bot. So the bots' own walks are merged: a look costs one step to the
# newest of each bot that has any, and then what it looks at, however many letters lie behind.


_PEOPLE_SQL = load("sqlite_people.sql")
_FIRST_STRETCH, _STRETCH_MAX = 8, 1024  # ids that are read at once of a bot: few if it takes turns with many others

# The phase that such letters have, and the column of the tallies that counts them.
_PLACES: dict[State, tuple[int, str]] = {State.WAITING: (0, "in_lane"), State.DELAYED: (1, "apart")}


def is_walked(wanted: LetterFilter) -> bool:
    return rules.way_of(wanted) in rules.BOT_BY_BOT


def standing_of(connection: apsw.Connection, wanted: LetterFilter, of_bots: str, bound: dict[str, Value]) -> int:
    """How many letters stand where such letters do, from the tallies."""
    assert wanted.state is not None
    _, column = _PLACES[wanted.state]
    query = _PEOPLE_SQL["standing"].replace("{column}", column).replace("{of_bots}", of_bots)
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
    heads = _PEOPLE_SQL["heads"].replace("{column}", column).replace("{of_bots}", of_bots).replace("{within}", within)
    stretch = _PEOPLE_SQL["stretch"].replace("{within}", within)
    walks = [
        _walk(connection, stretch, bound | {"bot": bot_id}, int(head))
        for bot_id, head in connection.execute(heads, bound).fetchall()
        if head is not None
    ]
    if wanted.state is State.DELAYED:
        walks.append(iter(_ids(connection, _PEOPLE_SQL["newest_backing_off"].replace("{within}", within), bound)))
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


def _bots(bot_ids: Iterable[int]) -> str:
    return msgspec.json.encode(sorted(bot_ids)).decode()


def _among(name: str) -> str:
    return f"IN (SELECT value FROM json_each(:{name}))"  # noqa: S608  a name of ours


_AMONG_BOTS = _among("bot_ids")
DIALECT = rules.Dialect("instr", "cause_of(l.failed_reason)", _among, lambda chat: chat, _bots)


def page(
    connection: apsw.Connection, wanted: LetterFilter, *, before: int | None, limit: int, at_ms: int
) -> LetterPage:
    terms, bound = rules.where(wanted, at_ms, DIALECT)
    look = _Look(connection, wanted, before, bound)
    letters: list[LetterView] = []
    oldest: int | None = None
    for is_plain, most in look.steps():
        looked, asked = look.at(most, is_plain=is_plain)
        asked["limit"] = limit
        query = _PEOPLE_SQL["page"].replace("{looked}", looked).replace("{where}", terms)
        letters = [view_from_row(row, at_ms=at_ms) for row in connection.execute(query, asked)]
        oldest = None if len(letters) >= limit else _oldest(connection, looked, asked, most)
        if oldest is None:
            break
    return rules.turned(letters, limit=limit, oldest_looked=oldest)


def count(connection: apsw.Connection, wanted: LetterFilter, *, most: int, at_ms: int) -> Counted:
    terms, bound = rules.where(wanted, at_ms, DIALECT)
    looked, asked = _Look(connection, wanted, None, bound).at(rules.LOOKED_MAX)
    asked["limit"] = most
    query = _PEOPLE_SQL["count"].replace("{looked}", looked).replace("{where}", terms)
    ((letters,),) = connection.execute(query, asked)
    is_cut = letters < most and _oldest(connection, looked, asked, rules.LOOKED_MAX) is not None
    return Counted(letters=letters, is_least=letters >= most or is_cut)


def views(connection: apsw.Connection, letter_ids: Sequence[int], at_ms: int) -> list[LetterView]:
    ids: list[Row] = [(letter_id,) for letter_id in sorted(set(letter_ids))]
    return [view_from_row(row, at_ms=at_ms) for row in run_many(connection, _PEOPLE_SQL["views"], ids)]


def causes(
    connection: apsw.Connection, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int
) -> list[Cause]:
    bots = None if bot_ids is None else _bots(bot_ids)
    bound = {"since": since_ms or 0, "bot_ids": bots, "looked": rules.CAUSES_LOOKED_MAX}
    return rules.grouped(connection.execute(_PEOPLE_SQL["causes"], bound), limit=limit)


def oldest_waiting(connection: apsw.Connection) -> dict[int, int]:
    return {row[0]: row[1] for row in connection.execute(_PEOPLE_SQL["oldest_waiting"])}


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
        these = [] if wanted.ids is None else [f"o.id {_among('these')}"]
        self._within = " AND ".join(["1", *these, *(term for _, value, term in ids if value is not None)])
        self._of_bots = "1"
        if wanted.bot_id is not None:
            self._of_bots = "b.bot_id = :bot_id"
        elif wanted.bot_ids is not None:
            self._of_bots = f"b.bot_id {_AMONG_BOTS}"
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
            return _PEOPLE_SQL["newest_listed"], asked | {"ids": msgspec.json.encode(ids).decode()}
        way = "newest" if is_plain else rules.way_of(self._wanted)
        return _PEOPLE_SQL[way].replace("{within}", self._within).replace("{of_bots}", self._of_bots), asked


def _oldest(connection: apsw.Connection, looked: str, bound: dict[str, Value], most: int) -> int | None:
    """The oldest letter that was looked at, if the bound ended the look."""
    ((seen, oldest),) = connection.execute(_PEOPLE_SQL["looked"].replace("{looked}", looked), bound)
    return oldest if seen >= most else None


def _id_at(connection: apsw.Connection, at_ms: int | None, slack_ms: int) -> int | None:
    """The first id of then or later, with room on the safe side: ids rise with time as far as the clock does."""
    if at_ms is None:
        return None
    ((low, high),) = connection.execute(_PEOPLE_SQL["id_range"])
    while low < high:
        middle = (low + high) // 2
        row = next(connection.execute(_PEOPLE_SQL["created_at"], (middle,)))
        if row[1] < at_ms + slack_ms:
            low = row[0] + 1
        else:
            high = middle
    return int(low)
