"""Webhooks of results with real processes: a receiver that checks signatures, fails, hangs and dies, a Peik that is killed."""

import asyncio
import contextlib
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.outbox.receivers import Heard, verified
from tests.patience import PATIENCE_S
from tests.processes.programs import Server, Sim, served, simulated
from tests.web.test_keys import made
from tests.web.test_rest import message, play

ALLOWED = {"hooks_allow_private": "on"}
HANGS = -1


class Receiver:
    """A web server as somebody would write it. `answer` says the status for each message, or HANGS."""

    def __init__(self, answer: Callable[[Heard], int] = lambda heard: 200) -> None:
        self.answer = answer
        self.heard: list[Heard] = []
        self.headers: dict[str, str] = {}
        self._more = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?shop=5"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/hook", self._receive)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _receive(self, request: web.Request) -> web.Response:
        heard = Heard(
            time.time(), str(request.url), {k.lower(): v for k, v in request.headers.items()}, await request.read()
        )
        self.heard.append(heard)
        self._more.set()
        status = self.answer(heard)
        if status == HANGS:
            await asyncio.Event().wait()
        return web.Response(status=status, headers=self.headers)

    async def until(self, is_so: Callable[[list[Heard]], bool], timeout_s: float = PATIENCE_S) -> list[Heard]:
        """What was heard, once it is so."""
        async with asyncio.timeout(timeout_s):
            while not is_so(self.heard):
                self._more.clear()
                await self._more.wait()
        return self.heard


@contextlib.asynccontextmanager
async def receiving(answer: Callable[[Heard], int] = lambda heard: 200) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer)
    await receiver.start()
    try:
        yield receiver
    finally:
        await receiver.stop()


