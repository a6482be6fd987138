"""A downloader bot under load, seen from outside: what is right passes, and each fault that a bot may have is found."""

import asyncio
import http.client
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import pytest

from peik.errors import BadInput, StartError
from peik.load import downloads
from peik.load.downloads import (
    AskedFilm,
    Crowd,
    DownloadsFound,
    DownloadWork,
    FilmServer,
    PageKind,
    capacity_of,
    downloads_facts,
    downloads_html,
    downloads_verdict,
    hourly,
    left_in,
    limits_of,
    planned,
    run_downloads,
)
from tests.cli.shell import Shell

T = TypeVar("T")
BOT = Path(__file__).with_name("little_bot.py")
# Few people, and one busy stage: 36,000 a day are five links a second in the busiest hour.
LITTLE = DownloadWork(
    stages=(36_000,),
    for_s=5.0,
    takes_s=0.2,
    size_bytes=20_000,
    at_once=5,
    people=4,
    quiet_s=2.0,
    patience_s=6.0,
)


def loaded(*faults: str, work: DownloadWork = LITTLE, seed: int = 0) -> DownloadsFound:
    program = " ".join(["python", str(BOT), *faults])
    work = DownloadWork(**{**_fields(work), "program": program})
    return asyncio.run(run_downloads(work, seed=seed, grow=lambda count: None))


def _fields(work: DownloadWork) -> dict[str, object]:
    return {name: getattr(work, name) for name in work.__struct_fields__}


@pytest.mark.gate  # films take their time
def test_a_good_bot_is_told_so_with_how_many_at_once_and_what_it_said() -> None:
    found = loaded()
    assert found.is_good, found.broken
    assert (found.missing, found.doubled, found.untold, found.left) == (0, 0, 0, [])
    assert (found.most_at_once, found.most_of_one) == (5, 2)
    assert {PageKind.SIGN_IN, PageKind.GONE, PageKind.BROKEN, PageKind.FLAKY} <= set(found.asked)
    assert found.told == {"The site said 0.": found.asked[PageKind.SIGN_IN] + found.asked[PageKind.GONE]}
    (stage,) = found.stages
    assert stage.kept_up
    assert stage.took is not None
    assert found.tree_mib_max > 5
    assert found.cpu_s_each > 0
    page = downloads_html(found, made_at="2026-11-19")
    assert "Everybody got a file or was told why not" in page
    assert "<svg" in page
    facts = dict(downloads_facts(found))
    assert facts["left on the disk"] == "nothing"
    assert facts["at once"] == "at most 5 of 5, for one person 2 of 2"


@pytest.mark.gate
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("leaves", "files were left on the disk"),
        ("silent", "people were not told that there is no file"),
        ("greedy", "more than allowed were fetched at once"),
        ("cut", "people did not get their file"),
        ("holds", "open handles at rest"),
    ],
)
def test_a_fault_of_a_bot_is_found(fault: str, words: str) -> None:
    found = loaded(fault)
    assert any(words in one for one in found.broken), found.broken
    assert downloads_verdict(found).startswith("Not good: ")


@pytest.mark.gate  # a load in real time
def test_a_bot_that_does_not_answer_is_shown_with_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "READY_S", 2.0)
    with pytest.raises(StartError, match=r"did not answer /start within 2 s\. It said:\nIt runs\."):
        loaded("deaf")
    with pytest.raises(BadInput, match="cannot be started: No such file"):
        asyncio.run(run_downloads(DownloadWork(program="no-such-program"), seed=1, grow=lambda count: None))


@pytest.mark.gate
def test_the_command_prints_a_verdict_and_keeps_a_page(tmp_path: Path) -> None:
    shell = Shell(tmp_path, MAX_CONCURRENT_DOWNLOADS="5", MAX_DOWNLOADS_PER_USER="3")
    given = [
        "--program",
        f"{sys.executable} {BOT}",
        "--stages",
        "500",
        "--for",
        "1s",
        "--takes",
        "200ms",
        "--size",
        "20K",
    ]
    ran = shell.peik("load", "--downloads", *given, "--report", "report.html")
    assert ran.code == 0, ran
    assert "at most 5 of 5, for one person 3 of 3" in ran.out
    assert "a day with 10,000" in ran.out
    assert "Everybody got a file" in (tmp_path / "report.html").read_text()
    for wrong in (["--stages", "many"], ["--size", "1"], ["--store", "sqlite:///x.db"], ["--find-limit"]):
        assert shell.peik("load", "--downloads", *wrong).code == 2


def test_links_that_nobody_has_sent_yet_are_not_waited_for() -> None:
    class Quick(Crowd):
        """Whoever asks has it at once."""

        def __init__(self) -> None:
            self.began_at = time.time() - 100.0

        async def say(self, film: AskedFilm) -> None:
            film.came_s.append(self.now_s)

    work = DownloadWork(stages=(500,), for_s=0.3)
    films = [film(number, PageKind.FILM) for number in range(3)]
    for number, one in enumerate(films):
        one.due_s = number * 0.1
    found = asyncio.run(downloads._stage(500, films, work, Quick()))
    assert (found.waiting_max, found.waiting_at_end, found.kept_up) == (0, 0, True)


