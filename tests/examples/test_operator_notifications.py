"""The back-end that notifies operators: itself, Peik and the TypeScript client as processes, a bad wire between them, people in
a simulated Telegram."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import re
import subprocess
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from examples.operator_notifications.__main__ import is_signed
from examples.operator_notifications.notices import TEXTS, language_of
from examples.operator_notifications.report import pdf
from examples.operator_notifications.results import Results
from peik.notifications.templates import load_outreach
from peik.testing import Delivery, Limits, Options, SimServer
from tests.clients import node
from tests.patience import PATIENCE_S
from tests.processes.programs import BOT, TOKEN, Port, Program, Server, served

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/operator_notifications"
BACKEND_KEY = "backend-key"
LENA, AZIZ, THIEF = 5, 6, 7
# A hundred by a hundred, as far as its head says so: Telegram refuses what cannot be a photo.
PHOTO = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0d\0\0\0d\x08\6\0\0\0" + bytes(range(256)) * 40
TASK: dict[str, Any] = {"number": 17, "address": "Amir Temur 1", "latitude": 41.3111, "longitude": 69.2797}
REPORT = ["Task 17", "Parts (new): 3"]
WORDS = load_outreach()  # what Peik says of links
KINDS = ["sendMessage", "sendPhoto", "sendDocument", "sendLocation"]


class Wire:
    """Stands between the clients and Peik. `troubles` are met by what is posted to a path, one by one: "cut" before Peik has
    the request, "deaf" after Peik has answered it, which the client never hears."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self.target = ""
        self.url = ""
        self.troubles: dict[str, deque[str]] = {}
        self.asked: list[str] = []  # the paths of what was posted
        self._told = asyncio.Event()

    async def until_asked(self, path: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while path not in self.asked:
                self._told.clear()
                await self._told.wait()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Wire"]:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._carry)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _carry(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport  # it is forgotten when the client goes
        assert transport is not None
        body = await request.read()
        waiting = self.troubles.get(request.path) if request.method == "POST" else None
        trouble = waiting.popleft() if waiting else ""
        if request.method == "POST":
            self.asked.append(request.path)
            self._told.set()
        if trouble != "cut":
            headers = {
                name: request.headers[name] for name in ("Authorization", "Content-Type") if name in request.headers
            }
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                url = self.target + request.path_qs
                async with self._http.request(request.method, url, data=body or None, headers=headers) as answer:
                    if trouble == "deaf":
                        assert (await answer.json())["id"]
                    else:
                        return await self._give(request, answer)
        transport.abort()
        return web.Response()

    async def _give(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        given = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]})
        await given.prepare(request)
        async for chunk in answer.content.iter_any():
            await given.write(chunk)
        await given.write_eof()
        return given


