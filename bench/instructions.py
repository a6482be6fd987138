"""How many machine instructions a letter costs, counted by valgrind: the same on a busy machine as on a quiet one.

`python -m bench.instructions` prints instructions per letter for each work. A work is done by production code in virtual time,
without threads or sockets (the store's writer runs inline, Telegram is simulated and answers at once), because threads and
sockets make batches of other sizes each time, and the count would tell of the weather. It is done with few and with many
letters; the difference is what the letters cost, without the start. What is left out so, the HTTP client and the writer's
thread, is guarded by the ratios of `bench.gate`.
"""

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bench.load import BOT_ID, TOKEN, call
from bench.updates_stub import updates
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.core.arrival import read_update
from peik.core.events import Event, Settled
from peik.core.outcome import Reply
from peik.settings.config import load
from peik.storage.executor import InlineExecutor
from peik.telegram.port import Request
from peik.testing.virtual import VirtualClock, run_virtual

FEW, MANY = 400, 1_200  # the first 400 letters make the lanes of 400 chats, and cost twice as much
BATCH = 100
AT_MS = 1_794_700_000_000  # when virtual time begins: what is old would be tidied away
PATIENCE_S = 900.0
_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
_ANSWER = (
    b'{"ok":true,"result":{"message_id":1,"from":{"id":123456789,"is_bot":true,"first_name":"Bench"},'
    b'"chat":{"id":1000001,"first_name":"Reader","type":"private"},"date":1763200000,"text":"Your order has left."}}'
)

Work = Callable[[Runtime, int], Awaitable[None]]


async def accept_one(peik: Runtime, letters: int) -> None:
    for number in range(letters):
        await peik.outbox.service.accept([call(number)])


async def accept_batch(peik: Runtime, letters: int) -> None:
    for first in range(0, letters, BATCH):
        await peik.outbox.service.accept([call(number) for number in range(first, first + BATCH)])


async def deliver(peik: Runtime, letters: int) -> None:
    """Accepted, tried, settled: the whole way."""
    left = letters
    ended = asyncio.Event()

    def listen(events: Sequence[Event]) -> None:
        nonlocal left
        left -= sum(isinstance(event, Settled) for event in events)
        if left <= 0:
            ended.set()

    peik.events.listen(listen)
    await accept_batch(peik, letters)
    await ended.wait()


async def take_in(peik: Runtime, letters: int) -> None:
    """Updates, a page at a time."""
    await peik.store.inbox.open_inbox(BOT_ID, server="bench", at_ms=AT_MS)
    every = [read_update(one) for one in updates(1_763_000_000, letters)]
    for first in range(0, letters, BATCH):
        page = every[first : first + BATCH]
        await peik.store.inbox.take_in(BOT_ID, page, at_ms=AT_MS, last_update_id=page[-1].update_id)


WORKS: Mapping[str, Work] = {one.__name__: one for one in (accept_one, accept_batch, deliver, take_in)}  # type: ignore[attr-defined]
_PAUSED = {"accept_one", "accept_batch", "take_in"}


class _AtOnce:
    """A Telegram that says yes before one has asked."""

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        asyncio.get_running_loop().call_soon(done, Reply(status=200, body=_ANSWER))

    async def carry(self, request: Request) -> Reply:
        return Reply(status=200, body=_ANSWER)

    async def close(self) -> None: ...


def do(name: str, letters: int, folder: Path) -> None:
    """The work itself, once."""
    flags = {"store": f"sqlite:///{folder}/peik.db", "bot_tokens": TOKEN, "pace": "off", "inbound": "off"}

    async def main(clock: VirtualClock) -> None:
        async with running(
            load(flags, environment={}, folder=folder),
            clock=clock,
            carrier=_AtOnce(),
            chance=random.Random(1),
            executor=lambda name: InlineExecutor(),
            is_alone=True,
        ) as peik:
            if name in _PAUSED:
                await peik.outbox.service.change_bot(BOT_ID, paused="a measurement begins")
            await WORKS[name](peik, letters)

    run_virtual(main)


def counted(name: str) -> float:
    """Instructions per letter. Raises RuntimeError if they cannot be counted here."""
    few, many = (_count(name, letters) for letters in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _count(name: str, letters: int) -> int:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise RuntimeError("There is no valgrind here. Debian's is: sudo apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="peik-count-") as folder:
        command = [valgrind, "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={folder}/out"]
        # The order of sets and dicts of strings must not change from run to run.
        ended = subprocess.run(
            [*command, sys.executable, "-m", "bench.instructions", name, str(letters), folder],
            env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    found = _COUNTED.search(ended.stderr)
    if ended.returncode or found is None:
        raise RuntimeError(f"{name} was not counted:\n{ended.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def main() -> None:
    if len(sys.argv) == 4:
        do(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
        return
    print(msgspec.json.format(msgspec.json.encode({name: round(counted(name)) for name in WORKS})).decode())


if __name__ == "__main__":
    main()
