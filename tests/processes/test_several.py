"""`peik serve --processes N`: one port, several nodes, and a parent that keeps them: killed, hung, replaced, drained."""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import psutil
import pytest

from proofs.nodes.callers import Callers, Waiters
from proofs.nodes.cluster import Cluster, Node
from proofs.nodes.judge import judge
from tests.cli.shell import Shell
from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, Port, Program, Sim, simulated
from tests.processes.test_nodes import BOTS, LOAD, STORES, a_store

LOOK_S = 0.05


@asynccontextmanager
async def unit(kind: str, folder: Path, *, port: str = "0", **settings: str) -> AsyncIterator[tuple[Sim, Node]]:
    """Two processes, unless the settings say otherwise, once all of them serve."""
    asked = {"processes": "2", "port": port, "lease": "2s", "grace": "5s", "log_format": "json", **settings}
    async with simulated(folder) as (sim, http):
        tokens = ",".join(f"{bot}:AAproof" for bot in BOTS)
        node = Node(folder, sim.url, http, is_copy=False, store=a_store(kind), bot_tokens=tokens, **asked)
        try:
            await node.up()
            await until(node, lambda health: health["serving"] == int(asked["processes"]))
            yield sim, node
        finally:
            children = processes(node)
            await node.kill()
            for one in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()


def processes(node: Node) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return list(psutil.Process(node.pid).children())
    return []


class Ports:
    """Three in a row that nobody else is given: one for all, and one for each of two processes. See `Port`."""

    def __init__(self) -> None:
        while True:
            self._held = [Port()]
            self.number = self._held[0].number
            try:
                self._others = [self._bound(self.number + place) for place in (1, 2)]
            except OSError:
                continue  # one of them is somebody's
            return

    @staticmethod
    def _bound(number: int) -> socket.socket:
        place = socket.socket()
        try:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(("127.0.0.1", number))
        except BaseException:
            place.close()
            raise
        return place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._others:
            one.close()


