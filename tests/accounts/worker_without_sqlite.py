"""A whole Peik with accounts on Redis and MongoDB, in a process that notes every file that it makes and each connection to
SQLite. It writes "restart" when its servers are to be killed and started again, and goes on when it reads a line. Its last line
is what it saw, as JSON."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import msgspec

from peik.accounts.feeds import FeedFilter
from peik.app import rest
from peik.app.lifetime import running
from peik.clock import SystemClock
from peik.core.events import Events, Surprise
from peik.gateway.app import Gateway
from peik.settings.config import load
from peik.testing.accounts import Accounts
from tests.patience import PATIENCE_S
from tests.web.accounts import KEY, NOWHERE, House, _served, until

made: set[str] = set()
connections: list[str] = []


def watch() -> None:
    """For the rest of this process."""

    def hook(event: str, details: tuple[Any, ...]) -> None:
        if event == "sqlite3.connect":
            connections.append(str(details[0]))
        elif event == "open" and isinstance(details[0], str) and (details[2] or 0) & os.O_CREAT:
            made.add(os.path.abspath(details[0]))  # noqa: PTH100  within a hook nothing may open files

    sys.addaudithook(hook)
    apsw.connection_hooks.append(lambda connection: connections.append(connection.filename))


class Life:
    """Ali's account, Sara who writes to him, and one Peik after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.telegram = Accounts(SystemClock(), seed=1)
        self.ali = self.telegram.register("+998900000001", first_name="Ali")
        self.sara = self.telegram.register("+998900000002", first_name="Sara")
        self.private = self.telegram.private(self.ali, self.sara)
        self.surprises: list[str] = []
        self.heard: list[int] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[House]:
        config = load(
            {"api_root": NOWHERE, "inbound": "off", "grace": "1s"}, environment=os.environ, folder=self.folder
        )
        told = Events()
        told.listen(lambda events: self.surprises.extend(str(one) for one in events if isinstance(one, Surprise)))
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as http,
            running(
                config,
                events=told,
                chance=random.Random(1),
                make_clients=lambda config, clock: self.telegram.clients,
            ) as runtime,
        ):
            house = House(self.folder, runtime, self.telegram, http)
            assert runtime.accounts is not None
            service = runtime.accounts
            async with asyncio.timeout(PATIENCE_S):
                while service.trouble() is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            async with _served(Gateway(runtime, rest.build(runtime, KEY))) as house.url:
                try:
                    yield house
                finally:
                    service.end_streams()

    def say(self, text: str) -> None:
        self.telegram.say(self.private, self.sara, text)

    async def texts(self, house: House, count: int) -> list[str]:
        return sorted(one["text"] for one in await house.messages(count))

    async def listen(self, house: House, up_to: int) -> None:
        """As a reader with a name."""
        assert house.runtime.accounts is not None
        follower = await house.runtime.accounts.follow(FeedFilter(), reader="books")
        async with asyncio.timeout(PATIENCE_S):
            while not self.heard or self.heard[-1] < up_to:
                self.heard += [line.number for line in await follower.next(timeout_s=1)]
                await follower.confirm()

    async def send(self, house: House, text: str) -> str:
        """A letter as Ali. Its id, when it has arrived."""
        params = {"chat_id": self.sara.user_id, "text": text}
        body = {"bot_id": str(self.ali.user_id), "method": "sendMessage", "params": params}
        sent = await house.post("/v1/letters?wait=200s", body)
        letter_id = str(sent["id"])

        async def look() -> bool:
            return bool((await house.get(f"/v1/letters/{letter_id}"))["state"] == "completed")

        await until(look)
        return letter_id


async def main(folder: Path) -> dict[str, object]:
    life = Life(folder)
    async with life.open() as house:
        session_id = await house.signed_in(life.ali)
        life.say("one")
        letter_id = await life.send(house, "two")
        assert await life.texts(house, 2) == ["one", "two"]
        await life.listen(house, 2)
        await asyncio.to_thread(_restart)
        life.say("three")
        assert await life.texts(house, 3) == ["one", "three", "two"]
    life.say("four")
    async with life.open() as house:
        await house.connected(session_id)
        assert await life.texts(house, 4) == ["four", "one", "three", "two"]
        await life.listen(house, 4)
        await life.send(house, "five")
        await life.listen(house, 5)
        return {
            "sessions": [(one["session_id"], one["state"]) for one in (await house.get("/v1/sessions"))["sessions"]],
            "session_id": session_id,
            "letter": (await house.get(f"/v1/letters/{letter_id}"))["state"],
            "delivered": [post.text for post in life.telegram.deliveries],
            "texts": await life.texts(house, 5),
            "heard": life.heard,
            "surprises": life.surprises,
        }


def _restart() -> None:
    sys.stdout.write("restart\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    watch()
    seen = asyncio.run(main(Path.cwd()))
    sys.stdout.write(msgspec.json.encode(seen | {"made": sorted(made), "connections": connections}).decode() + "\n")
