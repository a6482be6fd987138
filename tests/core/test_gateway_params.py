"""Parameters of gateway calls: however a library writes a call, it is the same call."""

import asyncio
import gzip
import json
import random
import tempfile
import urllib.parse
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peik.core.call import PARAMS_BYTES_MAX, Reading, read_call
from peik.core.letter import LetterCall
from peik.errors import TooLarge
from peik.gateway.app import GatewayPlace, read_place
from peik.gateway.files import read_file_place, span_of
from peik.gateway.params import GatewayParams, read_given
from peik.outbox.service import _digest
from peik.storage.spool import FolderSpool
from peik.telegram.upload import _fields
from peik.web.bodies import FILES_MAX, ClientGone, UnreadableBody

Headers = dict[str, str]
BOUNDARY = "x-peik-test"


def run(work: Coroutine[Any, Any, GatewayParams]) -> GatewayParams:
    return asyncio.run(work)


async def read(
    body: bytes = b"",
    *,
    query: bytes = b"",
    headers: Headers | None = None,
    folder: Path | None = None,
    pieces: int = 1,
    is_cut: bool = False,
    file_bytes_max: int = 1 << 20,
) -> GatewayParams:
    """Read a request whose body comes in pieces, as from a network."""
    size = max(1, -(-len(body) // pieces))
    chunks = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    messages = [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks) or is_cut}
        for number, chunk in enumerate(chunks, 1)
    ]
    messages += [{"type": "http.disconnect"}]
    given = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(given)

    sized = {"content-length": str(len(body) + is_cut)} if body or is_cut else {}
    raw = [(name.encode(), value.encode()) for name, value in ({**sized, **(headers or {})}).items()]
    spool = FolderSpool(folder or Path("/nonexistent"))
    return await read_given(raw, query, receive, spool=spool, file_bytes_max=file_bytes_max)


def multipart(fields: dict[str, str], files: dict[str, tuple[str, bytes]] | None = None) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    for name, (filename, content) in (files or {}).items():
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


MULTIPART = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


# ---- one call, all encodings ----

_ids = st.integers(min_value=1, max_value=2**40)
_texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1, max_size=12)
_references = st.just({"letter": "12"}) | st.just({"letter": 12})
_calls = st.one_of(
    st.tuples(
        st.just("sendMessage"),
        st.fixed_dictionaries(
            {"chat_id": _ids | st.just("@Name"), "text": _texts.filter(str.strip)},
            optional={
                "message_thread_id": _ids,
                "disable_notification": st.booleans(),
                "parse_mode": st.just("HTML"),
                "reply_parameters": st.fixed_dictionaries({"message_id": _ids | _references}),
                "reply_markup": st.just({"inline_keyboard": [[{"text": "a", "callback_data": "1"}]]}),
                "later": _texts,
            },
        ),
    ),
    st.tuples(
        st.just("sendMediaGroup"),
        st.fixed_dictionaries(
            {"chat_id": _ids, "media": st.lists(st.just({"type": "photo"}), min_size=2, max_size=10)}
        ),
    ),
    st.tuples(
        st.just("copyMessages"),
        st.fixed_dictionaries({"chat_id": _ids, "from_chat_id": _ids, "message_ids": st.lists(_ids, max_size=5)}),
    ),
    st.tuples(
        st.just("editMessageText"),
        st.fixed_dictionaries({"chat_id": _ids, "message_id": _ids | _references, "text": _texts}),
    ),
    st.tuples(
        st.just("editMessageText"),
        st.fixed_dictionaries(
            {"inline_message_id": st.from_regex("[A-Za-z0-9_-]{1,9}", fullmatch=True), "text": _texts}
        ),
    ),
    st.tuples(st.just("verifyUser"), st.fixed_dictionaries({"user_id": _ids})),
)


