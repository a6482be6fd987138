"""Texts as a chat sees them: markup, what is found in plain text, offsets in UTF-16, quotes, link previews, buttons."""

import random

import pytest

from peik.testing import Answer, Options, Telegram
from peik.testing.answer import Refusal
from peik.testing.entities import checked_link, formatted
from tests.sim.conftest import TOKEN, Clock


@pytest.fixture
def telegram(clock: Clock) -> Telegram:
    calm = Options()
    calm.limits.on = False
    return Telegram(now=clock, chance=random.Random(7), options=calm)


def call(telegram: Telegram, method: str, **params: object) -> Answer:
    answer = telegram.call(TOKEN, method, params)
    assert isinstance(answer, Answer)
    return answer


def told(text: str, mode: str = "") -> list[tuple[object, ...]]:
    shown, entities = formatted(text, mode, None)
    units = shown.encode("utf-16-le")
    return [
        (one["type"], units[2 * int(one["offset"]) : 2 * (int(one["offset"]) + int(one["length"]))].decode("utf-16-le"))
        for one in entities
    ]


@pytest.mark.parametrize(
    ("mode", "text", "entities"),
    [
        ("HTML", "<b>bold <i>both</i></b>", [("bold", "bold both"), ("italic", "both")]),
        ("HTML", "😀 <u>after</u>", [("underline", "after")]),
        ("HTML", "<b>one</b><b>two</b>", [("bold", "onetwo")]),
        ("HTML", '<span class="tg-spoiler">x</span> <tg-spoiler>y</tg-spoiler>', [("spoiler", "x"), ("spoiler", "y")]),
        ("HTML", '<pre><code class="language-py">x</code></pre>', [("pre", "x")]),
        ("HTML", "<blockquote expandable>q</blockquote>", [("expandable_blockquote", "q")]),
        ("HTML", "<b></b>empty", []),
        ("HTML", '<a href="https://x.example">l</a> &amp; &copy;', [("text_link", "l")]),
        ("Markdown", "*b* _i_ `c` [l](x.example) a\\_b", [("bold", "b"), ("italic", "i"), ("code", "c"), ("text_link", "l")]),
        ("Markdown", "```py\nx```", [("pre", "x")]),
        ("MarkdownV2", "*b _i_* __u__ ~s~ ||p|| `c`",
         [("bold", "b i"), ("italic", "i"), ("underline", "u"), ("strikethrough", "s"), ("spoiler", "p"), ("code", "c")]),
        ("MarkdownV2", ">one\n>two\nafter", [("blockquote", "one\ntwo\n")]),
        ("MarkdownV2", "**>one\n>two||", [("expandable_blockquote", "one\ntwo")]),
        ("MarkdownV2", ">one\n>two||", [("expandable_blockquote", "one\ntwo")]),
        ("MarkdownV2", "![👍](tg://emoji?id=5368324170671202286)", [("custom_emoji", "👍")]),
        ("MarkdownV2", "![now](tg://time?unix=1647531900)", [("date_time", "now")]),
        ("MarkdownV2", "[a\\]b](https://x.example/\\))", [("text_link", "a]b")]),
    ],
)  # fmt: skip
def test_markup_becomes_entities(mode: str, text: str, entities: list[tuple[str, str]]):
    assert told(text, mode) == entities


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("hi @somebody and /start@some_bot", [("mention", "@somebody"), ("bot_command", "/start@some_bot")]),
        ("#tea #123 $USD $usd", [("hashtag", "#tea"), ("cashtag", "$USD")]),
        ("see https://x.example/a(b)). ok", [("url", "https://x.example/a(b)")]),
        ("x.com, a@b.org", [("url", "x.com"), ("email", "a@b.org")]),
        ("1.5 and/or 3/4 a.b", []),
        ("call +12125550123", [("phone_number", "+12125550123")]),
        ("😀 @somebody", [("mention", "@somebody")]),
    ],
)
def test_links_and_mentions_are_found_in_plain_text(text: str, entities: list[tuple[str, str]]):
    assert told(text) == entities


def test_nothing_is_found_within_code():
    assert told("<code>@somebody</code> @other", "HTML") == [("code", "@somebody"), ("mention", "@other")]


