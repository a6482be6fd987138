"""Whoever may name an address to Peik, and what he would reach inside with it: hooks of letters and keys, pushes by REST and by
setWebhook. Each is refused as it is written; what a name leads to is looked at when it is called (tests/telegram)."""

import urllib.parse
from collections.abc import Iterator

import pytest

from peik.core.address import AddressReach
from peik.settings.config import load
from tests.hostile.offices import BOT, TOKEN, Heard, Resident, resident

# One machine, or one network, in the forms that resolvers and libraries have been fooled with.
INSIDE = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://localhost:6379/",
    "http://LOCALHOST./",
    "http://x.localhost/",
    "http://0.0.0.0/",
    "http://10.0.0.5/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[fe80::1]/",
    "http://[fd00::1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://user@127.0.0.1/",
    "http://example.com@127.0.0.1/",
    "http://224.0.0.1/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "http://example.com\\@127.0.0.1/",
    "http://127.0.0.1%2f@example.com/",
    "http://①②⑦.⓪.⓪.①/",
]


@pytest.fixture(scope="module")
def peik() -> Iterator[Resident]:
    with resident(pushes_allow_private="off") as one:
        yield one
        assert one.surprises() == []


def set_webhook(peik: Resident, url: str, token: str = TOKEN) -> Heard:
    heard = peik.ask("POST", f"/bot{token}/setWebhook", query=urllib.parse.urlencode({"url": url}).encode())
    assert heard is not None
    return heard


@pytest.mark.parametrize("url", INSIDE)
def test_no_address_inside_is_taken_at_any_door(peik: Resident, url: str) -> None:
    letter = {"method": "sendMessage", "params": {"chat_id": 5, "text": "x"}, "bot_id": str(BOT), "webhook_url": url}
    answers = [
        peik.rest("POST", "/v1/letters", json=letter),
        peik.rest("POST", "/v1/letters/batch", json={"letters": [letter]}),
        peik.rest("POST", "/v1/keys", json={"name": "shop", "scopes": ["send"], "webhook_url": url}),
        peik.rest("PUT", f"/v1/consumers/{BOT}/mine", json={"url": url}),
    ]
    assert [one.status for one in answers] == [422] * 4
    assert {one.json["code"] for one in answers} <= {"bad_webhook_url", "private_webhook_url"}
    assert set_webhook(peik, url).status == 400
    kept = peik.state()
    assert [row for table in ("keys", "consumers", "letters") for row in kept[table] if url in map(str, row)] == []


def test_an_address_outside_is_taken(peik: Resident) -> None:
    """And so the test above can fail."""
    assert peik.rest("PUT", f"/v1/consumers/{BOT}/outside", json={"url": "https://bot.example/hook"}).status < 300
    assert set_webhook(peik, "https://bot.example/hook").status == 200
    gone = peik.ask("POST", f"/bot{TOKEN}/deleteWebhook")
    assert gone is not None
    assert gone.status == 200


STRANGER = "7000009:AAstranger"
METADATA = ["http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/", "http://[fd00:ec2::254]/"]


@pytest.fixture(scope="module")
def at_home() -> Iterator[Resident]:
    """As it is by default: it listens on this machine, and its gateway is open. A proxy on the same host is not to be seen."""
    with resident() as one:
        one.telegram.bot(STRANGER)  # he has it from @BotFather, as everybody may
        yield one
        assert one.surprises() == []


def test_a_bot_that_came_by_itself_is_pushed_to_the_open_internet_only(at_home: Resident) -> None:
    for url in INSIDE:
        assert set_webhook(at_home, url, STRANGER).status == 400, url
    assert set_webhook(at_home, "https://bot.example/hook", STRANGER).status == 200
    assert [url for url in INSIDE if set_webhook(at_home, url, TOKEN).status == 200] != []  # the owner's may


def test_a_name_that_leads_inside_is_judged_when_it_is_called_and_by_whose_bot_it_is(at_home: Resident) -> None:
    assert set_webhook(at_home, "https://bot.example/hook", STRANGER).status == 200  # it has come
    reach_of = at_home.peik.inbox.service._reach_of
    assert at_home.run(reach_of(BOT)) is AddressReach.INSIDE
    assert at_home.run(reach_of(int(STRANGER.partition(":")[0]))) is AddressReach.PUBLIC


def test_whoever_adds_it_by_its_token_makes_it_his_own(at_home: Resident) -> None:
    own = "7000010:AAmine"
    at_home.telegram.bot(own)
    assert set_webhook(at_home, "http://127.0.0.1:8080/", own).status == 400
    assert at_home.rest("POST", "/v1/bots", json={"token": own, "inbound": "off"}).status < 300
    assert set_webhook(at_home, "http://127.0.0.1:8080/", own).status == 200


@pytest.mark.parametrize("url", METADATA)
def test_metadata_services_are_not_even_for_the_owners_bots(at_home: Resident, url: str) -> None:
    assert set_webhook(at_home, url, TOKEN).status == 400
    assert at_home.rest("PUT", f"/v1/consumers/{BOT}/mine", json={"url": url}).status == 422


def test_by_default_pushes_lead_inside_only_where_no_stranger_can_ask_for_it() -> None:
    def reach(*, is_guest: bool = False, **settings: str) -> AddressReach:
        return load(settings, environment={}).pushes_reach(is_guest=is_guest)

    for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0"):
        assert reach(is_guest=True, host=host) is AddressReach.PUBLIC
        assert reach(is_guest=True, host=host, gateway_open="off") is AddressReach.PUBLIC
    assert reach() is reach(host="localhost") is reach(host="::1") is AddressReach.INSIDE
    assert reach(host="0.0.0.0") is reach(host="peik.example") is AddressReach.PUBLIC
    assert reach(host="0.0.0.0", gateway_open="off") is AddressReach.INSIDE
    for is_guest in (False, True):
        assert reach(host="0.0.0.0", pushes_allow_private="on", is_guest=is_guest) is AddressReach.ANYWHERE
        assert reach(pushes_allow_private="off", is_guest=is_guest) is AddressReach.PUBLIC
