"""Methods of the Bot API done as an account, over a real TelegramClient."""

import datetime
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from telethon import types

from peik.accounts.telethon.client import access_to
from peik.archive.store import Direction
from peik.core.outcome import Delivered, Limited, Outcome, Refused, Reply, Uncertain, Unsent, judge
from peik.core.token import Token
from peik.telegram.port import Enclosure, Request
from tests.accounts.listening import until
from tests.accounts.test_telethon_seeing import NEWS_CHAT, TEAM_CHAT, Stage, play
from tests.accounts.tl_server import GROUP, ME, SARA, STRANGERS, TEAM

TOKEN = Token("1:account")


async def carry(
    stage: Stage, method: str, /, random_id: int = 7, files: tuple[Enclosure, ...] = (), **params: Any
) -> Reply:
    request = Request(token=TOKEN, method=method, params=json.dumps(params).encode(), enclosures=files, timeout_s=30)
    return await stage.client.carry(request, random_id=random_id)


async def result(stage: Stage, method: str, /, **params: Any) -> Any:
    reply = await carry(stage, method, **params)
    assert reply.status == 200, reply
    return json.loads(reply.body)["result"]


def sending(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def told(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        await story(stage)

    play(told)


def test_a_chat_that_was_seen_before_is_opened_without_a_question() -> None:
    async def story(stage: Stage) -> None:
        stage.server.strangers = 150
        stage.client._telegram._mb_entity_cache.hash_map.pop(SARA, None)  # type: ignore[attr-defined]
        wanted: list[int] = []

        async def access_of(chat_id: int) -> bytes:
            wanted.append(chat_id)
            return access_to(types.InputPeerUser(STRANGERS + 140, 6))

        before = len(stage.server.requests)
        request = Request(token=TOKEN, method="sendMessage", params=b'{"chat_id": 1000140, "text": "x"}', timeout_s=30)
        for random_id in (1, 2):
            assert (await stage.client.carry(request, random_id=random_id, access_of=access_of)).status == 200
        assert [type(one).__name__ for one in stage.server.requests[before:]] == ["_SendMessage", "_SendMessage"]
        assert wanted == [STRANGERS + 140], "the second letter knows it"

    sending(story)


def test_what_opened_a_chat_for_another_account_is_tried_once() -> None:
    async def story(stage: Stage) -> None:
        stage.client._telegram._mb_entity_cache.hash_map.pop(SARA, None)  # type: ignore[attr-defined]
        stage.client._telegram.session._entities.clear()  # type: ignore[attr-defined]
        await stage.again(stage.notebook.state)
        stage.client._telegram._mb_entity_cache.hash_map.pop(SARA, None)  # type: ignore[attr-defined]

        async def access_of(chat_id: int) -> bytes:
            return access_to(types.InputPeerUser(SARA, 12345))

        params = json.dumps({"chat_id": SARA, "text": "x"}).encode()
        request = Request(token=TOKEN, method="sendMessage", params=params, timeout_s=30)
        stage.server.next("SendMessage", "PEER_ID_INVALID")
        reply = await stage.client.carry(request, random_id=1, access_of=access_of)
        assert reply.status == 200, reply
        sent = stage.server.asked("SendMessage")[-2:]
        assert [one.peer.access_hash for one in sent] == [12345, 2]
        assert len({one.random_id for one in sent}) == 1

    sending(story)


def test_a_chat_that_nobody_knows_is_looked_for_page_by_page() -> None:
    async def story(stage: Stage) -> None:
        stage.server.strangers = 350
        await stage.again(stage.notebook.state)
        before = len(stage.server.asked("GetDialogs"))
        assert (await result(stage, "sendMessage", chat_id=STRANGERS + 240, text="x"))["chat"]["id"] == STRANGERS + 240
        assert len(stage.server.asked("GetDialogs")) - before == 3
        assert stage.server.busiest()["messages.getDialogs"] <= 2
        reply = await carry(stage, "sendMessage", chat_id=77, text="x")
        assert b"chat not found" in reply.body
        assert len(stage.server.asked("GetDialogs")) - before == 4, "that was the last page"
        await carry(stage, "sendMessage", chat_id=78, text="x")
        assert len(stage.server.asked("GetDialogs")) - before == 4

    sending(story)


def test_a_message_goes_out_with_its_random_id_and_is_seen_as_sent() -> None:
    async def story(stage: Stage) -> None:
        sent = await result(
            stage, "sendMessage", chat_id=SARA, text="<b>Salom</b> dunyo", parse_mode="HTML", random_id=99
        )
        assert sent["text"] == "Salom dunyo"
        assert sent["chat"] == {"id": SARA, "type": "private"}
        asked = stage.server.asked("SendMessage")[-1]
        assert (asked.random_id, asked.message) == (99, "Salom dunyo")
        assert [(type(one).__name__, one.offset, one.length) for one in asked.entities] == [("MessageEntityBold", 0, 5)]
        await until(lambda: stage.notebook.messages)
        seen = stage.notebook.messages[0]
        assert (seen.text, seen.chat_id, seen.direction) == ("Salom dunyo", SARA, Direction.SENT)
        assert seen.message_id == sent["message_id"]

    sending(story)


@pytest.mark.parametrize("chat", [SARA, TEAM_CHAT, NEWS_CHAT])
def test_the_same_random_id_again_is_the_same_message(chat: int) -> None:
    async def story(stage: Stage) -> None:
        first = await result(stage, "sendMessage", chat_id=chat, text="once", random_id=5)
        second = await result(stage, "sendMessage", chat_id=chat, text="once", random_id=5)
        other = await result(stage, "sendMessage", chat_id=chat, text="once", random_id=6)
        assert first["message_id"] == second["message_id"] != other["message_id"]

    sending(story)


def test_markdown_entities_replies_and_previews() -> None:
    async def story(stage: Stage) -> None:
        await result(
            stage, "sendMessage", chat_id=str(TEAM_CHAT), text="*a* [b](https://x.y) ||c||", parse_mode="MarkdownV2",
            reply_parameters={"message_id": 4, "quote": "q"}, message_thread_id=2,
            link_preview_options={"is_disabled": True}, disable_notification=True, protect_content="true",
        )  # fmt: skip
        asked = stage.server.asked("SendMessage")[-1]
        assert asked.message == "a b c"
        assert [type(one).__name__ for one in asked.entities] == [
            "MessageEntityBold", "MessageEntityTextUrl", "MessageEntitySpoiler",
        ]  # fmt: skip
        assert (asked.reply_to.reply_to_msg_id, asked.reply_to.top_msg_id, asked.reply_to.quote_text) == (4, 2, "q")
        assert (asked.no_webpage, asked.silent, asked.noforwards) == (True, True, True)
        await result(
            stage, "sendMessage", chat_id=SARA, text="hi you", entities=[{"type": "italic", "offset": 3, "length": 3}]
        )
        given = stage.server.asked("SendMessage")[-1].entities[0]
        assert isinstance(given, types.MessageEntityItalic)

    sending(story)


@pytest.mark.parametrize(
    ("method", "field", "name", "mime", "attribute"),
    [
        ("sendDocument", "document", "a.pdf", "application/pdf", None),
        ("sendVideo", "video", "a.mp4", "video/mp4", types.DocumentAttributeVideo),
        ("sendAudio", "audio", "a.mp3", "audio/mpeg", types.DocumentAttributeAudio),
        ("sendVoice", "voice", "a.ogg", "audio/ogg", types.DocumentAttributeAudio),
        ("sendPhoto", "photo", "a.jpg", "image/jpeg", None),
    ],
)
def test_files_are_uploaded(
    method: str, field: str, name: str, mime: str, attribute: type | None, tmp_path: Path
) -> None:
    file = tmp_path / "blob"
    file.write_bytes(b"content" * 100)
    enclosure = Enclosure(field="file0", path=file, filename=name, content_type=mime, size_bytes=700)

    async def story(stage: Stage) -> None:
        params = {field: "attach://file0"}
        sent = await result(stage, method, chat_id=SARA, caption="see", files=(enclosure,), **params)
        assert sent["caption"] == "see"
        media = stage.server.asked("SendMedia")[-1].media
        assert b"".join(part.bytes for part in stage.server.asked("SaveFilePart")) == b"content" * 100
        if field == "photo":
            assert isinstance(media, types.InputMediaUploadedPhoto)
        else:
            assert media.mime_type == mime
            assert media.attributes[0].file_name == name
            assert attribute is None or any(isinstance(one, attribute) for one in media.attributes)

    sending(story)


def test_urls_go_as_urls_and_file_ids_are_refused() -> None:
    async def story(stage: Stage) -> None:
        await result(stage, "sendPhoto", chat_id=SARA, photo="https://x.y/z.jpg")
        assert isinstance(stage.server.asked("SendMedia")[-1].media, types.InputMediaPhotoExternal)
        refused = judged(await carry(stage, "sendPhoto", chat_id=SARA, photo="AgACAgIAAx"), "sendPhoto")
        assert isinstance(refused, Refused)
        assert "file_id" in refused.words

    sending(story)


def test_location_forward_copy_edit_delete_pin_react() -> None:
    async def story(stage: Stage) -> None:
        await result(stage, "sendLocation", chat_id=SARA, latitude=41.3, longitude=69.2)
        assert isinstance(stage.server.asked("SendMedia")[-1].media, types.InputMediaGeoPoint)

        forwarded = await result(
            stage, "forwardMessage", chat_id=SARA, from_chat_id=TEAM_CHAT, message_id=3, random_id=11
        )
        assert forwarded["message_id"] > 0
        copied = await result(
            stage, "copyMessages", chat_id=TEAM_CHAT, from_chat_id=SARA, message_ids=[1, 2], random_id=2**63 - 1
        )
        asked = stage.server.asked("ForwardMessages")[-1]
        assert (asked.random_id, asked.drop_author) == ([2**63 - 1, -(2**63)], True)
        assert [set(one) for one in copied] == [{"message_id"}, {"message_id"}]

        edited = await result(stage, "editMessageText", chat_id=SARA, message_id=8, text="new")
        assert (edited["message_id"], edited["text"]) == (8, "new")
        assert await result(stage, "deleteMessage", chat_id=SARA, message_id=8) is True
        assert await result(stage, "deleteMessages", chat_id=TEAM_CHAT, message_ids=[8, 9]) is True
        assert stage.server.asked("DeleteMessages")[-1].channel.channel_id == TEAM
        await until(lambda: stage.notebook.deleted == [(None, (8,)), (TEAM_CHAT, (8, 9))])
        assert await result(stage, "pinChatMessage", chat_id=SARA, message_id=8) is True
        reaction = [{"type": "emoji", "emoji": "👍"}]
        assert await result(stage, "setMessageReaction", chat_id=SARA, message_id=8, reaction=reaction) is True
        assert stage.server.asked("SendReaction")[-1].reaction[0].emoticon == "👍"

    sending(story)


def judged(reply: Reply, method: str = "sendMessage") -> Outcome:
    return judge(reply, method=method)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ("FLOOD_WAIT_30", Limited, ""),
        ("SLOWMODE_WAIT_10", Limited, ""),
        ("CHAT_WRITE_FORBIDDEN", Refused, "CHAT_WRITE_FORBIDDEN"),
        ("USER_IS_BLOCKED", Refused, "blocked"),
        ("PEER_FLOOD", Limited, ""),
        ("SESSION_REVOKED", Refused, "Unauthorized"),
        ("SOMETHING_NEW", Refused, "SOMETHING_NEW"),
    ],
)
def test_what_telegram_refuses_is_judged_as_for_a_bot(error: str, kind: type, words: str) -> None:
    async def story(stage: Stage) -> None:
        stage.server.next("SendMessage", error)
        outcome = judged(await carry(stage, "sendMessage", chat_id=SARA, text="x"))
        assert isinstance(outcome, kind)
        assert words in getattr(outcome, "words", "")
        if isinstance(outcome, Limited):
            assert outcome.retry_after_s == int(error.rpartition("_")[2] if error[-1].isdigit() else 3600)

    sending(story)