@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        ("HTML", "<b", "Unclosed start tag at byte offset 0"),
        ("HTML", "<span>x</span>", 'Tag "span" must have class "tg-spoiler" at byte offset 0'),
        ("HTML", "<b>x</b", "Unclosed end tag at byte offset 4"),
        ("HTML", '<a ="x">x</a>', 'Empty attribute name in the tag "a" at byte offset 0'),
        ("HTML", '<tg-emoji emoji-id="x">x</tg-emoji>', "Invalid custom emoji identifier specified"),
        ("MarkdownV2", "é__open", "Can't find end of Underline entity at byte offset 2"),
        ("MarkdownV2", "```py\nx", "Can't find end of PreCode entity at byte offset 0"),
        ("MarkdownV2", "[l](x.example", "Can't find end of a URL at byte offset 4"),
        ("MarkdownV2", "![x](y.example)", "Invalid tg://emoji or tg://time URL specified"),
        ("MarkdownV2", "a|b", "Character '|' is reserved and must be escaped with the preceding '\\'"),
        ("MarkdownV2", "a>b", "Character '>' is reserved and must be escaped with the preceding '\\'"),
    ],
)
def test_broken_markup_is_refused_in_telegrams_words(mode: str, text: str, why: str):
    with pytest.raises(Refusal) as refused:
        formatted(text, mode, None)
    assert refused.value.description == f"Bad Request: can't parse entities: {why}"


def test_given_entities_win_and_are_checked(telegram: Telegram):
    bold = {"type": "bold", "offset": 2, "length": 4}
    shown = call(telegram, "sendMessage", chat_id=7, text="😀bold", entities=[bold], parse_mode="HTML").result
    assert shown["entities"] == [bold]
    beyond = call(telegram, "sendMessage", chat_id=7, text="x", entities=[bold])
    assert beyond.description == "Bad Request: ENTITY_BOUNDS_INVALID"
    wrong = call(telegram, "sendMessage", chat_id=7, text="x", entities=[{"type": "loud", "offset": 0, "length": 1}])
    assert wrong.description == "Bad Request: can't parse entities: unsupported type specified"


def test_text_is_trimmed_and_its_entities_with_it():
    text, entities = formatted("  \n <b>tea </b> ", "HTML", None)
    assert (text, entities) == ("tea", [{"offset": 0, "length": 3, "type": "bold"}])


def test_a_person_is_mentioned_if_the_bot_knows_them(telegram: Telegram):
    text = '<a href="tg://user?id=7">one</a> <a href="tg://user?id=99">none</a>'
    telegram.user(7, "Ann")
    (found,) = call(telegram, "sendMessage", chat_id=7, text=text, parse_mode="HTML").result["entities"]
    assert (found["type"], found["user"]["first_name"]) == ("text_mention", "Ann")


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("x.example", "http://x.example/"),
        ("https://X.example/a?b#c", "https://x.example/a?b#c"),
        ("tg://resolve?domain=x", "tg://resolve?domain=x"),
        ("nowhere", ""),
        ("ftp://x.example", ""),
        ("https://a b.example", ""),
    ],
)
def test_a_link_is_written_as_telegram_writes_it(url: str, checked: str):
    assert checked_link(url) == checked


def test_captions_albums_edits_polls_and_copies_have_entities_too(telegram: Telegram):
    photo = {"photo": "https://p.example/1", "caption": "<b>tea</b>", "parse_mode": "HTML"}
    bold = [{"offset": 0, "length": 3, "type": "bold"}]
    assert call(telegram, "sendPhoto", chat_id=7, **photo).result["caption_entities"] == bold
    item = {"type": "photo", "media": "https://p.example/1", "caption": "*tea*", "parse_mode": "Markdown"}
    album = call(telegram, "sendMediaGroup", chat_id=7, media=[item, item]).result
    assert [one["caption_entities"] for one in album] == [bold, bold]
    edited = call(telegram, "editMessageCaption", chat_id=7, message_id=1, caption="_tea_", parse_mode="MarkdownV2")
    assert edited.result["caption_entities"][0]["type"] == "italic"
    call(telegram, "copyMessage", chat_id=8, from_chat_id=7, message_id=2, caption="<u>x</u>", parse_mode="HTML")
    assert telegram.message(TOKEN, 8, 1)["caption_entities"][0]["type"] == "underline"
    poll = {"question": "<b>Tea</b>?", "question_parse_mode": "HTML", "options": ["yes", "no"], "type": "quiz"}
    quiz = {"correct_option_id": 1, "explanation": "*why*", "explanation_parse_mode": "Markdown"}
    shown = call(telegram, "sendPoll", chat_id=7, **poll, **quiz).result["poll"]
    assert (shown["question"], shown["question_entities"]) == ("Tea?", bold)
    assert (shown["explanation"], shown["correct_option_id"]) == ("why", 1)


