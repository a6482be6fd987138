"""The audit log: every deed has its line, begun before and ended after, whichever door it came by."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from starlette.applications import Starlette

from peik.admin.api import AuditApi, Audited
from peik.admin.audit import KEEP_S, AdminUpkeep, Audit, Outcome
from peik.admin.model import ActionTaken, Key
from peik.admin.people import People
from peik.admin.sign_ins import AGE_MS, Attempts, SignIns, who_of
from peik.app import rest
from peik.core.documents import Filing
from peik.core.events import Event, Events, StoreFailed, Surprise
from peik.errors import Problem, StoreUnavailable
from peik.web import responses
from peik.web.access import Access
from peik.web.routes import routes_of
from tests.dashboard.documents import Failing, opened
from tests.dashboard.visiting import BOT, KEY, House, listening, visit
from tests.storage.places import ManualClock


@contextlib.asynccontextmanager
async def rest_of(home: House) -> AsyncIterator[str]:
    """REST with its audit log, as `rest.build` puts it together."""
    access = Access(KEY, find=home.peik.keyring.find, wall_ms=home.peik.clock.wall_ms)
    audit = home.dashboard.board.audit
    audited = Audited(audit, access)
    app = Starlette()
    app.add_exception_handler(Problem, responses.on_problem)
    for verb, path, endpoint, operation_id, _ in (
        *rest.all_routes(home.peik, KEY),
        *routes_of(AuditApi(audit), access),
    ):
        app.add_route(path, audited.wrap(verb, endpoint, operation_id), methods=[verb])
    async with listening(app) as url:
        yield url


async def call(url: str, verb: str, path: str, key: str = KEY, **more: Any) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.request(verb, url + path, headers=headers, **more) as response,
    ):
        return response.status, await response.json() if response.content_length else None


# ---- the log itself ----


def test_lines_are_found_by_who_action_and_time_the_newest_first(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        told: list[Event] = []
        events = Events()
        events.listen(told.extend)
        async with opened(tmp_path, clock) as store:
            audit = Audit(store.documents, clock, events)
            began_ms = clock.wall_ms()
            for number in range(7):
                clock.pass_ms(1000)
                who, action = ("mina", "letters.retry") if number % 2 else ("ali", "bots.pause")
                await audit.note(who=who, action=action, target=str(number), is_done=number != 3)
            page = await audit.find(limit=3)
            assert [line.target for line in page.lines] == ["6", "5", "4"]
            page = await audit.find(limit=3, cursor=page.cursor)
            assert [line.target for line in page.lines] == ["3", "2", "1"]
            page = await audit.find(limit=3, cursor=page.cursor)
            assert ([line.target for line in page.lines], page.cursor) == (["0"], None)
            assert [line.target for line in (await audit.find(who="mina")).lines] == ["5", "3", "1"]
            assert [line.target for line in (await audit.find(action="bots")).lines] == ["6", "4", "2", "0"]
            assert (await audit.find(action="bot")).lines == []
            found = await audit.find(since_ms=began_ms + 3000, until_ms=began_ms + 5000)
            assert [line.target for line in found.lines] == ["3", "2"]
            refused = [event for event in told if isinstance(event, ActionTaken) and not event.is_done]
            assert [(event.who, event.target) for event in refused] == [("mina", "3")]

    asyncio.run(story())


def test_a_deed_that_is_cut_off_stays_as_begun(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            documents = Failing(store.documents)
            audit = Audit(documents, clock, Events())
            line = await audit.begin(who="mina", action="keys.revoke", target="3")
            documents.is_down = True
            await audit.end(line, is_done=True)  # the deed stands, and nobody is told that it failed
            with pytest.raises(StoreUnavailable):
                await audit.begin(who="mina", action="keys.revoke", target="4")  # and this one is not done at all
            documents.is_down = False
            (found,) = (await audit.find()).lines
            assert (found.target, found.outcome) == ("3", Outcome.BEGUN)

    asyncio.run(story())


def test_lines_go_after_ninety_days(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with opened(tmp_path, clock) as store:
            audit = Audit(store.documents, clock, Events())
            await audit.note(who="mina", action="old", target="", is_done=True)
            clock.pass_ms(int(KEEP_S * 1000))
            assert await audit.sweep(at_ms=clock.wall_ms()) == 0
            clock.pass_ms(1)
            await audit.note(who="mina", action="new", target="", is_done=True)
            assert await audit.sweep(at_ms=clock.wall_ms()) == 1
            assert [line.action for line in (await audit.find()).lines] == ["new"]

    asyncio.run(story())


def test_a_key_is_never_taken_for_a_person() -> None:
    assert who_of(Key(id=0, name="the admin key", digest=b"", scopes=("admin",))) == "admin key"
    assert who_of(Key(id=4, name="mina", digest=b"", scopes=("read",))) == "key mina"


# ---- by the doors ----


def test_what_is_done_over_rest_is_in_the_log_and_traffic_is_not(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with rest_of(home) as url:
            status, made = await call(url, "POST", "/v1/keys", json={"name": "shop", "scopes": ["send"]})
            assert status == 201
            letter = {"method": "sendMessage", "params": {"chat_id": 5, "text": "hello"}}
            status, _ = await call(url, "POST", "/v1/letters", key=made["key"], json=letter)
            assert status == 202
            assert (await call(url, "DELETE", f"/v1/bots/{BOT}", key=made["key"]))[0] == 403
            assert (await call(url, "DELETE", f"/v1/bots/{BOT}", key="nobody's"))[0] == 401
            assert (await call(url, "DELETE", "/v1/keys/99"))[0] == 404
            status, page = await call(url, "GET", "/v1/audit")
            assert status == 200
            shown = [(line["who"], line["action"], line["target"], line["outcome"]) for line in page["audit"]]
            assert shown == [
                ("admin key", "revokeKey", "99", "refused"),
                ("key shop", "removeBot", str(BOT), "refused"),
                ("admin key", "makeKey", "", "done"),
            ]
            assert made["key"] not in str(page)
            assert page["audit"][1]["detail"].startswith("wrong_scope: ")
            assert page["audit"][2]["detail"] == f"id {made['id']}", "which one; the key itself is shown once"
            status, page = await call(url, "GET", "/v1/audit?who=key+shop&limit=1&since=2020-01-01T00:00:00Z")
            assert [line["action"] for line in page["audit"]] == ["removeBot"]

    visit(tmp_path, story)


def test_the_log_is_for_admins_and_its_filters_are_read_strictly(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with rest_of(home) as url:
            viewer = (await home.peik.keyring.make("viewer", ["send"])).text
            of_one = (await home.peik.keyring.make("one", ["admin"], bot_ids=frozenset({BOT}))).text
            assert (await call(url, "GET", "/v1/audit", key=viewer))[0] == 403
            assert (await call(url, "GET", "/v1/audit", key=of_one))[0] == 403
            for query in ("sinze=1", "limit=0", "since=yesterday", "cursor=%00", "who="):
                assert (await call(url, "GET", f"/v1/audit?{query}"))[0] == 422, query

    visit(tmp_path, story)


def test_signing_in_and_out_is_in_the_log_with_the_address(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        async with home.visitor() as browser:
            await browser.submit(await browser.get("/admin"), "/admin/sign-out")
        lines = (await home.dashboard.board.audit.find()).lines
        assert [(line.who, line.action, line.outcome, line.address) for line in lines] == [
            ("admin key", "sign_out", "done", "127.0.0.1"),
            ("admin key", "sign_in", "done", "127.0.0.1"),
        ]

    visit(tmp_path, story)


def test_upkeep_goes_on_after_a_store_that_failed(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        told: asyncio.Queue[Event] = asyncio.Queue()
        events = Events()

        def hear(heard: Sequence[Event]) -> None:
            for event in heard:
                told.put_nowait(event)

        events.listen(hear)
        async with opened(tmp_path, clock) as store:
            documents = Failing(store.documents)
            audit = Audit(documents, clock, events)
            people = People(documents, clock)
            sign_ins = SignIns(documents, people, clock, find_key=lambda digest: None, admin_key=KEY)
            attempts = Attempts(documents, clock)
            key = sign_ins.key(KEY)
            assert key is not None
            await sign_ins.sign_in_key(key, address="")
            await attempts.begin(name="mina", address="10.0.0.1")
            clock.pass_ms(AGE_MS + 1)
            documents.is_down = True
            upkeep = AdminUpkeep(audit=audit, sign_ins=sign_ins, attempts=attempts, clock=clock, events=events)
            running = asyncio.create_task(upkeep.run())
            assert isinstance(await told.get(), StoreFailed)
            assert not running.done()
            running.cancel()
            documents.is_down = False
            await upkeep.once()
            assert await documents.collections("sign_in") == []

    asyncio.run(story())


def test_upkeep_goes_on_after_what_nobody_foresaw(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        told: asyncio.Queue[Event] = asyncio.Queue()
        events = Events()
        events.listen(lambda heard: [told.put_nowait(event) for event in heard])
        async with opened(tmp_path, clock) as store:
            documents = store.documents
            sign_ins = SignIns(documents, People(documents, clock), clock, find_key=lambda digest: None, admin_key=KEY)
            # As a newer Peik may have written it, which this one cannot read.
            await documents.file([Filing(collection="sign_ins", key="a", body='{"another": "form"}')])
            upkeep = AdminUpkeep(
                audit=Audit(documents, clock, events),
                sign_ins=sign_ins,
                attempts=Attempts(documents, clock),
                clock=clock,
                events=events,
            )
            running = asyncio.create_task(upkeep.run())
            assert isinstance(await told.get(), Surprise)
            assert not running.done()
            running.cancel()

    asyncio.run(story())
