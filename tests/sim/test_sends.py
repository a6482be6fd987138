"""What sends answer, and what the ledger and the chat hold afterwards."""

import random

import pytest

from peik.testing import Answer, Options, Telegram, UploadedFile
from tests.sim.conftest import TOKEN, Clock

GROUP = -1_000_000_000_777


def call(telegram: Telegram, method: str, files: dict[str, UploadedFile] | None = None, **params: object) -> Answer:
    answer = telegram.call(TOKEN, method, params, files or {})
    assert isinstance(answer, Answer)
    return answer


@pytest.fixture
def telegram(clock: Clock) -> Telegram:
    calm = Options()
    calm.limits.on = False
    return Telegram(now=clock, chance=random.Random(7), options=calm)


def test_a_message_is_answered_with_itself_and_stands_in_the_ledger(telegram: Telegram, clock: Clock):
    message = call(telegram, "sendMessage", chat_id=7, text="hello").result
    assert message["text"] == "hello"
    assert message["chat"] == {"id": 7, "type": "private", "first_name": "User 7"}
    assert message["from"]["is_bot"] is True
    assert message["date"] == int(clock.now)
    (row,) = telegram.sent
    assert (row.number, row.bot_id, row.chat_id, row.thread_id, row.message_id) == (1, 700042, 7, None, 1)
    assert (row.method, row.text, row.at) == ("sendMessage", "hello", clock.now)


def test_message_ids_rise_in_each_chat(telegram: Telegram):
    ids = [call(telegram, "sendMessage", chat_id=chat, text="x").result["message_id"] for chat in (7, 8, 7, GROUP, 7)]
    assert ids == [1, 1, 2, 1, 3]


def test_method_names_are_case_insensitive_and_counted_under_their_true_name(telegram: Telegram):
    assert call(telegram, "SENDMESSAGE", chat_id="7", text="x").ok
    assert telegram.counters.requests == {"sendMessage": 1}
    assert telegram.sent[0].method == "sendMessage"


def test_equal_requests_have_equal_digests_whatever_their_order(telegram: Telegram):
    telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "x"})
    telegram.call(TOKEN, "sendMessage", {"text": "x", "chat_id": 7})
    telegram.call(TOKEN, "sendMessage", {"text": "y", "chat_id": 7})
    first, second, third = [row.digest for row in telegram.sent]
    assert first == second != third


def test_the_ledger_can_be_asked_and_bounded(clock: Clock):
    telegram = Telegram(now=clock, options=Options(ledger_max=3))
    for chat_id in (1, 2, 1, 2):
        telegram.call(TOKEN, "sendMessage", {"chat_id": chat_id, "text": f"to {chat_id}"})
    assert telegram.sent.total == 4
    assert [row.number for row in telegram.sent] == [2, 3, 4]
    assert telegram.sent.texts(2) == ["to 2", "to 2"]
    assert [row.number for row in telegram.sent.where(chat_id=2, after=2)] == [4]


def test_an_upload_gets_ids_and_can_be_sent_again_by_them(telegram: Telegram):
    file = UploadedFile(filename="report.pdf", content=b"%PDF", content_type="application/pdf")
    document = call(telegram, "sendDocument", {"document": file}, chat_id=7, caption="the report").result["document"]
    assert document["file_name"] == "report.pdf"
    assert document["file_size"] == 4
    again = call(telegram, "sendDocument", chat_id=8, document=document["file_id"]).result["document"]
    assert again == document
    assert telegram.sent.texts() == ["the report", ""]


def test_an_attachment_is_found_by_its_name(telegram: Telegram):
    files = {"one": UploadedFile(filename="1.jpg", content=b"1"), "two": UploadedFile(filename="2.jpg", content=b"22")}
    media = '[{"type":"photo","media":"attach://one","caption":"first"},{"type":"photo","media":"attach://two"}]'
    album = call(telegram, "sendMediaGroup", files, chat_id=7, media=media).result
    assert [item["photo"][0]["file_size"] for item in album] == [1, 2]
    assert album[0]["media_group_id"] == album[1]["media_group_id"]
    assert [row.message_id for row in telegram.sent] == [1, 2]


def test_a_file_is_found_and_downloaded(telegram: Telegram):
    file = UploadedFile(filename="report.pdf", content=b"%PDF", content_type="application/pdf")
    file_id = call(telegram, "sendDocument", {"document": file}, chat_id=7).result["document"]["file_id"]
    path = call(telegram, "getFile", file_id=file_id).result["file_path"]
    assert telegram.download(TOKEN, path).body == b"%PDF"
    assert telegram.download(TOKEN, "documents/none.pdf").status == 404
    assert telegram.download("9:unknown", path).status == 404  # a file is the bot's own


