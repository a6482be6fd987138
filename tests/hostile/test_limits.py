"""Too many requests: of strangers, of one key, of somebody who guesses. Each is told to wait in the words of its door, and nobody
else notices."""

from collections.abc import Iterator

import pytest

from tests.hostile.offices import BOT, KEY, OTHER_TOKEN, TOKEN, Heard, Resident, resident

ME = f"/bot{TOKEN}/getMe"


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    # Slow enough that a slow machine refills nothing within a test; each test comes from addresses of its own.
    with resident(rate_ip="1/h burst 5", rate_wrong="1/h burst 3", rate_key="off") as one:
        yield one
        assert one.surprises() == []
        assert one.crashes == []


def bot(peik: Resident, token: str, host: str, method: str = "getMe") -> Heard:
    heard = peik.ask("GET", f"/bot{token}/{method}", host=host)
    assert heard is not None
    return heard


def is_told_to_wait(heard: Heard) -> bool:
    """In problem JSON, with the time in the header."""
    if heard.status != 429:
        return False
    assert heard.headers["content-type"] == "application/problem+json"
    assert heard.json["code"] == "too_many_requests"
    assert int(heard.headers["retry-after"]) >= 1
    return True


def is_told_by_telegram(heard: Heard) -> bool:
    if heard.status != 429:
        return False
    wait_s = heard.json["parameters"]["retry_after"]
    assert heard.json == {
        "ok": False,
        "error_code": 429,
        "description": f"Too Many Requests: retry after {wait_s}",
        "parameters": {"retry_after": wait_s},
    }
    assert heard.headers["retry-after"] == str(wait_s)
    return True


@pytest.mark.parametrize("path", ["/health", "/docs", "/v1/stats", "/nowhere", "/admin/sign-in"])
def test_a_stranger_is_told_to_wait_at_every_door(peik: Resident, path: str) -> None:
    host = f"20.0.0.{len(path)}"
    answers = [peik.rest("GET", path, key=None, host=host) for _ in range(7)]
    assert [is_told_to_wait(one) for one in answers] == [False] * 5 + [True] * 2
    assert not is_told_to_wait(peik.rest("GET", path, key=None, host="20.0.1.1"))


def test_a_stranger_at_the_gateway_hears_it_as_telegram_says_it(peik: Resident) -> None:
    answers = [bot(peik, "nonsense", "20.0.2.1") for _ in range(7)]
    assert [one.status for one in answers] == [401] * 5 + [429] * 2
    assert is_told_by_telegram(answers[-1])
    file = peik.ask("GET", "/file/botnonsense/x", host="20.0.2.1")
    assert file is not None
    assert is_told_by_telegram(file)


def test_a_customer_of_ipv6_is_one_stranger(peik: Resident) -> None:
    answers = [peik.rest("GET", "/health", key=None, host=f"2001:db8::{number}") for number in range(1, 8)]
    assert [is_told_to_wait(one) for one in answers] == [False] * 5 + [True] * 2


def test_who_has_shown_a_key_or_a_token_is_no_stranger(peik: Resident) -> None:
    for host, known in (("20.0.3.1", "/v1/stats"), ("20.0.3.2", ME)):
        assert peik.rest("GET", known, host=host).status == 200
        assert {peik.rest("GET", "/health", key=None, host=host).status for _ in range(20)} == {200}
        assert {bot(peik, TOKEN, host).status for _ in range(20)} == {200}


def test_who_guesses_keys_is_stopped_and_does_not_learn_the_right_one(peik: Resident) -> None:
    host = "20.0.4.1"
    guesses = [peik.rest("GET", "/v1/stats", key=f"guess-{number}", host=host) for number in range(4)]
    assert [one.status for one in guesses] == [401, 401, 401, 429]
    right = peik.rest("GET", "/v1/stats", host=host)
    assert is_told_to_wait(right)
    assert right.body == guesses[-1].body
    assert peik.rest("GET", "/v1/stats", host="20.0.4.2").status == 200


def test_who_guesses_tokens_is_stopped_before_telegram_is_asked(peik: Resident) -> None:
    host = "20.0.5.1"
    asked = peik.telegram.counters.answers[401]
    guesses = [bot(peik, f"{BOT}:AAguess{number}", host) for number in range(4)]
    assert [one.status for one in guesses] == [401, 401, 401, 429]
    assert is_told_by_telegram(guesses[-1])
    assert bot(peik, OTHER_TOKEN, host).status == 200, "a token cannot be guessed, and its bot may be a neighbour"
    assert is_told_by_telegram(bot(peik, f"{BOT}:AAguess9", host))
    assert peik.telegram.counters.answers[401] - asked == 3
    assert bot(peik, TOKEN, "20.0.5.2").status == 200


