"""What is secret in the Redis store, as it is stored: read and replaced. Records are made here; the script only compares."""

from collections.abc import Sequence
from typing import Any

from peik.secrets.seals import KeptSecret, SealChange, is_secret, place_of_bot, place_of_consumer, place_of_secret
from peik.storage.redis.client import RedisClient
from peik.storage.redis.commits import Commits
from peik.storage.redis.records import decode, encode

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
