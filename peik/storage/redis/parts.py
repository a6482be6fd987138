"""A part's own way to the server: a connection of its own, and scripts that know nothing but that part.

So a letter never waits behind the work on jobs or a broadcast's ledger, and the scripts of letters, which are read at every call,
stay as short as they are.
"""

from collections.abc import Sequence
from typing import Any

from redis import exceptions

from peik.storage.redis.client import RedisClient, Script, _run, _script, translate
from peik.storage.redis.commits import Commits
from peik.storage.redis.news import RedisNews
from peik.storage.redis.records import encode
from peik.storage.redis.writer import RedisWriter


class PartClient(RedisClient):
    def __init__(self, url: str, *, commit: tuple[str, ...], read: tuple[str, ...]) -> None:
        super().__init__(url)
        self._commit_parts = commit
        self._read_parts = read

    def _commit_script(self, names: frozenset[str]) -> Script:
        return _script(self._commit_parts)

    async def read(self, *operations: Sequence[object]) -> list[Any]:
        script = _script(self._read_parts)
        try:
            answers: list[Any] = await _run(self._execute, "EVALSHA_RO", script, self.prefix, encode(operations))
        except exceptions.RedisError as error:
            raise translate(error) from error
        return answers


# The way of papers and known chats to the server: connections of their own, and scripts that know nothing else.


_COMMIT = ("prelude", "papers", "contacts", "contact_forgetting", "commit_end")
_READ = ("prelude", "paper_reading", "contact_reading", "read_end")


class DocumentWay:
    """What papers and known chats share: one client, one writer with group commit."""

    def __init__(self, url: str, bell: RedisNews, *, node: str) -> None:
        self._client = PartClient(url, commit=_COMMIT, read=_READ)
        self._writer = RedisWriter(self._client, node=node)
        self.commits = Commits(self._writer, bell, listener=lambda: None, on_blobs_freed=lambda blobs: None)
        self.read = self._client.read

    async def open(self) -> None:
        await self._client.open()

    async def drained(self) -> None:
        """Returns when everything that was asked has been answered."""
        await self._writer.drained()

    async def abandon(self) -> None:
        await self._writer.abandon()
        await self._client.close()
