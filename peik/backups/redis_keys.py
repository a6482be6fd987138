"""Keys of Redis as records of a file: read in large pieces, many at once, and written again."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from peik.backups.manifest import broken
from peik.errors import Unavailable

KEYS = 500  # asked for at once
FIELDS = 1000
_LENGTH_BYTES = 4


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A key, or a piece of a large one."""

    key: bytes  # behind the prefix
    type: str
    values: list[bytes]  # of a hash fields and values in turns, of a sorted set members and scores


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


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
    """Fields and members by the first word of their key: letters, lane, papers …"""
    for kind in set(types) - _SIZE.keys():
        raise Unavailable(
            code="odd_key", detail=f"Redis has a key of a type that Peik does not use ({kind}) under its prefix."
        )
    sizes = asked(client, [(_SIZE[kind], key) for key, kind in zip(keys, types, strict=True)])
    for key, size in zip(keys, sizes, strict=True):
        group = key[len(prefix) :].decode(errors="replace").partition(":")[0]
        counts[group] = counts.get(group, 0) + int(size)


def records(client: Any, prefix: str, keys: Sequence[bytes], types: Sequence[str]) -> Iterator[Record]:
    firsts = asked(client, [_reading(kind, key, 0) for key, kind in zip(keys, types, strict=True)])
    for key, kind, first in zip(keys, types, firsts, strict=True):
        name = key[len(prefix) :]
        match kind:
            case "string":
                yield Record(name, kind, [first])
            case "list":
                yield from _list(client, key, name, first)
            case _:
                yield from _scanned(client, key, name, kind, first)


def _list(client: Any, key: bytes, name: bytes, values: list[bytes]) -> Iterator[Record]:
    place = 0
    while values:
        yield Record(name, "list", values)
        place += len(values)
        (values,) = asked(client, [_reading("list", key, place)])


def _scanned(client: Any, key: bytes, name: bytes, kind: str, answer: Any) -> Iterator[Record]:
    while True:
        cursor, values = int(answer[0]), answer[1]
        if values:
            yield Record(name, kind, list(values))
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


def writing(key: bytes, record: Record) -> Sequence[Any]:
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


def put(file: BinaryIO, record: Record) -> None:
    text = _encode(record)
    file.write(len(text).to_bytes(_LENGTH_BYTES, "big") + text)


def read(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        while length := file.read(_LENGTH_BYTES):
            try:
                yield _decode(file.read(int.from_bytes(length, "big")))
            except msgspec.DecodeError as error:
                raise broken(f"a key in it cannot be read ({error})") from None
