"""A bot that answers everybody, whatever happens to it in between: kill it, write to it, start it again.

    BOT_TOKEN=123456:your-token python examples/echo_bot.py

Everything it has not answered yet is in `echo.db`. People who wrote while it was away are told that they were heard.
"""

import asyncio
import logging

from peik import Peik, Update

peik = Peik.open("sqlite:///echo.db", missed="both")


@peik.on_update("message")
async def echo(update: Update) -> None:
    await update.answer(f"You said: {update.text}")


async def main() -> None:
    async with peik:
        await peik.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(main())
