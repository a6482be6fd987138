"""The downloader bot through the gateway: links become files, whatever the web does in between."""

import re
from pathlib import Path

import pytest

from examples.downloader_bot.book import Book
from examples.downloader_bot.words import LANGUAGES
from peik import Peik
from tests.examples.town import LENA, OMID, SARA, Town, play, until_known, until_tidy
from tests.examples.web import FILM, SMALL
from tests.processes.programs import BOT, KEY

pytestmark = pytest.mark.gate  # real downloads by yt-dlp, in processes of their own


def test_a_link_becomes_a_file_and_then_comes_at_once(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        link = f"{town.web.url}/small.txt"
        town.says(SARA, "/start spring")
        await town.gets(SARA, "لینک را بفرستید")
        town.says(SARA, f"این را می‌خواهم: {link}")
        file = await town.gets(SARA, "small.txt", method="sendDocument")
        assert town.content(file) == SMALL
        await town.until(lambda: bool(_deleted(town, SARA)), "the message about the job is gone")
        await until_known(town, link)
        town.says(OMID, link)
        again = await town.gets(OMID, method="sendDocument")
        assert town.content(again) == SMALL
        assert town.web.asked["/small.txt"] == 1
        await until_tidy(town)

    play(story, tmp_path)


def _deleted(town: Town, user: int) -> list[object]:
    return list(town.telegram.applied.where(chat_id=user, method="deleteMessage"))


def test_what_breaks_goes_on_what_moves_is_followed_and_what_fails_comes_again(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.web.failures = 1
        for user, name in ((SARA, "broken.bin"), (OMID, "moved.txt"), (LENA, "failing.bin")):
            town.says(user, f"{town.web.url}/{name}")
        for user in (SARA, OMID, LENA):
            assert town.content(await town.gets(user, method="sendDocument")) == SMALL
        assert (town.web.asked["/broken.bin"], town.web.asked["/failing.bin"]) == (2, 2)
        assert "bytes=4000-" in town.web.ranges
        await until_tidy(town)

    play(story, tmp_path)


def test_who_asks_for_too_much_hears_why_in_their_language(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.says(SARA, f"{town.web.url}/large.bin")
        town.says(OMID, f"{town.web.url}/endless.bin")
        town.says(LENA, f"{town.web.url}/nothing.pdf")
        await town.sees(SARA, "تلگرام بیشتر از این نمی‌پذیرد")
        await town.sees(OMID, "Telegram takes no more")
        await town.sees(LENA, "По этой ссылке ничего нет (ответ сервера: 404)")
        town.says(OMID, "no link in here")
        await town.gets(OMID, "I see no link")
        assert not town.telegram.sent.where(method="sendDocument")
        await until_tidy(town)

    play(story, tmp_path)


def test_links_into_our_own_network_are_not_followed(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.says(OMID, f"{town.web.url}/small.txt")
        await town.sees(OMID, "I may not go to that address")
        assert not town.web.asked

    play(story, tmp_path, ALLOW_PRIVATE_LINKS="no")


def test_nor_does_yt_dlp_go_there(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.says(OMID, f"{town.web.url}/page")
        await town.sees(OMID, "I may not go to that address")
        assert not town.web.asked

    play(story, tmp_path, ALLOW_PRIVATE_LINKS="no")


def test_a_day_has_its_quota_and_what_comes_at_once_costs_nothing(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        link = f"{town.web.url}/small.txt"
        town.says(OMID, link)
        await town.gets(OMID, method="sendDocument")
        await until_known(town, link)
        town.says(OMID, f"{town.web.url}/moved.txt")
        await town.gets(OMID, "You have had your 1 downloads of today")
        town.says(OMID, link)
        await town.gets(OMID, method="sendDocument", count=2)
        assert town.web.asked["/moved.txt"] == 0

    play(story, tmp_path, DOWNLOADS_A_DAY="1")


def test_cancel_ends_what_runs_and_leaves_nothing(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.says(OMID, "/cancel")
        await town.gets(OMID, "Nothing of yours")
        town.says(OMID, f"{town.web.url}/slow.bin")
        await town.web.is_waiting.wait()
        town.says(OMID, "/cancel")
        await town.gets(OMID, "Cancelled: 1")
        await town.sees(OMID, "ancelled")
        await until_tidy(town)
        assert not town.got(OMID, method="sendDocument")

    play(story, tmp_path)


def test_a_file_that_telegram_has_forgotten_is_fetched_anew(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        link = f"{town.web.url}/small.txt"
        town.says(OMID, link)
        await town.gets(OMID, method="sendDocument")
        await until_known(town, link)
        town.telegram.faults.add(
            "error", method="sendDocument", status=400, words="Bad Request: wrong file identifier", count=1
        )
        town.says(SARA, link)
        assert town.content(await town.gets(SARA, method="sendDocument")) == SMALL
        assert town.web.asked["/small.txt"] == 2

    play(story, tmp_path)


def test_a_page_is_fetched_by_yt_dlp_in_the_quality_that_was_chosen(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.says(SARA, f"{town.web.url}/page")
        menu = await town.gets(SARA, "با چه کیفیتی؟")
        assert [one["text"] for one in town.buttons(menu)] == ["بهترین · 20 KB"]  # all qualities are this one file
        town.presses(SARA, menu, "بهترین · 20 KB")
        film = await town.gets(SARA, method="sendVideo")
        assert town.content(film) == FILM
        await until_known(town, f"{town.web.url}/page", "best")
        town.presses(SARA, menu, "بهترین · 20 KB")
        await town.gets(SARA, method="sendVideo", count=2)
        asked = town.web.asked["/films/ships.mp4"]
        town.says(OMID, f"{town.web.url}/empty-page")
        await town.sees(OMID, "I find nothing to download there")
        assert town.web.asked["/films/ships.mp4"] == asked
        await until_tidy(town)

    play(story, tmp_path)


def test_a_film_that_breaks_off_goes_on_where_it_was(tmp_path: Path) -> None:
    """Found by `peik load --downloads`: yt-dlp gave up at once, and its words were taken for a page without a film."""

    async def story(town: Town) -> None:
        town.says(OMID, f"{town.web.url}/torn-page")
        menu = await town.gets(OMID, "Which quality?")
        (button, *_) = [one["text"] for one in town.buttons(menu)]
        town.presses(OMID, menu, button)
        assert town.content(await town.gets(OMID, method="sendVideo")) == FILM
        assert any(town.web.ranges)  # it went on where it was
        await until_tidy(town)

    play(story, tmp_path)


def test_a_list_is_fetched_up_to_its_bound(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.says(OMID, f"{town.web.url}/list")
        menu = await town.gets(OMID, "A list of 2. I fetch the first 2 at most")
        town.presses(OMID, menu, "All of them, Best")
        await town.gets(OMID, method="sendVideo", count=2)
        await until_tidy(town)
        assert len(town.got(OMID, method="sendVideo")) == 2

    play(story, tmp_path, PLAYLIST_MAX="2")


def test_a_site_that_wants_a_sign_in_says_so_and_cookies_open_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="downloader_bot.downloads")
    cookies = tmp_path / "cookies.txt"
    cookies.write_text("# Netscape HTTP Cookie File\n127.0.0.1\tFALSE\t/\tFALSE\t2147483647\tsigned\tout\n")

    async def story(town: Town) -> None:
        town.says(OMID, f"{town.web.url}/members-only")
        await town.sees(OMID, "This site wants a sign-in, which I do not have. It says: ")
        assert "401" in caplog.text  # yt-dlp's own words
        async with Peik.connect(town.environment["PEIK_URL"], key=KEY) as peik:
            (job,) = [job async for job in peik.find_jobs(kind="look", state="failed")]
            assert "wants a sign-in" in (job.failed_reason or "")
        cookies.write_text(cookies.read_text().replace("out", "in"))
        town.says(OMID, f"{town.web.url}/members-only")
        await town.gets(OMID, "Which quality?")
        assert "out" not in cookies.read_text()  # it is copied, never written

    play(story, tmp_path, COOKIES_FILE=str(cookies))


def test_a_message_shows_how_far_it_is(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.says(SARA, f"{town.web.url}/slow.bin")
        await town.web.is_waiting.wait()
        first = await town.gets(SARA, "دانلود شما", method="sendMessage")
        await town.sees(SARA, "\u06f5\u06f0")  # fifty, in Persian digits
        town.web.is_open.set()
        await town.gets(SARA, method="sendDocument")
        edits = town.telegram.applied.where(chat_id=SARA, method="editMessageText")
        assert {edit.message_id for edit in edits} == {first.message_id}

    play(story, tmp_path)


def test_the_help_names_the_bounds_and_who_to_ask(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.says(LENA, "/help")
        told = await town.gets(LENA, "Поддержка: @helpful")
        assert re.search(r"2 .*50.*2 MB", told.text)
        town.says(LENA, "/language")
        town.presses(LENA, await town.gets(LENA, "каком языке"), LANGUAGES["uz"])
        await town.gets(LENA, "zbekcha gaplashamiz")
        town.telegram.block(BOT, LENA)
        async with Book(town.settings.book) as book:
            while LENA in await book.hearers(after=0, limit=9):
                pass
        assert await _language(town, LENA) == "uz"

    play(story, tmp_path, has_worker=False)


async def _language(town: Town, user: int) -> str | None:
    async with Book(town.settings.book) as book:
        return await book.language(user)
