"""`peik messages`, `peik events` and `peik logs`: what is in the archive is found, exported, followed and forgotten."""

import asyncio
import contextlib
import csv
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peik.accounts.feeds import lines_of_events
from peik.archive.api import MessageApi
from peik.archive.cli import followed, frames
from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Direction, Happening, LogLine, Message
from peik.cli.client import StreamedAnswer
from peik.errors import Unavailable
from peik.testing.accounts import Person
from peik.web.operations import declared, request_for
from tests.cli.served_accounts import Place, play_place
from tests.cli.shell import Shell
from tests.patience import PATIENCE_S

NOON_MS = 1_790_000_000_000
MANY = 2_300  # three pages of an export


def message(number: int, text: str, **more: Any) -> Message:
    fields: dict[str, Any] = {"chat_id": 77, "direction": Direction.RECEIVED, "sender_id": 5, "kind": "text", **more}
    at_ms = NOON_MS + number * 1000
    return Message(
        session_id="s", agent_id="shop", message_id=number, date_ms=at_ms, text=text, created_at_ms=at_ms, **fields
    )


async def fill(path: Path, messages: list[Message]) -> None:
    archive = SqliteArchive(path)
    await archive.open()
    try:
        await archive.keep_messages(messages)
        happened = {"event_type": "joined", "chat_id": -5, "user_id": 5, "payload": '{"by": "link"}'}
        await archive.keep_events(
            [Happening(event_id="e", session_id="s", agent_id="shop", created_at_ms=NOON_MS, **happened)]  # type: ignore[arg-type]
        )
        for level in ("info", "error"):
            line = LogLine(at_ms=NOON_MS, level=level, event=f"{level} happened", session_id="s", fields='{"n": 1}')
            await archive.keep_logs([line])
    finally:
        await archive.close()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An archive and nothing else: no store, no key, no application, and nobody is running."""
    few = [
        message(1, "salom dunyo"),
        message(2, "=cmd|evil\nsecond line"),
        message(3, "javob", direction=Direction.SENT),
    ]
    edited = message(1, "salom, dunyo!", edited_at_ms=NOON_MS + 60_000)
    asyncio.run(fill(tmp_path / "kept", [*few, edited]))
    return Shell(tmp_path, PEIK_ARCHIVE="sqlite:///kept")


@pytest.fixture
def large(tmp_path: Path) -> Shell:
    asyncio.run(fill(tmp_path / "kept", [message(number, f"message {number}") for number in range(1, MANY + 1)]))
    return Shell(tmp_path, PEIK_ARCHIVE="sqlite:///kept")


# ---- finding ----


def test_messages_events_and_logs_are_found_on_the_archive_alone(shell: Shell) -> None:
    page = shell.asked("messages", "list", "--session", "s", "--limit", "2")
    assert [one["message_id"] for one in page["messages"]] == ["3", "2"]
    (last,) = shell.asked("messages", "list", "--limit", "2", "--cursor", page["next"])["messages"]
    assert (last["message_id"], last["text"]) == ("1", "salom, dunyo!")
    assert shell.asked("messages", "count", "--text", "dunyo", "--not-deleted") == {"count": 1}
    assert shell.peik("messages", "count", "--direction", "sent").out == "1\n"
    assert re.search(r"^s +77 +3 .* sent +text +javob$", shell.peik("messages", "list").out, re.MULTILINE)
    shown = shell.asked("messages", "show", "s", "77", "1")
    assert [one["text"] for one in shown["versions"]] == ["salom dunyo", "salom, dunyo!"]
    assert "salom, dunyo!" in shell.peik("messages", "show", "s", "77", "1").out
    assert shell.peik("messages", "show", "s", "77", "9").code == 3
    assert shell.asked("messages", "stats") == {"sessions": 0, "messages": 3, "versions": 1, "events": 1}
    (event,) = shell.asked("events", "list", "--type", "joined", "--chat", "-5")["events"]
    assert (event["payload"], event["user_id"]) == ({"by": "link"}, "5")
    assert "joined" in shell.peik("events", "list").out
    (line,) = shell.asked("logs", "--level", "warning", "--session", "s")["logs"]
    assert (line["event"], line["fields"]) == ("error happened", {"n": 1})
    assert re.search(r"^20\d\d-.* info +info happened +s +\{\"n\":1\}$", shell.peik("logs").out, re.MULTILINE)
    # Nothing but the archive was needed, and nothing was made beside it.
    assert {path.name.partition("-")[0] for path in shell.folder.iterdir()} == {"kept"}


def test_a_person_is_forgotten_only_when_somebody_is_sure(shell: Shell) -> None:
    asked = shell.peik("messages", "forget", "5")
    assert (asked.code, "Say --yes" in asked.err) == (2, True)
    removed = shell.asked("messages", "forget", "5", "--yes")["removed"]
    assert (removed["messages"], removed["versions"], removed["events"]) == (3, 1, 1)
    assert shell.peik("messages", "forget", "5", "--yes").out.startswith("Removed: nothing")
    assert shell.peik("messages", "count").out == "0\n"


# ---- exporting ----


def test_an_export_has_every_message_once_as_lines_or_as_a_table(large: Shell) -> None:
    ran = large.peik("messages", "export")
    texts = [json.loads(line)["text"] for line in ran.out.splitlines()]
    assert texts == [f"message {number}" for number in range(MANY, 0, -1)]
    done = large.asked("messages", "export", "all.csv", "--session", "s")
    with (large.folder / "all.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == texts
    assert (done["count"], done["format"]) == (MANY, "csv")
    assert done["bytes"] == (large.folder / "all.csv").stat().st_size
    assert large.peik("messages", "export", "all.csv", "--json").problem["code"] == "file_exists"
    assert large.peik("messages", "export", "all.csv", "--overwrite").code == 0
    assert large.peik("messages", "export", "--json").code == 2
    assert [path.name for path in large.folder.glob("all*")] == ["all.csv"]


def test_an_export_that_was_killed_goes_on_exactly_where_it_was(large: Shell) -> None:
    whole = large.peik("messages", "export").out
    part, place = large.folder / "out.jsonl.part", large.folder / "out.jsonl.part.place"
    kill_when(large, lambda: place.exists(), "messages", "export", "out.jsonl", "--since", "2020-01-01")
    assert not (large.folder / "out.jsonl").exists()
    with part.open("ab") as file:
        file.write(b'{"half a li')  # of a page that did not get so far
    refused = large.peik("messages", "export", "out.jsonl", "--since", "2020-01-01", "--json")
    assert (refused.code, refused.problem["code"]) == (4, "file_exists")
    other = large.peik("messages", "export", "out.jsonl", "--resume", "--chat", "5", "--json")
    assert other.problem["code"] == "other_export"
    done = large.asked("messages", "export", "out.jsonl", "--since", "2020-01-01", "--resume")
    assert (done["count"], done["resumed_at"] > 0) == (MANY, True)
    assert (large.folder / "out.jsonl").read_text(encoding="utf-8") == whole
    assert large.peik("messages", "export", "out.jsonl", "--resume", "--json").problem["code"] == "nothing_to_resume"


def kill_when(shell: Shell, is_time: Callable[[], bool], *arguments: str) -> None:
    """A pause after each page gives the time to be killed in: the archive is a slow one."""
    program = (
        "import sys, time\n"
        "from peik.archive import cli as cli_export\n"
        "export = cli_export.page_at\n"
        "def slow(visit, filters, form, cursor):\n"
        "    if cursor is not None: time.sleep(3600)\n"
        "    return export(visit, filters, form, cursor)\n"
        "cli_export.page_at = slow\n"
        "from peik.app.cli import main\n"
        "main()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], cwd=shell.folder, env=shell.environment, stderr=subprocess.PIPE
    ) as process:
        try:
            while not is_time():
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.02)
        finally:
            process.kill()


def test_the_bar_of_an_export_is_for_people_only(large: Shell) -> None:
    code, shown = large.in_terminal("messages", "export", "all.jsonl")
    assert code == 0
    assert "Exporting" in shown
    assert f"{MANY:,} messages exported to all.jsonl." in shown


def test_a_reader_of_the_pipe_may_leave(large: Shell) -> None:
    command = f"{shlex.quote(sys.executable)} -m peik messages export | head -1"
    ran = subprocess.run(
        ["bash", "-c", command], cwd=large.folder, env=large.environment, capture_output=True, timeout=PATIENCE_S
    )
    assert json.loads(ran.stdout)["text"] == f"message {MANY}"
    assert ran.stderr == b""


# ---- through a running Peik ----


def test_what_is_exported_through_a_running_peik_is_the_same(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await signed_in(place)
        await place.house.messages(1)
        listed = (await place.asked("messages", "list"))["messages"]
        ran = await place.peik("messages", "export", "-")
        assert [json.loads(line)["text"] for line in ran.out.splitlines()] == [one["text"] for one in listed]
        done = await place.asked("messages", "export", "out.csv")
        assert done["count"] == len(listed)
        (chat,) = {one["chat_id"] for one in listed}
        shown = await place.asked("messages", "show", listed[0]["session_id"], chat, listed[0]["message_id"])
        assert shown["text"] == listed[0]["text"]
        assert (await place.peik("messages", "list", "--chat", "x", "--json")).problem["code"] == "bad_chat_id"

    play_place(tmp_path, story)


async def signed_in(place: Place) -> tuple[Person, Person]:
    """Ali, who is signed in, and a friend who said hello to him."""
    ali = place.telegram.register("+998900000001", first_name="Ali")
    friend = place.telegram.register("+998900000002", first_name="Vali")
    await place.house.signed_in(ali)
    place.telegram.say(place.telegram.private(ali, friend), friend, "salom")
    return ali, friend


class Following:
    """`peik … follow` in a process of its own."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        command = [sys.executable, "-m", "peik", *arguments]
        self._process = subprocess.Popen(
            command, cwd=shell.folder, env=shell.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def interrupt(self) -> tuple[int, str]:
        self._process.send_signal(signal.SIGINT)
        _, err = self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode, err

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def test_messages_are_followed_as_they_come_and_a_reader_misses_nothing(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        ali, friend = await signed_in(place)
        await place.house.messages(1)
        chat = place.telegram.private(ali, friend)
        following = Following(place.shell, "messages", "follow", "--reader", "crm", "--json")
        try:
            first = json.loads(
                await asyncio.to_thread(following.line)
            )  # a reader that was never here begins at the start
            assert (first["line"], first["text"]) == ("message", "salom")
            post = place.telegram.say(chat, friend, "ikkinchi")
            assert json.loads(await asyncio.to_thread(following.line))["text"] == "ikkinchi"
            place.telegram.delete(chat, post)
            assert json.loads(await asyncio.to_thread(following.line))["line"] == "deleted"
            assert await asyncio.to_thread(following.interrupt) == (130, "")
        finally:
            following.kill()
        plain = Following(place.shell, "messages", "follow")
        try:
            line = asyncio.create_task(asyncio.to_thread(plain.line))
            number = 0
            while not line.done():  # it begins with what comes once it listens, and nobody knows when that is
                number += 1
                place.telegram.say(chat, friend, f"uchinchi {number}\x1b[2J")
                await asyncio.wait([line], timeout=0.2)
            assert re.fullmatch(rf"\w+ {friend.user_id} \d+ from {friend.user_id}: uchinchi \d+ \[2J\n", line.result())
            assert (await asyncio.to_thread(plain.interrupt))[0] == 130
        finally:
            plain.kill()

    play_place(tmp_path, story)


def test_events_are_followed_on_the_archive_alone(shell: Shell) -> None:
    following = Following(shell, "events", "follow", "--reader", "crm", "--json")
    try:

        async def tell() -> None:
            archive = SqliteArchive(shell.folder / "kept")
            await archive.open()
            happened = Happening(
                event_id="f", session_id="s", agent_id="shop", event_type="left", payload="{}", created_at_ms=NOON_MS
            )
            await archive.feed(lines_of_events([happened], at_ms=NOON_MS))
            await archive.close()

        asyncio.run(tell())
        told = json.loads(following.line())
        assert (told["line"], told["event_type"]) == ("event", "left")
        assert following.interrupt() == (130, "")
    finally:
        following.kill()


def test_frames_are_told_only_when_they_are_whole() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"retry: 2000\nid: a:1\n\n: still here\n\nid: a:2\nevent: mess"
        yield b'age\ndata: {"text": "a: b"}\n\nid: a:3\nevent: message\ndata: {"half'

    assert [tuple(frame) for frame in frames(chunks())] == [
        ("", "a:1", b""),
        ("", "", b""),
        ("message", "a:2", b'{"text": "a: b"}'),
    ]


def test_a_stream_that_breaks_off_goes_on_after_the_last_line() -> None:
    asked: list[dict[str, str]] = []
    answers = [
        [b'id: s:1\nevent: message\ndata: {"n": 1}\n\nid: s:2\nevent: message\ndata: {"n"'],
        [b'id: s:2\nevent: message\ndata: {"n": 2}\n\n'],
    ]

    class Client:
        @contextlib.contextmanager
        def stream(self, handler: Any, *, query: Any, headers: Any) -> Iterator[StreamedAnswer]:
            asked.append(request_for(declared(handler), {"query": query, "headers": headers}).headers)
            yield StreamedAnswer({}, iter(answers.pop(0)))
            raise Unavailable(code="cut_off", detail="It broke off.")

        def pause(self, seconds: float) -> None: ...

    lost: list[str] = []
    client: Any = Client()
    lines = followed(client, MessageApi.stream_messages, {}, on_lost=lost.append)
    assert [next(lines).data for _ in range(2)] == [b'{"n": 1}', b'{"n": 2}']
    assert asked == [{}, {"Last-Event-ID": "s:1"}]
    assert lost == ["It broke off. Trying again."]
