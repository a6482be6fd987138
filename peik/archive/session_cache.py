"""Answers about sessions, kept in Redis for a short while. Never one that is older than a write which was acknowledged before the
question.

- Who finds nothing takes a right to fill, asks the archive, and may fill only while the right stands.
- Who has written to the archive forgets the answer, and any right with it, before the write is acknowledged.
- A right, and what is filled under it, ends `kept_s` after the right was taken, by the server's clock. Whoever has written and
  cannot reach Redis waits for longer than that: everything that was known before the write is then over.
- An answer counts only in the run of the server in which its right was taken: what a restart brings back is not believed.
"""

import asyncio
import hashlib
import re
import secrets
from collections.abc import Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlencode

import redis.asyncio as aioredis
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from peik.cancelling import heeding
from peik.errors import StartError

KEPT_S = 3.0
CONNECTIONS_MAX = 15
ANSWER_S = 1.0
_AWAY_S = 1.0  # after a failure nobody asks for so long: the archive answers
_REPEAT_S = 0.05
_MARGIN = 1.2  # two clocks that run unlike
_MARGIN_S = 0.05
_FAILURES = (exceptions.RedisError, OSError, TimeoutError)


class SessionCache:
    """Answers by name, as bytes."""

    def __init__(self, url: str, *, kept_s: float = KEPT_S) -> None:
        self._url, self._prefix = _split_prefix(url)
        self._kept_s = kept_s
        self._away_until = 0.0

    async def open(self) -> None:
        """Does not wait for the server: it may come later."""
        try:
            pool = aioredis.BlockingConnectionPool.from_url(
                self._url,
                max_connections=CONNECTIONS_MAX,
                timeout=ANSWER_S,
                socket_timeout=ANSWER_S,
                socket_connect_timeout=ANSWER_S,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise StartError(f"Not an address of a Redis server: {error}.") from None
        self._pool = pool
        self._redis = aioredis.Redis(connection_pool=pool)
        self._take = self._redis.register_script(_lua("take"))
        self._fill = self._redis.register_script(_lua("fill"))
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        await self._pool.disconnect()

    async def take(self, name: str) -> tuple[bytes | None, bytes | None]:
        """The answer, or the right to fill it, or neither."""
        if self._loop.time() < self._away_until:
            return None, None
        try:
            async with asyncio.timeout(ANSWER_S):
                said: Any = await self._take(
                    keys=[self._key(name)], args=[secrets.token_hex(16), round(self._kept_s * 1000)]
                )
        except _FAILURES:
            self._away_until = self._loop.time() + _AWAY_S
            return None, None
        kind, value = said
        return (value if kind == 1 else None), (value if kind == 2 else None)

    async def fill(self, name: str, right: bytes, answer: bytes) -> None:
        """If the right still stands. What goes wrong here costs the next one a question."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await heeding(self._fill(keys=[self._key(name)], args=[right, answer]))
        except _FAILURES:
            self._away_until = self._loop.time() + _AWAY_S

    async def forget(self, names: Sequence[str]) -> None:
        """Returns when nobody can be given an answer any more that was true before this was called."""
        over_at = self._loop.time() + self._kept_s * _MARGIN + _MARGIN_S
        while names:
            try:
                async with asyncio.timeout(ANSWER_S):
                    await heeding(self._redis.delete(*(self._key(name) for name in names)))
                    return
            except _FAILURES:
                left_s = over_at - self._loop.time()
                if left_s <= 0:
                    return
                await asyncio.sleep(min(_REPEAT_S, left_s))

    async def try_to_forget(self, names: Sequence[str]) -> None:
        """For those who promise nothing: their write failed, or may have."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await heeding(self._redis.delete(*(self._key(name) for name in names)))
        except _FAILURES:
            self._away_until = self._loop.time() + _AWAY_S

    def _key(self, name: str) -> str:
        """No phone stands in it."""
        return f"{self._prefix}archive:{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"


def _split_prefix(url: str) -> tuple[str, str]:
    """The address for redis-py, and what keys begin with: as those of a Redis store do, so that a cluster keeps them together."""
    address, _, queried = url.partition("?")
    asked = parse_qsl(queried, keep_blank_values=True)
    prefix = next((value for name, value in asked if name == "prefix"), "peik:")
    if not re.fullmatch(r"[\w.:-]{1,64}", prefix):
        raise StartError(
            "The prefix of a Redis address may have letters, digits and . : - _ only, and at most 64 of them."
        )
    query = urlencode([(name, value) for name, value in asked if name != "prefix"])
    return f"{address}{'?' if query else ''}{query}", f"{prefix}{{{prefix.rstrip(':')}}}:"


def _lua(name: str) -> str:
    return (files("peik.archive") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
