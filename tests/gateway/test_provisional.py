"""What is not sent yet can be used: edited, deleted, replied to, pinned, forwarded; after light all is as without the outage."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from peik.core.arrival import Arrival
from peik.core.letter import OnUncertain
from peik.core.provisional import FIRST_ID
from peik.gateway.app import Gateway
from peik.gateway.params import GatewayParams
from peik.inbox.consumers import Handling
from peik.inbox.store import ArrivalFilter
from peik.outbox.store import LetterFilter
from peik.testing import Options
from peik.testing.answer import UploadedFile
from tests.inbox.bots import Bots
from tests.outbox.story import BOT, TOKEN, Stage, call, play, play_closed

Call = Callable[..., Awaitable[Any]]
FAST = {"gateway_wait": "1s"}


async def _nobody(*_: Any) -> None: ...


class Bot:
    """A bot behind the gateway, without a socket in between."""

    def __init__(self, stage: Stage, *, token: str = TOKEN) -> None:
        self._gateway = Gateway(stage.peik, _nobody)
        self._token = token

    async def answer(self, method: str, key: str | None = None, **params: Any) -> dict[str, Any]:
        given = GatewayParams(params=msgspec.json.encode(params), key=key)
        answer = await self._gateway.call(self._token, method, given)
        body: dict[str, Any] = msgspec.json.decode(answer.body)
        return body

    async def __call__(self, method: str, **params: Any) -> Any:
        body = await self.answer(method, **params)
        assert body["ok"], body
        return body["result"]

    async def send(self, text: str = "text", chat: int | str = 5, **more: Any) -> int:
        sent: int = (await self("sendMessage", chat_id=chat, text=text, **more))["message_id"]
        return sent

    async def refusal(self, method: str, **params: Any) -> str:
        body = await self.answer(method, **params)
        assert not body["ok"], body
        words: str = body["description"]
        return words


_SEEN = ("text", "caption", "photo", "reply_to_message", "reply_markup", "forward_origin")


def shown(stage: Stage, *chats: int) -> list[list[dict[str, Any]]]:
    """What each chat shows, without what no reader sees: ids and dates."""
    return [
        [_plain(one, messages) for _, one in sorted(messages.items())] + [{"pinned": len(stage_chat.pinned)}]
        for stage_chat in (stage.telegram._known(stage.telegram.bot(TOKEN), chat) for chat in chats)
        for messages in (stage_chat.messages,)
    ]


def _plain(message: dict[str, Any], messages: dict[int, Any]) -> dict[str, Any]:
    kept = {name: message[name] for name in _SEEN if name in message}
    if "photo" in kept:
        kept["photo"] = kept["photo"][0]["file_id"]
    if "reply_to_message" in kept:
        other = kept["reply_to_message"]
        kept["reply_to_message"] = other.get("text") or other.get("caption")
    if "forward_origin" in kept:
        kept["forward_origin"] = True
    return kept


PICTURE = UploadedFile(filename="a.jpg", content=b"picture", content_type="image/jpeg")


async def a_busy_bot(bot: Bot, photo: str) -> None:
    """Everything that a bot does with messages of its own."""
    hello = await bot.send("hello", link_preview_options={"is_disabled": True})
    await bot("editMessageText", chat_id=5, message_id=hello, text="hello, <b>you</b>", parse_mode="HTML")
    draft = await bot.send("draft")
    await bot("deleteMessage", chat_id=5, message_id=draft)
    answer = await bot.send("answer", reply_parameters={"message_id": hello})
    await bot("editMessageText", chat_id=5, message_id=answer, text="a better answer")
    await bot("editMessageReplyMarkup", chat_id=5, message_id=answer, reply_markup=KEYBOARD)
    await bot("pinChatMessage", chat_id=5, message_id=answer)
    gone = await bot.send("gone")
    await bot.send("what was it?", reply_parameters={"message_id": gone})
    await bot("deleteMessage", chat_id=5, message_id=gone)
    await bot("setMessageReaction", chat_id=5, message_id=hello, reaction=[{"type": "emoji", "emoji": "👍"}])
    media = [{"type": "photo", "media": photo, "caption": f"no. {n}"} for n in range(3)]
    album = await bot("sendMediaGroup", chat_id=5, media=media)
    ids = [one["message_id"] for one in album]
    await bot("editMessageCaption", chat_id=5, message_id=ids[1], caption="the second")
    await bot("deleteMessage", chat_id=5, message_id=ids[2])
    await bot("forwardMessage", chat_id=6, from_chat_id=5, message_id=hello)
    await bot("copyMessages", chat_id=6, from_chat_id=5, message_ids=[hello, answer])
    (first, second) = await asyncio.gather(bot.send("one", 6), bot.send("two", 6))
    await bot("deleteMessages", chat_id=6, message_ids=[first, second])
    late = await bot.send("wrong", 6)
    await bot("editMessageText", chat_id=6, message_id=late, text="*right*", parse_mode="MarkdownV2")
    await bot("editMessageText", chat_id=6, message_id=late, text="plain after all")


KEYBOARD = {"inline_keyboard": [[{"text": "Yes", "callback_data": "yes"}]]}


def _played(dark_s: float, options: Options | None = None) -> list[list[dict[str, Any]]]:
    seen: list[list[dict[str, Any]]] = []

    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        await bot.send("before", 5)
        await bot.send("before", 6)
        photo = stage.telegram.upload(TOKEN, 5, "photo", PICTURE)["photo"][0]["file_id"]
        if dark_s:
            stage.telegram.faults.add("dark", seconds=dark_s)
        await a_busy_bot(bot, photo)
        await stage.quiet()
        tally = (await stage.peik.outbox.service.tallies())[BOT]
        assert tally.failed == 0, await stage.peik.outbox.service.causes()
        seen.extend(shown(stage, 5, 6))

    play(story, options=options, **FAST)
    return seen


def test_after_two_dark_minutes_every_chat_shows_what_it_would_have_shown() -> None:
    assert _played(dark_s=120) == _played(dark_s=0)


def test_a_message_that_waits_is_told_with_what_the_request_says_of_it() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        stage.telegram.dark(True)
        first = await bot.answer("sendPhoto", chat_id=5, photo="id1", caption="see", reply_markup=KEYBOARD)
        photo = first["result"]
        assert photo["message_id"] == FIRST_ID
        assert photo["photo"][0]["file_id"] == "id1"
        assert (photo["caption"], photo["reply_markup"]) == ("see", KEYBOARD)
        assert first["peik"]["state"] == "waiting"
        reply = await bot("sendMessage", chat_id=5, text="a", reply_parameters={"message_id": FIRST_ID})
        assert reply["reply_to_message"]["message_id"] == FIRST_ID
        album = await bot(
            "sendMediaGroup", chat_id=5, media=[{"type": "photo", "media": "a"}, {"type": "video", "media": "b"}]
        )
        assert [one["message_id"] for one in album] == [FIRST_ID + 2, FIRST_ID + 3]
        assert album[1]["video"]["file_id"] == "b"
        copies = await bot("copyMessages", chat_id=5, from_chat_id=6, message_ids=[1, 2])
        assert [one["message_id"] for one in copies] == [FIRST_ID + 4, FIRST_ID + 5]

    play(story, **FAST)


def test_an_edit_of_what_was_never_tried_changes_it_and_is_answered_with_the_message() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        stage.telegram.dark(True)
        message_id = await bot.send("first")
        answer = await bot.answer("editMessageText", chat_id=5, message_id=message_id, text="second")
        assert (answer["result"]["message_id"], answer["result"]["text"]) == (message_id, "second")
        assert answer["result"]["edit_date"] > 0
        stage.telegram.dark(False)
        await stage.quiet()
        assert stage.texts(5) == ["second"], "one message went out, and no edit"

    play(story, **FAST)


def test_many_edits_at_once_of_what_was_never_tried_are_all_answered_and_the_last_one_counts() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        stage.telegram.faults.add("dark", seconds=60)
        message = await bot.send("0 %")
        edits = [bot("editMessageText", chat_id=5, message_id=message, text=f"{n} %") for n in range(1, 31)]
        assert {one["message_id"] for one in await asyncio.gather(*edits)} == {message}
        await stage.quiet()
        assert stage.texts(5) == ["30 %"]

    play(story, **FAST)


def test_of_edits_at_once_none_overtakes_one_that_has_to_wait() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        stage.telegram.faults.add("dark", seconds=60)
        message = await bot.send("0 %")
        bold = {"entities": [{"type": "bold", "offset": 0, "length": 1}]}  # in doubt, so that it waits for the message
        more: list[dict[str, Any]] = [bold if n % 3 == 0 else {} for n in range(1, 9)]
        edits = [
            bot("editMessageText", chat_id=5, message_id=message, text=f"{n} %", **fields)
            for n, fields in enumerate(more, start=1)
        ]
        await asyncio.gather(*edits)
        await stage.quiet()
        [[last, _]] = shown(stage, 5)
        assert last["text"] == "8 %"

    play(story, **FAST)


def test_a_deletion_of_what_was_never_tried_takes_it_back() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        stage.telegram.dark(True)
        message_id = await bot.send()
        assert await bot("deleteMessage", chat_id=5, message_id=message_id) is True
        assert await bot.refusal("deleteMessage", chat_id=5, message_id=message_id) == MISSING.format("delete")
        assert await bot("deleteMessages", chat_id=5, message_ids=[message_id]) is True
        again = await bot.answer("deleteMessage", key="k", chat_id=5, message_id=message_id)
        assert again["result"] is True, "whoever repeats under a key is told what the first was"
        stage.telegram.dark(False)
        await stage.quiet()
        assert stage.texts(5) == []

    play(story, **FAST)


MISSING = "Bad Request: message to {} not found"


@pytest.mark.parametrize(
    ("method", "more", "words"),
    [
        ("editMessageText", {"text": "a"}, "Bad Request: message to edit not found"),
        ("deleteMessage", {}, "Bad Request: message to delete not found"),
        ("pinChatMessage", {}, "Bad Request: message to pin not found"),
        ("setMessageReaction", {"reaction": []}, "Bad Request: message to react not found"),
        ("forwardMessage", {"from_chat_id": 5}, "Bad Request: message to forward not found"),
        ("copyMessage", {"from_chat_id": 5}, "Bad Request: message to copy not found"),
        ("stopPoll", {}, "Bad Request: message with poll to stop not found"),
    ],
)
def test_what_names_a_dead_one_is_answered_at_once_in_telegrams_words(
    method: str, more: dict[str, Any], words: str
) -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        await bot.send("before", 5)
        stage.telegram.dark(True)
        answer = await bot.answer("sendMessage", chat_id=5, text="never")
        await stage.peik.outbox.service.cancel(int(answer["peik"]["letter_id"]))
        asked = {"chat_id": 5, "message_id": answer["result"]["message_id"], **more}
        before = stage.clock.mono()
        assert await bot.refusal(method, **asked) == words
        assert stage.clock.mono() == before
        stage.telegram.dark(False)
        await asyncio.sleep(60)
        real = await bot.refusal(method, **asked | {"message_id": 777})
        assert real == words, "as the simulated Telegram says it"

    play(story, **FAST)


def test_a_reply_to_a_dead_one_is_refused_unless_it_may_do_without() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        stage.telegram.dark(True)
        answer = await bot.answer("sendMessage", chat_id=5, text="never")
        await stage.peik.outbox.service.cancel(int(answer["peik"]["letter_id"]))
        to: dict[str, Any] = {"message_id": answer["result"]["message_id"]}
        words = await bot.refusal("sendMessage", chat_id=5, text="a", reply_parameters=to)
        assert words == "Bad Request: message to be replied not found"
        await bot.send("alone", reply_parameters=to | {"allow_sending_without_reply": True})
        stage.telegram.dark(False)
        await stage.quiet()
        assert stage.texts(5) == ["alone"]

    play(story, **FAST)


def test_after_a_try_that_may_have_arrived_edits_and_deletions_wait_for_the_real_message() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        await bot.send("before")
        stage.telegram.faults.add("hang", count=2, method="sendMessage")
        kept, gone = await bot.send("kept"), await bot.send("gone", 6)
        assert await bot("editMessageText", chat_id=5, message_id=kept, text="changed") is True
        assert await bot("deleteMessage", chat_id=6, message_id=gone) is True
        await stage.quiet()
        assert [one.get("text") for one in shown(stage, 5)[0]][:2] == ["before", "changed"]
        assert shown(stage, 6)[0] == [{"pinned": 0}]

    play(story, **FAST)


def test_of_what_may_have_arrived_and_left_no_id_every_call_hears_that_it_is_uncertain() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        await bot.send("before")
        stage.telegram.faults.add("lose_after", count=1, method="sendMessage")
        letter_id = await stage.text(5, "once", on_uncertain=OnUncertain.HOLD)
        view = await stage.ended(letter_id)
        assert view.failed_reason == "uncertain"
        _, first = await stage.peik.outbox.service.provisional.give(view, 1)
        for method, more in (("editMessageText", {"text": "a"}), ("deleteMessage", {}), ("pinChatMessage", {})):
            assert "uncertain" in await bot.refusal(method, chat_id=5, message_id=first, **more)

    play(story, **FAST)


def test_an_edit_does_not_overtake_an_older_one_that_waits_for_the_message() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        await bot.send("before")
        stage.telegram.dark(True)
        message_id = await bot.send("one")
        # Markup that Telegram might refuse would take the message with it: this edit waits, and so does what follows.
        await bot("editMessageText", chat_id=5, message_id=message_id, text="*two*", parse_mode="MarkdownV2")
        await bot("editMessageText", chat_id=5, message_id=message_id, text="three")
        stage.telegram.dark(False)
        await stage.quiet()
        assert shown(stage, 5)[0][1] == {"text": "three"}

    play(story, **FAST)


def test_updates_and_results_carry_the_id_that_the_bot_was_told_and_calls_take_either() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        await bot.send("before")
        stage.telegram.dark(True)
        told = await bot.send("press me", reply_markup=KEYBOARD)
        stage.telegram.dark(False)
        await stage.quiet()
        real = max(stage.telegram._known(stage.telegram.bot(TOKEN), 5).messages)
        stage.telegram.press(TOKEN, 5, real, "yes")
        stage.telegram.write(TOKEN, 5, "a reply", reply_to=real)
        updates: list[Any] = []
        while len(updates) < 2:
            updates = await bot("getUpdates", timeout=10)
        assert updates[0]["callback_query"]["message"]["message_id"] == told
        assert updates[1]["message"]["reply_to_message"]["message_id"] == told
        assert updates[1]["message"]["message_id"] < FIRST_ID
        for message_id, text in ((told, "by its name"), (real, "by its number")):
            edited = await bot("editMessageText", chat_id=5, message_id=message_id, text=text)
            assert (edited["message_id"], edited["text"]) == (told, text)

    play(story, inbound="polling", **FAST)


def test_the_mapping_outlives_restarts_and_its_letters_and_goes_with_the_message_log() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            bot = Bot(stage)
            await bot.send("before")
            stage.telegram.dark(True)
            told = await bot.send("kept")
        stage.telegram.dark(False)
        async with stage.open():
            await stage.quiet()
            await asyncio.sleep(2 * 3600)
            assert await stage.peik.outbox.service.find(LetterFilter(), before=None, limit=9) == [], (
                "the letter itself has left for the log"
            )
            bot = Bot(stage)
            edited = await bot("editMessageText", chat_id=5, message_id=told, text="later")
            assert edited["message_id"] == told
            assert await bot.send("next") < FIRST_ID
            await asyncio.sleep(25 * 3600)
            assert await stage.peik.store.documents.collections("provisional:") == ["provisional:next"]
            assert await bot.refusal("editMessageText", chat_id=5, message_id=told, text="b") == MISSING.format("edit")
            stage.telegram.dark(True)
            assert await bot.send("again") > told, "no id is given twice"

    play_closed(story, keep_completed="1h", keep_log="1d", **FAST)


def test_by_setting_what_waits_has_the_id_0() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        stage.telegram.dark(True)
        assert await bot.send() == 0
        assert await stage.peik.store.documents.collections("provisional:") == []

    play(story, pending_id="zero", **FAST)


def test_a_repeat_under_a_key_is_told_the_same_id() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        stage.telegram.dark(True)
        first, again = [await bot.answer("sendMessage", key="k", chat_id=5, text="once") for _ in range(2)]
        assert first["result"]["message_id"] == again["result"]["message_id"] == FIRST_ID

    play(story, **FAST)


def test_an_id_in_the_wrong_chat_names_nothing() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        stage.telegram.dark(True)
        told = await bot.send("mine", 5)
        assert await bot.refusal("deleteMessage", chat_id=6, message_id=told) == MISSING.format("delete")
        stage.telegram.dark(False)
        await stage.quiet()
        assert stage.texts(5) == ["mine"]

    play(story, **FAST)


def test_what_is_forwarded_or_copied_shows_what_stood_there_then() -> None:
    """Whatever becomes of the message afterwards, and however long the other chat has to wait."""

    def played(dark_s: float) -> list[list[dict[str, Any]]]:
        seen: list[list[dict[str, Any]]] = []

        async def story(stage: Stage) -> None:
            bot = Bot(stage)
            await asyncio.gather(*(bot.send("before", chat) for chat in (5, 6, 7)))
            if dark_s:
                stage.telegram.faults.add("dark", seconds=dark_s)
                await asyncio.gather(*(bot.send(f"more {n}", 6) for n in range(3)))
            first, second = await bot.send("first"), await bot.send("second")
            await bot("forwardMessage", chat_id=6, from_chat_id=5, message_id=first)
            await bot("copyMessages", chat_id=7, from_chat_id=5, message_ids=[first, second])
            await bot("editMessageText", chat_id=5, message_id=first, text="something else")
            await bot("deleteMessage", chat_id=5, message_id=second)
            await bot("forwardMessage", chat_id=7, from_chat_id=5, message_id=first)
            await bot("editMessageText", chat_id=5, message_id=first, text="something else again")
            await stage.quiet()
            tally = (await stage.peik.outbox.service.tallies())[BOT]
            assert tally.failed == 0, await stage.peik.outbox.service.causes()
            seen.extend(shown(stage, 5, 6, 7))

        play(story, **FAST)
        return [[one for one in chat if "more" not in one.get("text", "")] for chat in seen]

    assert played(dark_s=60) == played(dark_s=0)


@pytest.mark.parametrize("is_form", [False, True])
def test_of_a_channel_that_was_named_by_its_name_0_is_its_number_until_it_is_known(is_form: bool) -> None:
    """Libraries take the chat of a message from what they were told of it, and its number was not known then."""

    def written(value: object) -> Any:
        return msgspec.json.encode(value).decode() if is_form else value

    async def story(stage: Stage) -> None:
        stage.telegram.chat("channel", "News", chat_id=-1009, username="News", bots=[BOT])
        bot = Bot(stage)
        await bot.send("before", 6)
        stage.telegram.dark(True)
        told = await bot("sendMessage", chat_id="@news", text="first")
        assert told["chat"] == {"id": 0, "type": "channel", "username": "news"}
        first, none = told["message_id"], written(0)
        await bot("editMessageText", chat_id=none, message_id=written(first), text="second")
        reply = written({"message_id": first, "chat_id": 0})
        answer = await bot.send("answer", none, reply_parameters=reply)
        await bot("forwardMessage", chat_id=6, from_chat_id=none, message_id=written(first))
        await bot("pinChatMessage", chat_id=none, message_id=written(answer))
        gone = await bot.send("gone", "@news")
        assert await bot("deleteMessage", chat_id=none, message_id=written(gone)) is True
        stage.telegram.dark(False)
        await stage.quiet()
        await bot("editMessageText", chat_id=none, message_id=written(answer), text="a better answer")
        await stage.quiet()
        assert [one.get("text") for one in shown(stage, -1009)[0]] == ["second", "a better answer", None, None]
        assert shown(stage, -1009)[0][1]["reply_to_message"] == "second"
        assert shown(stage, -1009)[0][-1] == {"pinned": 1}
        assert stage.texts(6) == ["before", "second"]
        assert await bot.refusal("deleteMessage", chat_id=6, message_id=answer) == MISSING.format("delete")

    play(story, **FAST)


def test_what_waits_for_a_message_keeps_no_other_chat_waiting() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        await bot.send("before", 6)
        stage.telegram.faults.add("hang", count=1, chat=5)
        told = await bot.send("slow", 5)
        await bot("forwardMessage", chat_id=6, from_chat_id=5, message_id=told)
        assert await bot.send("quick", 6) < FIRST_ID

    play(story, **FAST)


def test_every_consumer_gets_the_id_that_the_bot_was_told() -> None:
    async def story(stage: Stage) -> None:
        pushes = stage.pusher = Bots(stage.clock)
        async with stage.open():
            bot, handled = Bot(stage), []
            await bot.send("before")
            stage.telegram.dark(True)
            told = await bot.send("asked")
            stage.telegram.dark(False)
            await stage.quiet()

            async def handle(arrival: Arrival, tries: int) -> None:
                handled.append(msgspec.json.decode(arrival.wire()))

            stage.peik.inbox.consumers.handle(BOT, "functions", Handling(handle=handle, allowed=None))
            await Bot(stage, token=f"{TOKEN}@pushed")("setWebhook", url="https://bot.example/hook")
            stream = await stage.peik.inbox.service.stream(BOT, "streamed")
            real = max(stage.telegram._known(stage.telegram.bot(TOKEN), 5).messages)
            stage.telegram.write(TOKEN, 5, "a reply", reply_to=real)
            polled: list[Any] = []
            while not polled:
                polled = await bot("getUpdates", timeout=10)
            await asyncio.sleep(10)
            with stream.seated() as seat:
                streamed = await stream.next(seat, 10.0)
            assert streamed is not None
            shown_to = [polled[0], handled[0], pushes.got[0].update, msgspec.json.decode(streamed[0].wire())]
            assert [one["message"]["reply_to_message"]["message_id"] for one in shown_to] == [told] * 4
            (view,) = await stage.peik.inbox.service.arrivals(ArrivalFilter(bot_id=BOT), before=None, limit=1)
            looked_at = await stage.peik.inbox.service.arrival(view.arrival.id)
            assert str(told) in looked_at.arrival.payload

    play_closed(story, inbound="polling", pushes_allow_private="on", **FAST)


def test_rest_and_the_library_name_the_same_letter_and_a_batch_waits_as_a_whole() -> None:
    async def story(stage: Stage) -> None:
        bot = Bot(stage)
        await bot.send("before")
        stage.telegram.dark(True)
        first = await bot.answer("sendMessage", chat_id=5, text="one")
        told, letter_id = first["result"]["message_id"], int(first["peik"]["letter_id"])
        edit = {"chat_id": 5, "message_id": told, "text": "two"}
        assert await stage.accept("editMessageText", params=edit) == letter_id
        assert '"two"' in (await stage.letter(letter_id)).params
        later = stage.clock.wall_ms() + 3_600_000
        scheduled = await stage.accept("deleteMessage", params={"chat_id": 5, "message_id": told}, send_at_ms=later)
        batch = await stage.accept_all(
            [
                call("editMessageText", params=edit | {"text": "three"}),
                call("pinChatMessage", params={"chat_id": 5, "message_id": told}),
            ]
        )
        assert len({letter_id, scheduled, *batch}) == 4, "who says when, or brings several, has letters of his own"
        stage.telegram.dark(False)
        for one in batch:
            assert (await stage.ended(one)).state == "completed"
        # The chat says that something is pinned.
        assert shown(stage, 5)[0][1:] == [{"text": "three"}, {}, {"pinned": 1}]
        await stage.ended(scheduled)
        assert len(shown(stage, 5)[0]) == 3

    play(story, **FAST)


def test_a_call_that_goes_straight_through_waits_a_moment_for_the_real_id() -> None:
    async def story(stage: Stage) -> None:
        bot, ids = Bot(stage), stage.peik.outbox.service.provisional
        await bot.send("before")
        stage.telegram.faults.add("hang", count=1, method="sendMessage")
        told = await bot.send("slow")
        params = msgspec.json.encode({"chat_id": 5, "message_id": told})
        known = await ids.translated(BOT, "getGameHighScores", params, timeout_s=1.0)
        assert known == params, "Telegram says that it is not there"
        await stage.quiet()
        known = await ids.translated(BOT, "getGameHighScores", params, timeout_s=1.0)
        assert msgspec.json.decode(known)["message_id"] < FIRST_ID

    play(story, **FAST)
