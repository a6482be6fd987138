"""How long a move takes: python -m tests.storage.moving.measure [letters]. Real servers, durable as they should be in service."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from peik.clock import SystemClock
from peik.storage.moving.ends import MoveProgress
from peik.storage.moving.move import PAGE, Ends, MoveWatch, end_of, move
from peik.storage.moving.records import MovedBot, MovedLetter, MovedTally, Sequence
from tests.storage.redis_server import RedisServer
from tests.storage.servers import PostgresServer

BOT = 7
LANES = 5000
TEXT = "Your order is on its way. You will hear from us again as soon as it is there. " * 2
WAYS = (
    ("sqlite", "postgresql"),
    ("sqlite", "redis"),
    ("postgresql", "sqlite"),
    ("postgresql", "redis"),
    ("redis", "sqlite"),
    ("redis", "postgresql"),
)


async def main(letters: int) -> None:
    with tempfile.TemporaryDirectory(prefix="peik-measure-") as folder:
        postgres = PostgresServer({"fsync": "on", "max_connections": "20"})
        postgres.start()
        redis = RedisServer(Path(folder), appendonly="yes", appendfsync="always").start()
        try:
            await _measure(letters, folder, {"postgresql": postgres.url, "redis": redis.url})
        finally:
            postgres.remove()
            redis.kill()


async def _measure(letters: int, folder: str, servers: dict[str, str]) -> None:
    def place(kind: str, name: str) -> str:
        option = {"sqlite": "", "postgresql": f"?schema={name}", "redis": f"?prefix={name}:"}[kind]
        return f"sqlite:///{folder}/{name}.db" if kind == "sqlite" else servers[kind] + option

    filled = {"sqlite": place("sqlite", "first")}
    await _fill(filled["sqlite"], letters)
    for origin, target in WAYS:
        url = place(target, f"{origin}_{target}")
        stages: list[float] = []
        watch = MoveWatch(begin=lambda words, total, stages=stages: stages.append(time.monotonic()))
        began = time.monotonic()
        await move(Ends(origin=end_of(filled[origin]), target=end_of(url)), clock=SystemClock(), watch=watch)
        took_s = time.monotonic() - began
        filled.setdefault(target, url)
        alone = letters / (stages[1] - stages[0])
        sys.stdout.write(
            f"{origin:>10} to {target:<10} {took_s:6.1f} s, {letters / took_s:7,.0f} letters/s ({alone:,.0f} not compared)\n"
        )


async def _fill(url: str, letters: int) -> None:
    """Half of them wait, in many lanes; half were sent."""
    end = end_of(url)
    await end.open(is_target=True)
    progress = MoveProgress(origin="nowhere", fingerprint="", run="filling", began_at_ms=0, ended_at_ms=1)
    await end.begin(progress)
    await end.write("tallies", [MovedTally(BOT, letters + 1, letters // 2, 0, letters - letters // 2, 0, 0)], progress)
    await end.write("bots", [MovedBot(BOT, "7:secret", None, "off", None, None, None, None, 0)], progress)
    for first in range(1, letters + 1, PAGE):
        some = [_letter(one) for one in range(first, min(first + PAGE, letters + 1))]
        await end.write("letters", some, progress)
    await end.write("sequences", [Sequence("letters", letters)], progress)
    await end.close()


def _letter(number: int) -> MovedLetter:
    is_sent = bool(number % 2)
    chat = number % LANES
    said = (f'{{"chat_id":{chat},"text":"{TEXT}"}}', number, 5, 2000)
    result = f'{{"message_id":{number},"date":1800000000,"chat":{{"id":{chat},"type":"private"}},"text":"{TEXT}"}}'
    row = (number, BOT, number, 2 if is_sent else 0, 2, chat, 0, 1, "sendMessage", *said, *(None,) * 12, 0, 0)
    return MovedLetter(*row, None, None, None, number if is_sent else None, None, result if is_sent else None, None)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
