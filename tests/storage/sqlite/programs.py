"""Small programs around a store, run as processes of their own so that they can be killed, starved or denied."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from peik.clock import SystemClock
from peik.core.letter import Draft
from peik.core.token import Token
from peik.errors import Problem, StartError
from peik.outbox.store import BotRecord
from peik.storage.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[3]
NOBODY = 65534


def start(name: str, path: Path, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.storage.sqlite.programs", name, str(path), *more]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def kill(process: "subprocess.Popen[str]") -> str:
    """End it as the kernel would. What it had said until then."""
    process.send_signal(signal.SIGKILL)
    return process.communicate()[0]


def _draft(chat: int) -> Draft:
    return Draft(bot_id=7, method="sendMessage", params='{"text":"hi"}', chat=chat)


async def _own(path: Path) -> None:
    """Own the file and do nothing until killed."""
    store = await _open(path)
    _say("open")
    await asyncio.to_thread(sys.stdin.read)
    await store.close()


async def _accept(path: Path) -> None:
    """Accept letters from several callers until killed, and print each id once it is acknowledged."""
    store = await _open(path)

    async def caller(who: int) -> None:
        while True:
            for accepted in await store.accept([_draft(who), _draft(who)], at_ms=1):
                _say(str(accepted.letter_id))

    await asyncio.gather(*(caller(who) for who in range(8)))


async def _race(path: Path) -> None:
    """Open at the same moment as somebody else, and accept one letter."""
    _say("ready")
    sys.stdin.readline()
    store = await _open(path, is_owner=False)
    await store.accept([_draft(1)], at_ms=1)
    await store.close()
    _say("done")


async def _denied(path: Path) -> None:
    """Open, then go on as nobody: root may write everywhere."""
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    try:
        store = await _open(path)
        await store.accept([_draft(1)], at_ms=1)
    except (StartError, Problem) as error:
        _say(f"{type(error).__name__}: {error}")
    else:
        await store.close()
        _say("stored")


async def _open(path: Path, *, is_owner: bool = True) -> SqliteStore:
    store = SqliteStore(path, clock=SystemClock(), is_owner=is_owner)
    await store.open()
    await store.save_bot(BotRecord(bot_id=7, token=Token("7:secret")))
    return store


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run({"own": _own, "accept": _accept, "race": _race, "denied": _denied}[sys.argv[1]](Path(sys.argv[2])))
