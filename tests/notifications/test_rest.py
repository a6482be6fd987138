"""Links, notifications and contacts as a client of REST meets them, in virtual time."""

import asyncio
from typing import Any

import httpx
import msgspec
from starlette.applications import Starlette

from peik.admin.model import Key, digest_of
from peik.app.rest import _by_verb
from peik.contacts.api import ContactApi
from peik.errors import Problem
from peik.notifications.api import NotificationApi, UserApi
from peik.web import responses
from peik.web.access import Access
from peik.web.operations import rows_of, schemas_of
from peik.web.responses import Route
from peik.web.routes import routes_of
from tests.notifications.outreach import LENA, POLLED, THIEF, House, notifying
from tests.outbox.story import BOT, Stage, play

ADMIN, OTHER = "admin", "other"


class Client:
    """REST over these parts alone, without a socket."""

    def __init__(self, house: House) -> None:
        runtime = house.stage.peik
        other = Key(id=9, name="other", digest=digest_of(OTHER), scopes=("send",), bot_ids=frozenset({1, 2}))
        access = Access(ADMIN, find={other.digest: other}.get, wall_ms=runtime.clock.wall_ms)
        self.routes: tuple[Route, ...] = (
            *routes_of(UserApi(house.links), access),
            *routes_of(NotificationApi(house.service), access),
            *routes_of(ContactApi(runtime.outbox.service, runtime.store.contacts), access),
        )
        app = Starlette()
        app.add_exception_handler(Problem, responses.on_problem)
        verbs: dict[str, dict[str, Any]] = {}
        for verb, path, endpoint, _, _ in self.routes:
            verbs.setdefault(path, {})[verb] = endpoint
        for path, endpoints in verbs.items():
            app.add_route(path, _by_verb(endpoints), methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://peik")

    async def ask(self, verb: str, path: str, body: object = None, *, key: str = ADMIN) -> tuple[int, Any]:
        content = None if body is None else msgspec.json.encode(body)
        answer = await self._http.request(verb, path, content=content, headers={"Authorization": f"Bearer {key}"})
        return answer.status_code, answer.json() if answer.content else None


def tell(story: Any) -> None:
    async def opened(stage: Stage) -> None:
        async with notifying(stage) as house:
            await story(house, Client(house))

    play(opened, **POLLED)


def test_from_a_code_to_a_notification_and_back() -> None:
    async def story(house: House, client: Client) -> None:
        assert await client.ask("POST", "/v1/users/lena/link", key="wrong") is not None
        assert (await client.ask("POST", "/v1/users/lena/link", key="wrong"))[0] == 401
        status, made = await client.ask("POST", "/v1/users/lena/link", {"expires_in": "10m", "language": "fa"})
        assert status == 201
        assert made["url"].endswith(f"?start={made['code']}")
        status, user = await client.ask("GET", "/v1/users/lena/link")
        assert (status, user["linked"], user["code_expires_at"]) == (200, False, made["expires_at"])
        notice = {"user_id": "lena", "type": "task", "title": "T", "message": "m", "idempotency_key": "k"}
        status, problem = await client.ask("POST", "/v1/notifications", notice)
        assert (status, problem["code"]) == (404, "user_not_linked")
        house.says(LENA, f"/start {made['code']}")
        await house.until(lambda: bool(house.got(LENA)))
        status, user = await client.ask("GET", "/v1/users/lena/link")
        assert (user["linked"], user["chat_id"], user["bot_id"], user["language"]) == (True, str(LENA), str(BOT), "fa")
        status, accepted = await client.ask("POST", "/v1/notifications", notice)
        assert status == 202
        assert await client.ask("POST", "/v1/notifications", notice) == (202, accepted)
        await house.stage.ended(int(accepted["letter_id"]))
        status, shown = await client.ask("GET", f"/v1/notifications/{accepted['id']}")
        assert (shown["state"], shown["user_id"], shown["letter_ids"]) == ("completed", "lena", [accepted["letter_id"]])
        status, page = await client.ask("GET", "/v1/notifications?user_id=lena&limit=1")
        assert [one["id"] for one in page["notifications"]] == [accepted["id"]]
        assert (await client.ask("GET", "/v1/users?limit=1"))[1]["next_cursor"] == "lena"
        status, user = await client.ask("DELETE", "/v1/users/lena/link")
        assert (status, user["linked"]) == (200, False)
        assert (await client.ask("DELETE", "/v1/users/lena/link"))[1]["code"] == "user_not_linked"

    tell(story)


async def sees_nobody(client: Client, name: str) -> None:
    """A key of other bots hears of a user what it hears of one whom nobody knows."""
    for verb, path, body in (
        ("GET", "/v1/users/{}/link", None),
        ("DELETE", "/v1/users/{}/link", None),
        ("PATCH", "/v1/users/{}", {"language": "en"}),
    ):
        status, said = await client.ask(verb, path.format(name), body, key=OTHER)
        other_status, other_said = await client.ask(verb, path.format("nobody"), body, key=OTHER)
        assert (status, str(said).replace(name, "nobody")) == (other_status, str(other_said)), (verb, path)
        assert status == (200 if verb == "GET" else 404)


def test_a_key_of_other_bots_sees_and_does_nothing_here() -> None:
    async def story(house: House, client: Client) -> None:
        await house.linked("lena", LENA)
        notice_id = await house.notify("lena", "secret")
        await sees_nobody(client, "lena")
        for verb, path, body in (
            ("POST", "/v1/users/lena/link", {"bot_id": 1}),
            ("POST", "/v1/notifications", {"user_id": "lena", "type": "t", "message": "m"}),
            ("PUT", "/v1/templates/t/en", {"text": "x"}),
            ("GET", f"/v1/contacts/{BOT}/{LENA}", None),
            ("GET", f"/v1/contacts?bot_id={BOT}", None),
        ):
            assert (await client.ask(verb, path, body, key=OTHER))[0] == 403, (verb, path)
        assert (await client.ask("GET", f"/v1/notifications/{notice_id}", key=OTHER))[0] == 404
        assert (await client.ask("GET", "/v1/notifications", key=OTHER))[1]["notifications"] == []
        assert (await client.ask("GET", "/v1/users", key=OTHER))[1]["users"] == []

    tell(story)


def test_a_key_of_other_bots_cannot_take_over_who_has_a_code_and_is_not_linked_yet() -> None:
    async def story(house: House, client: Client) -> None:
        code = await house.links.new_code("lena")
        assert (await client.ask("GET", "/v1/users", key=OTHER))[1]["users"] == []
        await sees_nobody(client, "lena")
        assert (await client.ask("POST", "/v1/users/lena/link", {"bot_id": 1}, key=OTHER))[0] == 403
        house.says(LENA, f"/start {code.code}")
        await house.until(lambda: bool(house.got(LENA)))
        link = await house.link("lena")
        assert link is not None
        assert link.chat_id == LENA

    tell(story)


def test_a_key_of_other_bots_cannot_take_over_who_was_unlinked() -> None:
    async def story(house: House, client: Client) -> None:
        await house.linked("lena", LENA)
        await client.ask("DELETE", "/v1/users/lena/link")
        await sees_nobody(client, "lena")
        status, problem = await client.ask("POST", "/v1/users/lena/link", {"bot_id": 1}, key=OTHER)
        assert (status, problem["code"]) == (403, "wrong_bot")
        assert (await client.ask("GET", "/v1/users", key=OTHER))[1]["users"] == []

    tell(story)


def test_everything_that_a_notification_may_carry() -> None:
    async def story(house: House, client: Client) -> None:
        await house.linked("lena", LENA)
        assert (await client.ask("PUT", "/v1/templates/task/ru", {"text": "{title} №{number}"}))[0] == 200
        many = [
            {"type": "task", "title": "T", "data": {"number": 5}, "message": "x"},
            {"type": "other", "message": "<i>own</i>", "parse_mode": "HTML"},
            {"type": "other", "message": "a", "photo": "https://example.com/a.png"},
            {"type": "other", "message": "b", "location": {"latitude": 1.5, "longitude": 2}},
            {"type": "other", "attachment": {"method": "sendDice", "params": {"emoji": "🎯"}}},
            {"type": "other", "message": "c", "digest": "10m", "expires_at": "2027-01-01T00:00:00Z"},
        ]
        body = {"notifications": [{"user_id": "lena", **one} for one in many]}
        status, answer = await client.ask("POST", "/v1/notifications/batch", body)
        assert status == 202, answer
        assert [one["letter_id"] is None for one in answer["notifications"]] == [False] * 5 + [True]
        await house.stage.quiet()
        assert [row.method for row in house.stage.telegram.sent][1:] == [
            "sendMessage",
            "sendMessage",
            "sendPhoto",
            "sendMessage",
            "sendLocation",
            "sendDice",
        ]
        for wrong, code in (
            ({"type": "task", "message": "x"}, "missing_data"),
            ({"type": "o", "message": "x", "parse_mode": "MarkdownV2"}, "bad_parse_mode"),
            ({"type": "o", "message": "x", "photo": "p", "document": "d"}, "several_attachments"),
            ({"type": "o", "message": "x", "digest": "soon"}, "bad_digest"),
            ({"type": "o", "message": "x", "chat_id": "me"}, "which_recipient"),
            ({"type": "o", "message": "x", "attempts": 0}, "bad_attempts"),
        ):
            status, problem = await client.ask("POST", "/v1/notifications", {"user_id": "lena", **wrong})
            assert (status, problem["code"]) == (422, code)
        status, user = await client.ask("PATCH", "/v1/users/lena", {"quiet": {"start": "22:00", "end": "08:00"}})
        assert user["quiet"] == {"start": "22:00", "end": "08:00", "tz": "UTC"}
        for quiet in ({"start": "25:00", "end": "08:00"}, {"start": "22:00", "end": "08:00", "tz": "Mars/Base"}):
            assert (await client.ask("PATCH", "/v1/users/lena", {"quiet": quiet}))[0] == 422
        assert (await client.ask("PATCH", "/v1/users/nobody", {"language": "en"}))[0] == 404
        assert (await client.ask("GET", "/v1/templates/task/ru"))[1]["text"] == "{title} №{number}"
        assert len((await client.ask("GET", "/v1/templates"))[1]["templates"]) == 1
        assert (await client.ask("DELETE", "/v1/templates/task/ru"))[0] == 204
        assert (await client.ask("GET", "/v1/templates/task/ru"))[0] == 404

    tell(story)


def test_the_terms_of_a_job_as_bullmq_writes_them_go_for_its_letters() -> None:
    async def story(house: House, client: Client) -> None:
        terms = {"attempts": 3, "backoff": {"type": "fixed", "delay": 700}, "timeout": 9000, "messageType": "task"}
        body = {"type": "task_assigned", "title": "T", "message": "x", "chat_id": LENA, **terms}
        status, answer = await client.ask("POST", "/v1/notifications", body)
        assert status == 202, answer
        runtime = house.stage.peik
        view = await runtime.outbox.service.letter(int(answer["letter_id"]))
        assert (view.attempts, view.message_type) == (3, "task")
        (letter,) = next(iter((await runtime.store.fronts(BOT, [(LENA, 0)], letters=1)).values())).letters
        assert (letter.backoff_ms, str(letter.backoff), letter.timeout_ms, letter.counts_uncertain) == (
            700,
            "fixed",
            9000,
            True,
        )

    tell(story)


def test_contacts_are_listed_counted_and_found() -> None:
    async def story(house: House, client: Client) -> None:
        house.says(LENA, "/start spring")
        await asyncio.sleep(60)
        house.says(THIEF, "hello")
        await house.until_true(lambda: _are(client, 2))
        _, page = await client.ask("GET", "/v1/contacts?limit=1")
        assert [one["chat_id"] for one in page["contacts"]] == [str(THIEF)]
        _, page = await client.ask("GET", f"/v1/contacts?limit=1&cursor={page['next_cursor']}")
        assert [(one["chat_id"], one["campaign"]) for one in page["contacts"]] == [(str(LENA), "spring")]
        assert len((await client.ask("GET", "/v1/contacts?language=ru&type=private&gone=false"))[1]["contacts"]) == 1
        _, one = await client.ask("GET", f"/v1/contacts/{BOT}/{LENA}")
        assert (one["name"], one["language"], one["gone"]) == ("Lena", "ru", False)
        _, stats = await client.ask("GET", "/v1/contacts/stats?since=2020-01-01T00:00:00Z")
        assert (stats["total"], stats["new"], stats["by_campaign"]["spring"]) == (2, 2, 1)
        assert stats["by_language"] == {"ru": 1, "en": 1}
        for path in ("/v1/contacts?typo=1", "/v1/contacts?type=dog", "/v1/contacts?cursor=x", "/v1/contacts?gone=1"):
            assert (await client.ask("GET", path))[0] == 422, path
        assert (await client.ask("GET", f"/v1/contacts/{BOT}/999"))[0] == 404

    tell(story)


async def _are(client: Client, count: int) -> bool:
    return len((await client.ask("GET", "/v1/contacts"))[1]["contacts"]) == count


def test_every_route_is_described() -> None:
    async def story(house: House, client: Client) -> None:
        apis = (UserApi, NotificationApi, ContactApi)
        rows = rows_of(*apis)
        assert {operation_id for _, _, _, operation_id, _ in client.routes} == set(rows)
        assert all(endpoint.__doc__ for _, _, endpoint, _, _ in client.routes)
        named = {name for one in rows.values() for name in one.answers.values() if name}
        assert named <= set(schemas_of(*apis))

    tell(story)
