"""A disk that becomes read-only: under a running Peik, as a file system does after an error, and before a start."""

import asyncio
import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disks import can_mount, mounted
from tests.faults.hurting import FailingCalls, hurt_server, is_confirmed, pending, sent_texts, until, write
from tests.processes.programs import simulated

WRITES = ("posix/io/rw/pwrite", "posix/io/rw/ftruncate")
TERMS = {"pace": "off", "inbound": "polling", "poll_timeout": "1s", "backoff_ms": "100"}


def test_a_disk_that_turns_read_only_stops_all_promises_until_it_can_be_written(tmp_path: Path) -> None:
    """A real remount is denied while a database is open for writing; what a kernel does after an error of the disk is that
    each write ends with EROFS."""

    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(tmp_path, sim, http, **TERMS) as server,
        ):
            calls = FailingCalls(server, tmp_path)
            await server.start()
            await sim.post("faults", kind="dark")
            assert (await server.post(5, "before"))[0] == 202
            await calls.fail(*WRITES, errno=errno.EROFS)
            status, answer = await server.post(5, "refused")
            assert (status, answer["code"]) == (503, "store_io")  # SQLite says no more than this
            await sim.post("dark", on=False)
            await write(sim, 7, "meanwhile")
            await until(lambda: server.said("updates cannot be stored"))
            await until(lambda: server.said('"a step"'))
            assert await pending(sim) == 1
            assert await sent_texts(sim, 5) == [], "a try that cannot be marked is not made"
            assert (await server.get("/health"))["status"] == "failing"

            await calls.work(*WRITES)
            await until(lambda: is_confirmed(sim))
            assert (await server.post(5, "after"))[0] == 202
            await server.quiet()
            assert await sent_texts(sim, 5) == ["before", "after"]
            assert not server.surprises()

    asyncio.run(story())


@contextlib.contextmanager
def read_only(folder: Path, *, by_mount: bool) -> Iterator[None]:
    def turn(to: str) -> None:
        if by_mount:
            subprocess.run(["mount", "-o", f"remount,{to}", str(folder)], check=True)
            return
        for path in (*folder.iterdir(), folder):
            path.chmod((0o700 if path.is_dir() else 0o600) if to == "rw" else (0o500 if path.is_dir() else 0o400))

    turn("ro")
    try:
        yield
    finally:
        turn("rw")


def chmod_holds(folder: Path) -> bool:
    """Root is not held back by it, as a rule."""
    probe = folder / "probe"
    probe.touch(mode=0o400)
    return not os.access(probe, os.W_OK)


def test_on_a_read_only_disk_peik_does_not_start_says_why_and_loses_nothing(tmp_path: Path) -> None:
    by_mount = can_mount()
    if not by_mount and not chmod_holds(tmp_path):
        pytest.skip("this user writes whatever the rights say, and may not mount: run it as another one")
    folder = tmp_path / "disk"

    async def story() -> None:
        async with (
            simulated(tmp_path, limits={"on": False}) as (sim, http),
            hurt_server(folder, sim, http, **TERMS) as server,
        ):
            await server.start()
            await sim.post("faults", kind="dark")
            assert (await server.post(5, "before"))[0] == 202
            await server.program.kill()  # so that the log still holds it
            with read_only(folder, by_mount=by_mount), pytest.raises(RuntimeError) as said:
                await server.start()
            assert "cannot be written" in str(said.value)
            assert "PEIK_STORE" in str(said.value)
            assert "Traceback" not in str(said.value)
            await sim.post("dark", on=False)
            await server.start()
            await server.quiet()
            assert await sent_texts(sim, 5) == ["before"]

    if by_mount:
        with mounted(folder):
            asyncio.run(story())
    else:
        folder.mkdir()
        asyncio.run(story())
