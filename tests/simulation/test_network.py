"""The network of the seeded world: every fault does what it says, to both sides, and is counted."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from peik.core.outcome import NetworkFault, Reply
from peik.core.token import Token
from peik.telegram.port import Request
from peik.testing.faults import Options
from peik.testing.telegram import Telegram
from peik.testing.virtual import VirtualClock
from simulation.network import CONNECT_S, LATENCY_S, Answered, Doors, Lost, Tally, Try, Weather, WeatherCarrier
from simulation.processes import Process, WorldLoop, current, run_world

TOKEN = "7000001:AAtest"
TIMEOUT_S = 30.0
LONG_S = 100.0


# ---- to Telegram ----


class Way:
    """One process, its way to Telegram, and what both sides saw of it."""

    def __init__(self, loop: WorldLoop, clock: VirtualClock, **weather: Any) -> None:
        self.clock = clock
        self.telegram = Telegram(now=clock.wall_s, chance=random.Random(1), options=Options(accept_any_token=True))
        self.process = Process("peik", loop)
        self.weather = Weather(**weather)
        self.tally = Tally()
        self.left: list[Try] = []
        self.told: list[tuple[float, Reply | None]] = []
        self.carrier = WeatherCarrier(
            self.telegram,
            self.process,
            self.weather,
            chance=random.Random(2),
            tally=self.tally,
            left=self.left.append,
            told=lambda one: self.told.append((clock.mono(), one.reply)),
        )

    @property
    def arrived(self) -> list[str]:
        return self.telegram.sent.texts()

    def start(self, text: str = "hello") -> "asyncio.Task[Reply]":
        params = msgspec.json.encode({"chat_id": 1, "text": text})
        request = Request(token=Token(TOKEN), method="sendMessage", params=params, timeout_s=TIMEOUT_S)
        return self.process.start(self.carrier.carry(request))

    async def send(self) -> tuple[Reply, float]:
        """What the process is told, and how long that took."""
        began_at = self.clock.mono()
        reply = await self.start()
        return reply, round(self.clock.mono() - began_at, 3)


def with_way(story: Callable[[Way], Awaitable[None]], **weather: Any) -> Way:
    async def main(loop: WorldLoop, clock: VirtualClock) -> Way:
        way = Way(loop, clock, **weather)
        await story(way)
        return way

    return run_world(main)


@pytest.mark.parametrize(
    ("weather", "reply", "takes_s", "arrives", "counted"),
    [
        ({}, Reply(status=200), LATENCY_S, True, {}),
        ({"refused": 1.0}, Reply(fault=NetworkFault.REFUSED, left=False), LATENCY_S, False, {"refused": 1}),
        ({"lost_before": 1.0}, Reply(fault=NetworkFault.RESET), 0.0, False, {"lost_requests": 1}),
        ({"lost_before": 1.0, "hangs": 1.0}, Reply(fault=NetworkFault.TIMEOUT), TIMEOUT_S, False, {"lost_requests": 1}),
        ({"lost_after": 1.0}, Reply(fault=NetworkFault.RESET), LATENCY_S, True, {"lost_answers": 1}),
        ({"lost_after": 1.0, "hangs": 1.0}, Reply(fault=NetworkFault.TIMEOUT), TIMEOUT_S, True, {"lost_answers": 1}),
        ({"hangs": 1.0}, Reply(status=200), LATENCY_S, True, {}),
    ],
)
def test_a_fault_does_what_it_says(
    weather: dict[str, float], reply: Reply, takes_s: float, arrives: bool, counted: dict[str, int]
) -> None:
    async def story(way: Way) -> None:
        told, took_s = await way.send()
        assert (told.status, told.fault, told.left) == (reply.status, reply.fault, reply.left)
        assert took_s == takes_s

    way = with_way(story, **weather)
    assert way.arrived == (["hello"] if arrives else [])
    assert way.tally == Tally(requests=1, **counted)
    assert len(way.left) == len(way.told) == 1


def test_a_cut_parts_both_sides_and_some_bytes_may_have_left() -> None:
    """Where a connection was open the try is in doubt; where there was none it certainly is not."""

    async def story(way: Way) -> None:
        seen = set()
        for _ in range(30):
            reply, took_s = await way.send()
            seen.add((reply.fault, reply.left, took_s))
        assert seen == {(NetworkFault.CONNECT_TIMEOUT, False, CONNECT_S), (NetworkFault.TIMEOUT, True, TIMEOUT_S)}

    way = with_way(story, is_cut=True)
    assert way.arrived == []
    assert way.tally.refused + way.tally.lost_requests == way.tally.requests == 30


def test_an_answer_that_meets_a_cut_is_lost() -> None:
    async def story(way: Way) -> None:
        task = way.start()
        await asyncio.sleep(LATENCY_S * 0.75)
        way.weather.is_cut = True
        reply = await task
        assert (reply.fault, reply.left, way.clock.mono()) == (NetworkFault.TIMEOUT, True, TIMEOUT_S)

    way = with_way(story)
    assert way.arrived == ["hello"]
    assert way.tally == Tally(requests=1, lost_answers=1)


def test_a_delay_holds_up_either_way_and_loses_nothing() -> None:
    async def story(way: Way) -> None:
        times = []
        for _ in range(4):
            reply, took_s = await way.send()
            assert reply.status == 200
            times.append(took_s)
            await asyncio.sleep(10.0)
        assert all(LATENCY_S <= took_s <= LATENCY_S + 6.0 for took_s in times)
        assert max(times) > 3.0 + LATENCY_S, "one way alone takes three seconds at most"

    assert with_way(story, delay_s=3.0).arrived == ["hello"] * 4


def test_good_weather_ends_every_fault() -> None:
    weather = Weather(refused=1.0, lost_before=1.0, lost_after=1.0, hangs=1.0, delay_s=1.0, is_cut=True)
    weather.clear()
    assert weather == Weather()


def test_what_has_left_arrives_though_its_sender_is_dead_and_hears_nothing() -> None:
    async def story(way: Way) -> None:
        task = way.start()
        await asyncio.sleep(0.0)
        assert len(way.left) == 1
        way.process.kill()
        await asyncio.sleep(LONG_S)
        assert not task.done()

    way = with_way(story, delay_s=3.0)
    assert way.arrived == ["hello"]
    assert way.told == []


def test_a_process_that_dies_before_its_code_ran_has_sent_nothing() -> None:
    async def story(way: Way) -> None:
        way.start()
        way.process.kill()
        await asyncio.sleep(LONG_S)

    way = with_way(story)
    assert (way.left, way.arrived) == ([], [])


def test_a_frozen_process_hears_its_answer_when_it_wakes() -> None:
    async def story(way: Way) -> None:
        task = way.start()
        await asyncio.sleep(0.01)
        way.process.freeze()
        await asyncio.sleep(LONG_S)
        assert way.arrived == ["hello"]
        assert (task.done(), way.told) == (False, [])
        way.process.thaw()
        assert (await task).status == 200

    way = with_way(story)
    assert [at for at, _ in way.told] == [LONG_S + 0.01]


def test_what_happens_on_the_way_belongs_to_no_process() -> None:
    owners: list[Process | None] = []

    async def story(way: Way) -> None:
        add = way.telegram.sent.add
        way.telegram.sent.add = lambda delivery: (owners.append(current()), add(delivery))  # type: ignore[method-assign]
        await way.send()

    with_way(story)
    assert owners == [None]


# ---- to our doors ----


class House:
    """A process with a door that answers after a while, and the way to it."""

    def __init__(self, loop: WorldLoop, **weather: Any) -> None:
        self.process = Process("peik", loop)
        self.weather = Weather(**weather)
        self.tally = Tally()
        self.doors = Doors(self.weather, chance=random.Random(3), tally=self.tally)
        self.takes_s = 1.0
        self.heard: list[bytes] = []
        self.answered = 0
        self.hung_up = 0

    async def app(self, scope: dict[str, Any], receive: Callable[[], Any], send: Callable[..., Any]) -> None:
        assert current() is self.process
        self.heard.append((await receive())["body"])
        if scope["path"] == "/broken":
            raise ValueError("a door that raises")
        if scope["path"] == "/patient":
            assert (await receive())["type"] == "http.disconnect"
            self.hung_up += 1
            return
        await asyncio.sleep(self.takes_s)
        self.answered += 1
        named = [(b"x-asked", scope["query_string"] + dict(scope["headers"])[b"from"])]
        await send({"type": "http.response.start", "status": 202, "headers": named})
        await send({"type": "http.response.body", "body": b'{"a":', "more_body": True})
        await send({"type": "http.response.body", "body": b"1}"})

    async def ask(self, path: str = "/letters?x=1", *, timeout_s: float = 60.0) -> Answered:
        headers = {"From": "ann"}
        return await self.doors.ask(
            self.process, self.app, "POST", path, headers=headers, body=b"hello", timeout_s=timeout_s
        )


def with_house(story: Callable[[House], Awaitable[None]], **weather: Any) -> tuple[House, list[str]]:
    loud: list[str] = []

    async def main(loop: WorldLoop, clock: VirtualClock) -> House:
        loop.set_exception_handler(lambda loop, context: loud.append(context["message"]))
        house = House(loop, **weather)
        await story(house)
        return house

    return run_world(main), loud


@pytest.mark.parametrize(
    ("weather", "words", "hears", "counted"),
    [
        ({"refused": 1.0}, "connection refused", False, {"refused": 1}),
        ({"is_cut": True}, "connection refused", False, {"refused": 1}),
        ({"lost_before": 1.0}, "connection reset", False, {"lost_requests": 1}),
        ({"lost_after": 1.0}, "connection reset", True, {"lost_answers": 1}),
    ],
)
def test_a_request_to_a_door_is_lost(weather: dict[str, Any], words: str, hears: bool, counted: dict[str, int]) -> None:
    async def story(house: House) -> None:
        with pytest.raises(Lost, match=words):
            await house.ask()
        await asyncio.sleep(LONG_S)

    house, loud = with_house(story, **weather)
    assert (house.heard, house.answered, loud) == ([b"hello"] if hears else [], int(hears), [])
    assert house.tally == Tally(requests=1, **counted)


def test_a_request_to_a_door_is_answered_whole() -> None:
    async def story(house: House) -> None:
        answer = await house.ask()
        assert (answer.status, answer.json(), answer.headers) == (202, {"a": 1}, {"x-asked": "x=1ann"})
        assert asyncio.get_running_loop().time() == pytest.approx(1.0 + LATENCY_S)

    house, _ = with_house(story)
    assert house.tally == Tally(requests=1)


def test_nobody_answers_at_the_door_of_the_dead() -> None:
    async def story(house: House) -> None:
        for process, app in ((None, house.app), (house.process, None)):
            with pytest.raises(Lost, match="refused"):
                await house.doors.ask(process, app, "GET", "/", headers={})
        house.process.kill()
        with pytest.raises(Lost, match="refused"):
            await house.ask()

    house, _ = with_house(story)
    assert (house.heard, house.tally.refused) == ([], 3)


@pytest.mark.parametrize("way", ["dies", "is frozen", "is cut off"])
def test_an_answer_is_lost_while_it_is_made(way: str) -> None:
    async def story(house: House) -> None:
        asked = asyncio.create_task(house.ask(timeout_s=20.0))
        await asyncio.sleep(0.5)
        assert house.heard == [b"hello"]
        began_at = asyncio.get_running_loop().time()
        match way:
            case "dies":
                house.process.kill()
            case "is frozen":
                house.process.freeze()
            case _:
                house.weather.is_cut = True
        with pytest.raises(Lost, match="no answer in time" if way == "is frozen" else "connection reset"):
            await asked
        took_s = asyncio.get_running_loop().time() - began_at
        assert (took_s < 0.001, took_s > 19.0) == (way == "dies", way == "is frozen")
        house.process.thaw()
        await asyncio.sleep(LONG_S)

    house, loud = with_house(story)
    assert (house.answered, loud) == (int(way != "dies"), [])
    assert house.tally == Tally(requests=1, lost_answers=int(way == "is cut off"))


def test_a_frozen_process_takes_a_request_and_answers_late() -> None:
    async def story(house: House) -> None:
        house.process.freeze()
        asked = asyncio.create_task(house.ask(timeout_s=20.0))
        await asyncio.sleep(10.0)
        assert house.heard == []
        house.process.thaw()
        assert (await asked).status == 202
        assert asyncio.get_running_loop().time() == pytest.approx(11.0 + LATENCY_S / 2)

    with_house(story)


def test_a_door_hears_that_its_client_hung_up() -> None:
    async def story(house: House) -> None:
        with pytest.raises(Lost, match="no answer in time"):
            await house.ask("/patient", timeout_s=5.0)
        await asyncio.sleep(0.1)
        assert house.hung_up == 1

    with_house(story)


def test_a_door_that_raises_is_heard_of() -> None:
    async def story(house: House) -> None:
        with pytest.raises(Lost, match="connection reset"):
            await house.ask("/broken")

    _, loud = with_house(story)
    assert loud == ["/broken raised"]
