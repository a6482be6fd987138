"""Letters between the engines' values and what the scripts take and give."""

from collections.abc import Sequence
from typing import Any

import msgspec

from peik.core.letter import Chat, Draft, LaneKey, Letter, State, letter_of_draft
from peik.core.lifecycle import UNTRIED, Move, Settlement, Try
from peik.core.pace import PaceLimits
from peik.core.token import Token
from peik.errors import NotFound
from peik.outbox.store import (
    AcceptedLetter,
    BotRecord,
    ChatRecord,
    FoundInFlight,
    LaneView,
    LetterView,
    SentMessage,
    Stub,
    Sweep,
    Tally,
)
from peik.secrets.seals import Seals, place_of_bot
from peik.storage.news import NodeNews
from peik.storage.redis.client import RedisClient
from peik.storage.redis.records import (
    RANK_STEP,
    chat_key,
    chat_of,
    decode,
    lane_key,
    lane_of,
    letter_at,
    letter_numbered,
    pairs,
    record_of,
    record_with_params,
    record_with_rank,
    stub_of,
    view_of,
)
from peik.storage.redis.writer import CommitDone
from peik.storage.rules import Changed
from peik.storage.sqlite.rows import PHASE_OF

_DOUBT = '"outcome":"uncertain"'  # in a line of history; see core/lifecycle.py


# ---- in ----


def draft_row(draft: Draft, at_ms: int, among: list[bytes]) -> list[object]:
    """A draft for accept.lua; its record goes among those of the commit."""
    among.append(record_of(draft, at_ms))
    row: list[object] = [str(draft.bot_id), chat_key(draft.chat), draft.thread, draft.rank, len(among) + 1]
    if _has_usual_terms(draft):
        return row  # what is missing at its end is nil there
    is_later = draft.send_at_ms is not None and draft.send_at_ms > at_ms
    return [
        *row,
        draft.idempotency_key,
        draft.digest,
        draft.send_at_ms if is_later else None,
        draft.expires_at_ms,
        draft.target,
        None if draft.awaits is None else str(draft.awaits),
        [one.blob for one in draft.enclosed] or None,
        draft.is_too_late or None,
        draft.is_judged or None,
    ]


def _has_usual_terms(draft: Draft) -> bool:
    """Whether accept.lua has nothing to do for it but to give it a place in its lane."""
    return (
        draft.idempotency_key is None
        and draft.send_at_ms is None
        and draft.expires_at_ms is None
        and draft.target is None
        and draft.awaits is None
        and not draft.enclosed
        and not draft.may_lift
    )


def came_in(drafts: Sequence[Draft], done: CommitDone) -> tuple[list[AcceptedLetter], list[Letter]]:
    """What their caller is told, and those that came into their lanes and are still there at the end of the commit."""
    accepted: list[AcceptedLetter] = []
    fresh: list[Letter] = []
    for draft, (raw_id, number, state, is_repeat, moved) in zip(drafts, done.value, strict=True):
        letter_id = int(raw_id)
        if is_repeat:
            accepted.append(AcceptedLetter(letter_id=letter_id, state=State(state.decode()), is_repeat=True))
        elif not number or letter_id in done.superseded_here:
            accepted.append(AcceptedLetter(letter_id=letter_id, state=State.DELAYED))
        else:
            if moved is not None:
                draft = msgspec.structs.replace(draft, chat=chat_of(moved.decode()), is_moved=True)
            fresh.append(letter_of_draft(draft, letter_id=letter_id, number=number))
            accepted.append(AcceptedLetter(letter_id=letter_id, state=State.WAITING))
    return accepted, fresh


def tell_fresh(telling: NodeNews, fresh: Sequence[Letter]) -> None:
    for letter in fresh:
        telling.accepted(letter.bot_id, letter.id, letter.id)


def tell_due(telling: NodeNews, drafts: Sequence[Draft], accepted: Sequence[AcceptedLetter]) -> None:
    for draft, one in zip(drafts, accepted, strict=True):
        if not one.is_repeat:
            telling.due(draft.send_at_ms if one.state is State.DELAYED else None)
            telling.due(draft.expires_at_ms)


def tell_joined(telling: NodeNews, rows: Sequence[Any]) -> None:
    for row in rows:
        telling.lanes.add(letter_numbered(row).bot_id)


# ---- the sender's ----


