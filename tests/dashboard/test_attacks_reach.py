"""Somebody with a key of one bot walks through the whole dashboard and names things of another: he sees and does nothing."""

import urllib.parse
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from peik.admin.model import Role
from peik.broadcasts.audience import listed
from peik.broadcasts.service import BroadcastRequest
from peik.core.arrival import read_update
from peik.core.documents import Contact
from peik.core.token import Token
from peik.inbox.store import ArrivalFilter
from peik.notifications.model import NotifyRequest, UserLinked
from peik.outbox.store import LetterFilter
from tests.dashboard.test_arrivals_pages import message
from tests.dashboard.test_letters_pages import accept
from tests.dashboard.visiting import BOT, KEY, House, Visit, visit
from tests.web.accounts import until

OTHER = 7000002
OTHER_TOKEN = f"{OTHER}:BBsecretsecretsecretsecretsecretsec"
CHAT = 4815162342
MARK = "Zirkonium"  # in everything that is the other bot's
USER = "zirkonium-1"


class Objects(msgspec.Struct, frozen=True, kw_only=True):
    """One of everything that the other bot has."""

    letter_id: int
    arrival_id: int
    broadcast_id: str
    notification_id: str
    key_id: int

    def path(self, template: str) -> str:
        places: dict[str, object] = {
            **msgspec.structs.asdict(self),
            "bot_id": OTHER,
            "chat_id": CHAT,
            "user_id": USER,
            "type": "task",
            "language": "fa",
            "job_id": 1,
            "name": "mina",
            "kind": "film",
            "session_id": "one",
            "message_id": 1,
        }
        for name, value in places.items():
            template = template.replace(f"{{{name}}}", str(value))
        assert "{" not in template, f"what stands for this? {template}"
        return template

    def fields(self, at_ms: int) -> dict[str, str]:
        """What any form of the dashboard could ask for, filled in with what is the other bot's."""
        return {
            "bot_id": str(OTHER), "chat_id": str(CHAT), "newest": str(self.letter_id), "seen": str(at_ms + 60_000),
            "consumer": "default", "minutes": "5", "arrived": "yes", "priority": "2", "now": "1", "inbound": "off",
            "token": OTHER_TOKEN, "missed": "skip", "usual": "1", "user_id": USER, "type": "task", "language": "fa",
            "title": "x", "message": "x", "name": "intruder", "role": "admin", "password": "correct horse battery",
            "scope": "admin", "audience": "list", "chats": str(CHAT), "text": "x", "act": "cancel",
        }  # fmt: skip


async def furnish(home: House) -> Objects:
    peik, at_ms = home.peik, home.peik.clock.wall_ms()
    home.sim.telegram.add_bot(OTHER_TOKEN)
    home.sim.telegram.user(CHAT, "Somebody")  # Telegram tells any bot that writes there
    await peik.outbox.service.save_bot(Token(OTHER_TOKEN), inbound="polling")
    code = await peik.notifications.service.links.new_code(USER, bot_id=OTHER)
    home.sim.telegram.write(OTHER_TOKEN, CHAT, f"/start {code.code}")
    await until(lambda: _is_linked(home))
    (notice,) = await peik.notifications.service.notify([NotifyRequest(user_id=USER, type="task", title=MARK)])
    await peik.outbox.service.wait(notice.letter_ids[0], 60)
    await peik.outbox.service.change_bot(OTHER, paused="for the story")
    letter_id = await accept(home, text=MARK, chat=CHAT, bot_id=OTHER)
    contact = Contact(bot_id=OTHER, chat_id=CHAT, type="private", name=MARK, first_seen_ms=at_ms, last_seen_ms=at_ms)
    await peik.store.contacts.save_contacts(OTHER, [contact], place=await peik.store.contacts.contacts_place(OTHER))
    await peik.store.inbox.take_in(
        OTHER, [read_update(message(90_000, MARK, user=CHAT))], at_ms=at_ms, last_update_id=None
    )
    (view,) = await peik.store.inbox.find_arrivals(ArrivalFilter(bot_id=OTHER), before=None, limit=1)
    made = await peik.broadcasts.service.create(
        BroadcastRequest(
            bot_id=OTHER,
            name=MARK,
            method="sendMessage",
            params={"text": MARK},
            audience=listed([CHAT]),
            created_by=MARK,
        )
    )
    key = await peik.keyring.make(MARK, ("admin",), bot_ids=None)
    await home.dashboard.board.people.add("mina", Role.ADMIN, "correct horse battery")
    await peik.notifications.service.templates.save("task", "fa", "{title}")
    return Objects(
        letter_id=letter_id,
        arrival_id=view.arrival.id,
        broadcast_id=made.id,
        notification_id=notice.id,
        key_id=key.key.id,
    )


async def _is_linked(home: House) -> bool | None:
    return any(isinstance(event, UserLinked) for event in home.events) or None


