"""Forgetting a person in the Redis store. What is removed is out of the memory at once; out of the append-only file once that is
written again, which is asked for at the end."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import msgspec
from redis import exceptions

from peik.core.arrival import FORGOTTEN_LANE
from peik.erasure.model import ErasedPerson
from peik.erasure.store import Blank, KeptKey, LoggedLine, Traces
from peik.errors import StoreUnavailable
from peik.secrets.seals import KeptSecret, SealChange, is_secret, place_of_bot, place_of_consumer, place_of_secret
from peik.storage.news import NodeNews
from peik.storage.redis import inbox_records
from peik.storage.redis.client import RedisClient
from peik.storage.redis.commits import Commits
from peik.storage.redis.documents import RedisContacts, name_of
from peik.storage.redis.inbox_records import read_story
from peik.storage.redis.jobs import RedisJobs
from peik.storage.redis.records import chat_key, chat_of, decode, encode
from peik.storage.rules import scrubbed_lines, scrubbed_story

_PAGE = 1000
SNAPSHOT = (
    "A snapshot of Redis on disk (dump.rdb), and its replicas' files, hold what they held until they are rewritten."
)


class _Logged(msgspec.Struct, frozen=True):
    bot: str
    chat: str | None = None
    user: str | None = None
    error: str | None = None
    text: str | None = None


_decode_logged = msgspec.msgpack.Decoder(_Logged).decode


class RedisForgetting:
    """See `peik.erasure.store.Forgetting`. Made by the store when it is opened."""

    def __init__(self, client: RedisClient, commits: Commits, *, contacts: RedisContacts, jobs: RedisJobs) -> None:
        self._client = client
        self._commits = commits
        self._contacts = contacts
        self._jobs = jobs

    # ---- letters ----

    async def drop_letters(self, letter_ids: Sequence[int]) -> int:
        ids = {str(one) for one in letter_ids}
        if not ids:
            return 0
        fields = [field async for field, raw in self._walk("idempotency") if str(decode(raw)[1]) in ids]
        hooks = [field async for field, raw in self._walk("hooks") if str(decode(raw)["letter"]) in ids]
        gone: int = await self._commits.write("forget_letters", sorted(ids, key=int), fields, hooks)
        return gone

    async def logged(self, cursor: str | None, limit: int) -> tuple[list[LoggedLine], str | None]:
        following, rows = await self._page("log", cursor, limit)
        lines: list[LoggedLine] = []
        for field, raw in rows:
            one = _decode_logged(raw)
            chat = None if one.chat is None else chat_of(one.chat)
            lines.append(
                LoggedLine(
                    id=int(field), bot_id=int(one.bot), chat=chat, user_id=one.user, error=one.error, text=one.text
                )
            )
        return lines, following

    async def drop_logged(self, ids: Sequence[int]) -> int:
        gone: int = await self._commits.write("forget_logged", [str(one) for one in ids])
        return gone

    async def kept_keys(self, cursor: str | None, limit: int) -> tuple[list[KeptKey], str | None]:
        following, rows = await self._page("idempotency", cursor, limit)
        parted = [field.partition(":") for field, _ in rows]
        return [KeptKey(bot_id=int(bot), key=key) for bot, _, key in parted], following

    async def drop_keys(self, keys: Sequence[KeptKey]) -> int:
        gone: int = await self._commits.write("forget_keys", [f"{one.bot_id}:{one.key}" for one in keys])
        return gone

    # ---- arrivals ----

    async def blank_arrivals(self, blanks: Sequence[Blank], *, person: ErasedPerson) -> int:
        arrivals = {one.id: one for one in await inbox_records.those(self._client, [one.arrival_id for one in blanks])}
        readers = {
            bot: await inbox_records.consumers(self._client, bot) for bot in {a.bot_id for a in arrivals.values()}
        }
        rows: list[object] = []
        for one in blanks:
            arrival = arrivals.get(one.arrival_id)
            if arrival is None:
                continue
            seen = [reader.id for reader in readers[arrival.bot_id] if arrival.only_for in (None, reader.id)]
            stories = [await self._story(reader, arrival.number, person, one.is_theirs) for reader in seen]
            told = [story for story in stories if story is not None]
            rows.append([str(one.arrival_id), one.payload, len(one.payload.encode()), one.is_theirs, told])
        blanked: int = await self._commits.write("forget_arrivals", rows, chat_key(FORGOTTEN_LANE))
        return blanked

    async def _story(self, consumer_id: int, number: int, person: ErasedPerson, is_theirs: bool) -> list[object] | None:
        ((raw,),) = await self._client.read(["stories", str(consumer_id), [str(number)]])
        if raw is None:
            return None
        reason, lines = read_story(raw)
        reason, _ = scrubbed_story(person, reason, "[]", is_theirs=is_theirs)
        return [str(consumer_id), reason or False, scrubbed_lines(person, lines, is_theirs=is_theirs)]

    # ---- what a bot knows of a chat ----

    async def traces(self, bot_id: int, chat_id: int) -> Traces:
        contact = await self._contacts.contact(bot_id, chat_id)
        redis, prefix, known = self._client.redis, self._client.prefix, 0
        for key in _keys(chat_id):
            known += int(await self._client.ask(redis.hexists(f"{prefix}chats:{bot_id}", key)))
            known += int(await self._client.ask(redis.hexists(f"{prefix}alias:{bot_id}", key)))
            known += int(await self._client.ask(redis.scard(f"{prefix}alias_of:{bot_id}:{key}")))
        handled = await self._handled(bot_id, chat_id)
        return Traces(contacts=int(contact is not None), chats=known, handled=len(handled))

    async def drop_traces(self, bot_id: int, chat_id: int) -> Traces:
        handled = await self._handled(bot_id, chat_id)

        def news(telling: NodeNews, _: object) -> None:
            telling.chats.add(bot_id)

        contacts = await self._contacts.forget(bot_id, name_of(chat_id))
        known, notes = await self._commits.write("forget_chat", str(bot_id), _keys(chat_id), handled, news=news)
        return Traces(contacts=contacts, chats=known, handled=notes)

    async def _handled(self, bot_id: int, chat_id: int) -> list[str]:
        return [field async for field, _ in self._walk(f"handled:{bot_id}", match=f"{chat_key(chat_id)}|*")]

    # ---- jobs ----

    async def drop_jobs(self, job_ids: Sequence[int]) -> int:
        return await self._jobs.forget(job_ids)

    async def drop_job_days(self, users: Sequence[str], *, is_dry: bool) -> int:
        return await self._jobs.forget_days(users, is_dry=is_dry)

    # ---- the files ----

    async def overwrite(self, *, is_on: bool) -> None:
        """Nothing is left in memory."""

    async def wipe(self, *, is_alone: bool) -> list[str]:
        redis = self._client.redis
        try:
            about: dict[str, Any] = await self._client.ask(redis.info("persistence"))
            if not int(about.get("aof_enabled", 0)):
                return [SNAPSHOT]
            await self._client.ask(redis.bgrewriteaof())
        except (StoreUnavailable, exceptions.RedisError) as error:
            return [
                f"Redis did not rewrite its append-only file ({type(error).__name__}): run BGREWRITEAOF.",
                SNAPSHOT,
            ]
        return ["Redis rewrites its append-only file; until it has, the old one holds what was removed.", SNAPSHOT]

    # ---- walking ----

    async def _page(self, name: str, cursor: str | None, limit: int) -> tuple[str | None, list[tuple[str, bytes]]]:
        """The server's own cursor: what stays there from the first page to the last is seen."""
        page = self._client.redis.hscan(self._client.prefix + name, int(cursor or 0), count=limit)
        answer: tuple[int, dict[bytes, bytes]] = await self._client.ask(page)
        following, rows = answer
        found = [(field.decode(), raw) for field, raw in rows.items()]
        return str(following) if following else None, found

    async def _walk(self, name: str, match: str | None = None) -> AsyncIterator[tuple[str, bytes]]:
        scan = partial(self._client.redis.hscan, self._client.prefix + name, match=match, count=_PAGE)
        cursor = 0
        while True:
            page: tuple[int, dict[bytes, bytes]] = await self._client.ask(scan(cursor))
            cursor, rows = page
            for field, raw in rows.items():
                yield field.decode(), raw
            if not cursor:
                return


