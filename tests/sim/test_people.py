"""What people do becomes the updates that Telegram would send."""

from peik.testing import Telegram, UploadedFile
from tests.sim.conftest import TOKEN, Clock


def updates(telegram: Telegram) -> list[dict]:
    telegram.options.anti_busy_loop = False
    return telegram.call(TOKEN, "getUpdates", {}).result


def test_a_persons_message_has_a_name_a_date_and_a_number(telegram: Telegram, clock: Clock):
    telegram.user(7, "Ann", "fa", "ann")
    telegram.write(TOKEN, 7, "/start now")
    (update,) = updates(telegram)
    message = update["message"]
    assert message["from"] == {"id": 7, "is_bot": False, "first_name": "Ann", "username": "ann", "language_code": "fa"}
    assert message["chat"] == {"id": 7, "type": "private", "first_name": "Ann", "username": "ann"}
    assert (message["message_id"], message["date"], message["text"]) == (1, int(clock.now), "/start now")
    assert message["entities"] == [{"type": "bot_command", "offset": 0, "length": 6}]


def test_people_and_bots_share_one_row_of_numbers_in_a_chat(telegram: Telegram):
    telegram.write(TOKEN, 7, "one")
    telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "two"})
    assert telegram.write(TOKEN, 7, "three", reply_to=2)["reply_to_message"]["text"] == "two"


def test_a_press_carries_the_message_and_the_data(telegram: Telegram):
    telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "Tea?"})
    query_id = telegram.press(TOKEN, 7, 1, "yes")
    (update,) = updates(telegram)
    query = update["callback_query"]
    assert (query["id"], query["data"], query["from"]["id"]) == (query_id, "yes", 7)
    assert query["message"]["text"] == "Tea?"


def test_blocking_and_unblocking_are_told(telegram: Telegram):
    telegram.block(TOKEN, 7)
    telegram.block(TOKEN, 7)
    telegram.unblock(TOKEN, 7)
    changes = [update["my_chat_member"] for update in updates(telegram)]
    statuses = [(change["old_chat_member"]["status"], change["new_chat_member"]["status"]) for change in changes]
    assert statuses == [("member", "kicked"), ("kicked", "member")]


def test_a_group_message_reaches_every_bot_in_the_group(telegram: Telegram):
    other = "43:other"
    group = telegram.chat("supergroup", "Friends", bots=[TOKEN, other])
    telegram.write(TOKEN, 7, "hello all", chat=group)
    assert [update["message"]["chat"]["title"] for update in updates(telegram)] == ["Friends"]
    assert len(telegram.call(other, "getUpdates", {}).result) == 1
    telegram.kick(other, group)
    telegram.write(TOKEN, 7, "again", chat=group.id)
    assert len(updates(telegram)) == 2
    assert len(telegram.call(other, "getUpdates", {"offset": -1}).result) == 1  # only that it was kicked


def test_a_channel_post_and_its_edit(telegram: Telegram):
    channel = telegram.chat("channel", "News", username="news", bots=[TOKEN])
    post = telegram.write(TOKEN, 7, "old", chat="@news")
    telegram.edit(TOKEN, channel, post["message_id"], "new")
    kinds = [next(key for key in update if key != "update_id") for update in updates(telegram)]
    assert kinds == ["channel_post", "edited_channel_post"]


def test_a_persons_file_can_be_downloaded(telegram: Telegram):
    file = UploadedFile(filename="cat.jpg", content=b"meow", content_type="image/jpeg")
    telegram.upload(TOKEN, 7, "photo", file, caption="my cat")
    (update,) = updates(telegram)
    file_id = update["message"]["photo"][0]["file_id"]
    path = telegram.call(TOKEN, "getFile", {"file_id": file_id}).result["file_path"]
    assert telegram.download(TOKEN, path).body == b"meow"


def test_an_inline_query_wants_an_answer_soon(telegram: Telegram, clock: Clock):
    query_id = telegram.ask(TOKEN, 7, "inline")
    assert updates(telegram)[0]["inline_query"]["id"] == query_id
    clock.pass_s(20)
    assert telegram.call(TOKEN, "answerInlineQuery", {"inline_query_id": query_id, "results": "[]"}).ok
    clock.pass_s(1)
    assert telegram.call(TOKEN, "answerInlineQuery", {"inline_query_id": query_id, "results": "[]"}).status == 400


def test_forgetting_starts_again_with_nobody(telegram: Telegram):
    telegram.write(TOKEN, 7, "x")
    telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "y"})
    telegram.forget()
    assert (telegram.sent.total, telegram.bots, telegram.counters.requests) == (0, {}, {})
    assert updates(telegram) == []


def test_writing_to_a_blocked_bot_unblocks_it_first(telegram: Telegram):
    telegram.block(TOKEN, 7)
    telegram.write(TOKEN, 7, "I am back")
    kinds = [next(key for key in update if key != "update_id") for update in updates(telegram)]
    assert kinds == ["my_chat_member", "my_chat_member", "message"]
    assert telegram.call(TOKEN, "sendMessage", {"chat_id": 7, "text": "welcome"}).ok
