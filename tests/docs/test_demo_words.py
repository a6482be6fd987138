"""What the demo says, in each of its languages: the same words in all of them, filled in with the same things."""

import re
import tomllib
from typing import Any

import pytest

from peik.demo.screen import language_of
from tests.docs.pages import ROOT

TEXTS: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "peik" / "demo" / "story.toml").read_text(encoding="utf-8"))
CODE = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "peik" / "demo").glob("*.py"))


def filled(text: str) -> list[str]:
    return sorted(re.findall(r"\{\w+\}", text))


def test_it_speaks_the_languages_of_the_dashboard() -> None:
    assert sorted(TEXTS) == ["en", "fa", "ru", "uz"]


@pytest.mark.parametrize("language", ["fa", "ru", "uz"])
def test_nothing_is_missing_in_a_language_and_everything_is_filled_in(language: str) -> None:
    assert list(TEXTS[language]) != []
    assert set(TEXTS[language]) == set(TEXTS["en"])
    for name, english in TEXTS["en"].items():
        told = TEXTS[language][name]
        if isinstance(english, str):
            assert filled(told) == filled(english), name
            assert told.count("[") == english.count("["), name
        else:
            assert len(told) == len(english), name


def test_every_word_is_said_somewhere() -> None:
    assert [name for name in TEXTS["en"] if f"narration.{name}" not in CODE] == []


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({"LANG": "fa_IR.UTF-8"}, "fa"),
        ({"LANG": "fa_IR.UTF-8", "LC_ALL": "ru_RU.UTF-8"}, "ru"),
        ({"LANG": "uz_UZ.UTF-8", "LC_ALL": ""}, "uz"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "C"}, "en"),
        ({}, "en"),
    ],
)
def test_the_viewers_language_is_that_of_the_locale(environment: dict[str, str], language: str) -> None:
    assert language_of(environment) == language
