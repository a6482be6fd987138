"""Notifications: to the chat that a user linked, at the right time, once, whatever dies in between."""

import asyncio
import random
from typing import Any

import pytest

from peik.cli.client import document_for
from peik.core.quiet import Quiet
from peik.errors import BadInput, Conflict, Forbidden, NotFound, StoreUnavailable
from peik.notifications.answers import NotificationAnswer
from peik.notifications.model import NOTICES, PARCELS, WAITING, Attachment, Notified, NotifyRequest
from peik.notifications.service import NotificationTerms
from tests.notifications.outreach import AZIZ, LENA, POLLED, House, notifying
from tests.notifications.test_links import Failing
from tests.outbox.story import BOT, Stage, play, play_closed

HOUR = 3600.0


def tell(story: Any, terms: NotificationTerms | None = None, **settings: str) -> None:
    async def opened(stage: Stage) -> None:
        async with notifying(stage, terms) as house:
            await house.linked("lena", LENA)
            await house.stage.quiet()
            house.stage.telegram.sent.clear()
            await story(house)

    play(opened, **{**POLLED, **settings})


def request(message: str, **more: Any) -> NotifyRequest:
    return NotifyRequest(**{"user_id": "lena", "type": "task", "title": "Task", "message": message, **more})


async def shown(house: House, notice_id: str) -> dict[str, Any]:
    return document_for(NotificationAnswer.of(await house.service.notification(notice_id)))


def test_a_notification_goes_to_the_users_chat_at_once_with_priority() -> None:
    async def story(house: House) -> None:
        notice_id = await house.notify("lena", "5 < 6 & so on", metadata={"order": 7})
        view = await shown(house, notice_id)
        await house.stage.ended(int(view["letter_id"]))
        (row,) = house.stage.telegram.sent
        assert row.chat_id == LENA
        assert row.text == "Task\n\n5 < 6 & so on"
        letter = await house.stage.letter(int(view["letter_id"]))
        assert "<b>Task</b>" in letter.params
        assert (letter.user_id, letter.message_type, letter.rank) == ("lena", "task", 1)
        assert '"order":7' in (letter.metadata or "")
        view = await shown(house, notice_id)
        assert (view["state"], view["due_at"]) == ("completed", None)
        (told,) = house.stage.events_of(Notified)
        assert (told.user_id, told.notification_id, str(told.letter_id)) == ("lena", notice_id, view["letter_id"])

    tell(story)


def test_who_is_not_linked_or_not_known_is_said_before_anything_is_accepted() -> None:
    async def story(house: House) -> None:
        with pytest.raises(NotFound, match="has linked no chat"):
            await house.notify("nobody", "hello")
        with pytest.raises(NotFound, match="Notification 1 of the batch"):
            await house.service.notify([request("one"), request("two", user_id="nobody")])
        with pytest.raises(Forbidden):
            await house.service.notify([request("x", bot_ids=frozenset({1}))])
        for wrong in (
            {"type": "no spaces"},
            {"priority": 7},
            {"chat_id": 5},
            {"user_id": None},
            {"title": "", "message": " "},
            {"message": "x" * 5000},
            {"digest_s": 1.0},
            {"expires_at_ms": 1},
            {"attachment": Attachment(method="getMe", params={})},
            {"title": "", "message": "", "attachment": Attachment(method="sendMessage", params={"reply_markup": {}})},
            {"idempotency_key": ""},
        ):
            with pytest.raises(BadInput):
                await house.service.notify([request("m", **wrong) if "message" not in wrong else request(**wrong)])  # type: ignore[arg-type]
        assert await house.service.recent(limit=10) == []
        assert not house.stage.telegram.sent

    tell(story)


def test_a_repeat_under_its_key_is_the_same_notification() -> None:
    async def story(house: House) -> None:
        first = await house.notify("lena", "once", idempotency_key="k")
        again = await house.service.notify([request("once", idempotency_key="k"), request("other")])
        assert again[0].id == first
        with pytest.raises(Conflict, match="another notification"):
            await house.notify("lena", "twice", idempotency_key="k")
        many = await asyncio.gather(*(house.notify("lena", "race", idempotency_key="r") for _ in range(100)))
        assert len(set(many)) == 1
        await house.stage.quiet()
        assert sorted(house.got(LENA)) == sorted(["Task\n\nonce", "Task\n\nother", "Task\n\nrace"])

    tell(story)


