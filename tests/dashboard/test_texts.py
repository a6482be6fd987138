"""The words of the dashboard: every key in every language, with the same places; every key that is used is there."""

import re
import string
from pathlib import Path

import pytest

import peik.web.dashboard as package
from peik.core.translation import translations
from peik.monitoring.pages import runbook
from peik.web.dashboard.render import LANGUAGES, language_of, load

FOLDER = Path(package.__file__).parent
PEIK = FOLDER.parents[1]
WORDS = load()
# As t("key" in templates; say(visitor, "key" or said="key" in code. Keys that are put together are asked for with knows().
_USED = (
    re.compile(r"""\bt\(\s*["']([a-z0-9_]+)["']\s*[,)]"""),
    re.compile(r"""(?:\bsay\([a-z_.]+,\s*|\bsaid=)["']([a-z0-9_]+)["']"""),
)


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("key", sorted(WORDS.texts))
def test_every_key_has_all_languages_and_the_same_places_in_each(key: str) -> None:
    versions = WORDS.texts[key]
    assert set(versions) == set(LANGUAGES)
    assert all(text.strip() for text in versions.values())
    assert len({frozenset(places(text)) for text in versions.values()}) == 1, versions


def test_every_key_that_is_used_has_words() -> None:
    missing = []
    pages = [path for path in PEIK.rglob("*.py") if path.is_relative_to(FOLDER) or path.stem.startswith("pages")]
    assert len(pages) > 15
    for path in [*FOLDER.glob("templates/*.html"), PEIK / "app" / "dashboard.py", *pages]:
        text = path.read_text(encoding="utf-8")
        missing += [f"{path.name}: {key}" for used in _USED for key in used.findall(text) if key not in WORDS]
    assert not missing


def test_a_key_that_nobody_wrote_words_for_is_shown_as_itself() -> None:
    assert WORDS.say("fa", "no_such_key", count=5) == "[no_such_key]"


@pytest.mark.parametrize(
    ("wanted", "kept", "accepted", "spoken"),
    [
        (None, None, None, "en"),
        ("ru", "fa", "uz", "ru"),
        ("xx", "fa", "uz", "fa"),
        (None, None, "de, fa-IR;q=0.8, en;q=0.9", "en"),
        (None, None, "de;q=1, ru;q=0.5, uz;q=0.2", "ru"),
        (None, "<script>", "fa;q=nothing, uz", "uz"),
    ],
)
def test_the_language_is_the_one_asked_for_the_one_kept_or_the_browsers(
    wanted: str | None, kept: str | None, accepted: str | None, spoken: str
) -> None:
    assert language_of(wanted, kept, accepted) == spoken


def test_templates_hold_no_inline_style_or_script() -> None:
    """The policy of the pages forbids both, so that they would silently not work."""
    for path in FOLDER.glob("templates/*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\sstyle=|<style|\son[a-z]+=[\"']|javascript:", text), path.name
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text)), path.name


def _told(language: str) -> dict[str, str]:
    """Everything that pages say in a language, code of commands and settings left out."""
    told = {key: versions[language] for key, versions in WORDS.texts.items()}
    told |= {key: row[language] for key, row in translations().rows.items() if language in row}
    told |= {name: " ".join((*one.paragraphs, *one.points)) for name, one in runbook(language).items()}
    return {key: re.sub(r"`[^`]*`|<[^>]+>", "", text) for key, text in told.items()}


def _with(language: str, wrong: str) -> dict[str, str]:
    return {key: found[0] for key, text in _told(language).items() if (found := re.search(wrong, text))}


def test_persian_has_its_own_letters_and_figures_that_can_be_compared_and_copied() -> None:
    """Figures are put into sentences as they are in ids, times and codes: two kinds in one sentence would be two numbers."""
    assert _with("fa", "[\u064a\u0643\u0629\u0649]|[\u0660-\u0669\u06f0-\u06f9]") == {}


def test_persian_joins_words_in_one_way() -> None:
    """The ezafe after a silent he is written with a hamza everywhere, and what is parted within a word by a half-space."""
    assert (
        _with(
            "fa",
            "\u0647\u200c\u06cc(?![\u0600-\u06ff])|(?<![\u0600-\u06ff])(?:\u0645\u06cc|\u0646\u0645\u06cc) [\u0600-\u06ff]",
        )
        == {}
    )


def test_uzbek_is_written_in_one_orthography() -> None:
    """The sign of o and g is U+02BB, that between other letters U+02BC, and never what a keyboard has for both."""
    assert _with("uz", r"[A-Za-z]['`\u2018\u2019\u00b4]|(?<![oOgG])\u02bb|[oOgG]\u02bc|[\u0400-\u04ff]|[Vv]ebhuk") == {}


def test_russian_writes_its_yo() -> None:
    assert _with("ru", r"\b(?:[Ее]ще|[Ии]дет|[Жж]дет|[Бб]ерет|[Нн]айден|[Сс]чет|[Оо]тчет|[Пп]ришел|[Пп]рошел)\b") == {}  # noqa: RUF001  they look alike
