"""Gateway requests that no library would write: each is read as a call, or refused in Telegram's words, and leaves nothing."""

import asyncio
import contextlib
import gzip
import json
import tempfile
import urllib.parse
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from peik.core.call import PARAMS_BYTES_MAX
from peik.errors import TooLarge
from peik.gateway.app import read_place
from peik.gateway.files import _range_of, read_file_place, span_of
from peik.gateway.params import GatewayParams, read_given, read_head
from peik.storage.spool import FolderSpool
from peik.web.bodies import FIELDS_MAX, FILES_MAX, ClientGone, UnreadableBody

FILE_BYTES_MAX = 4096
Pairs = list[tuple[bytes, bytes]]


class Read(msgspec.Struct, frozen=True):
    """What became of one request: what was read, or why not, and the files that it left."""

    given: GatewayParams | None
    refused: Exception | None
    left: dict[str, bytes]


def read(headers: Pairs, query: bytes, pieces: list[bytes], *, is_cut: bool = False) -> Read:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": is_cut or number < len(pieces)}
        for number, piece in enumerate(pieces or [b""], 1)
    ]
    messages.append({"type": "http.disconnect"})
    messages.reverse()

    async def receive() -> dict[str, Any]:
        return messages.pop()

    async def story(folder: Path) -> Read:
        given, refused = None, None
        try:
            given = await read_given(headers, query, receive, spool=FolderSpool(folder), file_bytes_max=FILE_BYTES_MAX)
        except (UnreadableBody, ClientGone, TooLarge) as error:
            refused = error
        return Read(given, refused, _files_in(folder))

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(story(Path(folder)))


def _files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check(found: Read) -> None:
    """True of every request whatsoever."""
    if found.given is None:
        assert found.left == {}, "a refused call left a file"
        if isinstance(found.refused, UnreadableBody):
            assert found.refused.status in (400, 413, 415, 431)
            assert found.refused.words
        return
    assert len(found.given.params) <= 8 * PARAMS_BYTES_MAX
    assert {one.blob for one in found.given.enclosed} == set(found.left)
    assert len({one.field for one in found.given.enclosed}) == len(found.given.enclosed) <= FILES_MAX
    assert all(one.field and one.filename and one.size_bytes <= FILE_BYTES_MAX for one in found.given.enclosed)
    with contextlib.suppress(UnreadableBody):
        found.given.fields()


# ---- paths ----

_segments = st.sampled_from(
    ["bot", "123:abc", "@", "@a.b-c", "test", "getMe", "", "%", "..", "GETME", "sendMessage", "\0"]
)
_paths = st.one_of(
    st.text(max_size=40),
    st.lists(_segments | st.text(max_size=5), max_size=8).map("/".join),
    st.lists(_segments | st.text(max_size=5), max_size=8).map(lambda parts: "/bot" + "".join(parts)),
    st.lists(_segments | st.text(max_size=5), max_size=8).map(lambda parts: "/bot123:abc/" + "/".join(parts)),
)


@settings(max_examples=300)
@given(_paths)
@example("/bot@0/getMe")
def test_any_path_is_a_place_or_none(path: str) -> None:
    place = read_place(path)
    if place is not None:
        assert place.token
        assert place.consumer is None or place.consumer.isascii()
        assert "/" not in place.token.removesuffix("/test")
        assert "@" not in place.token
        # What was understood, written out again, means the same.
        head, test = (
            (place.token.removesuffix("/test"), "test/") if place.token.endswith("/test") else (place.token, "")
        )
        name = "" if place.consumer is None else f"@{place.consumer}"
        if path.startswith("/bot"):
            assert f"/bot{head}{name}/{test}{place.method}".rstrip("/") == path.rstrip("/") or place.method.endswith(
                "/"
            )


_ranges = st.one_of(
    st.binary(max_size=30).map(lambda value: value.decode("latin-1")),
    st.from_regex(r"[0-9]{0,19}-[0-9]{0,19}", fullmatch=True),
    st.tuples(st.integers(0, 2**41), st.integers(0, 2**41)).map(lambda pair: f"{pair[0]}-{pair[1]}"),
)


@settings(max_examples=200)
@given(_paths, _ranges, st.integers(0, 2**40))
def test_any_path_of_a_file_stays_inside_and_any_range_is_within_the_file(path: str, asked: str, size: int) -> None:
    found = read_file_place("/file" + path)
    if found is not None:
        assert not {"", ".", ".."} & set(found[1].split("/"))
    for text in (asked, f"bytes={asked}"):
        ranged = _range_of({"headers": [(b"range", text.encode("latin-1"))]})
        if ranged is not None and (span := span_of(ranged, size)) is not None:
            assert 0 <= span[0] <= span[1] < size