# ---- what it reckons ----


def test_the_busiest_hour_says_whether_a_day_fits() -> None:
    """32 places do 960 films of two minutes an hour; a tenth of the day's requests come in its busiest hour."""
    assert hourly(500) == 250
    days = {one.users_a_day: one for one in capacity_of(DownloadWork(), cpu_s_each=2.0, cores=2)}
    assert [days[users].fits for users in (500, 5_000, 10_000)] == [True, False, False]
    assert "32 at once do 960, this CPU 3,600" in days[500].words
    assert "it needs 167 at once instead of 32 and 3 cores instead of 2, or people wait" in days[10_000].words


def test_the_plan_is_that_of_its_seed_and_knows_each_file_by_its_size() -> None:
    work = DownloadWork(for_s=3_600.0)
    first, *stages = planned(work, random.Random(3))
    assert len(first) == 48
    assert len({film.person for film in first}) == 16
    assert [len(films) for films in stages] == [83, 833, 1667]
    everything = [*first, *(film for films in stages for film in films)]
    assert len({film.size_bytes for film in everything}) == len(everything)
    assert {film.kind for film in everything} == set(PageKind)
    assert planned(work, random.Random(3))[1][0].due_s == stages[0][0].due_s


def test_limits_have_the_names_that_the_bot_reads() -> None:
    assert limits_of({}) == (32, 2)
    assert limits_of({"MAX_CONCURRENT_DOWNLOADS": "8", "MAX_DOWNLOADS_PER_USER": "1"}) == (8, 1)
    with pytest.raises(BadInput, match="are numbers"):
        limits_of({"MAX_CONCURRENT_DOWNLOADS": "many"})


def test_films_are_found_wherever_they_lie_and_books_are_not(tmp_path: Path) -> None:
    (tmp_path / "peik.db").write_bytes(bytes(30_000))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "little").write_bytes(b"x")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "film.mp4").write_bytes(downloads._HEAD + bytes(30_000))
    (tmp_path / "work" / "film.mp4.part").write_bytes(b"x")
    assert left_in(tmp_path, at_least=20_000) == ["tmp/little", "work/film.mp4", "work/film.mp4.part"]


# ---- the pages ----


def film(number: int, kind: PageKind) -> AskedFilm:
    return AskedFilm(number=number, person=7, kind=kind, due_s=0.0, size_bytes=20_000 + number)


def test_pages_fail_as_pages_do() -> None:
    films = [film(number, kind) for number, kind in enumerate(PageKind)]

    async def story() -> None:
        async with FilmServer(takes_s=0.1).listening() as server:
            server.films = films
            urls = {one.kind: server.url(one) for one in films}
            assert b"/film-0.mp4" in await _fetched(urls[PageKind.FILM])
            assert await _status(urls[PageKind.SIGN_IN]) == 401
            assert await _status(urls[PageKind.GONE]) == 404
            assert await _status(urls[PageKind.FLAKY]) == 503
            assert b"/film-3.mp4" in await _fetched(urls[PageKind.FLAKY])
            assert len(await _fetched(urls[PageKind.PLAIN])) == films[1].size_bytes
            broken = f"http://127.0.0.1:{server.port}/film-2.mp4"
            with pytest.raises(http.client.IncompleteRead) as cut:
                await _fetched(broken)
            rest = await _fetched(broken, begin=len(cut.value.partial))
            assert len(cut.value.partial) + len(rest) == films[2].size_bytes
            assert await _status(f"http://127.0.0.1:{server.port}/film-999.mp4") == 404

    asyncio.run(story())


@pytest.mark.gate  # a load in real time
def test_held_films_do_not_end_before_they_may() -> None:
    async def story() -> None:
        async with FilmServer(takes_s=0.05).listening() as server:
            server.films = [film(number, PageKind.PLAIN) for number in range(3)]
            server.is_held = True
            fetching = [asyncio.create_task(_fetched(server.url(one))) for one in server.films]
            await asyncio.wait(fetching, timeout=1.5)
            assert not any(one.done() for one in fetching)
            assert (server.most, server.most_of_one, server.fetching) == (3, 3, 3)
            server.is_held = False
            assert [len(await one) for one in fetching] == [20_000, 20_001, 20_002]
            assert server.fetching == 0

    asyncio.run(story())


def _fetched(url: str, *, begin: int | None = None) -> Awaitable[bytes]:
    def fetch() -> bytes:
        headers = {} if begin is None else {"Range": f"bytes={begin}-"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
            return bytes(answer.read())

    return asyncio.to_thread(fetch)


async def _status(url: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as refused:
        await _fetched(url)
    with refused.value:
        return refused.value.code
