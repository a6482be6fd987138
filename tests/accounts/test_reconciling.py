"""What is missing in the archive is found and filled; a chat in which nothing is missing costs next to nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from peik.accounts.budget import PatientRequests
from peik.accounts.client import ClientError, Trouble
from peik.accounts.events import ChatBehind, ChatReadAgain, ChatUnread, HolesFilled
from peik.accounts.history import SHARED, ChatRetries, ChatStates, Reconciler, ask_for_crawl
from peik.accounts.registry import secret_context
from peik.archive.store import Message
from peik.errors import StoreUnavailable
from peik.wakeup import Wakeup
from tests.accounts.listening import until
from tests.accounts.stage import Stage
from tests.accounts.test_running import play, running


class Counting:
    """How often Telegram is asked."""

    def __init__(self, stage: Stage) -> None:
        self.asked: list[str] = []
        self._stage = stage

    def __call__(self, **wanted: Any) -> Any:
        inner, asked = self._stage.telegram.clients(**wanted), self.asked

        class Client:
            def __getattr__(self, name: str) -> Any:
                if name in ("dialogs", "history"):
                    asked.append(name)
                return getattr(inner, name)

        return Client()


def test_chats_without_gaps_cost_one_look(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        clients = Counting(stage)
        for number in range(30):
            stage.telegram.say(stage.team, stage.sara, f"before {number}")
        async with running(stage, clients=clients) as runner:
            await until(lambda: runner.client)
            await asyncio.sleep(10)
            for number in range(30):
                stage.telegram.say(stage.private, stage.sara, f"p{number}")
                stage.telegram.say(stage.group, stage.sara, f"g{number}")
                stage.telegram.say(stage.team, stage.sara, f"t{number}")
            gone = stage.telegram.say(stage.team, stage.sara, "gone")
            await asyncio.sleep(5)
            stage.telegram.delete(stage.team, gone)
            await asyncio.sleep(3600)
        assert "history" not in clients.asked
        assert 4 <= len(clients.asked) <= 7
        assert len(await stage.kept()) == 91

    play(tmp_path, story)


def test_holes_that_nobody_told_of_are_filled(tmp_path: Path) -> None:
    """A client that loses pushes without knowing it: as Telethon did (docs/telegram.md, Missed updates on MTProto)."""

    async def story(stage: Stage) -> None:
        class Deaf:
            is_deaf = False

            def __getattr__(self, name: str) -> Any:
                return getattr(stage.archive, name)

            async def keep_messages(self, messages: Any) -> Any:
                if self.is_deaf:
                    return None
                return await stage.archive.keep_messages(messages)

        book = Deaf()
        async with running(stage, book=book) as runner:
            await until(lambda: runner.client)
            for number in range(250):
                book.is_deaf = 3 < number < 240
                stage.telegram.say(stage.private, stage.sara, f"p{number}")
                stage.telegram.say(stage.team, stage.sara, f"t{number}")
                await asyncio.sleep(0.1)
            await asyncio.sleep(3000)
            assert len(await stage.kept()) == 500
            filled = {one.chat_id: one.found for one in stage.told_of(HolesFilled)}
            assert filled == {stage.sara.user_id: 236, stage.team.chat_id: 236}
            states = await runner.chats.all()
            assert states[SHARED].checked_to == max(stage.ali.box.posts)

    play(tmp_path, story)


@pytest.mark.parametrize("trouble", [Trouble.REFUSED, Trouble.OFFLINE])
def test_a_chat_that_cannot_be_read_stops_nobody(tmp_path: Path, trouble: Trouble) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            await asyncio.sleep(5)
        lost = stage.telegram.channel("Lost", stage.sara, stage.ali)
        stage.telegram.say(lost, stage.sara, "unseen")
        stage.telegram.forget(lost)
        stage.telegram.say(stage.team, stage.sara, "seen late")
        stage.telegram.forget(stage.team)

        class Kicked:
            def __init__(self, inner: Any) -> None:
                self._inner = inner

            def __getattr__(self, name: str) -> Any:
                return getattr(self._inner, name)

            async def history(self, chat_id: int, *args: Any, **kwargs: Any) -> list[Message]:
                if chat_id == lost.chat_id:
                    raise ClientError(trouble, "CHANNEL_PRIVATE")
                found: list[Message] = await self._inner.history(chat_id, *args, **kwargs)
                return found

        async with running(stage, clients=lambda **wanted: Kicked(stage.telegram.clients(**wanted))):
            await asyncio.sleep(4000)
        assert await stage.texts() == ["seen late"]
        unread = [one.chat_id for one in stage.told_of(ChatUnread)]
        assert unread == ([lost.chat_id] if trouble is Trouble.REFUSED else [])

    play(tmp_path, story)


class Failing:
    """Telegram answers for these chats with 500, for as long as they are here."""

    def __init__(self, inner: Any, chats: set[int | None]) -> None:
        self._inner = inner
        self._chats = chats

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def dialogs(self, following: bytes | None = None) -> Any:
        self._answer(None)
        return await self._inner.dialogs(following)

    async def history(self, chat_id: int, *args: Any, **kwargs: Any) -> Any:
        self._answer(chat_id)
        return await self._inner.history(chat_id, *args, **kwargs)

    def _answer(self, chat_id: int | None) -> None:
        if chat_id in self._chats:
            raise ClientError(Trouble.OFFLINE, "Trouble inside Telegram (HISTORY_GET_FAILED).")


@pytest.mark.parametrize("what", ["channel", "private", "list"])
def test_a_gap_that_cannot_be_read_starves_no_crawl_and_no_other_gap(tmp_path: Path, what: str) -> None:
    """getHistory of one chat answers 500 for a day: it is tried less and less often, told of, and read in the end."""

    async def story(stage: Stage) -> None:
        old = stage.telegram.channel("Old", stage.sara, stage.ali)
        for number in range(250):
            stage.telegram.say(old, stage.sara, f"o{number}")
        async with running(stage) as runner:
            await until(lambda: runner.client)
            stage.telegram.say(stage.private, stage.sara, "before")
            stage.telegram.say(stage.group, stage.sara, "before")
            await asyncio.sleep(5)
        lost = stage.telegram.channel("Lost", stage.sara, stage.ali)
        for chat in (lost, stage.team, stage.private, stage.group):
            stage.telegram.say(chat, stage.sara, f"in a gap of {chat.title}")
        for place in (lost, stage.team, stage.ali):
            stage.telegram.forget(place)
        failing: set[int | None] = {{"channel": lost.chat_id, "private": stage.sara.user_id, "list": None}[what]}

        def clients(**wanted: Any) -> Any:
            return Failing(stage.telegram.clients(**wanted), failing)

        async with running(stage, clients=clients) as runner:
            await until(lambda: runner.client)
            await ask_for_crawl(runner.chats, old.chat_id)
            runner.ring()
            await asyncio.sleep(86_400)
            texts = set(await stage.texts())
            assert {f"o{number}" for number in range(250)} <= texts, "the crawl went on"
            if what == "private":
                assert {"in a gap of Team", "in a gap of Lost", "in a gap of Family"} <= texts
            elif what == "channel":
                assert {"in a gap of Team", "in a gap of ", "in a gap of Family"} <= texts
            behind = stage.told_of(ChatBehind)
            assert {one.chat_id for one in behind} == failing
            assert 24 < len(behind) < 40, "it is tried less and less often"
            assert stage.told_of(ChatReadAgain) == []
            assert "HISTORY_GET_FAILED" in ((await stage.session()).state_reason or "")
            failing.clear()
            await asyncio.sleep(4000)
            assert len(stage.told_of(ChatReadAgain)) == 1
            titles = ("Lost", "Team", "Family", "")
            assert {f"in a gap of {title}" for title in titles} <= set(await stage.texts())
            assert (await stage.session()).state_reason is None

    play(tmp_path, story)


def test_what_came_before_the_first_state_is_found_at_once(tmp_path: Path) -> None:
    """The first process died between its first look at the chats and the first state that it kept."""

    async def story(stage: Stage) -> None:
        class Stateless:
            def __getattr__(self, name: str) -> Any:
                return getattr(stage.archive, name)

            async def save_updates_state(self, session_id: str, state: bytes) -> None:
                raise StoreUnavailable(code="store_full", detail="No room.")

        stage.telegram.say(stage.private, stage.sara, "long before")
        async with running(stage, book=Stateless()):
            await asyncio.sleep(5)
        assert SHARED in await ChatStates("s1", stage.archive, stage.vault, stage.clock).all()
        for chat in (stage.private, stage.group, stage.team):
            stage.telegram.say(chat, stage.sara, f"to {chat.kind}")
        async with running(stage):
            await asyncio.sleep(60)
        assert await stage.texts() == ["to group", "to private", "to supergroup"]

    play(tmp_path, story)


def test_what_fills_a_hole_is_told_although_the_archive_fails_in_the_middle(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        class Book:
            is_deaf = False
            asked: list[str] | None = None

            def __getattr__(self, name: str) -> Any:
                return getattr(stage.archive, name)

            async def keep_messages(self, messages: Any) -> Any:
                self._ask("keep")
                return None if self.is_deaf else await stage.archive.keep_messages(messages)

            async def feed(self, lines: Any) -> int:
                self._ask("feed")
                return 0 if self.is_deaf else await stage.archive.feed(lines)

            def _ask(self, what: str) -> None:
                if self.asked is not None:
                    self.asked.append(what)
                    if len(self.asked) == 2:
                        raise StoreUnavailable(code="store_full", detail="No room.")

        book = Book()
        async with running(stage, book=book) as runner:
            await until(lambda: runner.client)
            for text in ("missed", "seen"):
                book.is_deaf = text == "missed"
                stage.telegram.say(stage.team, stage.sara, text)
                await asyncio.sleep(1)
            book.asked = []
            await asyncio.sleep(4000)
        assert await stage.texts() == ["missed", "seen"]
        assert len(book.asked) > 2
        assert len(await stage.archive.fed("s1", after=0, limit=10)) == 2, "both are told"

    play(tmp_path, story)


def test_edits_and_deletions_in_a_long_gap_are_found(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            posts = [stage.telegram.say(chat, stage.sara, "first") for chat in (stage.private, stage.team)]
            gone = [stage.telegram.say(chat, stage.sara, "gone") for chat in (stage.private, stage.team)]
            await asyncio.sleep(60)
        await asyncio.sleep(3600)
        for chat, post, lost in zip((stage.private, stage.team), posts, gone, strict=True):
            stage.telegram.edit(chat, post, "second")
            stage.telegram.delete(chat, lost)
        await asyncio.sleep(5 * 86_400)
        stage.telegram.forget(stage.ali)
        stage.telegram.forget(stage.team)
        async with running(stage):
            await asyncio.sleep(60)
        kept = sorted((one.text, one.deleted_at_ms is not None) for one in await stage.kept())
        assert kept == [("gone", True), ("gone", True), ("second", False), ("second", False)]

    play(tmp_path, story)


def test_a_gap_that_is_told_during_a_look_is_not_forgotten(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            await asyncio.sleep(5)
        stage.telegram.say(stage.team, stage.sara, "missed")
        client = stage.telegram.clients(
            session_id="s1",
            agent_id="a",
            secret=stage.telegram.keys.of(stage.ali)[0].secret,
            file=None,
            proxy=None,
        )
        await client.connect()
        reconciler = reconciler_of(stage)
        looking = asyncio.create_task(reconciler.look(client))
        await until(lambda: looking.done() or stage.budget.ready_at("s1") > stage.clock.mono())
        await reconciler.note_gap(stage.team.chat_id, since_ms=stage.clock.wall_ms())
        await looking
        assert await reconciler.has_gaps()
        await reconciler.look(client)
        assert not await reconciler.has_gaps()
        assert await stage.texts() == ["missed"]
        await client.disconnect()

    play(tmp_path, story)


def test_a_chat_whose_time_comes_while_others_are_read_is_not_taken_for_read(tmp_path: Path) -> None:
    """It failed, a further gap was told before it was due again, and the look at that one takes a while."""

    async def story(stage: Stage) -> None:
        failing: set[int | None] = {stage.group.chat_id}
        secret = stage.vault.open((await stage.session()).secret or b"", context=secret_context("s1"))
        inner = stage.telegram.clients(session_id="s1", agent_id="a", secret=secret, file=None, proxy=None)
        await inner.connect()
        client: Any = Failing(inner, failing)
        reconciler = reconciler_of(stage)
        await reconciler.begin(client)
        for number in range(600):
            stage.telegram.say(stage.private, stage.sara, f"p{number}")
        stage.telegram.say(stage.group, stage.sara, "in the group")
        await reconciler.note_gap(None, since_ms=0)
        await reconciler.look(client)
        assert "in the group" not in await stage.texts()
        failing.clear()
        due_at = reconciler._retries.next_at()
        assert due_at is not None
        await asyncio.sleep(due_at - stage.clock.mono() - 10)
        await reconciler.note_gap(None, since_ms=0)
        await reconciler.look(client)
        for _ in range(20):
            await asyncio.sleep(60)
            if await reconciler.has_gaps():
                await reconciler.look(client)
        assert "in the group" in await stage.texts()
        assert len(await stage.kept()) == 601
        await client.disconnect()

    play(tmp_path, story)


def reconciler_of(stage: Stage) -> Reconciler:
    async def nothing(*_: object) -> None: ...

    return Reconciler(
        ChatStates("s1", stage.archive, stage.vault, stage.clock),
        book=stage.archive,
        asking=PatientRequests("s1", stage.budget, on_flood=nothing, on_calm=nothing),
        retries=ChatRetries("s1", clock=stage.clock, events=stage.events),
        bell=Wakeup(),
        clock=stage.clock,
        events=stage.events,
        owed_since_ms=0,
        agent_id="a",
    )
