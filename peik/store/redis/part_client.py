"""A part's own way to the server: a connection of its own, and scripts that know nothing but that part.

So a letter never waits behind the work on jobs or a broadcast's ledger, and the scripts of letters, which are read at every call,
stay as short as they are.
"""

from collections.abc import Sequence
from typing import Any

from redis import exceptions

from peik.store.redis.client import Client, _run, translate
from peik.store.redis.records import encode
from peik.store.redis.scripts import Script, _script


class PartClient(Client):
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
