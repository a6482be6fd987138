"""The words of a text as a search knows them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.archive.rules import WORD_CHARS_MAX, WORDS_MAX, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("Hello, hello HELLO", ["hello"]),
        ("می‌خواهم", ["میخواهم"]),
        ("كتابي", ["کتابی"]),
        ("أحمد آمد إلى", ["احمد", "امد", "الی"]),
        ("кёльн Мой ЇЖАК", ["кельн", "мой", "їжак"]),
        ("Ünïcödé naïve", ["unicode", "naive"]),
        ("snake_case e-mail@example.com", ["snake", "case", "e", "mail", "example", "com"]),
        ("٣ ۴ 5 ½", ["3", "4", "5", "1", "2"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("İSTANBUL ılık", ["istanbul", "ilik"]),  # noqa: RUF001
    ],
)
def test_words_are_folded(text: str, found: list[str]) -> None:
    assert words(text) == found


@given(st.text())
def test_folding_twice_changes_nothing(text: str) -> None:
    once = words(text)
    assert words(" ".join(once)) == once


@given(st.text())
def test_how_a_text_is_composed_does_not_matter(text: str) -> None:
    assert words(unicodedata.normalize("NFD", text)) == words(unicodedata.normalize("NFC", text))


@given(st.text())
def test_a_word_is_safe_in_every_query(text: str) -> None:
    for word in words(text):
        assert word.isalnum()
        assert 0 < len(word) <= WORD_CHARS_MAX


def test_words_are_bounded() -> None:
    assert len(words(" ".join(map(str, range(2 * WORDS_MAX))))) == WORDS_MAX
