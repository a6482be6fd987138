"""Links: a code works once, in its time, for whoever shows it first; and a crash on any line repeats nothing."""

import asyncio
from typing import Any

import pytest

from peik.contacts.model import read_sighting
from peik.errors import BadInput, Conflict, NotFound, StoreUnavailable
from peik.notifications.model import LinkRefused, UserLinked, UserUnlinked
from peik.notifications.templates import load_outreach
from tests.notifications.outreach import AZIZ, LENA, POLLED, THIEF, House, notifying
from tests.outbox.story import BOT, TOKEN, Stage, play, play_closed

WORDS = load_outreach()


def tell(story: Any, **settings: str) -> None:
    async def opened(stage: Stage) -> None:
        async with notifying(stage) as house:
            await story(house)

    play(opened, **{**POLLED, **settings})


def test_who_shows_the_code_is_linked_and_answered_in_his_language() -> None:
    async def story(house: House) -> None:
        made = await house.links.new_code("lena")
        assert made.url == f"https://t.me/{house.stage.peik.outbox.service.bot(BOT).username}?start={made.code}"
        assert made.code not in repr(made)
        assert len(made.code) <= 64
        assert await house.link("lena") is None
        house.says(LENA, f"/start {made.code}")
        await house.until(lambda: bool(house.got(LENA)))
        assert house.got(LENA) == [WORDS["ru"]["linked"]]
        link = await house.link("lena")
        assert link is not None
        assert (link.bot_id, link.chat_id) == (BOT, LENA)
        user = await house.links.user("lena")
        assert user is not None
        assert (user.language, user.code) == ("ru", None)
        assert [event.user_id for event in house.stage.events_of(UserLinked)] == ["lena"]

    tell(story)


def test_the_code_alone_is_enough_and_other_words_are_nobodys_business() -> None:
    async def story(house: House) -> None:
        made = await house.links.new_code("aziz", language="fa")
        house.says(AZIZ, "/start spring-sale")
        house.says(AZIZ, "peik-short")
        house.says(AZIZ, f"  {made.code}\n")
        await house.until(lambda: bool(house.got(AZIZ)))
        assert house.got(AZIZ) == [WORDS["fa"]["linked"]]
        assert not house.stage.events_of(LinkRefused)

    tell(story)


def test_a_code_is_used_once_and_a_newer_one_voids_it() -> None:
    async def story(house: House) -> None:
        old = await house.links.new_code("lena")
        made = await house.links.new_code("lena")
        house.says(THIEF, f"/start {old.code}")
        await house.until(lambda: len(house.got(THIEF)) == 1)
        house.says(LENA, f"/start {made.code}")
        await house.until(lambda: len(house.got(LENA)) == 1)
        house.says(THIEF, f"/start {made.code}")
        await house.until(lambda: len(house.got(THIEF)) == 2)
        assert house.got(THIEF) == [WORDS["en"]["wrong"]] * 2
        house.says(LENA, f"/start {made.code}")  # pressed twice
        await house.until(lambda: len(house.got(LENA)) == 2)
        assert house.got(LENA)[1] == WORDS["ru"]["linked"]
        link = await house.link("lena")
        assert link is not None
        assert link.chat_id == LENA

    tell(story)


def test_a_code_is_late_by_the_time_of_the_message_not_of_its_arrival() -> None:
    async def story(house: House) -> None:
        made = await house.links.new_code("lena", expires_s=60)
        await asyncio.sleep(61)
        house.says(LENA, f"/start {made.code}")
        await house.until(lambda: bool(house.got(LENA)))
        assert house.got(LENA) == [WORDS["ru"]["late"]]
        assert await house.link("lena") is None

    tell(story)


def test_who_wrote_in_time_is_linked_however_long_peik_was_away() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open(), notifying(stage) as house:
            made = await house.links.new_code("lena", expires_s=60)
        stage.telegram.write(TOKEN, LENA, f"/start {made.code}")
        await asyncio.sleep(7200)
        async with stage.open(), notifying(stage) as house:
            await house.until(lambda: WORDS["ru"]["linked"] in house.got(LENA))
            assert await house.link("lena") is not None

    play_closed(story, **POLLED)


def test_five_wrong_codes_in_an_hour_are_too_many_even_for_a_right_one() -> None:
    async def story(house: House) -> None:
        for at in range(5):
            house.says(THIEF, f"/start peik-guess{at}")
        await house.until(lambda: len(house.got(THIEF)) == 5)
        assert house.got(THIEF) == [WORDS["en"]["wrong"]] * 4 + [WORDS["en"]["refused"]]
        made = await house.links.new_code("thief", expires_s=86400)
        house.says(THIEF, f"/start {made.code}")
        await house.until(lambda: len(house.stage.events_of(LinkRefused)) == 6)
        assert len(house.got(THIEF)) == 5  # and nothing is answered
        assert await house.link("thief") is None
        house.says(LENA, f"/start {(await house.links.new_code('lena')).code}")  # others are not concerned
        await house.until(lambda: len(house.got(LENA)) == 1)
        await asyncio.sleep(3601)
        house.says(THIEF, f"/start {made.code}")
        await house.until(lambda: len(house.got(THIEF)) == 6)
        assert house.got(THIEF)[5] == WORDS["en"]["linked"]

    tell(story)


