"""The commands about updates: on the store itself, and through a running Peik, with the same answers."""

import json
import re
import sqlite3
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import BOT, TOKEN, Shell, Telegram, served, telegram


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def sim(shell: Shell) -> Iterator[Telegram]:
    with telegram(shell) as found:
        yield found


def write(sim: Telegram, count: int, *, user: int = 5) -> None:
    for number in range(1, count + 1):
        sim.post("write", bot=TOKEN, user=user, text=f"text {number}")


def bury(folder: Path, number: int) -> None:
    """As if a handler had failed with it for the last time."""
    with sqlite3.connect(folder / "peik.db") as db:
        db.execute(
            "INSERT INTO deliveries (consumer_id, number, phase, tries, failed_reason, settled_at, history) "
            'VALUES (1, ?, 3, 5, \'ValueError: no\', ?, \'[{"at": 1700000000000, "words": "no"}]\')',
            (number, int(time.time() * 1000)),
        )
    db.close()


def look(shell: Shell, folder: Path) -> None:
    """Everything that is asked of arrivals, once five of them are there: the same wherever it is asked."""
    listed = shell.asked("arrivals", "list")["arrivals"]
    first = listed[-1]["number"]
    assert [one["number"] for one in listed] == [first + 4, first + 3, first + 2, first + 1, first]
    ran = shell.peik("arrivals", "list", "--limit", "2")
    assert re.search(rf"^ *{listed[0]['id']} +{first + 4} +waiting .* 5 +5 +message +text 5$", ran.out, re.MULTILINE)
    assert f"--cursor {listed[1]['id']}" in ran.err
    assert len(shell.asked("arrivals", "list", "--text", "text 3", "--chat", "5", "--since", "1h")["arrivals"]) == 1
    assert shell.peik("arrivals", "list", "--user", "6").out == "There are no such arrivals.\n"
    assert shell.asked("arrivals", "show", listed[4]["id"])["update"]["message"]["text"] == "text 1"
    shown = shell.peik("arrivals", "show", listed[4]["id"]).out
    assert re.search(r"^default +waiting", shown, re.MULTILINE)
    assert shell.peik("arrivals", "show", "99").code == 3

    assert shell.asked("arrivals", "ack", "default", "--number", str(first)) == {
        "consumer": "default",
        "acknowledged_up_to": first,
    }
    assert shell.peik("arrivals", "ack", "default", "--update-id", str(first + 99)).code == 2
    assert shell.peik("arrivals", "ack", "default").code == 2

    bury(folder, first + 1)
    bury(folder, first + 2)
    ran = shell.peik("arrivals", "dead")
    assert re.search(r"message +text 2 +default +5 +ValueError: no$", ran.out, re.MULTILINE)
    assert shell.peik("arrivals", "retry", "--json").problem["code"] == "not_confirmed"
    made = shell.asked("arrivals", "retry", listed[3]["id"])
    assert (made["number"], made["replay_of"]) == (first + 5, listed[3]["id"])
    assert shell.peik("arrivals", "retry", listed[3]["id"]).code == 4
    assert shell.peik("arrivals", "clear", "--yes").out == "1 dead arrival cleared away.\n"
    assert shell.peik("arrivals", "clear").out == "There are no such dead arrivals.\n"
    assert shell.peik("arrivals", "dead").out == "There are no dead arrivals.\n"

    message = str(int(listed[0]["message_id"]) + 1)
    assert shell.asked("arrivals", "seen", "5", listed[0]["message_id"], message) == {"noted": 2, "matched": 1}
    assert shell.asked("arrivals", "list", "--state", "waiting")["arrivals"][-1]["number"] == first + 1
    (inbox,) = shell.asked("inbox")["bots"]
    assert (inbox["source"], inbox["last_number"]) == ("off", first + 5)
    assert re.search(rf"^{BOT} +off .* {first + 4} +0 +\d+ +0 +0$", shell.peik("inbox").out, re.MULTILINE)
    assert shell.asked("stats")["inbox"]["failed"] == 0

    replay = ("arrivals", "replay", "--first", str(first), "--last", str(first + 2))
    assert shell.asked(*replay, "--dry-run") == {"would_replay": 3}
    assert shell.peik(*replay).code == 2  # nobody there who could be asked
    assert shell.peik(*replay, "--yes").out == "3 arrivals handed to default once more.\n"
    assert len(shell.asked("arrivals", "list")["arrivals"]) == 9
    assert shell.peik("arrivals", "replay", "--json").problem["code"] == "replay_of_what"