class Town:
    def __init__(self, sim: SimServer, server: Server, wire: Wire, http: aiohttp.ClientSession, folder: Path) -> None:
        self.sim, self.server, self.wire, self.http, self.folder = sim, server, wire, http, folder
        self.port = Port()
        self.results = Results(folder / "operators.db")
        self.url = f"http://127.0.0.1:{self.port.number}"
        self.key = ""

    async def start(self) -> None:
        """The back-end, in a process of its own."""
        secret = (await self.server.get("/v1/webhooks/secret"))["webhook_secret"]
        given = {"PEIK_KEY": self.key, "PEIK_URL": self.wire.url, "BACKEND_KEY": BACKEND_KEY, "PYTHONPATH": str(ROOT)}
        given |= {"BACKEND_PORT": str(self.port.number), "BACKEND_FILE": str(self.folder / "operators.db")}
        given |= {"RESULTS_URL": f"{self.url}/results", "RESULTS_SECRET": secret}
        self.backend = Program("-m", "examples.operator_notifications", folder=self.folder, **given)
        await self.backend.start(re.compile("back-end listens"))

    async def ask(self, verb: str, path: str, *, key: str = BACKEND_KEY, **more: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"}
        async with self.http.request(verb, self.url + path, headers=headers, **more) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else await answer.text()

    async def assign(self, operator: str, **more: Any) -> tuple[int, Any]:
        form = aiohttp.FormData()
        form.add_field("task", json.dumps(TASK | {"report": REPORT} | more))
        form.add_field("photo", PHOTO, filename="door.png", content_type="image/png")
        return await self.ask("POST", f"/operators/{operator}/tasks", data=form)

    async def link(self, operator: str, user: int) -> str:
        """As a person would do it; the code."""
        code = str((await self.ask("POST", f"/operators/{operator}/code"))[1]["code"])
        before = len(self.got(user))
        self.says(user, f"/start {code}")
        await self.until(lambda: len(self.got(user)) > before, "an answer")
        return code

    def says(self, user: int, text: str, **more: Any) -> None:
        self.sim.telegram.write(BOT, user, text, **more)

    def got(self, user: int) -> list[Delivery]:
        return list(self.sim.telegram.sent.where(chat_id=user))

    def message(self, delivery: Delivery) -> dict[str, Any]:
        message = self.sim.telegram.message(BOT, delivery.chat_id, delivery.message_id)
        assert message is not None
        return message

    def content(self, file_id: str) -> bytes:
        answer: Any = self.sim.telegram.call(TOKEN, "getFile", {"file_id": file_id})
        path = json.loads(answer.body)["result"]["file_path"]
        return bytes(self.sim.telegram.download(TOKEN, path).body)

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            await self.sim.until(is_so, timeout=PATIENCE_S)
        except TimeoutError:
            log = "".join([*self.server.output[-20:], *self.backend.output[-20:]])
            seen = [(row.chat_id, row.method, row.text) for row in self.sim.telegram.sent]
            raise AssertionError(f"In vain we waited for {what}. There were {seen}\n{log}") from None


def play(folder: Path, story: Callable[[Town], Awaitable[None]]) -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(asyncio.timeout(PATIENCE_S))
            options = Options(limits=Limits(on=False), anti_busy_loop=False)
            sim = await stack.enter_async_context(SimServer(options=options, seed=7))
            sim.telegram.bot(TOKEN)
            for user, name, language in ((LENA, "Lena", "ru"), (AZIZ, "Aziz", "uz"), (THIEF, "Thief", "en")):
                sim.telegram.user(user, name, language)
            http = await stack.enter_async_context(aiohttp.ClientSession())
            wire = await stack.enter_async_context(Wire(http).open())
            settings = {"inbound": "polling", "pace": "off", "hooks_allow_private": "on"}
            server = await stack.enter_async_context(served(folder, sim.url, http, **settings))
            wire.target = server.url
            place = Town(sim, server, wire, http, folder)
            wanted = {"name": "operators", "scopes": ["send"], "bot_ids": [str(BOT)]}
            place.key = (await server.call("POST", "/v1/keys", json=wanted))[1]["key"]
            await place.start()
            try:
                await story(place)
                assert not [line for line in place.backend.output if "Traceback" in line], place.backend.output
            finally:
                await place.backend.kill()

    asyncio.run(main())


def said(language: str, name: str) -> str:
    return TEXTS[language][name].format(task=17, address="Amir Temur 1")


def test_operators_link_by_code_and_are_notified_in_their_language(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        assert (await town.ask("GET", "/operators/lena"))[0] == 404
        assert (await town.ask("POST", "/operators/lena/code", key="guessed"))[0] == 401
        code = await town.link("lena", LENA)
        await town.link("aziz", AZIZ)
        assert [row.text for row in town.got(LENA) + town.got(AZIZ)] == [
            WORDS["ru"]["linked"],
            WORDS["uz"]["linked"],
        ]
        assert await town.ask("GET", "/operators/lena") == (200, {"chat_id": LENA, "language": "ru"})
        town.says(THIEF, f"/start {code}")  # used
        await town.until(lambda: len(town.got(THIEF)) == 1, "a refusal")
        assert town.got(THIEF)[0].text == WORDS["en"]["wrong"]
        assert (await town.ask("GET", "/operators/lena"))[1]["chat_id"] == LENA

        letters = {}
        for operator, user, language in (("lena", LENA, "ru"), ("aziz", AZIZ, "uz")):
            status, answer = await town.assign(operator)
            assert status == 202, answer
            letters[operator] = answer["letters"]
            await town.until(lambda user=user: len(town.got(user)) == 5, "four notices")  # type: ignore[misc]
            rows = town.got(user)[1:]
            assert [row.method for row in rows] == KINDS
            assert [row.text for row in rows[:3]] == [
                said(language, name) for name in ("task_assigned", "photo", "report")
            ]
            photo, report, place = map(town.message, rows[1:])
            assert town.content(photo["photo"][-1]["file_id"]) == PHOTO
            assert (report["document"]["file_name"], report["document"]["mime_type"]) == (
                "task-17.pdf",
                "application/pdf",
            )
            assert town.content(report["document"]["file_id"]) == pdf(REPORT)
            assert (place["location"]["latitude"], place["location"]["longitude"]) == (41.3111, 69.2797)
        listed = (await town.server.get("/v1/letters?user_id=lena"))["letters"]
        assert [one["id"] for one in listed] == letters["lena"][::-1]
        assert [one["metadata"]["message_type"] for one in listed][::-1] == [
            "task_assigned",
            "photo",
            "report",
            "location",
        ]
        assert {one["priority"] for one in listed} == {1}
        wanted = dict.fromkeys(letters["lena"] + letters["aziz"], "completed")
        while await town.results.all() != wanted:  # noqa: ASYNC110  another one's file has no bell; play() has a deadline
            await asyncio.sleep(0.02)

    play(tmp_path, story)


@pytest.mark.gate  # a whole program on a bad network
def test_on_a_bad_network_every_notice_arrives_once(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        await town.link("lena", LENA)
        town.sim.telegram.faults.add("flood", retry_after=1, chat=LENA, count=1)
        town.sim.telegram.faults.add("refuse", seconds=2.0)
        # The notices in turn: the text is lost once each way, the photo's acceptance is not heard, the report is cut off.
        town.wire.troubles["/v1/letters"] = deque(["cut", "deaf", "", "deaf", "", "cut", ""])
        asked = len(town.wire.asked)
        status, first = await town.assign("lena")
        assert status == 202, first
        posted = [path for path in town.wire.asked[asked:] if path == "/v1/letters"]
        assert len(posted) == 8  # four letters and four repeats
        assert await town.assign("lena") == (202, first)  # whoever asked did not hear it either
        await town.until(lambda: len(town.got(LENA)) >= 5, "four notices")
        stats = await town.server.quiet()
        assert stats["failed"] == 0
        history = (await town.server.get(f"/v1/letters/{first['letters'][0]}"))["history"]
        assert "limited" in [line["outcome"] for line in history]  # Telegram was in trouble as well
        assert [row.method for row in town.got(LENA)[1:]] == KINDS
        # What Peik refuses is not repeated: another text under the key of the first one.
        asked = len(town.wire.asked)
        status, answer = await town.assign("lena", address="Navoiy 2")
        assert status == 422
        assert "idempotency_key_reused" in answer
        assert len(town.wire.asked) == asked + 1

    play(tmp_path, story)


def test_a_link_survives_the_death_of_peik_and_needs_no_back_end(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        code = (await town.ask("POST", "/operators/lena/code"))[1]["code"]
        # Both die, the operator writes, Peik comes back: the message was at Telegram, and is answered by Peik itself.
        await town.server.program.kill()
        await town.backend.kill()
        town.says(LENA, f"/start {code}")
        await town.server.start()
        await town.until(lambda: bool(town.got(LENA)), "an answer")
        await town.server.quiet()  # a message in flight would be repeated, and that would be right
        await town.server.program.kill()
        await town.server.start()
        await town.start()
        await town.server.quiet()
        assert [row.text for row in town.got(LENA)] == [WORDS["ru"]["linked"]]
        assert (await town.ask("GET", "/operators/lena"))[0] == 200

    play(tmp_path, story)


def test_a_group_links_nobody(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        group = town.sim.telegram.chat("group", "Shift", bots=[BOT])
        code = (await town.ask("POST", "/operators/lena/code"))[1]["code"]
        town.says(LENA, f"/start {code}", chat=group)
        town.says(AZIZ, f"/start {code}")  # it comes after that one, and the code is still good
        await town.until(lambda: len(town.got(AZIZ)) == 1, "an answer")
        assert (await town.ask("GET", "/operators/lena"))[1]["chat_id"] == AZIZ
        assert len(town.sim.telegram.sent) == 1

    play(tmp_path, story)


# ---- TypeScript ----


def javascript(folder: Path) -> tuple[Path, list[str]]:
    """A Node, and how it runs notify.ts: by itself if it can erase types, else what the typescript package makes of it."""
    program = node.wanted()
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = map(int, re.findall(r"\d+", said)[:2])
    if (major, minor) >= (22, 7):
        does_by_itself = (22, 18) <= (major, minor) < (23, 0) or (major, minor) >= (23, 6)
        flags = [] if does_by_itself else ["--experimental-strip-types"]
        return program, ["--no-warnings", *flags, str(EXAMPLE / "notify.ts")]
    node.wanted(has_packages=True)  # with the typescript package: before 22.7 Node itself cannot erase types
    made = folder / "notify.mjs"
    script = (
        "const ts = require(process.argv[1]); const fs = require('fs');"
        "const options = {module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022};"
        "const source = fs.readFileSync(process.argv[2], 'utf8');"
        "fs.writeFileSync(process.argv[3], ts.transpileModule(source, {compilerOptions: options}).outputText);"
    )
    package = str(node.PACKAGES / "typescript")
    subprocess.run([program, "-e", script, package, str(EXAMPLE / "notify.ts"), str(made)], check=True)
    (folder / "texts.json").write_bytes((EXAMPLE / "texts.json").read_bytes())
    return program, [str(made)]


@pytest.mark.gate  # a whole program on a bad network
def test_the_typescript_client_notifies_on_a_bad_network_too(tmp_path: Path) -> None:
    program, arguments = javascript(tmp_path)
    (tmp_path / "door.png").write_bytes(PHOTO)
    (tmp_path / "report.pdf").write_bytes(pdf(REPORT))

    async def notify(town: Town) -> list[str]:
        given = {"PEIK_URL": town.wire.url, "PEIK_KEY": town.key}
        task = ["aziz", "17", "Amir Temur 1", "41.3111", "69.2797", "door.png", "report.pdf"]
        process = await asyncio.create_subprocess_exec(
            program, *arguments, *task, cwd=tmp_path, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return list(json.loads(output))

    async def story(town: Town) -> None:
        await town.link("aziz", AZIZ)
        town.sim.telegram.faults.add("refuse", seconds=1.0)
        town.wire.troubles["/v1/letters"] = deque(["cut", "deaf", "", "deaf", ""])
        letters = await notify(town)
        assert await notify(town) == letters
        # The same task from Python is the same notices as well: the keys and the words are the same.
        assert await town.assign("aziz") == (202, {"letters": letters})
        await town.server.quiet()
        rows = town.got(AZIZ)[1:]
        assert [row.method for row in rows] == KINDS
        assert [row.text for row in rows[:3]] == [said("uz", name) for name in ("task_assigned", "photo", "report")]
        assert town.content(town.message(rows[1])["photo"][-1]["file_id"]) == PHOTO
        assert town.content(town.message(rows[2])["document"]["file_id"]) == pdf(REPORT)

    play(tmp_path, story)


# ---- small pieces ----


def test_a_report_is_a_pdf_whose_table_is_right_and_whose_bytes_depend_on_its_lines_alone() -> None:
    whole = pdf(["Task 17", "Parts (new): 3 \\ 4"])
    assert whole == pdf(["Task 17", "Parts (new): 3 \\ 4"]) != pdf(["Task 18"])
    assert rb"(Parts \(new\): 3 \\ 4) Tj" in whole
    place = int(whole.rsplit(b"startxref\n", 1)[1].split(b"\n")[0])
    head, *rows = re.findall(rb"(\d{10}) \d{5} [nf] \n", whole[place:])
    assert whole[place:].startswith(b"xref\n0 %d\n" % (len(rows) + 1))
    assert int(head) == 0
    for number, row in enumerate(rows, 1):
        assert whole[int(row) :].startswith(b"%d 0 obj\n" % number)
    stream = re.search(rb"/Length (\d+) >>\nstream\n(.*)\nendstream", whole, re.DOTALL)
    assert stream is not None
    assert len(stream[2]) == int(stream[1])


def test_only_what_peik_signed_lately_is_heard() -> None:
    secret, body = "whsec_" + base64.b64encode(bytes(24)).decode(), b"{}"
    signature = base64.b64encode(hmac.digest(bytes(24), b"msg_1.1000.{}", hashlib.sha256)).decode()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "1000", "webhook-signature": f"v1,old v1,{signature}"}
    assert is_signed(secret, headers, body, now=1300)
    assert not is_signed(secret, headers, body, now=1301)
    assert not is_signed(secret, headers, b"{ }", now=1000)
    assert not is_signed(secret, headers | {"webhook-id": "msg_2"}, body, now=1000)
    assert not is_signed("", headers, body, now=1000)
    assert not is_signed(secret, {}, body, now=time.time())


def test_both_languages_say_everything() -> None:
    ru, uz = TEXTS["ru"], TEXTS["uz"]
    assert ru.keys() == uz.keys()
    for name in ru:
        assert set(re.findall(r"\{\w+\}", ru[name])) == set(re.findall(r"\{\w+\}", uz[name])), name
    assert [language_of(code) for code in ("uz", "uz-Cyrl", "ru", "en", None)] == ["uz", "uz", "ru", "ru", "ru"]
