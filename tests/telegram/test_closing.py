"""Closing: everyone is told what is known, and nothing stays open."""

import asyncio

from peik.core.outcome import NetworkFault, Reply
from tests.telegram.conftest import Run
from tests.telegram.peers import OK, answering, call, carrier_to, peer, until
from tests.telegram.test_faults import silent


def test_closing_tells_the_queued_not_tried_and_the_flying_uncertain(run: Run) -> None:
    async def story() -> None:
        replies: list[Reply] = []
        async with peer(silent) as root, carrier_to(root, connections_max=2) as carrier:
            for _ in range(5):
                carrier.start(call(), replies.append)
            await until(lambda: len(carrier._waiting) == 3)
            await carrier.close()
            assert sorted((str(reply.fault), reply.left, reply.detail) for reply in replies) == [
                *[("not_tried", False, "closing")] * 3,
                *[("reset", True, "closing")] * 2,
            ]

    run(story())


def test_closing_in_the_middle_of_a_connect_leaves_nothing_open(run: Run) -> None:
    async def story() -> None:
        replies: list[Reply] = []
        async with peer(answering(OK)) as root:
            for turns in range(12):
                async with carrier_to(root) as carrier:
                    carrier.start(call(), replies.append)
                    for _ in range(turns):
                        await asyncio.sleep(0)
        assert len(replies) == 12
        assert {reply.fault for reply in replies} <= {NetworkFault.NOT_TRIED, NetworkFault.RESET, None}

    run(story())


def test_closing_twice_and_closing_the_unused_is_fine(run: Run) -> None:
    async def story() -> None:
        async with peer(answering(OK)) as root, carrier_to(root) as carrier:
            await carrier.carry(call())
            await asyncio.gather(carrier.close(), carrier.close())
        async with carrier_to(root):
            pass

    run(story())


def test_a_caller_that_stops_waiting_disturbs_nobody(run: Run) -> None:
    async def story() -> None:
        async with peer(answering(OK)) as root, carrier_to(root, connections_max=1) as carrier:
            impatient = asyncio.create_task(carrier.carry(call()))
            await asyncio.sleep(0)
            impatient.cancel()
            assert (await carrier.carry(call())).status == 200

    run(story())
