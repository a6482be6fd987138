"""What else people ask of letters: many at once, counted, by cause of death; and what they may change while letters wait."""

import json

import msgspec
import pytest

from peik.core.catalogue import Scope
from peik.core.letter import Letter, State, cause_of
from peik.core.outcome import Refused
from peik.errors import Conflict, NotFound
from peik.outbox.store import NOW as AT_ONCE
from peik.outbox.store import Followed, LetterFilter, Store, Stub
from peik.storage import rules
from peik.storage.postgres import reads as search
from peik.storage.redis import search as finding
from tests.storage.acts import (
    BROKE_OFF,
    HOUR,
    LATER,
    NEVER,
    NOW,
    SENT,
    accept,
    attempt,
    conclude,
    draft,
    edit,
    find,
    front,
    mark,
    state,
    sweep_all,
    tally,
)
from tests.storage.places import BOT, OTHER_BOT, Place


class Engine:
    """Hears what a store tells the courier."""

    def __init__(self, store: Store) -> None:
        self.came: list[int] = []
        self.left: list[int] = []
        self.stands: list[int] = []
        store.listen(self)

    def on_accepted(self, letters: list[Letter]) -> None:
        self.came += [one.id for one in letters]

    def on_removed(self, stubs: list[Stub]) -> None:
        self.left += [one.letter_id for one in stubs]

    def on_joined(self, stubs: list[Stub]) -> None:
        self.stands += [one.letter_id for one in stubs]

    def on_followed(self, ends: list[Followed]) -> None: ...


def refusal(words: str) -> Refused:
    return Refused(code=400, words=words, advice="", scope=Scope.MESSAGE)


async def order(store: Store, chat: int = 1) -> list[int]:
    return [one.id for one in await front(store, chat)]


# ---- looking ----


async def test_many_letters_are_read_at_once_and_those_that_are_gone_are_left_out(place: Place) -> None:
    async with place.open() as store:
        first, second, third = await accept(store, draft(1), draft(2), draft(3))
        await attempt(store, await find(store, second), SENT)
        views = await store.letters([third, 99_999, second, third])
        assert [(one.id, str(one.state)) for one in views] == [(second, "completed"), (third, "waiting")]
        assert await store.letters([]) == []
        assert await store.letters([first]) == [await store.letter(first)]


async def test_letters_are_counted_up_to_a_bound(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(1 + n % 2) for n in range(6)))
        await attempt(store, await find(store, ids[0]), NEVER)

        async def count(most: int = 100, **wanted: object) -> tuple[int, bool]:
            counted = await store.count(LetterFilter(**wanted), most=most)  # type: ignore[arg-type]
            return counted.letters, counted.is_least

        assert await count() == (6, False)
        assert await count(chat=2) == (3, False)
        assert await count(state=State.FAILED) == (1, False)
        assert await count(state=State.WAITING, bot_id=BOT) == (5, False)
        assert await count(state=State.WAITING, bot_ids=frozenset([OTHER_BOT])) == (0, False)
        assert await count(4) == (4, True)


