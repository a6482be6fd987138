"""`peik nodes`, and the commands on a store that several nodes share, with and without a Peik that answers."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import BOT, TOKEN, Shell, served, telegram
from tests.patience import PATIENCE_S
from tests.storage.shared_places import SHARED, SharedPlace

LEASE = {"PEIK_LEASE": "10s"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture(params=SHARED, ids=lambda kind: kind.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """A shell whose store is on a server, and nobody is running."""
    made: SharedPlace = request.param(tmp_path)
    return Shell(tmp_path, PEIK_STORE=made.url)


def until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < deadline, f"it does not become so; the last answer was {seen!r}"
    return seen


def test_on_sqlite_the_owner_is_shown_by_rest_and_by_the_file(shell: Shell) -> None:
    assert shell.peik("bots", "add", "-", stdin=TOKEN + "\n").code == 0
    assert shell.peik("nodes").out == "No node runs on this store: start one with `peik serve`.\n"
    with telegram(shell) as sim, served(shell, sim.url) as url:
        (there,) = Shell(shell.folder, PEIK_URL=url).asked("nodes")["nodes"]
        (here,) = shell.asked("nodes", "--store", "sqlite:///peik.db")["nodes"]
        assert (here["name"], here["bots"], here["state"]) == (there["name"], [BOT], "active")
        assert (there["is_this"], here["is_this"], here["does_chores"]) == (True, False, True)
        table = Shell(shell.folder, PEIK_URL=url).peik("nodes", "list").out
        assert there["name"] in table
        assert BOT in table
        for asked in (Shell(shell.folder, PEIK_URL=url), shell):
            ran = asked.peik("nodes", "drain", there["name"], "--json")
            assert (ran.code, ran.problem["code"]) == (4, "one_process")
            assert asked.peik("nodes", "resume", "nobody").code == 3


def test_help_of_nodes_lists_what_can_be_done(shell: Shell) -> None:
    shown = shell.peik("nodes", "--help").out
    assert all(word in shown for word in ("list", "drain", "resume"))


def test_letters_and_files_are_accepted_by_the_store_alone_and_go_out_when_a_node_comes(place: Shell) -> None:
    assert place.asked("bots", "add", "-", stdin=TOKEN + "\n")["bot_id"] == BOT
    assert place.asked("nodes") == {
        "nodes": [],
        "lease_s": 10.0,
        "store": place.environment["PEIK_STORE"].split(":")[0],
    }
    ran = place.peik("send", "5", "سلام")
    assert ran.code == 0
    assert "`peik serve`" in ran.err
    (place.folder / "notes.txt").write_text("a file", encoding="utf-8")
    first = place.asked("send", "5", "with a file", "--file", "document=notes.txt")
    assert first["state"] == "waiting"
    lost = place.asked("send", "6", "taken back", "--file", "document=notes.txt")
    assert place.asked("cancel", lost["id"])["state"] == "cancelled"
    assert "No Peik is running" in place.asked("status", first["id"])["why"]
    assert place.asked("chats", "hold", "@somewhere", "--until", "2099-01-01T00:00")["chat_id"] == "@somewhere"
    counted = place.asked("stats")
    assert (counted["waiting"], counted["cancelled"]) == (2, 1)
    assert [bot["node"] for bot in place.asked("bots", "list")["bots"]] == [None]
    with telegram(place) as sim, served(place, sim.url, **LEASE) as url:
        running = Shell(place.folder, PEIK_STORE=place.environment["PEIK_STORE"], PEIK_URL=url)
        assert running.asked("send", "5", "after them", "--wait", "200s")["state"] == "completed"
        assert [one["method"] for one in sim.sent_to(5)] == ["sendMessage", "sendDocument", "sendMessage"]
        # By the store, beside the node: a letter of another process is sent, too.
        assert place.asked("send", "7", "from beside", "--wait", "200s")["state"] == "completed"
        (node,) = place.asked("nodes")["nodes"]
        assert [bot["node"] for bot in place.asked("bots", "list")["bots"]] == [node["name"]]
        ran = place.peik("recover", "--bot", BOT, "--json")
        assert (ran.code, ran.problem["code"]) == (4, "store_owned")


@pytest.mark.gate  # leases of real processes run out
def test_a_node_is_drained_until_it_serves_nobody(place: Shell) -> None:
    two = Shell(place.folder / "two", PEIK_STORE=place.environment["PEIK_STORE"])
    two.folder.mkdir()
    with (
        telegram(place) as sim,
        served(place, sim.url, BOT_TOKEN=TOKEN, **LEASE) as url,
        served(two, sim.url, **LEASE) as other_url,
    ):
        asked = Shell(place.folder, PEIK_STORE=place.environment["PEIK_STORE"], PEIK_URL=url)
        until(lambda: len(asked.asked("nodes")["nodes"]) == 2)
        (first,) = [node for node in asked.asked("nodes")["nodes"] if node["address"] == url]
        node = asked.asked("nodes", "drain", first["name"], "--wait")
        assert (node["state"], node["bots"], node["does_chores"]) == ("draining", [], False)
        (second,) = [node for node in asked.asked("nodes")["nodes"] if node["address"] == other_url]
        until(lambda: [bot["node"] for bot in asked.asked("bots", "list")["bots"]] == [second["name"]])
        ran = place.peik("nodes", "drain", second["name"], "--wait")  # by the store itself
        assert ran.out == f"Node {second['name']} serves no bot any more.\n"
        assert "No other node takes bots" in ran.err
        assert asked.peik("nodes", "resume", first["name"]).out == f"Node {first['name']} takes bots again.\n"
        until(lambda: [bot["node"] for bot in asked.asked("bots", "list")["bots"]] == [first["name"]])
