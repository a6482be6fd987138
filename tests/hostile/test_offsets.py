"""Offsets that no bot was ever given: they confirm nothing, in whichever way they are out of bounds."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.offices import OTHER_TOKEN, Resident, resident


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    with resident() as one:
        yield one
        assert one.surprises() == []
        assert one.crashes == []


READER = f"/bot{OTHER_TOKEN}@reader/getUpdates"
WRITTEN = ["n1", "n2", "n3"]


def offered(peik: Resident, **params: object) -> list[str]:
    """What the reader is given for these parameters."""
    body = msgspec.json.encode(params)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    heard = peik.ask("POST", READER, headers=headers, body=body)
    assert heard is not None
    assert heard.status == 200
    return [update["message"]["text"] for update in heard.json["result"]]


@pytest.fixture(scope="module")
def written_to(peik: Resident) -> Resident:
    """Three messages that the reader has not acknowledged."""

    async def write() -> None:
        for text in WRITTEN:
            peik.telegram.write(OTHER_TOKEN, 5, text)

    offered(peik)  # from now on the bot is polled for
    peik.run(write())
    while offered(peik, timeout=5) != WRITTEN:
        pass
    return peik


@pytest.mark.parametrize("offset", [2**31 + 1, 2**31 + 4, 2**32 + 8, 10**30, "9" * 18, 1e18, -(10**30), "x", None, [7]])
def test_an_offset_that_nobody_was_given_confirms_nothing(written_to: Resident, offset: object) -> None:
    """Ids go round after 2³¹; an offset from beyond must not be taken for one from the next round."""
    assert offered(written_to, offset=offset) == WRITTEN


@pytest.mark.parametrize("rounds", [1, 2, 1000])
def test_an_offset_of_another_round_of_ids_confirms_nothing(written_to: Resident, rounds: int) -> None:
    heard = written_to.ask("GET", READER)
    assert heard is not None
    last = heard.json["result"][-1]["update_id"]
    assert offered(written_to, offset=last + 1 + rounds * (2**31 - 1)) == WRITTEN
    seen = {"consumer": "reader", "bot_id": 7000002, "update_id": last + rounds * (2**31 - 1)}
    assert written_to.rest("POST", "/v1/arrivals/ack", json=seen).status == 422
    assert offered(written_to) == WRITTEN


@settings(max_examples=100, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(min_value=2**31 + 1) | st.integers(max_value=-3))
def test_no_offset_out_of_bounds_confirms_anything(written_to: Resident, offset: int) -> None:
    assert offered(written_to, offset=offset) == WRITTEN
