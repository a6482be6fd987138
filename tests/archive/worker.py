"""A process that keeps messages in a SQLite archive and says which of them were acknowledged, until it is killed."""

import asyncio
import sys
from pathlib import Path

from peik.archive.sqlite.archive import SqliteArchive
from tests.archive.samples import NOW, message

WRITERS = 8


async def main(path: Path) -> None:
    archive = SqliteArchive(path)
    await archive.open()

    async def write(writer: int) -> None:
        for number in range(100_000):
            for edited_at_ms in (0, NOW):
                await archive.keep_messages([message(number, session_id=f"s{writer}", edited_at_ms=edited_at_ms)])
                sys.stdout.write(f"{writer} {number} {edited_at_ms}\n")
                sys.stdout.flush()

    await asyncio.gather(*map(write, range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