async def standing(home: House) -> dict[str, Any]:
    """Everything that somebody could have changed."""
    peik, board = home.peik, home.dashboard.board
    letters = await peik.outbox.service.find(LetterFilter(), before=None, limit=500)
    bot = next((one for one in peik.outbox.service.bots() if one.bot_id == OTHER), None)
    user = await peik.notifications.service.links.user(USER)
    arrival = await peik.store.inbox.find_arrivals(ArrivalFilter(bot_id=OTHER), before=None, limit=50)
    return {
        "letters": sorted((one.id, one.state, one.rank, one.due_at_ms) for one in letters),
        "bot": bot and (bot.paused, bot.inbound, bot.missed, bot.limits),
        "chats": [] if bot is None else await peik.outbox.service.chats(OTHER, after=None, limit=50),
        "user": None if user is None else (user.link, user.code),
        "arrivals": [(one.arrival.id, one.deliveries) for one in arrival],
        "broadcasts": sorted(
            (one.id, one.phase) for one in await peik.broadcasts.service.find(bot_ids=None, before=None, limit=50)
        ),
        "keys": sorted(key.id for key in peik.keyring.known() if "of tests" not in key.name),
        "people": await board.people.everybody(),
        "templates": await peik.notifications.service.templates.all(after=None, limit=50),
        "bots": sorted(one.bot_id for one in peik.outbox.service.bots()),
    }


async def walk(home: House, browser: Visit, objects: Objects) -> list[tuple[str, str]]:
    """Look at everything, then do everything; what the pages said."""
    page = await browser.get("/admin")
    csrf = page.form("/admin/sign-out").fields["csrf"]
    seen = [("/admin", page.body)]
    filters = urllib.parse.urlencode({"bot_id": OTHER, "user_id": USER})
    for verb, path, *_ in home.dashboard.pages:
        if verb == "GET" and path != "/admin/live":
            for url in (objects.path(path), f"{objects.path(path)}?{filters}"):
                seen += [(url, (await browser.get(url)).body)]
    for verb, path, *_ in home.dashboard.pages:
        if verb == "POST" and "sign-out" not in path:
            fields = {**objects.fields(home.peik.clock.wall_ms()), "csrf": csrf}
            for bot_id in (OTHER, BOT):
                answer = await browser.post(objects.path(path), **{**fields, "bot_id": str(bot_id)})
                seen += [(path, answer.body)]
    return seen


async def nothing_changed(home: House, before: dict[str, Any]) -> None:
    """But for what its own bot was told to send: it may write to any chat, that is what it is for."""
    after = await standing(home)
    own = {one.id for one in await home.peik.outbox.service.find(LetterFilter(bot_id=BOT), before=None, limit=500)}
    after["letters"] = [one for one in after["letters"] if one[0] not in own]
    made = {one.id for one in await home.peik.broadcasts.service.find(bot_ids=frozenset({BOT}), before=None, limit=50)}
    after["broadcasts"] = [one for one in after["broadcasts"] if one[0] not in made]
    for name, value in before.items():
        assert after[name] == value, name


def test_a_key_of_one_bot_neither_sees_nor_changes_anything_of_another(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        objects = await furnish(home)
        before = await standing(home)
        async with home.visitor("admin", bot_ids=frozenset({BOT})) as browser:
            seen = await walk(home, browser, objects)
        told = [url for url, body in seen if MARK in body or OTHER_TOKEN in body]
        assert told == []
        await nothing_changed(home, before)

        async with home.visitor() as admin:  # the same walk is no walk in the park for whoever may
            seen = await walk(home, admin, objects)
        assert len([url for url, body in seen if MARK in body]) > 10
        assert not [url for url, body in seen if OTHER_TOKEN in body]
        after = await standing(home)
        same = {name for name, value in before.items() if after[name] == value}
        assert same <= {"chats"}, same  # held, and let go again

    visit(tmp_path, story, inbound="polling")


# ---- the same at REST ----


def aimed(example: Any) -> Any:
    """A body as it is documented, with the other bot's things in the place of whatever it names."""
    if isinstance(example, list):
        return [aimed(one) for one in example]
    if not isinstance(example, dict):
        return example
    named = {"bot_id": str(OTHER), "chat_id": CHAT, "user_id": USER, "token": OTHER_TOKEN}
    return {name: named.get(name, aimed(value)) for name, value in example.items()}


async def knock(home: House, key: str, objects: Objects) -> list[tuple[str, int, str]]:
    """Everything that REST can be asked for, about the other bot; what it said."""
    said = []
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http:
        async with http.get(f"{home.url}/openapi.json") as answer:
            paths = (await answer.json())["paths"]
        for path, verbs in paths.items():
            for verb, operation in sorted(verbs.items()):
                body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
                for query in ("", f"?bot_id={OTHER}"):
                    url = home.url + objects.path(path) + query
                    async with http.request(verb, url, json=None if body is None else aimed(body)) as answer:
                        is_stream = answer.content_type == "text/event-stream"
                        text = "" if is_stream else await answer.text()
                        said.append((f"{verb} {path}{query}", answer.status, text))
    return said


def test_a_key_of_one_bot_neither_sees_nor_changes_anything_of_another_at_rest(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        objects = await furnish(home)
        before = await standing(home)
        made = await home.peik.keyring.make("admin of tests", ("admin",), bot_ids=frozenset({BOT}))
        said = await knock(home, made.text, objects)
        assert [what for what, _, text in said if MARK in text or OTHER_TOKEN in text] == []
        assert [(what, status) for what, status, _ in said if status >= 500] == []
        await nothing_changed(home, before)
        for what in ("get /v1/audit", "get /metrics", "get /v1/keys", "get /v1/jobs"):
            assert [status for one, status, _ in said if one == what] == [403], what

        said = await knock(home, KEY, objects)
        assert len([what for what, _, text in said if MARK in text]) > 10
        assert not [what for what, _, text in said if OTHER_TOKEN in text]

    visit(tmp_path, story, inbound="polling")
