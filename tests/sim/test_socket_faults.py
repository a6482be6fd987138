"""Every fault as a client meets it on a socket: what comes, how it ends, and whether the message was really sent."""

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from peik.testing import Kind, SimServer
from tests.patience import PATIENCE_S
from tests.sim.wires import Wire, send_bytes, story


def test_refused_connections_and_the_same_port_open_again():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as kept:
            await kept.ask(send_bytes("before"))
            fault = sim.telegram.faults.add("refuse")
            for _ in range(3):
                with pytest.raises(ConnectionRefusedError):
                    await Wire.open(sim)
            assert (await kept.ask(send_bytes("over the old connection")))[0] == 200
            sim.telegram.faults.clear(fault)
            async with await Wire.open(sim) as wire:
                assert (await wire.ask(send_bytes("after")))[0] == 200

    story(play())


def test_who_waits_for_the_end_of_darkness_is_told_without_any_request():
    async def play() -> None:
        async with SimServer() as sim:
            sim.telegram.outage(0.05)
            await sim.until(lambda: not sim.telegram.faults.is_live(Kind.DARK), timeout=PATIENCE_S)

    story(play())


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_darkness_resets_a_connection_that_is_just_being_taken_in(run: Callable[..., None], turns: int):
    async def play() -> None:
        async with SimServer() as sim, asyncio.timeout(PATIENCE_S):
            loop = asyncio.get_running_loop()
            # The kernel completes it at once; the loop takes it in within the next few turns.
            with socket.create_connection((sim.host, sim.port)) as client:
                client.setblocking(False)
                client.send(send_bytes("in the doorway")[:20])  # a part, so that it cannot be answered before
                for _ in range(turns):
                    await asyncio.sleep(0)
                sim.telegram.dark(True)
                with pytest.raises(ConnectionResetError):
                    await loop.sock_recv(client, 1)

    run(play())


def test_darkness_resets_what_is_open_and_ends_by_itself():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            await wire.ask(send_bytes("before"))
            sim.telegram.outage(0.05)
            assert await wire.rest() == "reset"
            with pytest.raises(ConnectionRefusedError):
                await Wire.open(sim)
            while True:
                try:
                    async with await Wire.open(sim) as again:
                        assert (await again.ask(send_bytes("after")))[0] == 200
                        break
                except ConnectionRefusedError:
                    await asyncio.sleep(0)

    story(play())


def test_the_gate_may_be_slammed_many_times_in_one_breath():
    async def play() -> None:
        async with SimServer() as sim:
            for round_number in range(20):
                sim.telegram.dark(on=True)
                sim.telegram.dark(on=False)
                if round_number % 3 == 0:
                    await asyncio.sleep(0)
            async with await Wire.open(sim) as wire:
                assert (await wire.ask(send_bytes("open")))[0] == 200
            sim.telegram.dark(on=True)
            with pytest.raises(ConnectionRefusedError):
                await Wire.open(sim)

    story(play())
    uvloop.run(play())


def test_a_connection_reset_on_accept():
    async def play() -> None:
        async with SimServer() as sim:
            sim.telegram.faults.add("reset_on_accept", count=1)
            async with await Wire.open(sim) as wire:
                assert await wire.rest() == "reset"
            async with await Wire.open(sim) as wire:
                assert (await wire.ask(send_bytes("x")))[0] == 200

    story(play())


@pytest.mark.parametrize(
    ("kind", "details", "ending", "is_sent"),
    [
        ("lose_before", {}, "reset", False),
        ("lose_before", {"by_end": True}, b"", False),
        ("lose_after", {}, "reset", True),
        ("lose_after", {"by_end": True}, b"", True),
        ("garbage", {"garbage": "SSH-2.0-x"}, b"SSH-2.0-x", False),
        ("garbage", {"garbage": "SSH-2.0-x", "after": True}, b"SSH-2.0-x", True),
    ],
)
def test_a_lost_request_ends_so_and_was_sent_or_not(kind, details, ending, is_sent):
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            await wire.ask(send_bytes("whole"))
            sim.telegram.faults.add(kind, count=1, **details)
            await wire.say(send_bytes("struck"))
            assert await wire.rest() == ending
            assert sim.telegram.sent.texts() == ["whole", "struck"][: 1 + is_sent]
            assert sim.telegram.counters.faults == {kind: 1}

    story(play())


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_truncated_answer_is_sent_but_never_whole(share: float):
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            sim.telegram.faults.add("truncate", share=share)
            await wire.say(send_bytes("struck"))
            part = await wire.rest()
            assert part.startswith(b"H")
            assert not part.endswith(b"}}")
            assert sim.telegram.sent.texts() == ["struck"]

    story(play())


