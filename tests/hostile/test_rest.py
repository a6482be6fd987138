"""REST requests that once made Peik fail, or that no schema makes up: each is refused with a problem, and nothing is kept."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile.offices import BOT, KEY, TOKEN, Heard, Resident, resident

NEST = b"[" * 20_000 + b"]" * 20_000
# Moments that an RFC 3339 text can name and no calendar can show in UTC, or that a number could not name either.
NO_MOMENTS = ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z"]
LETTER = {"bot_id": str(BOT), "method": "sendMessage", "params": {"chat_id": 5, "text": "x"}}


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    with resident() as one:
        one.ask("GET", f"/bot{TOKEN}/getUpdates")  # the default consumer is there from now on
        yield one
        assert one.surprises() == []
        assert one.crashes == []


def raw(peik: Resident, verb: str, path: str, body: bytes, kind: bytes = b"application/json") -> Heard:
    headers = [(b"authorization", b"Bearer " + KEY.encode()), (b"content-type", kind)]
    heard = peik.ask(verb, path, headers=headers, body=body)
    assert heard is not None
    return heard


BODIES = {
    "/v1/letters": (b'{"method":"sendMessage","params":%b}', b'{"method":"sendMessage","metadata":%b}', b"%b"),
    "/v1/letters/batch": (b'{"letters":[{"method":"x","params":%b}]}', b'{"letters":%b}', b"%b"),
    "/v1/keys": (b'{"name":%b}', b"%b"),
    "/v1/arrivals/replay": (b'{"since":%b}', b"%b"),
}


@pytest.mark.parametrize("path", BODIES)
def test_json_that_is_nested_without_end_is_refused(peik: Resident, path: str) -> None:
    for form in BODIES[path]:
        heard = raw(peik, "POST", path, form.replace(b"%b", NEST))
        assert heard.status == 422, heard
        assert heard.json["code"] in ("bad_json", "bad_request")


def test_a_letter_in_a_form_is_read_as_strictly(peik: Resident) -> None:
    before = peik.letters()
    for letter in (b'{"method":"sendMessage","params":' + NEST + b"}", b"\xff", b"", b"null", b"9" * 5000):
        head = b'--b\r\nContent-Disposition: form-data; name="letter"\r\n\r\n'
        file = b'\r\n--b\r\nContent-Disposition: form-data; name="document"; filename="a"\r\n\r\ncontent\r\n--b--\r\n'
        heard = raw(peik, "POST", "/v1/letters", head + letter + file, b"multipart/form-data; boundary=b")
        assert heard.status == 422, heard
    assert peik.letters() == before
    assert peik.spooled() == set()


def test_a_form_that_breaks_off_is_not_a_letter_without_its_file(peik: Resident) -> None:
    before = peik.letters()
    letter = b'{"bot_id":7000001,"method":"sendDocument","params":{"chat_id":5}}'
    whole = (
        b'--b\r\nContent-Disposition: form-data; name="letter"\r\n\r\n%b\r\n'
        b'--b\r\nContent-Disposition: form-data; name="document"; filename="f"\r\n\r\ncontent\r\n--b--\r\n' % letter
    )
    for cut in range(3, 120):
        heard = raw(peik, "POST", "/v1/letters", whole[:-cut], b"multipart/form-data; boundary=b")
        assert (heard.status, heard.json["code"]) == (422, "bad_multipart"), cut
    assert peik.letters() == before
    assert raw(peik, "POST", "/v1/letters", whole, b"multipart/form-data; boundary=b").status == 202


KINDS = [b"multipart/form-data; boundary=b", b"multipart/form-data", b"multipart/form-data; boundary=",
    b"multipart/form-data; boundary=" + b"b" * 300, b"multipart/form-data; boundary=b; charset=nonsense",
    b"multipart/form-data; boundary=\xff", b'multipart/form-data; boundary="b']  # fmt: skip
_heads = st.sampled_from(
    [
        b'form-data; name="letter"',
        b'form-data; name="document"; filename="f"',
        b"form-data",
        b'form-data; name="\xff"',
        b"",
    ]
)
_contents = st.binary(max_size=30) | st.just(
    b'{"bot_id":7000001,"method":"sendMessage","params":{"chat_id":5,"text":"x"}}'
)


@settings(max_examples=300, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(KINDS), st.lists(st.tuples(_heads, _contents), max_size=3), st.data())
def test_any_form_is_a_letter_or_a_problem_and_leaves_no_file(
    peik: Resident, kind: bytes, parts: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    body = b"".join(b"--b\r\nContent-Disposition: %b\r\n\r\n%b\r\n" % part for part in parts) + b"--b--\r\n"
    at = data.draw(st.integers(0, len(body)))
    body = data.draw(st.sampled_from([body, body[:at], body[:at] + b"\0\r" + body[at + 1 :]]))
    before, spooled = peik.letters(), peik.spooled()
    heard = raw(peik, "POST", "/v1/letters", body, kind)
    if heard.status == 202:
        assert peik.letters() == before + 1
        return
    assert heard.status == 422, heard
    assert heard.json["code"]
    assert peik.letters() == before
    assert peik.spooled() <= spooled


@pytest.mark.parametrize("moment", NO_MOMENTS)
def test_a_moment_that_cannot_be_shown_is_not_kept(peik: Resident, moment: str) -> None:
    """Kept once, it would fail every list with it in it, for ever."""
    for name in ("send_at", "expires_at"):
        assert peik.rest("POST", "/v1/letters", json={**LETTER, name: moment}).json["code"] == "bad_time"
    key = {"name": "shop", "scopes": ["read"], "expires_at": moment}
    assert peik.rest("POST", "/v1/keys", json=key).json["code"] == "bad_time"
    held = peik.rest("PATCH", f"/v1/chats/{BOT}/5", json={"held_until": moment})
    assert held.json["code"] == "bad_time"
    escaped = moment.replace("+", "%2B")
    for path in ("/v1/letters", "/v1/dead", "/v1/arrivals"):
        assert peik.rest("GET", path, query=f"since={escaped}").json["code"] == "bad_time"
    for path in ("/v1/letters", "/v1/keys", f"/v1/chats?bot_id={BOT}"):
        assert peik.rest("GET", path.partition("?")[0], query=path.partition("?")[2]).status == 200


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "", "x", "1e2", "00000000100001", "000000001" + "0" * 5000, "٣"])
def test_no_limit_is_larger_than_the_largest(peik: Resident, limit: str) -> None:
    for path in ("/v1/letters", "/v1/dead", "/v1/arrivals", "/v1/chats", "/v1/lanes"):
        heard = peik.rest("GET", path, query=f"bot_id={BOT}&limit={limit}")
        assert (heard.status, heard.json["code"]) == (422, "bad_limit")
    assert peik.rest("GET", "/v1/letters", query="limit=0001000").status == 200


@pytest.mark.parametrize("number", [2**63, 10**30, -(10**30), 2**53, -1])
def test_numbers_beyond_all_bounds_are_refused_or_mean_nothing(peik: Resident, number: int) -> None:
    for name in ("priority", "attempts", "backoff_ms", "timeout_ms"):
        assert peik.rest("POST", "/v1/letters", json={**LETTER, name: number}).status in (202, 422)
    for name in ("number", "update_id"):
        body = {"consumer": "default", "bot_id": BOT, name: number}
        assert peik.rest("POST", "/v1/arrivals/ack", json=body).status in (200, 422)
    seen = {"bot_id": BOT, "messages": [{"chat_id": number, "message_id": number}]}
    assert peik.rest("POST", "/v1/arrivals/seen", json=seen).status in (200, 422)
    assert peik.rest("PATCH", f"/v1/bots/{BOT}", json={"limits": {"group_per_min": number}}).status == 422


@pytest.mark.parametrize("path", ["/v1/arrivals", "/v1/arrivals/dead"])
@pytest.mark.parametrize("name", ["%C2%80%C2%89", "a%20b", "x" * 65])
def test_a_consumer_that_cannot_be_is_refused_and_not_looked_for(peik: Resident, path: str, name: str) -> None:
    heard = peik.rest("GET", path, query=f"consumer={name}")
    assert (heard.status, heard.json["code"]) == (422, "bad_consumer")