def test_a_send_that_telegram_has_already_is_delivered() -> None:
    async def story(stage: Stage) -> None:
        for _ in range(2):
            stage.server.next("SendMessage", "RANDOM_ID_DUPLICATE")
        outcome = judged(await carry(stage, "sendMessage", chat_id=SARA, text="x"))
        assert isinstance(outcome, Delivered)
        assert json.loads(outcome.result)["message_id"] == 0, "nothing in the chat says what it became"

    sending(story)


def test_a_send_that_telegram_has_already_is_found_in_the_chat() -> None:
    """Two tries of one letter, the answer of the first one lost: the second names the message, so that it can be edited."""

    async def story(stage: Stage) -> None:
        other = await result(stage, "sendMessage", chat_id=SARA, text="x", random_id=5)
        first = await result(stage, "sendMessage", chat_id=SARA, text="x ", random_id=7)
        stage.server.private("x")  # Sara says the same
        for _ in range(2):
            stage.server.next("SendMessage", "RANDOM_ID_DUPLICATE")
        again = await result(stage, "sendMessage", chat_id=SARA, text="x", random_id=7)
        assert again["message_id"] == first["message_id"] != other["message_id"]
        assert again["text"] == "x"

    sending(story)


@pytest.mark.parametrize("method", ["forwardMessage", "copyMessage", "forwardMessages", "copyMessages"])
def test_a_forward_that_telegram_has_already_is_found_in_the_chat(method: str) -> None:
    async def story(stage: Stage) -> None:
        server = stage.server
        one = server.private("news", media=server.document(b"one"))
        server.at += datetime.timedelta(seconds=5)
        two = server.private("news")
        ids = {"message_ids": [one.id, two.id]} if method.endswith("s") else {"message_id": two.id}
        other = "copyMessage" if method.startswith("forward") else "forwardMessage"
        first = await result(stage, method, chat_id=TEAM_CHAT, from_chat_id=SARA, random_id=50, **ids)
        await result(stage, other, chat_id=TEAM_CHAT, from_chat_id=SARA, message_id=two.id, random_id=60)
        await result(stage, "sendMessage", chat_id=TEAM_CHAT, text="more", random_id=70)
        server.post(TEAM, "news")  # of somebody else
        for _ in range(2):
            server.next("ForwardMessages", "RANDOM_ID_DUPLICATE")
        again = await result(stage, method, chat_id=TEAM_CHAT, from_chat_id=SARA, random_id=50, **ids)
        assert again == first

    sending(story)


