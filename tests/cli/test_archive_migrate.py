"""`peik migrate --archive`: an archive moves between SQLite, PostgreSQL and MongoDB, whole, once, and not while it is used;
and what `peik doctor` finds about accounts."""

import asyncio
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Direction, Happening, Message, Session, SessionState
from peik.monitoring.checks import of_application
from peik.monitoring.doctor import Grade
from tests.archive.places import HAS_SERVERS, MongoPlace, PostgresPlace
from tests.cli.shell import Shell

NOON_MS = 1_790_000_000_000
MANY = 2_500  # three pages
HUSH = "a passphrase that is long enough"


async def _filled(path: Path, *, is_connected: bool = False) -> None:
    archive = SqliteArchive(path)
    await archive.open()
    try:
        session = Session(session_id="s", agent_id="shop", state=SessionState.ACTIVE, created_at_ms=NOON_MS)
        await archive.add_session(msgspec.structs.replace(session, is_connected=is_connected))
        await archive.keep_messages([_message(number) for number in range(MANY)])
        await archive.keep_messages([msgspec.structs.replace(_message(7), text="edited", edited_at_ms=NOON_MS + 9)])
        happened = Happening(
            event_id="e", session_id="s", agent_id="shop", event_type="joined", payload="{}", created_at_ms=NOON_MS
        )
        await archive.keep_events([happened])
    finally:
        await archive.close()


def _message(number: int) -> Message:
    return Message(
        session_id="s",
        agent_id="shop",
        chat_id=77,
        message_id=number + 1,
        direction=Direction.RECEIVED,
        date_ms=NOON_MS + number,
        text=f"message {number}",
        created_at_ms=NOON_MS,
    )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    asyncio.run(_filled(tmp_path / "old"))
    return Shell(tmp_path)


# ---- moving ----


def test_an_archive_goes_round_and_comes_back_as_it_was(shell: Shell, tmp_path: Path) -> None:
    targets = [PostgresPlace(tmp_path).url, MongoPlace(tmp_path).url] if HAS_SERVERS else []
    urls = ["sqlite:///old", *targets, "sqlite:///new"]
    moved: list[Any] = [
        shell.asked("migrate", "--archive", origin, target) for origin, target in itertools.pairwise(urls)
    ]
    assert all(one["digests"] == moved[0]["digests"] for one in moved)
    counts = moved[-1]["counts"]
    assert (counts["sessions"], counts["messages"], counts["versions"], counts["events"]) == (1, MANY, 1, 1)
    shown = shell.asked("messages", "show", "s", "77", "8", "--archive", "sqlite:///new")
    assert [one["text"] for one in shown["versions"]] == ["message 7", "edited"]
    again = shell.peik("migrate", "--archive", urls[-2], urls[-1])
    assert (again.code, "there is nothing left to do" in again.err) == (0, True)