def test_attachments_carry_the_words_or_follow_them() -> None:
    async def story(house: House) -> None:
        photo = Attachment(method="sendPhoto", params={"photo": "https://example.com/door.png"})
        place = Attachment(method="sendLocation", params={"latitude": 41.3, "longitude": 69.2})
        await house.notify("lena", "look", attachment=photo)
        await house.notify("lena", "here", attachment=place)
        await house.notify("lena", "long " * 300, attachment=photo)
        (last,) = await house.service.recent(user_id="lena", limit=1)
        assert len(last.notice.letter_ids) == 2
        await house.stage.quiet()
        assert [row.method for row in house.stage.telegram.sent] == [
            "sendPhoto",
            "sendMessage",
            "sendLocation",
            "sendMessage",
            "sendPhoto",
        ]

    tell(story)


def test_the_words_are_the_text_of_a_message_that_brings_only_its_buttons() -> None:
    buttons = {"inline_keyboard": [[{"text": "Take it", "callback_data": "take"}]]}

    async def story(house: House) -> None:
        bare = Attachment(method="sendMessage", params={"reply_markup": buttons})
        await house.notify("lena", "take it?", attachment=bare)
        await house.stage.quiet()
        (row,) = house.stage.telegram.sent
        assert (row.method, house.got(LENA)) == ("sendMessage", ["Task\n\ntake it?"])
        whole = Attachment(method="sendMessage", params={"text": "Yours?", "reply_markup": buttons})
        await house.notify("lena", "one more", attachment=whole)
        await house.stage.quiet()
        assert house.got(LENA)[1:] == ["Task\n\none more", "Yours?"]
        (last, first) = await house.service.recent(user_id="lena", limit=2)
        assert (len(first.notice.letter_ids), len(last.notice.letter_ids)) == (1, 2)

    tell(story)


def test_templates_are_found_by_type_and_language_and_must_be_filled() -> None:
    async def story(house: House) -> None:
        templates = house.service.templates
        await templates.save("task", "ru", "<b>{title}</b> №{number}: {message}")
        await templates.save("default", "default", "[{title}] {message}")
        await house.notify("lena", "a & b", data={"number": 17})
        await house.notify("lena", "plain", type="other")
        await house.notify("lena", "in uzbek", language="uz")
        with pytest.raises(BadInput, match=r"\{number\}"):
            await house.notify("lena", "without")
        for wrong in ("", "{", "{0}", "{a.b}", "{title!r}"):
            with pytest.raises(BadInput):
                await templates.save("task", "en", wrong)
        await house.stage.quiet()
        assert house.got(LENA) == ["Task №17: a & b", "[Task] plain", "[Task] in uzbek"]
        assert [one.type for one in await templates.all(after=None, limit=10)] == ["default", "task"]
        await templates.remove("task", "RU")
        with pytest.raises(NotFound):
            await templates.get("task", "ru")

    tell(story)


def test_what_is_too_much_in_an_hour_waits_and_goes_as_one() -> None:
    async def story(house: House) -> None:
        for at in range(7):
            await house.notify("lena", f"n{at}")
        await house.notify("lena", "fire", priority=2, type="alarm")
        await house.stage.quiet()
        assert sorted(house.got(LENA)) == ["Task\n\nfire", "Task\n\nn0", "Task\n\nn1", "Task\n\nn2"]
        waiting = [view for view in await house.service.recent(user_id="lena", limit=20) if not view.notice.is_over]
        assert len(waiting) == 4
        await house.until(lambda: len(house.got(LENA)) == 5)
        assert house.got(LENA)[4] == "Task\n• n3\n• n4\n• n5\n• n6"
        for view in waiting:
            assert (await shown(house, view.notice.id))["state"] == "completed"

    tell(story, NotificationTerms(rate_max=3))