def test_a_reply_shows_what_it_answers_and_the_quote(telegram: Telegram):
    call(telegram, "sendMessage", chat_id=7, text="tea and more tea")
    reply = {"message_id": 1, "quote": "<b>tea</b>", "quote_parse_mode": "HTML", "quote_position": 12}
    shown = call(telegram, "sendMessage", chat_id=7, text="yes", reply_parameters=reply).result
    assert shown["reply_to_message"]["text"] == "tea and more tea"
    assert shown["quote"]["position"] == 13
    missing = call(telegram, "sendMessage", chat_id=7, text="x", reply_parameters={"message_id": 1, "quote": "milk"})
    assert missing.description == "Bad Request: QUOTE_TEXT_INVALID"
    elsewhere = {"message_id": 1, "chat_id": 7}
    outside = call(telegram, "sendMessage", chat_id=8, text="x", reply_parameters=elsewhere).result
    assert outside["external_reply"]["message_id"] == 1
    assert outside["external_reply"]["origin"]["type"] == "user"
    telegram.chat("channel", "News", username="News", bots=[TOKEN])
    call(telegram, "sendMessage", chat_id="@news", text="news")
    by_name = {"message_id": 1, "chat_id": "@News"}
    inside = call(telegram, "sendMessage", chat_id="@news", text="x", reply_parameters=by_name).result
    assert inside["reply_to_message"]["text"] == "news"


def test_a_link_has_a_preview_unless_it_is_disabled(telegram: Telegram):
    def preview(**params: object) -> object:
        answer = call(telegram, "sendMessage", chat_id=7, text="😀 https://x.example/a", **params)
        return answer.result["link_preview_options"]

    assert preview() == {"url": "https://x.example/a"}
    assert preview(link_preview_options={"show_above_text": True}) == {
        "url": "https://x.example/a",
        "show_above_text": True,
    }
    assert preview(disable_web_page_preview="true") == {"is_disabled": True}


def test_protected_messages_stay_where_they_are(telegram: Telegram):
    sent = call(telegram, "sendMessage", chat_id=7, text="x", protect_content=True).result
    assert sent["has_protected_content"] is True
    where = {"chat_id": 8, "from_chat_id": 7, "message_id": 1}
    assert call(telegram, "forwardMessage", **where).description == "Bad Request: the message can't be forwarded"
    assert call(telegram, "copyMessage", **where).description == "Bad Request: the message can't be copied"


@pytest.mark.parametrize(
    ("button", "why"),
    [
        ({"text": "x", "callback_data": ""}, "BUTTON_DATA_INVALID"),
        ({"text": "x", "url": "nowhere"}, "inline keyboard button URL 'nowhere' is invalid: wrong HTTP URL"),
        ({"text": "x", "login_url": {"url": "http://x.example"}}, "BUTTON_URL_INVALID"),
        ({"url": "x.example"}, "can't parse inline keyboard button: can't find field \"text\""),
        ("x", "can't parse inline keyboard button: InlineKeyboardButton must be an Object"),
        ({"text": "x", "copy_text": {"text": ""}}, "BUTTON_COPY_TEXT_INVALID"),
    ],
)
def test_buttons_are_checked(telegram: Telegram, button: object, why: str):
    refused = call(telegram, "sendMessage", chat_id=7, text="x", reply_markup={"inline_keyboard": [[button]]})
    assert refused.description == f"Bad Request: {why}"


def test_a_button_shows_its_link_as_telegram_writes_it(telegram: Telegram):
    keyboard = {"inline_keyboard": [[{"text": "x", "url": "x.example", "unknown": 1}], []]}
    shown = call(telegram, "sendMessage", chat_id=7, text="x", reply_markup=keyboard).result["reply_markup"]
    assert shown == {"inline_keyboard": [[{"text": "x", "url": "http://x.example/"}]]}
