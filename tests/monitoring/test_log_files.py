"""The log in a file: every line is JSON, old files go, and no trouble of the disk is a trouble of Peik."""

import asyncio
import io
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from peik import Peik
from peik.errors import StartError
from peik.monitoring.log_file import QUEUE_MAX, LogFile, set_up
from peik.settings.config import load
from peik.testing import Limits, Options, SimServer
from tests.processes.programs import TOKEN, served

LEFT_OUT = "! lines of the log were left out"
SECRET = "7000001:AAE-secret_of_thirty_five_characters"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers = list(root.handlers)
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers


def opened(path: Path, *, bytes_max: int = 1_000_000, files_kept: int = 3, told: io.StringIO | None = None) -> LogFile:
    return LogFile(path, bytes_max=bytes_max, files_kept=files_kept, told=told, last_s=300)


def say(file: LogFile, *events: str, **fields: object) -> None:
    for event in events:
        file.keep(None, "info", {"event": event, "level": "info", **fields})


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def events_of(path: Path) -> list[str]:
    return [line["event"] for line in lines_of(path)]


def until_written(file: LogFile, path: Path, event: str) -> None:
    """Once a line that is said now is in the file: all that was said before it was tried by then."""
    say(file, event)
    until(lambda: event in events_so_far(path))


def events_so_far(path: Path) -> list[str]:
    """Of a file that is being written to: its last line may be half there."""
    try:
        whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    except FileNotFoundError:  # it was just turned over
        return []
    return [json.loads(line)["event"] for line in whole.splitlines()]


def until(is_so: Callable[[], bool]) -> None:
    ticks = threading.Event()
    while not is_so():  # one that never is hangs, and pytest ends it
        ticks.wait(0.01)


def test_what_the_log_says_is_in_the_file_as_json_whatever_the_terminal_shows(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "deep" / "peik.log"
    with opened(path) as file:
        set_up(level="info", form="text", file=file)
        log = structlog.get_logger("peik")
        log.debug("- too small")
        log.warning("! dead letter", bot=7, reason="چت پیدا نشد")
        logging.getLogger("somebody.else").warning("%s of %d", "one", 2)
        try:
            raise KeyError("lost")
        except KeyError:
            log.exception("! surprise")
    first, second, third = lines_of(path)
    assert (first["event"], first["level"], first["bot"], first["reason"]) == (
        "! dead letter",
        "warning",
        7,
        "چت پیدا نشد",
    )
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["level"], second["logger"]) == ("one of 2", "warning", "somebody.else")
    assert "KeyError: 'lost'" in third["exception"]


def test_no_token_can_be_in_it(tmp_path: Path) -> None:
    path = tmp_path / "peik.log"
    with opened(path) as file:
        set_up(level="info", form="json", file=file)
        structlog.get_logger().error("! surprise", error=f"GET https://api.telegram.org/bot{SECRET}/getMe failed")
        try:
            raise OSError(f"bot{SECRET}")
        except OSError:
            logging.getLogger("http").warning("of bot%s", SECRET, exc_info=True)
    text = path.read_text(encoding="utf-8")
    assert SECRET.partition(":")[2] not in text
    assert text.count("7000001:***") == 3


def test_a_large_file_is_followed_by_a_new_one_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "peik.log"
    with opened(path, bytes_max=1024, files_kept=3) as file:
        say(file, *(f"line {number}" for number in range(200)), words="x" * 50)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["peik.log", "peik.log.1", "peik.log.2", "peik.log.3"]
    assert all(one.stat().st_size <= 1024 for one in tmp_path.iterdir())
    kept = [event for name in (".3", ".2", ".1", "") for event in events_of(Path(f"{path}{name}"))]
    assert kept == [f"line {number}" for number in range(200 - len(kept), 200)]


def test_a_file_that_was_deleted_or_moved_away_is_begun_anew_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "peik.log"
    with opened(path) as file:
        until_written(file, path, "before")
        path.rename(tmp_path / "taken by logrotate")
        until_written(file, path, "moved")
        path.unlink()
        path.parent.rmdir()
        until_written(file, path, "deleted")
    assert events_of(path) == ["deleted"]
    assert events_of(tmp_path / "taken by logrotate") == ["before"]


def test_a_full_disk_is_told_once_and_what_it_cost_when_there_is_room_again(tmp_path: Path) -> None:
    path, told = tmp_path / "peik.log", io.StringIO()
    path.symlink_to("/dev/full")  # a device that has no room, ever
    with opened(path, told=told) as file:
        say(file, "one", "two", "three")
        until(lambda: "No space left on device" in told.getvalue())
        path.unlink()
        until_written(file, path, "four")
    first, again = told.getvalue().splitlines()
    assert f"cannot write its log to {path}: No space left on device" in first
    (left_out,) = [line["count"] for line in lines_of(path) if line["event"] == LEFT_OUT]
    assert f"{left_out} lines were left out" in again
    assert [event for event in events_of(path) if event != LEFT_OUT] == ["one", "two", "three", "four"][left_out:]


def test_a_file_that_cannot_be_turned_over_does_not_grow_and_goes_on_once_it_can(tmp_path: Path) -> None:
    path, told = tmp_path / "peik.log", io.StringIO()
    (tmp_path / "peik.log.1").mkdir()  # in the way
    with opened(path, bytes_max=1024, files_kept=1, told=told) as file:
        say(file, *(f"line {number}" for number in range(50)))
        until(lambda: "cannot write its log" in told.getvalue())
        assert path.stat().st_size <= 1024
        (tmp_path / "peik.log.1").rmdir()
        until_written(file, path, "after")
    assert told.getvalue().count("cannot write its log") == 1