def test_a_digest_gathers_one_type_in_its_window() -> None:
    async def story(house: House) -> None:
        for at in range(3):
            await house.notify("lena", f"n{at}", digest_s=600.0)
            await asyncio.sleep(1)
        await house.notify("lena", "alone", digest_s=0.0, send_at_ms=house.stage.clock.wall_ms() + 60_000)
        await house.notify("lena", "other", type="report", title="Report", digest_s=600.0)
        assert not house.got(LENA)
        await house.until(lambda: len(house.got(LENA)) == 3)
        assert sorted(house.got(LENA)) == ["Report\n\nother", "Task\n\nalone", "Task\n• n0\n• n1\n• n2"]
        letters = {view.notice.letter_ids for view in await house.service.recent(user_id="lena", limit=10)}
        assert len(letters) == 3

    tell(story)


def test_a_big_digest_is_several_messages_and_nothing_is_left_out() -> None:
    async def story(house: House) -> None:
        await house.service.notify([request(f"{at} " + "x" * 300, digest_s=600.0) for at in range(120)])
        await house.until(lambda: len(" ".join(house.got(LENA)).split("•")) == 121)
        assert max(map(len, house.got(LENA))) <= 4096
        numbers = [int(part.split()[0]) for text in house.got(LENA) for part in text.split("• ")[1:]]
        assert numbers == list(range(120))

    tell(story)


def test_quiet_hours_hold_what_is_not_critical() -> None:
    async def story(house: House) -> None:
        now = house.stage.clock.wall_ms()
        await house.links.change("lena", quiet=around(now))
        notice_id = await house.notify("lena", "later")
        await house.notify("lena", "now", priority=2)
        await house.linked("aziz", AZIZ)
        await house.notify("aziz", "his hours are his own")
        await house.stage.quiet()
        assert (house.got(LENA), len(house.got(AZIZ))) == (["Task\n\nnow"], 2)
        view = await shown(house, notice_id)
        assert view["state"] == "waiting"
        assert view["due_at"] is not None
        await house.until(lambda: len(house.got(LENA)) == 2)
        assert 0 < house.stage.clock.wall_ms() - now <= 2 * HOUR * 1000
        await house.links.change("lena", quiet=None)
        await house.notify("lena", "at once")
        await house.stage.quiet()
        assert house.got(LENA)[2] == "Task\n\nat once"

    tell(story)


def around(at_ms: int) -> Quiet:
    hour = at_ms // 3_600_000 % 24
    return Quiet(start=f"{hour:02d}:00", end=f"{(hour + 1) % 24:02d}:00")


def test_what_waits_follows_its_user_and_fails_if_he_is_gone_or_it_is_late() -> None:
    async def story(house: House) -> None:
        soon = house.stage.clock.wall_ms() + 600_000
        moved = await house.notify("lena", "moved", send_at_ms=soon, digest_s=0.0)
        await house.linked("lena", AZIZ)
        await house.until(lambda: "Task\n\nmoved" in house.got(AZIZ))
        assert (await shown(house, moved))["state"] == "completed"
        soon = house.stage.clock.wall_ms() + 600_000
        lost = await house.notify("lena", "lost", send_at_ms=soon)
        await house.links.unlink("lena")
        await house.until_true(lambda: _is(house, lost, "failed"))
        assert (await shown(house, lost))["failed_reason"] == "user_not_linked"

    tell(story)


async def _is(house: House, notice_id: str, state: str) -> bool:
    return (await shown(house, notice_id))["state"] == state


def test_a_chat_can_be_notified_without_a_user() -> None:
    async def story(house: House) -> None:
        (notice,) = await house.service.notify([request("hello", user_id=None, chat_id=LENA)])
        assert notice.request.bot_id == BOT
        await house.stage.quiet()
        assert house.got(LENA) == ["Task\n\nhello"]
        assert await house.service.recent(user_id="lena", limit=5) == []
        assert [view.notice.id for view in await house.service.recent(limit=5)] == [notice.id]

    tell(story)


