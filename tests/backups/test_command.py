"""`peik backup` as people type it: SQLite, with files of letters, while Peik runs and while it does not."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from peik.backups.model import restored_at_ms
from peik.clock import SystemClock
from peik.storage.sqlite.store import SqliteStore
from tests.cli.shell import TOKEN, Shell, served, telegram
from tests.patience import PATIENCE_S

KEY = "a long sentence that nobody guesses"
CAT = os.urandom(300_000)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def with_letters(shell: Shell) -> None:
    """A bot with a text and a file that wait."""
    shell.peik("bots", "add", "-", stdin=TOKEN)
    (shell.folder / "cat.jpg").write_bytes(CAT)
    shell.asked("send", "5", "Hello")
    shell.asked("send", "6", "--method", "sendPhoto", "--file", "photo=cat.jpg")


def waiting(shell: Shell) -> int:
    """Letters that are not sent yet."""
    stats = shell.asked("stats", "--store", "sqlite:///peik.db")
    return int(stats["waiting"] + stats["active"] + stats["delayed"])


def lose_everything(shell: Shell) -> None:
    for path in shell.folder.glob("peik.db*"):
        if path.is_file():
            path.unlink()
        elif path.name == "peik.db.files":
            for blob in path.iterdir():
                blob.unlink()


def test_a_backup_is_one_file_and_brings_everything_back(shell: Shell) -> None:
    with_letters(shell)
    made = shell.asked("backup", "create")
    path = Path(made["path"])
    assert path.is_absolute()
    assert path.stat().st_mode & 0o777 == 0o600
    assert made["counts"]["store"]["letters"] == 2
    assert made["counts"]["files"] == {"files": 1}
    assert [one.name for one in path.parent.iterdir()] == [path.name]

    lose_everything(shell)
    restored = shell.asked("backup", "restore", str(path))
    assert restored["is_restored"]
    assert waiting(shell) == 2
    with telegram(shell) as sim, served(shell, sim.url):
        while waiting(shell):
            pass
        assert [len(sim.sent_to(chat)) for chat in (5, 6)] == [1, 1]


def test_a_restore_says_where_to_and_the_store_knows_of_it(shell: Shell) -> None:
    with_letters(shell)
    path = Path(shell.asked("backup", "create")["path"])
    asked = shell.peik("backup", "restore", str(path))
    assert f"sqlite:///{shell.folder / 'peik.db'}" in asked.err  # in the question
    told = shell.peik("backup", "restore", str(path), "--yes")
    assert f"into sqlite:///{shell.folder / 'peik.db'}, as it was" in " ".join(told.out.split())
    assert "Nothing was there before" not in told.err
    (found,) = shell.asked("backup", "list")["backups"]
    assert found["verified_at"] is not None
    findings = {one["name"]: one for one in json.loads(shell.peik("doctor", "--json").out)["findings"]}
    assert findings["backup"]["grade"] == "green", findings["backup"]

    elsewhere = Shell(shell.folder / "elsewhere")
    elsewhere.folder.mkdir()
    told = elsewhere.peik("backup", "restore", str(path), "--yes")
    assert f"into sqlite:///{elsewhere.folder / 'peik.db'}, as it was" in " ".join(told.out.split())
    assert "Nothing was there before" in told.err
    assert asyncio.run(restored_at(elsewhere.folder / "peik.db")) is not None


async def restored_at(path: Path) -> int | None:
    store = SqliteStore(path, clock=SystemClock(), is_owner=True)
    await store.open()
    try:
        return await restored_at_ms(store.documents)
    finally:
        await store.close()


def test_it_is_made_while_peik_runs_and_is_not_put_back_then(shell: Shell) -> None:
    with_letters(shell)
    with served(shell, "http://127.0.0.1:1"):
        path = shell.asked("backup", "create")["path"]
        assert shell.asked("backup", "verify")["is_sound"]
        ran = shell.peik("backup", "restore", path, "--yes", "--json")
        assert (ran.code, ran.problem["code"]) == (4, "in_use")
    shell.asked("send", "5", "After the backup")
    asked = shell.peik("backup", "restore", path, "--json")
    assert (asked.code, asked.problem["code"]) == (2, "not_confirmed")
    assert waiting(shell) == 3
    shell.asked("backup", "restore", path, "--yes")
    assert waiting(shell) == 2
    before = shell.asked("stats", "--store", "sqlite:///peik.db.before-restore")
    assert before["waiting"] == 3


def test_a_sealed_one_opens_with_its_key_only(shell: Shell) -> None:
    with_letters(shell)
    shell.environment["PEIK_SECRET_KEY"] = KEY
    made = shell.asked("backup", "create")
    assert made["is_sealed"]
    assert b"test" not in Path(made["path"]).read_bytes().partition(b"\n{")[2].partition(b"\n")[2]
    for key, code in ((None, "no_secret_key"), ("another sentence of theirs", "wrong_secret_key")):
        shell.environment.pop("PEIK_SECRET_KEY", None)
        if key is not None:
            shell.environment["PEIK_SECRET_KEY"] = key
        ran = shell.peik("backup", "verify", made["path"], "--json")
        assert (ran.code, ran.problem["code"]) == (4, code)
    shell.environment["PEIK_SECRET_KEY"] = f"another sentence of theirs, {KEY}"
    assert shell.asked("backup", "verify", made["path"])["is_sound"]


def test_a_list_tells_which_were_tried_out_and_old_ones_go(shell: Shell) -> None:
    with_letters(shell)
    shell.environment["PEIK_BACKUP_KEEP"] = "2"
    first, second, third = (shell.asked("backup", "create") for _ in range(3))
    assert first["rotated"] == second["rotated"] == []
    assert third["rotated"] == [Path(first["path"]).name]
    shell.asked("backup", "verify", second["path"])
    listed = {one["path"]: one for one in shell.asked("backup", "list")["backups"]}
    assert set(listed) == {second["path"], third["path"]}
    assert listed[second["path"]]["verified_at"] is not None
    assert listed[third["path"]]["verified_at"] is None
    assert Path(third["path"]).name in shell.peik("backup", "list", COLUMNS="200").out


def test_one_that_is_killed_leaves_no_half_file(shell: Shell) -> None:
    with_letters(shell)
    kept = Path(shell.asked("backup", "create")["path"])
    (kept.parent / ".making-of-the-dead").mkdir()
    # It stops where the whole is written and not yet renamed, and is killed there.
    program = (
        "import os, sys, signal; from pathlib import Path; import peik.backups.container as container\n"
        "sync = os.fsync\n"
        "def stop(handle):\n"
        "    sync(handle)\n"
        "    if 'unfinished' in os.readlink(f'/proc/self/fd/{handle}'): os.kill(os.getpid(), signal.SIGKILL)\n"
        "container.os.fsync = stop\n"
        "sys.argv = ['peik', 'backup', 'create']; from peik.app.cli import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=shell.folder,
        env=shell.environment,
        timeout=PATIENCE_S,
        capture_output=True,
    )
    assert ended.returncode == -signal.SIGKILL, ended
    assert [one["path"] for one in shell.asked("backup", "list")["backups"]] == [str(kept)]
    assert any(kept.parent.glob(".making-*/unfinished"))
    again = Path(shell.asked("backup", "create")["path"])
    assert sorted(one.name for one in kept.parent.iterdir()) == sorted((kept.name, again.name))


def test_what_does_not_fit_is_told_before_anything_is_changed(shell: Shell) -> None:
    problem = told(shell, "backup", "create")
    assert problem["code"] == "no_store"
    assert told(shell, "backup", "verify")["code"] == "no_backup"
    assert told(shell, "backup", "restore", "nothing.backup")["code"] == "no_backup"
    with_letters(shell)
    shell.environment["PEIK_BACKUPS"] = str(shell.folder / "cat.jpg")
    assert told(shell, "backup", "create")["code"] == "backup_failed"


def test_a_running_peik_makes_them_by_the_clock_and_tells_their_age(shell: Shell) -> None:
    with_letters(shell)
    settings = {"PEIK_BACKUP_EVERY": "24h", "PEIK_METRICS": "open"}
    with served(shell, "http://127.0.0.1:1", **settings) as url:
        while not any(one["verified_at"] for one in shell.asked("backup", "list")["backups"]):
            pass  # it is being made, or tried out
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S) as answer:
            page = answer.read().decode()
    assert re.search(r"^peik_backup_age_seconds \d", page, re.MULTILINE)
    assert re.search(r"^peik_backup_verified_timestamp_seconds \d", page, re.MULTILINE)


def test_sessions_keys_and_the_archive_come_along(shell: Shell) -> None:
    with_letters(shell)
    folder = shell.folder / "accounts"
    folder.mkdir()
    with sqlite3.connect(folder / "mine.session") as session:
        session.execute("CREATE TABLE sessions (key BLOB)")
        session.execute("INSERT INTO sessions VALUES (x'0102')")
    (shell.folder / "peik.db.key").write_text("peik_admin\n")
    shell.environment["PEIK_SESSIONS_DIR"] = str(folder)
    with sqlite3.connect(shell.folder / "peik.db.archive") as archive:
        archive.execute("CREATE TABLE kept (line TEXT)")
        archive.execute("INSERT INTO kept VALUES ('seen')")
    made = shell.asked("backup", "create")
    assert made["counts"]["archive"] == {"kept": 1}
    lose_everything(shell)
    (folder / "mine.session").unlink()
    shell.asked("backup", "restore", made["path"])
    assert (shell.folder / "peik.db.key").read_text() == "peik_admin\n"
    with sqlite3.connect(folder / "mine.session") as session:
        assert session.execute("SELECT key FROM sessions").fetchall() == [(b"\x01\x02",)]
    with sqlite3.connect(shell.folder / "peik.db.archive") as archive:
        assert archive.execute("SELECT line FROM kept").fetchall() == [("seen",)]


def told(shell: Shell, *arguments: str) -> Any:
    ran = shell.peik(*arguments, "--json")
    assert ran.code != 0
    return json.loads(ran.err)
