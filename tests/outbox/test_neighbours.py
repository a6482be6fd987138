"""Several processes on one store, in virtual time: one sends, the others accept; what one writes the others notice."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from peik.app.lifetime import running
from peik.app.runtime import Runtime
from peik.core.events import Events
from peik.core.letter import RANKS, State
from peik.core.token import Token
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.database import GUEST_LOOK_S
from peik.telegram.port import Request
from peik.testing.virtual import SimCarrier
from tests.outbox.story import BOT, Stage, call, play_closed

NOTICED_S = 1.0
TAKEN_OVER_S = 3.0


class Carrier(SimCarrier):
    """Counts what one process sends by itself."""

    carried = 0

    def start(self, request: Request, done: Callable[..., None]) -> None:
        self.carried += 1
        super().start(request, done)


@asynccontextmanager
async def neighbour(stage: Stage) -> AsyncIterator[tuple[Runtime, Carrier]]:
    """Another process on the same file."""
    carrier = Carrier(stage.telegram)
    async with running(
        stage.config(),
        events=Events(),
        clock=stage.clock,
        carrier=carrier,
        chance=random.Random(99),
        executor=lambda name: InlineExecutor(),
        must_own=False,
    ) as runtime:
        yield runtime, carrier


async def text(runtime: Runtime, chat_id: int, words: str, **terms: object) -> int:
    (accepted,) = await runtime.outbox.service.accept([call(params={"chat_id": chat_id, "text": words}, **terms)])
    return accepted.letter_id


def test_what_a_guest_accepts_the_owner_sends_within_a_second_and_the_guest_sees_it() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, carrier):
            assert (stage.peik.store.is_owner, guest.store.is_owner) == (True, False)
            for number in range(3):
                letter_id = await text(guest, number + 1, "from the guest")
                began = stage.clock.mono()
                assert (await guest.outbox.service.wait(letter_id, 60)).state is State.COMPLETED
                assert stage.clock.mono() - began <= NOTICED_S + GUEST_LOOK_S
            assert carrier.carried == 0

    play_closed(story)


def test_a_key_that_one_revokes_opens_nothing_at_the_others_within_a_second() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            made = await guest.keyring.make("shop", ["read"])
            await asyncio.sleep(NOTICED_S)
            assert stage.peik.keyring.find(made.key.digest) is not None
            await guest.keyring.revoke(made.key.id)
            await asyncio.sleep(NOTICED_S)
            assert stage.peik.keyring.find(made.key.digest) is None

    play_closed(story)


def test_letters_of_both_keep_the_order_of_their_acceptance() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            offices = [stage.peik, guest]
            for number in range(40):
                await text(offices[number % 3 % 2], 5, f"n{number}")
            await stage.quiet()
            assert stage.texts(5) == [f"n{number}" for number in range(40)]

    play_closed(story, pace="off")


def test_the_owner_keeps_a_guests_times_of_sending_and_expiry() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            at_ms = stage.clock.wall_ms()
            due = await text(guest, 5, "in ten seconds", send_at_ms=at_ms + 10_000)
            late = await text(guest, 6, "too late", send_at_ms=at_ms + 90_000, expires_at_ms=at_ms + 95_000)
            assert (await guest.outbox.service.wait(due, 9.5)).state is State.DELAYED
            assert (await guest.outbox.service.wait(due, 0.5 + NOTICED_S)).state is State.COMPLETED
            stage.telegram.faults.add("dark")
            expired = await guest.outbox.service.wait(late, 84 + 2 * NOTICED_S)
            assert (expired.state, expired.failed_reason) == (State.FAILED, "expired")

    play_closed(story)


def test_who_waits_hears_of_what_another_process_ended() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            later = await stage.text(5, "never mind", send_at_ms=stage.clock.wall_ms() + 3600_000)
            waiting = asyncio.create_task(stage.peik.outbox.service.wait(later, 60))
            await asyncio.sleep(5)
            await guest.outbox.service.cancel(later)
            began = stage.clock.mono()
            assert (await waiting).state is State.CANCELLED
            assert stage.clock.mono() - began <= NOTICED_S

    play_closed(story)


def test_bots_that_a_guest_adds_changes_and_removes_are_taken_up() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            await guest.outbox.service.save_bot(Token("42:second"))
            letter_id = await text(guest, 5, "by the new bot", bot_id=42)
            assert (await guest.outbox.service.wait(letter_id, 2 * NOTICED_S)).state is State.COMPLETED
            await guest.outbox.service.change_bot(42, paused="a holiday")
            held = await text(guest, 6, "after the holiday", bot_id=42)
            assert (await stage.peik.outbox.service.wait(held, 5)).state is State.WAITING
            await guest.outbox.service.change_bot(42, paused=None)
            assert (await stage.peik.outbox.service.wait(held, 2 * NOTICED_S)).state is State.COMPLETED
            await guest.outbox.service.remove_bot(42)
            other = await text(guest, 7, "to see a second pass")
            await guest.outbox.service.wait(other, 2 * NOTICED_S)
            assert [bot.bot_id for bot in stage.peik.outbox.service.bots()] == [BOT]
            assert stage.peik.outbox.courier.senders.get(42) is None

    play_closed(story)


def test_a_guest_takes_over_when_the_owner_ends_and_sends_what_was_accepted_meanwhile() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with neighbour(stage) as (first, _):  # nobody else is there: it owns the file
            assert first.store.is_owner
            async with neighbour(stage) as (second, carrier), neighbour(stage) as (third, idle):
                fault = stage.telegram.faults.add("dark")
                ids = [await text(runtime, 5, f"n{n}") for n, runtime in enumerate([first, second, third] * 3)]
                await first.outbox.courier.drain(0)
                first.store._lock.release()  # as the operating system does when a process dies
                stage.telegram.faults.clear(fault)
                for letter_id in ids:
                    assert (await third.outbox.service.wait(letter_id, 60)).state is State.COMPLETED
                assert {second.store.is_owner, third.store.is_owner} == {True, False}
                assert sorted((carrier.carried > 0, idle.carried > 0)) == [False, True]
                assert stage.texts(5) == [f"n{n}" for n in range(9)]

    play_closed(story)


def test_a_takeover_needs_only_seconds() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with neighbour(stage) as (owner, _), neighbour(stage) as (guest, carrier):
            began = stage.clock.mono()
            owner.outbox.courier.stop()
            owner.store._lock.release()
            letter_id = await text(guest, 6, "after")
            assert (await guest.outbox.service.wait(letter_id, 60)).state is State.COMPLETED
            assert stage.clock.mono() - began <= TAKEN_OVER_S
            assert carrier.carried > 0

    play_closed(story)


def test_a_letter_that_another_node_accepted_a_moment_before_is_waited_for_and_no_lane_is_read_anew() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            await stage.text(5, "n0")
            await asyncio.sleep(10)  # it has looked around, and knows what there is
            sender = stage.peik.outbox.courier.senders[BOT]
            heard = await text(guest, 5, "n1")
            await stage.peik.outbox.service.accept([call(params={"chat_id": 5, "text": one}) for one in ("n2", "n3")])
            assert stage.texts(5) == ["n0"]  # n1 was acknowledged before they were asked for
            front = (await stage.peik.store.fronts(BOT, [(5, 0)], letters=9))[5, 0].letters
            stage.peik.outbox.courier.on_accepted([one for one in front if one.id == heard])
            assert not any(sender._lanes.may_be_beyond(rank) for rank in range(RANKS))
            await stage.quiet()
            assert stage.texts(5) == ["n0", "n1", "n2", "n3"]

    play_closed(story, pace="off")


def test_what_nobody_tells_of_is_read_from_the_store_before_what_came_after_it() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with stage.open(), neighbour(stage) as (guest, _):
            await stage.text(5, "n0")
            await stage.quiet()
            await text(guest, 5, "n1")
            await stage.peik.outbox.service.accept([call(params={"chat_id": 5, "text": one}) for one in ("n2", "n3")])
            await asyncio.sleep(0.5)  # less than until the owner looks by itself
            assert stage.texts(5) == ["n0", "n1", "n2", "n3"]

    play_closed(story, pace="off")
