"""The listener between a session and the archive."""

import asyncio
from pathlib import Path

import pytest

from peik.accounts.client import HistoryGap
from peik.accounts.events import ArchiveGap, SessionDown
from peik.accounts.history import SHARED, ChatStates, has_gap
from peik.accounts.runner import KEEP_S, SeenUpdates, SessionRunner
from peik.archive.store import EventFilter
from peik.errors import StoreUnavailable
from tests.accounts.listening import until
from tests.accounts.stage import Stage
from tests.accounts.test_reconciling import reconciler_of
from tests.accounts.test_running import play, running


def test_edits_deletions_and_events_are_kept(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            post = stage.telegram.say(stage.private, stage.sara, "first")
            gone = stage.telegram.say(stage.team, stage.sara, "gone")
            await asyncio.sleep(2)
            stage.telegram.edit(stage.private, post, "second")
            stage.telegram.delete(stage.team, gone)
            stage.telegram.happen(stage.team, "reaction", by=7)
            await asyncio.sleep(5)
        kept = {one.text: one for one in await stage.kept()}
        assert set(kept) == {"second", "gone"}
        assert kept["gone"].deleted_at_ms is not None
        second = kept["second"]
        versions = await stage.archive.versions("s1", second.chat_id, second.message_id)
        assert [one.text for one in versions] == ["first", "second"]
        events, _ = await stage.archive.events(EventFilter(session_id="s1"), cursor=None, limit=10)
        assert [one.event_type for one in events] == ["reaction"]

    play(tmp_path, story)


def test_chats_are_listed_as_soon_as_something_is_seen_in_them_with_their_newest_message(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            await asyncio.sleep(5)
            joined = stage.telegram.channel("Joined", stage.sara, stage.ali)
            omar = stage.telegram.register("+998900000003", first_name="Omar")
            stranger = stage.telegram.private(stage.ali, omar)
            for _ in range(3):
                stage.telegram.say(joined, stage.sara, "new")
                stage.telegram.say(stranger, omar, "hello")
            await asyncio.sleep(3)
            states = await runner.chats.all()
            assert states[joined.chat_id].newest_id > 0
            assert states[joined.chat_id].checked_to == 0
            assert states[omar.user_id].newest_id > 0
            await asyncio.sleep(61)
            stage.telegram.say(joined, stage.sara, "later")
            await asyncio.sleep(3)
            states = await runner.chats.all()
            assert states[joined.chat_id].newest_id == 4
            assert states[omar.user_id].newest_id == max(stage.ali.box.posts)
            await asyncio.sleep(2000)
            states = await runner.chats.all()
            assert states[omar.user_id].title == "Omar"
            assert states[omar.user_id].newest_id == max(stage.ali.box.posts)
            assert len(await stage.kept()) == 7

    play(tmp_path, story)


def test_an_archive_that_fails_ends_the_connection_and_everything_comes_again(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            await asyncio.sleep(5)
            stage.archive.is_down = True
            stage.telegram.say(stage.private, stage.sara, "into a full disk")
            await until(lambda: stage.told_of(SessionDown))
            assert "could not be kept" in stage.told_of(SessionDown)[0].why
            stage.telegram.say(stage.private, stage.sara, "and more")
            await asyncio.sleep(20)
            stage.archive.is_down = False
            await until(lambda: runner.client, within_s=400)
            await asyncio.sleep(2)
            assert await stage.texts() == ["and more", "into a full disk"]

    play(tmp_path, story)


def test_an_archive_that_hangs_ends_the_connection(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        class Hanging:
            hangs = False

            def __getattr__(self, name: str) -> object:
                return getattr(stage.archive, name)

            async def keep_messages(self, messages: object) -> object:
                if self.hangs:
                    await asyncio.get_running_loop().create_future()
                return await stage.archive.keep_messages(messages)  # type: ignore[arg-type]

        book = Hanging()
        async with running(stage, book=book) as runner:
            await until(lambda: runner.client)
            book.hangs = True
            stage.telegram.say(stage.private, stage.sara, "hello")
            await asyncio.sleep(KEEP_S + 1)
            assert stage.told_of(SessionDown)
            book.hangs = False
            await asyncio.sleep(2 * KEEP_S)
            assert await stage.texts() == ["hello"]

    play(tmp_path, story)


def test_a_gap_is_durable_before_the_state_goes_on(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        runner = SessionRunner("s1", stage.tools())
        task = asyncio.create_task(runner.run())
        await until(lambda: runner.client)
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.wait([task])
        stage.telegram.say(stage.private, stage.sara, "lost")
        stage.telegram.forget(stage.ali)
        stage.telegram.flood("dialogs", 3600)
        async with running(stage):
            await until(lambda: stage.told_of(ArchiveGap))
            states = await runner.chats.all()
            assert has_gap(states[SHARED])
            assert await stage.texts() == []
        async with running(stage):
            await asyncio.sleep(7300)
            assert await stage.texts() == ["lost"]
            assert not has_gap((await runner.chats.all())[SHARED])

    play(tmp_path, story)


def test_a_gap_that_cannot_be_noted_is_not_passed(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        seeing = SeenUpdates(
            "s1",
            book=stage.archive,
            registry=stage.registry,
            chats=ChatStates("s1", stage.archive, stage.vault, stage.clock),
            reconciler=reconciler_of(stage),
            clock=stage.clock,
            events=stage.events,
            away_since_ms=0,
            agent_id="a",
        )
        stage.archive.is_down = True
        with pytest.raises(StoreUnavailable):
            await seeing.on_gap(HistoryGap(chat_id=None))
        assert not stage.told_of(ArchiveGap)

    play(tmp_path, story)