def steps(
    settlements: Sequence[Settlement], marks: Sequence[Letter]
) -> tuple[list[object], list[object], list[object]]:
    """Tried, untried and marks for advance.lua."""
    tried: list[object] = []
    untried: list[object] = []
    for one in settlements:
        if one.move in UNTRIED:
            untried.append([str(one.letter_id), PHASE_OF[one.state], one.at_ms, one.failed_reason, one.entry])
        else:
            tried.append(_tried(one))
    rows: list[object] = [
        [
            str(letter.id),
            str(letter.bot_id),
            chat_key(letter.chat),
            letter.thread,
            letter.rank * RANK_STEP + letter.number,
            letter.attempts_made,
            letter.uncertain_tries,
        ]
        for letter in marks
    ]
    return tried, untried, rows


def _tried(one: Settlement) -> list[object]:
    may_have_arrived = one.move is Move.DELIVER or (one.entry is not None and _DOUBT in one.entry)
    return [
        str(one.letter_id),
        str(one.bot_id),
        PHASE_OF[one.state],
        one.at_ms,
        one.due_at_ms or None,
        one.attempts_made,
        one.uncertain_tries,
        one.failed_reason,
        one.result,
        one.entry,
        may_have_arrived or None,
    ]


async def sweep(
    client: RedisClient, bot_id: int, rank: int, after: LaneKey | None, *, lanes: int, letters: int
) -> Sweep:
    cursor = None if after is None else lane_key(after)
    (rows,) = await client.read(["sweep", str(bot_id), rank, cursor, lanes, letters + 1])
    found = {lane_of(lane): _cut(front, letters) for lane, front in rows}
    return Sweep(lanes=found, last=next(reversed(found)) if len(found) >= lanes else None)


async def fronts(
    client: RedisClient, bot_id: int, keys: Sequence[LaneKey], *, letters: int
) -> dict[LaneKey, FoundInFlight]:
    (rows,) = await client.read(["fronts", str(bot_id), [lane_key(key) for key in keys], letters + 1])
    return {key: _cut(front, letters) for key, front in zip(keys, rows, strict=True)}


def _cut(front: Sequence[Any], letters: int) -> FoundInFlight:
    """One more than wanted was asked for, to know whether there is more."""
    return FoundInFlight(letters=[letter_at(*row) for row in front[:letters]], more=len(front) > letters)


async def recent_tries(client: RedisClient, bot_id: int, since_ms: int) -> list[SentMessage]:
    (lines,) = await client.read(["recent", str(bot_id), since_ms])
    tries = []
    for line in lines:
        at_ms, _, weight, chat = line.decode().split(" ", 3)
        count = int(weight)  # below zero: an edit
        tries.append(SentMessage(chat=chat_of(chat), weight=abs(count), at_ms=int(at_ms), is_edit=count < 0))
    return tries


# ---- people's ----


async def lanes(client: RedisClient, bot_id: int, chat: Chat | None, *, limit: int, most: int) -> list[LaneView]:
    (rows,) = await client.read(["lanes", str(bot_id), None if chat is None else chat_key(chat), limit])
    found = []
    for key, head, waiting in rows:
        own, thread = lane_of(key)
        if chat is None or own == chat:
            view = LaneView(bot_id=bot_id, chat=own, thread=thread, head=int(head), waiting=min(waiting, most))
            found.append(view)
    return found


async def tallies(client: RedisClient, at_ms: int) -> dict[int, Tally]:
    (rows,) = await client.read(["tallies", at_ms])
    counted = {}
    for bot, counts, active, backs_off in rows:
        in_lane, apart, completed, failed, cancelled = (int(one or 0) for one in counts)
        counted[int(bot)] = Tally(
            waiting=in_lane - active - backs_off,
            delayed=apart + backs_off,
            active=active,
            completed=completed,
            failed=failed,
            cancelled=cancelled,
        )
    return counted


async def rank_changed(client: RedisClient, letter_id: int, rank: int | None) -> bytes | None:
    """The record of a letter with another rank. None: nothing is to be changed, or there is no such letter."""
    if rank is None:
        return None
    (rows,) = await client.read(["views", [str(letter_id)]])
    return record_with_rank(rows[0][0], rank) if rows[0] is not None else None


async def params_changed(client: RedisClient, letter_id: int, params: str) -> bytes:
    """The record of a letter with other parameters."""
    (rows,) = await client.read(["views", [str(letter_id)]])
    if rows[0] is None:
        raise NotFound(code="unknown_letter", detail=f"There is no letter {letter_id} here (any more).")
    return record_with_params(rows[0][0], params)


def change_of(answer: Sequence[Any]) -> Changed:
    """What a change did to a lane, as people.lua tells it."""
    did, stub, came = answer[0].decode(), stub_of(answer[1]), answer[2]
    return Changed(
        left=stub if did == "left" else None,
        stands=stub if did == "stands" else None,
        came=letter_numbered(came) if did == "came" else None,
    )


