"""Updates by webhook: kept set at Telegram in virtual time, and the door itself over real sockets."""

import asyncio
import contextlib
import io
import json
import socket
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest

from peik.core import events
from peik.core.arrival import DISORDER_MAX, UPDATE_TYPES, read_update
from peik.core.token import Token
from peik.errors import BadInput, StartError, StoreUnavailable
from peik.inbox.intake import Intake
from peik.inbox.store import ArrivalFilter
from peik.inbox.webhooks import PushedUpdates
from peik.testing.updates import PushResult
from tests.inbox.sources import (
    SOON_S,
    Bench,
    OtherProgram,
    arrivals,
    number_from,
    numbered,
    state,
    stored_in,
    texts,
    waiting,
    write,
)
from tests.outbox.story import BOT, TOKEN, Stage, play, play_closed
from tests.processes.programs import Server, Sim, served, simulated

PUBLIC = "https://peik.example.com"
OURS = f"{PUBLIC}/webhook/{BOT}"
HOUR_S = 3600.0


def url(stage: Stage) -> str | None:
    webhook = stage.telegram.bots[BOT].webhook
    return None if webhook is None else webhook.url


async def push(stage: Stage, *, fails: frozenset[str] = frozenset()) -> None:
    """Telegram pushes what is due, straight into the inbox; texts of `fails` are not taken."""
    while due := stage.telegram.pushes_due():
        for one in due:
            if json.loads(one.body).get("message", {}).get("text") in fails:
                stage.telegram.push_done(one, PushResult(status=503, retry_after_s=3600.0))
            else:
                await stage.peik.inbox.receiver.pushed.take_in(BOT, read_update(one.body))
                stage.telegram.push_done(one, PushResult(status=200))


# ---- the webhook at Telegram ----


def test_the_webhook_is_set_with_a_secret_and_every_type_and_without_dropping_anything() -> None:
    async def story(stage: Stage) -> None:
        write(stage, 0, 2)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            webhook = stage.telegram.bots[BOT].webhook
            assert webhook is not None
            assert webhook.url == OURS
            assert webhook.secret_token == await stage.peik.inbox.receiver.pushed.secret(BOT)
            assert len(webhook.secret_token) >= 32
            assert webhook.connections_max == 100
            assert stage.telegram.bots[BOT].allowed == frozenset(UPDATE_TYPES)
            assert len(stage.events_of(events.WebhookSet)) == 1
            await push(stage)
            assert await texts(stage) == numbered(0, 2)
            secret = webhook.secret_token
        async with stage.open():
            await asyncio.sleep(SOON_S)
            assert await stage.peik.inbox.receiver.pushed.secret(BOT) == secret

    play_closed(story, inbound="webhook", public_url=PUBLIC)


def test_a_webhook_that_somebody_replaced_is_told_and_set_again_once_a_minute() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        stranger = OtherProgram(stage)
        until = stage.clock.mono() + 15 * 60.0
        while stage.clock.mono() < until:
            await stranger.call("setWebhook", url="https://evil.example.com/secret-path")
            await asyncio.sleep(5.0)
        told = stage.events_of(events.Intruder)
        assert [(one.kind, one.detail) for one in told] == [("webhook", "evil.example.com")] * 2
        assert 10 <= len(stage.events_of(events.WebhookSet)) <= 17
        await asyncio.sleep(61.0)
        assert url(stage) == OURS

    play(story, inbound="webhook", public_url=PUBLIC)


def test_a_webhook_that_somebody_removed_is_set_again() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        await OtherProgram(stage).call("deleteWebhook")
        await asyncio.sleep(61.0)
        assert url(stage) == OURS
        assert not stage.events_of(events.Intruder)

    play(story, inbound="webhook", public_url=PUBLIC)


