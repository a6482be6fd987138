"""An import that is killed in the middle goes on, and nothing is brought twice; one of long ago is known by its note."""

import datetime
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from peik.importing.transfer import BATCH
from tests.cli.shell import BOT, TOKEN, Shell
from tests.patience import PATIENCE_S

# It dies by SIGKILL at the worst moment: a batch is accepted, and the note that says so is not kept yet.
DIES = """
import os, signal, sys
from peik.importing.transfer import ImportTarget
keep, kept = ImportTarget.keep_note, []
def keep_note(self, note):
    if len(kept) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    kept.append(note)
    keep(self, note)
ImportTarget.keep_note = keep_note
from peik.app.cli import main
sys.argv = ["peik", "import", "bot.db", "--yes"]
main()
"""
ROWS = 3 * BATCH + 7


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    base = sqlite3.connect(tmp_path / "bot.db")
    base.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, chat_id INT, text TEXT, sent INT)")
    base.executemany("INSERT INTO outbox VALUES (?, ?, ?, 0)", [(n, 5 + n % 2, f"m{n}") for n in range(1, ROWS + 1)])
    base.commit()
    base.close()
    return Shell(tmp_path, BOT_TOKEN=TOKEN)


def test_what_was_accepted_before_the_kill_is_known_by_its_keys(shell: Shell) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DIES], cwd=shell.folder, env=shell.environment, timeout=PATIENCE_S, capture_output=True
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert shell.asked("stats")["waiting"] == 2 * BATCH
    (done,) = shell.asked("import", "bot.db", "--yes")["tables"]
    assert (done["brought"], done["known"]) == (ROWS - 2 * BATCH, 2 * BATCH)
    assert shell.asked("stats")["waiting"] == ROWS
    numbers = [
        int(one["params"]["text"][1:]) for one in shell.asked("letters", "--chat", "5", "--limit", "1000")["letters"]
    ]
    assert numbers == list(range(ROWS - ROWS % 2, 1, -2))  # the newest first


def test_rows_of_an_import_whose_keys_are_forgotten_are_left_out_and_told(shell: Shell) -> None:
    note_an_import(shell, place=ROWS - 2, hours_ago=49)
    done = shell.asked("import", "bot.db", "--yes")
    assert (done["tables"][0]["brought"], done["tables"][0]["known"]) == (2, ROWS - 2)
    assert done["notes"][0].startswith(f"{ROWS - 2} rows of outbox were brought more than 48 hours ago")
    assert shell.asked("stats")["waiting"] == 2


def test_within_two_days_keys_decide_and_not_the_note(shell: Shell) -> None:
    note_an_import(shell, place=ROWS - 2, hours_ago=40)
    assert shell.asked("import", "bot.db", "--yes")["tables"][0]["brought"] == ROWS


def note_an_import(shell: Shell, *, place: int, hours_ago: int) -> None:
    """As if the file had been brought up to a row some time ago. In a process of its own: this one never opens the store."""
    begun_at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours_ago)
    at_ms = int(begun_at.timestamp() * 1000)
    program = f"""
from peik.settings.config import load
from peik.cli.local import StoreClient
from peik.importing.transfer import ImportTarget
from peik.outbox.api import BotApi
client = StoreClient(load({{}}), may_create=True)
client.document(BotApi.add_bot, body={{"token": {TOKEN!r}}})
note = {{"name": "bot", "table": "outbox", "place": {place}, "begun_at_ms": {at_ms}, "letters": {place}}}
ImportTarget(client, {BOT!r}).keep_note(note)
client.close()
"""
    subprocess.run(
        [sys.executable, "-c", program], cwd=shell.folder, env=shell.environment, timeout=PATIENCE_S, check=True
    )