def test_a_folder_that_cannot_be_made_does_not_keep_peik_from_going_on(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    told = io.StringIO()
    with opened(tmp_path / "logs" / "peik.log", told=told) as file:
        say(file, "one", "two")
    assert told.getvalue().count("cannot write its log") == 1
    assert (tmp_path / "logs").read_text() == "a file"


def test_stderr_that_is_gone_as_well_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    told = io.StringIO()
    told.close()
    with opened(tmp_path / "logs" / "peik.log", told=told) as file:
        say(file, "one")
        (tmp_path / "logs").unlink()
        until_written(file, tmp_path / "logs" / "peik.log", "two")


def test_lines_that_nobody_writes_do_not_fill_the_memory(tmp_path: Path) -> None:
    path, told = tmp_path / "peik.log", io.StringIO()
    file = opened(path, told=told, bytes_max=100_000_000)
    say(file, *("line" for _ in range(QUEUE_MAX + 5)))  # its thread has not begun: as with a disk that hangs
    with file:
        until(lambda: LEFT_OUT in events_so_far(path))
    assert events_of(path) == ["line"] * QUEUE_MAX + [LEFT_OUT]
    assert lines_of(path)[-1]["count"] == 5
    assert told.getvalue().count("5 lines were left out") == 1


def test_half_a_line_that_a_crash_left_is_not_glued_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "peik.log"
    path.write_text('{"event": "whole"}\n{"event": "ha')
    with opened(path) as file:
        say(file, "after")
    whole, half, after = path.read_text().splitlines()
    assert (json.loads(whole)["event"], half, json.loads(after)["event"]) == ("whole", '{"event": "ha', "after")


def test_text_that_is_no_text_is_still_a_line(tmp_path: Path) -> None:
    path = tmp_path / "peik.log"
    with opened(path) as file:
        say(file, "name \udcff\nof a file", value=object())
    (line,) = lines_of(path)
    assert line["event"] == "name \udcff\nof a file"
    assert line["value"].startswith("<object object")


def test_only_its_owner_and_group_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "peik.log"
    with opened(path) as file:
        say(file, "one")
    assert path.stat().st_mode & 0o007 == 0


def test_its_name_is_a_setting_and_not_a_file_that_holds_one(tmp_path: Path) -> None:
    config = load(environment={"PEIK_LOG_FILE": "logs/peik.log", "PEIK_LOG_FILE_MAX": "1M"}, folder=tmp_path)
    assert (config.log_file, config.log_file_max, config.log_files) == (Path("logs/peik.log"), 1024**2, 10)
    assert load(environment={}, folder=tmp_path).log_file is None
    for wrong in ({"PEIK_LOG_FILE_MAX": "0"}, {"PEIK_LOG_FILES": "0"}):
        with pytest.raises(StartError):
            load(environment=wrong, folder=tmp_path)


def test_a_server_writes_it_to_its_last_line(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(180), SimServer(options=Options(limits=Limits(on=False)), seed=7) as sim:
            sim.telegram.bot(TOKEN)
            settings = {"log_file": "logs/peik.log", "log_level": "debug", "log_format": "json"}
            async with aiohttp.ClientSession() as http, served(tmp_path, sim.url, http, **settings) as server:
                async with http.post(
                    f"{server.url}/bot{TOKEN}/sendMessage", json={"chat_id": 5, "text": "hi"}
                ) as answer:
                    assert answer.status == 200
                assert await server.program.terminate() == 0
                shown = [line for line in "".join(server.program.output).splitlines() if line.startswith("{")]
                assert shown
                assert [json.loads(line) for line in shown] == lines_of(tmp_path / "logs" / "peik.log")

    asyncio.run(main())


def test_a_quiet_log_is_told_from_a_dead_one(tmp_path: Path) -> None:
    path = tmp_path / "peik.log"
    with LogFile(path, bytes_max=1_000_000, files_kept=3, beat_s=0.01):
        until(lambda: path.exists() and events_so_far(path)[:1] == ["-> the log goes on"])


def test_a_program_with_two_peiks_inside_has_one_file_and_its_own_log_besides(tmp_path: Path) -> None:
    """Both write it until the second one is closed; the program's own handlers and levels are left alone."""
    path = tmp_path / "logs" / "peik.log"
    handlers = list(logging.getLogger().handlers)

    async def main() -> None:
        given = {"token": TOKEN, "api_root": "http://127.0.0.1:1", "log_file": str(path), "log_level": "debug"}
        async with Peik.open(f"sqlite:///{tmp_path}/one.db", **given) as one:
            async with Peik.open(f"sqlite:///{tmp_path}/two.db", **given) as two:
                await two.send_text(5, "first")
            await one.send_text(5, "second")
            assert logging.getLogger().handlers == handlers

    asyncio.run(main())
    events = events_of(path)
    assert events.count("-> the log begins") == 2
    assert events.count("+ accepted 1") == 2
    assert {line["level"] for line in lines_of(path)} >= {"debug", "info"}


def test_a_line_and_its_end_are_one_write_so_that_processes_do_not_tear_each_others() -> None:
    program = """
import structlog
from peik.monitoring.log_file import set_up
set_up(level="info", form="json")
structlog.get_logger().info("first")
structlog.get_logger().info("second")
"""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # each write is a datagram
    with ours, theirs:
        unbuffered = os.environ | {"PYTHONUNBUFFERED": "1"}  # as in containers
        subprocess.run([sys.executable, "-c", program], stderr=theirs, env=unbuffered, check=True)
        written = [ours.recv(4096) for _ in range(2)]
    assert [one.endswith(b"}\n") for one in written] == [True, True], written
    assert [json.loads(one)["event"] for one in written] == ["first", "second"]
