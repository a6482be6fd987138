"""Definite noes, with Telegram's own words and codes (docs/telegram.md, Refusals)."""

import random
import re

import pytest

from docs.pages.imitated import ON_REQUEST
from docs.pages.imitated import said as said_by_name
from peik.core.catalogue import CATALOGUE
from peik.testing import Answer, Options, Telegram, UploadedFile
from tests.sim.conftest import TOKEN, Clock


def call(telegram: Telegram, method: str, token: str = TOKEN, **params: object) -> Answer:
    answer = telegram.call(token, method, params)
    assert isinstance(answer, Answer)
    return answer


def said(answer: Answer) -> tuple[int, str]:
    assert answer.json()["error_code"] == answer.status
    return answer.status, answer.description


LONG = "x" * 4097
BUTTON = {"text": "go"}

BAD_REQUESTS = [
    ("sendMessage", {"text": "x"}, "chat_id is empty"),
    ("sendMessage", {"chat_id": "", "text": "x"}, "chat_id is empty"),
    ("sendMessage", {"chat_id": "@nobody", "text": "x"}, "chat not found"),
    ("sendMessage", {"chat_id": "1" * 30, "text": "x"}, "chat not found"),
    ("sendMessage", {"chat_id": 7}, "message text is empty"),
    ("sendMessage", {"chat_id": 7, "text": "  \n"}, "message text is empty"),
    ("sendMessage", {"chat_id": 7, "text": LONG}, "message is too long"),
    ("sendPhoto", {"chat_id": 7}, "there is no photo in the request"),
    ("sendPhoto", {"chat_id": 7, "photo": "AgAC-unknown"}, "wrong file identifier/HTTP URL specified"),
    ("sendPhoto", {"chat_id": 7, "photo": "https://p.example/1", "caption": "x" * 1025}, "message caption is too long"),
    ("sendMessage", {"chat_id": 7, "text": "x", "reply_to_message_id": 99}, "message to be replied not found"),
    (
        "sendMessage",
        {"chat_id": 7, "text": "x", "reply_parameters": '{"message_id":99}'},
        "message to be replied not found",
    ),
    ("sendMessage", {"chat_id": 7, "text": "x", "reply_parameters": "{"}, "can't parse reply parameters JSON object"),
    ("sendMessage", {"chat_id": 7, "text": "x", "reply_markup": "{"}, "can't parse reply keyboard markup JSON object"),
    (
        "sendMessage",
        {"chat_id": 7, "text": "x", "reply_markup": {"inline_keyboard": [[BUTTON]]}},
        "can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard",
    ),
    (
        "sendMessage",
        {"chat_id": 7, "text": "x", "reply_markup": {"inline_keyboard": [[BUTTON | {"callback_data": "x" * 65}]]}},
        "BUTTON_DATA_INVALID",
    ),
    ("sendPoll", {"chat_id": 7, "options": "null"}, "expected an Array of String as options"),
    ("sendPoll", {"chat_id": 7, "question": "?"}, "can't parse options JSON object"),
    ("sendPoll", {"chat_id": 7, "options": ["a"]}, "poll question must be non-empty"),
    ("sendMediaGroup", {"chat_id": 7, "media": "[]"}, "there are no media in the request"),
    ("editMessageText", {"chat_id": 7, "message_id": 5, "text": "x"}, "message to edit not found"),
    ("deleteMessage", {"chat_id": 7, "message_id": 5}, "message to delete not found"),
    ("pinChatMessage", {"chat_id": 7, "message_id": 5}, "message to pin not found"),
    ("setMessageReaction", {"chat_id": 7, "message_id": 5}, "message to react not found"),
    ("forwardMessage", {"chat_id": 7, "from_chat_id": 8, "message_id": 5}, "message to forward not found"),
    ("copyMessage", {"chat_id": 7, "from_chat_id": 8, "message_id": 5}, "message to copy not found"),
    (
        "answerCallbackQuery",
        {"callback_query_id": "1"},
        "query is too old and response timeout expired or query ID is invalid",
    ),
]


@pytest.mark.parametrize(("method", "params", "text"), BAD_REQUESTS)
def test_a_bad_request_is_refused_in_telegrams_words(telegram: Telegram, method: str, params: dict, text: str):
    assert said(call(telegram, method, **params)) == (400, f"Bad Request: {text}")
    assert telegram.sent.total == 0


