"""Small pieces of the downloader bot: links, addresses, words, formats, settings."""

import asyncio
import re
import string
import tomllib
from pathlib import Path

import pytest

from examples.downloader_bot.book import Book
from examples.downloader_bot.links import host_of, is_plain, is_public, link_in, sent_as
from examples.downloader_bot.settings import settings_of
from examples.downloader_bot.sites import format_of, help_of, said_of
from examples.downloader_bot.words import LANGUAGES, language_of, megabytes, words_of

GIVEN = {"BOT_TOKEN": "1:AAtest", "SUPPORT_CONTACT": "@a"}
TEXTS = Path(__file__).parents[2] / "examples/downloader_bot/texts"


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("https://example.com/a.mp4", "https://example.com/a.mp4"),
        ("این را ببین: https://example.com/watch?v=1.", "https://example.com/watch?v=1"),
        ("(http://example.com/a)", "http://example.com/a"),
        ("https://example.com/a#t=5", "https://example.com/a"),
        ("two: https://a.example/1 https://b.example/2", "https://a.example/1"),
        ("ftp://example.com/a", None),
        ("https:///nowhere", None),
        ("http://[half", None),
        ("https://example.com/" + "a" * 2000, None),
        ("", None),
    ],
)
def test_the_link_in_a_text(text: str, link: str | None) -> None:
    assert link_in(text) == link


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://example.com/a.MP4?x=1", True),
        ("https://example.com/%D8%A7.pdf", True),
        ("https://example.com/watch?v=a.mp4", False),
        ("https://example.com/page.html", False),
        ("https://example.com", False),
    ],
)
def test_a_plain_file_is_known_by_its_name(url: str, plain: bool) -> None:
    assert is_plain(url) is plain
    assert host_of(url) == "example.com"


@pytest.mark.parametrize(
    ("name", "kind"), [("a.mp4", "video"), ("a.M4A", "audio"), ("a.webm", "document"), ("a", "document")]
)
def test_how_a_file_is_sent(name: str, kind: str) -> None:
    assert sent_as(name) == kind


OURS = "127.0.0.1 10.1.2.3 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 ::1 fe80::1%eth0 fd00::1 ::ffff:127.0.0.1"


@pytest.mark.parametrize("address", OURS.split())
def test_addresses_that_are_not_of_the_open_internet(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_of_the_open_internet(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_says_everything_with_the_same_values(language: str) -> None:
    assert _said(language) == _said("en")
    assert words_of(language).language == language


def _said(language: str) -> dict[str, set[str | None]]:
    texts = tomllib.loads((TEXTS / f"{language}.toml").read_text(encoding="utf-8"))
    return {name: {field for _, field, _, _ in string.Formatter().parse(text)} - {None} for name, text in texts.items()}


def test_every_word_that_the_bot_uses_is_there() -> None:
    used: set[str] = set()
    for path in TEXTS.parent.glob("*.py"):
        used |= set(re.findall(r"words(?:_of\([^()]*\))?\(\s*\"(\w+)\"", path.read_text(encoding="utf-8")))
    assert len(used) > 30
    assert used <= set(_said("en"))


@pytest.mark.parametrize(
    ("code", "language"), [("fa-IR", "fa"), ("RU", "ru"), ("de", "en"), (None, "en"), ("uz", "uz")]
)
def test_a_language_by_its_code(code: str | None, language: str) -> None:
    assert language_of(code) == language


def test_formats_ask_for_what_fits() -> None:
    assert format_of("720p", 50, has_ffmpeg=False) == (
        "b[ext=mp4][height<=?720][filesize<?50]/b[height<=?720][filesize<?50]/w"
    )
    assert format_of("best", 50, has_ffmpeg=True).startswith("bv*[ext=mp4][filesize<?50]+ba[ext=m4a]/b")
    assert format_of("audio", 50, has_ffmpeg=True).startswith("ba[ext=m4a]")


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(SystemExit, match="Set SUPPORT_CONTACT"):
        settings_of({"BOT_TOKEN": "1:AAtest"})
    with pytest.raises(SystemExit, match="cannot be read"):
        settings_of({**GIVEN, "ADMIN_IDS": "me"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"BOT_TOKEN": "123456:"}, "BOT_TOKEN cannot be right: This is not a bot token"),
        ({"BOT_TOKEN": "nonsense"}, "as @BotFather gave it"),
        ({"COOKIES_FILE": "/nowhere.txt"}, "there is no file /nowhere.txt"),
        ({"PROXY": "somewhere:1080"}, "PROXY begins with"),
        ({"FILE_MAX": "100M"}, "FILE_MAX over 50M needs API_ID and API_HASH"),
        ({"API_ID": "1"}, "Set API_HASH"),
    ],
)
def test_what_is_wrong_with_the_settings_is_a_sentence(given: dict[str, str], told: str) -> None:
    with pytest.raises(SystemExit, match=told):
        settings_of({**GIVEN, **given})


