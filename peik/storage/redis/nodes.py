"""The nodes of one Redis server: their leases, their locks, what each hears of the others, and how durable the server is.

Leases last as long as their node's sign of life, by the server's clock; see lua/lease.lua and lua/nodes.lua. An epoch is the
server's time in milliseconds, or one more than the last if that is later. So a server that crashed and lost its last second
(`appendfsync everysec`) gives no epoch twice, unless its clock was set back by more than it was away. A node whose lease was
lost in this way is told nothing, but it can do no harm: its marks do not take, and its next beat shows that the bot is not its
own any more. Marks that were lost with that second are another matter: what they were for is sent again, and nobody knows. That
is why `durability` asks for `always`.
"""

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from peik import __version__
from peik.core.letter import Letter
from peik.core.nodes import Beat, News, NodeRecord
from peik.storage.redis.client import RedisClient, has_replicas, weaknesses
from peik.storage.redis.commits import Commits, RedisNews
from peik.storage.redis.records import letter_at, pairs

_LETTERS_AT_ONCE = 1000  # ids that one call of the server looks at


class _Node(msgspec.Struct, frozen=True):
    """See nodes.lua, where it is written."""

    v: str
    s: int
    n: int
    a: str | None = None
    d: bool = False
    q: bool = False


_decode_node = msgspec.msgpack.Decoder(_Node).decode


class RedisNodes:
    """See `peik.core.nodes.NodeStore`. Made by the store when it is opened; a node from its first beat on."""

    def __init__(
        self,
        client: RedisClient,
        commits: Commits,
        bell: RedisNews,
        *,
        node: str,
        lease_s: float,
        address: str | None,
    ) -> None:
        self._client = client
        self._commits = commits
        self._bell = bell
        self._address = address
        # Remembered here too: a node that was taken for dead is forgotten there.
        self._started_at_ms: int | None = None
        self._is_asked_to_drain = False
        self.node = node
        self.lease_s = lease_s

    # ---- leases ----

    async def beat(self, *, is_draining: bool = False) -> Beat:
        asked_at = asyncio.get_running_loop().time()
        held, surplus, _, is_asked, started_at = await self._commits.write(
            "beat",
            __version__,
            self._address,
            self._started_at_ms,
            self._lease_ms,
            is_draining,
            self._is_asked_to_drain,
            news=lambda telling, answer: telling.leases() if answer[2] else None,
        )
        self._is_asked_to_drain = bool(is_asked)
        self._started_at_ms = started_at
        leases = {int(bot): int(epoch) for bot, epoch in zip(held[::2], held[1::2], strict=True)}
        self._bell.held.beaten(leases, until=asked_at + self.lease_s)
        return Beat(leases=leases, surplus=surplus)

    async def release(self, bot_ids: Sequence[int]) -> None:
        if bot_ids:
            self._bell.held.gone(bot_ids)
            bots = [str(bot_id) for bot_id in bot_ids]
            await self._commits.write("release", bots, news=lambda telling, _: telling.leases())

    async def leave(self) -> None:
        """Give everything back: others may take it at once."""
        self._bell.held.beaten((), until=0.0)
        await self._commits.write("leave", news=lambda telling, was_node: telling.leases() if was_node else None)

    # ---- locks ----

    async def take_lock(self, name: str) -> bool:
        return bool(await self._commits.write("take_lock", name, self._lease_ms))

    async def drop_lock(self, name: str) -> None:
        await self._commits.write("drop_lock", name)

    async def is_locked(self, name: str) -> bool:
        (is_locked,) = await self._client.read(["is_locked", name])
        return bool(is_locked)

    # ---- each other ----

    async def nodes(self) -> list[NodeRecord]:
        ((now, ends, records, leases),) = await self._client.read(["nodes"])
        bots: dict[str, list[int]] = {}
        for bot, lease in pairs(leases).items():
            bots.setdefault(lease.decode().partition(" ")[2], []).append(int(bot))
        known = pairs(records)
        living = [name for name, end in pairs(ends).items() if float(end) > now]
        return [_record(name, _decode_node(known[name]), bots.get(name, [])) for name in sorted(living)]

    async def drain_node(self, name: str, *, is_draining: bool) -> bool:
        known = await self._commits.write(
            "drain_node", name, is_draining, news=lambda telling, known: telling.leases() if known else None
        )
        return bool(known)

    async def news(self) -> News:
        return await self._bell.news()

    # ---- letters that others accepted ----

    async def new_letters(self, ranges: Sequence[tuple[int, int, int]]) -> list[Letter]:
        found: list[Letter] = []
        for group in _groups(ranges):
            for rows in await self._client.read(
                *(["new_letters", str(bot), first, last] for bot, first, last in group)
            ):
                found += [letter_at(*row) for row in rows]
        return sorted(found, key=lambda letter: (letter.bot_id, letter.number))

    async def last_numbers(self) -> dict[int, int]:
        (flat,) = await self._client.read(["last_numbers", self.node])
        return {int(bot): int(number) for bot, number in pairs(flat).items()}

    async def durability(self) -> list[str]:
        return await self._client.ask(weaknesses(self._client.redis))

    async def failover_loses(self) -> bool:
        return not self._client.waits_for_replicas and await self._client.ask(has_replicas(self._client.redis))

    @property
    def _lease_ms(self) -> int:
        return int(self.lease_s * 1000)