# ---- heads ----

_names = st.sampled_from(
    [b"content-type", b"content-length", b"content-encoding", b"transfer-encoding", b"idempotency-key", b"x-other", b""]
)
_values = st.binary(max_size=40) | st.sampled_from(
    [
        b"0",
        b"-1",
        b"+5",
        b"5, 5",
        b"9" * 400,
        b"\xb2",
        b"1e3",
        b" 7",
        b"chunked",
        b"gzip",
        b"identity",
        b"GZIP ",
        b"br",
        b"application/json",
        b"APPLICATION/JSON;;",
        b"multipart/form-data",
        b"multipart/form-data; boundary=",
        b'multipart/form-data; boundary="',
        b"multipart/form-data; boundary=a\x00b",
        b"text/plain",
        b"application/json\x00",
        b"multipart/form-data; boundary*=utf-8''x",
        b"multipart/form-data; boundary=" + b"x" * 300,
        b"multipart/form-data; boundary=\xff",
        b"application/x-www-form-urlencoded; charset=utf-16",
    ]
)
_headers = st.lists(st.tuples(_names, _values), max_size=6)


@settings(max_examples=300)
@given(_headers, st.binary(max_size=60), st.lists(st.binary(max_size=200), max_size=4), st.booleans())
@example([(b"content-length", b"\xb2")], b"", [b"x"], False)
@example(
    [(b"content-type", b"multipart/form-data; boundary=" + b"x" * 300), (b"content-length", b"1")], b"", [b"x"], False
)
def test_any_head_with_any_body_is_read_or_refused(
    headers: Pairs, query: bytes, pieces: list[bytes], is_cut: bool
) -> None:
    read_head(headers)
    check(read(headers, query, pieces, is_cut=is_cut))


# ---- forms ----

BOUNDARY = b"peik-xx"
FORM: Pairs = [(b"content-type", b"multipart/form-data; boundary=" + BOUNDARY), (b"transfer-encoding", b"chunked")]

_dispositions = st.one_of(
    st.sampled_from(
        [
            b'form-data; name="chat_id"',
            b'form-data; name="a"; filename="f"',
            b'form-data; name=""',
            b"form-data",
            b"",
            b"form-data; name=\"a\"; filename*=utf-8''%ff",
            b"form-data; name*=utf-8''x",
            b'form-data; name="a',
            b"attachment",
            b"form-data; name=\"a\"; filename*=nocharset''x",
            b'form-data; name="\xff"',
            b'form-data; name="a"; filename="\xff"',
            b"form-data; name=a; filename=../../etc/passwd",
            b'form-data; name="a\\"b"; filename="c\\\\d"',
            b"form-data;;;=;",
            b'form-data; name="a"; filename="\x00"',
            b"form-data; name*0=a; name*1=b; filename*0*=utf-8''x; filename*9=y",
            b'form-data; name="peik_idempotency_key"',
            b"form-data; name=\"a\"; filename*=utf-8''a%0d%0ab",
        ]
    ),
    st.binary(max_size=40).map(lambda value: b"form-data; " + value.replace(b"\n", b"").replace(b"\r", b"")),
)
_contents = st.binary(max_size=60) | st.sampled_from(
    [b"attach://nowhere", b"5", b"--peik-xx", b"\r\n--peik-x", b"x" * 5000]
)
_parts = st.tuples(
    _dispositions, st.sampled_from([b"", b"Content-Type: image/\xff\r\n", b"X" * 17_000 + b": y\r\n"]), _contents
)


def form(parts: list[tuple[bytes, bytes, bytes]]) -> bytes:
    return b"".join(
        b"--%b\r\nContent-Disposition: %b\r\n%b\r\n%b\r\n" % (BOUNDARY, disposition, more, content)
        for disposition, more, content in parts
    ) + (b"--%b--\r\n" % BOUNDARY)


def in_pieces(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@settings(max_examples=300)
@given(st.lists(_parts, max_size=5), st.data())
def test_any_form_whole_or_broken_is_read_or_refused_and_leaves_no_file(
    parts: list[tuple[bytes, bytes, bytes]], data: st.DataObject
) -> None:
    body = form(parts)
    match data.draw(st.sampled_from(["whole", "truncated", "flipped", "wrong boundary", "bare line ends", "twice"])):
        case "truncated":
            body = body[: data.draw(st.integers(0, len(body)))]
        case "flipped":
            at = data.draw(st.integers(0, len(body) - 1))
            body = body[:at] + data.draw(st.binary(max_size=3)) + body[at + 1 :]
        case "wrong boundary":
            body = body.replace(BOUNDARY, b"other", data.draw(st.integers(1, 3)))
        case "bare line ends":
            body = body.replace(b"\r\n", b"\n")
        case "twice":
            body += body
    size = data.draw(st.sampled_from([1, 7, 64, 100_000])) if len(body) < 2000 else 4000
    check(read(FORM, b"", in_pieces(body, size), is_cut=data.draw(st.booleans())))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=20)), max_size=12), st.integers(1, 40))
