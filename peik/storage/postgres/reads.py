"""What the PostgreSQL store reads: fronts of lanes for the engines, views for people. Functions on a session, no state."""

from collections.abc import Iterable, Sequence

import msgspec

from peik.core.letter import LaneKey, Letter, State
from peik.core.lifecycle import Try
from peik.core.pace import PaceLimits
from peik.core.token import Token
from peik.outbox.store import BotRecord, ChatRecord, FoundInFlight, LetterView, SentMessage, Sweep, Tally
from peik.secrets.seals import PLAIN, Seals, place_of_bot
from peik.storage.postgres import queries
from peik.storage.postgres.queries import filled, load
from peik.storage.postgres.session import PostgresSession, Row
from peik.storage.sqlite.rows import LETTER_COLUMNS, letter_from_row, view_from_row

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
        SentMessage(chat=queries.decode(chat), weight=weight, at_ms=at)
        for chat, weight, at in await session.rows(_SQL["recent_sends"], **bound)
    ]
    for chat, weight, history in await session.rows(_SQL["recent_histories"], **bound):
        sent.extend(
            SentMessage(chat=queries.decode(chat), weight=weight, at_ms=one.at)
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
    return [
        BotRecord(
            bot_id=row["bot_id"],
            token=Token.stored(seals.open(row["token"], place=place_of_bot(row["bot_id"]))),
            username=row["username"],
            inbound=row["inbound"],
            paused=row["paused"],
            limits=None if row["limits"] is None else msgspec.json.decode(row["limits"], type=PaceLimits),
            missed=row["missed"],
            me=row["me"],
            created_at_ms=row["created_at"],
        )
        for row in await session.rows(_SQL["bots"])
    ]


async def known(session: PostgresSession, bot_id: int) -> list[ChatRecord]:
    return [chat_of(bot_id, row) for row in await session.rows(_SQL["chats"], bot=bot_id)]


def chat_of(bot_id: int, row: Row) -> ChatRecord:
    return ChatRecord(
        bot_id=bot_id,
        chat=queries.decode(row[0]),
        same_as=row[1],
        shut_reason=row[2],
        shut_at_ms=row[3],
        held_until_ms=row[4],
    )


async def blobs(session: PostgresSession) -> set[str]:
    return {one["blob"] for row in await session.rows(_SQL["blobs"]) for one in msgspec.json.decode(row[0])}
