"""The examples of docs/jobs.md, run as they stand: a downloader, a program with a process, and somebody who asks."""

import asyncio
import contextlib
import os
import re
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from peik import Job, Peik
from peik.testing import SimServer
from tests.client.counters import telegram
from tests.client.job_ways import doing
from tests.patience import PATIENCE_S
from tests.processes.programs import TOKEN

PAGE = Path(__file__).parents[2] / "docs" / "jobs.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
DOWNLOADER, PROCESS, ASKING = EXAMPLES


def runnable(example: str, names: dict[str, Any]) -> Any:
    exec(compile("async def example():\n" + textwrap.indent(example, "    "), str(PAGE), "exec"), names)
    return names["example"]


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[str]:
    """An outside host with one file."""

    async def film(request: web.Request) -> web.Response:
        return web.Response(body=b"film" * 1000)

    app = web.Application()
    app.router.add_get("/film", film)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        place = web.TCPSite(runner, "127.0.0.1", 0)
        await place.start()
        (port,) = {address[1] for address in runner.addresses}
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PEIK_WORK_FREE", "1M")
    monkeypatch.setenv("PEIK_PACE", "off")
    return tmp_path


def test_the_downloader_downloads_and_tells(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim, site() as url:
            monkeypatch.setenv("PEIK_API_ROOT", sim.url)
            sim.telegram.write(TOKEN, 5, f"{url}/film")
            sim.telegram.write(TOKEN, 6, f"{url}/nothing")
            program = asyncio.create_task(runnable(DOWNLOADER, {"TOKEN": TOKEN})())
            await sim.until(
                lambda: (
                    "4000 bytes" in said(sim, 5)
                    and any("Done" in text for text in said(sim, 5))
                    and any("nothing at this address" in text for text in said(sim, 6))
                ),
                timeout=PATIENCE_S,
            )
            os.kill(os.getpid(), signal.SIGTERM)
            await program

    asyncio.run(main())
    assert list((home / "peik.db.work").rglob("*")) == []


def said(sim: SimServer, chat_id: int) -> list[str]:
    """Texts and captions as a chat shows them now."""
    found = [
        sim.telegram.message(TOKEN, chat_id, one.message_id) for one in sim.telegram.sent if one.chat_id == chat_id
    ]
    return [str(message.get("text") or message.get("caption")) for message in found if message is not None]


def test_the_program_with_a_process_packs_itself(home: Path) -> None:
    (home / "packer.py").write_text(PROCESS)

    async def main() -> str:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "packer.py", cwd=home, stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE_S):
            told, _ = await program.communicate()
        assert program.returncode == 0
        return told.decode()

    told = asyncio.run(main())
    assert "State.COMPLETED" in told
    assert "result=None" not in told


def test_somebody_asks(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def download(job: Job) -> None:
        if job.params["url"] == "slow":
            await asyncio.sleep(3600)
        elif job.attempt == 1:
            raise ValueError("at first")

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), telegram() as sim:
            monkeypatch.setenv("PEIK_API_ROOT", sim.url)
            peik: Peik = doing(home, sim)
            peik.job("download", attempts=1)(download)
            async with peik:
                broken = await peik.queue_job("download", url="broken")
                await peik.wait_job(broken)
                await runnable(ASKING, {"Peik": Peik, "TOKEN": TOKEN, "LINK": "slow"})()
                (cancelled,) = [job async for job in peik.find_jobs(user=7)]
                assert (await peik.wait_job(cancelled)).state == "cancelled"
                assert len((await peik.wait_job(broken)).history) == 2

    asyncio.run(main())
    assert "active None None []" in capsys.readouterr().out
