"""Traces: how they are written, and what may come in a header."""

import pytest

from peik.core.trace import arrival_in, certainty, likely, message_ids_in, plain, read_parent, read_trace, trace_of
from peik.errors import BadInput

PARENT = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_the_trace_of_an_arrival_names_its_bot_and_its_number_and_leads_back_to_them() -> None:
    trace = trace_of(7000001, 501)
    assert trace == "u7000001.501"
    assert arrival_in(trace) == arrival_in(likely(trace)) == (7000001, 501)
    assert (certainty(trace), certainty(likely(trace))) == ("exact", "likely")
    assert plain(likely(trace)) == plain(trace) == trace
    assert read_trace(trace) == trace


def test_a_trace_takes_little_room() -> None:
    assert len(likely(trace_of(2**33, 10**8))) <= 24


@pytest.mark.parametrize(
    "text", [PARENT, "order-17", "u7.", "u0.5", "u5.05", "u7.5.6", "v7.5", "u7.5000000000000000000"]
)
def test_a_word_of_somebody_else_leads_to_no_arrival(text: str) -> None:
    assert arrival_in(text) is None
    assert read_trace(text) == text


@pytest.mark.parametrize("text", ["", "~u7.5", "-a", "a b", "a\n", "سلام", "a" * 65, "a;drop"])
def test_what_cannot_be_a_trace_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_trace(text)
    assert caught.value.code == "bad_trace"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"00-{PARENT}-00f067aa0ba902b7-01", PARENT),
        (f" 00-{PARENT}-00f067aa0ba902b7-00 ", PARENT),
        (f"01-{PARENT}-00f067aa0ba902b7-01-more", PARENT),
        (f"ff-{PARENT}-00f067aa0ba902b7-01", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{PARENT}-{'0' * 16}-01", None),
        (f"00-{PARENT.upper()}-00f067aa0ba902b7-01", None),
        (f"00-{PARENT}-00f067aa0ba902b7", None),
        ("", None),
    ],
)
def test_a_traceparent_gives_its_trace_id_or_is_as_if_it_were_not_there(header: str, found: str | None) -> None:
    assert read_parent(header) == found


@pytest.mark.parametrize(
    ("result", "ids"),
    [
        ('{"message_id":11,"chat":{"id":5}}', (11,)),
        ('[{"message_id":11},{"message_id":12}]', (11, 12)),
        ("true", ()),
        ("null", ()),
        ("[true]", ()),
        ("", ()),
    ],
)
def test_messages_are_read_from_what_telegram_answered(result: str, ids: tuple[int, ...]) -> None:
    assert message_ids_in(result) == message_ids_in(result.encode()) == ids
