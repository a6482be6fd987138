"""Jobs' own way to the server: a connection of their own, and scripts that know nothing but jobs.

So a letter never waits behind the work on jobs, and the scripts of letters, which are read at every call, stay as short as
they are.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from redis import exceptions

from peik.store.redis.client import Client, _run, translate
from peik.store.redis.records import encode
from peik.store.redis.scripts import _script

_COMMIT = ("prelude", "job_names", "job_places", "job_queue", "job_runs", "job_upkeep", "commit_end")
_READ = ("prelude", "job_names", "job_reading", "read_end")


class JobClient(Client):
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