def test_a_user_moves_to_the_chat_that_shows_his_next_code_and_a_chat_may_serve_several() -> None:
    async def story(house: House) -> None:
        await house.linked("lena", LENA)
        await house.linked("lena", AZIZ)
        await house.linked("aziz", AZIZ)
        for user_id in ("lena", "aziz"):
            link = await house.link(user_id)
            assert link is not None
            assert link.chat_id == AZIZ
        assert [(event.user_id, event.chat, event.why) for event in house.stage.events_of(UserUnlinked)] == [
            ("lena", LENA, "moved")
        ]

    tell(story)


def test_a_group_links_nobody() -> None:
    async def story(house: House) -> None:
        group = house.stage.telegram.chat("group", "Shift", bots=[BOT])
        made = await house.links.new_code("lena")
        house.stage.telegram.write(TOKEN, LENA, f"/start {made.code}", chat=group)
        house.says(AZIZ, f"/start {made.code}")
        await house.until(lambda: bool(house.got(AZIZ)))
        link = await house.link("lena")
        assert link is not None
        assert link.chat_id == AZIZ
        assert not house.stage.telegram.sent.texts(group.id)

    tell(story)


def test_unlinking_ends_the_link_and_the_code() -> None:
    async def story(house: House) -> None:
        await house.linked("lena", LENA)
        made = await house.links.new_code("lena")
        user = await house.links.unlink("lena")
        assert user.link is None
        house.says(THIEF, f"/start {made.code}")
        await house.until(lambda: len(house.got(THIEF)) == 1)
        assert await house.link("lena") is None
        with pytest.raises(NotFound):
            await house.links.unlink("lena")
        with pytest.raises(NotFound):
            await house.notify("lena", "hello")

    tell(story)


def test_words_of_ones_own_are_templates() -> None:
    async def story(house: House) -> None:
        await house.service.templates.save("peik.linked", "ru", "Готово!")
        await house.service.templates.save("default", "default", "{title} never for this")
        await house.linked("lena", LENA)
        await house.linked("aziz", AZIZ)
        assert (house.got(LENA), house.got(AZIZ)) == (["Готово!"], [WORDS["uz"]["linked"]])

    tell(story)


def test_what_cannot_be_a_link_is_refused_with_a_reason() -> None:
    async def story(house: House) -> None:
        for wrong in ("", "a/b", "پ", "x" * 65):
            with pytest.raises(BadInput):
                await house.links.new_code(wrong)
        with pytest.raises(BadInput):
            await house.links.new_code("lena", expires_s=1)
        await house.stage.peik.outbox.service.change_bot(BOT, inbound="off")
        with pytest.raises(Conflict, match="Nobody would see the code"):
            await house.links.new_code("lena")

    tell(story)


class Failing:
    """Documents that obey their port; after `calls` commits they say that they cannot, once, before or after the commit."""

    def __init__(self, documents: Any) -> None:
        self._documents = documents
        self.fails_in: int | None = None
        self.is_after = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents, name)

    async def file(self, filings: Any) -> None:
        fails = self.fails_in == 0
        if self.fails_in is not None:
            self.fails_in = None if fails else self.fails_in - 1
        if fails and not self.is_after:
            raise StoreUnavailable(code="store_full", detail="The disk is full.")
        await self._documents.file(filings)
        if fails:
            raise StoreUnavailable(code="in_doubt", detail="The answer was lost.")


@pytest.mark.parametrize("is_after", [False, True])
def test_a_store_that_fails_in_the_middle_links_once_and_answers_once(is_after: bool) -> None:
    async def story(house: House) -> None:
        made = await house.links.new_code("lena")
        witness = house.census._witnesses[0].__self__  # type: ignore[attr-defined]
        failing = witness._documents = Failing(witness._documents)
        failing.fails_in, failing.is_after = 0, is_after
        house.says(LENA, f"/start {made.code}")
        await house.until(lambda: bool(house.got(LENA)))
        house.says(LENA, "thanks")
        await house.until_true(lambda: _is_past(house, 2))
        assert house.got(LENA) == [WORDS["ru"]["linked"]]
        assert await house.link("lena") is not None

    tell(story)


def test_a_message_that_is_seen_again_after_a_crash_repeats_nothing() -> None:
    async def story(house: House) -> None:
        await house.linked("lena", LENA)
        house.says(THIEF, "/start peik-guessed")
        await house.until(lambda: bool(house.got(THIEF)))
        inbox = house.stage.peik.store.inbox
        witness = house.census._witnesses[0]
        for _ in range(3):  # as a census does whose place was not saved
            for arrival in await inbox.arrivals_from(BOT, 0, limit=100):
                seen = read_sighting(arrival)
                if seen is not None:
                    await witness(arrival, seen)
        await house.stage.quiet()
        assert (house.got(LENA), house.got(THIEF)) == ([WORDS["ru"]["linked"]], [WORDS["en"]["wrong"]])
        house.says(THIEF, "/start peik-again")
        await house.until(lambda: len(house.got(THIEF)) == 2)
        assert house.got(THIEF)[1] == WORDS["en"]["wrong"]  # the second try, not the fifth

    tell(story)


async def _is_past(house: House, count: int) -> bool:
    runtime = house.stage.peik
    arrivals = await runtime.store.inbox.arrivals_from(BOT, 0, limit=100)
    return len(arrivals) >= count and await runtime.store.contacts.contacts_place(BOT) == arrivals[-1].number


def test_every_language_says_everything() -> None:
    assert set(WORDS) == {"en", "fa", "ru", "uz"}
    assert len({frozenset(words) for words in WORDS.values()}) == 1
