"""`peik jobs …`: asked of a running Peik that does them, and of the store itself."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.served_accounts import Step, Talking
from tests.cli.shell import BOT, CTRL_C, ESCAPE, TOKEN, Ran, Shell
from tests.web.accounts import KEY
from tests.web.working import JOBS_A_DAY, Works, works

COUNTS = dict.fromkeys(("waiting", "delayed", "active", "completed", "failed", "cancelled"), 0)


def ctrl_c() -> str:
    return CTRL_C.decode()


class Place:
    """A running Peik, and commands that ask it."""

    def __init__(self, built: Works) -> None:
        self.works = built
        self.shell = Talking(built.folder, PEIK_URL=built.url, PEIK_KEY=KEY)

    async def peik(self, *arguments: str) -> Ran:
        return await asyncio.to_thread(self.shell.peik, "jobs", *arguments)

    async def asked(self, *arguments: str) -> Any:
        return await asyncio.to_thread(self.shell.asked, "jobs", *arguments)

    async def talk(self, *arguments: str, steps: Sequence[Step]) -> tuple[int, str]:
        code, shown = await asyncio.to_thread(self.shell.talk, "jobs", *arguments, steps=steps)
        return code, ESCAPE.sub("", shown)


def play(folder: Path, story: Callable[[Place], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with works(folder) as built:
            await story(Place(built))

    asyncio.run(whole())


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """A store with a bot, and nobody who runs."""
    shell = Shell(tmp_path)
    assert shell.peik("bots", "add", "-", stdin=TOKEN + "\n").code == 0
    return shell


# ---- a running Peik ----


def test_a_job_is_queued_waited_for_and_shown(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.works.let_go("a")
        job = await place.asked("queue", "download", "--param", "name=a", "--user", "ann", "--wait", "200s")
        assert (job["state"], job["user"], job["result"]) == ("completed", "ann", {"name": "a", "attempt": 1})
        assert await place.asked("show", job["id"]) == job
        assert await place.asked("show", job["id"], "--wait", "200s") == job
        page = (await place.peik("show", job["id"])).out
        assert all(words in page for words in ("completed", "download", "ann", '{"name":"a"}', "1 of 3", "done"))
        ran = await place.peik("queue", "download", "--params", '{"name": "b", "deep": [1]}')
        assert (ran.code, ran.out) == (0, f"Queued as job {int(job['id']) + 1}, waiting.\n")
        assert ran.err == ""

    play(tmp_path, story)


def test_who_waited_learns_by_the_exit_code_what_became_of_it(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        ran = await place.peik("queue", "refuse", "--wait", "200s", "--json")
        assert (ran.code, ran.document["state"]) == (6, "failed")
        ran = await place.peik("show", ran.document["id"], "--wait", "200s")
        assert ran.code == 6
        assert "There is no such film." in ran.out
        ran = await place.peik("queue", "download", "--param", "name=a", "--wait", "100ms", "--json")
        assert ran.code == 7
        assert ran.document["state"] in ("waiting", "active")
        cancelled = await place.asked("cancel", ran.document["id"])
        assert cancelled["state"] == "cancelled" or cancelled["is_cancelling"]
        ran = await place.peik("show", ran.document["id"], "--wait", "200s", "--json")
        assert (ran.code, ran.document["state"]) == (6, "cancelled")

    play(tmp_path, story)


def test_a_bar_shows_how_far_it_is_until_the_end(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        job_id = await place.works.download("a")
        loop = asyncio.get_running_loop()

        def let_go() -> str:
            loop.call_soon_threadsafe(place.works.let_go, "a")
            return ""

        steps = [("25%", lambda: ""), ("reading", let_go)]
        code, shown = await place.talk("show", job_id, "--wait", "200s", steps=steps)
        assert code == 0
        assert f"Job {job_id} runs" in shown
        assert "completed" in shown[shown.rindex("25%") :]

    play(tmp_path, story)


def test_ctrl_c_ends_the_waiting_and_not_the_job(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        job_id = await place.works.download("a")
        await place.works.once(job_id, state="active")
        code, shown = await place.talk("show", job_id, "--wait", "200s", steps=[("runs", ctrl_c)])
        assert code == 130
        assert f"Job {job_id} goes on without being waited for." in shown
        queue = ("queue", "download", "--param", "name=b", "--wait", "200s")
        code, shown = await place.talk(*queue, steps=[("in line", ctrl_c)])
        assert code == 130
        assert "waits, number 1 in line" in shown
        place.works.let_go("a")
        place.works.let_go("b")
        assert (await place.works.job(job_id, "?wait=200s"))["state"] == "completed"
        assert (await place.works.job(str(int(job_id) + 1), "?wait=200s"))["state"] == "completed"

    play(tmp_path, story)


def test_lists_counts_and_what_was_used(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        assert (await place.peik("list")).out == "There are no such jobs.\n"
        for user in ("ann", "bob", "-5"):
            ran = await place.peik("queue", "refuse", "--user", user, "--wait", "200s")
            assert ran.code == 6
        later = await place.asked("queue", "elsewhere", "--run-at", "1h", "--priority", "2", "--metadata", '{"k": 1}')
        page = await place.asked("list")
        assert [(job["kind"], job["user"]) for job in page["jobs"]] == [
            ("elsewhere", ""), ("refuse", "-5"), ("refuse", "bob"), ("refuse", "ann"),
        ]  # fmt: skip
        assert page["next"] is None
        for query, count in (
            (("--kind", "refuse"), 3), (("--user", "-5"), 1), (("--state", "delayed"), 1), (("--since", "1h"), 4),
            (("--kind", "refuse", "--limit", "2"), 2), (("--user", ""), 1),
        ):  # fmt: skip
            assert len((await place.asked("list", *query))["jobs"]) == count, query
        ran = await place.peik("list", "--limit", "1")
        assert ran.err == f"There may be more: --cursor {later['id']}\n"
        rest = (await place.asked("list", "--cursor", later["id"]))["jobs"]
        assert [job["user"] for job in rest] == ["-5", "bob", "ann"]
        table = (await place.peik("list")).out
        assert all(words in table for words in ("delayed", "failed", "bob", "There is no such film."))
        kinds = (await place.asked("stats"))["kinds"]
        assert kinds["refuse"] == COUNTS | {"failed": 3}
        assert "refuse" in (await place.peik("stats")).out
        assert (await place.asked("used", "refuse", "-5"))["jobs"] == 1
        assert f"1 of {JOBS_A_DAY}" in (await place.peik("used", "refuse", "ann")).out
        hosts = await place.asked("hosts")
        assert hosts == {"node": place.works.runtime.store.nodes.node, "hosts": []}
        assert (await place.peik("hosts")).err == f"As node {hosts['node']} has met them.\n"

    play(tmp_path, story)


def test_kinds_are_paused_resumed_and_bound_to_a_rate(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        assert (await place.peik("pause", "download", "--why", "Their wish.")).out.startswith("Jobs of download rest:")
        table = (await place.peik("kinds")).out
        assert all(words in table for words in ("download", "rests", "Their wish.", "goes"))
        assert (await place.peik("resume", "download")).out == "Jobs of download go on.\n"
        assert (await place.peik("rate", "download", "30/m")).out == "Jobs of download begin at 30/m burst 1.\n"
        assert (await place.peik("rate", "download", "off")).out == "Jobs of download have no rate.\n"
        assert (await place.peik("rate", "download", "fast")).code == 2
        assert (await place.peik("pause", "nothing", "--json")).problem["code"] == "unknown_kind"

    play(tmp_path, story)


def test_cancel_and_retry_are_told_in_a_sentence(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        runs = await place.works.download("a")
        await place.works.once(runs, state="active")
        waits = await place.works.download("b")
        assert (await place.peik("cancel", waits)).out == f"Job {waits} is cancelled.\n"
        assert (await place.peik("cancel", runs)).out == f"Job {runs} was told to end.\n"
        await place.works.once(runs, state="cancelled")
        ran = await place.peik("cancel", runs, "--json")
        assert (ran.code, ran.problem["status"]) == (4, 409)
        ran = await place.peik("retry", waits)
        assert (ran.code, ran.out) == (0, f"Job {waits} is queued again, at the end of its line.\n")
        place.works.let_go("b")
        assert (await place.asked("show", waits, "--wait", "200s"))["state"] == "completed"

    play(tmp_path, story)


def test_a_running_peik_hears_of_jobs_that_were_put_into_its_store(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.works.let_go("a")
        by_file = ("--store", f"sqlite:///{tmp_path}/peik.db")
        job = await place.asked("queue", "download", "--param", "name=a", "--wait", "200s", *by_file)
        assert (job["state"], job["result"]["name"]) == ("completed", "a")
        runs = await place.works.download("b")
        await place.works.once(runs, state="active")
        assert (await place.asked("cancel", runs, *by_file))["is_cancelling"] is True
        assert (await place.works.job(runs, "?wait=200s"))["state"] == "cancelled"

    play(tmp_path, story)


# ---- the store itself ----


def test_jobs_of_a_store_that_nobody_serves(alone: Shell) -> None:
    ran = alone.peik("jobs", "queue", "download", "--user", "ann", "--chat", "-100123", "--label", "A film")
    assert (ran.code, ran.out) == (0, "Queued as job 1, waiting.\n")
    assert ran.err == "No Peik is running: it is done when a process that knows its kind is started.\n"
    job = alone.asked("jobs", "show", "1")
    assert (job["kind"], job["user"], job["position"], job["eta_s"]) == ("download", "ann", 1, None)
    assert (job["notice"]["chat_id"], job["notice"]["label"]) == ("-100123", "A film")
    again = [
        alone.asked("jobs", "queue", "download", "--idempotency-key", "k", "--timeout", "1m30s", "--backoff", "2s")
        for _ in range(2)
    ]
    assert again == [{"id": "2", "state": "waiting"}] * 2
    job = alone.asked("jobs", "show", "2")
    assert (job["timeout_ms"], job["backoff_ms"], job["idempotency_key"], job["position"]) == (90_000, 2000, "k", 2)
    ran = alone.peik("jobs", "show", "2", "--wait", "300ms", "--json")
    assert (ran.code, ran.document["state"]) == (7, "waiting")
    assert alone.asked("jobs", "cancel", "2")["state"] == "cancelled"
    assert alone.peik("jobs", "show", "2", "--wait", "1m").code == 6
    assert alone.asked("jobs", "retry", "2")["state"] == "waiting"
    assert [one["id"] for one in alone.asked("jobs", "list", "--limit", "1")["jobs"]] == ["2"]
    assert alone.asked("jobs", "stats") == {"kinds": {"download": COUNTS | {"waiting": 2}}}
    used = {"kind": "download", "user": "ann", "jobs": 1, "bytes": 0, "jobs_max": None, "bytes_max": None}
    assert alone.asked("jobs", "used", "download", "ann") == used
    ran = alone.peik("jobs", "hosts", "--json")
    assert (ran.code, ran.problem["code"]) == (5, "not_running")


def test_ctrl_c_ends_the_waiting_where_nobody_serves(alone: Shell) -> None:
    queue = ("jobs", "queue", "download", "--wait", "200s")
    code, shown = alone.in_terminal(*queue, when="in line", then=CTRL_C)
    assert code == 130
    assert "Job 1 goes on without being waited for." in shown
    assert [one["state"] for one in alone.asked("jobs", "list")["jobs"]] == ["waiting"]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("show", "99"), 3, "unknown_job"),
        (("cancel", "99"), 3, "unknown_job"),
        (("retry", "99"), 3, "unknown_job"),
        (("show", "x"), 2, "bad_job_id"),
        (("show", "99", "--wait", "1s"), 3, "unknown_job"),
        (("show", "99", "--wait", "soon"), 2, "wrong_usage"),
        (("list", "--cursor", "x"), 2, "bad_cursor"),
        (("list", "--kind", "a b"), 2, "bad_kind"),
        (("list", "--state", "done"), 2, "wrong_usage"),
        (("list", "--since", "soon"), 2, "wrong_usage"),
        (("used", "a b"), 2, "bad_kind"),
        (("queue", "a b"), 2, "bad_kind"),
        (("queue", "a", "--params", "[]"), 2, "wrong_usage"),
        (("queue", "a", "--metadata", "{"), 2, "wrong_usage"),
        (("queue", "a", "--param", "x"), 2, "wrong_usage"),
        (("queue", "a", "--priority", "3"), 2, "wrong_usage"),
        (("queue", "a", "--attempts", "101"), 2, "bad_attempts"),
        (("queue", "a", "--timeout", "8d"), 2, "bad_timeout_ms"),
        (("queue", "a", "--user", "x" * 129), 2, "bad_user"),
        (("queue", "a", "--label", "x"), 2, "wrong_usage"),
        (("queue", "a", "--chat", "5", "--bot", "42"), 3, "unknown_bot"),
        (("queue", "a", "--chat", "5", "--thread", "x"), 2, "bad_thread_id"),
        ((), 2, "wrong_usage"),
    ],
)
def test_what_cannot_be_right_is_told_and_queues_nothing(
    alone: Shell, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    ran = alone.peik("jobs", *arguments, "--json")
    assert ran.code == code, ran
    if arguments:
        assert ran.problem["code"] == problem
    with sqlite3.connect(alone.folder / "peik.db") as database:
        assert database.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    database.close()


def test_words_of_strangers_stay_in_their_place(alone: Shell) -> None:
    words = "\u0645\u062c\u0645\u0648\u0639\u0647 [red]x[/red]"
    alone.asked("jobs", "queue", "download", "--params", json.dumps({"name": "\x1b[2J\n" + words}), "--user", "[bold]")
    code, shown = alone.in_terminal("jobs", "show", "1")
    assert code == 0
    assert "\x1b[2J" not in shown
    assert "[red]x[/red]" in shown
    assert "[bold]" in alone.peik("jobs", "list").out
    assert BOT in alone.peik("bots", "list").out
