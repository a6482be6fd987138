"""The owner of a Pyrogram bot: it crashes, fifty people write, it comes back."""

import asyncio
import json
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from peik.testing import SimServer
from tests.client.counters import telegram
from tests.first_hours.page import Said
from tests.integrations.test_pyrogram import ROOT, TOKEN, noted
from tests.integrations.updates import until
from tests.patience import PATIENCE_S
from tests.processes.programs import Program

BEFORE, MISSED = 5, 50


async def hour(folder: Path, said: Said) -> None:
    async with asyncio.timeout(PATIENCE_S), telegram() as sim:
        wire = folder / "wire"
        wire.touch()
        said.did(
            f"python bot.py          # client.start(); recover_missed_messages(client, TOKEN); {BEFORE} people write"
        )
        first = await _run(folder, sim)
        for person in range(1, BEFORE + 1):
            body = sim.telegram.write(TOKEN, 100 + person, f"لینک {person}")
            with wire.open("a") as lines:
                lines.write(json.dumps(body) + "\n")
        await until(lambda: len(_handled(first)) == BEFORE)
        await until(lambda: noted(folder) == BEFORE)
        said.saw(f"handled {len(_handled(first))}")

        said.did(f"kill -9 %1             # and {MISSED} people write")
        first.process.send_signal(signal.SIGKILL)
        await first.ended()
        wire.write_text("")
        for person in range(1, MISSED + 1):
            sim.telegram.user(person, f"P{person}", "fa")
            sim.telegram.write(TOKEN, person, f"https://example.com/film/{person}")

        said.did("python bot.py          # again")
        second = await _run(folder, sim)
        (line,) = [line for line in second.output if "missed messages recovered" in line]
        counts = re.findall(r"\b(found|processed|failed)=(\d+)", line)
        said.saw("log: missed messages recovered", *(f"{name}={count}" for name, count in counts))
        said.saw(f"recover_missed_messages returned {_after(second, 'recovered')}")
        said.saw(f"handled {len(_handled(second))}, {len(set(_handled(second)))} of them different")
        await until(lambda: len(sim.telegram.sent) >= MISSED)
        told = {one.chat_id for one in sim.telegram.sent}
        said.saw(f"told {len(told)} of {MISSED} people, by {len(sim.telegram.sent)} messages; the first of them:")
        notice = next(one.text for one in sim.telegram.sent if one.chat_id == 1)
        said.lines += [f"  {line}" for line in notice.splitlines()]

        for query in (
            "SELECT last_update_id > 0 FROM bot_state WHERE id = 1",
            "SELECT count(*) FROM pending_messages WHERE status = 'pending'",
            "SELECT count(message_text) FROM pending_messages WHERE message_text LIKE 'https://%'",
        ):
            said.did(f'sqlite3 peik.db "{query}"')
            with closing(sqlite3.connect(folder / "peik.db")) as connection:
                said.saw(*connection.execute(query).fetchone())
        second.process.send_signal(signal.SIGINT)
        said.did("kill -INT %1")
        said.saw(f"exit {await second.ended()}")


async def _run(folder: Path, sim: SimServer) -> Program:
    program = Program(
        "-m", "tests.integrations.pyrogram_bot", sim.url, str(folder / "wire"), folder=folder, PYTHONPATH=str(ROOT)
    )
    await program.start(re.compile("^recovered"))
    return program


def _handled(program: Program) -> list[str]:
    return [line.split(" ", 1)[1].strip() for line in program.output if line.startswith("handled")]


def _after(program: Program, word: str) -> str:
    return next(line.split(" ", 1)[1].strip() for line in program.output if line.startswith(word))
