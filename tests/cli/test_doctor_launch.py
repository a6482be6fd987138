"""`peik doctor` before a launch: who is told, what is kept, who is seen, what can be taken, and the verdict over all of it."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from peik import Peik
from peik.alerts.looks import Memory
from peik.core.catalogue import Scope
from peik.core.outcome import Delivered, Refused
from peik.monitoring import doctor
from peik.monitoring.checks import CHECKS
from peik.monitoring.doctor import Finding, Grade, Keeping, MeasuredCapacity, Seen
from tests.cli.shell import BOT, TOKEN, Ran, Shell, served, telegram


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def grades(document: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in document["findings"]:
        found.setdefault(one["name"], []).append(one["grade"])
    return found


# ---- judging ----


HOUR_MS = 3_600_000
GB = 1024**3


@pytest.mark.parametrize(
    ("key", "file_mode", "grade"),
    [
        ("secret", None, "red"),
        ("a" * 40, None, "red"),
        ("peik_8Qm2ZtLx0Rw5vNc7Hd3K", None, "green"),
        (None, None, "green"),
        (None, 0o100600, "green"),
        (None, 0o100644, "red"),
    ],
)
def test_an_admin_key_that_others_can_guess_or_read_is_red(key: str | None, file_mode: int | None, grade: str) -> None:
    assert doctor.of_admin_key(key, file_mode=file_mode).grade == grade


@pytest.mark.parametrize(
    ("age_h", "every_h", "is_broken", "is_launch", "grade"),
    [
        (None, None, False, False, "yellow"),
        (None, None, False, True, "red"),
        (3, None, False, True, "green"),
        (48, None, False, True, "yellow"),
        (48, 48, False, True, "green"),
        (24 * 8, None, False, False, "yellow"),
        (24 * 8, None, False, True, "red"),
        (3, None, True, False, "red"),
    ],
)
def test_a_backup_is_judged_by_its_age(
    age_h: int | None, every_h: int | None, is_broken: bool, is_launch: bool, grade: str
) -> None:
    finding = doctor.of_backup(
        None if age_h is None else 1000 * HOUR_MS - age_h * HOUR_MS,
        now_ms=1000 * HOUR_MS,
        every_s=None if every_h is None else every_h * 3600.0,
        newest_is_broken=is_broken,
        is_launch=is_launch,
    )
    assert finding.grade == grade


@pytest.mark.parametrize(
    ("inbound", "host", "own_host", "error", "pending", "grade"),
    [
        ("polling", None, None, "", 0, "green"),
        ("polling", "elsewhere.example", None, "", 0, "yellow"),
        ("polling", None, None, "", 5000, "yellow"),
        ("webhook", "bot.example", "bot.example", "", 0, "green"),
        ("webhook", "bot.example", "bot.example", "Connection refused", 0, "yellow"),
        ("webhook", None, "bot.example", "", 0, "yellow"),
        ("webhook", None, None, "", 0, "red"),
        ("off", "elsewhere.example", None, "", 5000, "green"),
    ],
)
def test_a_webhook_must_lead_where_the_bot_listens(
    inbound: str, host: str | None, own_host: str | None, error: str, pending: int, grade: str
) -> None:
    finding = doctor.of_webhook(
        5, inbound=inbound, host=host, own_host=own_host, error=error, error_age_s=60.0, pending=pending
    )
    assert finding.grade == grade


def test_a_log_that_nobody_keeps_is_yellow_and_one_that_cannot_be_written_red() -> None:
    def graded(path: str | None, **facts: Any) -> str:
        usual = {"age_s": None, "can_write": True, "is_archived": False, "is_running": False}
        return doctor.of_log(path, **(usual | facts)).grade

    assert graded(None) == "yellow"
    assert graded(None, is_archived=True) == "green"
    assert graded("peik.log", can_write=False) == "red"
    assert graded("peik.log", is_running=True) == "yellow"
    assert graded("peik.log", is_running=True, age_s=5.0) == "green"
    assert graded("peik.log", is_running=True, age_s=3600.0) == "yellow"  # one that grows has a line in five minutes
    assert graded("peik.log") == graded("peik.log", age_s=5.0) == "yellow"  # nobody writes it


def test_the_log_of_a_program_with_peik_inside_is_seen_to_grow(shell: Shell) -> None:
    store, path = f"sqlite:///{shell.folder}/inside.db", shell.folder / "logs" / "peik.log"
    asked = Shell(shell.folder, PEIK_STORE=store, PEIK_LOG_FILE=str(path))

    async def main() -> tuple[Ran, Ran]:
        """While it runs, and when its log was lost."""
        async with Peik.open(store, token=TOKEN, api_root="http://127.0.0.1:1", log_file=str(path)) as peik:
            while not path.exists():  # noqa: ASYNC110  files have no bell
                await asyncio.sleep(0.01)
            first = await asyncio.to_thread(asked.peik, "doctor", "--json")
            assert peik
            os.utime(path, (1, 1))
            return first, await asyncio.to_thread(asked.peik, "doctor", "--json")

    first, second = asyncio.run(main())
    assert "grows" in words_of(first.document, "log"), first
    assert "does not grow" in words_of(second.document, "log"), second
    after = asked.peik("doctor", "--json")
    assert "No Peik runs" in words_of(after.document, "log"), after


def test_memory_support_and_channels_are_judged() -> None:
    assert doctor.of_memory(Memory(of="the machine", total=100, used=50)).grade is Grade.GREEN
    assert doctor.of_memory(Memory(of="the machine", total=100, used=90)).grade is Grade.YELLOW
    assert doctor.of_support(" ").grade is Grade.RED
    told = Delivered(result=b"{}")
    assert [doctor.of_channel("@a", told, seen).grade for seen in Seen] == ["green", "yellow", "red"]
    refused = Refused(code=400, words="Bad Request: chat not found", advice="", scope=Scope.CHAT)
    assert doctor.of_channel("@a", refused, None).grade is Grade.RED


KEEPING = Keeping(letters_s=7 * 86_400, arrivals_s=7 * 86_400, log_s=90 * 86_400, work_bytes=20 * GB)
LARGE = MeasuredCapacity(commits_per_s=500, letters_per_s=30, memory_bytes=8 * GB, room_bytes=100 * GB)
SMALL = MeasuredCapacity(commits_per_s=15, letters_per_s=30, memory_bytes=GB, room_bytes=60 * GB)


def test_a_launch_is_judged_by_what_was_measured() -> None:
    def graded(users: int, measured: MeasuredCapacity, room_bytes: int = 50 * GB) -> dict[str, str]:
        found = doctor.findings(users, measured, KEEPING, room_bytes=room_bytes)
        return {one.name: one.grade for one in found}

    assert set(graded(10_000, LARGE).values()) == {"green"}
    small = graded(10_000, SMALL)
    assert (small["commits"], small["memory for it"], small["capacity"]) == ("red", "red", "red")
    assert set(graded(1000, SMALL).values()) == {"green"}
    assert graded(1000, SMALL, room_bytes=70 * GB)["room for it"] == "red"
    assert graded(1_000_000, LARGE)["pace"] == "red"
    assert doctor.most(SMALL, KEEPING) < 10_000 < doctor.most(LARGE, KEEPING)


def test_a_verdict_is_as_bad_as_the_worst_finding() -> None:
    def graded(*grades: Grade) -> Grade:
        return doctor.verdict(1000, [Finding(name="x", grade=grade, words="") for grade in grades]).grade

    assert graded(Grade.GREEN) is Grade.GREEN
    assert graded(Grade.GREEN, Grade.YELLOW) is Grade.YELLOW
    assert graded(Grade.YELLOW, Grade.RED) is Grade.RED


# ---- the command ----


def words_of(document: Any, name: str) -> str:
    return "\n".join(one["words"] for one in document["findings"] if one["name"] == name)


def test_a_test_job_is_done_with_and_without_a_running_peik(shell: Shell) -> None:
    with telegram(shell) as sim:
        sim.post("bots", token=TOKEN)
        with served(shell, sim.url, BOT_TOKEN=TOKEN) as url:
            ran = Shell(shell.folder, PEIK_URL=url, PEIK_API_ROOT=sim.url).peik("doctor", "--json")
            assert grades(ran.document)["job"] == ["green"], ran
            assert grades(ran.document)["panel"] == ["green"]
            assert grades(ran.document)["webhook"] == ["green"]
        ran = shell.peik("doctor", "--json", PEIK_API_ROOT=sim.url)
        assert grades(ran.document)["job"] == ["green"], ran
        assert "panel" not in grades(ran.document)
    assert [one["state"] for one in shell.asked("jobs", "list", "--kind", "peik.doctor")["jobs"]] == ["completed"] * 2
    assert not list((shell.folder / "peik.work").glob("**/test"))  # its folder is gone


def test_a_test_job_without_a_folder_to_work_in_is_red(shell: Shell) -> None:
    shell.asked("bots", "add", "-", stdin=TOKEN)
    (shell.folder / "taken").write_text("a file where a folder should be", encoding="utf-8")
    ran = shell.peik("doctor", "--json", PEIK_WORK="taken", PEIK_API_ROOT="http://127.0.0.1:1")
    assert (ran.code, grades(ran.document)["job"]) == (1, ["red"])
    assert "taken" in words_of(ran.document, "job")


def test_an_alert_is_sent_only_if_asked_for_and_by_a_running_peik(shell: Shell) -> None:
    with telegram(shell) as sim:
        sim.post("bots", token=TOKEN)
        sim.post("users", id=500)
        sim.post("write", bot=int(BOT), user=500, text="hello")
        settings = {"BOT_TOKEN": TOKEN, "PEIK_ADMIN_CHATS": "500"}
        with served(shell, sim.url, **settings) as url:
            asked = Shell(shell.folder, PEIK_URL=url, PEIK_API_ROOT=sim.url, **settings)
            ran = asked.peik("doctor", "--json")
            assert (grades(ran.document)["alerts"], "test alert" in grades(ran.document)) == (["green"], False)
            assert sim.sent_to(500) == []
            ran = asked.peik("doctor", "--send", "--json")
            assert (ran.code, grades(ran.document)["test alert"]) == (0, ["green"]), ran
            assert len(sim.sent_to(500)) == 1
        ran = asked.peik("doctor", "--send", "--json")
        assert grades(ran.document)["test alert"] == ["red"]  # nobody runs who could send it


def test_the_bot_must_see_the_members_of_each_channel(shell: Shell) -> None:
    with telegram(shell) as sim:
        sim.post("bots", token=TOKEN)
        for name in ("seen", "joined"):
            chat = sim.post("chats", type="channel", title=name, username=name, bots=[int(BOT)])["id"]
            sim.post("standing", bot=int(BOT), chat=chat, status="administrator" if name == "seen" else "member")
        asked = Shell(shell.folder, PEIK_API_ROOT=sim.url, BOT_TOKEN=TOKEN)
        ran = asked.peik("doctor", "--channels", "@seen,@joined,@nowhere", "--json")
        assert (ran.code, grades(ran.document)["channel"]) == (1, ["green", "yellow", "red"]), ran
        ran = asked.peik("doctor", "--channels", "@seen", "--bot", "12", "--json")
        assert grades(ran.document)["channel"] == ["red"]  # no such bot


def test_a_launch_has_a_verdict(shell: Shell) -> None:
    with telegram(shell) as sim:
        sim.post("bots", token=TOKEN)
        settings = {"BOT_TOKEN": TOKEN, "PEIK_WORK_MAX": "1M", "PEIK_LOG_FILE": "peik.log"}
        (shell.folder / "peik.log").write_text('{"event": "of yesterday"}\n', encoding="utf-8")
        with served(shell, sim.url, **settings) as url:
            asked = Shell(shell.folder, PEIK_URL=url, PEIK_API_ROOT=sim.url, **settings)
            ran = asked.peik("doctor", "--for", "1k", "--disk", "1M", "--json")
            found = grades(ran.document)
            assert (ran.code, found["verdict"]) == (1, ["red"])
            assert (found["backup"], found["support"], found["log"]) == (["red"], ["red"], ["green"]), ran
            for name in ("commits", "pace", "memory for it", "capacity"):
                assert len(found[name]) == 1
            assert "1,000 users" in words_of(ran.document, "verdict")
            asked.asked("backup", "create")
            ran = asked.peik("doctor", "--for", "1", "--disk", "1M", "--support", "@help", "--json")
            found = grades(ran.document)
            assert (found["backup"], found["support"], found["room for it"]) == (["green"], ["green"], ["green"]), ran
            ran = asked.peik("doctor", "--for", "10k", "--disk", "900000G", "--json", SUPPORT_CONTACT="@help")
            found = grades(ran.document)
            assert (ran.code, found["room for it"], found["support"]) == (1, ["red"], ["green"])


def test_the_page_names_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    found = doctor.findings(1000, LARGE, KEEPING)
    names = [check.name for check in CHECKS] + [one.name for one in found] + [doctor.verdict(1, []).name]
    assert [name for name in names if f"| {name} |" not in page] == []


def test_a_weak_admin_key_is_red_and_not_shown(shell: Shell) -> None:
    ran = shell.peik("doctor", "--json", PEIK_ADMIN_KEY="hush-hush")
    assert (ran.code, grades(ran.document)["admin key"]) == (1, ["red"])
    assert "hush-hush" not in ran.out


def test_a_number_of_users_or_a_size_that_is_none_is_wrong_usage(shell: Shell) -> None:
    for arguments in (("--for", "many"), ("--for", "0"), ("--for", "1k", "--disk", "big")):
        assert shell.peik("doctor", *arguments).code == 2
