"""A load on real processes: one Peik and one simulated Telegram for all tests here, and one of the command's own."""

import asyncio
import os
import re
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner

from peik.app.commands import app
from peik.errors import BadInput, Unavailable
from peik.load.drive import REST_WORKERS, Drive, LoadFate
from peik.load.place import LoadDeclined, bot_of, own_place, running_place, sizes_of
from peik.load.plan import LoadWork
from peik.load.report import Result, html
from peik.load.run import drained, run, run_real
from peik.testing import SimServer
from tests.cli.shell import Shell
from tests.processes.programs import BOT, KEY, TOKEN, Server, Sim, served, simulated

T = TypeVar("T")
LITTLE = LoadWork(letters_per_s=40, updates_per_s=10, for_s=1.5, bots=2, chats=50)


class Scene:
    """Peik and Telegram in a loop that all tests of this file share."""

    sim: Sim
    server: Server
    control: str

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def close(self) -> None:
        self._runner.close()

    async def load(self, work: LoadWork = LITTLE) -> Result:
        async with running_place(self.server.url, key=KEY, sim=self.control, bots=work.bots) as place:
            return await run(place, work, seed=1, grow=lambda done: None)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene()
    folder = tmp_path_factory.mktemp("loaded")
    telegram = simulated(folder, limits={"on": False})
    sim, http = made.do(telegram.__aenter__())
    peik = served(folder, sim.url, http, pace="off")
    try:
        made.sim, made.control = sim, sim._control
        made.server = made.do(peik.__aenter__())
        made.do(sim.post("bots", token=TOKEN))
        yield made
    finally:
        made.do(peik.__aexit__(None, None, None))
        made.do(telegram.__aexit__(None, None, None))
        made.close()


def test_a_running_peik_is_loaded_with_bots_that_are_gone_afterwards(scene: Scene) -> None:
    found = scene.do(scene.load())
    counts = found.counts
    assert (counts.letters, counts.accepted, counts.delivered, counts.lost, counts.doubled) == (75, 75, 75, 0, 0)
    assert (counts.updates, counts.updates_lost, counts.updates_doubled) == (15, 0, 0)
    assert found.broken == []
    timed = {kind.name: kind.figures.count for kind in found.kinds}
    assert timed["letter → at Telegram"] == 60
    assert timed["update → bot got it"] == timed["update → answer at Telegram"] == 15
    assert found.memory.highest > 20  # as its own metrics tell
    assert [one["bot_id"] for one in scene.do(scene.server.get("/v1/bots"))["bots"]] == [str(BOT)]


@pytest.mark.gate  # a load in real time
def test_a_server_that_stands_still_is_slow_for_all_who_were_due_meanwhile(scene: Scene) -> None:
    """A loop that waits for answers would have asked once per worker, and seen no more than so many slow ones."""

    async def go() -> Drive:
        work = LoadWork(letters_per_s=300, updates_per_s=0, for_s=3, bots=1, chats=500)
        async with running_place(scene.server.url, key=KEY, sim=scene.control, bots=1) as place:
            drive = Drive(place, work, seed=1, mark="still")
            running = asyncio.create_task(drive.run())
            while not len(drive.accepting):  # noqa: ASYNC110  another process is waited for
                await asyncio.sleep(0.01)
            os.kill(scene.server.pid, signal.SIGSTOP)
            await asyncio.sleep(1.8)
            os.kill(scene.server.pid, signal.SIGCONT)
            await running
            await drained(place.peik)
            return drive

    drive = scene.do(go())
    slow = sum(took_s > 0.8 for _, took_s in drive.accepting)
    assert slow > REST_WORKERS * 1.5
    assert {one.fate for one in drive.asked.values()} == {LoadFate.ACCEPTED}


@pytest.mark.gate  # a load in real time
def test_what_arrived_twice_after_a_lost_answer_is_counted_and_explained(scene: Scene) -> None:
    scene.do(scene.sim.post("faults", kind="lose_after", method="sendMessage", count=2))
    found = scene.do(scene.load())
    assert (found.counts.delivered, found.counts.lost) == (75, 0)
    assert (found.counts.doubled, found.counts.doubled_by_habit) == (2, 0)
    assert found.counts.uncertain_tries >= 2
    assert found.broken == []


def test_letters_that_telegram_refuses_make_it_not_good(scene: Scene) -> None:
    words = "Bad Request: message text is empty"
    scene.do(scene.sim.post("faults", kind="error", status=400, words=words, method="sendMessage", count=1))
    found = scene.do(scene.load(LoadWork(letters_per_s=20, updates_per_s=0, for_s=1, bots=1, chats=5)))
    assert found.counts.delivered + found.counts.failed + found.counts.refused == 20
    assert found.broken
    assert not found.is_good


