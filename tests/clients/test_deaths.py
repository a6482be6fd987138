"""Real libraries with their own defaults, ended in the middle of their handlers: nothing that people wrote is lost."""

import asyncio
from pathlib import Path

import pytest

from proofs.deaths import HOW, LONG_KNOWN, Crowd, ended, faults_in
from tests.clients.harness import staged
from tests.processes.test_nodes import a_store

pytestmark = [pytest.mark.gate, pytest.mark.clients]


@pytest.fixture(autouse=True)
def _libraries() -> None:
    for library in LONG_KNOWN:
        library.skip_if_missing()


@pytest.mark.parametrize("how", HOW)
def test_bots_that_end_ten_times_in_the_middle_of_their_handlers_lose_nothing(how: str, tmp_path: Path) -> None:
    """Killed, or in good order, or with Peik replaced under them."""
    found = asyncio.run(ended(*LONG_KNOWN, how=how, folder=tmp_path))
    assert faults_in(found, how) == []


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_the_same_on_a_server(kind: str, tmp_path: Path) -> None:
    found = asyncio.run(ended(*LONG_KNOWN, how="killed", folder=tmp_path, store=a_store(kind)))
    assert faults_in(found, "killed") == []


def test_restarts_in_good_order_lose_nothing_and_double_nothing_that_was_answered(tmp_path: Path) -> None:
    """Of the bots, of Peik, and of Peik without a word, on a quiet day."""

    async def story() -> None:
        async with staged(*LONG_KNOWN, route="peik", mode="polling", folder=tmp_path) as stages:
            crowds = [Crowd(stage) for stage in stages]
            server = stages[0].server
            assert server is not None
            for turn in range(6):
                for crowd in crowds:
                    crowd.write()
                for crowd in crowds:
                    await crowd.all_done()
                if turn % 3 == 0:
                    await asyncio.gather(*(crowd.restarts() for crowd in crowds))
                else:
                    await (server.program.terminate() if turn % 3 == 1 else server.program.kill())
                    await server.start()
            for crowd in crowds:
                crowd.write()
                answers = await crowd.all_answered()
                assert {len(times) for times in answers.values()} == {1}, answers

    asyncio.run(story())
