"""What the SQLite store reads: fronts of lanes for the engines, views for people. Functions on a connection, no state."""

from collections import defaultdict, deque
from collections.abc import Sequence

import apsw
import msgspec

from peik.core.letter import Chat, LaneKey, Letter, State
from peik.core.pace import PaceLimits
from peik.core.token import Token
from peik.outbox.store import BotRecord, ChatRecord, FoundInFlight, LetterView, SentMessage, Sweep, Tally
from peik.secrets.seals import PLAIN, Seals, place_of_bot
from peik.storage.sqlite.rows import LETTER_COLUMNS, letter_from_row, letters_from_json, view_from_row
from peik.storage.sqlite.statements import Row, Value, load

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
    return [
        BotRecord(
            bot_id=row[0],
            token=Token.stored(seals.open(row[1], place=place_of_bot(row[0]))),
            username=row[2],
            inbound=row[3],
            paused=row[4],
            limits=None if row[5] is None else msgspec.json.decode(row[5], type=PaceLimits),
            missed=row[6],
            me=row[7],
            created_at_ms=row[8],
        )
        for row in connection.execute(_SQL["bots"])
    ]


def chats(connection: apsw.Connection, bot_id: int) -> list[ChatRecord]:
    return [
        ChatRecord(
            bot_id=bot_id,
            chat=_chat(row[0]),
            same_as=row[1],
            shut_reason=row[2],
            shut_at_ms=row[3],
            held_until_ms=row[4],
        )
        for row in connection.execute(_SQL["chats"], (bot_id,))
    ]


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


def _chat(value: object) -> Chat:
    return value if isinstance(value, int) else str(value)


# What the last minute's sends were, for senders that begin: asked of the SQLite store by a thousand of them at once.
#
# Finding one bot's means to look through everybody's. So whoever has asked by the time of a reading is answered by
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
    for bot_id, chat, weight, at_ms in connection.execute(_SQL["recent_tries"], bound):
        found[bot_id].append(SentMessage(chat=chat, weight=weight, at_ms=at_ms))
    for one in questions:
        one.tries = [sent for sent in found[one.bot_id] if sent.at_ms >= one.since_ms]