def test_of_files_under_one_name_the_first_counts_whole_and_nothing_else_is_kept(
    files: list[tuple[str, bytes]], size: int
) -> None:
    parts = [(f'form-data; name="{name}"; filename="{number}"'.encode(), b"", content)
             for number, (name, content) in enumerate(files)]  # fmt: skip
    found = read(FORM, b"", in_pieces(form(parts), size))
    assert found.given is not None
    first: dict[str, bytes] = {}
    for name, content in files:
        first.setdefault(name, content)
    assert {one.field: found.left[one.blob] for one in found.given.enclosed} == first


@pytest.mark.parametrize(
    ("count", "disposition"),
    [(FILES_MAX + 1, b'form-data; name="f%d"; filename="x"'), (FIELDS_MAX + 2, b'form-data; name="f%d"')],
)
def test_too_many_parts_are_refused(count: int, disposition: bytes) -> None:
    found = read(FORM, b"", [form([(disposition % number, b"", b"") for number in range(count)])])
    assert isinstance(found.refused, UnreadableBody)
    assert found.refused.status == 413
    check(found)


# ---- JSON, forms in the body, the query string ----

JSON: Pairs = [(b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
_NESTED = b"[" * 100_000
_texts = st.sampled_from(
    [
        b'{"chat_id":NaN}',
        b'{"chat_id":1e999}',
        b'{"chat_id":%b}' % (b"9" * 5000),
        b'{"text":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":1,"a":2}',
        b'{"":1}',
        b'{"a":"\\u0000"}',
        b"\xef\xbb\xbf{}",
        b"nul",
        b"[]",
        b'"x"',
        b"{" * 50000,
        _NESTED,
        b'{"peik_idempotency_key":%b}' % (b"9" * 5000),
        b'{"peik_idempotency_key":{"a":[]}}',
        b'{"a":true,"b":"True","c":"yes"}',
        b'{"peik_idempotency_key":1e5,"a":%b' % _NESTED,
        b'{"peik_idempotency_key":"\\ud800"}',
        b'{"a":1}garbage',
        b"{'a':1}",
    ]
)


@settings(max_examples=200)
@given(
    _texts | st.binary(max_size=80),
    st.binary(max_size=40) | st.sampled_from([b"", b"a=1", b"%00=%ff", b"=&=&a", b"a=%"]),
)
def test_any_json_beside_any_query_is_read_or_refused(body: bytes, query: bytes) -> None:
    check(read(JSON, query, [body]))


@settings(max_examples=200)
@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=6),
    st.dictionaries(st.text(max_size=8), st.text(max_size=12)),
)
def test_where_query_and_body_contradict_each_other_the_query_counts(
    asked: dict[str, str], said: dict[str, str]
) -> None:
    """In all three encodings, whatever the names and values are, the empty name among them."""
    query = urllib.parse.urlencode(asked).encode()
    form_headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"transfer-encoding", b"chunked")]
    for headers, body in (
        (JSON, json.dumps(said).encode()),
        (form_headers, urllib.parse.urlencode(said).encode()),
    ):
        found = read(headers, query, [body])
        assert found.given is not None
        assert found.given.fields() == {**said, **asked}


@settings(max_examples=100)
@given(
    st.binary(max_size=2000),
    st.sampled_from([b"gzip", b"deflate", b"x-gzip"]),
    st.integers(0, 2000),
    st.integers(1, 50),
)
def test_compressed_bodies_are_whole_or_refused(body: bytes, coding: bytes, cut: int, size: int) -> None:
    packed = gzip.compress(body, mtime=0) if b"gzip" in coding else zlib.compress(body)
    headers = [*JSON, (b"content-encoding", coding)]
    check(read(headers, b"", in_pieces(packed, size)))
    broken = read(headers, b"", in_pieces(packed[: min(cut, len(packed) - 1)], size))
    assert isinstance(broken.refused, UnreadableBody)


@pytest.mark.parametrize("headers", [JSON, FORM])
def test_a_body_that_unpacks_to_more_than_its_bound_is_refused_before_it_is_unpacked(headers: Pairs) -> None:
    bomb = gzip.compress(b"--peik-xx\r\n" + b" " * (64 * PARAMS_BYTES_MAX), mtime=0)
    found = read([*headers, (b"content-encoding", b"gzip")], b"", [bomb])
    assert isinstance(found.refused, UnreadableBody)
    assert found.refused.status in (400, 413)
    check(found)
