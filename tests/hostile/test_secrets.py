"""The other two credentials: a bot's token at the gateway, and the secret that Telegram shows with every push."""

from collections.abc import Iterator

import msgspec
import pytest

from tests.hostile.offices import BOT, KEY, OTHER_BOT, OTHER_TOKEN, TOKEN, Heard, Pairs, Resident, resident

SECRET = b"x-telegram-bot-api-secret-token"
UPDATE = msgspec.json.encode(
    {"update_id": 7, "message": {"message_id": 1, "chat": {"id": 5, "type": "private"}, "date": 1}}
)


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    """Serves only the bots that were added, and has its updates pushed."""
    with resident(gateway_open="off", public_url="https://bot.example.com") as one:
        for bot in (BOT, OTHER_BOT):
            assert one.rest("PATCH", f"/v1/bots/{bot}", json={"inbound": "webhook"}).status == 200
        while not all(one.telegram.bots[bot].webhook for bot in (BOT, OTHER_BOT)):
            assert one.rest("GET", "/v1/stats").status == 200  # Peik is about to set them
        yield one
        assert one.surprises() == []
        assert one.crashes == []
        assert not any(token.partition(":")[2] in one.log.getvalue() for token in (TOKEN, OTHER_TOKEN))


def push(peik: Resident, bot_id: object, headers: Pairs, *, query: str = "", body: bytes = UPDATE) -> Heard:
    heard = peik.ask("POST", f"/webhook/{bot_id}", headers=headers, query=query.encode(), body=body)
    assert heard is not None
    return heard


def secret_of(peik: Resident, bot_id: int) -> bytes:
    return peik.run(peik.peik.inbox.receiver.pushed.secret(bot_id)).encode()


# ---- pushes ----

WRONG = ["absent", "empty", "another bot's", "most of it", "it and more", "upper case", "bytes", "long", "the key", "a bearer",
    "the query", "a token"]  # fmt: skip


def shown(peik: Resident, what: str) -> tuple[Pairs, str]:
    secret = secret_of(peik, BOT)
    values = {
        "empty": b"",
        "another bot's": secret_of(peik, OTHER_BOT),
        "most of it": secret[:-1],
        "it and more": secret + b"x",
        "upper case": secret.swapcase(),
        "bytes": b"\xff\x00" + secret,
        "long": secret * 1000,
        "the key": KEY.encode(),
        "a token": TOKEN.encode(),
    }
    if what == "a bearer":
        return [(b"authorization", b"Bearer " + secret)], ""
    if what == "the query":
        return (), f"{SECRET.decode()}={secret.decode()}&secret_token={secret.decode()}"
    return ([(SECRET, values[what])] if what in values else []), ""


@pytest.mark.parametrize("what", WRONG)
def test_a_push_with_another_secret_is_refused_and_stores_nothing(peik: Resident, what: str) -> None:
    headers, query = shown(peik, what)
    before = peik.state()
    heard = push(peik, BOT, headers, query=query)
    assert (heard.status, heard.json["code"]) == (401, "wrong_secret")
    # One with a webhook, one without, and one that does not exist are the same to whoever asks.
    nobody, no_number = push(peik, 42, headers, query=query), push(peik, "x", headers, query=query)
    assert (nobody.status, nobody.body) == (no_number.status, no_number.body) == (heard.status, heard.body)
    assert not any(secret_of(peik, bot) in answer.body for bot in (BOT, OTHER_BOT) for answer in (heard, nobody))
    assert peik.state() == before


def test_the_body_of_a_push_without_its_secret_is_not_even_read(peik: Resident) -> None:
    for body in (b"{", b"x" * (2 << 20), b""):
        heard = push(peik, BOT, (), body=body)
        assert (heard.status, heard.json["code"]) == (401, "wrong_secret")


