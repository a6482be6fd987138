"""A full disk: everybody is told, nothing is acknowledged, Peik lives, and goes on by itself when there is room."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disks import disk_of, ways_to_fill
from tests.faults.hurting import HurtServer, hurt_server, is_confirmed, pending, push_error, sent_texts, until, write
from tests.processes.programs import Sim, simulated

LONG = "x" * 3000  # no block that is half full takes a few of these
TRIES_MAX = 200


async def first_refusal(server: HurtServer, acknowledged: list[str]) -> dict[str, Any]:
    """Letters until one is refused: what is written to blocks that were there before still fits."""
    for number in range(TRIES_MAX):
        text = f"{number} {LONG}"
        status, answer = await server.post(5, text)
        if status != 202:
            assert status == 503, answer
            return dict(answer)
        acknowledged.append(text)
    raise AssertionError("the disk does not fill up")


async def refused_by_gateway(server: HurtServer, taken: list[str]) -> dict[str, Any]:
    """The same there: a commit that is refused may leave blocks behind into which a smaller one fits."""
    for number in range(TRIES_MAX):
        text = f"{number} {LONG}"
        status, answer = await server.ask("sendMessage", chat_id=6, text=text)
        if status != 200:
            assert (status, answer["ok"], answer["error_code"]) == (503, False, 503)
            return dict(answer)
        taken.append(text)
    raise AssertionError("the disk does not fill up")


async def first_unstored(server: HurtServer, sim: Sim, written: list[str]) -> None:
    """People write until an update finds no room."""
    for number in range(TRIES_MAX):
        written.append(f"meanwhile {number} {LONG}")
        await write(sim, 7, written[-1])
        if await until(lambda: _is_told_or_stored(server, sim)) == "told":
            return
    raise AssertionError("every update found room")


async def _is_told_or_stored(server: HurtServer, sim: Sim) -> str | None:
    if server.said("updates cannot be stored: The disk is full") or "503" in await push_error(sim):
        return "told"
    return "stored" if await is_confirmed(sim) else None


@pytest.mark.gate  # disks of their own that fill
@pytest.mark.parametrize("inbound", ["polling", "webhook"])
@pytest.mark.parametrize("way", ways_to_fill())
def test_a_full_disk_acknowledges_nothing_and_all_goes_on_when_there_is_room(
    tmp_path: Path, way: str, inbound: str
) -> None:
    async def story() -> None:
        with disk_of(way, tmp_path) as disk:
            async with (
                simulated(tmp_path, mode="local", limits={"on": False}) as (sim, http),
                hurt_server(
                    disk.folder, sim, http, pace="off", inbound=inbound, poll_timeout="1s", backoff_ms="100"
                ) as server,
            ):
                disk.under(server)
                await server.start()
                acknowledged, written = ["before"], ["before"]
                assert (await server.post(5, "before"))[0] == 202
                await write(sim, 7, "before")
                await until(server.arrivals)
                await until(lambda: is_confirmed(sim))

                await disk.fill()
                refusal = await first_refusal(server, acknowledged)
                assert refusal["code"] == "store_full"
                assert "Nothing was accepted" in refusal["detail"]
                taken: list[str] = []
                assert "disk is full" in (await refused_by_gateway(server, taken))["description"]
                await first_unstored(server, sim, written)
                assert await pending(sim) >= 1, "what is not stored is not confirmed"
                await until(lambda: _is_told_by_health(server, taken))
                assert server.is_alive
                await server.get("/v1/stats")  # reading goes on

                await disk.make_room()
                await until(lambda: _is_well(server))
                assert (await server.post(5, "after"))[0] == 202
                await server.quiet()
                assert await sent_texts(sim, 5) == [*acknowledged, "after"]
                assert await sent_texts(sim, 6) == taken, "who was refused was not sent for"
                await until(lambda: is_confirmed(sim))
                assert [one["text"] for one in await server.arrivals()] == [text[:200] for text in written]
                assert not server.surprises()

    asyncio.run(story())


async def _is_told_by_health(server: HurtServer, taken: list[str]) -> bool:
    """After one more refusal: a commit that is small enough still fits at times, and then all is well for a moment."""
    await refused_by_gateway(server, taken)
    health = await server.get("/health")
    return (health["status"], health["parts"]["store"]["status"]) == ("failing", "store_full")


async def _is_well(server: HurtServer) -> bool:
    return bool((await server.get("/health"))["status"] == "ok")