def test_a_key_and_a_letter_have_their_own_webhooks_and_secrets(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with receiving() as of_key, receiving() as of_letter:
            key = await made(server, "send", webhook_url=of_key.url)
            assert key["webhook_secret"].startswith("whsec_")
            _, by_key = await server.call("POST", "/v1/letters", key=key["key"], json=message())
            own = message() | {"webhook_url": of_letter.url}
            _, by_letter = await server.call("POST", "/v1/letters", key=key["key"], json=own)
            batch = {"letters": [message(), own]}
            _, of_batch = await server.call("POST", "/v1/letters/batch", key=key["key"], json=batch)
            await server.call("POST", "/v1/letters", json=message())  # the admin's: nobody is told
            await server.quiet()
            secret = (await server.get("/v1/webhooks/secret"))["webhook_secret"]
            for receiver, wanted, signed_with in (
                (of_key, {by_key["id"], of_batch["ids"][0]}, key["webhook_secret"]),
                (of_letter, {by_letter["id"], of_batch["ids"][1]}, secret),
            ):
                heard = await receiver.until(lambda heard: len(heard) >= 2)
                told = [verified(signed_with, one.headers, one.body, now_s=one.at_s) for one in heard]
                assert {one["data"]["id"] for one in told} == wanted
                assert {one["type"] for one in told} == {"letter.completed"}
                for one in told:
                    shown = await server.get(f"/v1/letters/{one['data']['id']}")
                    assert shown == shown | one["data"]

    play(tmp_path, story, **ALLOWED)


def test_failed_and_cancelled_letters_and_multipart_ones_are_told(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with receiving() as receiver:
            bad = message(text="<b", parse_mode="HTML") | {"webhook_url": receiver.url}
            late = message() | {"webhook_url": receiver.url, "send_at": time.time() + 3600}
            await server.call("POST", "/v1/letters", json=bad)
            _, delayed = await server.call("POST", "/v1/letters", json=late)
            await server.call("DELETE", f"/v1/letters/{delayed['id']}")
            heard = await receiver.until(lambda heard: len(heard) >= 2)
            assert {one.message["type"] for one in heard} == {"letter.failed", "letter.cancelled"}

    play(tmp_path, story, **ALLOWED)


@pytest.mark.gate  # waits for tries in real time
def test_a_receiver_that_fails_is_tried_again_with_the_same_message(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        statuses = iter([500, 200])
        async with receiving(lambda heard: next(statuses)) as receiver:
            await server.call("POST", "/v1/letters", json=message() | {"webhook_url": receiver.url})
            first, second = await receiver.until(lambda heard: len(heard) == 2)
            assert (first.id, first.body) == (second.id, second.body)
            assert second.at_s - first.at_s > 4.5
            secret = (await server.get("/v1/webhooks/secret"))["webhook_secret"]
            for one in (first, second):
                verified(secret, one.headers, one.body, now_s=one.at_s)

    play(tmp_path, story, **ALLOWED)


@pytest.mark.gate  # waits for tries in real time
def test_a_receiver_that_was_dead_hears_it_when_it_is_back(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with receiving() as receiver:
            await receiver.stop()
            await server.call("POST", "/v1/letters?wait=200s", json=message() | {"webhook_url": receiver.url})
            await written(server, "webhook failed")
            await receiver.start()
            await receiver.until(lambda heard: len(heard) == 1)

    play(tmp_path, story, **ALLOWED)


async def written(server: Server, words: str, count: int = 1) -> list[str]:
    """Lines of Peik's log with these words, once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = [line for line in server.output if words in line]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


def test_killed_between_the_end_of_a_letter_and_its_delivery_the_message_still_comes(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with receiving(lambda heard: HANGS) as receiver:
            body = message() | {"webhook_url": receiver.url}
            _, letter = await server.call("POST", "/v1/letters?wait=200s", json=body)
            assert letter["state"] == "completed"
            await receiver.until(lambda heard: len(heard) == 1)
            await server.program.kill()
            receiver.answer = lambda heard: 200
            await server.start()
            first, second = await receiver.until(lambda heard: len(heard) == 2)
            assert (first.id, first.letter_id) == (second.id, int(letter["id"]))

    play(tmp_path, story, **ALLOWED)


@pytest.mark.gate  # ten starts
def test_killed_ten_times_every_end_is_told_at_least_once(tmp_path: Path) -> None:
    chance = random.Random(3)

    async def story() -> None:
        async with simulated(tmp_path, limits={"on": False}) as (sim, http), receiving() as receiver:
            await sim.post("faults", kind="slow", least_s=0.0, most_s=0.05)
            async with served(tmp_path, sim.url, http, pace="off", **ALLOWED) as server:
                accepted: list[str] = []
                for life in range(10):
                    letters = [message(chat_id=life * 100 + n) | {"webhook_url": receiver.url} for n in range(1, 61)]
                    _, answer = await server.call("POST", "/v1/letters/batch", json={"letters": letters})
                    accepted += answer["ids"]
                    await asyncio.sleep(chance.uniform(0.0, 0.3))
                    await server.program.kill()
                    await server.start()
                await server.quiet()
                heard = await receiver.until(lambda heard: len({one.letter_id for one in heard}) == 600)
                times = Counter(one.letter_id for one in heard)
                assert sorted(times) == sorted(map(int, accepted))
                assert len({one.id for one in heard}) == 600  # a repeat has the id of the first
                assert not server.surprises()

    asyncio.run(story())


# ---- where webhooks may not lead ----


def test_private_addresses_are_refused_at_the_door(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        private = (
            "127.0.0.1",
            "[::1]",
            "localhost",
            "169.254.169.254",
            "10.0.0.1",
            "192.168.0.1",
            "[::ffff:127.0.0.1]",
        )
        odd = ("2130706433", "0x7f000001", "127.1", "0177.0.0.1")
        for hosts, wanted in ((private, "private_webhook_url"), (odd, "bad_webhook_url")):
            for host in hosts:
                body = message() | {"webhook_url": f"http://{host}:8081/v1/bots"}
                status, problem = await server.call("POST", "/v1/letters", json=body)
                assert (status, problem["code"]) == (422, wanted), host
                status, problem = await server.call("POST", "/v1/letters/batch", json={"letters": [message(), body]})
                assert (status, problem["code"]) == (422, wanted), host
        assert (await server.get("/v1/stats"))["waiting"] == 0

    play(tmp_path, story)


def test_a_name_that_leads_to_this_machine_is_refused_when_it_is_resolved(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with receiving() as canary:
            name = f"{socket.gethostname()}"
            body = message() | {"webhook_url": f"http://{name}:{canary.port}/hook"}
            status, letter = await server.call("POST", "/v1/letters?wait=200s", json=body)
            assert (status, letter["state"]) == (200, "completed")
            (line,) = await written(server, "webhook failed")
            assert canary.heard == []
            assert "/hook" not in line  # an address may hold a secret; its host may be shown

    assert socket.gethostbyname(socket.gethostname()).startswith(("127.", "10.", "172.", "192.168.", "169.254."))
    play(tmp_path, story)


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with receiving(lambda heard: 302) as receiver, receiving() as inside:
            receiver.headers = {"Location": inside.url}
            await server.call("POST", "/v1/letters", json=message() | {"webhook_url": receiver.url})
            (line,) = await written(server, "webhook failed")
            assert "302" in line
            assert inside.heard == []

    play(tmp_path, story, **ALLOWED)


def test_a_receiver_that_says_gone_is_left_alone_and_that_is_told(tmp_path: Path) -> None:
    async def story(server: Server, sim: Sim) -> None:
        async with receiving(lambda heard: 410) as receiver:
            await server.call("POST", "/v1/letters", json=message() | {"webhook_url": receiver.url})
            (line,) = await written(server, "webhook given up")
            assert "410" in line

    play(tmp_path, story, **ALLOWED)
