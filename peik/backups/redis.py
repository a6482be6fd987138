"""A prefix of Redis as a part of a backup: written down while nobody writes, and put back under another prefix before it counts.

Redis has no snapshot that a client could read. So writes are held for as long as all keys are read (CLIENT PAUSE … WRITE), for
less than a lease lasts. Reads go on, and whoever writes waits and loses nothing.
"""

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import redis
from redis import exceptions

from peik.backups.manifest import Part, broken
from peik.backups.parts import Hold
from peik.backups.redis_keys import FIELDS, KEYS, asked, count_in, counts_of, put, read, records, writing
from peik.backups.watching import Watch, on_thread
from peik.errors import Conflict, StoreUnavailable, Unavailable

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

    async def copy(self, into: Path, *, name: str, hold: Hold, watch: Watch) -> Part:
        return await on_thread(watch, self._copy, into, name, hold, watch)

    def _copy(self, into: Path, name: str, hold: Hold, watch: Watch) -> Part:
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        watch.begin(f"Copying the {name}", 0)
        with self._connected() as client, self._frozen(client) as until, (into / FILE).open("wb") as file:
            counts = self._write_down(client, self._prefix, file, until, watch)
            hold(None)
            self._refuse_late(until)
        return Part(name=name, kind=self.kind, shown=self.shown, counts=counts, label=self._prefix)

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

    def _write_down(self, client: Any, prefix: str, file: BinaryIO, until: float, watch: Watch) -> dict[str, int]:
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
        return await on_thread(Watch(), self._used_by)

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
        return await on_thread(Watch(), self._is_empty)

    def _is_empty(self) -> bool:
        with self._connected() as client:
            return next(iter(client.scan_iter(match=f"{self._prefix}*", count=FIELDS)), None) is None

    async def check(self, folder: Path, part: Part, watch: Watch) -> dict[str, int]:
        """Under a prefix of its own, which goes again."""
        return await on_thread(watch, self._check, folder, part, watch)

    def _check(self, folder: Path, part: Part, watch: Watch) -> dict[str, int]:
        watch.begin(f"Trying out the {part.name}", 0)
        with self._connected() as client, self._apart(client) as prefix:
            self._fill(client, prefix, folder / FILE, watch)
            return counts_of(client, prefix)

    async def put_back(self, folder: Path, part: Part, watch: Watch) -> None:
        await on_thread(watch, self._put_back, folder, part, watch)

    def _put_back(self, folder: Path, part: Part, watch: Watch) -> None:
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

    def _fill(self, client: Any, prefix: str, path: Path, watch: Watch) -> None:
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
            client = redis.Redis.from_url(self._url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S)
            with client:
                yield client
        except (exceptions.RedisError, ValueError) as error:
            raise StoreUnavailable(code="store_error", detail=f"Redis refused, or is gone: {error}.") from error