@pytest.mark.parametrize("looked_at", ["everything", "a few at a time"])
async def test_a_page_that_is_cut_says_where_to_go_on(
    place: Place, looked_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if looked_at == "a few at a time":
        for module, name in (
            (rules, "LOOKED_FIRST"),
            (rules, "LOOKED_MAX"),
            (search, "LOOKED_MAX"),
            (finding, "LOOKED_MAX"),
        ):
            monkeypatch.setattr(module, name, 4)
        monkeypatch.setattr(finding, "PAGE", 2)
    async with place.open() as store:
        ids = await accept(store, *(draft(1, text="needle" if n % 5 == 0 else "hay") for n in range(20)))
        wanted, found, before, is_cut = LetterFilter(text="needle"), [], None, False
        while True:
            page = await store.page(wanted, before=before, limit=2)
            found += [one.id for one in page.letters]
            is_cut = is_cut or page.is_cut
            if page.cursor is None:
                break
            before = page.cursor
        assert found == [ids[15], ids[10], ids[5], ids[0]]
        assert is_cut is (looked_at != "everything")
        assert [one.id for one in await store.find(wanted, before=None, limit=9)] == found
        assert (await store.count(wanted, most=9)).is_least is is_cut


async def test_every_state_is_paged_from_the_newest_down(place: Place) -> None:
    async with place.open() as store:
        delivered, dead, flying, waiting, backs_off = await accept(store, *(draft(n) for n in range(1, 6)))
        (scheduled,) = await accept(store, draft(6, send_at_ms=NOW + HOUR))
        (others,) = await accept(store, draft(1, bot_id=OTHER_BOT))
        await attempt(store, await find(store, delivered), SENT)
        await attempt(store, await find(store, dead), NEVER)
        await mark(store, await find(store, flying))
        await attempt(store, await find(store, backs_off), LATER)
        cancelled = (await accept(store, draft(7)))[0]
        await store.cancel(cancelled, at_ms=NOW)

        async def found(**wanted: object) -> list[int]:
            page = await store.page(LetterFilter(**wanted), before=None, limit=9)  # type: ignore[arg-type]
            return [one.id for one in page.letters]

        assert await found(state=State.COMPLETED) == [delivered]
        assert await found(state=State.FAILED) == [dead]
        assert await found(state=State.ACTIVE) == [flying]
        assert await found(state=State.CANCELLED) == [cancelled]
        assert await found(state=State.WAITING) == [others, waiting]
        assert await found(state=State.WAITING, bot_id=BOT) == [waiting]
        assert await found(state=State.WAITING, bot_ids=frozenset([OTHER_BOT])) == [others]
        assert await found(state=State.DELAYED) == [scheduled, backs_off]
        assert await found(chat=1) == [others, delivered]
        these = frozenset([delivered, dead, waiting, scheduled, 1])
        assert await found(ids=these) == [scheduled, waiting, dead, delivered]
        assert await found(ids=these, state=State.FAILED) == [dead]
        assert (await store.count(LetterFilter(ids=these, state=State.DELAYED), most=9)).letters == 1
        assert await store.clear_dead(LetterFilter(ids=these - {dead}), at_ms=NOW, limit=9) == 0
        assert await store.clear_dead(LetterFilter(ids=these), at_ms=NOW, limit=9) == 1


@pytest.mark.parametrize("first_look", [2, 8, 1000])
@pytest.mark.parametrize("top", ["open letters", "letters that have ended"])
async def test_open_letters_of_several_bots_are_paged_in_one_order(
    place: Place, first_look: int, top: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "LOOKED_FIRST", first_look)
    async with place.open() as store:
        bots = [BOT, OTHER_BOT, BOT, BOT, *[OTHER_BOT] * 15, *[BOT] * 12, OTHER_BOT]
        drafts = [draft(1, bot_id=bot, send_at_ms=NOW + HOUR if n % 3 == 0 else None) for n, bot in enumerate(bots)]
        ids = await accept(store, *drafts)
        open_ids = {
            State.DELAYED: [one for n, one in enumerate(ids) if n % 3 == 0],
            State.WAITING: [one for n, one in enumerate(ids) if n % 3],
        }
        if top == "letters that have ended":
            for late in await accept(store, *(draft(2) for _ in range(10))):
                await store.cancel(late, at_ms=NOW)

        async def paged(**wanted: object) -> list[int]:
            found: list[int] = []
            before: int | None = None
            while True:
                page = await store.page(LetterFilter(**wanted), before=before, limit=3)  # type: ignore[arg-type]
                found += [one.id for one in page.letters]
                if page.cursor is None:
                    return found
                before = page.cursor

        for open_state, expected in open_ids.items():
            assert await paged(state=open_state) == expected[::-1]
            assert await paged(state=open_state, bot_ids=frozenset([BOT, OTHER_BOT])) == expected[::-1]
            of_bot = [one for one, bot in zip(ids, bots, strict=True) if bot == BOT and one in expected]
            assert await paged(state=open_state, bot_id=BOT) == of_bot[::-1]
            assert (await store.count(LetterFilter(state=open_state), most=99)).letters == len(expected)
        assert await paged(state=State.WAITING, chat=1) == open_ids[State.WAITING][::-1]


async def test_letters_are_found_between_two_instants(place: Place) -> None:
    async with place.open() as store:
        ids = [(await accept(store, draft(1), at_ms=NOW + day * 24 * HOUR))[0] for day in range(5)]

        async def found(**wanted: int) -> list[int]:
            return [one.id for one in await store.find(LetterFilter(**wanted), before=None, limit=9)]  # type: ignore[arg-type]

        assert await found(since_ms=NOW + 24 * HOUR, until_ms=NOW + 72 * HOUR) == [ids[3], ids[2], ids[1]]
        assert await found(until_ms=NOW - 1) == []
        assert await found(since_ms=NOW + 97 * HOUR) == []


async def test_dead_letters_are_grouped_by_what_they_died_of(place: Place) -> None:
    async with place.open() as store:
        ids = await accept(store, *(draft(n) for n in range(1, 5)), draft(5, method="sendPhoto"), draft(6))
        words = ["chat 17 not found", "chat 4 not found", 'tag "b" at 3', 'tag "i" at 12', "chat 5 not found"]
        for index, (letter_id, why) in enumerate(zip(ids, words, strict=False)):
            await attempt(store, await find(store, letter_id), refusal(why), at_ms=NOW + index)
        last = msgspec.structs.replace(await find(store, ids[5]), uncertain_tries=10)
        await mark(store, await find(store, ids[5]), at_ms=NOW + 9)
        await conclude(store, last, BROKE_OFF, at_ms=NOW + 9)
        causes = await store.causes(bot_ids=None, since_ms=None, limit=9)
        assert [(one.reason, one.letters, one.methods, one.newest_id, one.newest_at_ms) for one in causes] == [
            ("chat N not found", 3, ("sendMessage", "sendPhoto"), ids[4], NOW + 4),
            ('tag "…" at N', 2, ("sendMessage",), ids[3], NOW + 3),
            ("uncertain", 1, ("sendMessage",), ids[5], NOW + 9),
        ]
        assert [one.is_uncertain for one in causes] == [False, False, True]
        assert await store.causes(bot_ids=frozenset([OTHER_BOT]), since_ms=None, limit=9) == []
        assert [one.letters for one in await store.causes(bot_ids=None, since_ms=NOW + 4, limit=1)] == [1]
        wanted = LetterFilter(state=State.FAILED, cause='tag "…" at N')
        assert [one.id for one in await store.find(wanted, before=None, limit=9)] == [ids[3], ids[2]]
        assert await store.retry_dead(wanted, at_ms=NOW, limit=9) == 2


async def test_a_long_cause_is_cut_alike_everywhere(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        words = "wrong " + "ж" * 300 + " 7"
        await attempt(store, await find(store, letter_id), refusal(words))
        found = await store.find(LetterFilter(cause=cause_of(words)), before=None, limit=9)
        assert [one.id for one in found] == [letter_id]
        assert len(cause_of(words)) == 200


async def test_the_oldest_letter_of_each_bot_is_known(place: Place) -> None:
    async with place.open() as store:
        assert await store.oldest_waiting() == {}
        ids = [(await accept(store, draft(n), at_ms=NOW + n))[0] for n in range(1, 5)]
        await accept(store, draft(9, send_at_ms=NOW + HOUR), at_ms=NOW - HOUR)
        assert await store.oldest_waiting() == {BOT: NOW + 1}
        await attempt(store, await find(store, ids[0]), SENT)
        await mark(store, await find(store, ids[1]))
        assert await store.oldest_waiting() == {BOT: NOW + 2}
        await store.cancel(ids[2], at_ms=NOW)


# ---- taking many back ----


async def test_all_letters_of_a_filter_are_taken_back_but_what_is_in_flight(place: Place) -> None:
    async with place.open() as store:
        engine = Engine(store)
        first, second, other = await accept(store, draft(1), draft(1), draft(2))
        (scheduled,) = await accept(store, draft(1, send_at_ms=NOW + HOUR))
        await mark(store, await find(store, first))
        gone = await store.cancel_all(LetterFilter(chat=1), at_ms=NOW, limit=100)
        assert sorted((one.id, str(one.state)) for one in gone) == [(second, "cancelled"), (scheduled, "cancelled")]
        assert sorted(engine.left) == [second, scheduled]
        assert await store.cancel_all(LetterFilter(chat=1), at_ms=NOW, limit=100) == []
        assert [await state(store, one) for one in (first, second, scheduled, other)] == [
            "active",
            "cancelled",
            "cancelled",
            "waiting",
        ]
        counted = await tally(store)
        assert (counted.waiting, counted.delayed, counted.active, counted.cancelled) == (1, 0, 1, 2)


async def test_letters_are_taken_back_in_pages_and_by_state(place: Place) -> None:
    async with place.open() as store:
        await accept(store, *(draft(1) for _ in range(5)))
        await accept(store, *(draft(1, send_at_ms=NOW + HOUR) for _ in range(2)))
        assert len(await store.cancel_all(LetterFilter(state=State.WAITING), at_ms=NOW, limit=3)) == 3
        assert len(await store.cancel_all(LetterFilter(state=State.WAITING), at_ms=NOW, limit=3)) == 2
        assert len(await store.cancel_all(LetterFilter(state=State.WAITING), at_ms=NOW, limit=3)) == 0
        assert (await tally(store)).delayed == 2


async def test_what_waited_for_a_letter_that_was_taken_back_joins_its_lane(place: Place) -> None:
    async with place.open() as store:
        engine = Engine(store)
        (first,) = await accept(store, draft(1))
        (second,) = await accept(store, draft(2, awaits=first))
        await store.park(await find(store, second))
        assert len(await store.cancel_all(LetterFilter(chat=1), at_ms=NOW, limit=9)) == 1
        assert engine.stands == [second]
        assert await order(store, 2) == [second]


# ---- changing one ----


async def test_another_priority_keeps_the_order_of_acceptance(place: Place) -> None:
    async with place.open() as store:
        engine = Engine(store)
        first, second, third = await accept(store, draft(1), draft(1), draft(1))
        urgent, later = await accept(store, draft(1, rank=1), draft(1, rank=1))
        await store.change(second, rank=1, due_at_ms=None, at_ms=NOW)
        assert await order(store) == [second, urgent, later, first, third]
        assert engine.stands == [second]
        view = await store.letter(second)
        assert view is not None
        assert view.rank == 1
        assert "by hand, priority 1" in (view.history or "")
        await attempt(store, await find(store, second), SENT)
        await store.change(urgent, rank=3, due_at_ms=None, at_ms=NOW)
        assert await order(store) == [later, first, third, urgent]
        assert [key for key, _ in await sweep_all(store, 3, lanes=3)] == [(1, 0)]
        await store.change(urgent, rank=1, due_at_ms=None, at_ms=NOW)
        assert await sweep_all(store, 3, lanes=3) == []


async def test_a_letter_is_not_marked_at_a_place_where_it_does_not_wait_any_more(place: Place) -> None:
    async with place.open() as store:
        (letter_id,) = await accept(store, draft(1))
        as_read = await find(store, letter_id)
        await store.change(letter_id, rank=None, due_at_ms=NOW + HOUR, at_ms=NOW)
        assert await mark(store, as_read) == []
        assert await state(store, letter_id) == "delayed"


async def test_another_time_sets_a_letter_apart_until_then(place: Place) -> None:
    async with place.open() as store:
        engine = Engine(store)
        first, second = await accept(store, draft(1), draft(1))
        await store.change(first, rank=0, due_at_ms=NOW + HOUR, at_ms=NOW)
        assert engine.left == [first]
        assert await order(store) == [second]
        counted = await tally(store)
        assert (counted.waiting, counted.delayed) == (1, 1)
        assert await store.join_due(at_ms=NOW, limit=9) == (0, NOW + HOUR)
        await store.change(first, rank=None, due_at_ms=NOW + 2 * HOUR, at_ms=NOW)
        assert await store.join_due(at_ms=NOW + HOUR, limit=9) == (0, NOW + 2 * HOUR)
        assert (await store.join_due(at_ms=NOW + 2 * HOUR, limit=9))[0] == 1
        assert await order(store) == [first, second]  # of the higher rank it was given
        counted = await tally(store)
        assert (counted.waiting, counted.delayed) == (2, 0)


async def test_a_scheduled_letter_that_is_sent_now_joins_the_end_of_its_lane(place: Place) -> None:
    async with place.open() as store:
        engine = Engine(store)
        (scheduled,) = await accept(store, draft(1, send_at_ms=NOW + HOUR))
        (first,) = await accept(store, draft(1))
        await store.change(scheduled, rank=None, due_at_ms=AT_ONCE, at_ms=NOW)
        (last,) = await accept(store, draft(1))
        assert await order(store) == [first, scheduled, last]
        assert engine.came == [first, scheduled, last]
        assert await store.join_due(at_ms=NOW + HOUR, limit=9) == (0, None)
        counted = await tally(store)
        assert (counted.waiting, counted.delayed) == (3, 0)


async def test_a_letter_that_backs_off_is_sent_now_from_its_place(place: Place) -> None:
    async with place.open() as store:
        engine = Engine(store)
        first, _ = await accept(store, draft(1), draft(1))
        await attempt(store, await find(store, first), LATER)
        await store.change(first, rank=2, due_at_ms=None, at_ms=NOW)
        assert (await find(store, first)).due_at_ms > NOW
        assert (await tally(store)).delayed == 1
        await store.change(first, rank=None, due_at_ms=AT_ONCE, at_ms=NOW)
        waiting = await find(store, first)
        assert (waiting.due_at_ms, waiting.attempts_made) == (0, 1)
        assert (await order(store))[0] == first
        assert engine.stands == [first, first]
        assert (await tally(store)).delayed == 0
        await attempt(store, waiting, SENT)


async def test_what_waits_for_another_letter_goes_on_doing_so(place: Place) -> None:
    async with place.open() as store:
        (first,) = await accept(store, draft(1))
        (second,) = await accept(store, draft(2, awaits=first))
        await store.park(await find(store, second))
        await store.change(second, rank=0, due_at_ms=AT_ONCE, at_ms=NOW)
        assert (await order(store, 2), await state(store, second)) == ([], "delayed")
        await store.change(second, rank=None, due_at_ms=NOW + HOUR, at_ms=NOW)
        await attempt(store, await find(store, first), SENT)
        assert await order(store, 2) == []  # its own time has not come
        assert (await store.join_due(at_ms=NOW + HOUR, limit=9))[0] == 1
        assert [one.rank for one in await front(store, 2)] == [0]


async def test_a_letter_in_flight_or_at_its_end_is_not_changed(place: Place) -> None:
    async with place.open() as store:
        flying, done = await accept(store, draft(1), draft(2))
        await mark(store, await find(store, flying))
        await attempt(store, await find(store, done), SENT)
        for letter_id, code in ((flying, "in_flight"), (done, "already_ended")):
            for rank, due in ((0, None), (None, AT_ONCE), (None, NOW + HOUR)):
                with pytest.raises(Conflict) as refused:
                    await store.change(letter_id, rank=rank, due_at_ms=due, at_ms=NOW)
                assert refused.value.code == code
        with pytest.raises(NotFound):
            await store.change(99_999, rank=0, due_at_ms=None, at_ms=NOW)
        assert (await store.letter(flying)).rank == draft(1).rank  # type: ignore[union-attr]


async def test_an_edit_of_another_priority_is_still_merged(place: Place) -> None:
    async with place.open() as store:
        (older,) = await accept(store, edit())
        await store.change(older, rank=0, due_at_ms=None, at_ms=NOW)
        (newer,) = await accept(store, edit())
        assert await order(store) == [newer]
        assert (await store.letter(older)).merged_into == newer  # type: ignore[union-attr]


async def test_a_letter_follows_its_chat_when_it_is_sent_now(place: Place) -> None:
    async with place.open() as store:
        (scheduled,) = await accept(store, draft(-5, send_at_ms=NOW + HOUR))
        await store.readdress(BOT, -5, -1005)
        await store.change(scheduled, rank=None, due_at_ms=AT_ONCE, at_ms=NOW)
        (letter,) = await front(store, -1005)
        assert (letter.id, letter.is_moved) == (scheduled, True)


async def test_lanes_that_have_letters_are_shown_with_their_first(place: Place) -> None:
    async with place.open() as store:
        first, _, urgent = await accept(store, draft(1), draft(1), draft(1, rank=0))
        (other,) = await accept(store, draft(2, thread=4))
        lanes = await store.lanes(BOT, None, limit=9)
        assert sorted((one.chat, one.thread, one.head, one.waiting) for one in lanes) == [
            (1, 0, urgent, 3),
            (2, 4, other, 1),
        ]
        await store.cancel(urgent, at_ms=NOW)
        (lane,) = await store.lanes(BOT, 1, limit=9)
        assert (lane.head, lane.waiting, await store.head_of(BOT, (1, 0))) == (first, 2, first)


async def test_a_text_is_found_however_its_json_was_written(place: Place) -> None:
    async with place.open() as store:
        texts = ("چای سبز", json.dumps("چای سبز")[1:-1], json.dumps("Привет, мир")[1:-1], "http:\\/\\/a.example\\/b")
        ids = await accept(store, *(draft(chat, text=text) for chat, text in enumerate(texts, start=1)))

        async def found(text: str) -> list[int]:
            return sorted(view.id for view in (await store.page(LetterFilter(text=text), before=None, limit=9)).letters)

        assert await found("سبز") == ids[:2]
        assert await found("привет") == ids[2:3]
        assert await found("мир") == ids[2:3]
        assert await found("A.example/b") == ids[3:]
        assert await found("قهوه") == []