async def until(node: Node, is_so: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so((await node.get("/health"))["parts"]["processes"]):  # noqa: ASYNC110  other processes
            await asyncio.sleep(LOOK_S)


async def told(node: Node, event: str) -> dict[str, Any]:
    """The first line of the log that says this. Lines of several processes stand whole, each by itself."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for line in node.output:
                if f'"event": "{event}"' in line:
                    return dict(json.loads(line))
            await asyncio.sleep(LOOK_S)


async def gone(found: list[psutil.Process]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in found):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


# ---- a child dies ----


@pytest.mark.gate  # kills of real processes
@STORES
def test_a_killed_process_loses_nothing_repeats_only_what_was_uncertain_and_is_started_again(
    kind: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with unit(kind, tmp_path) as (sim, node):
            nodes, chance = Cluster([node], BOTS, random.Random(3)), random.Random(5)
            callers = Callers(nodes, LOAD, chance)
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                group.create_task(callers.run())
                for deaths in (1, 2):
                    await sim.get("sent", at_least=deaths * 100)
                    chance.choice(processes(node)).kill()
                    await until(node, lambda health, deaths=deaths: health["deaths"] == deaths)  # type: ignore[misc]
                    await until(node, lambda health: health["serving"] == 2)
            await node.quiet()
            verdict = await judge(sim, nodes, callers, Waiters(nodes, chance), [])
            assert not verdict.broken
            assert verdict.figures["accepted"] == LOAD.letters
            line = await told(node, "! a process ended; another one is started")
            assert (line["how"], line["again_s"]) == ("ended by SIGKILL", 0.5)

    asyncio.run(story())


def test_one_whose_event_loop_hangs_is_ended_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")  # as systemd says it

    async def story() -> None:
        async with unit("redis", tmp_path) as (_, node):
            victim = processes(node)[1]
            victim.suspend()
            line = await told(node, "! a process ended; another one is started")
            assert (line["process"], line["place"]) == (victim.pid, 2)
            await until(node, lambda health: health == {"status": "ok", "processes": 2, "serving": 2, "deaths": 1})

    asyncio.run(story())


def test_without_their_parent_they_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with unit("redis", tmp_path) as (_, node):
            children = processes(node)
            assert len(children) == 2
            await node.kill()
            await gone(children)

    asyncio.run(story())


# ---- restarts and the end ----


async def asked_again_and_again(node: Node, ended: asyncio.Event) -> int:
    """How many were answered; a connection of its own for each."""
    count = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        while not ended.is_set():
            params = {"chat_id": 1 + count % 20, "text": f"{count}"}
            body = {"bot_id": str(BOTS[count % len(BOTS)]), "method": "sendMessage", "params": params}
            head = {"Authorization": f"Bearer {KEY}"}
            async with http.post(f"{node.url}/v1/letters", json=body, headers=head) as answer:
                assert answer.status == 202, await answer.text()
            count += 1
    return count


@pytest.mark.gate  # restarts of real processes, at their own pace
@STORES
@pytest.mark.parametrize("how", ["SIGHUP", "--replace"])
def test_all_are_replaced_and_no_connection_is_refused(kind: str, how: str, tmp_path: Path) -> None:
    async def story() -> None:
        with Ports() as place:
            await replaced(str(place.number))

    async def replaced(port: str) -> None:
        async with unit(kind, tmp_path, port=port) as (_, node):
            before, parent = processes(node), node.pid
            ended = asyncio.Event()
            asking = asyncio.create_task(asked_again_and_again(node, ended))
            if how == "SIGHUP":
                os.kill(parent, signal.SIGHUP)
                await told(node, "-> all processes were replaced")
                assert node.pid == parent
            else:
                await node.replace()
                assert node.pid != parent
            ended.set()
            assert await asking > 0
            await gone(before)
            assert len(processes(node)) == 2
            await until(node, lambda health: health["serving"] == 2)
            assert node.surprises() == []

    asyncio.run(story())


def test_the_end_waits_for_what_is_in_flight_in_each(tmp_path: Path) -> None:
    async def story() -> None:
        async with unit("redis", tmp_path) as (sim, node):
            children = processes(node)
            await sim.post("faults", kind="slow", least_s=1.0, most_s=1.0, count=len(BOTS))
            for bot in BOTS:
                body = {"bot_id": str(bot), "method": "sendMessage", "params": {"chat_id": 5, "text": f"of {bot}"}}
                status, _ = await node.call("POST", "/v1/letters", json=body)
                assert status == 202
            await sim.get("sent", at_least=len(BOTS))
            assert await node.end() == 0
            await gone(children)
            sent = (await sim.get("sent", chat=5))["deliveries"]
            assert sorted(one["text"] for one in sent) == sorted(f"of {bot}" for bot in BOTS)
            left = [node.told("# left bots to other nodes", "let_go")]
            assert sum(left) >= len(BOTS), "a process was not drained"

    asyncio.run(story())


# ---- as several nodes ----


def test_each_is_a_node_with_a_port_of_its_own_and_a_share_of_the_bots(tmp_path: Path) -> None:
    async def story() -> None:
        async with unit("redis", tmp_path) as (_, node):
            async with asyncio.timeout(PATIENCE_S):
                while min(len(one["bots"]) for one in await node.nodes()) < 2:  # noqa: ASYNC110  other processes
                    await asyncio.sleep(LOOK_S)
            listed = await node.nodes()
            assert len({one["address"] for one in listed} | {node.url}) == 3
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as http:
                for one in listed:
                    async with http.get(f"{one['address']}/v1/nodes") as answer:
                        told_by = await answer.json()
                    assert [other["name"] for other in told_by["nodes"] if other["is_this"]] == [one["name"]]

    asyncio.run(story())


def test_on_a_file_it_is_refused_with_what_to_do(tmp_path: Path) -> None:
    ran = Shell(tmp_path).peik("serve", "--processes", "2")
    assert ran.code == 1
    assert "PostgreSQL or Redis: peik migrate" in ran.err


def test_settings_that_are_wrong_end_it_and_are_told_once(tmp_path: Path) -> None:
    async def story() -> None:
        program = Program(
            "-m", "peik", "serve", "--processes", "2", folder=tmp_path, PEIK_STORE="redis://127.0.0.1:1/0"
        )
        with pytest.raises(RuntimeError, match="It ended with 1"):
            await program.start(re.compile("listens on"))
        assert "".join(program.output).count("Redis cannot be reached") == 1

    asyncio.run(story())
