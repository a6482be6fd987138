"""Two real nodes on a real Redis behind the real balancer: a bot and a back-end that know only the balancer's address."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.deploy.balancers import balanced, needed
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, KEY, TOKEN, Server, Sim, served, simulated
from tests.storage.shared_places import SHARED

pytestmark = [
    needed,
    pytest.mark.skipif(not SHARED, reason="TEST_STORES leaves the servers out"),
]
LETTERS = 60
UPLOAD_BYTES = 8 * 1024 * 1024


class Outside:
    """Whoever speaks to Peik through the balancer."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url = url
        self._http = http

    async def call(self, verb: str, path: str, **more: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {KEY}"} | more.pop("headers", {})
        async with self._http.request(verb, self._url + path, headers=headers, **more) as answer:
            return answer.status, json.loads(await answer.read())

    async def bot(self, method: str, **params: Any) -> Any:
        status, answer = await self.call("POST", f"/bot{TOKEN}/{method}", json=params)
        assert status == 200, answer
        return answer["result"]


@contextlib.asynccontextmanager
async def cluster(folder: Path, **settings: str) -> AsyncIterator[tuple[Outside, list[Server], Sim]]:
    from tests.storage.redis_place import RedisPlace

    terms = {"store": RedisPlace(folder).url, "lease": "3s", **settings}
    homes = [folder / name for name in ("one", "two")]
    for home in homes:
        home.mkdir()
    async with (
        simulated(folder, limits={"on": False}) as (sim, http),
        served(homes[0], sim.url, http, **terms) as one,
        served(homes[1], sim.url, http, **terms) as two,
        balanced(folder, [server.url.removeprefix("http://") for server in (one, two)]) as url,
    ):
        yield Outside(url, http), [one, two], sim
        assert not one.surprises() + two.surprises()


def test_a_bot_polls_gets_uploads_through_and_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path, inbound="polling") as (outside, _, sim):
            asked = asyncio.create_task(outside.bot("getUpdates", timeout=50))
            await sim.post("write", bot=BOT, user=5, text="is anybody there?")
            (update,) = await asked
            assert update["message"]["text"] == "is anybody there?"
            assert await outside.bot("getUpdates", offset=update["update_id"] + 1, timeout=0) == []
            form = aiohttp.FormData()
            form.add_field("letter", json.dumps({"method": "sendDocument", "params": {"chat_id": 5}}))
            form.add_field("document", io.BytesIO(b"y" * UPLOAD_BYTES), filename="big.bin")
            status, letter = await outside.call("POST", "/v1/letters?wait=200s", data=form)
            assert (status, letter["state"]) == (200, "completed"), letter
            assert letter["result"]["document"]["file_size"] == UPLOAD_BYTES

    asyncio.run(main())


@pytest.mark.gate  # a lease of a real process runs out
def test_a_node_is_killed_and_callers_only_wait(tmp_path: Path) -> None:
    """What was on its way to the dead node may be answered 502, and is asked again with its key: never twice."""

    async def main() -> None:
        async with cluster(tmp_path) as (outside, (one, _), sim):
            accepted: dict[str, str] = {}

            async def hand_in(number: int) -> None:
                letter = {"method": "sendMessage", "params": {"chat_id": 100 + number, "text": f"number {number}"}}
                key = {"Idempotency-Key": f"k{number}"}
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        with contextlib.suppress(aiohttp.ClientError, json.JSONDecodeError):
                            status, answer = await outside.call("POST", "/v1/letters", json=letter, headers=key)
                            if status == 202:
                                accepted[answer["id"]] = f"number {number}"
                                return
                        await asyncio.sleep(0.05)

            first = [asyncio.create_task(hand_in(number)) for number in range(LETTERS // 2)]
            await first[0]
            await one.program.kill()
            await asyncio.gather(*first, *(hand_in(number) for number in range(LETTERS // 2, LETTERS)))
            assert len(accepted) == LETTERS
            for letter_id in accepted:
                status, letter = await outside.call("GET", f"/v1/letters/{letter_id}?wait=200s")
                assert (status, letter["state"]) == (200, "completed"), letter
            sent = [one["text"] for one in (await sim.get("sent"))["deliveries"]]
            uncertain = 0
            for letter_id in accepted:
                uncertain += (await outside.call("GET", f"/v1/letters/{letter_id}"))[1]["uncertain_tries"]
            assert set(sent) == set(accepted.values())
            assert len(sent) <= LETTERS + uncertain

    asyncio.run(main())
