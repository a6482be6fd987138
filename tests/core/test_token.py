"""A token can be used, compared and stored, and cannot be printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.core.token import Token
from peik.errors import BadInput

SECRET = "AAE-very_secret"
TEXT = f"123456789:{SECRET}"


@pytest.mark.parametrize(
    "shown",
    [
        repr(Token(TEXT)),
        str(Token(TEXT)),
        f"{Token(TEXT)}",
        f"{Token(TEXT)!r:>60}",
        f"{Token(TEXT):>60}",
        f"{[Token(TEXT)]} { ({'token': Token(TEXT)}) }",
        "%s %r" % (Token(TEXT), Token(TEXT)),  # noqa: UP031
        "{}".format(Token(TEXT)),  # noqa: UP032
        str(ValueError(Token(TEXT))),
        repr(KeyError(Token(TEXT))),
    ],
)
def test_no_way_of_printing_shows_the_secret(shown: str) -> None:
    assert SECRET not in shown
    assert "123456789" in shown


def test_only_reveal_gives_the_text() -> None:
    token = Token(f"  {TEXT}\n")
    assert token.reveal() == TEXT
    assert token.bot_id == 123456789


def test_equal_texts_are_equal_tokens() -> None:
    assert Token(TEXT) == Token(TEXT)
    assert hash(Token(TEXT)) == hash(Token(TEXT))
    assert Token(TEXT) != Token(TEXT + "x")
    assert Token(TEXT) != TEXT


@pytest.mark.parametrize(
    "text", ["", "abc", "123:", ":secret", "0123:secret", "123 456:secret", "12:se cret", "12:سر", "12:x/../getMe"]
)
def test_a_malformed_token_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        Token(text)
    assert caught.value.code == "malformed_token"
    assert len(text) < 3 or text not in f"{caught.value!r} {caught.value}"


@given(st.text())
def test_whatever_it_is_given_it_is_a_token_or_bad_input(text: str) -> None:
    try:
        token = Token(text)
    except BadInput:
        return
    assert token.reveal().startswith(f"{token.bot_id}:")
