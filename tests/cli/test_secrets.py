"""`peik secrets`: from plain to sealed, to another key, and back; on the store itself and by a running Peik."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from peik.app.commands import app
from tests.cli.shell import BOT, TOKEN, Shell, served, telegram
from tests.patience import PATIENCE_S

ONE, TWO = (base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))


class Here:
    """The commands in this process, on a store that nobody serves: starting each would cost a second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._others = {name: None for name in os.environ if name.startswith(("PEIK_", "BOT_", "REDIS_"))}

    def asked(self, *words: str, stdin: str = "", url: str | None = None, **keys: str) -> tuple[int, Any]:
        """The exit code, and the document; or the problem, if there is one."""
        where = ["--url", url] if url is not None else ["--store", f"sqlite:///{self.folder}/peik.db"]
        environment = {**self._others, "PEIK_PORT": "1", **keys}
        ran = CliRunner().invoke(app, [*words, *where, "--json"], input=stdin, env=environment)
        return ran.exit_code, json.loads(ran.stdout or ran.stderr)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(tmp_path)
    return Here(tmp_path)


def test_secrets_are_sealed_renewed_and_opened_where_nobody_runs(here: Here) -> None:
    here.asked("bots", "add", "-", stdin=TOKEN + "\n")
    _, plain = here.asked("secrets", "status")
    assert (plain["has_key"], plain["plain"], plain["sealed"]) == (False, 1, 0)
    assert here.asked("secrets", "rotate")[1]["code"] == "no_secret_key"

    assert here.asked("secrets", "rotate", PEIK_SECRET_KEY=ONE)[1]["sealed"] == 1
    assert TOKEN.encode() not in (here.folder / "peik.db").read_bytes()
    assert here.asked("bots", "list", PEIK_SECRET_KEY=ONE)[1]["bots"][0]["bot_id"] == BOT

    _, shut = here.asked("secrets", "status")  # needs no key
    assert (shut["plain"], shut["foreign"]) == (0, 2)
    for key, code in (({}, "no_secret_key"), ({"PEIK_SECRET_KEY": TWO}, "wrong_secret_key")):
        exit_code, problem = here.asked("bots", "list", **key)
        assert (exit_code, problem["code"]) == (5, code)

    assert here.asked("secrets", "rotate", PEIK_SECRET_KEY=TWO, PEIK_SECRET_KEY_OLD=ONE)[1]["renewed"] == 2
    assert here.asked("secrets", "status", PEIK_SECRET_KEY=TWO)[1]["advice"] is None

    assert here.asked("secrets", "open", PEIK_SECRET_KEY=TWO)[0] != 0  # nobody can be asked
    assert here.asked("secrets", "status", PEIK_SECRET_KEY=TWO)[1]["plain"] == 0
    assert here.asked("secrets", "open", "--yes", PEIK_SECRET_KEY=TWO) == (0, {"opened": 2, "accounts": None})
    assert here.asked("bots", "list")[1]["bots"][0]["bot_id"] == BOT


def test_a_token_that_cannot_be_opened_is_given_anew(here: Here) -> None:
    here.asked("bots", "add", "-", stdin=TOKEN + "\n", PEIK_SECRET_KEY=ONE)
    assert here.asked("secrets", "mend", "-", stdin=f"{BOT}:AAnew\n", PEIK_SECRET_KEY=TWO)[1]["mended"]
    assert here.asked("bots", "list", PEIK_SECRET_KEY=TWO)[1]["bots"][0]["bot_id"] == BOT
    assert here.asked("secrets", "mend", "-", stdin="42:AAof-nobody\n")[1]["code"] == "unknown_bot"


def test_a_backup_holds_sealed_tokens_and_says_so_where_it_is_put_back_without_the_key(here: Here) -> None:
    here.asked("bots", "add", "-", stdin=TOKEN + "\n", PEIK_SECRET_KEY=ONE)
    _, made = here.asked("backup", "create")  # by somebody who does not have the key: the file itself is not sealed
    assert not made["is_sealed"]
    _, restored = here.asked("backup", "restore", made["path"], "--yes")
    assert any("PEIK_SECRET_KEY" in one for one in restored["warnings"])
    assert TOKEN.encode() not in (here.folder / "peik.db").read_bytes()
    assert here.asked("backup", "restore", made["path"], "--yes", PEIK_SECRET_KEY=ONE)[1]["warnings"] == []
    assert here.asked("bots", "list", PEIK_SECRET_KEY=ONE)[1]["bots"][0]["bot_id"] == BOT


def test_doctor_says_when_tokens_lie_open_and_when_they_do_not(here: Here) -> None:
    here.asked("bots", "add", "-", stdin=TOKEN + "\n")

    def finding(**key: str) -> tuple[str, str | None]:
        _, document = here.asked("doctor", PEIK_API_ROOT="http://127.0.0.1:1", **key)
        return next((one["grade"], one["fix"]) for one in document["findings"] if one["name"] == "secrets")

    assert finding() == ("yellow", "Set PEIK_SECRET_KEY, and start Peik again.")
    here.asked("secrets", "rotate", PEIK_SECRET_KEY=ONE)
    assert finding(PEIK_SECRET_KEY=ONE) == ("green", None)
    assert finding() == ("red", "Set PEIK_SECRET_KEY to the key of this store.")


def test_a_running_peik_says_how_its_secrets_lie_and_seals_them_anew(here: Here, tmp_path: Path) -> None:
    here.asked("bots", "add", "-", stdin=TOKEN + "\n")
    here.asked("secrets", "rotate", PEIK_SECRET_KEY=ONE)
    shell = Shell(tmp_path, PEIK_SECRET_KEY=f"{TWO},{ONE}")
    with telegram(shell) as sim, served(shell, sim.url) as url:
        assert here.asked("secrets", "status", url=url)[1]["older"] == 2  # the command needs no key: the server has it
        assert here.asked("secrets", "rotate", url=url)[1]["renewed"] == 2
        assert here.asked("secrets", "open", "--yes", url=url)[1]["code"] == "in_use"
        assert here.asked("send", "5", "still sent", "--wait", "200s", url=url)[1]["state"] == "completed"
    assert here.asked("secrets", "status", PEIK_SECRET_KEY=TWO)[1]["foreign"] == 0


def test_who_lacks_the_package_is_told_the_same_line_everywhere(tmp_path: Path) -> None:
    for words in (["serve"], ["backup", "create"]):
        program = (
            "import sys; sys.modules['cryptography'] = None\n"
            f"sys.argv = ['peik', *{words!r}]; from peik.app.cli import main; main()"
        )
        environment = {**os.environ, "PEIK_SECRET_KEY": ONE, "BOT_TOKEN": TOKEN, "PEIK_PORT": "1"}
        ran = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode != 0
        assert "pip install '.[secrets]' in a checkout of Peik" in " ".join(ran.stderr.split()), ran.stderr
