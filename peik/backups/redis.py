"""A prefix of Redis as a part of a backup: written down while nobody writes, and put back under another prefix before it counts.

Redis has no snapshot that a client could read. So writes are held for as long as all keys are read (CLIENT PAUSE … WRITE), for
less than a lease lasts. Reads go on, and anyone who writes waits and loses nothing.
"""

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from redis import exceptions

from peik.backups.model import BackupPart, BackupWatch, Hold, broken, on_thread
from peik.errors import Conflict, StoreUnavailable, Unavailable
from peik.storage.redis.client import blocking_client

# Keys of Redis as records of a file: read in large pieces, many at once, and written again.


KEYS = 500  # asked for at once
FIELDS = 1000
_LENGTH_BYTES = 4


class RedisKeyRecord(msgspec.Struct, frozen=True, array_like=True):
    """A key, or a piece of a large one."""

    key: bytes  # behind the prefix
    type: str
    values: list[bytes]  # of a hash fields and values in turns, of a sorted set members and scores


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RedisKeyRecord).decode


_SIZE = {"hash": "HLEN", "zset": "ZCARD", "set": "SCARD", "list": "LLEN", "string": "EXISTS"}


def counts_of(client: Any, prefix: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    keys = sorted(set(client.scan_iter(match=f"{prefix}*", count=FIELDS)))
    for first in range(0, len(keys), KEYS):
        some = keys[first : first + KEYS]
        types = [kind.decode() for kind in asked(client, [("TYPE", key) for key in some])]
        count_in(counts, client, prefix, some, types)
    return dict(sorted(counts.items()))


def count_in(counts: dict[str, int], client: Any, prefix: str, keys: Sequence[bytes], types: Sequence[str]) -> None:
    """Fields and members by the first word of their key: letters, lane, documents …"""
    for kind in set(types) - _SIZE.keys():
        raise Unavailable(
            code="odd_key", detail=f"Redis has a key of a type that Peik does not use ({kind}) under its prefix."
        )
    sizes = asked(client, [(_SIZE[kind], key) for key, kind in zip(keys, types, strict=True)])
    for key, size in zip(keys, sizes, strict=True):
        group = key[len(prefix) :].decode(errors="replace").partition(":")[0]
        counts[group] = counts.get(group, 0) + int(size)


def records(client: Any, prefix: str, keys: Sequence[bytes], types: Sequence[str]) -> Iterator[RedisKeyRecord]:
    firsts = asked(client, [_reading(kind, key, 0) for key, kind in zip(keys, types, strict=True)])
    for key, kind, first in zip(keys, types, firsts, strict=True):
        name = key[len(prefix) :]
        match kind:
            case "string":
                yield RedisKeyRecord(name, kind, [first])
            case "list":
                yield from _list(client, key, name, first)
            case _:
                yield from _scanned(client, key, name, kind, first)


def _list(client: Any, key: bytes, name: bytes, values: list[bytes]) -> Iterator[RedisKeyRecord]:
    place = 0
    while values:
        yield RedisKeyRecord(name, "list", values)
        place += len(values)
        (values,) = asked(client, [_reading("list", key, place)])


def _scanned(client: Any, key: bytes, name: bytes, kind: str, answer: Any) -> Iterator[RedisKeyRecord]:
    while True:
        cursor, values = int(answer[0]), answer[1]
        if values:
            yield RedisKeyRecord(name, kind, list(values))
        if cursor == 0:
            return
        (answer,) = asked(client, [_reading(kind, key, cursor)])


def _reading(kind: str, key: bytes, place: int) -> Sequence[Any]:
    match kind:
        case "hash":
            return ("HSCAN", key, place, "COUNT", FIELDS)
        case "zset":
            return ("ZSCAN", key, place, "COUNT", FIELDS)
        case "set":
            return ("SSCAN", key, place, "COUNT", FIELDS)
        case "list":
            return ("LRANGE", key, place, place + FIELDS - 1)
        case _:
            return ("GET", key)


def writing(key: bytes, record: RedisKeyRecord) -> Sequence[Any]:
    values = record.values
    match record.type:
        case "hash":
            return ("HSET", key, *values)
        case "zset":
            return (
                "ZADD",
                key,
                *(one for place in range(0, len(values), 2) for one in (values[place + 1], values[place])),
            )
        case "set":
            return ("SADD", key, *values)
        case "list":
            return ("RPUSH", key, *values)
        case "string":
            return ("SET", key, values[0])
    raise broken(f"it holds a key of an unknown type ({record.type})")


def asked(client: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Raw answers, in one round trip. Scores stay the texts that they are, so that not a digit is lost."""
    if not commands:
        return []
    connection = client.connection_pool.get_connection()
    try:
        connection.send_packed_command(connection.pack_commands(commands))
        answers: list[Any] = [connection.read_response() for _ in commands]
        return answers
    except BaseException:
        connection.disconnect()
        raise
    finally:
        client.connection_pool.release(connection)


def put(file: BinaryIO, record: RedisKeyRecord) -> None:
    text = _encode(record)
    file.write(len(text).to_bytes(_LENGTH_BYTES, "big") + text)


def read(path: Path) -> Iterator[RedisKeyRecord]:
    with path.open("rb") as file:
        while length := file.read(_LENGTH_BYTES):
            try:
                yield _decode(file.read(int.from_bytes(length, "big")))
            except msgspec.DecodeError as error:
                raise broken(f"a key in it cannot be read ({error})") from None


FILE = "keys.msgpack"
ALONE_S = 600.0  # with nobody there who would wait
ANSWER_S = 60.0

# Everything under one prefix gives way to everything under another, in one step. KEYS: both prefixes, which share a hash tag.
_SWAP = """
local function each(prefix, act)
    local cursor = '0'
    repeat
        local found = redis.call('SCAN', cursor, 'MATCH', prefix .. '*', 'COUNT', 1000)
        cursor = found[1]
        for _, key in ipairs(found[2]) do act(key) end
    until cursor == '0'
end
each(KEYS[1], function(key) redis.call('UNLINK', key) end)
each(KEYS[2], function(key) redis.call('RENAME', key, KEYS[1] .. string.sub(key, #KEYS[2] + 1)) end)
"""


class RedisSource:
    """See `Source`."""

    kind = "redis"

    def __init__(self, url: str, *, prefix: str, shown: str, lease_s: float) -> None:
        self._url = url
        self._prefix = prefix
        self.shown = shown
        self._frozen_s_max = lease_s / 2  # nobody's lease may run out while it cannot be renewed

    # ---- copying ----

    async def copy(self, into: Path, *, name: str, hold: Hold, watch: BackupWatch) -> BackupPart:
        return await on_thread(watch, self._copy, into, name, hold, watch)

    def _copy(self, into: Path, name: str, hold: Hold, watch: BackupWatch) -> BackupPart:
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        watch.begin(f"Copying the {name}", 0)
        with self._connected() as client, self._frozen(client) as until, (into / FILE).open("wb") as file:
            counts = self._write_down(client, self._prefix, file, until, watch)
            hold(None)
            self._refuse_late(until)
        return BackupPart(name=name, kind=self.kind, shown=self.shown, counts=counts, label=self._prefix)

    @contextlib.contextmanager
    def _frozen(self, client: Any) -> Iterator[float]:
        """Nobody writes until the end of the block, or the instant that this gives."""
        bound_s = self._frozen_s_max if self._alive(client) else ALONE_S
        began = time.monotonic()
        try:
            client.client_pause(int(bound_s * 1000), all=False)
        except exceptions.ResponseError as error:
            if self._alive(client):
                raise Unavailable(
                    code="cannot_pause",
                    detail=f"This user of Redis may not hold writes (CLIENT PAUSE), without which a copy would be half old "
                    f"and half new: {error}. Allow it (ACL: +client|pause +client|unpause), or stop every node first.",
                ) from None
            yield began + ALONE_S
            return
        try:
            yield began + bound_s
        finally:
            client.client_unpause()

    def _refuse_late(self, until: float) -> None:
        if time.monotonic() >= until:
            raise Unavailable(
                code="too_slow",
                detail="This Redis holds more than can be copied while writes wait, which is half of PEIK_LEASE. Raise "
                "PEIK_LEASE, stop every node for the time of the backup, or have Redis itself save its files.",
            )

    def _write_down(self, client: Any, prefix: str, file: BinaryIO, until: float, watch: BackupWatch) -> dict[str, int]:
        counts: dict[str, int] = {}
        seen: set[bytes] = set()  # a scan may tell a key twice
        cursor = 0
        while True:
            cursor, found = client.scan(cursor, match=f"{prefix}*", count=KEYS)
            keys = [key for key in dict.fromkeys(found) if key not in seen]
            seen.update(keys)
            types = [kind.decode() for kind in asked(client, [("TYPE", key) for key in keys])]
            count_in(counts, client, prefix, keys, types)
            for record in records(client, prefix, keys, types):
                put(file, record)
            self._refuse_late(until)
            watch.step(len(keys))
            if cursor == 0:
                return dict(sorted(counts.items()))

    # ---- putting back ----

    def reserved(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    async def used_by(self) -> str | None:
        return await on_thread(BackupWatch(), self._used_by)

    def _used_by(self) -> str | None:
        with self._connected() as client:
            node = self._alive(client)
        return None if node is None else f"The node {node} runs on {self.shown}, or died a moment ago."

    def _alive(self, client: Any) -> str | None:
        seconds, micros = client.time()
        nodes = client.zrangebyscore(
            self._prefix + "alive", f"({seconds * 1000 + micros // 1000}", "+inf", start=0, num=1
        )
        return nodes[0].decode(errors="replace") if nodes else None

    async def is_empty(self) -> bool:
        return await on_thread(BackupWatch(), self._is_empty)

    def _is_empty(self) -> bool:
        with self._connected() as client:
            return next(iter(client.scan_iter(match=f"{self._prefix}*", count=FIELDS)), None) is None

    async def check(self, folder: Path, part: BackupPart, watch: BackupWatch) -> dict[str, int]:
        """Under a prefix of its own, which goes again."""
        return await on_thread(watch, self._check, folder, part, watch)

    def _check(self, folder: Path, part: BackupPart, watch: BackupWatch) -> dict[str, int]:
        watch.begin(f"Trying out the {part.name}", 0)
        with self._connected() as client, self._apart(client) as prefix:
            self._fill(client, prefix, folder / FILE, watch)
            return counts_of(client, prefix)

    async def put_back(self, folder: Path, part: BackupPart, watch: BackupWatch) -> None:
        await on_thread(watch, self._put_back, folder, part, watch)

    def _put_back(self, folder: Path, part: BackupPart, watch: BackupWatch) -> None:
        watch.begin(f"Putting the {part.name} back", 0)
        with self._connected() as client, self._apart(client) as prefix:
            self._fill(client, prefix, folder / FILE, watch)
            if counts_of(client, prefix) != part.counts:
                raise broken("what was put back is not what it says of itself")
            if (node := self._alive(client)) is not None:
                raise Conflict(
                    code="in_use", detail=f"The node {node} has begun to run on {self.shown}. Stop it first."
                )
            client.eval(_SWAP, 2, self._prefix, prefix)

    @contextlib.contextmanager
    def _apart(self, client: Any) -> Iterator[str]:
        tag = self._prefix[self._prefix.index("{") :]  # the same one, so that a cluster keeps them together
        prefix = f"peik-restoring-{secrets.token_hex(6)}{tag}"
        try:
            yield prefix
        finally:
            for key in client.scan_iter(match=f"{prefix}*", count=FIELDS):
                client.unlink(key)

    def _fill(self, client: Any, prefix: str, path: Path, watch: BackupWatch) -> None:
        commands: list[Sequence[Any]] = []
        for record in read(path):
            commands.append(writing(prefix.encode() + record.key, record))
            if len(commands) >= KEYS:
                asked(client, commands)
                watch.step(len(commands))
                commands.clear()
        asked(client, commands)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            client = blocking_client(self._url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S)
            with client:
                yield client
        except (exceptions.RedisError, ValueError) as error:
            raise StoreUnavailable(code="store_error", detail=f"Redis refused, or is gone: {error}.") from error
