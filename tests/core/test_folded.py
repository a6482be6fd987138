"""Words that are the same to whoever looks for them."""

import json

import pytest

from peik.core.folded import folded, is_found, needles_of, said_in


@pytest.mark.parametrize(
    ("asked", "stands"),
    [
        ("كتابي", "کتابی"),  # an Arabic keyboard, and a Persian one
        ("میروم", "می\u200cروم"),
        ("می روم", "می\u200cروم"),
        ("می\u200cروم", "می روم"),
        ("سلام", "سَلامٌ"),
        ("کتاب", "کتـــاب"),
        ("12", "سفارش ۱۲"),
        ("۱۲", "order 12"),
        ("٣٤", "۳۴"),
        ("ЁЛКА", "елка"),
        ("o'zbek", "Oʻzbekcha"),  # noqa: RUF001  that is how it is written
        ("STRASSE", "straße"),
        ("ready order", "Order 7 is ready"),
    ],
)
def test_however_it_was_typed_it_is_found(asked: str, stands: str) -> None:
    assert is_found(needles_of(asked), stands)


def test_what_stands_nowhere_is_not_found_and_nothing_finds_nothing() -> None:
    assert not is_found(needles_of("order ready soon"), "Order 7 is ready")
    assert not is_found(needles_of(" \u200c "), "anything")
    assert folded("Й") == "й"


def test_names_of_parameters_are_no_words() -> None:
    keyboard = json.dumps({"inline_keyboard": [[{"text": "Buy", "callback_data": "b1"}]]})
    params = json.dumps({"text": "tea", "parse_mode": "HTML", "reply_markup": keyboard})
    assert said_in(params).split("\n") == ["tea", "Buy", "b1"]
    assert said_in("no JSON") == ""
    assert said_in("[" * 3000 + "]" * 3000) == ""
