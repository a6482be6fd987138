"""What people see of nodes over REST: real processes on one store, and a simulated Telegram behind them."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, Server, Sim, served, simulated
from tests.storage.shared_places import SHARED, SharedPlace

OTHER_TOKEN = "7000002:BBtest"
OTHER_BOT = 7000002
LEASE = "10s"

Found = dict[str, dict[str, Any]]


@pytest.fixture(params=SHARED, ids=lambda kind: kind.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    made: SharedPlace = request.param(tmp_path)
    return made


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    """What `look` sees once it is true."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if seen := await look():
                return seen
            await asyncio.sleep(0.05)


async def nodes_of(server: Server) -> Found:
    return {node["name"]: node for node in (await server.get("/v1/nodes"))["nodes"]}


async def own_name(server: Server) -> str:
    (name,) = [name for name, node in (await nodes_of(server)).items() if node["is_this"]]
    return name


@contextlib.asynccontextmanager
async def pair(folder: Path, url: str) -> AsyncIterator[tuple[Server, Server, Sim]]:
    """Two nodes of one store, two bots."""
    terms = {"store": url, "lease": LEASE, "bot_tokens": f"7000001:AAtest,{OTHER_TOKEN}"}
    homes = [folder / "one", folder / "two"]
    for home in homes:
        home.mkdir()
    async with (
        simulated(folder) as (sim, http),
        served(homes[0], sim.url, http, **terms) as one,
        served(homes[1], sim.url, http, **terms) as two,
    ):
        yield one, two, sim
        assert not one.surprises() + two.surprises()


# ---- one process on a file ----


def test_on_sqlite_the_one_process_serves_everything_and_cannot_be_drained(tmp_path: Path) -> None:
    async def main() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http) as server:
            page = await server.get("/v1/nodes")
            (node,) = page["nodes"]
            assert (page["lease_s"], page["store"]) == (None, "sqlite")
            assert (node["bots"], node["does_chores"], node["is_this"]) == ([str(BOT)], True, True)
            assert (node["state"], node["name"].rpartition("-")[2]) == ("active", str(server.pid))
            assert (await server.get(f"/v1/bots/{BOT}"))["node"] == node["name"]
            assert [bot["node"] for bot in (await server.get("/v1/bots"))["bots"]] == [node["name"]]
            status, problem = await server.call("POST", f"/v1/nodes/{node['name']}/drain")
            assert (status, problem["code"]) == (409, "one_process")
            status, problem = await server.call("POST", "/v1/nodes/nobody/resume")
            assert (status, problem["code"]) == (404, "unknown_node")

    asyncio.run(main())


def test_health_names_the_kind_of_the_store_and_ready_needs_no_key(tmp_path: Path) -> None:
    async def main() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http) as server:
            health = (await server.call("GET", "/health", key=None))[1]
            assert health["parts"]["store"] == {"status": "ok", "why": None, "kind": "sqlite", "weak": []}
            status, ready = await server.call("GET", "/ready", key=None)
            assert (status, ready["status"]) == (200, "ready")

    asyncio.run(main())


def test_nodes_concern_all_bots_and_draining_is_for_admins(tmp_path: Path) -> None:
    async def main() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http) as server:
            made = (await server.call("POST", "/v1/keys", json={"name": "reader", "scopes": ["read"]}))[1]
            own = {"name": "one bot", "scopes": ["admin"], "bot_ids": [str(BOT)]}
            narrow = (await server.call("POST", "/v1/keys", json=own))[1]
            assert (await server.call("GET", "/v1/nodes", key=made["key"]))[0] == 200
            assert (await server.call("POST", "/v1/nodes/x/drain", key=made["key"]))[1]["code"] == "wrong_scope"
            assert (await server.call("GET", "/v1/nodes", key=narrow["key"]))[1]["code"] == "wrong_bot"
            assert (await server.call("POST", "/v1/nodes/x/drain", key=narrow["key"]))[1]["code"] == "wrong_bot"

    asyncio.run(main())


# ---- two nodes on a server ----


