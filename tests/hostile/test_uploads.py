"""Files that are sent to be refused, cut off or blown up: they take little memory, no other folder than the spool, and nothing of
them stays there."""

import gzip
import tempfile
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from peik.web.bodies import FIELDS_MAX, RATIO_FREE_BYTES, RATIO_MAX, STEP_BYTES
from tests.hostile.offices import BOT, KEY, TOKEN, Heard, Resident, kept_below, resident

MB = 1 << 20
FORM = b"multipart/form-data; boundary=b"
GATEWAY = f"/bot{TOKEN}/sendDocument"
REST = "/v1/letters"
GZIP = (b"content-encoding", b"gzip")


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    with resident(upload_max="8M") as one:
        yield one
        assert one.surprises() == []
        assert one.crashes == []


def file(content: bytes, name: str = "document") -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="%b"; filename="a"\r\n\r\n%b\r\n' % (name.encode(), content)


def field(name: str, value: str) -> bytes:
    return b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), value.encode())


def post(
    peik: Resident, path: str, body: bytes, *headers: tuple[bytes, bytes], kind: bytes = FORM, is_cut: bool = False
) -> Heard | None:
    given = [(b"content-type", kind), (b"authorization", f"Bearer {KEY}".encode()), *headers]
    if not is_cut:
        given.append((b"content-length", b"%d" % len(body)))
    pieces = [body[at : at + 65536] for at in range(0, len(body), 65536)]
    return peik.ask("POST", path, headers=given, body=pieces, is_cut=is_cut)


def bomb(size: int) -> bytes:
    deflated = zlib.compressobj(9, wbits=31)
    return deflated.compress(file(bytes(size)) + b"--b--\r\n") + deflated.flush()


@pytest.mark.parametrize("kind", [FORM, b"application/json", b"application/x-www-form-urlencoded"])
def test_what_is_compressed_is_inflated_in_steps_and_refused_in_time(kind: bytes) -> None:
    body = bomb(50 * MB)
    assert len(body) < 60_000
    with resident() as peik:  # which takes files of two gigabytes
        with kept_below(16 * MB), ThreadPoolExecutor(8) as many:
            answers = list(many.map(lambda _: post(peik, GATEWAY, body, GZIP, kind=kind), range(8)))
        assert [heard and heard.status for heard in answers] == [413] * 8
        assert peik.spooled() == set()


@pytest.mark.parametrize("size", [0, 1, STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1, 3 * STEP_BYTES, 5 * STEP_BYTES + 7])
def test_what_is_compressed_honestly_comes_in_as_it_was(peik: Resident, size: int) -> None:
    said = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    before = len(peik.telegram.sent.texts(5))
    params = b'{"chat_id":5,"text":"x","reply_markup":"%b"}' % said[: MB // 2]
    heard = post(peik, f"/bot{TOKEN}/sendMessage", gzip.compress(params), GZIP, kind=b"application/json")
    assert heard is not None
    assert heard.status in (200, 400), "Telegram itself may find fault with such a markup"
    body = field("chat_id", "5") + file(said) + b"--b--\r\n"
    heard = post(peik, GATEWAY, gzip.compress(body), GZIP)
    assert heard is not None
    assert heard.status == (200 if size else 400), heard.body
    assert len(peik.telegram.sent.texts(5)) >= before


def test_what_is_a_thousandth_of_itself_is_taken_up_to_a_bound(peik: Resident) -> None:
    small, large = gzip.compress(file(bytes(RATIO_FREE_BYTES // 2))), gzip.compress(file(bytes(6 * MB)))
    before = peik.spooled()
    assert 6 * MB / len(large) > RATIO_MAX
    for body, status in ((small, 400), (large, 413)):  # the first is no whole form
        heard = post(peik, GATEWAY, body, GZIP)
        assert heard is not None
        assert heard.status == status
    assert peik.spooled() <= before


WHOLE = field("chat_id", "5") + field("method", "sendDocument") + field("params", '{"chat_id":5}') + file(bytes(MB))
REFUSED = {
    "too large": WHOLE + file(bytes(9 * MB), "second") + b"--b--\r\n",
    "too many files": WHOLE + b"".join(file(b"x", f"file {number}") for number in range(60)) + b"--b--\r\n",
    "too many fields": WHOLE + field("same", "x") * (FIELDS_MAX + 1) + b"--b--\r\n",
    "too long a head of a part": WHOLE + field("x" * 5000, "x") + b"--b--\r\n",
    "no name": WHOLE + b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n",
    "no text": WHOLE + b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n--b--\r\n',
    "cut off in a part": WHOLE[:-200_000],
    "a wrong bot": WHOLE + field("bot_id", "1") + b"--b--\r\n",
    "an unknown field": file(bytes(MB)) + field("letter", '{"method":"sendDocument","unknown":1}') + b"--b--\r\n",
    "no letter": file(bytes(MB)) + field("letter", "no JSON") + b"--b--\r\n",
}  # fmt: skip


@pytest.mark.parametrize("path", [GATEWAY, REST])
@pytest.mark.parametrize("what", REFUSED)
def test_nothing_stays_of_an_upload_that_is_refused(peik: Resident, what: str, path: str) -> None:
    before, letters = peik.spooled(), peik.letters()
    heard = post(peik, path, REFUSED[what])
    assert heard is not None
    if path == REST or what not in (
        "a wrong bot",
        "an unknown field",
        "no letter",
    ):  # of which the gateway knows nothing
        assert 400 <= heard.status < 500, heard.body
        assert (peik.spooled() - before, peik.letters()) == (set(), letters)  # others may be sent meanwhile


@pytest.mark.parametrize("path", [GATEWAY, REST])
def test_nothing_stays_of_an_upload_that_breaks_off(peik: Resident, path: str) -> None:
    before, letters = peik.spooled(), peik.letters()
    for size in (0, 10, 200, len(WHOLE) // 2, len(WHOLE)):
        post(peik, path, WHOLE[:size], is_cut=True)
        assert (peik.spooled() - before, peik.letters()) == (set(), letters)  # others may be sent meanwhile


def test_uploads_over_rest_go_straight_to_the_spool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with resident() as peik:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))  # a temporary folder that takes nothing
        # Not to be sent yet: the simulated Telegram is in this process, and what it keeps of a file would count.
        later = int(time.time()) + 3600
        terms = f'{{"method":"sendDocument","params":{{"chat_id":5}},"bot_id":{BOT},"send_at":{later}}}'
        letter = field("letter", terms)
        body = letter + file(bytes(12 * MB)) + b"--b--\r\n"
        with kept_below(16 * MB):
            heard = post(peik, REST, body)
        monkeypatch.undo()
        assert heard is not None
        assert heard.status == 202, heard.body