@pytest.mark.parametrize(
    ("method", "given"), [("copyMessage", {"caption": ""}), ("copyMessages", {"remove_caption": True})]
)
def test_a_copy_can_leave_its_caption_out_and_never_keeps_one_that_was_to_be_another(
    method: str, given: dict[str, Any]
) -> None:
    async def story(stage: Stage) -> None:
        photo = stage.server.private("old caption", media=stage.server.document(b"one"))
        ids: dict[str, Any] = {"message_ids": [photo.id]} if method.endswith("s") else {"message_id": photo.id}
        where = {"chat_id": TEAM_CHAT, "from_chat_id": SARA, **ids}
        first = await result(stage, method, **where, **given)
        assert stage.server.asked("ForwardMessages")[-1].drop_media_captions is True
        for _ in range(2):
            stage.server.next("ForwardMessages", "RANDOM_ID_DUPLICATE")
        assert await result(stage, method, **where, **given) == first
        where = {"chat_id": TEAM_CHAT, "from_chat_id": SARA, "message_id": photo.id}
        refused = judged(await carry(stage, "copyMessage", **where, caption="new"))
        assert isinstance(refused, Refused)
        assert "keeps its caption" in refused.words

    sending(story)


def test_a_forward_that_telegram_has_already_and_that_is_not_there_any_more_names_no_message() -> None:
    async def story(stage: Stage) -> None:
        one = stage.server.private("news")
        for _ in range(2):
            stage.server.next("ForwardMessages", "RANDOM_ID_DUPLICATE")
        ids = [one.id, 9999]
        again = await result(stage, "forwardMessages", chat_id=TEAM_CHAT, from_chat_id=SARA, message_ids=ids)
        assert again == [{"message_id": 0}, {"message_id": 0}]

    sending(story)


