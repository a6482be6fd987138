"""The commands on the store itself, with no Peik running: what they promise is kept when one is started."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import BOT, TOKEN, Shell, served, telegram


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_without_a_store_there_is_nobody_to_ask_and_nothing_is_made(shell: Shell) -> None:
    ran = shell.peik("stats", "--json")
    assert (ran.code, ran.problem["code"], ran.out) == (5, "unreachable", "")
    assert "peik serve" in ran.problem["detail"]
    ran = shell.peik("stats", "--store", "sqlite:///other.db")
    assert ran.code == 5
    assert "other.db" in ran.err
    assert not list(shell.folder.iterdir())


def test_letters_are_accepted_and_read_and_go_out_when_peik_is_started(shell: Shell) -> None:
    assert shell.peik("bots", "add", "-", stdin=TOKEN + "\n").out == f"Bot {BOT} is served.\n"
    ran = shell.peik("send", "5", "سلام")
    assert ran.out == "Accepted as letter 1, waiting.\n"
    assert "`peik serve`" in ran.err
    (shell.folder / "notes.txt").write_text("a file", encoding="utf-8")
    assert shell.asked("send", "5", "with a file", "--file", "document=notes.txt") == {"id": "2", "state": "waiting"}
    ran = shell.peik("send", "6", "soon", "--wait", "10ms")
    assert ran.code == 7
    assert "No Peik is running" in ran.out
    assert "No Peik is running" in shell.asked("status", "1")["why"]
    assert shell.asked("cancel", "3")["state"] == "cancelled"
    assert re.search(r"^ 1 +waiting .* sendMessage +0 +سلام$", shell.peik("letters").out, re.MULTILINE)
    (lane,) = shell.asked("lanes")["lanes"]
    assert (lane["chat_id"], lane["waiting"], lane["head"]) == ("5", 2, "1")
    counted = shell.asked("stats")
    assert (counted["waiting"], counted["cancelled"], counted["failed"]) == (2, 1, 0)
    with telegram(shell) as sim, served(shell, sim.url) as url:
        running = Shell(shell.folder, PEIK_URL=url)
        assert running.asked("send", "5", "after them", "--wait", "200s")["state"] == "completed"
        assert [one["method"] for one in sim.sent_to(5)] == ["sendMessage", "sendDocument", "sendMessage"]


def test_everything_else_that_needs_no_running_peik(shell: Shell) -> None:
    shell.peik("bots", "add", "-", stdin=TOKEN + "\n")
    assert shell.asked("bots", "pause", BOT)["paused"]
    assert shell.asked("bots", "limits", BOT, "--group-per-min", "7")["limits"]["group_per_min"] == 7
    assert shell.asked("chats", "hold", "@somewhere", "--until", "2099-01-01T00:00")["chat_id"] == "@somewhere"
    assert shell.asked("chats", "list")["chats"][0]["held_until"] == "2099-01-01T00:00:00.000Z"
    assert shell.asked("dead", "clear", "--yes") == {"cleared": 0}
    assert shell.peik("dead", "retry", "--all").out == "There are no such dead letters.\n"
    made = shell.asked("keys", "create", "later", "--scope", "send", "--bot", BOT, "--rate", "20/s burst 100")
    assert made["rate"] == "20/s burst 100"
    assert made["key"].startswith("peik_")
    assert [(key["name"], key["rate"]) for key in shell.asked("keys", "list")["keys"]] == [("later", made["rate"])]
    assert shell.peik("keys", "remove", made["id"], "--yes").code == 0
    assert shell.peik("routes").code == 5
    assert shell.peik("resolve", "5", "--arrived", "--json").problem["code"] == "unknown_letter"
    assert shell.peik("bots", "add", "-", "--json", stdin="nonsense\n").problem["code"] == "malformed_token"
    assert shell.peik("bots", "remove", BOT, "--yes").code == 0
    assert shell.peik("send", "5", "x", "--json").problem["code"] == "no_bot"


def test_a_file_that_is_not_peiks_is_left_alone(shell: Shell) -> None:
    (shell.folder / "peik.db").write_text("nothing of the kind, and long enough to be looked at" * 10, encoding="utf-8")
    ran = shell.peik("stats")
    assert ran.code == 5
    assert "peik.db" in ran.err


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_where_both_streams_go_to_one_file_the_answer_stands_before_what_is_said_beside_it(
    shell: Shell, unbuffered: str
) -> None:
    shell.peik("bots", "add", "-", stdin=TOKEN + "\n")
    ran = subprocess.run(
        [sys.executable, "-m", "peik", "send", "5", "hello"],
        cwd=shell.folder,
        env=shell.environment | {"PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    answer, beside = (
        "Accepted as letter 1, waiting.\n",
        "No Peik is running: it goes out when `peik serve` is started.\n",
    )
    assert ran.stdout.endswith(answer + beside)
