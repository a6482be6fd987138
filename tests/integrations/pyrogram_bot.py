"""A Pyrogram bot as a program: `pyrogram_bot.py <api root> <file>`. What stands in the file, a JSON message a line, comes to it
over MTProto as soon as it is there; Telegram's own network is not."""

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

from pyrogram import Client, filters
from pyrogram.handlers import MessageHandler

from peik.integrations.pyrogram import recover_missed_messages
from tests.integrations.test_pyrogram import TOKEN, registered, take_live


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201  to whoever started us


async def answer(_: Client, message: Any) -> None:
    say("handled", message.text)


async def listen(client: Client, wire: Path) -> None:
    taken = 0
    while True:
        lines = wire.read_text().splitlines()  # noqa: ASYNC240  a few lines
        for line in lines[taken:]:
            await take_live(client, json.loads(line))
        taken = len(lines)
        await asyncio.sleep(0.01)


async def main(api_root: str, wire: Path) -> None:
    client = Client("courier", api_id=1, api_hash="x", bot_token=TOKEN, in_memory=True)
    client.add_handler(MessageHandler(answer, filters.private & filters.text))
    await registered(client, answer)
    await client.storage.open()
    await client.dispatcher.start()
    try:
        count = await recover_missed_messages(client, TOKEN, api_root=api_root, pace=False)
        say("recovered", count)
        await listen(client, wire)
    finally:
        await client.dispatcher.stop()
        await client.storage.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