@pytest.mark.parametrize("after", [False, True])
def test_a_hanging_request_is_never_answered(after: bool):
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire, await Wire.open(sim) as other:
            sim.telegram.faults.add("hang", chat=7, after=after)
            await wire.say(send_bytes("struck"))
            await sim.until(lambda: sim.telegram.counters.faults["hang"] == 1, timeout=PATIENCE_S)
            assert (await other.ask(send_bytes("well", chat_id=8)))[0] == 200
            assert await wire.is_silent()
            assert sim.telegram.sent.texts(7) == ["struck"] * after

    story(play())


@pytest.mark.parametrize(("html", "after"), [(False, False), (True, False), (False, True)])
def test_a_5xx_as_json_or_nginx_page_before_or_after_the_effect(html: bool, after: bool):
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            sim.telegram.faults.add("error", status=502, html=html, after=after, count=1)
            status, body = await wire.ask(send_bytes("struck"))
            assert status == 502
            if html:
                assert b"<h1>502 Bad Gateway</h1>" in body
            else:
                assert body == {"ok": False, "error_code": 502, "description": "Bad Gateway"}
            assert (await wire.ask(send_bytes("next")))[0] == 200
            assert sim.telegram.sent.texts() == ["struck", "next"][not after :]

    story(play())


def test_a_429_on_command():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            sim.telegram.faults.add("flood", retry_after=40, count=1)
            status, body = await wire.ask(send_bytes("x"))
            assert (status, body["parameters"]) == (429, {"retry_after": 40})
            assert sim.telegram.sent.total == 0
            assert sim.telegram.counters.limited == 0

    story(play())


def test_a_slow_answer_has_taken_effect_at_once():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            sim.telegram.faults.add("slow", least_s=0.5, most_s=0.5, count=1)
            await wire.say(send_bytes("slow"))
            await sim.until(lambda: sim.telegram.sent.total == 1, timeout=PATIENCE_S)
            assert await wire.is_silent()
            assert (await wire.answer())[0] == 200

    story(play())


def test_a_late_request_takes_effect_though_its_client_has_gone():
    async def play() -> None:
        async with SimServer() as sim:
            sim.telegram.faults.add("late", least_s=0.5, most_s=0.5, count=1)
            async with await Wire.open(sim) as wire:
                await wire.say(send_bytes("late"))
                await sim.until(lambda: sim.telegram.counters.faults["late"] == 1, timeout=PATIENCE_S)
            assert sim.telegram.sent.total == 0
            await sim.until(lambda: sim.telegram.sent.total == 1, timeout=PATIENCE_S)

    story(play())


def test_a_connection_closed_without_notice_after_some_answers():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            sim.telegram.faults.add("close_after", requests=2)
            assert (await wire.ask(send_bytes("1")))[0] == 200
            assert (await wire.ask(send_bytes("2")))[0] == 200
            assert await wire.rest() == b""

    story(play())


def test_an_idle_connection_closed_without_notice():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            sim.telegram.faults.add("close_idle", idle_s=0.05)
            assert (await wire.ask(send_bytes("1")))[0] == 200
            assert await wire.rest() == b""

    story(play())


def test_a_stale_connection_meets_its_next_request_with_a_reset():
    async def play() -> None:
        async with SimServer() as sim, await Wire.open(sim) as wire:
            sim.telegram.faults.add("stale", requests=1)
            assert (await wire.ask(send_bytes("1")))[0] == 200
            await wire.say(send_bytes("2"))
            assert await wire.rest() == "reset"
            assert sim.telegram.sent.texts() == ["1"]
            assert sim.telegram.counters.lost_before == 1

    story(play())


def test_the_control_port_meets_no_fault():
    async def play() -> None:
        async with SimServer() as sim:
            sim.telegram.faults.add("lose_before")
            sim.telegram.dark(on=True)
            reader, writer = await asyncio.open_connection(sim.host, sim.control_port)
            async with Wire(reader, writer) as wire:
                assert (await wire.ask(send_bytes("by the side door")))[0] == 200

    story(play())