def as_texts(params: dict[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in params.items()}


async def in_all_encodings(params: dict[str, Any], chance: random.Random) -> list[GatewayParams]:
    texts = as_texts(params)
    encoded = urllib.parse.urlencode(texts).encode()
    cut = chance.randrange(len(texts) + 1)
    first = urllib.parse.urlencode(dict(list(texts.items())[:cut])).encode()
    rest = dict(list(texts.items())[cut:])
    pieces = chance.randrange(1, 30)
    zipped = {"content-encoding": "gzip"}
    return [
        await read(json.dumps(params).encode(), headers=JSON, pieces=pieces),
        await read(json.dumps(params, ensure_ascii=False).encode(), headers=JSON, pieces=pieces),
        await read(json.dumps(texts).encode(), headers=JSON),
        await read(gzip.compress(json.dumps(params).encode()), headers=JSON | zipped, pieces=pieces),
        await read(encoded, headers=FORM, pieces=pieces),
        await read(query=encoded),
        await read(multipart(texts), headers=MULTIPART, pieces=pieces),
        await read(json.dumps(rest).encode(), query=first, headers=JSON),
        await read(multipart(rest), query=first, headers=MULTIPART),
        await read(urllib.parse.urlencode(rest).encode(), query=first, headers=FORM),
    ]


def understood(method: str, given: GatewayParams) -> tuple[Reading, dict[str, object], str]:
    """All that a letter is made of: its lane and terms, its parameters as Telegram reads them, and its digest."""
    texts = {name: json.loads(value) if value[:1] in b"{[" else value for name, value in _fields(given.params).items()}
    call = LetterCall(method=method, params=given.params, idempotency_key="k")
    return read_call(method, given.params), texts, _digest(call, method)


@settings(max_examples=150, deadline=None)
@given(_calls, st.randoms(use_true_random=False))
def test_the_same_call_is_the_same_letter_whichever_way_it_is_written(
    call: tuple[str, dict[str, Any]], chance: random.Random
) -> None:
    method, params = call
    if any(isinstance(value, str) and value[:1] in "{[" for value in params.values()):
        return  # a text that looks like JSON is compared as JSON above, and need not be any
    first, *others = asyncio.run(in_all_encodings(params, chance))
    expected = understood(method, first)
    for other in others:
        assert understood(method, other) == expected


# ---- rules of Telegram's server ----


def test_json_that_comes_alone_is_passed_on_byte_for_byte() -> None:
    body = '{"chat_id" : 5,"text":"سلام",  "new_in_12.0": [1, 2]}'.encode()
    assert run(read(body, headers=JSON)).params == body
    assert run(read(body, headers=JSON | {"content-type": "Application/JSON; charset=utf-8"})).params == body


def test_the_first_value_of_a_name_counts_and_the_query_string_comes_first() -> None:
    assert run(read(query=b"a=1&a=2&b=&c")).fields() == {"a": "1", "b": "", "c": ""}
    assert run(read(b"a=2&b=3", query=b"a=1", headers=FORM)).fields() == {"a": "1", "b": "3"}
    assert run(read(b'{"a": 2, "b": 3}', query=b"a=1", headers=JSON)).fields() == {"a": "1", "b": 3}
    assert run(read(multipart({"a": "2", "b": "3"}), query=b"a=1", headers=MULTIPART)).fields() == {"a": "1", "b": "3"}


def test_a_body_of_another_kind_means_nothing() -> None:
    assert run(read(b"chat_id=5", query=b"a=1", headers={"content-type": "text/plain"})).fields() == {"a": "1"}


@pytest.mark.parametrize(
    ("body", "query", "headers"),
    [
        (b'{"peik_idempotency_key": "k1", "chat_id": 5}', b"", JSON),
        (b'{"chat_id": 5}', b"peik_idempotency_key=k1", JSON),
        (b"chat_id=5&peik_idempotency_key=k1", b"", FORM),
        (multipart({"chat_id": "5", "peik_idempotency_key": "k1"}), b"", MULTIPART),
        (b'{"chat_id": 5}', b"", JSON | {"idempotency-key": "k1"}),
        (b"chat_id=5&peik_idempotency_key=k1", b"", FORM | {"idempotency-key": "other"}),
    ],
)
def test_the_idempotency_key_is_found_and_not_sent_on(body: bytes, query: bytes, headers: Headers) -> None:
    found = run(read(body, query=query, headers=headers))
    assert found.key == "k1"
    assert {name: int(str(value)) for name, value in found.fields().items()} == {"chat_id": 5}


def test_nothing_at_all_is_an_empty_call() -> None:
    assert run(read()) == GatewayParams()
    assert run(read(b"  ", headers=JSON)).fields() == {}


# ---- files ----


def test_files_come_under_their_field_or_the_name_after_attach(tmp_path: Path) -> None:
    media = '[{"type":"photo","media":"attach://one"}]'
    body = multipart({"chat_id": "5", "media": media}, {"one": ("گربه.jpg", b"\0\1\r\n--x" * 999), "two": ("", b"")})
    found = run(read(body, headers=MULTIPART, folder=tmp_path, pieces=77))
    assert found.fields() == {"chat_id": "5", "media": media}
    one, two = found.enclosed
    assert (one.field, one.filename, one.size_bytes) == ("one", "گربه.jpg", 999 * 7)
    assert (tmp_path / one.blob).read_bytes() == b"\0\1\r\n--x" * 999
    assert (two.field, two.filename, two.size_bytes) == ("two", "file", 0)


def test_a_name_in_the_extended_form_is_a_file_too(tmp_path: Path) -> None:
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"document\"; filename*=utf-8''%DA%AF.pdf\r\n\r\n"
    body = f"{head}content\r\n--{BOUNDARY}--\r\n".encode()
    (one,) = run(read(body, headers=MULTIPART, folder=tmp_path)).enclosed
    assert (one.field, one.filename, one.size_bytes) == ("document", "گ.pdf", 7)


def test_of_two_files_under_one_name_the_first_counts_and_none_is_left_behind(tmp_path: Path) -> None:
    twice = multipart({}, {"a": ("1", b"first")}).removesuffix(f"--{BOUNDARY}--\r\n".encode())
    body = twice + multipart({}, {"a": ("2", b"second")})
    (one,) = run(read(body, headers=MULTIPART, folder=tmp_path)).enclosed
    assert one.filename == "1"
    assert [path.name for path in tmp_path.iterdir()] == [one.blob]


def test_a_broken_upload_leaves_no_file_behind(tmp_path: Path) -> None:
    body = multipart({"chat_id": "5"}, {"a": ("1", b"x" * 1000), "b": ("2", b"y" * 1000)})
    for cut, error in ((body[:-600], UnreadableBody), (body[:-1500], UnreadableBody)):
        with pytest.raises(error):
            run(read(cut, headers=MULTIPART, folder=tmp_path))
    with pytest.raises(ClientGone):
        run(read(body[:-600], headers=MULTIPART, folder=tmp_path, is_cut=True))
    with pytest.raises(TooLarge):
        run(read(body, headers=MULTIPART, folder=tmp_path, file_bytes_max=999))
    many = multipart({}, {f"f{number}": ("n", b"") for number in range(FILES_MAX + 1)})
    with pytest.raises(UnreadableBody) as caught:
        run(read(many, headers=MULTIPART, folder=tmp_path))
    assert caught.value.status == 413
    assert not list(tmp_path.iterdir())


# ---- what cannot be read ----


@pytest.mark.parametrize(
    ("body", "query", "headers", "status"),
    [
        (b'{"peik_idempotency_key": "1"', b"", JSON, 400),
        (b"[1]", b"a=1", JSON, 400),
        (b"a=%ff", b"", FORM, 400),
        (b"", b"a=\xff", {}, 400),
        (multipart({"a": "1"}).replace(b"1", b"\xff"), b"", MULTIPART, 400),
        (b"no form at all", b"", MULTIPART, 400),
        (b"x", b"", {"content-type": "multipart/form-data"}, 400),
        (b"x" * (PARAMS_BYTES_MAX + 1), b"", JSON, 413),
        (b"a=" + b"x" * PARAMS_BYTES_MAX, b"", FORM, 413),
        (multipart({"a": "x" * PARAMS_BYTES_MAX, "b": "y"}), b"", MULTIPART, 413),
        (b"&".join(b"a=1" for _ in range(1001)), b"", FORM, 413),
        (gzip.compress(b" " * (PARAMS_BYTES_MAX + 1), mtime=0), b"", JSON | {"content-encoding": "gzip"}, 413),
        (b"not gzip", b"", JSON | {"content-encoding": "gzip"}, 400),
        (gzip.compress(b'{"a": 1}' * 99, mtime=0)[:-9], b"", JSON | {"content-encoding": "gzip"}, 400),
        (b"x", b"", JSON | {"content-encoding": "br"}, 415),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_status(
    body: bytes, query: bytes, headers: Headers, status: int, tmp_path: Path
) -> None:
    with pytest.raises(UnreadableBody) as caught:
        run(read(body, query=query, headers=headers, folder=tmp_path, pieces=3))
    assert caught.value.status == status


def test_a_body_is_refused_before_more_than_its_bound_was_taken() -> None:
    taken = 0

    async def endless() -> dict[str, Any]:
        nonlocal taken
        taken += 65536
        return {"type": "http.request", "body": b" " * 65536, "more_body": True}

    async def story() -> None:
        headers = [(b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
        await read_given(headers, b"", endless, spool=FolderSpool(Path("/nonexistent")), file_bytes_max=1)

    with pytest.raises(UnreadableBody):
        asyncio.run(story())
    assert taken <= PARAMS_BYTES_MAX + 65536


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([JSON, FORM, MULTIPART]), st.binary(max_size=30))
def test_arbitrary_bytes_are_read_or_refused(body: bytes, headers: Headers, query: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = run(read(body, query=query, headers=headers, folder=Path(folder), pieces=3))
        except UnreadableBody:
            return
        assert isinstance(found.params, bytes)


# ---- paths ----

TOKEN = "123:abc"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (f"/bot{TOKEN}/getMe", GatewayPlace(TOKEN, None, "getMe")),
        (f"/bot{TOKEN}/getMe/", GatewayPlace(TOKEN, None, "getMe")),
        (f"/bot{TOKEN}@stats/getUpdates", GatewayPlace(TOKEN, "stats", "getUpdates")),
        (f"/bot{TOKEN}/test/getMe", GatewayPlace(f"{TOKEN}/test", None, "getMe")),
        (f"/bot{TOKEN}@a.b-c/test/getMe", GatewayPlace(f"{TOKEN}/test", "a.b-c", "getMe")),
        (f"/bot{TOKEN}/", GatewayPlace(TOKEN, None, "")),
        (f"/bot{TOKEN}", None),
        ("/bot/getMe", None),
        (f"/bot{TOKEN}@/getMe", None),
        (f"/bot{TOKEN}@a b/getMe", None),
    ],
)
def test_a_path_is_a_token_a_consumer_and_a_method(path: str, place: GatewayPlace | None) -> None:
    assert read_place(path) == place


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (f"/file/bot{TOKEN}/photos/file_1.jpg", (TOKEN, "photos/file_1.jpg")),
        (f"/file/bot{TOKEN}@stats/photos/file_1.jpg", (TOKEN, "photos/file_1.jpg")),
        (f"/file/bot{TOKEN}/test/photos/file_1.jpg", (f"{TOKEN}/test", "photos/file_1.jpg")),
        (f"/file/bot{TOKEN}/اسناد/a b.pdf", (TOKEN, "اسناد/a b.pdf")),
        (f"/file/bot{TOKEN}/../secret", None),
        (f"/file/bot{TOKEN}/a/../../secret", None),
        (f"/file/bot{TOKEN}/a/./b", None),
        (f"/file/bot{TOKEN}/a/..", None),
        (f"/file/bot{TOKEN}//etc/passwd", None),
        (f"/file/bot{TOKEN}/a//b", None),
        (f"/file/bot{TOKEN}/a\\..\\b", None),
        (f"/file/bot{TOKEN}/%2e%2e/secret", None),
        (f"/file/bot{TOKEN}/a\r\nHost: x", None),
        (f"/file/bot{TOKEN}/a\0b", None),
        (f"/file/bot{TOKEN}/", None),
        (f"/file/bot{TOKEN}", None),
    ],
)
def test_a_files_path_never_leads_out_of_its_bot(path: str, place: tuple[str, str] | None) -> None:
    assert read_file_place(path) == place


@pytest.mark.parametrize(
    ("asked", "size", "span"),
    [
        ("bytes=0-0", 10, (0, 0)),
        ("bytes=2-5", 10, (2, 5)),
        ("bytes=2-", 10, (2, 9)),
        ("bytes=2-99", 10, (2, 9)),
        ("bytes=-3", 10, (7, 9)),
        ("bytes=-99", 10, (0, 9)),
        ("bytes=-0", 10, None),
        ("bytes=10-", 10, None),
        ("bytes=5-2", 10, None),
        ("bytes=0-", 0, None),
    ],
)
def test_a_range_is_what_the_file_has_of_it(asked: str, size: int, span: tuple[int, int] | None) -> None:
    assert span_of(asked, size) == span


@pytest.mark.parametrize("query", [b"", b"chat_id=5"])
def test_a_body_of_null_is_an_empty_one(query: bytes) -> None:
    given = run(read(b" null\n", query=query, headers={"content-type": "application/json"}))
    assert given.fields() == ({"chat_id": "5"} if query else {})
