"""A part's own way to the server: a connection of its own, and scripts that know nothing but that part.

So a letter never waits behind the work on jobs or a broadcast's ledger, and the scripts of letters, which are read at every call,
stay as short as they are.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from redis import exceptions

from peik.store.redis.client import Client, _run, translate
from peik.store.redis.records import encode
from peik.store.redis.scripts import _script


class PartClient(Client):
    def __init__(self, url: str, *, commit: tuple[str, ...], read: tuple[str, ...]) -> None:
        super().__init__(url)
        self._commit_parts = commit
        self._read_parts = read

    async def commit(
        self, node: str, operations: Sequence[tuple[str, msgspec.Raw]], records: Sequence[bytes]
    ) -> list[Any]:
        asked = encode([node, *(operation for _, operation in operations)])
        script = _script(self._commit_parts)
        answers: list[Any] = await _run(self._writing, "EVALSHA", script, self.prefix, asked, *records)
        return answers

    async def read(self, *operations: Sequence[object]) -> list[Any]:
        script = _script(self._read_parts)
        try:
            answers: list[Any] = await _run(self.redis, "EVALSHA_RO", script, self.prefix, encode(operations))
        except exceptions.RedisError as error:
            raise translate(error) from error
        return answers