@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        ("HTML", "<b>open", 'Can\'t find end tag corresponding to start tag "b"'),
        ("HTML", "<blink>x</blink>", 'Unsupported start tag "blink" at byte offset 0'),
        ("HTML", "é</b>", "Unexpected end tag at byte offset 2"),
        ("HTML", "<b>x</i>", 'Unmatched end tag at byte offset 4, expected "</b>", found "</i>"'),
        ("HTML", "1 < 2", 'Unsupported start tag "" at byte offset 2'),
        ("Markdown", "a *bold", "Can't find end of the entity starting at byte offset 2"),
        ("MarkdownV2", "Hello.", "Character '.' is reserved and must be escaped with the preceding '\\'"),
        ("MarkdownV2", "*open", "Can't find end of Bold entity at byte offset 0"),
    ],
)
def test_broken_markup_cannot_be_parsed(telegram: Telegram, mode: str, text: str, why: str):
    refused = call(telegram, "sendMessage", chat_id=7, text=text, parse_mode=mode)
    assert said(refused) == (400, f"Bad Request: can't parse entities: {why}")


@pytest.mark.parametrize(
    ("mode", "text", "plain"),
    [
        ("HTML", '<b>bold <i>both</i></b> &lt;3 <a href="https://x.example">link</a>', "bold both <3 link"),
        ("Markdown", "*bold* _it_ `code` [link](https://x.example) a\\_b", "bold it code link a_b"),
        (
            "MarkdownV2",
            "*bold _both_* ||secret|| `a.b` [link](https://x.example/a.b) 1\\.5\n>quote",
            "bold both secret a.b link 1.5\nquote",
        ),
        ("html", "plain", "plain"),
    ],
)
def test_sound_markup_shows_as_plain_text(telegram: Telegram, mode: str, text: str, plain: str):
    assert call(telegram, "sendMessage", chat_id=7, text=text, parse_mode=mode).result["text"] == plain


def _alternatives() -> list[tuple[int, str]]:
    """Each text of Peik's catalogue by itself."""
    rows = ((row.code, one) for row in CATALOGUE for one in re.split(r"\|(?![^(]*\))", row.words))
    return list(dict.fromkeys((code, words) for code, words in rows if words and 400 <= code < 500))


ALBUM = 'failed to send message #1 with the error message "WEBPAGE_CURL_FAILED"'
# Gateways have words for 502 as well; Telegram's core says them under 400.
BY_ITSELF = [*(said_by_name() - {"Bad Gateway"}), *(text for _, _, text in BAD_REQUESTS), ALBUM]


@pytest.mark.parametrize(("code", "words"), _alternatives())
def test_every_text_of_the_catalogue_is_said_by_itself_or_listed_as_said_on_request(code: int, words: str):
    asked_for = any(status == code and re.search(words, text.lower()) for status, text in ON_REQUEST)
    assert asked_for or any(re.search(words, text.lower()) for text in BY_ITSELF)


@pytest.mark.parametrize(("status", "words"), ON_REQUEST)
def test_what_is_beyond_it_is_said_on_request(telegram: Telegram, status: int, words: str):
    assert not [text for text in BY_ITSELF if words.removeprefix("Bad Request: ") == text and status < 500]
    telegram.faults.add("error", status=status, words=words, count=1)
    server_says = telegram.exchange(TOKEN, "sendMessage", {"chat_id": 7, "text": "x"}).answer
    assert server_says is not None
    assert said(server_says) == (status, words)


PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR%b%b" + bytes(16)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"%PDF-1.7", "IMAGE_PROCESS_FAILED"),
        (PICTURE % ((9000).to_bytes(4, "big"), (1001).to_bytes(4, "big")), "PHOTO_INVALID_DIMENSIONS"),
        (PICTURE % ((2100).to_bytes(4, "big"), (100).to_bytes(4, "big")), "PHOTO_INVALID_DIMENSIONS"),
    ],
)
def test_what_cannot_be_a_photo_is_refused(telegram: Telegram, content: bytes, text: str):
    upload = UploadedFile(filename="tea.png", content=content)
    refused = telegram.call(TOKEN, "sendPhoto", {"chat_id": 7}, {"photo": upload})
    assert isinstance(refused, Answer)
    assert said(refused) == (400, f"Bad Request: {text}")
    sent = telegram.call(TOKEN, "sendDocument", {"chat_id": 7}, {"document": upload})
    assert isinstance(sent, Answer)
    assert sent.ok