@pytest.mark.gate  # leases of real processes run out
def test_two_nodes_share_the_bots_and_both_say_who_serves_which(tmp_path: Path, place: SharedPlace) -> None:
    async def main() -> None:
        async with pair(tmp_path, place.url) as (one, two, _):

            async def shared() -> Found | None:
                nodes = await nodes_of(one)
                held = [bot for node in nodes.values() for bot in node["bots"]]
                is_even = len(nodes) == 2 and all(node["bots"] or node["does_chores"] for node in nodes.values())
                return nodes if is_even and sorted(held) == [str(BOT), str(OTHER_BOT)] else None

            nodes = await until(shared)
            assert sum(node["does_chores"] for node in nodes.values()) == 1
            assert {node["address"] for node in nodes.values()} == {one.url, two.url}
            assert await own_name(one) != await own_name(two)
            for bot_id in (BOT, OTHER_BOT):
                (name,) = [name for name, node in nodes.items() if str(bot_id) in node["bots"]]
                for server in (one, two):
                    bot = await server.get(f"/v1/bots/{bot_id}")
                    assert (bot["node"], bot["inbound"]) == (name, "off")

    asyncio.run(main())


@pytest.mark.gate  # as above
def test_a_drained_node_gives_its_bots_to_the_other_and_is_not_ready(tmp_path: Path, place: SharedPlace) -> None:
    async def main() -> None:
        async with pair(tmp_path, place.url) as (one, two, _):
            name = await own_name(one)
            status, node = await two.call("POST", f"/v1/nodes/{name}/drain")  # asked at the other
            assert (status, node["name"], node["state"]) == (202, name, "draining")

            async def is_over() -> bool:
                nodes = await nodes_of(two)
                mine = nodes[name]
                (other,) = [node for node in nodes.values() if node["name"] != name]
                return not mine["bots"] and not mine["does_chores"] and len(other["bots"]) == 2

            await until(is_over)
            await until(partial(is_unready, one))
            assert (await one.call("GET", "/ready", key=None))[1]["code"] == "draining"
            assert (await two.call("GET", "/ready", key=None))[0] == 200
            letter = {"bot_id": BOT, "method": "sendMessage", "params": {"chat_id": 5, "text": "hello"}}
            status, sent = await one.call("POST", "/v1/letters?wait=200s", json=letter)  # it still accepts
            assert (status, sent["state"]) == (200, "completed"), sent
            status, node = await one.call("POST", f"/v1/nodes/{name}/resume")
            assert (status, node["state"]) == (202, "active")

            async def is_back() -> bool:
                mine = (await nodes_of(two))[name]
                return bool(mine["bots"] or mine["does_chores"])

            await until(is_back)

    asyncio.run(main())


def test_a_store_that_settles_for_less_is_named_in_health_and_in_the_log(tmp_path: Path, place: SharedPlace) -> None:
    async def main() -> None:
        async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http, store=place.url) as server:
            part = (await server.get("/health"))["parts"]["store"]
            assert (part["status"], part["kind"]) == ("ok", place.url.partition("://")[0])
            (weak,) = part["weak"]  # neither of the servers that stories share syncs anything
            assert "fsync = off" in weak or "no append-only file" in weak
            assert any("may lose what was accepted" in line for line in server.output)

    asyncio.run(main())


async def is_ready(server: Server) -> bool:
    return (await server.call("GET", "/ready", key=None))[0] == 200


async def is_unready(server: Server) -> bool:
    return (await server.call("GET", "/ready", key=None))[0] == 503


@pytest.mark.skipif(not SHARED, reason="TEST_STORES leaves the servers out")
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_while_the_store_is_away_a_node_is_alive_and_not_ready(tmp_path: Path, how: str) -> None:
    from tests.storage.redis_server import RedisServer

    async def main() -> None:
        (tmp_path / "redis").mkdir()
        redis = RedisServer(tmp_path / "redis", appendonly="yes", appendfsync="always").start()
        try:
            async with simulated(tmp_path) as (sim, http), served(tmp_path, sim.url, http, store=redis.url) as server:
                assert (await server.get("/health"))["parts"]["store"]["weak"] == []
                redis.kill() if how == "killed" else os.kill(redis.pid, signal.SIGSTOP)
                await until(partial(is_unready, server))
                health = await server.get("/health")
                assert (health["status"], health["parts"]["store"]["status"] == "ok") == ("failing", False)
                assert (await server.get("/v1/bots"))["bots"][0]["node"] is None
                redis.start() if how == "killed" else os.kill(redis.pid, signal.SIGCONT)
                await until(partial(is_ready, server))
        finally:
            redis.kill()

    asyncio.run(main())