def test_large_files_are_one_switch() -> None:
    assert settings_of(GIVEN).file_bytes_max == 50 * 2**20
    assert settings_of({**GIVEN, "API_ID": "1", "API_HASH": "x"}).file_bytes_max == 2000 * 2**20
    local = {"PEIK_API_ROOT": "http://127.0.0.1:8082", "FILE_MAX": "2000M"}
    assert settings_of({**GIVEN, **local}).file_bytes_max == 2000 * 2**20


SIGN_IN = (
    "ERROR: [youtube] dQw4: Sign in to confirm you\u2019re not a bot. Use --cookies-from-browser or --cookies for the "
    "authentication. See  https://github.com/yt-dlp/yt-dlp/wiki/FAQ  for how to manually pass cookies"
)


@pytest.mark.parametrize(
    ("words", "sentence", "said"),
    [
        (SIGN_IN, "needs_sign_in", "Sign in to confirm you\u2019re not a bot"),
        ("ERROR: [youtube] x1: Private video. Sign in if you've been granted access", "needs_sign_in", "Private video"),
        (
            "ERROR: [vk] 1_2: This video is not available in your country",
            "not_in_country",
            "This video is not available",
        ),
        ("ERROR: [youtube] a: Video unavailable. This video has been removed", "is_gone", "Video unavailable"),
        ("ERROR: [generic] This video is DRM protected", "is_protected", "This video is DRM protected"),
        (
            "ERROR: [youtube] b: This live event will begin in 2 hours.",
            "not_yet",
            "This live event will begin in 2 hours",
        ),
        ("ERROR: [x] c: HTTP Error 429: Too Many Requests", "too_many", "HTTP Error 429: Too Many Requests"),
        ("\x1b[0;31mERROR:\x1b[0m [y] d: Something else", "site_said", "Something else"),
    ],
)
def test_the_words_of_yt_dlp_become_a_sentence_that_helps(words: str, sentence: str, said: str) -> None:
    assert help_of(words) == sentence
    assert said_of(words).startswith(said)
    assert "--cookies" not in said_of(words)


def test_the_page_names_every_setting() -> None:
    code = (TEXTS.parent / "settings.py").read_text(encoding="utf-8")
    page = (TEXTS.parents[2] / "examples/downloader_bot/README.md").read_text(encoding="utf-8")
    names = set(re.findall(r"given(?:\.get\(|\[)\"([A-Z_]+)\"", code))
    assert len(names) == 20
    assert all(f"`{name}`" in page for name in names)


def test_sizes_are_shown_as_telegram_counts_them() -> None:
    assert (megabytes(50 * 2**20), megabytes(1_600_000)) == ("50 MB", "1.5 MB")


def test_a_bot_and_its_worker_open_a_new_book_at_once(tmp_path: Path) -> None:
    async def read(path: Path) -> int:
        async with Book(path) as book:
            return (await book.figures()).people

    async def main() -> None:
        for number in range(20):
            path = tmp_path / f"{number}.db"
            assert await asyncio.gather(read(path), read(path), read(path)) == [0, 0, 0]

    asyncio.run(main())