def set_consumers(shell: Shell) -> None:
    (shell.folder / "secret").write_text("s3cret\n", encoding="utf-8")
    wanted = ("--push-to", "http://127.0.0.1:9/hook", "--secret-file", "secret", "--types", "message,poll")
    made = shell.asked("consumers", "set", "reports", *wanted)
    assert (made["kind"], made["has_secret"], made["allowed_updates"]) == ("push", True, ["message", "poll"])
    ran = shell.peik("consumers", "list")
    assert re.search(rf"^{BOT} +reports +push +\d+ .* http://127.0.0.1:9/hook$", ran.out, re.MULTILINE)
    assert "s3cret" not in ran.out
    assert shell.peik("consumers", "set", "reports", "--no-push").out == "reports reads for itself.\n"
    assert shell.peik("consumers", "set", "reports").code == 2
    assert shell.peik("consumers", "remove", "reports").code == 2
    assert shell.peik("consumers", "remove", "reports", "--yes").out == "The consumer reports is forgotten.\n"
    assert shell.peik("consumers", "remove", "reports", "--yes").code == 3
    assert shell.peik("consumers", "remove", "default", "--yes", "--json").problem["code"] == "default_consumer"


def test_on_the_store_itself(shell: Shell, sim: Telegram) -> None:
    shell.environment["PEIK_API_ROOT"] = sim.url
    assert shell.peik("recover").code == 5  # there is nothing yet
    shell.peik("bots", "add", "-", stdin=TOKEN + "\n")
    write(sim, 5)
    said = shell.peik("recover")
    assert re.fullmatch(
        rf"Bot {BOT}: found 5, stored 5, duplicates 0, expired (0|not known how many), in [0-9.]+ s\.\n", said.out
    ), said
    (report,) = shell.asked("recover", "--bot", BOT)["bots"]
    assert (report["bot_id"], report["found"], report["stored"]) == (BOT, 0, 0)
    look(shell, shell.folder)
    set_consumers(shell)


def test_through_a_running_peik(shell: Shell, sim: Telegram) -> None:
    write(sim, 5)
    with served(shell, sim.url, BOT_TOKEN=TOKEN, PEIK_INBOUND="off") as url:
        running = Shell(shell.folder, PEIK_URL=url)
        (report,) = running.asked("recover")["bots"]
        assert (report["found"], report["stored"]) == (5, 5)
        look(running, shell.folder)
        set_consumers(running)
        die_in_hand(running, url)


def die_in_hand(shell: Shell, url: str) -> None:
    """A bot confirms all that there is, and another one begins: what it was handed again is told."""

    def poll(**query: int) -> Any:
        with urllib.request.urlopen(f"{url}/bot{TOKEN}@fresh/getUpdates?{urllib.parse.urlencode(query)}") as answer:
            return json.load(answer)["result"]

    assert "handed again" not in shell.peik("inbox").out
    updates = poll()
    poll(offset=updates[-1]["update_id"] + 1)
    assert poll()[0] == updates[0]
    told = next(line for line in shell.peik("inbox").out.splitlines() if "handed again" in line)
    assert told.startswith(f"{BOT} fresh: {len(updates)} arrivals handed again, the last time ")
    assert told.endswith("Their poller ended, and nothing showed that they were dealt with.")


def test_while_another_process_owns_the_store_only_that_one_recovers(shell: Shell, sim: Telegram) -> None:
    with served(shell, sim.url, BOT_TOKEN=TOKEN, PEIK_INBOUND="off"):
        ran = shell.peik("recover", "--store", "sqlite:///peik.db", "--json")
    assert (ran.code, ran.problem["code"]) == (4, "store_owned")
    assert "--url" in ran.problem["detail"]


def test_a_replay_shows_how_far_it_is_and_asks_before_it_begins(shell: Shell, sim: Telegram) -> None:
    shell.environment["PEIK_API_ROOT"] = sim.url
    shell.peik("bots", "add", "-", stdin=TOKEN + "\n")
    write(sim, 3)
    shell.peik("recover")
    replay = ("arrivals", "replay", "--since", "1h")
    code, shown = shell.in_terminal(*replay, when="once more?", then=b"n\n")
    assert (code, "Nothing was changed." in shown) == (1, True)
    code, shown = shell.in_terminal(*replay, when="once more?", then=b"y\n")
    assert (code, "3 arrivals handed to default once more." in shown) == (0, True)
    assert "Replaying" in shown
