"""A house for door tests: a whole Peik with accounts on a simulated Telegram, served on a real socket by the real clock.

def test_something(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        ali = house.telegram.register("+998900000001", first_name="Ali")
        session_id = await house.signed_in(ali)
        ...

    play_house(tmp_path, story)
"""

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import uvicorn

from peik.accounts.wiring import MakeArchive
from peik.app import rest
from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.clock import Clock, SystemClock
from peik.core.events import Event, Events, Surprise
from peik.gateway.app import Gateway
from peik.settings.config import load
from peik.testing.accounts import Accounts, Person, unpaced
from peik.web.server import GuardedProtocol, GuardedServer
from tests.patience import PATIENCE_S

KEY = "test-key"
LOOK_S = 0.02
T = TypeVar("T")
NOWHERE = "http://127.0.0.1:9"  # no Bot API: these stories are about accounts


class House:
    """Peik, the simulated Telegram of its accounts, and a client of its doors."""

    def __init__(self, folder: Path, runtime: Runtime, telegram: Accounts, http: aiohttp.ClientSession) -> None:
        self.folder = folder
        self.runtime = runtime
        self.telegram = telegram
        self.http = http
        self.told: list[Event] = []
        self.url = ""

    # ---- asking it ----

    async def call(self, verb: str, path: str, *, key: str | None = KEY, **more: Any) -> tuple[int, Any]:
        """The status, and the JSON of the answer."""
        status, body, _ = await self.raw(verb, path, key=key, **more)
        return status, json.loads(body) if body else None

    async def raw(
        self, verb: str, path: str, *, key: str | None = KEY, **more: Any
    ) -> tuple[int, bytes, dict[str, str]]:
        """The status, the bytes and the headers (in small letters) of the answer."""
        headers = self.headers(key) | more.pop("headers", {})
        async with self.http.request(verb, f"{self.url}{path}", headers=headers, **more) as response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return response.status, await response.read(), found

    async def get(self, path: str) -> Any:
        return await self._fine("GET", path)

    async def post(self, path: str, body: object = None) -> Any:
        return await self._fine("POST", path, **({} if body is None else {"json": body}))

    async def code(self, verb: str, path: str, **more: Any) -> tuple[int, str]:
        """The status and the code of a problem."""
        status, body = await self.call(verb, path, **more)
        assert status >= 400, body
        return status, body["code"]

    async def _fine(self, verb: str, path: str, **more: Any) -> Any:
        status, body = await self.call(verb, path, **more)
        assert status < 300, (status, body)
        return body

    @staticmethod
    def headers(key: str | None = KEY) -> dict[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    # ---- what stories begin with ----

    async def made(self, agent_id: str = "a", **more: object) -> str:
        """A new session's id."""
        return str((await self.post("/v1/sessions", {"agent_id": agent_id, **more}))["session_id"])

    async def signed_in(self, person: Person, *, agent_id: str = "a", session_id: str | None = None) -> str:
        """A session that this person is signed in to by the doors, and that runs. Its id."""
        named = {} if session_id is None else {"session_id": session_id}
        session_id = await self.made(agent_id, phone=person.phone, **named)
        await self.post(f"/v1/sessions/{session_id}/code")
        shown = await self.post(f"/v1/sessions/{session_id}/sign-in", {"code": self.telegram.code_of(person.phone)})
        if person.password is not None:
            shown = await self.post(f"/v1/sessions/{session_id}/password", {"password": person.password})
        assert shown["state"] == "active", shown
        await self.connected(session_id)
        return session_id

    async def connected(self, session_id: str, *, is_connected: bool = True) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            shown = await self.get(f"/v1/sessions/{session_id}")
            return shown if shown["is_connected"] is is_connected else None

        return await until(look)

    async def messages(self, count: int, query: str = "") -> list[dict[str, Any]]:
        """What the archive shows, once it is so many or more."""

        async def look() -> list[dict[str, Any]] | None:
            found: list[dict[str, Any]] = (await self.get(f"/v1/messages?limit=1000{query}"))["messages"]
            return found if len(found) >= count else None

        return await until(look)

    def surprises(self) -> list[Event]:
        return [event for event in self.told if isinstance(event, Surprise)]


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """What this finds, as soon as it finds something."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await look()
            if found:
                return found
            await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def house(
    folder: Path,
    *,
    clock: Clock | None = None,
    has_accounts: bool = True,
    make_archive: MakeArchive | None = None,
    is_open: bool = True,
    **settings: str,
) -> AsyncIterator[House]:
    """`has_accounts` False: nothing asks for accounts. `is_open`: wait until the archive is."""
    told = Events()
    clock = clock or SystemClock()
    telegram = Accounts(clock, seed=1)
    flags = {
        "store": f"sqlite:///{folder}/peik.db",
        "api_root": NOWHERE,
        "inbound": "off",
        "grace": "1s",
        **settings,
    }
    config = load(flags, environment={}, folder=folder)
    clients = telegram.clients
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as http,
        running(
            config,
            events=told,
            clock=clock,
            chance=random.Random(1),
            is_alone=True,
            make_clients=(lambda config, clock: clients) if has_accounts else None,
            make_archive=make_archive,
            make_budget=unpaced,
        ) as runtime,
    ):
        built = House(folder, runtime, telegram, http)
        told.listen(built.told.extend)
        sessions = runtime.accounts
        if sessions is not None and is_open:
            await until(lambda: _is_well(runtime))
        async with _served(Gateway(runtime, rest.build(runtime, KEY))) as built.url:
            try:
                yield built
            finally:
                if sessions is not None:
                    sessions.end_streams()
        assert built.surprises() == []


async def _is_well(runtime: Runtime) -> bool:
    return runtime.accounts is not None and runtime.accounts.trouble() is None


@asynccontextmanager
async def _served(app: Any) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = GuardedServer(config)
    serving = asyncio.ensure_future(server._serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


def play_house(folder: Path, story: Callable[[House], Coroutine[Any, Any, None]], **more: Any) -> None:
    """Run one story in a house of its own."""

    async def whole() -> None:
        async with house(folder, **more) as built:
            await story(built)

    asyncio.run(whole())
