"""The wall clock of the machine jumps an hour: nothing is sent before its time, nothing expires or is lost by it."""

import asyncio
from pathlib import Path

import pytest

from tests.faults.hurting import HurtServer, WallClock, hurt_server, is_confirmed, sent_texts, until, write
from tests.processes.programs import Sim, simulated

HOUR = 3600
TERMS = {"pace": "off", "inbound": "polling", "poll_timeout": "1s"}


@pytest.mark.gate  # real clocks that jump
@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_letters_that_wait_are_neither_early_nor_expired_nor_lost(tmp_path: Path, jump: int) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, **TERMS) as server,
        ):
            clock = WallClock(server, tmp_path)
            await server.start()
            await sim.post("faults", kind="dark")
            began_at = clock.now()
            assert (await server.post(5, "waits"))[0] == 202
            assert (await server.post(5, "expires in two hours", expires_at=began_at + 2 * HOUR))[0] == 202
            assert (await server.post(5, "due in two hours", send_at=began_at + 2 * HOUR))[0] == 202
            clock.set(jump)
            assert (await server.post(5, "after the jump"))[0] == 202
            assert (await server.post(5, "due at once", send_at=clock.now() + 0.2))[0] == 202
            await sim.post("dark", on=False)
            await sim.get("sent", at_least=4)
            await write(sim, 7, "an update")
            await until(lambda: is_confirmed(sim))
            assert sorted(await sent_texts(sim, 5)) == sorted(
                ["waits", "expires in two hours", "after the jump", "due at once"]
            )

            clock.set(3 * HOUR)
            # What comes due by a jump is found at the next look, within a minute; another letter with a time brings it on.
            assert (await server.post(5, "the next look", send_at=clock.now()))[0] == 202
            assert "due in two hours" in await until(lambda: _all_sent(sim, 6))
            stats = await server.quiet()
            assert (stats["completed"], stats["failed"]) == (6, 0)
            assert [one["text"] for one in await server.arrivals()] == ["an update"]
            assert not server.surprises()

    asyncio.run(story())


async def _all_sent(sim: Sim, count: int) -> list[str] | None:
    texts = await sent_texts(sim, 5)
    return texts if len(texts) >= count else None


@pytest.mark.gate  # as above
def test_a_month_ahead_drops_no_update_and_frees_no_key(tmp_path: Path) -> None:
    """Over a restart as well: at a start, and every five minutes, it is looked for what is too old."""

    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, **TERMS) as server,
        ):
            clock = WallClock(server, tmp_path)
            await server.start()
            await write(sim, 7, "an update")
            await until(lambda: is_confirmed(sim))
            _, first = await server.post(5, "once", idempotency_key="k")
            assert (await server.get(f"/v1/letters/{first['id']}?wait=60s"))["state"] == "completed"
            clock.set(31 * 24 * HOUR)
            assert (await server.post(5, "once", idempotency_key="k"))[1]["id"] == first["id"]
            assert await server.program.terminate() == 0
            await server.start()
            await until(lambda: _is_told(server))
            assert (await server.post(5, "once", idempotency_key="k"))[1]["id"] == first["id"]
            assert [one["text"] for one in await server.arrivals()] == ["an update"]
            assert await sent_texts(sim, 5) == ["once"]
            assert not server.surprises()

    asyncio.run(story())


async def _is_told(server: HurtServer) -> bool:
    return "clock" in [one["rule"] for one in (await server.get("/v1/alerts"))["ongoing"]]


@pytest.mark.gate  # as above
def test_a_letter_that_backs_off_does_not_wait_for_the_clock_to_catch_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, **TERMS) as server,
        ):
            clock = WallClock(server, tmp_path)
            await server.start()
            await sim.post("faults", kind="error", method="sendMessage", status=500, count=1)
            _, letter = await server.post(5, "put off", backoff_ms=4000)
            await until(lambda: _is_put_off(server, letter["id"]))
            clock.set(-HOUR)
            ended = await server.get(f"/v1/letters/{letter['id']}?wait=200s")
            assert ended["state"] == "completed", ended
            assert not server.surprises()

    asyncio.run(story())


async def _is_put_off(server: HurtServer, letter_id: str) -> bool:
    return bool((await server.get(f"/v1/letters/{letter_id}"))["history"])