def _groups(ranges: Sequence[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """What one call of the server looks at together, and the next: none of them has too many ids."""
    group: list[tuple[int, int, int]] = []
    room = _LETTERS_AT_ONCE
    for bot_id, first_id, last_id in ranges:
        while first_id <= last_id:
            end = min(last_id, first_id + room - 1)
            group.append((bot_id, first_id, end))
            room -= end - first_id + 1
            first_id = end + 1
            if not room:
                yield group
                group, room = [], _LETTERS_AT_ONCE
    if group:
        yield group


def _record(name: str, node: _Node, bots: list[int]) -> NodeRecord:
    return NodeRecord(
        name=name,
        version=node.v,
        address=node.a,
        started_at_ms=node.s,
        seen_at_ms=node.n,
        is_draining=node.d or node.q,
        bots=tuple(sorted(bots)),
    )


# Files of letters on the server, in parts: a hash for each, by place, and a sorted set of all of them by when they came.
#
# They do not go through the store's commits: a part is large, and nobody's letter shall wait behind it.


class RedisFiles:
    """See `peik.core.nodes.FileStore`. Keeping a part again changes nothing, so that a lost answer is simply asked for again."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._all = client.prefix + "parts_kept"

    async def keep_part(self, blob: str, place: int, part: bytes) -> None:
        await self._client.keep_part(blob, place, part)

    async def part(self, blob: str, place: int) -> bytes | None:
        found: bytes | None = await self._client.ask(self._client.redis.hget(self._key(blob), str(place)))
        return found

    async def drop_files(self, blobs: Sequence[str]) -> None:
        if not blobs:
            return
        both = self._client.redis.pipeline(transaction=True)
        both.unlink(*(self._key(blob) for blob in blobs))
        both.zrem(self._all, *blobs)
        await self._client.ask(both.execute())

    async def kept_files(self) -> dict[str, int]:
        """Walked in steps: there may be as many as letters."""
        kept: dict[str, int] = {}
        cursor = 0
        while True:
            page: tuple[int, list[tuple[bytes, float]]] = await self._client.ask(
                self._client.redis.zscan(self._all, cursor, count=1000)
            )
            cursor, rows = page
            kept.update((blob.decode(), int(at_ms)) for blob, at_ms in rows)
            if not cursor:
                return kept

    def _key(self, blob: str) -> str:
        return f"{self._client.prefix}parts:{blob}"
