"""Hundreds of short random lives: every update is stored once, in order, and confirmed only after that."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from peik.testing.virtual import VirtualClock, run_virtual
from tests.inbox.fate import Fate, come_to_rest, verdict
from tests.inbox.lives import World

SEEDS = int(os.environ.get("PEIK_INBOX_SEEDS", "60"))
FIRST = int(os.environ.get("PEIK_INBOX_FIRST_SEED", "0"))
PER_TEST = 20
DEEDS = 25


def play(seed: int) -> None:
    async def main(clock: VirtualClock) -> None:
        loud: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: loud.append(context))
        with tempfile.TemporaryDirectory(prefix="peik-lives-") as folder:
            world = World(clock, Path(folder), seed)
            pushing = asyncio.ensure_future(world.push_all())
            try:
                await Fate(world).play(DEEDS)
                await come_to_rest(world)
                wrong = [*verdict(world), *map(str, loud)]
                assert not wrong, "\n".join(wrong)
            except BaseException as error:
                error.add_note(f"seed {seed}\n" + "\n".join(world.story))
                raise
            finally:
                pushing.cancel()
                world.close()

    run_virtual(main)


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PER_TEST))
def test_whatever_happens_every_update_is_stored_once_and_in_order(first: int) -> None:
    for seed in range(first, min(first + PER_TEST, FIRST + SEEDS)):
        play(seed)