def test_trouble_inside_telegram_is_uncertain_and_a_dead_line_is_unsent() -> None:
    async def story(stage: Stage) -> None:
        for _ in range(2):
            stage.server.next("SendMessage", "HISTORY_GET_FAILED")
        assert isinstance(judged(await carry(stage, "sendMessage", chat_id=SARA, text="x")), Uncertain)
        await stage.client.disconnect()
        assert isinstance(judged(await carry(stage, "sendMessage", chat_id=SARA, text="x")), Unsent)

    sending(story)


@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("sendInvoice", {"chat_id": SARA}, "not possible as an account"),
        ("sendMessage", {"text": "x"}, "chat_id is empty"),
        ("sendMessage", {"chat_id": SARA, "text": " "}, "text is empty"),
        ("sendMessage", {"chat_id": SARA, "text": "<b>x", "parse_mode": "HTML"}, "can't parse entities"),
        ("sendMessage", {"chat_id": 123456, "text": "x"}, "chat not found"),
        ("deleteMessages", {"chat_id": SARA, "message_ids": []}, "1 to 100"),
        ("editMessageText", {"chat_id": SARA, "text": "x"}, "missing"),
    ],
)
def test_what_cannot_be_done_is_refused_with_words(method: str, params: dict[str, Any], words: str) -> None:
    async def story(stage: Stage) -> None:
        outcome = judged(await carry(stage, method, **params), method)
        assert isinstance(outcome, Refused)
        assert words in outcome.words

    sending(story)


def test_a_basic_group_and_a_name_are_found_by_what_telegram_knows() -> None:
    async def story(stage: Stage) -> None:
        stage.server.next("SendMessage", types.Updates([], [], [], stage.server.at, 0))
        sent = await result(stage, "sendMessage", chat_id=-GROUP, text="x")
        assert sent["chat"] == {"id": -GROUP, "type": "group"}
        named = await result(stage, "sendMessage", chat_id="@sara", text="x")
        assert named["chat"]["id"] == SARA

    sending(story)


def test_saved_messages_are_a_chat_like_any_other() -> None:
    async def story(stage: Stage) -> None:
        for number, chat in enumerate((ME, "me")):
            sent = await result(stage, "sendMessage", chat_id=chat, text="note", random_id=100 + number)
            assert sent["chat"] == {"id": ME, "type": "private"}
        await until(lambda: len(stage.notebook.messages) == 2)
        assert {one.chat_id for one in stage.notebook.messages} == {ME}

    sending(story)
