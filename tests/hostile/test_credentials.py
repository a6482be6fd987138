"""Every route there is, with every credential that should not open it: refused in one shape, no data, and nothing changes.

Routes are read from the application itself, so that a new one is tried by being added.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from peik.app.rest import OPERATIONS
from peik.notifications.model import USERS, User, filed
from tests.hostile.offices import BOT, KEY, OTHER_BOT, Heard, Pairs, Resident, resident

# What anybody may see, and why. Everything else needs a key.
PUBLIC = {
    ("GET", "/health"): "a load balancer asks it, and it names no bot, no chat and no token",
    ("GET", "/ready"): "the same",
    ("GET", "/openapi.json"): "the same for every Peik",
    ("GET", "/docs"): "the same for every Peik",
    ("HEAD", "/openapi.json"): "as GET",
    ("HEAD", "/docs"): "as GET",
}
DRY_RUNS = ("estimateBroadcast", "previewSchedule")
PUSHES = "/webhook/{bot_id}"  # has a secret of its own: see test_secrets.py
VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
HIDDEN = "what the first bot was told"  # in letters and arrivals of BOT
MISSING = "999999"
PROBLEM = {"type", "title", "status", "code", "detail"}


class Town(msgspec.Struct):
    """A Peik with letters, a dead letter and keys of two bots."""

    peik: Resident
    ids: dict[str, str]  # what the names in paths stand for: things of the first bot
    keys: dict[str, str]
    documented: dict[tuple[str, str], Any]  # what the document says of a verb and a path

    def example_of(self, verb: str, path: str) -> dict[str, Any] | None:
        row = self.documented.get((verb, path), {})
        return dict(row["requestBody"]["content"]["application/json"]["example"]) if "requestBody" in row else None

    def routes(self) -> list[str]:
        return [route.path for route in self.peik.rest_app.routes]

    def path(self, template: str, **others: str) -> str:
        return re.sub(r"{(\w+)(:\w+)?}", lambda name: {**self.ids, **others}[name[1]], template)

    def ask(self, verb: str, path: str, headers: Pairs = (), *, query: str = "", json: object = None) -> Heard:
        body = b"" if json is None else msgspec.json.encode(json)
        heard = self.peik.ask(verb, path, headers=headers, query=query.encode(), body=body)
        assert heard is not None
        return heard


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    with resident() as peik:

        def made(path: str, **body: object) -> Any:
            heard = peik.rest("POST", path, json=body)
            assert heard.status < 300, heard
            return heard.json

        texts = {bot: HIDDEN if bot == BOT else "hello" for bot in (BOT, OTHER_BOT)}
        ids = {}
        for bot, text in texts.items():
            for params in ({"chat_id": 5, "text": text}, {"chat_id": 5, "text": text, "parse_mode": "nonsense"}):
                letter = made("/v1/letters", bot_id=bot, method="sendMessage", params=params)["id"]
                while not peik.rest("GET", f"/v1/letters/{letter}", query="wait=5s").json["finished_at"]:
                    pass
                ids.setdefault("letter_id", letter)
        keys = {
            "other bot": made("/v1/keys", name="other", scopes=["admin"], bot_ids=[OTHER_BOT]),
            "reader": made("/v1/keys", name="reader", scopes=["read"]),
            "sender": made("/v1/keys", name="sender", scopes=["send"]),
            "revoked": made("/v1/keys", name="revoked", scopes=["admin"]),
        }
        peik.rest("PUT", f"/v1/consumers/{BOT}/shop", json={})
        peik.rest("DELETE", f"/v1/keys/{keys['revoked']['id']}")
        ids |= {"bot_id": str(BOT), "chat_id": "5", "key_id": keys["reader"]["id"], "name": "shop"}
        ids |= {
            "session_id": "5f0c",
            "message_id": "1",
        }  # of an account: there is none, which nobody without a key may know
        ids["job_id"] = made("/v1/jobs", kind="download", params={"name": HIDDEN})["id"]
        ids["arrival_id"] = arrived(peik)
        draft = {"method": "sendMessage", "params": {"text": HIDDEN}, "audience": {"chat_ids": [5]}}
        ids["broadcast_id"] = made("/v1/broadcasts", bot_id=BOT, **draft)["id"]
        note = {"chat_id": 5, "type": "news", "title": HIDDEN, "message": HIDDEN}
        ids["notification_id"] = made("/v1/notifications", bot_id=BOT, **note)["id"]
        ids |= {"user_id": "u7", "type": "news", "language": "zz", "kind": "download"}
        known = User(user_id="u7", language=HIDDEN)  # to whoever runs Peik; it was unlinked
        peik.run(peik.peik.store.documents.file([filed(USERS, "u7", known)]))
        while not peik.rest("GET", "/v1/contacts", query=f"bot_id={BOT}").json["contacts"]:
            pass  # the census is behind the intake
        paths = peik.rest("GET", "/openapi.json").json["paths"]
        documented = {(verb.upper(), path): row for path, verbs in paths.items() for verb, row in verbs.items()}
        yield Town(peik, ids, {name: key["key"] for name, key in keys.items()}, documented)
        assert peik.surprises() == []
        assert peik.crashes == []


def arrived(peik: Resident) -> str:
    """An update of the first bot."""

    async def write() -> None:
        peik.telegram.write(f"{BOT}:AAtest", 5, HIDDEN)

    peik.run(write())
    assert peik.rest("POST", f"/v1/bots/{BOT}/recover").status == 200
    (arrival,) = peik.rest("GET", "/v1/arrivals").json["arrivals"]
    return str(arrival["id"])


def bearer(key: str) -> Pairs:
    return [(b"authorization", b"Bearer " + key.encode())]


# ---- no key, or none of ours ----

NOT_ADMITTED: dict[str, tuple[Pairs, str]] = {
    "nothing": ((), ""),
    "a wrong key": (bearer("peik_wrong"), ""),
    "an empty key": (bearer(""), ""),
    "spaces": (bearer("    "), ""),
    "the key and more": (bearer(KEY + "x"), ""),
    "the key in upper case": (bearer(KEY.upper()), ""),
    "most of the key": (bearer(KEY[:-1]), ""),
    "the key in the middle": (bearer(f"x {KEY}"), ""),
    "a very long key": (bearer("x" * 100_000), ""),
    "a key of bytes": ([(b"authorization", b"Bearer \xff\xfe\x00")], ""),
    "a key of other letters": (bearer("کلید"), ""),
    "another scheme": ([(b"authorization", b"Basic " + KEY.encode())], ""),
    "no scheme": ([(b"authorization", KEY.encode())], ""),
    "a scheme with a colon": ([(b"authorization", b"Bearer:" + KEY.encode())], ""),
    "the query": ((), f"key={KEY}&api_key={KEY}&access_token={KEY}&x-api-key={KEY}&authorization=Bearer%20{KEY}"),
    "a cookie": ([(b"cookie", f"authorization=Bearer {KEY}; x-api-key={KEY}; key={KEY}".encode())], ""),
    "another header": ([(b"x-api-token", KEY.encode()), (b"proxy-authorization", f"Bearer {KEY}".encode())], ""),
    "a wrong key before the right header": ([*bearer("wrong"), (b"x-api-key", KEY.encode())], ""),
    "a bot's token": (bearer(f"{BOT}:AAtest"), ""),
}


def test_every_operation_is_a_route_and_the_other_way_round(town: Town) -> None:
    """What is tried below is all that there is."""
    described = {path for _, path in town.documented}
    assert set(town.routes()) - described == {PUSHES, "/openapi.json", "/docs"}
    assert described <= set(town.routes())
    assert {row["operationId"] for row in town.documented.values()} == set(OPERATIONS)


@pytest.mark.parametrize("credential", [*NOT_ADMITTED, "a revoked key"])
def test_nothing_but_what_is_public_opens_without_a_key(town: Town, credential: str) -> None:
    headers, query = NOT_ADMITTED.get(credential) or (bearer(town.keys["revoked"]), "")
    before = town.peik.state()
    opened = set()
    for template in town.routes():
        if template == PUSHES:
            continue
        for verb in VERBS:
            there, not_there = (
                town.ask(verb, path, headers, query=query, json=town.example_of(verb, template))
                for path in (town.path(template), town.path(template, **dict.fromkeys(town.ids, MISSING)))
            )
            # Whether or not there is such a thing: the same answer to the byte.
            assert (there.status, there.body) == (not_there.status, not_there.body) or template == "/health"
            if there.status < 400:
                opened.add((verb, template))
                continue
            assert there.status == (401 if (verb, template) in town.documented else 405), (verb, template)
            problem = there.json
            assert set(problem) == PROBLEM
            assert problem["code"] in ("no_key", "wrong_key", "method_not_allowed")
            assert (there.headers.get("www-authenticate") == "Bearer") is (there.status == 401)
            assert KEY.encode() not in there.body
            assert HIDDEN.encode() not in there.body
    assert opened == {*PUBLIC, ("HEAD", "/health"), ("HEAD", "/ready")}  # what balancers look at, without its body
    assert town.peik.state() == before


@pytest.mark.parametrize(
    "headers",
    [
        bearer(KEY),
        [(b"authorization", b"bearer " + KEY.encode())],
        [(b"authorization", b"BEARER " + KEY.encode())],
        [(b"authorization", b"Bearer   " + KEY.encode() + b"  ")],
        [(b"x-api-key", KEY.encode())],
    ],
)
def test_the_key_opens_in_its_own_places(town: Town, headers: Pairs) -> None:
    """And so the test above can fail."""
    assert town.ask("GET", "/v1/stats", headers).status == 200


def test_what_is_public_shows_nothing_of_anybody(town: Town) -> None:
    for verb, path in PUBLIC:
        body = town.ask(verb, path).body.decode()
        for secret in (HIDDEN, KEY, "AAtest", str(BOT), str(OTHER_BOT), *town.keys.values()):
            assert secret not in body


def test_paths_that_are_no_routes_say_so_with_and_without_a_key_alike(town: Town) -> None:
    for path in (
        "/",
        "/v1",
        "/v1/",
        "/v1/letters/",
        "/v1/nothing",
        "/administrator",
        "/metrics/",
        "/V1/STATS",
        "//v1/stats",
        "/v1/../v1/stats",
    ):
        plain, keyed = town.ask("GET", path), town.ask("GET", path, bearer(KEY))
        assert (plain.status, plain.body) == (keyed.status, keyed.body)
        assert plain.status in (404, 307, 303), path  # the first page leads to the dashboard
        assert HIDDEN.encode() not in keyed.body


# ---- a key of ours that does not reach so far ----


TAKES_NO_BOT = frozenset(
    {
        "resolveLetter",
        "changeLetter",
        "changeBot",
        "changeChat",
        "addBot",
        "setConsumer",
        "startBroadcast",
        "previewBroadcast",
    }
    | {"changeUser", "saveTemplate"}
)


def named(town: Town, verb: str, template: str, bot_id: str) -> tuple[str, dict[str, Any] | None]:
    """The query and the body of an operation, with the bot in it wherever it can be named."""
    row = town.documented[verb, template]
    takes_bot = any(one["name"] == "bot_id" and one["in"] == "query" for one in row["parameters"])
    body = town.example_of(verb, template)
    if body is not None:
        body = {**body, "bot_id": bot_id}
        if row["operationId"] == "acceptBatch":
            body = {"letters": [{**body["letters"][0], "bot_id": bot_id}]}
        if row["operationId"] == "notifyMany":
            body = {"notifications": [{**body["notifications"][0], "bot_id": bot_id}]}
        if row["operationId"] == "makeKey":
            body = {"name": "mine", "scopes": ["admin"], "bot_ids": [bot_id]}
        if row["operationId"] in TAKES_NO_BOT:
            body.pop("bot_id")
    return f"bot_id={bot_id}" if takes_bot else "", body


def rows_of(town: Town, bot_id: int) -> dict[str, list[Any]]:
    """All that is stored of one bot."""
    return {
        table: [row for row in rows if bot_id in row or str(bot_id) in map(str, row)]
        for table, rows in town.peik.state().items()
        if table != "keys"
    }


def test_a_key_of_another_bot_learns_and_changes_nothing(town: Town) -> None:
    headers = bearer(town.keys["other bot"])
    before = rows_of(town, BOT)
    opened = set()
    for (verb, template), row in town.documented.items():
        answers = []
        for ids in (town.ids, {**dict.fromkeys(town.ids, MISSING), "language": "yy"}):
            query, body = named(town, verb, template, ids["bot_id"])
            heard = town.ask(verb, town.path(template, **ids), headers, query=query, json=body)
            assert HIDDEN not in heard.body.decode()
            text = heard.body.decode()
            for name in sorted(ids.values(), key=len, reverse=True):
                text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", text)
            answers.append((heard.status, text))
            if heard.status < 400:
                assert str(BOT) not in heard.body.decode()
                opened.add(row["operationId"])
        if row["operationId"] not in opened:
            assert answers[0] == answers[1], row["operationId"]
            assert answers[0][0] in (403, 404), (row["operationId"], answers[0])
    # What names no bot is answered about the key's own bots.
    lists = {"listUsers", "listNotifications", "listTemplates"}  # templates are of no bot
    # Whether somebody is linked is told of the key's own bots: here nobody is, known or not.
    told = {"getHealth", "getReady", "getStats", "listBots", "getOverview", "getFigures", "listAlerts", "getLink"}
    assert opened == {*told, *lists}
    assert rows_of(town, BOT) == before


def test_lists_of_a_key_of_another_bot_leave_out_everybody_else(town: Town) -> None:
    headers = bearer(town.keys["other bot"])
    for (verb, template), row in town.documented.items():
        if verb == "GET" and "{" not in template and row["operationId"] != "streamArrivals":
            heard = town.ask(verb, template, headers)
            assert heard.status in (200, 403), template
            assert str(BOT) not in heard.body.decode()
            assert HIDDEN not in heard.body.decode()


@pytest.mark.parametrize("key", ["reader", "sender"])
def test_a_scope_opens_what_the_docs_say_and_no_more(town: Town, key: str) -> None:
    """docs/keys.md: read is every GET but for keys, consumers, the audit log and the secret, and dry runs; send also acts on
    letters, arrivals, jobs, broadcasts and notifications."""
    before = town.peik.state()
    refused = set()
    for (verb, template), row in town.documented.items():
        if key == "sender" and not _is_admins(verb, row):
            continue
        query, body = named(town, verb, template, str(BOT))
        heard = town.ask(verb, town.path(template), bearer(town.keys[key]), query=query, json=body)
        if heard.status == 403:
            assert heard.json["code"] == "wrong_scope"
            refused.add(row["operationId"])
    wanted = {
        row["operationId"]
        for (verb, _), row in town.documented.items()
        if _is_admins(verb, row) or (key == "reader" and verb != "GET" and row["operationId"] not in DRY_RUNS)
    }
    assert refused == wanted
    assert town.peik.state() == before


# They begin a sign-in, or ask Telegram as the account.
_ASKING = {"getQr", "listSessionContacts", "estimateCrawl"}


def _is_admins(verb: str, row: dict[str, Any]) -> bool:
    tag, name = row["tags"][0], row["operationId"]
    if tag in ("sessions", "messages", "events"):
        return (verb != "GET" and name != "setReader") or name in _ASKING
    return (
        tag in ("keys", "consumers", "audit", "secrets")
        or name == "testAlerts"
        or (tag in ("bots", "chats") and verb != "GET" and name != "recoverBot")
    )


def test_a_batch_with_one_letter_of_another_bot_is_refused_whole(town: Town) -> None:
    before = town.peik.state()
    letter = {"method": "sendMessage", "params": {"chat_id": 5, "text": "x"}}
    body = {"letters": [{**letter, "bot_id": OTHER_BOT}, {**letter, "bot_id": BOT}]}
    heard = town.ask("POST", "/v1/letters/batch", bearer(town.keys["other bot"]), json=body)
    assert (heard.status, json.loads(heard.body)["code"]) == (403, "wrong_bot")
    assert town.peik.state() == before
