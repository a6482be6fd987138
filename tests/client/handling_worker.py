"""A program with a handler on `Peik.open`. It tells by lines of JSON what it is given; texts with "hang" never end if told so."""

import asyncio
import json
import logging
import sys

from peik import Peik, Update


async def main(store: str, token: str, api_root: str, mode: str) -> None:
    peik = Peik.open(store, token=token, api_root=api_root, pace=False, backoff_ms=100, poll_timeout="1s", grace="5m")

    @peik.on_update("message")
    async def handle(update: Update) -> None:
        tell("given", update.text)
        if mode == "hangs" and "hang" in (update.text or ""):
            await asyncio.sleep(3600)
        if mode == "slow":
            await asyncio.sleep(0.5)
        await update.answer(f"re: {update.text}")
        tell("done", update.text)

    async with peik:
        tell("open", None)
        await peik.run()
        tell("stopping", None)
    tell("closed", None)


def tell(what: str, text: str | None) -> None:
    sys.stdout.write(json.dumps([what, text]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    asyncio.run(main(*sys.argv[1:]))
