"""What systemd hears over its socket: ready, alive, ending; and nothing that it did not ask for."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from peik.web.server import Supervisor
from tests.patience import PATIENCE_S


@contextlib.contextmanager
def systemd(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(address)
        line.settimeout(PATIENCE_S)
        yield line


def heard(line: socket.socket) -> list[str]:
    return line.recv(4096).decode().split("\n")


def test_it_is_told_when_peik_is_ready_and_when_it_ends(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with systemd(address) as line:
        supervisor = Supervisor.of({"NOTIFY_SOCKET": address})
        supervisor.ready("2 bot(s) on port 8081.")
        assert heard(line) == ["READY=1", "STATUS=2 bot(s) on port 8081."]
        supervisor.ending()
        assert heard(line)[0] == "STOPPING=1"


def test_a_name_without_a_file_is_an_address_as_well() -> None:
    name = f"peik-test-{os.getpid()}"
    with systemd("\0" + name) as line:
        Supervisor.of({"NOTIFY_SOCKET": "@" + name}).ready("")
        assert heard(line)[0] == "READY=1"


def test_it_hears_beats_for_as_long_as_the_loop_turns(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")

    async def story() -> None:
        with systemd(address) as line:
            line.setblocking(False)
            supervisor = Supervisor.of(
                {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": str(os.getpid())}
            )
            async with supervisor.beating(), asyncio.timeout(PATIENCE_S):
                for _ in range(3):
                    assert await asyncio.get_running_loop().sock_recv(line, 99) == b"WATCHDOG=1"
            while True:  # what came between the third and the end
                try:
                    line.recv(99)
                except BlockingIOError:
                    break
            assert {task.get_name() for task in asyncio.all_tasks()} == {asyncio.current_task().get_name()}  # type: ignore[union-attr]

    asyncio.run(story())


@pytest.mark.parametrize(
    "more",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "30000", "WATCHDOG_PID": "1"}],
    ids=["unasked", "never", "unreadable", "of another process"],
)
def test_no_beat_comes_where_none_is_asked_for(more: dict[str, str], tmp_path: Path) -> None:
    address = str(tmp_path / "notify")

    async def story() -> None:
        with systemd(address) as line:
            supervisor = Supervisor.of({"NOTIFY_SOCKET": address, **more})
            async with supervisor.beating():
                await asyncio.sleep(0)  # the first would be at once
            supervisor.ending()
            assert heard(line)[0] == "STOPPING=1"  # and nothing before it

    asyncio.run(story())


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}])
def test_without_systemd_nothing_is_said(environment: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    Supervisor.of(environment).ready("x")
    assert capfd.readouterr() == ("", "")


def test_a_supervisor_that_is_gone_is_told_of_once_and_harms_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    supervisor = Supervisor.of({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    supervisor.ready("x")
    supervisor.ending()
    assert capfd.readouterr().err == "systemd cannot be told how Peik is: No such file or directory.\n"