def test_a_page_is_no_picture_and_an_album_says_which_of_it_was_none(telegram: Telegram):
    page = UploadedFile(filename="a", content=b"<html>", content_type="text/html; charset=utf-8")
    telegram.web = lambda url: page if url.endswith("page") else None
    refused = call(telegram, "sendPhoto", chat_id=7, photo="https://x.example/page")
    assert said(refused) == (400, "Bad Request: wrong type of the web page content")
    album = [{"type": "photo", "media": f"https://x.example/{name}"} for name in ("tea", "page")]
    refused = call(telegram, "sendMediaGroup", chat_id=7, media=album)
    assert said(refused) == (400, 'Bad Request: failed to send message #2 with the error message "WEBPAGE_MEDIA_EMPTY"')
    telegram.fetched = {"https://x.example/tea": None}
    refused = call(telegram, "sendMediaGroup", chat_id=7, media=album[:1] * 2)
    assert said(refused) == (400, 'Bad Request: failed to send message #1 with the error message "WEBPAGE_CURL_FAILED"')


@pytest.mark.parametrize(
    ("key", "chat", "text"),
    [
        (7, 7, "can't parse keyboard button: KeyboardButton must be a String or an Object"),
        ({"request_contact": True}, 7, "can't parse keyboard button: can't find field \"text\""),
        ("", 7, "keyboard button text must be non-empty"),
        ({"text": "x", "request_contact": True}, -700, "phone number can be requested in private chats only"),
        ({"text": "x", "request_users": {"request_id": 1}}, -700, "users can be requested in private chats only"),
        ({"text": "x", "web_app": {"url": "https://x"}}, -700, "Web App buttons can be used in private chats only"),
    ],
)
def test_keys_are_checked_as_buttons_are(telegram: Telegram, key: object, chat: int, text: str):
    keyboard = {"keyboard": [["fine", {"text": "too", "request_contact": chat > 0}], [key]]}
    refused = call(telegram, "sendMessage", chat_id=chat, text="x", reply_markup=keyboard)
    assert said(refused) == (400, f"Bad Request: {text}")
    assert call(telegram, "sendMessage", chat_id=chat, text="x", reply_markup={"keyboard": keyboard["keyboard"][:1]}).ok


def test_length_is_counted_without_markup(telegram: Telegram):
    assert call(telegram, "sendMessage", chat_id=7, text=f"<b>{'x' * 4096}</b>", parse_mode="HTML").ok


def test_who_does_not_want_the_bot_says_so(telegram: Telegram):
    telegram.block(TOKEN, 7)
    assert said(call(telegram, "sendMessage", chat_id=7, text="x")) == (403, "Forbidden: bot was blocked by the user")
    telegram.unblock(TOKEN, 7)
    assert call(telegram, "sendMessage", chat_id=7, text="x").ok

    telegram.user(8, is_deactivated=True)
    assert said(call(telegram, "sendMessage", chat_id=8, text="x")) == (403, "Forbidden: user is deactivated")

    telegram.user(9, is_reachable=False)
    text = "Forbidden: bot can't initiate conversation with a user"
    assert said(call(telegram, "sendMessage", chat_id=9, text="x")) == (403, text)
    telegram.write(TOKEN, 9, "/start")
    assert call(telegram, "sendMessage", chat_id=9, text="x").ok

    telegram.bot("43:other")
    text = "Forbidden: the bot can't send messages to the bot"
    assert said(call(telegram, "sendMessage", chat_id=43, text="x")) == (403, text)


@pytest.mark.parametrize("kind", ["group", "supergroup", "channel"])
def test_a_bot_that_is_outside_cannot_write(telegram: Telegram, kind: str):
    chat = telegram.chat(kind, bots=[TOKEN])
    assert call(telegram, "sendMessage", chat_id=chat.id, text="x").ok
    telegram.kick(TOKEN, chat)
    text = f"Forbidden: bot was kicked from the {kind} chat"
    assert said(call(telegram, "sendMessage", chat_id=chat.id, text="x")) == (403, text)
    telegram.kick(TOKEN, chat, status="left")
    text = f"Forbidden: bot is not a member of the {kind} chat"
    assert said(call(telegram, "sendMessage", chat_id=chat.id, text="x")) == (403, text)


