"""`peik doctor`: what is right is green, what will hurt is red, and each has its fix."""

import re
from pathlib import Path
from typing import Any

import pytest

from peik.core.nodes import CHORES, NodeRecord
from peik.core.outcome import Delivered, Uncertain, Unsent
from peik.monitoring import doctor
from peik.monitoring.doctor import Finding, Grade
from tests.cli.shell import BOT, TOKEN, Shell, served, telegram
from tests.storage.shared_places import SHARED, SharedPlace


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture(params=SHARED, ids=lambda kind: kind.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    made: SharedPlace = request.param(tmp_path)
    return Shell(tmp_path, PEIK_STORE=made.url)


def grades(document: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in document["findings"]:
        found.setdefault(one["name"], []).append(one["grade"])
    return found


# ---- judging ----


def test_the_worst_grade_counts() -> None:
    def graded(*grades: Grade) -> list[Finding]:
        return [Finding(name="x", grade=grade, words="") for grade in grades]

    assert doctor.worst([]) is Grade.GREEN
    assert doctor.worst(graded(Grade.GREEN, Grade.YELLOW)) is Grade.YELLOW
    assert doctor.worst(graded(Grade.RED, Grade.YELLOW, Grade.GREEN)) is Grade.RED


@pytest.mark.parametrize(
    ("skew_s", "grade"),
    [
        (None, "green"),
        (0.3, "green"),
        (-0.9, "green"),
        (4.0, "yellow"),
        (-4.0, "yellow"),
        (30.0, "red"),
        (-30.0, "red"),
    ],
)
def test_a_clock_is_judged_by_how_far_it_is_off(skew_s: float | None, grade: str) -> None:
    assert doctor.of_clock(skew_s).grade == grade


@pytest.mark.parametrize(
    ("most", "polled", "grade"),
    [(65536, 3, "green"), (4096, 3, "green"), (4096, 3000, "yellow"), (1024, 0, "yellow"), (1024, 10, "red")],
)
def test_every_bot_that_is_polled_needs_a_connection(most: int, polled: int, grade: str) -> None:
    assert doctor.of_open_files(most, polled=polled).grade == grade


@pytest.mark.parametrize(
    ("version", "faults", "better"),
    [
        ((3, 11, 7), ["CVE-2024-6232", "CVE-2025-8194", "CVE-2024-4032", "CVE-2025-6069"], "3.11.14"),
        ((3, 12, 4), ["CVE-2024-6232", "CVE-2025-8194", "CVE-2025-6069"], "3.12.12"),
        ((3, 13, 5), ["CVE-2025-8194", "CVE-2025-6069"], "3.13.6"),
        ((3, 11, 14), [], ""),
        ((3, 13, 6), [], ""),
        ((3, 14, 0), [], ""),
    ],
)
def test_faults_of_python_in_what_peik_uses_are_told(
    version: tuple[int, int, int], faults: list[str], better: str
) -> None:
    found = doctor.of_python(version)
    assert found.grade == ("yellow" if faults else "green")
    assert re.findall(r"CVE-[0-9-]+", found.words) == faults
    assert better in (found.fix or "")


def test_room_is_red_before_it_is_gone() -> None:
    assert [doctor.of_room("/", size).grade for size in (5 * 1024**3, 500 * 1024**2, 50 * 1024**2)] == [
        "green",
        "yellow",
        "red",
    ]


def test_a_route_that_is_down_is_red_only_if_there_is_no_other() -> None:
    down = Unsent(why="connect_timeout")
    assert doctor.of_route("direct", down, has_other=False).grade is Grade.RED
    assert doctor.of_route("direct", down, has_other=True).grade is Grade.YELLOW
    assert (
        doctor.of_route("direct", Uncertain(why="HTTP 200 that is not Telegram's"), has_other=False).grade is Grade.RED
    )
    assert doctor.of_route("direct", Delivered(result=b"{}"), has_other=False).grade is Grade.GREEN


def node(name: str, *bots: int, version: str = "1", is_draining: bool = False) -> NodeRecord:
    return NodeRecord(
        name=name,
        version=version,
        address=None,
        started_at_ms=0,
        seen_at_ms=0,
        bots=bots,
        is_draining=is_draining,
    )


def test_nodes_are_well_if_they_serve_everybody_in_one_version() -> None:
    assert doctor.of_nodes([], [5]).grade is Grade.YELLOW
    assert doctor.of_nodes([node("a", CHORES), node("b", 5)], [5]).grade is Grade.GREEN
    assert doctor.of_nodes([node("a", CHORES), node("b")], [5]).grade is Grade.YELLOW
    assert doctor.of_nodes([node("a", CHORES), node("b", 5, version="2")], [5]).grade is Grade.YELLOW
    assert doctor.of_nodes([node("a", is_draining=True)], [5]).grade is Grade.RED


def test_a_sentence_about_durability_ends_with_its_fix() -> None:
    (one,) = doctor.of_durability(
        ["Redis has appendfsync everysec: … may lose up to a second of letters. Set: always."]
    )
    assert (one.grade, one.fix) == (Grade.YELLOW, "Set: always.")
    (one,) = doctor.of_durability(
        ["Redis has no append-only file: a restart may lose everything. Set: appendonly yes."]
    )
    assert (one.grade, one.fix) == (Grade.RED, "Set: appendonly yes.")
    (one,) = doctor.of_durability(
        ["MongoDB runs as a single server, not as a replica set: … outlives a power cut. Take backups (mongodump)."]
    )
    assert (one.grade, one.fix) == (Grade.YELLOW, "Take backups (mongodump).")


def test_a_copy_that_no_commit_waits_for_is_a_word_and_no_alarm() -> None:
    lasting, failover = doctor.of_durability([], failover_loses=True)
    assert (lasting.name, failover.name, failover.grade) == ("durability", "failover", Grade.GREEN)
    assert "a failover loses" in failover.words
    assert doctor.of_durability([]) == [lasting]


# ---- the command ----


def test_settings_that_cannot_be_read_are_red(shell: Shell) -> None:
    ran = shell.peik("doctor", "--json", PEIK_PROT="1")
    assert ran.code == 1
    (finding,) = ran.document["findings"]
    assert (finding["name"], finding["grade"]) == ("settings", "red")
    assert "PEIK_PORT" in finding["words"]


def test_a_fresh_folder_is_well_and_stays_empty(shell: Shell) -> None:
    found = shell.asked("doctor")
    assert found["grade"] == "yellow"  # no bot, and nobody is running
    assert grades(found)["store"] == ["green"]
    assert not list(shell.folder.iterdir())
    assert "green" in shell.peik("doctor").out


def test_a_running_peik_with_a_bot_is_green_and_a_revoked_token_is_red(shell: Shell) -> None:
    with telegram(shell) as sim:
        sim.post("bots", token=TOKEN)
        with served(shell, sim.url, BOT_TOKEN=TOKEN) as url:
            asked = Shell(shell.folder, PEIK_URL=url, PEIK_API_ROOT=sim.url, BOT_TOKEN=TOKEN)
            ran = asked.peik("doctor", "--json")
            assert ran.code == 0, ran
            by_name = grades(ran.document)
            for name in ("settings", "store", "durability", "nodes", "route", "bot", "running"):
                assert by_name[name] == ["green"], ran
            assert any(BOT in one["words"] for one in ran.document["findings"] if one["name"] == "bot")
            assert TOKEN not in ran.out
            sim.post("revoke", bot=int(BOT))
            ran = asked.peik("doctor", "--json")
            assert (ran.code, grades(ran.document)["bot"]) == (1, ["red"])
        ran = Shell(shell.folder, PEIK_URL=url, PEIK_API_ROOT=sim.url).peik("doctor", "--json")
        assert grades(ran.document)["running"] == ["red"]  # it was named, and is not there


def test_a_store_that_cannot_be_opened_is_red_and_shows_no_password(shell: Shell) -> None:
    (shell.folder / "peik.db").write_text("nothing of the kind, and long enough to be looked at" * 10, encoding="utf-8")
    ran = shell.peik("doctor", "--json")
    assert (ran.code, grades(ran.document)["store"]) == (1, ["red"])
    for url in ("postgresql://peik:hush-hush@127.0.0.1:1/peik", "redis://:hush-hush@127.0.0.1:1/0"):
        ran = shell.peik("doctor", "--store", url, "--json")
        assert (ran.code, grades(ran.document)["store"]) == (1, ["red"]), ran
        assert "hush-hush" not in ran.out + ran.err


def test_a_server_that_syncs_nothing_is_red_and_its_clock_is_compared(place: Shell) -> None:
    ran = place.peik("doctor", "--json")
    assert (ran.code, grades(ran.document)["durability"]) == (1, ["red"])
    assert grades(ran.document)["nodes"] == ["yellow"]
    with telegram(place) as sim, served(place, sim.url, BOT_TOKEN=TOKEN, PEIK_LEASE="10s") as url:
        ran = Shell(place.folder, PEIK_STORE=place.environment["PEIK_STORE"], PEIK_URL=url).peik("doctor", "--json")
        by_name = grades(ran.document)
        assert (by_name["clock"], by_name["running"]) == (["green"], ["green"])
        assert any("agree on the time" in one["words"] for one in ran.document["findings"])
        assert by_name["job"] == ["green"], ran