def test_the_cloud_gives_back_at_most_twenty_mebibytes(telegram: Telegram):
    file = UploadedFile(filename="big.bin", content=bytes(20 * 1024 * 1024 + 1))
    file_id = call(telegram, "sendDocument", {"document": file}, chat_id=7).result["document"]["file_id"]
    assert call(telegram, "getFile", file_id=file_id).description == "Bad Request: file is too big"
    telegram.options.change({"mode": "local"})
    assert call(telegram, "getFile", file_id=file_id).ok


def test_size_limits_of_uploads(telegram: Telegram):
    huge = UploadedFile(filename="huge.bin", content=bytes(50_000_001))
    assert call(telegram, "sendDocument", {"document": huge}, chat_id=7).status == 413
    photo = UploadedFile(filename="big.jpg", content=bytes(10 * 1024 * 1024 + 1))
    assert "too big for a photo" in call(telegram, "sendPhoto", {"photo": photo}, chat_id=7).description
    telegram.options.change({"mode": "local"})
    assert call(telegram, "sendDocument", {"document": huge}, chat_id=7).ok


SENDS = [
    ("sendMessage", {"text": "x"}, "text"),
    ("sendPhoto", {"photo": "https://pictures.example/1.jpg"}, "photo"),
    ("sendDocument", {"document": "https://files.example/1.pdf"}, "document"),
    ("sendAudio", {"audio": "https://files.example/1.mp3"}, "audio"),
    ("sendVideo", {"video": "https://files.example/1.mp4"}, "video"),
    ("sendAnimation", {"animation": "https://files.example/1.gif"}, "animation"),
    ("sendVoice", {"voice": "https://files.example/1.ogg"}, "voice"),
    ("sendVideoNote", {"video_note": "https://files.example/1.mp4"}, "video_note"),
    ("sendSticker", {"sticker": "https://files.example/1.webp"}, "sticker"),
    ("sendLocation", {"latitude": "35.7", "longitude": 51.4}, "location"),
    ("sendVenue", {"latitude": 35.7, "longitude": 51.4, "title": "Bazaar", "address": "Tehran"}, "venue"),
    ("sendContact", {"phone_number": "+1", "first_name": "Ann"}, "contact"),
    ("sendPoll", {"question": "Tea?", "options": '["yes","no"]'}, "poll"),
    ("sendDice", {}, "dice"),
    ("sendGame", {"game_short_name": "chess"}, "game"),
    ("sendPaidMedia", {"star_count": 1, "media": [{"type": "photo", "media": "https://p.example/1"}]}, "paid_media"),
    (
        "sendInvoice",
        {
            "title": "Tea",
            "description": "d",
            "payload": "p",
            "currency": "XTR",
            "prices": [{"label": "a", "amount": 3}],
        },
        "invoice",
    ),
    ("sendSomethingOfNextYear", {"text": "new"}, "text"),
]


@pytest.mark.parametrize(("method", "params", "field"), SENDS, ids=[row[0] for row in SENDS])
def test_every_send_is_answered_with_a_message_and_stands_in_the_ledger(telegram, method, params, field):
    answer = call(telegram, method, chat_id=7, **params)
    assert answer.ok, answer.description
    assert answer.result["message_id"] == 1
    assert field in answer.result
    assert [row.method for row in telegram.sent] == [method]


def test_forwards_and_copies_take_the_content_along(telegram: Telegram):
    call(telegram, "sendMessage", chat_id=7, text="original")
    forwarded = call(telegram, "forwardMessage", chat_id=8, from_chat_id=7, message_id=1).result
    assert forwarded["text"] == "original"
    assert forwarded["forward_origin"]["sender_user"] == forwarded["forward_from"]
    again = call(telegram, "forwardMessage", chat_id=10, from_chat_id=8, message_id=forwarded["message_id"]).result
    assert again["forward_date"] == again["forward_origin"]["date"]
    assert call(telegram, "copyMessage", chat_id=9, from_chat_id=7, message_id=1).result == {"message_id": 1}
    assert telegram.message(TOKEN, 9, 1)["text"] == "original"


