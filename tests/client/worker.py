"""A program on `Peik.open`, as a web worker would be: told by lines on its standard input, answering by lines of JSON."""

import asyncio
import json
import sys

from peik import Peik


async def main(store: str, token: str, api_root: str, name: str) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with Peik.open(store, token=token, api_root=api_root, pace=False, backoff_ms=100) as peik:
        tell("open")
        number = 0
        while line := (await reader.readline()).decode().split():
            count, chats = int(line[0]), int(line[1])
            letters = []
            for _ in range(count):
                letters.append((await peik.send_text(number % chats + 1, f"{name} {number}")).id)
                number += 1
            tell(letters)


def tell(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
