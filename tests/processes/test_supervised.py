"""A real `peik serve` under what systemd would give it: ready when it answers, beats, and says that it ends."""

import asyncio
import re
import socket
from pathlib import Path

import aiohttp

from tests.patience import PATIENCE_S
from tests.processes.programs import KEY, Program


def test_systemd_hears_of_a_whole_life(tmp_path: Path) -> None:
    address = tmp_path / "notify"

    async def story() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.bind(str(address))
            line.setblocking(False)

            async def heard(words: str) -> str:
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        said = (await asyncio.get_running_loop().sock_recv(line, 999)).decode()
                        if words in said:
                            return said

            asked = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "300000"}
            settings = {"PEIK_PORT": "0", "PEIK_ADMIN_KEY": KEY, "PEIK_API_ROOT": "http://127.0.0.1:1"}
            program = Program("-m", "peik", "serve", folder=tmp_path, **asked, **settings)
            url = (await program.start(re.compile(r"listens on (http://\S+)")))[1]
            try:
                assert (await heard("READY=1")).endswith(f"STATUS=0 bot(s) on port {url.rpartition(':')[2]}.")
                async with aiohttp.ClientSession() as http, http.get(f"{url}/health") as answer:
                    assert answer.status == 200
                await heard("WATCHDOG=1")
                ending = asyncio.create_task(program.terminate())
                await heard("STOPPING=1")
                assert await ending == 0
            finally:
                if program.process.returncode is None:
                    await program.kill()

    asyncio.run(story())
