"""How answers are read: bytes in, replies out, with no socket."""

import contextlib
import gzip
import itertools
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.core.outcome import Reply
from peik.telegram.http import ANSWER_BYTES_MAX, HEAD_BYTES_MAX, AnswerReader, GarbledAnswer

BODY = b'{"ok":true,"result":"\xd9\xbe\xdb\x8c\xda\xa9"}'
PLAIN = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n%b\r\n%x\r\n%b\r\n0\r\nTrailer: t\r\n\r\n" % (
    BODY[:5],
    len(BODY) - 5,
    BODY[5:],
)
HINTED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\n" + PLAIN
OLD = b"HTTP/1.0 200 OK\r\nSERVER: old\r\n\r\n" + BODY
PACKED = gzip.compress(BODY, mtime=0)
GZIPPED = b"HTTP/1.1 200 OK\r\ncontent-encoding: GZIP\r\ncontent-length: %d\r\n\r\n%b" % (len(PACKED), PACKED)


def read(*pieces: bytes) -> Reply | None:
    reader = AnswerReader()
    for piece in pieces:
        if (reply := reader.feed(piece)) is not None:
            return reply
    return reader.finish()


@given(
    answer=st.sampled_from([PLAIN, CHUNKED, HINTED, OLD, GZIPPED]),
    cuts=st.lists(st.integers(0, len(HINTED)), max_size=12),
)
def test_an_answer_reads_the_same_wherever_the_network_cuts_it(answer: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    pieces = [answer[begin:end] for begin, end in itertools.pairwise(places)]

    assert read(*pieces) == Reply(status=200, body=BODY)


@given(answer=st.sampled_from([PLAIN, CHUNKED, HINTED, GZIPPED]), data=st.data())
def test_an_answer_that_is_cut_off_is_never_taken_for_whole(answer: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(answer) - 1))

    assert read(answer[:end]) is None


@given(rubbish=st.binary(max_size=300))
def test_rubbish_is_garbled_or_unfinished_but_never_a_surprise(rubbish: bytes) -> None:
    with contextlib.suppress(GarbledAnswer):
        read(rubbish)


@pytest.mark.parametrize("head", [b"", b"Content-Length: 3\r\nConnection: close\r\n"], ids=["by eof", "by close"])
def test_an_answer_that_ends_with_its_connection_is_not_followed_by_another(head: bytes) -> None:
    reader = AnswerReader()
    reply = reader.feed(b"HTTP/1.0 502 Bad Gateway\r\n%b\r\nbad" % head) or reader.finish()

    assert reply == Reply(status=502, body=b"bad")
    assert not head or not reader.may_continue


@pytest.mark.parametrize(
    ("answer", "may_continue"),
    [
        (PLAIN, True),
        (CHUNKED, True),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nCONNECTION: Close\r\nContent-Length: 0\r\n\r\n", False),
        (PLAIN + b"rubbish", False),
        (PLAIN + b"H", False),
        (PLAIN + PLAIN, False),
    ],
    ids=["plain", "chunked", "1.0 kept", "1.0", "close", "rubbish after", "one byte after", "two answers"],
)
def test_a_connection_carries_on_only_after_a_clean_answer_that_allows_it(answer: bytes, may_continue: bool) -> None:
    reader = AnswerReader()

    assert reader.feed(answer) is not None
    assert reader.may_continue is may_continue


def test_what_follows_a_whole_answer_does_not_change_it() -> None:
    assert read(PLAIN + b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno") == Reply(status=200, body=BODY)


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, GZIPPED], ids=["plain", "chunked", "gzip"])
def test_a_body_is_not_kept_while_the_next_answer_is_waited_for(answer: bytes) -> None:
    reader = AnswerReader()
    reply = reader.feed(answer)
    assert reply is not None
    reader.expect()
    body, reply = reply.body, None
    alone = bytes(bytearray(body))  # as many know it as know the other: this line's name, and who counts
    assert sys.getrefcount(body) == sys.getrefcount(alone)


@pytest.mark.parametrize("raw", [zlib.compress(BODY), zlib.compress(BODY)[2:-4]], ids=["zlib", "raw"])
def test_both_meanings_of_deflate_are_understood(raw: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw)

    assert read(answer) == Reply(status=200, body=BODY)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x01\x00\x02\x02\x50",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n" + PACKED[:9],
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_BYTES_MAX,
    ],
    ids=["tls alert", "upgrade", "unknown coding", "no gzip", "cut gzip", "endless head"],
)
def test_what_is_no_answer_of_ours_is_garbled(answer: bytes) -> None:
    with pytest.raises(GarbledAnswer):
        read(answer)


def test_an_answer_without_end_is_given_up() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(63):
        reader.feed(bytes(1024 * 1024))

    with pytest.raises(GarbledAnswer, match="larger"):
        reader.feed(bytes(ANSWER_BYTES_MAX - 63 * 1024 * 1024))


@pytest.mark.parametrize(
    ("header", "keep_alive_s"),
    [(b"timeout=5, max=100", 4), (b"max=2, TIMEOUT = 60", 59), (b"timeout=0", -1), (b"nonsense", float("inf"))],
)
def test_the_peers_own_idle_time_is_honoured_with_a_margin(header: bytes, keep_alive_s: float) -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nkeep-alive: %b\r\nContent-Length: 0\r\n\r\n" % header)

    assert reader.keep_alive_s == keep_alive_s
