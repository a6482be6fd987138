"""One session, run in virtual time against the simulated Telegram."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.accounts.events import ArchiveGap, SessionDown, SessionFlooded, SessionRevoked, SessionUnfit, SessionUp
from peik.accounts.history import CHOICE_S, ask_for_crawl
from peik.accounts.registry import KeepMode, secret_context
from peik.accounts.runner import SessionEnded, SessionRunner
from peik.archive.store import EventFilter, SessionState
from peik.core.events import Surprise
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.listening import until
from tests.accounts.stage import Stage
from tests.accounts.test_client import TlWorld
from tests.accounts.tl_server import PHONE

Story = Callable[[Stage], Awaitable[None]]


def play(folder: Path, story: Story, *, seed: int = 1) -> None:
    async def main(clock: VirtualClock) -> None:
        stage = await Stage(clock, seed).open(folder)
        await stage.sign_in(stage.ali)
        await story(stage)
        await stage.archive.close()

    run_virtual(main)


@asynccontextmanager
async def running(stage: Stage, session_id: str = "s1", **other: Any) -> AsyncIterator[SessionRunner]:
    runner = SessionRunner(session_id, stage.tools(**other))
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_what_is_seen_is_kept_and_the_state_says_active(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            stage.telegram.say(stage.private, stage.sara, "hello")
            stage.telegram.say(stage.team, stage.sara, "news")
            await asyncio.sleep(5)
            session = await stage.session()
            assert (session.state, session.is_connected) == (SessionState.ACTIVE, True)
            assert session.active_at_ms is not None
            assert await stage.texts() == ["hello", "news"]
        session = await stage.session()
        assert (session.state, session.is_connected) == (SessionState.ACTIVE, False)

    play(tmp_path, story)


def test_a_session_that_was_taken_in_by_its_key_learns_its_phone(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.registry.change("s1", lambda old: msgspec.structs.replace(old, phone=None, user_id=None))
        async with running(stage) as runner:
            await until(lambda: runner.client)
            assert (await stage.session()).phone == stage.ali.phone

    play(tmp_path, story)


@pytest.mark.parametrize("has_run", [False, True])
def test_one_session_per_phone_holds_for_those_that_were_taken_in(tmp_path: Path, has_run: bool) -> None:
    async def story(stage: Stage) -> None:
        await stage.sign_in(stage.sara, "s2")
        unknown = {"phone": None, "user_id": stage.ali.user_id if has_run else None}
        await stage.registry.change("s1", lambda old: msgspec.structs.replace(old, **unknown))
        await stage.registry.change("s2", lambda old: msgspec.structs.replace(old, phone=stage.ali.phone))
        runner = SessionRunner("s1", stage.tools())
        task = asyncio.create_task(runner.run())
        await until(lambda: runner.client or task.done())
        session = await stage.session()
        assert session.phone is None
        assert "one of the two is enough" in (session.state_reason or "")
        assert session.state is (SessionState.ACTIVE if has_run else SessionState.FAILED)
        task.cancel()
        await asyncio.wait([task])

    play(tmp_path, story)


def test_it_comes_back_by_itself_and_misses_nothing(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            stage.telegram.is_down = True
            stage.telegram.cut(stage.ali)
            await asyncio.sleep(3600)
            waits = [one.retry_s for one in stage.told_of(SessionDown)]
            assert 10 < len(waits) < 40
            assert all(150 <= one <= 300 for one in waits[-5:])
            stage.telegram.say(stage.private, stage.sara, "meanwhile")
            stage.telegram.is_down = False
            await until(lambda: runner.client, within_s=400)
            await asyncio.sleep(1)
            assert await stage.texts() == ["meanwhile"]

    play(tmp_path, story)


def test_a_revoked_session_ends_and_is_told_once(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        runner = SessionRunner("s1", stage.tools())
        task = asyncio.create_task(runner.run())
        await until(lambda: runner.client)
        stage.archive.is_down = True
        stage.telegram.revoke(stage.ali)
        await asyncio.sleep(30)
        assert not stage.told_of(SessionRevoked)
        stage.archive.is_down = False
        assert await task is SessionEnded.REVOKED
        session = await stage.session()
        assert (session.state, session.is_connected) == (SessionState.REVOKED, False)
        assert session.state_reason == "The session was ended from another device. Sign in again."
        assert len(stage.told_of(SessionRevoked)) == 1
        assert await SessionRunner("s1", stage.tools()).run() is SessionEnded.GONE

    play(tmp_path, story)


def test_a_flood_of_the_history_is_waited_for_while_it_listens_on(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.flood("dialogs", 500)
        async with running(stage) as runner:
            await asyncio.sleep(100)
            session = await stage.session()
            assert (session.state, session.state_reason) == (
                SessionState.FLOOD_WAIT,
                "Telegram asks to wait 500 s (FLOOD_WAIT).",
            )
            assert session.state_until_ms is not None
            assert 390_000 < session.state_until_ms - stage.clock.wall_ms() <= 500_000
            await until(lambda: runner.client, within_s=600)
            stage.telegram.flood("dialogs", 500)
            await until(lambda: len(stage.told_of(SessionFlooded)) == 2, within_s=2000)
            stage.telegram.say(stage.private, stage.sara, "while it waits")
            await asyncio.sleep(2)
            assert (await stage.session()).state is SessionState.FLOOD_WAIT
            assert await stage.texts() == ["while it waits"]
            await asyncio.sleep(600)
            session = await stage.session()
            assert (session.state, session.state_until_ms) == (SessionState.ACTIVE, None)

    play(tmp_path, story)


def test_a_flood_wait_outlives_the_process(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
        until_ms = stage.clock.wall_ms() + 300_000
        await stage.registry.change(
            "s1", lambda old: msgspec.structs.replace(old, state=SessionState.FLOOD_WAIT, state_until_ms=until_ms)
        )
        async with running(stage) as runner:
            await until(lambda: runner.client)
            await asyncio.sleep(200)
            assert (await stage.session()).state is SessionState.FLOOD_WAIT
            await asyncio.sleep(110)
            assert (await stage.session()).state is SessionState.ACTIVE

    play(tmp_path, story)


def test_a_key_that_cannot_be_opened_fails_with_what_to_do(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.registry.change("s1", lambda old: msgspec.structs.replace(old, secret=b"\x01other key" * 9))
        assert await SessionRunner("s1", stage.tools()).run() is SessionEnded.FAILED
        session = await stage.session()
        assert session.state is SessionState.FAILED
        assert "PEIK_SECRET_KEY" in (session.state_reason or "")
        assert len(stage.told_of(SessionUnfit)) == 1

    play(tmp_path, story)


def test_its_owner_has_the_last_word(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            await stage.registry.change("s1", lambda old: msgspec.structs.replace(old, state=SessionState.PAUSED))
            stage.telegram.revoke(stage.ali)
            await asyncio.sleep(10)
        assert (await stage.session()).state is SessionState.PAUSED

    play(tmp_path, story)


def test_telethon_is_run_the_same_way(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        world = TlWorld(stage.clock)
        client = world.factory(session_id="t1", agent_id="a", secret=None, file=None, proxy=None)
        await client.connect()
        sent = await client.send_code(PHONE)
        me = await client.sign_in(PHONE, world.code(), sent.code_hash)
        secret = stage.vault.seal(client.secret(), context=secret_context("t1"))
        await client.disconnect()
        await stage.registry.create_session("a", session_id="t1")
        await stage.registry.change(
            "t1",
            lambda old: msgspec.structs.replace(old, secret=secret, state=SessionState.ACTIVE, user_id=me.user_id),
        )
        async with running(stage, "t1", clients=world.factory) as runner:
            await until(lambda: runner.client)
            world.write("hello")
            world.post("news")
            await asyncio.sleep(5)
            world.cut()
            world.write("while it was cut")
            await asyncio.sleep(20)
            assert await stage.texts("t1") == ["hello", "news", "while it was cut"]
        world.write("in a gap")
        world.forget()
        async with running(stage, "t1", clients=world.factory):
            await asyncio.sleep(60)
        assert await stage.texts("t1") == ["hello", "in a gap", "news", "while it was cut"]
        assert stage.told_of(ArchiveGap)

    play(tmp_path, story)


class _Broken:
    """A client that breaks its word in one call: it hangs, or raises what it must not."""

    def __init__(self, inner: Any, call: str, *, hangs: bool) -> None:
        self._inner, self._call, self._hangs = inner, call, hangs

    def __getattr__(self, name: str) -> Any:
        return self._break if name == self._call else getattr(self._inner, name)

    async def _break(self, *_: Any, **__: Any) -> Any:
        if self._hangs:
            await asyncio.get_running_loop().create_future()
        raise RuntimeError("broken")


@pytest.mark.parametrize("hangs", [True, False])
@pytest.mark.parametrize("call", ["connect", "listen", "dialogs", "disconnect", "history"])
def test_one_that_misbehaves_disturbs_no_other(tmp_path: Path, call: str, hangs: bool) -> None:
    async def story(stage: Stage) -> None:
        await stage.sign_in(stage.sara, "s2")

        def clients(**wanted: Any) -> Any:
            return _Broken(stage.telegram.clients(**wanted), call, hangs=hangs)

        async with running(stage, "s1", clients=clients), running(stage, "s2") as good:
            await until(lambda: good.client)
            await asyncio.sleep(1000)
            assert good.client is not None
            stage.telegram.say(stage.private, stage.sara, "hello")
            await asyncio.sleep(2)
            assert await stage.texts("s2") == ["hello"]
            if call in ("connect", "listen"):
                assert len(stage.told_of(SessionDown)) > 3
                assert [one.session_id for one in stage.told_of(SessionUp)] == ["s2"]
        assert hangs or call == "history" or stage.told_of(Surprise)

    play(tmp_path, story)


def test_many_flooded_accounts_make_all_wait(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        for name, wait_s in (("a", 100.0), ("b", 200.0)):
            stage.budget.flooded(name, wait_s)
        assert stage.budget.ready_at("calm") <= stage.clock.mono()
        stage.budget.flooded("c", 300.0)
        began = stage.clock.mono()
        await stage.budget.turn("calm")
        assert stage.clock.mono() - began == pytest.approx(100.0)
        for _ in range(20):
            await stage.budget.turn("calm")
        assert stage.clock.mono() - began == pytest.approx(160.0)

    play(tmp_path, story)


def test_what_is_not_to_be_kept_is_neither_archived_nor_told_nor_read_from_the_history(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        keep = {"private": KeepMode.NOTHING, str(stage.team.chat_id): KeepMode.NOTHING}
        await stage.registry.update_session_keep("s1", keep)
        async with running(stage) as runner:
            await until(lambda: runner.client)
            for chat in (stage.private, stage.group, stage.team):
                post = stage.telegram.say(chat, stage.sara, f"one to {chat.kind}")
                stage.telegram.edit(chat, post, f"two to {chat.kind}")
                stage.telegram.happen(chat, "reaction", number=post.number)
            gone = stage.telegram.say(stage.team, stage.sara, "soon gone")
            stage.telegram.delete(stage.team, gone)
            await ask_for_crawl(runner.chats, stage.team.chat_id)
            runner.ring()
            await asyncio.sleep(5)
            # A hole as well, and looks into histories.
            stage.telegram.cut(stage.ali)
            stage.telegram.say(stage.team, stage.sara, "while away")
            stage.telegram.say(stage.group, stage.sara, "while away, to the family")
            stage.telegram.forget(stage.team)
            stage.telegram.forget(stage.ali)
            await asyncio.sleep(3 * 3600)
            assert await stage.texts() == ["two to group", "while away, to the family"]
            told = await stage.archive.fed("s1", after=0, limit=100)
            assert {one.chat_id for one in told} <= {stage.group.id_for(stage.ali), None}
            events, _ = await stage.archive.events(EventFilter(session_id="s1"), cursor=None, limit=100)
            assert {one.chat_id for one in events} == {stage.group.id_for(stage.ali)}

            await stage.registry.update_session_keep("s1", {"private": None, str(stage.team.chat_id): None})
            await asyncio.sleep(CHOICE_S)
            for chat in (stage.private, stage.team):
                stage.telegram.say(chat, stage.sara, f"three to {chat.kind}")
            await asyncio.sleep(3 * 3600)
            kept = await stage.texts()
            assert "three to private" in kept
            assert "three to supergroup" in kept
            assert "while away" in kept, "the crawl that was asked for goes on"

    play(tmp_path, story)
