"""Bots, chats, holds and files in the Redis store, read as values."""

import msgspec

from peik.core.letter import Chat
from peik.core.pace import Limits
from peik.core.token import Token
from peik.ports import BotRecord, ChatRecord
from peik.seals import Seals, place_of_bot
from peik.store.redis.client import Client
from peik.store.redis.records import chat_key, chat_of, decode, pairs


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


async def bots(client: Client, seals: Seals) -> list[BotRecord]:
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
            "limits": None if limits is None else msgspec.json.decode(str(limits), type=Limits),
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


async def chats(client: Client, bot_id: int) -> list[ChatRecord]:
    ((flat_aliases, flat_known),) = await client.read(["chats", str(bot_id)])
    aliases, known = pairs(flat_aliases), pairs(flat_known)
    names = sorted(aliases.keys() | known.keys())
    return [_record(bot_id, name, aliases.get(name), known.get(name)) for name in names]


async def known_chats(client: Client, bot_id: int, after: Chat | None, limit: int) -> list[ChatRecord]:
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


async def held_until(client: Client, bot_id: int) -> int:
    found: bytes | None = await client.ask(client.redis.hget(client.prefix + "holds", str(bot_id)))
    return int(found or 0)


async def file_id(client: Client, bot_id: int, field: str) -> str | None:
    found: bytes | None = await client.ask(client.redis.hget(f"{client.prefix}files:{bot_id}", field))
    return None if found is None else found.decode()


async def blobs(client: Client) -> set[str]:
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
