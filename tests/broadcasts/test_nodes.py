"""Two nodes on PostgreSQL or Redis: the one that runs a broadcast is killed, the other goes on; commands work at either."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.broadcasts.test_rest import deliveries, ledger, until
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, Server, served, simulated
from tests.storage.shared_places import SHARED, SharedPlace

pytestmark = pytest.mark.gate  # kills of nodes, in real time

COUNT = 500


@pytest.fixture(params=SHARED, ids=lambda kind: kind.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    made: SharedPlace = request.param(tmp_path)
    return made


def test_another_node_takes_a_broadcast_over(place: SharedPlace, tmp_path: Path) -> None:
    async def story() -> None:
        settings: dict[str, Any] = {"store": place.url, "lease": "3s"}
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            served(tmp_path / "one", sim.url, http, **settings) as one,
            served(tmp_path / "two", sim.url, http, **settings) as two,
        ):
            body = {
                "method": "sendMessage",
                "params": {"text": "Salam"},
                "audience": {"chat_ids": list(range(1, COUNT + 1))},
            }
            await one.call("PATCH", f"/v1/bots/{BOT}", json=pace(20.0))
            made = (await two.call("POST", "/v1/broadcasts", json=body))[1]
            path = f"/v1/broadcasts/{made['id']}"
            assert (await one.call("POST", f"{path}/start"))[0] == 200
            while len(await deliveries(sim)) < COUNT / 10:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert (await two.call("POST", f"{path}/pause"))[0] == 200
            assert (await two.call("POST", f"{path}/resume"))[0] == 200
            first = await _with_chores(one, two)
            other = two if first is one else one
            assert (await other.get(path))["state"] == "running"
            await first.program.kill()
            await other.call("PATCH", f"/v1/bots/{BOT}", json=pace(200.0))
            done = await until(other, made["id"], "completed")
            assert done["counts"]["delivered"] == COUNT
            got = Counter(each["chat_id"] for each in await deliveries(sim))
            for line in await ledger(other, made["id"]):
                assert 1 <= got[int(line["chat_id"])] <= 1 + line["uncertain_tries"], line
            assert not other.surprises()

    asyncio.run(story())


def pace(bulk_per_s: float) -> dict[str, Any]:
    """Slow until the kill, which must come in the middle; then quick."""
    return {"limits": {"bulk_per_s": bulk_per_s}}


async def _with_chores(*servers: Server) -> Server:
    """The one that runs broadcasts. A lease may just be changing hands."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for server in servers:
                nodes = (await server.get("/v1/nodes"))["nodes"]
                if any(node["is_this"] and node["does_chores"] for node in nodes):
                    return server
            await asyncio.sleep(0.05)