def test_missing_messages_are_skipped_when_several_are_copied(telegram: Telegram):
    for text in "ab":
        call(telegram, "sendMessage", chat_id=7, text=text)
    result = call(telegram, "copyMessages", chat_id=8, from_chat_id=7, message_ids="[1,2,3]").result
    assert result == [{"message_id": 1}, {"message_id": 2}]
    refused = call(telegram, "forwardMessages", chat_id=8, from_chat_id=7, message_ids=[2, 1])
    assert refused.description == "Bad Request: message identifiers must be in a strictly increasing order"


def test_an_edit_changes_the_message_and_an_equal_one_is_refused(telegram: Telegram):
    call(telegram, "sendMessage", chat_id=7, text="old")
    assert call(telegram, "editMessageText", chat_id=7, message_id=1, text="new").result["text"] == "new"
    again = call(telegram, "editMessageText", chat_id=7, message_id=1, text="new")
    assert again.status == 400
    assert again.description.startswith("Bad Request: message is not modified")
    assert [(row.method, row.message_id, row.text) for row in telegram.applied] == [("editMessageText", 1, "new")]
    assert telegram.sent.total == 1


def test_a_deleted_message_is_gone(telegram: Telegram):
    call(telegram, "sendMessage", chat_id=7, text="x")
    assert call(telegram, "deleteMessage", chat_id=7, message_id=1).result is True
    assert call(telegram, "deleteMessage", chat_id=7, message_id=1).description.endswith("message to delete not found")
    assert call(telegram, "editMessageText", chat_id=7, message_id=1, text="y").description.endswith("edit not found")
    assert call(telegram, "deleteMessages", chat_id=7, message_ids=[1, 2]).result is True


def test_the_rest_of_a_messages_life(telegram: Telegram):
    call(telegram, "sendPhoto", chat_id=7, photo="https://p.example/1", caption="old")
    assert call(telegram, "editMessageCaption", chat_id=7, message_id=1, caption="new").result["caption"] == "new"
    assert call(telegram, "editMessageText", chat_id=7, message_id=1, text="x").description.endswith(
        "no text in the message to edit"
    )
    media = {"type": "video", "media": "https://v.example/1"}
    edited = call(telegram, "editMessageMedia", chat_id=7, message_id=1, media=media).result
    assert "video" in edited
    assert "photo" not in edited
    keyboard = {"inline_keyboard": [[{"text": "ok", "callback_data": "ok"}]]}
    assert call(telegram, "editMessageReplyMarkup", chat_id=7, message_id=1, reply_markup=keyboard).ok
    assert call(telegram, "pinChatMessage", chat_id=7, message_id=1).ok
    assert call(telegram, "getChat", chat_id=7).result["pinned_message"]["message_id"] == 1
    assert call(telegram, "unpinChatMessage", chat_id=7).ok
    assert call(telegram, "setMessageReaction", chat_id=7, message_id=1, reaction=[]).ok


def test_a_poll_is_stopped_once(telegram: Telegram):
    call(telegram, "sendPoll", chat_id=7, question="Tea?", options=["yes", "no"])
    assert call(telegram, "stopPoll", chat_id=7, message_id=1).result["is_closed"] is True
    assert call(telegram, "stopPoll", chat_id=7, message_id=1).description.endswith("poll has already been closed")


def test_settings_are_given_back(telegram: Telegram):
    commands = [{"command": "start", "description": "Begin"}]
    assert call(telegram, "setMyCommands", commands=commands).result is True
    assert call(telegram, "getMyCommands").result == commands
    assert call(telegram, "deleteMyCommands").result is True
    assert call(telegram, "getMyCommands").result == []


def test_topics_are_made_closed_and_deleted(telegram: Telegram):
    forum = telegram.chat("supergroup", "Forum", is_forum=True, bots=[TOKEN]).id
    topic = call(telegram, "createForumTopic", chat_id=forum, name="News").result["message_thread_id"]
    assert call(telegram, "sendMessage", chat_id=forum, message_thread_id=topic, text="x").ok
    assert telegram.sent[0].thread_id == topic
    assert call(telegram, "closeForumTopic", chat_id=forum, message_thread_id=topic).ok
    assert call(telegram, "sendMessage", chat_id=forum, message_thread_id=topic, text="x").description.endswith(
        "TOPIC_CLOSED"
    )
    assert call(telegram, "deleteForumTopic", chat_id=forum, message_thread_id=topic).ok
    refused = call(telegram, "sendMessage", chat_id=forum, message_thread_id=topic, text="x")
    assert refused.description == "Bad Request: message thread not found"
    assert telegram.sent.total == 1
