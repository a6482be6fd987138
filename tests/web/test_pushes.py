"""Pushes of Telegram: most are taken at once, without a task, and are answered as those are that go the usual way."""

import asyncio
import io
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import uvicorn

from peik.app import rest
from peik.app.lifetime import running
from peik.app.middleware import Middleware
from peik.app.runtime import Runtime
from peik.app.serve import doorkeeper_of
from peik.errors import StoreUnavailable
from peik.gateway.app import Gateway
from peik.inbox.store import ArrivalFilter
from peik.settings.config import load
from peik.web.connection import ServerExchange
from peik.web.server import GuardedProtocol, GuardedServer
from tests.processes.programs import KEY, TOKEN

BOT = int(TOKEN.partition(":")[0])
SECRET = "X-Telegram-Bot-Api-Secret-Token"


class Watched(Middleware):
    """Notes which requests were taken at once."""

    taken: list[bool]

    def take_at_once(self, exchange: ServerExchange) -> bool:
        self.taken.append(super().take_at_once(exchange))
        return self.taken[-1]


class House:
    def __init__(self, peik: Runtime, keeper: Watched, url: str, http: aiohttp.ClientSession, secret: str) -> None:
        self.peik = peik
        self._keeper = keeper
        self._url = url
        self._http = http
        self._secret = secret

    async def push(self, number: int, *, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bool]:
        """The status, the headers but for the date, and whether it was taken at once."""
        body = body or b'{"update_id":%d,"message":{"message_id":1,"chat":{"id":5},"date":1}}' % number
        self._keeper.taken = []
        said = {SECRET: self._secret} | {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._http.post(f"{self._url}/webhook/{BOT}", data=io.BytesIO(body), headers=said) as answer:
            await answer.read()
            shown = {name.lower(): value for name, value in answer.headers.items() if name.lower() != "date"}
            return answer.status, shown, self._keeper.taken == [True]

    async def stored(self) -> list[int]:
        found = await self.peik.inbox.service.arrivals(ArrivalFilter(bot_id=BOT), before=None, limit=100)
        return sorted(one.arrival.update_id for one in found)


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    flags = {
        "store": f"sqlite:///{folder}/peik.db",
        "api_root": "http://127.0.0.1:9",
        "bot_tokens": TOKEN,
        "inbound": "webhook",
        "public_url": "https://bot.example.com",
        "rate_ip": "2/s",
        "grace": "1s",
    }
    config = load(flags, environment={}, folder=folder)
    async with running(config, chance=random.Random(1)) as peik, aiohttp.ClientSession() as http:
        app = rest.build(peik, KEY)
        keeper = doorkeeper_of(peik, app, Gateway(peik, app))
        keeper.__class__ = Watched
        assert isinstance(keeper, Watched)
        server = GuardedServer(
            uvicorn.Config(
                keeper,
                http=GuardedProtocol,
                lifespan="off",
                log_config=None,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
            )
        )
        listener = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(server._serve([listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield House(peik, keeper, url, http, await peik.inbox.receiver.pushed.secret(BOT))
        finally:
            server.should_exit = True
            await serving


def played(folder: Path, story: Callable[[House], Awaitable[None]]) -> None:
    async def play() -> None:
        async with house(folder) as one:
            await story(one)

    asyncio.run(play())


def test_all_but_the_first_are_taken_at_once_and_answered_alike(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        first = await house.push(7)  # nobody has shown a secret from here yet
        assert first[::2] == (200, False)
        for number in (8, 9, 9):
            assert await house.push(number) == (200, first[1], True)
        assert await house.stored() == [7, 8, 9]
        took = house.peik.watch.answering.took["webhook", "update"]
        assert took.count == 4

    played(tmp_path, story)


ODD: dict[str, tuple[dict[str, str], bytes | None, int]] = {
    "a wrong secret": ({SECRET: "wrong"}, None, 401),
    "no update": ({}, b'{"update":7}', 400),
    "half an update": ({}, b'{"update_id":7,"message":', 400),
    "too much": ({}, b'{"update_id":7,"message":{"text":"' + b"x" * (1 << 20) + b'"}}', 413),
    "half a character": ({}, b'{"update_id":7,"message":{"text":"\\ud800"}}', 200),
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_odd_goes_the_usual_way(tmp_path: Path, what: str) -> None:
    headers, body, status = ODD[what]

    async def story(house: House) -> None:
        await house.push(6)
        assert (await house.push(7, body=body, **headers))[::2] == (status, False)
        assert await house.stored() == ([6, 7] if status == 200 else [6])

    played(tmp_path, story)


def test_a_client_behind_a_proxy_is_a_stranger_of_his_own(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        assert not (await house.push(7))[2]
        assert (await house.push(8))[2]
        assert not (await house.push(9, X_Forwarded_For="203.0.113.9"))[2]  # it is counted, and vouched for
        assert (await house.push(10, X_Forwarded_For="203.0.113.9"))[2]
        status, shown, is_taken = await house.push(11, X_Forwarded_For="203.0.113.9", X_Forwarded_Proto="https")
        assert (status, is_taken) == (200, True)
        assert "strict-transport-security" in shown

    played(tmp_path, story)


@pytest.mark.parametrize(("error", "status"), [(StoreUnavailable(code="full", detail="Full."), 503), (OSError(), 500)])
def test_what_cannot_be_stored_is_not_confirmed(tmp_path: Path, error: Exception, status: int) -> None:
    async def story(house: House) -> None:
        await house.push(7)
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        store = house.peik.store.inbox
        way, store.take_in = store.take_in, lambda *_, **__: broken(error)  # type: ignore[method-assign, assignment]
        answered = await house.push(8)
        assert answered[::2] == (status, True)
        assert ("retry-after" in answered[1]) == (status == 503)
        assert told == ([] if status == 503 else [error]), "somebody has to hear of a surprise"
        store.take_in = way  # type: ignore[method-assign]
        assert (await house.push(8))[0] == 200
        assert await house.stored() == [7, 8]

    played(tmp_path, story)


async def broken(error: Exception) -> None:
    raise error
