"""Frames and ids of streams as the library reads and writes them, against what the door writes and reads."""

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.accounts import stream
from peik.client.remote import StreamedAnswer, StreamFrame, frames, id_of, places_of
from peik.errors import Unavailable
from peik.telegram.http import GarbledAnswer
from peik.web import responses

NAMES = st.one_of(st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True), st.text('aß:é /{}"', min_size=1, max_size=9))
PLACES = st.dictionaries(NAMES, st.integers(0, 10**15), max_size=6)


def read(chunks: Iterable[bytes]) -> list[StreamFrame]:
    async def poured() -> AsyncGenerator[bytes, None]:
        for chunk in chunks:
            yield chunk

    async def main() -> list[StreamFrame]:
        return [one async for one in frames(poured())]

    return asyncio.run(main())


def test_frames_are_the_same_however_the_bytes_are_cut() -> None:
    written = (
        b"retry: 2000\nid: s1:4\n\n"
        + responses.frame(b"message", b'{"text":"a: b\\n"}', id=b"s1:5")
        + responses.HEARTBEAT
        + b"\n"
        + responses.HEARTBEAT
        + b"id: s1:9\n\n"
        + b"number: 7\n"
        + responses.frame(b"event", '{"ß":1}'.encode())
        + b"id: s1:12\nevent: message\ndata: cut o"
    )
    whole = read([written])
    assert whole == [
        StreamFrame(event="", data="", id="s1:4", number=0),
        StreamFrame(event="message", data='{"text":"a: b\\n"}', id="s1:5", number=0),
        StreamFrame(event="", data="", id="s1:9", number=0),
        StreamFrame(event="event", data='{"ß":1}', id=None, number=7),
    ]
    chance = random.Random(3)
    for _ in range(50):
        cuts = sorted(chance.sample(range(len(written)), chance.randint(1, 30)))
        pieces = [written[start:end] for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True)]
        assert read(pieces) == whole


def test_what_never_ends_is_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peik.client.remote.FRAME_BYTES_MAX", 1000)
    with pytest.raises(Unavailable):
        read([b"x" * 600, b"x" * 600])
    with pytest.raises(Unavailable):
        places_of("%%%")
    with pytest.raises(Unavailable):
        places_of("s1:many")


@given(PLACES)
def test_ids_of_all_places_are_those_of_the_door(places: dict[str, int]) -> None:
    written = id_of(places, None)
    assert written.encode() == stream.id_of(places, None)
    assert stream.places_of(written, None) == places
    assert places_of(written) == places


@given(NAMES, st.integers(0, 10**15))
def test_ids_of_one_session_are_those_of_the_door(name: str, number: int) -> None:
    written = id_of({name: number, "another": 3}, name)
    assert written.encode() == stream.id_of({name: number}, name)
    assert stream.places_of(written, name) == {name: number}
    assert places_of(written) == {name: number}


def test_an_answer_that_goes_on_is_read_as_it_comes() -> None:
    answer = StreamedAnswer()
    assert answer.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel") == b"hel"
    assert (answer.status, answer.is_over) == (200, False)
    assert answer.feed(b"lo\r\n4\r\n an") == b"lo an"
    assert answer.feed(b"d\r\n0\r\n\r\n") == b"d"
    assert answer.is_over
    refused = StreamedAnswer()
    assert refused.feed(b"HTTP/1.1 100 Continue\r\n\r\n") == b""
    assert refused.status == 0
    refused.feed(b"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\n{")
    assert (refused.status, refused.is_over) == (409, False)
    refused.feed(b"}  ")
    assert (refused.is_over, refused.refusal) == (True, b"{}  ")
    with pytest.raises(GarbledAnswer):
        StreamedAnswer().feed(b"SSH-2.0\r\n\r\n")
    with pytest.raises(GarbledAnswer):
        StreamedAnswer().feed(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300_000)
