"""Durations and sizes as people write them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.core.units import parse_duration_s, parse_size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("500ms", 0.5),
        ("5m", 300.0),
        ("24h", 86400.0),
        ("7d", 604800.0),
        ("2w", 1209600.0),
        ("1m30s", 90.0),
        (" 1h 30m ", 5400.0),
        ("1.5H", 5400.0),
        ("0", 0.0),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "  ", "soon", "-5s", "5 years", "5m!", "1.2.3", "inf", "nan", "9" * 400, "0s" * 40]
)
def test_what_is_no_duration_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000", 1000),
        ("512k", 512 * 1024),
        ("100M", 100 * 1024**2),
        ("2G", 2 * 1024**3),
        ("1T", 1024**4),
        ("1.5 GiB", 1536 * 1024**2),
        ("10mb", 10 * 1024**2),
        ("0", 0),
    ],
)
def test_a_size_is_read_in_bytes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "big", "-5M", "5X", "5 M M", "inf", "9" * 400])
def test_what_is_no_size_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_size_bytes(text)


@given(st.text(max_size=12) | st.from_regex(r"[0-9.]{1,400}[a-zA-Z]{0,2}", fullmatch=True))
def test_whatever_is_written_there_is_a_number_or_a_value_error(text: str) -> None:
    for parse in (parse_duration_s, parse_size_bytes):
        with contextlib.suppress(ValueError):
            assert 0 <= parse(text) < float("inf")
