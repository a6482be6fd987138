"""`peik demo` and `peik sim` as a person starts them: real processes, a clean end, and nothing left behind."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from peik.demo.screen import DemoBook, Promise
from peik.demo.stage import DemoArrival, DemoFate
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.gate  # the whole demo, several times

LAST_LINE = re.compile(r"accepted: (\d+) delivered: (\d+) lost: (\d+) doubled: (\d+) \(uncertain tries: (\d+)\)")


@contextmanager
def started(*arguments: str, folder: Path, **more: int | str) -> Iterator[subprocess.Popen[str]]:
    """A `peik` whose temporary files go to `folder`. The settings around it must not reach it."""
    environment = os.environ | {"TMPDIR": str(folder), "BOT_TOKEN": "not a token", "PEIK_STORE": "mysql://nowhere"}
    environment |= {name: value for name, value in more.items() if isinstance(value, str)}
    streams = {name: value for name, value in more.items() if not isinstance(value, str)}
    where = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **streams}
    command = [sys.executable, "-m", "peik", *arguments]
    with subprocess.Popen(command, cwd=folder, env=environment, text=True, **where) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if words in line:
            return said
    pytest.fail(f"it ended without saying {words!r}:\n{said}")


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def counts(said: str) -> tuple[int, ...]:
    match = LAST_LINE.fullmatch(said.splitlines()[-1])
    assert match is not None, said
    return tuple(map(int, match.groups()))


def book(*letters: tuple[str, str, int, int]) -> DemoBook:
    """Letters to one chat: text, state according to Peik, uncertain tries, arrivals."""
    written = DemoBook()
    number = 0
    for text, state, uncertain, times in letters:
        fate = DemoFate(
            id=text, state=state, attempts_made=0, uncertain_tries=uncertain, failed_reason=None, history=[]
        )
        written.promised(Promise(letter_id=text, chat_id=1, text=text, is_plain=True, promised_at=0.0, fate=fate))
        for _ in range(times):
            number += 1
            written.arrived([DemoArrival(number=number, at=number * 0.6, chat_id=1, text=text)])
    return written


def test_the_verdict_is_the_ledgers_and_not_peiks() -> None:
    good = book(("a", "completed", 1, 2), ("b", "failed", 0, 0), ("c", "failed", 1, 1)).counts(is_over=True)
    assert (good.accepted, good.delivered, good.failed, good.lost, good.doubled) == (3, 2, 2, 0, 1)
    assert good.is_good
    assert book(("a", "completed", 0, 0)).counts().lost == 1  # whatever Peik says
    assert not book(("a", "completed", 0, 2)).counts().is_good  # twice, and not a word about it
    assert book(("a", "waiting", 0, 0)).counts().lost == 0
    assert book(("a", "waiting", 0, 0)).counts(is_over=True).lost == 1
    assert book(("a", "completed", 0, 1), ("b", "completed", 0, 1)).disordered(["a", "b"]) == (1, 0)
    assert book(("a", "completed", 0, 1), ("b", "completed", 0, 1)).disordered(["b", "a"]) == (1, 1)


def test_what_ended_long_ago_is_let_go_of_and_still_counted() -> None:
    old = book(("a", "completed", 1, 2), ("b", "waiting", 0, 0))
    before = old.counts()
    old.fold(now=1e9)
    assert old.first_arrivals.get("a") is None
    assert old.counts() == before


def test_the_story_told_once_ends_with_its_counts_and_leaves_nothing(tmp_path: Path) -> None:
    with started("demo", "--once", "--quick", folder=tmp_path) as demo:
        said = read_until(demo, "1. Letters flow")
        children = family(demo)
        assert len(children) == 2  # Telegram and Peik
        said += read_until(demo, "5. A flood")
        children += family(demo)  # another Peik: the first was killed
        rest, _ = demo.communicate(timeout=PATIENCE_S)
        said += rest
        assert demo.returncode == 0, said
    accepted, delivered, lost, doubled, uncertain = counts(said)
    assert lost == 0
    assert accepted - 1 == delivered > 90  # the one to a person who has blocked the bot
    assert 2 <= doubled <= uncertain  # two of those in flight at the crash had arrived, and were sent again
    assert "Forbidden: bot was blocked by the user" in said
    assert re.search(r"http://127\.0\.0\.1:\d+/admin#key=demo-[0-9a-f]+\n", said)
    assert re.search(r"http://127\.0\.0\.1:\d+/admin/letters/\d+", said)  # where the dead letter is to be seen
    assert "0 attempts, 0 uncertain tries, 0 dead letters" in said
    assert "In the right order: 12 of 12 chats" in said
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", said)  # not a terminal: nothing but lines
    assert not any(child.is_running() for child in children)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "title", "words"),
    [
        (("--for", "bot", "--language", "ru"), "5. Бот недоступен", r"Бот вернулся и ответил на все 12"),
        (("--for", "backend", "--language", "fa"), "2. تکرارها و یادآوری‌ها", r"3 بار با یک idempotency key"),  # noqa: RUF001
    ],
)
def test_each_viewer_gets_chapters_of_their_own_in_their_language(
    arguments: tuple[str, ...], title: str, words: str, tmp_path: Path
) -> None:
    with started("demo", "--once", "--quick", *arguments, folder=tmp_path) as demo:
        said, _ = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 0, said
    assert title in said
    assert re.search(words, said)
    accepted, delivered, lost, doubled, uncertain = counts(said)
    assert (lost, accepted - delivered) == (0, 1)
    assert doubled <= uncertain


def test_the_crawlers_story_ends_with_everything_in_the_archive_once(tmp_path: Path) -> None:
    with started("demo", "--once", "--quick", "--for", "crawler", folder=tmp_path) as demo:
        said, _ = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 0, said
    assert "2 versions of the first" in said
    assert "brought 30 older messages" in said
    assert said.splitlines()[-1] == "written: 72 archived: 72 lost: 0 doubled: 0"
    assert not list(tmp_path.iterdir())


def test_the_crawlers_story_is_ended_by_ctrl_c_with_its_counts(tmp_path: Path) -> None:
    with started("demo", "--no-once", "--quick", "--for", "crawler", folder=tmp_path) as demo:
        said = read_until(demo, "5. Search")
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 0, said + rest
    assert re.fullmatch(r"written: (\d+) archived: \1 lost: 0 doubled: 0", rest.splitlines()[-1])
    assert not list(tmp_path.iterdir())


def test_the_browser_is_shown_the_dashboard_with_its_key(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n', encoding="utf-8")
    browser.chmod(0o755)
    (tmp_path / "demo").mkdir()
    arguments = ("demo", "--once", "--quick", "--browser")
    with started(*arguments, folder=tmp_path / "demo", BROWSER=str(browser)) as demo:
        said, _ = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 0, said
    opened = (tmp_path / "opened").read_text(encoding="utf-8").strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/admin#key=demo-[0-9a-f]+", opened)
    assert f"If it does not: {opened}" in said


@pytest.mark.parametrize("moment", ["Starting", "1. Letters flow", "2. Telegram goes dark", "letters under way"])
def test_ctrl_c_ends_it_at_any_moment_with_the_counts_and_leaves_nothing(moment: str, tmp_path: Path) -> None:
    with started("demo", "--no-once", "--quick", folder=tmp_path) as demo:
        read_until(demo, moment)
        children = family(demo)
        demo.send_signal(signal.SIGINT)
        said, _ = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 0, said
    assert counts(said)[2] == 0
    assert not any(child.is_running() for child in children)
    assert not list(tmp_path.iterdir())


def test_it_goes_on_until_ctrl_c_and_says_where_to_look(tmp_path: Path) -> None:
    with started("demo", "--no-once", "--quick", folder=tmp_path) as demo:
        said = read_until(demo, "curl")
        address = re.search(r"(http://\S+)/docs .*key: (\S+)\)", said)
        assert address is not None
        with urllib.request.urlopen(f"{address[1]}/admin", timeout=PATIENCE_S) as answer:
            assert b"<form" in answer.read(), "it asks who looks"
        request = urllib.request.Request(f"{address[1]}/v1/stats", headers={"Authorization": f"Bearer {address[2]}"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert json.load(answer)["completed"] > 90
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 0, rest
    assert counts(rest)[2] == 0
    assert not list(tmp_path.iterdir())


def test_a_part_that_dies_ends_the_demo_with_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    with started("demo", "--no-once", "--quick", folder=tmp_path) as demo:
        read_until(demo, "1. Letters flow")
        children = family(demo)
        for child in children:
            if "peik.testing" in child.cmdline():
                child.kill()
        said, _ = demo.communicate(timeout=PATIENCE_S)
        assert demo.returncode == 1
    assert "peik: " in said
    assert "Traceback" not in said
    assert not any(child.is_running() for child in children)
    assert not list(tmp_path.iterdir())


def test_in_a_terminal_the_panel_is_drawn_and_the_last_line_stands_alone(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with started("demo", "--once", "--quick", folder=tmp_path, stdout=theirs, stderr=theirs) as demo:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # how a terminal says that nobody writes any more
            pass
        assert demo.wait(PATIENCE_S) == 0
    os.close(ours)
    text = shown.decode()
    assert "\x1b[" in text
    assert "2 / 7 · Telegram goes dark" in text
    assert LAST_LINE.fullmatch(text.splitlines()[-1])
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is given back


def test_sim_says_where_it_listens_and_answers_as_telegram(tmp_path: Path) -> None:
    options = '{"limits": {"bot_per_s": 5}}'
    with started("sim", "--port", "0", "--seed", "3", "--config", options, folder=tmp_path) as sim:
        assert sim.stdout is not None
        places = json.loads(sim.stdout.readline())
        with urllib.request.urlopen(f"{places['url']}/bot42:secret/getMe", timeout=PATIENCE_S) as answer:
            assert json.load(answer)["result"]["id"] == 42
        with urllib.request.urlopen(f"{places['control_url']}/sim/options", timeout=PATIENCE_S) as answer:
            assert json.load(answer)["result"]["limits"]["bot_per_s"] == 5
        sim.send_signal(signal.SIGINT)
        assert sim.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "missing.json"], "missing.json: No such file"),
        (["--config", "{"], "not a JSON object"),
        (["--config", '{"speed": 1}'], "There is no option speed"),
        (["--host", "203.0.113.1"], "Choose another --port"),
    ],
)
def test_sim_explains_a_wrong_start_in_a_sentence(arguments: list[str], words: str, tmp_path: Path) -> None:
    with started("sim", "--port", "0", *arguments, folder=tmp_path) as sim:
        said, _ = sim.communicate(timeout=PATIENCE_S)
        assert sim.returncode == 1
    assert words in said
    assert "Traceback" not in said
