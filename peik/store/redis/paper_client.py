"""The way of papers and known chats to the server: connections of their own, and scripts that know nothing else.

So a letter never waits behind a broadcast's ledger, and the scripts of letters, which are read at every call, stay as short as
they are.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from redis import exceptions

from peik.store.redis.bell import Bell
from peik.store.redis.client import Client, _run, translate
from peik.store.redis.commits import Commits
from peik.store.redis.records import encode
from peik.store.redis.scripts import _script
from peik.store.redis.writer import Writer

_COMMIT = ("prelude", "papers", "contacts", "commit_end")
_READ = ("prelude", "paper_reading", "contact_reading", "read_end")


class PaperClient(Client):
    async def commit(
        self, node: str, operations: Sequence[tuple[str, msgspec.Raw]], records: Sequence[bytes]
    ) -> list[Any]:
        asked = encode([node, *(operation for _, operation in operations)])
        answers: list[Any] = await _run(self._writing, "EVALSHA", _script(_COMMIT), self.prefix, asked, *records)
        return answers

    async def read(self, *operations: Sequence[object]) -> list[Any]:
        try:
            answers: list[Any] = await _run(self.redis, "EVALSHA_RO", _script(_READ), self.prefix, encode(operations))
        except exceptions.RedisError as error:
            raise translate(error) from error
        return answers


class PaperWay:
    """What papers and known chats share: one client, one writer with group commit."""

    def __init__(self, url: str, bell: Bell, *, node: str) -> None:
        self._client = PaperClient(url)
        self._writer = Writer(self._client, node=node)
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