def test_a_run_that_is_broken_off_leaves_no_bot_either(scene: Scene) -> None:
    async def go() -> None:
        async with running_place(scene.server.url, key=KEY, sim=scene.control, bots=1) as place:
            bot_id = str(bot_of(place.tokens[0]))
            late = {
                "method": "sendMessage",
                "params": {"chat_id": 5, "text": "later"},
                "send_at": "2100-01-01T00:00:00Z",
            }
            assert (await place.peik.ask("POST", "/v1/letters", late | {"bot_id": bot_id})).status == 202
            raise KeyError("broken off")

    with pytest.raises(KeyError):
        scene.do(go())
    assert [one["bot_id"] for one in scene.do(scene.server.get("/v1/bots"))["bots"]] == [str(BOT)]


def test_a_peik_behind_another_telegram_is_not_loaded(scene: Scene) -> None:
    async def go() -> None:
        async with SimServer() as other, running_place(scene.server.url, key=KEY, sim=other.control_url, bots=1):
            raise AssertionError("it was loaded")

    sent = scene.do(scene.sim.get("sent"))["total"]
    with pytest.raises(BadInput, match="does not talk to the simulated Telegram"):
        scene.do(go())
    assert scene.do(scene.sim.get("sent"))["total"] == sent
    assert len(scene.do(scene.server.get("/v1/bots"))["bots"]) == 1


def test_nobody_there_and_a_wrong_key_are_told(scene: Scene) -> None:
    async def go(url: str, key: str) -> None:
        async with running_place(url, key=key, sim=scene.control, bots=1):
            raise AssertionError("it was loaded")

    with pytest.raises(Unavailable, match="Peik does not answer"):
        scene.do(go("http://127.0.0.1:1", KEY))
    with pytest.raises(LoadDeclined, match="Peik answered 401: This key is not known"):
        scene.do(go(scene.server.url, "wrong"))


def test_the_real_telegram_gets_few_letters_in_one_chat(scene: Scene) -> None:
    found = scene.do(run_real(scene.server.url, key=KEY, chat=77, bot_id=BOT, per_s=10.0, for_s=0.5))
    assert (found.counts.letters, found.counts.delivered, found.broken) == (5, 5, [])
    texts = [one["text"] for one in scene.do(scene.sim.get("sent", chat=77))["deliveries"]]
    assert sorted(texts) == [f"peik load: letter {number} of 5" for number in range(1, 6)]
    assert "not to be seen from here" in found.notes[-1]


def test_the_command_does_it_all_by_itself_and_writes_a_report(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    ran = shell.peik("load", "--letters", "40/s", "--updates", "10/s", "--for", "1s", "--report", "r.html", "--json")
    assert ran.code == 0, ran
    found = ran.document
    assert found["broken"] == []
    assert (found["counts"]["letters"], found["counts"]["lost"]) == (50, 0)
    assert found["memory"]["verdict"] == "too short to say"
    assert found["sizes_after"]["database"] > found["sizes_before"]["database"] > 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Nothing was lost: 50 letters delivered" in page
    assert "<svg" in page
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)  # it needs nothing from outside
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--letters", "fast"), "write 50/s"),
        (("--for", "0s"), "needs some time"),
        (("--profile", "2k"), "1k, 5k, 10k"),
        (("--url", "http://127.0.0.1:1"), "--sim"),
        (("--letters", "50000/s", "--for", "1h"), "a run has"),
        (("--write", "x"), "find-limit"),
        (("--real", "--url", "http://127.0.0.1:1"), "--chat"),
        (("--real", "--url", "http://127.0.0.1:1", "--chat", "1", "--letters", "5/s"), "At most 0.5/s"),
        (("--real", "--url", "http://127.0.0.1:1", "--chat", "1"), "Say --yes"),
    ],
)
def test_what_cannot_be_right_is_refused_before_anything_starts(arguments: tuple[str, ...], words: str) -> None:
    ran = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["load", *arguments])
    assert ran.exit_code != 0
    assert words in ran.output or words in str(ran.exception)


def test_a_store_that_cannot_be_opened_is_told_and_leaves_nothing() -> None:
    async def go() -> None:
        async with own_place(bots=1, store="postgresql://127.0.0.1:1/none", is_unpaced=False, seed=1):
            raise AssertionError("it was opened")

    with pytest.raises(Exception, match="Could not start `-m peik serve`"):
        asyncio.run(go())


def test_sizes_are_by_what_they_are_for(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name, size in (("peik.db", 10), ("peik.db-wal", 5), ("logs/peik.log", 3), ("peik.db.key", 1)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert sizes_of(tmp_path) == {"database": 15, "logs": 3, "peik.db.key": 1}


def test_words_in_a_report_cannot_become_markup(scene: Scene) -> None:
    found = scene.do(scene.load(LoadWork(letters_per_s=5, updates_per_s=0, for_s=1, bots=1, chats=1)))
    assert "<b>&" not in html(found, made_at="<b>&")
    assert "&lt;b&gt;&amp;" in html(found, made_at="<b>&")
