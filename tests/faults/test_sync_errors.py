"""fsync fails: a commit that may not be on the disk is acknowledged to nobody, and the work goes on when it is over."""

import asyncio
import errno
import random
from pathlib import Path

import aiohttp
import pytest

from tests.faults.hurting import FailingCalls, hurt_server, is_confirmed, pending, sent_texts, until, write
from tests.faults.traffic import Traffic
from tests.processes.programs import simulated

pytestmark = pytest.mark.gate  # kills on a failing disk

# SQLite's own way to sync on Linux; the spool of files takes fsync.
DATABASE = "posix/io/sync/fdatasync"
SPOOL = "posix/io/sync/fsync"
TERMS = {"pace": "off", "inbound": "polling", "poll_timeout": "1s", "backoff_ms": "100"}


def test_without_a_sync_nothing_is_acknowledged_sent_or_confirmed(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, **TERMS) as server,
        ):
            calls = FailingCalls(server, tmp_path)
            await server.start()
            assert (await server.post(5, "before"))[0] == 202
            await server.quiet()

            await calls.fail(DATABASE, errno=errno.EIO)
            status, answer = await server.post(5, "refused")
            assert (status, answer["code"]) == (503, "store_io")
            status, answer = await server.ask("sendMessage", chat_id=5, text="refused as well")
            assert (status, answer["ok"]) == (503, False)
            await write(sim, 7, "meanwhile")
            await until(lambda: server.said("updates cannot be stored"))
            assert await pending(sim) == 1
            assert (await server.get("/health"))["parts"]["store"]["status"] == "store_io"

            await calls.work(DATABASE)
            await until(lambda: is_confirmed(sim))
            assert (await server.post(5, "after"))[0] == 202
            await server.quiet()
            assert await sent_texts(sim, 5) == ["before", "after"]
            assert [one["text"] for one in await server.arrivals()] == ["meanwhile"]
            assert not server.surprises()

    asyncio.run(story())


def test_what_was_refused_stays_refused_though_the_process_dies_at_once(tmp_path: Path) -> None:
    """A commit whose sync failed stands in the log, all of it; it must not come to life at the next start."""

    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, **TERMS | {"inbound": "off"}) as server,
        ):
            calls = FailingCalls(server, tmp_path)
            await server.start()
            await calls.fail(DATABASE, errno=errno.EIO)
            assert (await server.post(5, "refused"))[0] == 503
            await server.program.kill()
            await server.start()
            assert (await server.post(5, "after"))[0] == 202
            await server.quiet()
            assert [one["params"]["text"] for one in await server.letters()] == ["after"]
            assert await sent_texts(sim, 5) == ["after"]

    asyncio.run(story())


def test_syncs_that_fail_now_and_then_and_a_kill_lose_nothing(tmp_path: Path) -> None:
    """Every failed commit is rolled back and written anew over the same frames of the log, so that the sync that succeeds
    in the end covers all of it. What a kernel dropped after a failed sync ("fsyncgate") was acknowledged to nobody."""
    chance = random.Random(7)

    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, **TERMS) as server,
        ):
            calls = FailingCalls(server, tmp_path)
            await server.start()
            async with Traffic(server, sim, chance) as traffic:
                for _ in range(3):
                    before = traffic.refusals["store_io"]
                    await calls.fail_sometimes(DATABASE, errno=errno.EIO, probability=0.2)
                    await until(lambda before=before: traffic.refusals["store_io"] > before + 2)
                    await asyncio.sleep(chance.uniform(0.0, 0.5))
                    await server.program.kill()
                    await server.start()
                await traffic.end()
                await traffic.judge()
                assert traffic.refusals["store_io"] > 0
            assert not server.surprises()

    asyncio.run(story())


def test_a_file_that_cannot_be_synced_is_not_accepted(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, **TERMS) as server,
        ):
            calls = FailingCalls(server, tmp_path)
            await server.start()
            await calls.fail(SPOOL, errno=errno.EIO)
            status, answer = await server.call("POST", "/v1/letters", data=_document())
            assert (status, answer["code"]) == (503, "spool_failed")
            await calls.work(SPOOL)
            status, _ = await server.call("POST", "/v1/letters?wait=200s", data=_document())
            assert status == 200
            assert (await sim.get("sent"))["total"] == 1
            assert not server.surprises()

    asyncio.run(story())


def _document() -> aiohttp.FormData:
    form = aiohttp.FormData()
    form.add_field("letter", '{"method": "sendDocument", "params": {"chat_id": 5, "document": "attach://file"}}')
    form.add_field("file", b"a few bytes", filename="note.txt", content_type="text/plain")
    return form