def test_a_move_that_was_killed_goes_on(shell: Shell) -> None:
    program = (
        "import asyncio, sys\n"
        "from peik.archive.sqlite.archive import SqliteArchive as Archive\n"
        "put, puts = Archive.put, []\n"
        "async def slow(self, *given):\n"
        "    await put(self, *given)\n"
        "    puts.append(len(given[1]))\n"
        "    if sum(puts) > 1500:\n"
        "        print('on its way', flush=True)\n"
        "        await asyncio.sleep(3600)\n"
        "Archive.put = slow\n"
        "from peik.app.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, "migrate", "--archive", "sqlite:///old", "sqlite:///new"]
    with subprocess.Popen(
        command, cwd=shell.folder, env=shell.environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on its way\n"
        process.kill()
    onwards = shell.peik("migrate", "--archive", "sqlite:///new", "sqlite:///third", "--json")
    assert (onwards.code, onwards.problem["code"]) == (4, "origin_half_moved")
    moved = shell.asked("migrate", "--archive", "sqlite:///old", "sqlite:///new")
    assert (moved["was_begun"], moved["was_done"], moved["counts"]["messages"]) == (True, False, MANY)


def test_an_archive_that_is_used_is_not_moved_by_accident(tmp_path: Path) -> None:
    asyncio.run(_filled(tmp_path / "old", is_connected=True))
    shell = Shell(tmp_path)
    ran = shell.peik("migrate", "--archive", "sqlite:///old", "sqlite:///new", "--json")
    assert (ran.code, ran.problem["code"]) == (4, "origin_in_use")
    ran = shell.peik("migrate", "--archive", "sqlite:///old", "sqlite:///new", "--while-in-use")
    assert (ran.code, "do not start another one on the target" in ran.err) == (0, True)


def test_what_cannot_be_meant_is_refused_before_anything_is_made(shell: Shell) -> None:
    def code(*arguments: str) -> tuple[int, str]:
        ran = shell.peik("migrate", *arguments, "--json")
        return ran.code, ran.problem["code"]

    assert code("--archive", "sqlite:///old", "sqlite:///./old") == (4, "same_archive")
    assert code("--archive", "sqlite:///gone", "sqlite:///new") == (5, "no_store")
    assert code("--archive", "old", "sqlite:///new") == (2, "bad_archive")
    assert code("--archive", "sqlite:///old", "sqlite:///new", "--to", "sqlite:///x") == (2, "wrong_usage")
    assert code("--from", "sqlite:///old") == (2, "wrong_usage")
    counted = shell.asked("migrate", "--archive", "sqlite:///old", "sqlite:///new", "--dry-run")
    assert counted["counts"] == {"sessions": 1, "messages": MANY, "versions": 1, "events": 1}
    assert not (shell.folder / "new").exists()
    asyncio.run(_filled(shell.folder / "other"))
    assert code("--archive", "sqlite:///old", "sqlite:///other") == (4, "target_not_empty")
    unreachable = shell.peik("migrate", "--archive", "sqlite:///old", "postgresql://me:hush-hush@127.0.0.1:1/x")
    assert unreachable.code != 0
    assert "hush-hush" not in unreachable.err


def test_progress_is_shown_in_a_terminal(shell: Shell) -> None:
    code, shown = shell.in_terminal("migrate", "--archive", "sqlite:///old", "sqlite:///new")
    assert code == 0
    assert "Copying" in shown
    assert "PEIK_SECRET_KEY" in shown


# ---- the doctor ----


def _grades(shell: Shell, **environment: str) -> dict[str, str]:
    ran = shell.peik("doctor", "--json", **environment)
    return {one["name"]: one["grade"] for one in ran.document["findings"]}


def test_the_doctor_looks_at_the_archive_and_at_what_accounts_need(shell: Shell) -> None:
    assert "archive" not in _grades(shell)  # nobody asked for accounts
    whole = {"TELEGRAM_API_ID": "1", "TELEGRAM_API_HASH": "abc", "PEIK_ARCHIVE": "sqlite:///old"}
    found = _grades(shell, **whole, PEIK_SECRET_KEY=HUSH)
    for name in ("application", "secret key", "archive", "archive durability"):
        assert found[name] == "green", found
    assert _grades(shell, **whole)["secret key"] == "green"
    assert _grades(shell, **whole, PEIK_SECRET_KEY="short")["secret key"] == "red"
    assert _grades(shell, **whole, PEIK_SECRETS_PLAIN="on")["secret key"] == "yellow"
    assert _grades(shell, PEIK_ARCHIVE="postgresql://me:hush@127.0.0.1:1/x")["archive"] == "red"
    assert _grades(shell, PEIK_ARCHIVE="sqlite:///unmade")["archive"] == "green"
    assert not (shell.folder / "unmade").exists()
    assert not list(shell.folder.glob("*.secret"))


@pytest.mark.parametrize(
    ("has_id", "has_hash", "grade"),
    [(True, True, Grade.GREEN), (True, False, Grade.RED), (False, True, Grade.RED), (False, False, Grade.YELLOW)],
)
def test_an_application_is_a_pair(has_id: bool, has_hash: bool, grade: Grade) -> None:
    assert of_application(has_id, has_hash).grade is grade
