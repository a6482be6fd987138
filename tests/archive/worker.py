"""A process that keeps messages in a SQLite archive, and feeds lines to one session, and says which of them were acknowledged,
until it is killed."""

import asyncio
import os
import sys
from pathlib import Path

from peik.archive.sqlite.archive import SqliteArchive
from tests.archive.samples import NOW, line, message

WRITERS = 8


async def main(path: Path) -> None:
    archive = SqliteArchive(path)
    await archive.open()

    async def write(writer: int) -> None:
        for number in range(100_000):
            for edited_at_ms in (0, NOW):
                await archive.keep_messages([message(number, session_id=f"s{writer}", edited_at_ms=edited_at_ms)])
                _say(f"kept {writer} {number} {edited_at_ms}")

    async def feed(writer: int) -> None:
        for number in range(100_000):
            key = f"{os.getpid()}-{writer}-{number}"
            await archive.feed([line(key)])
            _say(f"fed {key}")

    await asyncio.gather(*map(write, range(WRITERS)), *map(feed, range(WRITERS // 2)))


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
