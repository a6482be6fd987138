"""Long polls have connections of their own: however many are parked, a call finds one free."""

import asyncio

import msgspec

from peik.core.token import Token
from peik.telegram.client import BotApiCarrier, SplitCarrier
from peik.telegram.port import Request
from peik.testing import SimServer
from tests.patience import PATIENCE_S

BOTS = 40


def request(bot: int, method: str, timeout_s: float, **params: object) -> Request:
    token = Token(f"{7_000_000 + bot}:AAtest")
    return Request(token=token, method=method, params=msgspec.json.encode(params), timeout_s=timeout_s)


def test_parked_polls_of_many_bots_keep_no_letter_waiting() -> None:
    async def story() -> None:
        async with SimServer() as sim:
            letters = BotApiCarrier(sim.url, connections_max=2)
            carrier = SplitCarrier(letters=letters, polls=BotApiCarrier(sim.url, connections_max=BOTS))
            polls = [
                asyncio.ensure_future(carrier.carry(request(bot, "getUpdates", 60.0, timeout=50)))
                for bot in range(BOTS)
            ]
            await sim.until(lambda: sim.telegram.counters.requests["getUpdates"] == BOTS, timeout=PATIENCE_S)
            for bot in range(5):
                reply = await carrier.carry(request(bot, "sendMessage", 5.0, chat_id=5, text="through"))
                assert reply.status == 200
            assert not any(poll.done() for poll in polls)
            await carrier.close()  # ends what is parked
            assert {poll.result().status for poll in polls} == {0}

    asyncio.run(story())