def test_pushes_that_fail_are_told_once_and_so_is_their_end() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(70.0)
        write(stage, 0, 1)
        for _ in range(3):
            for one in stage.telegram.pushes_due():
                stage.telegram.push_done(one, PushResult(error="Connection refused"))
            await asyncio.sleep(61.0)
        (failed,) = stage.events_of(events.SourceFailed)
        assert (failed.source, failed.why) == ("webhook", "Connection refused")
        await push(stage)
        await asyncio.sleep(125.0)
        assert len(stage.events_of(events.SourceBack)) == 1
        assert await texts(stage) == numbered(0, 1)

    play(story, inbound="webhook", public_url=PUBLIC)


def test_pushes_that_fail_are_noticed_though_our_clock_was_a_day_ahead() -> None:
    async def story(stage: Stage) -> None:
        stage.clock.wall_offset_s = 24 * HOUR_S
        async with stage.open():
            stage.clock.wall_offset_s = 0.0
            await asyncio.sleep(70.0)
            write(stage, 0, 1)
            for _ in range(3):
                for one in stage.telegram.pushes_due():
                    stage.telegram.push_done(one, PushResult(error="Connection refused"))
                await asyncio.sleep(61.0)
            assert len(stage.events_of(events.SourceFailed)) == 1

    play_closed(story, inbound="webhook", public_url=PUBLIC)


@pytest.mark.parametrize("inbound", ["polling", "webhook"])
def test_in_a_quiet_hour_it_is_noted_more_often_than_a_message_may_wait_that_we_listen(inbound: str) -> None:
    """Else every crash in it would be an outage, however soon somebody starts Peik again."""

    async def story(stage: Stage) -> None:
        await asyncio.sleep(100.0)
        ages_ms = []
        for _ in range(600):
            await asyncio.sleep(1.0)
            ages_ms.append(stage.clock.wall_ms() - ((await state(stage)).seen_at_ms or 0))
        assert max(ages_ms) < stage.config().missed_after * 1000 - 8000

    play(story, inbound=inbound, public_url=PUBLIC)


def test_an_outage_of_telegram_does_not_stop_the_keeper() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.outage(HOUR_S)
        async with stage.open():
            await asyncio.sleep(HOUR_S - 10.0)
            assert url(stage) is None
            await asyncio.sleep(60.0)
            assert url(stage) == OURS
            assert len(stage.events_of(events.SourceFailed)) == 1

    play_closed(story, inbound="webhook", public_url=PUBLIC)


def test_what_telegram_says_against_the_address_is_passed_on() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(10 * 60.0)
        (failed,) = stage.events_of(events.SourceFailed)
        assert "HTTPS" in failed.why
        assert stage.telegram.counters.requests["setWebhook"] <= 11
        assert not stage.peik.inbox.receiver.status(BOT).is_well

    play(story, inbound="webhook", public_url="http://peik.example.com")