def test_keys_and_tokens_are_guessed_by_one_and_the_same(peik: Resident) -> None:
    host = "20.0.6.1"
    answers = [
        peik.rest("GET", "/v1/stats", key="guess", host=host).status,
        bot(peik, f"{BOT}:AAguess11", host).status,
        peik.rest("POST", "/v1/keys", key="guess 2", json={}, host=host).status,
        peik.rest("GET", "/v1/stats", key="guess 3", host=host).status,
    ]
    assert answers == [401, 401, 401, 429]


def test_neighbours_of_a_program_with_a_wrong_key_notice_nothing(peik: Resident) -> None:
    """Behind one address, as containers of one machine are."""
    host = "20.0.7.1"
    assert peik.rest("GET", "/v1/stats", host=host).status == 200  # so that nobody there is a stranger
    assert {peik.rest("GET", "/v1/stats", key="revoked", host=host).status for _ in range(30)} == {401}
    assert bot(peik, OTHER_TOKEN, host).status == 200, "a bot that is new there"
    for number in range(9):
        peik.rest("GET", "/v1/stats", key=f"guess {number}", host=host)
    assert peik.rest("GET", "/v1/stats", host=host).status == 200
    assert bot(peik, OTHER_TOKEN, host).status == 200


def test_a_key_with_a_rate_of_its_own_is_limited_by_it_and_others_are_not(peik: Resident) -> None:
    made = peik.rest(
        "POST", "/v1/keys", json={"name": "shop", "scopes": ["send"], "rate": "1/h burst 4"}, host="20.0.8.1"
    )
    assert (made.status, made.json["rate"]) == (201, "1/h burst 4")
    key = made.json["key"]
    (shown,) = [one for one in peik.rest("GET", "/v1/keys").json["keys"] if one["id"] == made.json["id"]]
    assert shown["rate"] == "1/h burst 4"
    letter = {"method": "sendMessage", "params": {"chat_id": 5, "text": "x"}, "bot_id": str(BOT)}
    before = peik.letters()
    answers = [
        peik.rest("POST", "/v1/letters", key=key, json=letter, host=f"20.0.8.{number}") for number in range(2, 8)
    ]
    assert [one.status for one in answers] == [202] * 4 + [429] * 2
    assert is_told_to_wait(answers[-1])
    assert peik.letters() - before == 4, "nothing of what was refused is kept"
    assert peik.rest("GET", "/v1/stats", host="20.0.8.1").status == 200


def test_a_request_is_counted_once_even_if_the_audit_log_asks_whose_it_is(peik: Resident) -> None:
    rate = {"name": "once", "scopes": ["admin"], "rate": "1/h burst 3"}
    key = peik.rest("POST", "/v1/keys", json=rate).json["key"]
    answers = [peik.rest("PATCH", f"/v1/bots/{BOT}", key=key, json={"paused": False}).status for _ in range(4)]
    assert answers == [200, 200, 200, 429]


@pytest.mark.parametrize("rate", ["fast", "-1/s", "1/s burst 0", "", "9" * 5000])
def test_a_rate_that_is_none_is_refused(peik: Resident, rate: str) -> None:
    heard = peik.rest("POST", "/v1/keys", json={"name": "shop", "scopes": ["send"], "rate": rate})
    assert (heard.status, heard.json["code"]) == (422, "bad_rate")


def test_a_limit_for_all_keys_holds_for_bots_too_and_one_key_may_be_free_of_it() -> None:
    with resident(rate_key="1/h burst 3") as peik:
        assert [bot(peik, TOKEN, "127.0.0.1").status for _ in range(4)] == [200, 200, 200, 429]
        assert is_told_by_telegram(bot(peik, TOKEN, "127.0.0.1"))
        assert bot(peik, OTHER_TOKEN, "127.0.0.1").status == 200
        made = peik.rest("POST", "/v1/keys", json={"name": "bulk", "scopes": ["read"], "rate": "off"}).json
        assert made["rate"] == "off"
        assert [peik.rest("GET", "/v1/stats").status for _ in range(3)] == [200, 200, 429]
        assert {peik.rest("GET", "/v1/stats", key=made["key"]).status for _ in range(20)} == {200}
        assert KEY not in peik.log.getvalue()