def test_rights_are_needed(telegram: Telegram):
    channel = telegram.chat("channel", username="news", bots=[TOKEN])
    telegram.kick(TOKEN, channel, status="member")
    text = "Bad Request: need administrator rights in the channel chat"
    assert said(call(telegram, "sendMessage", chat_id="@News", text="x")) == (400, text)
    group = telegram.chat("supergroup", bots=[TOKEN])
    group.members[700042].can_send = False
    text = "Bad Request: not enough rights to send text messages to the chat"
    assert said(call(telegram, "sendMessage", chat_id=group.id, text="x")) == (400, text)


def test_an_upgraded_group_tells_its_new_id(telegram: Telegram):
    group = telegram.chat("group", bots=[TOKEN])
    fresh = telegram.migrate(group)
    refused = call(telegram, "sendMessage", chat_id=group.id, text="x")
    assert said(refused) == (400, "Bad Request: group chat was upgraded to a supergroup chat")
    assert refused.json()["parameters"] == {"migrate_to_chat_id": fresh}
    assert fresh < -(2**32)
    assert call(telegram, "sendMessage", chat_id=fresh, text="x").ok
    told = [update["message"] for update in call(telegram, "getUpdates").result]
    assert [message.get("migrate_to_chat_id") or message["migrate_from_chat_id"] for message in told] == [
        fresh,
        group.id,
    ]


def test_a_strict_telegram_knows_only_its_own_bots_and_chats(clock: Clock):
    strict = Options(accept_any_token=False, accept_any_chat=False)
    telegram = Telegram(now=clock, chance=random.Random(1), options=strict)
    assert said(call(telegram, "getMe")) == (401, "Unauthorized")
    telegram.bot(TOKEN)
    assert call(telegram, "getMe").result["id"] == 700042
    assert said(call(telegram, "sendMessage", chat_id=7, text="x")) == (400, "Bad Request: chat not found")
    telegram.user(7)
    assert call(telegram, "sendMessage", chat_id=7, text="x").ok


def test_a_revoked_token_is_unauthorized_and_the_new_one_goes_on(telegram: Telegram):
    call(telegram, "sendMessage", chat_id=7, text="one")
    fresh = telegram.revoke(TOKEN)
    assert said(call(telegram, "getMe")) == (401, "Unauthorized")
    assert call(telegram, "sendMessage", token=fresh, chat_id=7, text="two").result["message_id"] == 2


def test_a_malformed_token_is_not_found_in_the_cloud_and_named_by_a_local_server(telegram: Telegram):
    assert said(call(telegram, "getMe", token="nonsense")) == (404, "Not Found")
    telegram.options.change({"mode": "local"})
    assert said(call(telegram, "getMe", token="nonsense")) == (401, "Unauthorized: invalid token specified")


def test_an_unknown_method_is_not_found(telegram: Telegram):
    assert said(call(telegram, "doSomething")) == (404, "Not Found: method not found")
    assert said(call(telegram, "BAD METHOD")) == (404, "Not Found")


def test_an_answer_to_a_press_may_come_too_late(telegram: Telegram, clock: Clock):
    message_id = call(telegram, "sendMessage", chat_id=7, text="x").result["message_id"]
    query_id = telegram.press(TOKEN, 7, message_id, "yes")
    clock.pass_s(29)
    assert call(telegram, "answerCallbackQuery", callback_query_id=query_id).result is True
    clock.pass_s(2)
    assert call(telegram, "answerCallbackQuery", callback_query_id=query_id).status == 400


def test_logging_out_wipes_the_queue_and_bars_the_bot_for_ten_minutes(telegram: Telegram, clock: Clock):
    telegram.write(TOKEN, 7, "lost")
    assert call(telegram, "logOut").result is True
    assert said(call(telegram, "getMe")) == (400, "Logged out")
    clock.pass_s(600)
    assert call(telegram, "getUpdates").result == []


def test_closing_is_refused_in_the_first_ten_minutes(telegram: Telegram, clock: Clock):
    call(telegram, "getMe")
    clock.pass_s(100)
    refused = call(telegram, "close")
    assert refused.status == 429
    assert 500 <= refused.json()["parameters"]["retry_after"] <= 501
    clock.pass_s(501)
    assert call(telegram, "close").result is True