def test_without_a_public_url_a_webhook_is_refused_with_what_to_set(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(BadInput, match="PEIK_PUBLIC_URL"):
            await stage.peik.outbox.service.change_bot(BOT, inbound="webhook")
        with pytest.raises(BadInput, match="PEIK_PUBLIC_URL"):
            await stage.peik.outbox.service.save_bot(Token("42:other"), inbound="webhook")

    async def refused(stage: Stage) -> None:
        with pytest.raises(StartError, match="PEIK_PUBLIC_URL"):
            async with stage.open():
                pass

    play(story)
    play_closed(refused, inbound="webhook")


def test_a_worker_without_an_address_is_content_while_another_process_is_pushed_to() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await asyncio.sleep(SOON_S)
        stage._settings.update(inbound="off", public_url="")  # a worker on the same store
        async with stage.open():
            await asyncio.sleep(3 * 60.0)
            assert stage.peik.inbox.receiver.status(BOT).is_well
            assert not stage.events_of(events.SourceFailed)
            assert url(stage) == OURS
            await OtherProgram(stage).call("deleteWebhook")
            await asyncio.sleep(2 * 60.0)
            (told,) = stage.events_of(events.SourceFailed)
            assert "PEIK_PUBLIC_URL" in told.why

    play_closed(story, inbound="webhook", public_url=PUBLIC)


def test_a_disk_that_fails_while_the_webhook_is_set_is_no_surprise() -> None:
    async def story(stage: Stage) -> None:
        def refuse(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
            if "secrets" in sql:
                raise apsw.FullError("simulated")
            return True

        stage.peik.store._connection.exec_trace = refuse
        await stage.peik.outbox.service.change_bot(BOT, inbound="webhook")
        await asyncio.sleep(60.0)
        assert url(stage) is None
        assert not stage.peik.inbox.receiver.status(BOT).is_well
        assert not [one for one in stage.events_of(events.Surprise) if one.where == "source"]
        stage.peik.store._connection.exec_trace = None
        await asyncio.sleep(60.0)
        assert url(stage) == OURS
        assert stage.peik.inbox.receiver.status(BOT).is_well

    play(story, inbound="off", public_url=PUBLIC)


def test_one_update_that_is_never_taken_does_not_keep_an_outage_open() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await asyncio.sleep(SOON_S)
        write(stage, 0, 1)
        await asyncio.sleep(HOUR_S)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            assert stage.peik.inbox.outages.holds(BOT)
            for _ in range(15 * 60):
                for one in stage.telegram.pushes_due():
                    stage.telegram.push_done(one, PushResult(status=400))
                await asyncio.sleep(1.0)
            assert stage.events_of(events.SourceFailed)
            assert not stage.peik.inbox.outages.holds(BOT)
            assert len(stage.events_of(events.OutageSettled)) == 1

    play_closed(story, inbound="webhook", public_url=PUBLIC, missed="notify")


# ---- from one source to another ----


def test_from_webhook_to_polling_nothing_is_lost_that_a_push_did_not_bring() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        for user in range(4):  # each in a line of its own, so that one that fails does not keep back the others
            write(stage, user, 1, user=user + 1)
        await push(stage, fails=frozenset({"n1"}))
        assert sorted(await texts(stage)) == ["n0", "n2", "n3"]
        await stage.peik.outbox.service.change_bot(BOT, inbound="polling")
        await asyncio.sleep(10.0)
        assert url(stage) is None
        assert await texts(stage) == ["n0", "n2", "n3", "n1"]
        write(stage, 4, 1)
        await asyncio.sleep(SOON_S)
        assert (await texts(stage))[4:] == ["n4"]
        assert waiting(stage) == 0
        for kind in (events.Intruder, events.UpdatesExpired, events.NumberingReset, events.SourceFailed):
            assert not stage.events_of(kind), kind

    play(story, inbound="webhook", public_url=PUBLIC)


def test_from_polling_to_webhook_and_back_nothing_is_lost_or_taken_for_a_theft() -> None:
    async def story(stage: Stage) -> None:
        write(stage, 0, 3)
        await asyncio.sleep(SOON_S)
        await stage.peik.outbox.service.change_bot(BOT, inbound="webhook")
        await asyncio.sleep(SOON_S)
        write(stage, 3, 3)
        await push(stage)
        assert (await state(stage)).last_update_id == (await arrivals(stage))[2].update_id  # what polls may confirm
        await stage.peik.outbox.service.change_bot(BOT, inbound="polling")
        await asyncio.sleep(10.0)
        write(stage, 6, 3)
        await asyncio.sleep(SOON_S)
        assert await texts(stage) == numbered(0, 9)
        for kind in (events.Intruder, events.UpdatesExpired, events.NumberingReset):
            assert not stage.events_of(kind), kind

    play(story, inbound="polling", public_url=PUBLIC)


def test_another_source_or_token_after_quiet_hours_is_no_outage() -> None:
    async def story(stage: Stage) -> None:
        for quiet_s in range(0, 120, 10):
            await asyncio.sleep(HOUR_S + quiet_s)
            await stage.peik.outbox.service.change_bot(BOT, token=Token(stage.telegram.revoke(BOT)))
            await asyncio.sleep(HOUR_S + quiet_s)
            await stage.peik.outbox.service.change_bot(BOT, inbound="webhook")
            await asyncio.sleep(HOUR_S + quiet_s)
            await stage.peik.outbox.service.change_bot(BOT, inbound="polling")
        assert not stage.events_of(events.OutageSettled)

    play(story, inbound="polling", public_url=PUBLIC, missed="both")


def test_a_replay_of_something_old_is_not_taken_for_the_newest_that_came_by_webhook() -> None:
    async def story(stage: Stage) -> None:
        write(stage, 0, 3)
        await asyncio.sleep(SOON_S)
        await stage.peik.outbox.service.change_bot(BOT, inbound="webhook")
        await asyncio.sleep(SOON_S)
        write(stage, 3, 3)
        await push(stage)
        first = (await arrivals(stage))[0].number
        assert await stage.peik.inbox.service.replay(ArrivalFilter(bot_id=BOT, last_number=first), "default") == 1
        await stage.peik.outbox.service.change_bot(BOT, inbound="polling")
        await asyncio.sleep(10.0)
        write(stage, 6, 3)
        await asyncio.sleep(SOON_S)
        assert await texts(stage) == [*numbered(0, 6), "n0", *numbered(6, 3)]
        for kind in (events.Intruder, events.UpdatesExpired, events.NumberingReset):
            assert not stage.events_of(kind), kind

    play(story, inbound="polling", public_url=PUBLIC)


def test_a_bot_that_is_turned_off_or_removed_leaves_no_webhook_behind_and_its_updates_are_kept() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        write(stage, 0, 2)
        stage.telegram.faults.add("error", method="deleteWebhook", count=2)
        await stage.peik.outbox.service.change_bot(BOT, inbound="off")
        await asyncio.sleep(30.0)
        assert url(stage) is None
        assert waiting(stage) == 2
        await stage.peik.outbox.service.change_bot(BOT, inbound="webhook")
        await asyncio.sleep(SOON_S)
        assert url(stage) == OURS
        await stage.peik.outbox.service.remove_bot(BOT)
        await asyncio.sleep(SOON_S)
        assert url(stage) is None
        assert not stage.events_of(events.Surprise)

    play(story, inbound="webhook", public_url=PUBLIC)


def test_a_webhook_that_is_wanted_again_before_it_was_taken_away_stays() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        fault = stage.telegram.faults.add("error", method="deleteWebhook")
        await stage.peik.outbox.service.change_bot(BOT, inbound="off")
        await asyncio.sleep(SOON_S)
        await stage.peik.outbox.service.change_bot(BOT, inbound="webhook")
        await asyncio.sleep(SOON_S)
        stage.telegram.faults.clear(fault)
        for _ in range(60):
            await asyncio.sleep(1.0)
            assert url(stage) == OURS

    play(story, inbound="webhook", public_url=PUBLIC)


def test_a_foreign_webhook_of_a_bot_that_is_turned_off_stays() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        await OtherProgram(stage).call("setWebhook", url="https://elsewhere.example.com/hook")
        await stage.peik.outbox.service.change_bot(BOT, inbound="off")
        await asyncio.sleep(30.0)
        assert url(stage) == "https://elsewhere.example.com/hook"

    play(story, inbound="webhook", public_url=PUBLIC)


# ---- ids ----


def test_pushes_out_of_order_are_one_epoch_and_a_far_lower_id_is_another() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        pushed = stage.peik.inbox.receiver.pushed
        base = 500_000_000
        for number in (base, base + 2, base + 1, base + 2 - DISORDER_MAX):
            await pushed.take_in(BOT, _update(number))
        assert (await state(stage)).epoch == 1
        await pushed.take_in(BOT, _update(2_500_000))
        await pushed.take_in(BOT, _update(2_500_001))
        assert (await state(stage)).epoch == 2
        assert len(await arrivals(stage)) == 6
        (reset,) = stage.events_of(events.NumberingReset)
        assert (reset.first_id, reset.epoch) == (2_500_000, 2)
        await pushed.take_in(BOT, _update(2_500_001))  # Telegram did not hear our 200
        assert len(await arrivals(stage)) == 6

    play(story, inbound="webhook", public_url=PUBLIC)


def test_after_a_restart_the_newest_id_is_known_from_the_store() -> None:
    async def story(stage: Stage) -> None:
        number_from(stage, 1_900_000_000)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            write(stage, 0, 2)
            await push(stage)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            await stage.peik.inbox.receiver.pushed.take_in(BOT, _update(5_000_000))
            assert (await state(stage)).epoch == 2
            assert len(await arrivals(stage)) == 3

    play_closed(story, inbound="webhook", public_url=PUBLIC)


def test_a_push_that_cannot_be_stored_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        await bench.store.inbox.open_inbox(BOT, server="s", at_ms=stage.clock.wall_ms())

        async def nobody(bot_id: int, chats: object) -> None: ...

        told = events.Events()
        intake = Intake(store=bench.unsure, clock=stage.clock, events=told, spoke=nobody)  # type: ignore[arg-type]
        pushed = PushedUpdates(store=bench.unsure, secret_store=bench.store, intake=intake, events=told)  # type: ignore[arg-type]
        await pushed.take_in(BOT, _update(900_000_000))
        bench.unsure.refuses = 1
        with pytest.raises(StoreUnavailable):
            await pushed.take_in(BOT, _update(5_000_000))
        assert (await epoch(bench)) == 1
        await pushed.take_in(BOT, _update(5_000_001))  # the first of the new numbering that is stored
        await pushed.take_in(BOT, _update(5_000_000))
        assert (await epoch(bench)) == 2
        assert len(await stored_in(bench.store)) == 3
        await bench.store.close()

    play_closed(story)


async def epoch(bench: Bench) -> int:
    found = await bench.store.inbox.inbox(BOT)
    assert found is not None
    return found.epoch


def _update(update_id: int) -> Any:
    message = {"message_id": update_id % 1000, "chat": {"id": 5}, "from": {"id": 5}, "date": 1, "text": str(update_id)}
    return read_update(json.dumps({"update_id": update_id, "message": message}).encode())


# ---- the door, over real sockets ----


@contextlib.asynccontextmanager
async def door(folder: Path) -> AsyncIterator[tuple[Server, Sim, aiohttp.ClientSession]]:
    """`peik serve` whose bot has its updates pushed by the simulated Telegram."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"inbound": "webhook", "port": str(port), "public_url": f"http://127.0.0.1:{port}"}
    async with simulated(folder, mode="local") as (sim, http):
        await sim.post("bots", token=TOKEN)
        async with served(folder, sim.url, http, **settings) as server:
            await until_set(sim)
            yield server, sim, http
            assert not server.surprises()


async def until_set(sim: Sim) -> None:
    async with asyncio.timeout(20):
        while True:
            (bot,) = await sim.get("bots")
            if bot["webhook"]:
                return
            await asyncio.sleep(0.05)


def secret(folder: Path) -> str:
    with contextlib.closing(sqlite3.connect(folder / "peik.db")) as database:
        ((found,),) = database.execute("SELECT value FROM secrets WHERE name = ?", (f"webhook:{BOT}",))
    return str(found)


async def stored(folder: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(folder / "peik.db")) as database:
        return database.execute("SELECT type, payload FROM arrivals ORDER BY number").fetchall()


async def until_stored(folder: Path, count: int) -> list[tuple[str, str]]:
    async with asyncio.timeout(60):
        while True:
            found = await stored(folder)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


def test_pushes_come_in_and_those_of_a_killed_peik_come_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with door(tmp_path) as (server, sim, _):
            for number in range(60):
                await sim.post("write", bot=TOKEN, user=number % 20 + 1, text=f"n{number}")
            await until_stored(tmp_path, 60)
            await server.program.kill()
            for number in range(60, 90):
                await sim.post("write", bot=TOKEN, user=number % 20 + 1, text=f"n{number}")
            await server.start()
            found = await until_stored(tmp_path, 90)
            words = [json.loads(payload)["message"]["text"] for _, payload in found]
            assert sorted(words, key=lambda word: int(word[1:])) == numbered(0, 90)
            for user in range(20):
                own = [int(word[1:]) for word in words if int(word[1:]) % 20 == user]
                assert own == sorted(own)

    asyncio.run(story())


def test_forged_oversized_and_broken_calls_are_refused_and_an_update_of_tomorrow_is_stored(tmp_path: Path) -> None:
    async def story() -> None:
        async with door(tmp_path) as (server, _, http):
            right = {"X-Telegram-Bot-Api-Secret-Token": secret(tmp_path)}
            wrong = {"X-Telegram-Bot-Api-Secret-Token": secret(tmp_path)[:-1] + "?"}
            path = f"/webhook/{BOT}"

            async def post(path: str, body: bytes, headers: dict[str, str]) -> int:
                async with http.post(f"{server.url}{path}", data=io.BytesIO(body), headers=headers) as response:
                    return response.status

            whole = b'{"update_id":7,"dream_shared":{"chat":{"id":5}}}'
            assert await post(path, whole, {}) == 401
            assert await post(path, whole, wrong) == 401
            assert await post(path, whole, {"X-Telegram-Bot-Api-Secret-Token": "é"}) == 401
            assert await post("/webhook/42", whole, right) == 401
            assert await post("/webhook/" + "9" * 400, whole, right) == 401
            assert await post("/webhook/\u0667", whole, right) == 401
            assert await post(path, b'{"update_id":', right) == 400
            assert await post(path, b"[1,2]", right) == 400
            assert await post(path, b'{"message":{}}', right) == 400
            assert await post(path, b"\xff\x00", right) == 400
            assert await post(path, b'{"update_id":7,"message":' + b"[" * 500_000, right) == 400
            assert await post(path, b'{"update_id":7,"message":"' + b"x" * (1 << 20) + b'"}', right) == 413
            async with http.get(f"{server.url}{path}") as response:
                assert response.status == 405
            assert await stored(tmp_path) == []
            assert await post(path, whole, right) == 200
            assert await post(path, whole, right) == 200  # the same once more
            assert await post(path, b'{"update_id":8,"message":{"text":"\\ud800"}}', right) == 200
            assert [kind for kind, _ in await stored(tmp_path)] == ["dream_shared", "message"]
            status, _ = await server.call("PATCH", f"/v1/bots/{BOT}", json={"inbound": "off"})
            assert status == 200
            assert await post(path, whole, right) == 401

    asyncio.run(story())


@pytest.mark.gate  # waits as long as a lock is waited for
def test_while_nothing_can_be_stored_telegram_is_asked_to_come_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with door(tmp_path) as (server, sim, http):
            headers = {"X-Telegram-Bot-Api-Secret-Token": secret(tmp_path)}
            blocker = apsw.Connection(str(tmp_path / "peik.db"))
            blocker.execute("BEGIN IMMEDIATE")
            body = b'{"update_id":7,"message":{"chat":{"id":5},"text":"n0"}}'
            async with http.post(f"{server.url}/webhook/{BOT}", data=body, headers=headers) as response:
                assert response.status == 503
                assert int(response.headers["Retry-After"]) >= 1
            blocker.execute("ROLLBACK")
            blocker.close()
            await sim.post("write", bot=TOKEN, user=5, text="n1")
            found = await until_stored(tmp_path, 1)
            assert [json.loads(payload)["message"]["text"] for _, payload in found] == ["n1"]

    asyncio.run(story())
