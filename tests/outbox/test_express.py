"""A letter that nobody is before goes in the commit that makes it durable; and never before another one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from peik.core import events
from peik.core.letter import Draft, Letter, OnUncertain, State
from peik.core.lifecycle import Settlement
from peik.errors import StoreUnavailable
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from tests.outbox.story import BOT, Stage, call, play


class Marking:
    """The letters that were marked by a commit of their own."""

    def __init__(self, stage: Stage) -> None:
        self.ids: list[int] = []
        self._advance = stage.peik.store.advance
        stage.peik.store.advance = self  # type: ignore[method-assign]

    def __call__(self, settlements: Sequence[Settlement], marks: Sequence[Letter], **more: Any) -> None:
        self.ids += [letter.id for letter in marks]
        self._advance(settlements, marks, **more)


@contextlib.asynccontextmanager
async def visitor(stage: Stage) -> AsyncIterator[SqliteStore]:
    """Another process on the same file. The owner has not heard of what it writes yet."""
    path = Path(stage.config().store.removeprefix("sqlite:///"))
    store = SqliteStore(path, clock=stage.clock, is_owner=False, executor=lambda name: InlineExecutor())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def awake(stage: Stage) -> None:
    """The sender has read the store once, and knows that nothing waits."""
    await stage.ended(await stage.text(1, "first"))
    await stage.ended(await stage.text(2, "second"))


def test_a_letter_to_a_free_lane_is_marked_by_the_commit_that_accepts_it() -> None:
    async def story(stage: Stage) -> None:
        await awake(stage)
        marking = Marking(stage)
        for number in range(3):
            letter = await stage.ended(await stage.text(5 + number, "hello"))
            assert (letter.state, letter.attempts_made) == (State.COMPLETED, 1)
        assert marking.ids == []
        labelled = await stage.text(9, "labelled", metadata={"user_id": "7"})
        await stage.ended(labelled)
        assert marking.ids == []
        many = await stage.accept_all([call(params={"chat_id": 5, "text": "x"}) for _ in range(2)])
        await stage.quiet()
        assert marking.ids == many

    play(story)


def test_who_comes_at_the_same_time_to_the_same_chat_goes_after_it() -> None:
    async def story(stage: Stage) -> None:
        await awake(stage)
        ids = await asyncio.gather(*(stage.text(5, str(number)) for number in range(10)))
        await stage.quiet()
        letters = {letter_id: (await stage.letter(letter_id)) for letter_id in ids}
        in_order = sorted(range(10), key=lambda number: letters[ids[number]].id)
        assert stage.texts(5) == [str(number) for number in in_order]

    play(story)


def test_what_another_process_wrote_a_moment_ago_goes_first() -> None:
    async def story(stage: Stage) -> None:
        await awake(stage)
        async with visitor(stage) as other:
            params = '{"chat_id":5,"text":"theirs"}'
            foreign = Draft(bot_id=BOT, method="sendMessage", params=params, chat=5)
            await other.accept([foreign], at_ms=stage.clock.wall_ms())
            marking = Marking(stage)
            ours = await stage.text(5, "ours")
            await stage.quiet()
        assert stage.texts(5) == ["theirs", "ours"]
        assert ours in marking.ids

    play(story)


def test_a_letter_that_could_not_be_stored_leaves_its_place_to_the_next() -> None:
    async def story(stage: Stage) -> None:
        await awake(stage)
        connection = stage.peik.store._connection  # type: ignore[attr-defined]
        connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreUnavailable):
            await stage.text(5, "not stored")
        connection.execute("PRAGMA query_only = OFF")
        await asyncio.sleep(5)
        await stage.ended(await stage.text(5, "stored"))
        await stage.ended(await stage.text(6, "too"))
        assert (stage.texts(5), stage.texts(6)) == (["stored"], ["too"])

    play(story, in_flight="1")


async def hold(stage: Stage) -> None:
    await stage.peik.outbox.service.hold_chat(BOT, 5, stage.clock.wall_ms() + 60_000)


async def go_dark(stage: Stage) -> None:
    stage.telegram.dark(True)
    await stage.text(7, "finds out")
    await asyncio.sleep(60)


async def pause(stage: Stage) -> None:
    await stage.peik.outbox.service.change_bot(BOT, paused="a pause")


async def fill(stage: Stage) -> None:
    stage.telegram.faults.add("hang", method="sendMessage", chat=7, count=1)
    await stage.text(7, "takes the only place")


@pytest.mark.parametrize("hinder", [hold, go_dark, pause, fill])
def test_it_waits_for_all_that_other_letters_wait_for(hinder: Callable[[Stage], Awaitable[None]]) -> None:
    async def story(stage: Stage) -> None:
        await awake(stage)
        await hinder(stage)
        letter_id = await stage.text(5, "later")
        await asyncio.sleep(20)
        assert stage.texts(5) == []
        assert (await stage.letter(letter_id)).state in (State.WAITING, State.DELAYED)
        stage.telegram.dark(False)
        await stage.peik.outbox.service.change_bot(BOT, paused=None)
        await stage.ended(letter_id)
        assert stage.texts(5) == ["later"]

    play(story, in_flight="1")


def break_once(sender: Any, what: str) -> None:
    """The next call of it fails, as a mistake of ours would."""

    def fail(*words: Any) -> None:
        delattr(sender, what)
        raise RuntimeError("on purpose")

    setattr(sender, what, fail)


def test_what_goes_wrong_while_it_is_sent_ends_the_sender_and_the_next_one_takes_it_up() -> None:
    async def story(stage: Stage) -> None:
        await awake(stage)
        break_once(stage.peik.outbox.courier.senders[BOT], "_send")
        first = await stage.text(5, "one")
        await stage.ended(first)
        await stage.ended(await stage.text(5, "two"))
        assert len(stage.events_of(events.Surprise)) == 1
        assert stage.texts(5) == ["one", "two"]

    play(story)


def test_a_letter_that_comes_while_a_sender_is_replaced_waits_and_is_not_in_doubt() -> None:
    async def story(stage: Stage) -> None:
        await awake(stage)
        sender = stage.peik.outbox.courier.senders[BOT]
        break_once(sender, "_turn")
        assert sender is not None
        sender.wake()
        await asyncio.sleep(0.1)
        letter = await stage.ended(await stage.text(5, "once", on_uncertain=OnUncertain.HOLD))
        assert (letter.state, letter.uncertain_tries, stage.texts(5)) == (State.COMPLETED, 0, ["once"])

    play(story)
