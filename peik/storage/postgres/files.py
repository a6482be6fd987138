"""Files of letters in the PostgreSQL store, in parts: every node can read them, and a backup of the database holds them.

A part is durable before a letter that needs it is: its commit comes first, and the letter's waits for the disk.
"""

from collections.abc import Sequence

from peik.storage.postgres.inbox import PostgresRead
from peik.storage.postgres.queries import load

_SQL = load("files.sql")


class PostgresFiles:
    """See `peik.core.nodes.FileStore`. `ask` may ask twice: each of these may be done again."""

    def __init__(self, ask: PostgresRead) -> None:
        self._ask = ask

    async def keep_part(self, blob: str, place: int, part: bytes) -> None:
        await self._ask(lambda one: one.run(_SQL["keep_part"], blob=blob, place=place, part=part))

    async def part(self, blob: str, place: int) -> bytes | None:
        row = await self._ask(lambda one: one.row(_SQL["part"], blob=blob, place=place))
        return None if row is None else bytes(row[0])

    async def drop_files(self, blobs: Sequence[str]) -> None:
        if blobs:
            await self._ask(lambda one: one.run(_SQL["drop_files"], blobs=list(blobs)))

    async def kept_files(self) -> dict[str, int]:
        return {row[0]: row[1] for row in await self._ask(lambda one: one.rows(_SQL["kept_files"]))}