def test_the_right_secret_opens_for_its_own_bot_alone(peik: Resident) -> None:
    """And so the tests above can fail."""
    for bot in (BOT, OTHER_BOT):
        assert push(peik, bot, [(SECRET, secret_of(peik, bot))]).status == 200
    arrivals = peik.rest("GET", "/v1/arrivals").json["arrivals"]
    assert sorted(arrival["bot_id"] for arrival in arrivals) == [str(BOT), str(OTHER_BOT)]
    for bot in (BOT, OTHER_BOT):
        while not peik.rest("GET", "/v1/contacts", query=f"bot_id={bot}").json["contacts"]:
            pass  # the census is behind the intake, and must not write while another test compares


# ---- tokens ----

SEND = b'{"chat_id":5,"text":"x"}'
JSON: Pairs = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(SEND))]
KEYED: Pairs = [*JSON, (b"authorization", b"Bearer " + KEY.encode())]
METHODS = [
    "sendMessage",
    "getMe",
    "getUpdates",
    "setWebhook",
    "deleteWebhook",
    "getWebhookInfo",
    "logOut",
    "nothing",
    "getFile",
]


@pytest.mark.parametrize("method", METHODS)
def test_a_token_that_is_not_ours_opens_nothing_and_does_not_tell_which_bots_there_are(
    peik: Resident, method: str
) -> None:
    before = peik.state()
    unknown, known = (
        [
            peik.ask("POST", f"/bot{bot}:{secret}{at}/{method}", headers=KEYED, body=SEND)
            for secret in ("AAwrong", "AAtesT", "AAother" if bot == BOT else "AAtest", "AAtestx", KEY)
            for at in ("", "@shop", "/test")
        ]
        for bot in (4242, BOT)
    )
    answers = {(heard.status, heard.body) for heard in (*unknown, *known) if heard is not None}
    assert answers == {(401, b'{"ok":false,"error_code":401,"description":"Unauthorized"}')}
    assert peik.state() == before


@pytest.mark.parametrize("token", [f"{BOT}:AAwrong", "4242:AAwrong", f"{BOT}", "x", f"{BOT}:", f"{OTHER_BOT}:AAtest"])
def test_no_file_is_served_to_a_token_that_is_not_ours(peik: Resident, token: str) -> None:
    heard = peik.ask("GET", f"/file/bot{token}/photos/file_1.jpg")
    assert heard is not None
    assert heard.status == 401
    assert heard.json["ok"] is False


def test_the_token_does_not_open_rest_and_the_key_does_not_open_the_gateway(peik: Resident) -> None:
    assert peik.rest("GET", "/v1/stats", key=TOKEN).status == 401
    heard = peik.ask("GET", f"/bot{KEY}/getMe", headers=[(b"authorization", b"Bearer " + KEY.encode())])
    assert heard is not None
    assert heard.status == 401


def test_one_bots_token_sees_nothing_of_another_bot(peik: Resident) -> None:
    marked = b'{"chat_id":5,"text":"only for the first"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(marked))]
    sent = peik.ask("POST", f"/bot{TOKEN}/sendMessage", headers=headers, body=marked)
    assert sent is not None
    assert sent.status == 200
    for method in METHODS:
        heard = peik.ask("POST", f"/bot{OTHER_TOKEN}/{method}", headers=JSON, body=SEND)
        assert heard is not None
        assert b"only for the first" not in heard.body
        assert str(BOT).encode() not in heard.body


def test_a_token_that_telegram_revoked_opens_nothing_once_telegram_has_said_so(peik: Resident) -> None:
    async def revoke() -> None:
        peik.telegram.revoke(OTHER_BOT)

    def sent() -> Heard:
        heard = peik.ask("POST", f"/bot{OTHER_TOKEN}/sendMessage", headers=JSON, body=SEND)
        assert heard is not None
        return heard

    peik.run(revoke())
    while (heard := sent()).status != 401:
        assert heard.status in (200, 502, 504)
    before = peik.letters()
    assert sent().json == {"ok": False, "error_code": 401, "description": heard.json["description"]}
    assert peik.letters() == before
