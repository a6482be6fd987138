"""A stage for gateway tests: a simulated Telegram, a real `peik serve` in front of it, and a client without manners."""

import asyncio
import json
import urllib.parse
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN, Server, Sim, served, simulated


class Envelope(msgspec.Struct, frozen=True):
    """An answer as a bot sees it."""

    status: int
    json: dict[str, Any]
    headers: dict[str, str]

    @property
    def result(self) -> Any:
        assert self.json["ok"], self.json
        return self.json["result"]

    @property
    def refusal(self) -> tuple[int, str]:
        assert not self.json["ok"], self.json
        assert self.json["error_code"] == self.status
        return self.status, self.json["description"]


class Client:
    """Calls the gateway as a bot would."""

    def __init__(self, server: Server, http: aiohttp.ClientSession, *, token: str = TOKEN) -> None:
        self._server = server
        self._http = http
        self.token = token

    async def call(self, method: str, *, token: str | None = None, **params: Any) -> Envelope:
        return await self.send("POST", method, token=token, json=params)

    async def send(self, verb: str, method: str, *, token: str | None = None, **more: Any) -> Envelope:
        url = f"{self._server.url}/bot{token or self.token}/{method}"
        async with self._http.request(verb, url, **more) as response:
            assert response.headers["content-type"] == "application/json", await response.text()
            return Envelope(response.status, json.loads(await response.read()), dict(response.headers))

    async def file(
        self, path: str, *, token: str | None = None, verb: str = "GET", **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        url = f"{self._server.url}/file/bot{token or self.token}/{path}"
        async with self._http.request(verb, url, headers=headers) as response:
            return response.status, await response.read(), {k.lower(): v for k, v in response.headers.items()}

    async def raw(self, data: bytes) -> bytes:
        """What comes back for bytes that no library would write."""
        where = urllib.parse.urlsplit(self._server.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        try:
            writer.write(data)
            async with asyncio.timeout(PATIENCE_S):
                return await reader.read()
        finally:
            writer.close()


async def until(ask: Callable[[], Coroutine[Any, Any, Envelope]], fact: Callable[[Envelope], bool]) -> Envelope:
    """The first answer of which the fact is true."""
    while True:
        answer = await ask()
        if fact(answer):
            return answer
        await asyncio.sleep(0.05)


Story = Callable[[Client, Sim, Server], Coroutine[Any, Any, None]]


def play(folder: Path, story: Story, *, options: dict[str, Any] | None = None, **settings: str) -> None:
    async def main() -> None:
        async with simulated(folder, **(options or {})) as (sim, http):
            await sim.post("bots", token=TOKEN)
            async with served(folder, sim.url, http, **settings) as peik:
                await story(Client(peik, http), sim, peik)
                assert not peik.surprises()
                assert not [line for line in peik.output if TOKEN.partition(":")[2] in line], "a token is in the log"

    asyncio.run(main())