def _keys(chat_id: int) -> list[str]:
    return [chat_key(chat_id), chat_key(f"user:{chat_id}")]


# What is secret in the Redis store, as it is stored: read and replaced. Records are made here; the script only
# compares.


_HASHES = ("bots", "keys", "consumers", "secrets")


class RedisSealed:
    """See `peik.secrets.seals.SealStore`."""

    def __init__(self, client: RedisClient, commits: Commits) -> None:
        self._client = client
        self._submit = commits.submit

    async def kept(self) -> list[KeptSecret]:
        return [KeptSecret(place=row.place, text=row.text) for row in await self._rows()]

    async def change(self, changes: Sequence[SealChange]) -> int:
        rows = {row.place: row for row in await self._rows()}
        wanted: list[tuple[str, str, bytes | None, bytes | None]] = []
        for one in changes:
            row = rows.get(one.place)
            if one.before is None and one.place.startswith("secret:"):
                wanted.append(("secrets", one.place.partition(":")[2], None, _bytes(one.after)))
            elif row is not None and row.text == one.before:
                wanted.append(
                    (row.hash, row.field, row.record, None if one.after is None else row.with_text(one.after))
                )

        def build(among: list[bytes]) -> list[object]:
            return [
                "replace_fields",
                [[hash_, field, _place(among, old), _place(among, new)] for hash_, field, old, new in wanted],
            ]

        return await self._submit(build, lambda done: int(done.value))

    async def is_ours(self) -> bool:
        return True

    async def scrub(self, traces: Sequence[str], *, may_rewrite: bool) -> str | None:
        """In memory nothing is left. Its files are the server's own: see docs/secrets.md."""
        return None

    async def _rows(self) -> list["_Row"]:
        found: list[_Row] = []
        for name in _HASHES:
            fields: dict[bytes, bytes] = await self._client.ask(self._client.redis.hgetall(self._client.prefix + name))
            found += [
                row for field, record in fields.items() if (row := _row(name, field.decode(), record)) is not None
            ]
        return sorted((row for row in found if is_secret(row.text)), key=lambda row: row.place)