def ended_views(rows: Sequence[Any], at_ms: int) -> list[LetterView]:
    return [view_of(int(letter_id), (record, state, None), at_ms=at_ms) for letter_id, record, state in rows]


def stub_of_view(view: LetterView) -> Stub:
    return Stub(letter_id=view.id, bot_id=view.bot_id, lane=(view.chat, view.thread))


def retried(at_ms: int) -> str:
    return _line(at_ms, Move.RETRY, "sent again by hand")


def resolved(at_ms: int) -> str:
    return _line(at_ms, Move.RESOLVE, "somebody saw that it had arrived")


def _line(at_ms: int, move: Move, words: str) -> str:
    return msgspec.json.encode(Try(at=at_ms, outcome=str(move), words=words)).decode()


# Bots, chats, holds and files in the Redis store, read as values.


def bot_row(record: BotRecord, seals: Seals) -> list[object]:
    """False, and not nothing, stands for what is not there: Lua would take an array with gaps for a map."""
    limits = None if record.limits is None else msgspec.json.encode(record.limits).decode()
    row = (
        seals.seal(record.token.reveal(), place=place_of_bot(record.bot_id)),
        record.username,
        record.inbound,
        record.paused,
        limits,
        record.missed,
        record.me,
        record.created_at_ms,
    )
    return [False if value is None else value for value in row]


async def bots(client: RedisClient, seals: Seals) -> list[BotRecord]:
    rows: dict[bytes, bytes] = await client.ask(client.redis.hgetall(client.prefix + "bots"))
    found = [_bot(int(bot), decode(row), seals) for bot, row in rows.items()]
    return sorted(found, key=lambda bot: (bot.created_at_ms, bot.bot_id))


def _bot(bot_id: int, row: list[object], seals: Seals) -> BotRecord:
    token, username, inbound, paused, limits, missed, me, created_at = (
        None if value is False else value for value in row
    )
    return msgspec.convert(
        {
            "bot_id": bot_id,
            "token": Token.stored(seals.open(str(token), place=place_of_bot(bot_id))),
            "username": username,
            "inbound": inbound,
            "paused": paused,
            "limits": None if limits is None else msgspec.json.decode(str(limits), type=PaceLimits),
            "missed": missed,
            "me": me,
            "created_at_ms": created_at or 0,
        },
        BotRecord,
    )


class _Known(msgspec.Struct, frozen=True):
    r: str | None = None
    t: int | None = None
    h: int | None = None


_decode_known = msgspec.msgpack.Decoder(_Known).decode


async def chats(client: RedisClient, bot_id: int) -> list[ChatRecord]:
    ((flat_aliases, flat_known),) = await client.read(["chats", str(bot_id)])
    aliases, known = pairs(flat_aliases), pairs(flat_known)
    names = sorted(aliases.keys() | known.keys())
    return [_record(bot_id, name, aliases.get(name), known.get(name)) for name in names]


async def known_chats(client: RedisClient, bot_id: int, after: Chat | None, limit: int) -> list[ChatRecord]:
    (rows,) = await client.read(["known_chats", str(bot_id), None if after is None else chat_key(after), limit])
    return [_record(bot_id, name.decode(), alias, known) for name, alias, known in rows]


def _record(bot_id: int, name: str, alias: bytes | None, raw: bytes | None) -> ChatRecord:
    known = _Known() if raw is None else _decode_known(raw)
    return ChatRecord(
        bot_id=bot_id,
        chat=chat_of(name),
        same_as=None if alias is None else int(alias[1:]),
        shut_reason=known.r,
        shut_at_ms=known.t,
        held_until_ms=known.h,
    )


async def held_until(client: RedisClient, bot_id: int) -> int:
    found: bytes | None = await client.ask(client.redis.hget(client.prefix + "holds", str(bot_id)))
    return int(found or 0)


async def file_id(client: RedisClient, bot_id: int, field: str) -> str | None:
    found: bytes | None = await client.ask(client.redis.hget(f"{client.prefix}files:{bot_id}", field))
    return None if found is None else found.decode()


async def blobs(client: RedisClient) -> set[str]:
    """Walked in steps: there may be as many as letters."""
    needed: set[str] = set()
    cursor = 0
    while True:
        page: tuple[int, dict[bytes, bytes]] = await client.ask(
            client.redis.hscan(client.prefix + "blobs", cursor, count=1000)
        )
        cursor, rows = page
        for row in rows.values():
            needed.update(str(blob) for blob in decode(row))
        if not cursor:
            return needed
