"""A real server, the library and the command line: from a code to a notification, through the death of Peik."""

import asyncio
import contextlib
import json
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from peik import Peik
from peik.errors import NotFound
from peik.notifications.templates import load_outreach
from peik.testing import Limits, Options, SimServer
from tests.notifications.outreach import LENA
from tests.patience import PATIENCE_S
from tests.processes import nursery
from tests.processes.programs import BOT, TOKEN, Server, served

WORDS = load_outreach()


async def peik(server: Server, key: str, *arguments: str) -> object:
    """A command, asked of the server: the JSON that it prints."""
    line = partial(nursery.run, (*arguments, "--url", server.url, "--json"), stdin="", timeout_s=PATIENCE_S)
    environment = {"PEIK_KEY": key, "PATH": ""}
    code, output, err = await asyncio.to_thread(line, folder=Path.cwd(), environment=environment)
    assert code == 0, (output, err)
    return json.loads(output)


def test_from_a_code_to_a_notification_through_the_death_of_peik(tmp_path: Path) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(asyncio.timeout(PATIENCE_S))
            options = Options(limits=Limits(on=False), anti_busy_loop=False)
            sim = await stack.enter_async_context(SimServer(options=options, seed=7))
            sim.telegram.bot(TOKEN)
            sim.telegram.user(LENA, "Lena", "ru")
            http = await stack.enter_async_context(aiohttp.ClientSession())
            server = await stack.enter_async_context(served(tmp_path, sim.url, http, inbound="polling", pace="off"))
            wanted = {"name": "shop", "scopes": ["send"], "bot_ids": [str(BOT)]}
            key = (await server.call("POST", "/v1/keys", json=wanted))[1]["key"]
            library = await stack.enter_async_context(Peik.connect(server.url, key=key))

            with pytest.raises(NotFound):
                await library.notify("lena", "too early")
            code = await library.link("lena", expires_in="5m")
            assert code.url is not None
            assert code.url.endswith(f"?start={code.code}")
            sim.telegram.write(TOKEN, LENA, f"/start {code.code}")
            await sim.until(lambda: bool(sim.telegram.sent.texts(LENA)), timeout=PATIENCE_S)
            assert (await library.linked("lena")).chat_id == str(LENA)
            soon = await library.notify("lena", "gathered", digest="5s", idempotency_key="g")
            assert soon.letter_id is None
            await server.quiet()
            await server.program.kill()
            await server.start()
            await sim.until(lambda: len(sim.telegram.sent.texts(LENA)) == 2, timeout=PATIENCE_S)
            assert (await library.notify("lena", "gathered", digest="5s", idempotency_key="g")).id == soon.id
            told = await peik(server, key, "notify", "lena", "at once", "--title", "Task", "--data", "a=b")
            assert isinstance(told, dict)
            assert told["letter_id"] is not None
            listed = await peik(server, key, "users", "list")
            assert isinstance(listed, dict)
            assert [one["user_id"] for one in listed["users"]] == ["lena"]
            await sim.until(lambda: len(sim.telegram.sent.texts(LENA)) == 3, timeout=PATIENCE_S)
            assert sim.telegram.sent.texts(LENA) == [WORDS["ru"]["linked"], "gathered", "Task\n\nat once"]
            assert not (await library.unlink("lena")).linked

    asyncio.run(main())


def test_the_library_in_this_process_links_and_notifies(tmp_path: Path) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(asyncio.timeout(PATIENCE_S))
            options = Options(limits=Limits(on=False), anti_busy_loop=False)
            sim = await stack.enter_async_context(SimServer(options=options, seed=7))
            sim.telegram.bot(TOKEN)
            sim.telegram.user(LENA, "Lena", "uz")
            store = f"sqlite:///{tmp_path}/peik.db"
            opened = Peik.open(store, token=TOKEN, api_root=sim.url, inbound="polling", pace=False)
            library = await stack.enter_async_context(opened)
            code = await library.link("lena")
            sim.telegram.write(TOKEN, LENA, code.code)
            await sim.until(lambda: bool(sim.telegram.sent.texts(LENA)), timeout=PATIENCE_S)
            made = await library.notify("lena", "hello", title="T", metadata={"order": 7})
            await sim.until(lambda: len(sim.telegram.sent.texts(LENA)) == 2, timeout=PATIENCE_S)
            assert sim.telegram.sent.texts(LENA) == [WORDS["uz"]["linked"], "T\n\nhello"]
            assert made.letter_id is not None
            await library.wait(made.letter_id, timeout=PATIENCE_S)
            assert (await library.notification(made)).state == "completed"

    asyncio.run(main())