class _Row:
    """A field of a hash, what is secret in its record, and how the record looks with another text."""

    def __init__(self, hash_: str, field: str, record: bytes, *, place: str, text: str) -> None:
        self.hash, self.field, self.record = hash_, field, record
        self.place, self.text = place, text

    def with_text(self, text: str) -> bytes:
        if self.hash == "secrets":
            return text.encode()
        record: Any = decode(self.record)
        if self.hash == "bots":
            record[0] = text
        else:
            record["webhook_secret" if self.hash == "keys" else "secret"] = text
        return encode(record)


def _row(hash_: str, field: str, record: bytes) -> _Row | None:
    if hash_ == "secrets":
        return _Row(hash_, field, record, place=place_of_secret(field), text=record.decode())
    read: Any = decode(record)
    match hash_:
        case "bots":
            text, place = read[0], place_of_bot(int(field))
        case "keys":
            text, place = read["webhook_secret"], f"key:{read['digest']}"
        case _:
            text, place = read.get("secret"), place_of_consumer(int(read["bot"]), read["name"])
    return _Row(hash_, field, record, place=place, text=text) if text else None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _place(among: list[bytes], record: bytes | None) -> int | bool:
    """Where the script finds it in ARGV; False: nowhere."""
    if record is None:
        return False
    among.append(record)
    return len(among) + 1