@pytest.mark.parametrize("commit", [0, 1])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_store_that_fails_between_two_commits_loses_and_doubles_nothing(commit: int, is_after: bool) -> None:
    """The first commit files the notice with its parcel, the second what became of it."""

    async def story(house: House) -> None:
        failing = Failing(house.service._documents)
        house.service._documents = house.service._handing._documents = failing  # type: ignore[assignment]
        failing.fails_in, failing.is_after = commit, is_after
        try:
            await house.notify("lena", "once", idempotency_key="k")
        except StoreUnavailable:
            assert commit == 0
            await house.notify("lena", "once", idempotency_key="k")  # as whoever heard a 503 does
        await house.until_true(lambda: _is_settled(house))
        await house.stage.quiet()
        assert house.got(LENA) == ["Task\n\nonce"]
        (view,) = await house.service.recent(limit=5)
        assert NotificationAnswer.of(view).state == "completed"

    tell(story)


async def _is_settled(house: House) -> bool:
    documents = house.stage.peik.store.documents
    return not await documents.count_documents(PARCELS) and not await documents.count_documents(WAITING)


@pytest.mark.parametrize("seed", range(12))
def test_deaths_at_any_moment_lose_and_double_nothing(seed: int) -> None:
    """Peik ends in the middle of anything, again and again; whoever asked without an answer asks again under the same key."""
    chance = random.Random(seed)

    async def ask(house: House, left: list[int]) -> None:
        while left:
            at = left[0]
            more: dict[str, Any] = {"digest_s": 60.0} if at % 3 == 0 else {}
            await house.service.notify([request(f"n{at}.", idempotency_key=f"k{at}", **more)])
            left.pop(0)
            await asyncio.sleep(chance.random() * 3)

    async def story(stage: Stage) -> None:
        left = list(range(40))
        async with stage.open(), notifying(stage) as house:
            await house.linked("lena", LENA)
        is_first = True
        while left or is_first:
            is_first = False
            async with stage.open(), notifying(stage, NotificationTerms(rate_max=10)) as house:
                asking = asyncio.create_task(ask(house, left))
                await asyncio.wait([asking], timeout=chance.random() * 20)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            await asyncio.sleep(chance.random() * 30)
        async with stage.open(), notifying(stage, NotificationTerms(rate_max=10)) as house:
            await house.until_true(lambda: _is_settled(house))
            await stage.quiet()
            words = " ".join(stage.texts(LENA)).replace("\n", " ").split()
            assert sorted(word for word in words if word.startswith("n") and word.endswith(".")) == sorted(
                f"n{at}." for at in range(40)
            )

    play_closed(story, **POLLED)


def test_two_nodes_release_what_waits_once() -> None:
    async def story(house: House) -> None:
        await house.service.notify(
            [request(f"n{at}", send_at_ms=house.stage.clock.wall_ms() + 5000) for at in range(30)]
        )
        async with notifying(house.stage) as other:
            await house.until(lambda: bool(house.got(LENA)))
            await asyncio.gather(house.releasing.release(), other.releasing.release())
        await house.stage.quiet()
        assert "".join(house.got(LENA)).count("•") == 30

    tell(story)


def test_old_notifications_and_codes_are_cleared_away() -> None:
    async def story(house: House) -> None:
        documents = house.stage.peik.store.documents
        await house.stage.peik.outbox.service.change_bot(BOT, inbound="off")  # nobody polls all the time
        await house.notify("lena", "old", idempotency_key="k")
        far = await house.notify("lena", "far", send_at_ms=house.stage.clock.wall_ms() + 40 * 86_400_000)
        await asyncio.sleep(28 * HOUR)
        assert [view.notice.id for view in await house.service.recent(limit=5)] == [far]
        assert await documents.count_documents(NOTICES) == 1
        for collection in ("notices-keys", "link-codes", "notices-rates"):
            assert await documents.count_documents(collection) == 0, collection
        assert await documents.count_documents("notices-of/u/lena") == 1

    tell(story, NotificationTerms(keep_ms=86_400_000))
