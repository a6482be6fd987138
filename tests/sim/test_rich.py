"""Rich messages: blocks, HTML and Markdown become the same blocks, within Telegram's limits."""

import random
from typing import Any

import aiogram.types
import pytest

from peik.testing import Answer, Options, Telegram, UploadedFile
from tests.sim.conftest import TOKEN, Clock

ANN = 7


@pytest.fixture
def telegram(clock: Clock) -> Telegram:
    calm = Options(anti_busy_loop=False)
    calm.limits.on = False
    telegram = Telegram(now=clock, chance=random.Random(7), options=calm)
    telegram.user(ANN, "Ann")
    return telegram


def send(
    telegram: Telegram, method: str = "sendRichMessage", files: dict[str, UploadedFile] | None = None, **rich: Any
) -> Answer:
    answer = telegram.call(TOKEN, method, {"chat_id": ANN, "rich_message": rich}, files or {})
    assert isinstance(answer, Answer)
    return answer


def blocks(telegram: Telegram, files: dict[str, UploadedFile] | None = None, **rich: Any) -> list[dict]:
    answer = send(telegram, files=files, **rich)
    assert answer.ok, answer.description
    aiogram.types.Message.model_validate(answer.result)  # as a strict library reads it
    return answer.result["rich_message"]["blocks"]


def said(telegram: Telegram, **rich: Any) -> str:
    return send(telegram, **rich).description.removeprefix("Bad Request: ")


BOLD = {"type": "bold", "text": "hot"}


@pytest.mark.parametrize(
    ("html", "markdown", "expected"),
    [
        ("<h2>Tea</h2>", "## Tea", {"type": "heading", "text": "Tea", "size": 2}),
        ("<p>It is <b>hot</b>!</p>", "It is **hot**!", {"type": "paragraph", "text": ["It is ", BOLD, "!"]}),
        ("It is <b>hot</b>!", "It is **hot**!", {"type": "paragraph", "text": ["It is ", BOLD, "!"]}),
        (
            '<a href="https://x.example">Tea</a>',
            "[Tea](https://x.example)",
            {"type": "paragraph", "text": {"type": "url", "text": "Tea", "url": "https://x.example"}},
        ),
        (
            '<pre><code class="language-python">print(1)\nprint(2)</code></pre>',
            "```python\nprint(1)\nprint(2)\n```",
            {"type": "pre", "text": "print(1)\nprint(2)", "language": "python"},
        ),
        ("<hr/>", "---", {"type": "divider"}),
        (
            "<tg-math-block>a+b</tg-math-block>",
            "$$\na+b\n$$",
            {"type": "mathematical_expression", "expression": "a+b"},
        ),
        (
            "<blockquote><p>Drink.</p></blockquote>",
            "> Drink.",
            {"type": "blockquote", "blocks": [{"type": "paragraph", "text": "Drink."}]},
        ),
        (
            "<ul><li>water</li><li>leaves</li></ul>",
            "- water\n- leaves",
            {
                "type": "list",
                "items": [
                    {"label": "•", "blocks": [{"type": "paragraph", "text": word}]} for word in ("water", "leaves")
                ],
            },
        ),
        (
            '<ul><li><input type="checkbox" checked>water</li></ul>',
            "- [x] water",
            {
                "type": "list",
                "items": [
                    {
                        "label": "•",
                        "has_checkbox": True,
                        "is_checked": True,
                        "blocks": [{"type": "paragraph", "text": "water"}],
                    }
                ],
            },
        ),
        (
            "<table><tr><th>What</th></tr><tr><td>tea</td></tr></table>",
            "| What |\n|------|\n| tea |",
            {
                "type": "table",
                "cells": [
                    [{"align": "left", "valign": "top", "is_header": True, "text": "What"}],
                    [{"align": "left", "valign": "top", "text": "tea"}],
                ],
            },
        ),
    ],
)
def test_html_and_markdown_become_the_same_blocks(telegram: Telegram, html: str, markdown: str, expected: dict):
    assert blocks(telegram, html=html) == [expected]
    assert blocks(telegram, markdown=markdown) == [expected]
    given = {name: held for name, held in expected.items() if name != "items"}
    if expected["type"] != "list":  # whose labels Telegram makes
        assert blocks(telegram, blocks=[given]) == [expected]


def test_passages_of_markdown_are_parted_as_a_reader_would(telegram: Telegram):
    text = "# Tea\nHow to\nmake it.\n\n1. Boil *water*\n2. Wait\n> `hot`\n\n$$x$$\nDone ~~soon~~"
    shown = blocks(telegram, markdown=text)
    kinds = ["heading", "paragraph", "list", "blockquote", "mathematical_expression", "paragraph"]
    assert [one["type"] for one in shown] == kinds
    assert [item["label"] for item in shown[2]["items"]] == ["1.", "2."]
    assert telegram.sent.texts(ANN) == ["Tea\nHow to\nmake it.\n1. Boil water\n2. Wait\nhot\nxDone soon"]


def test_media_are_files_of_their_own_or_named_by_ids(telegram: Telegram):
    files = {"leaf": UploadedFile(filename="leaf.jpg", content=b"leaf")}
    leaf = {"type": "photo", "media": "attach://leaf", "has_spoiler": True}
    by_name = {"html": '<p>See</p><img src="one">', "media": [{"id": "one", "media": leaf}]}
    for rich in (by_name, {"blocks": [{"type": "photo", "photo": leaf, "caption": {"text": "A leaf"}}]}):
        photo = blocks(telegram, files, **rich)[-1]
        assert (photo["type"], photo["has_spoiler"]) == ("photo", True)
        assert telegram.call(TOKEN, "getFile", {"file_id": photo["photo"][-1]["file_id"]}).ok  # type: ignore[union-attr]
    assert photo["caption"] == {"text": "A leaf"}


def test_details_maps_and_buttons_are_shown(telegram: Telegram):
    button = {"text": ["Buy ", BOLD], "callback_data": "buy"}
    shown = blocks(
        telegram,
        blocks=[
            {"type": "details", "summary": "More", "is_open": True, "blocks": [{"type": "divider"}]},
            {"type": "map", "location": {"latitude": 1, "longitude": 2}},
            {"type": "buttons", "buttons": [button], "align": "center"},
        ],
    )
    assert shown[0] == {"type": "details", "summary": "More", "is_open": True, "blocks": [{"type": "divider"}]}
    assert shown[1]["zoom"] == 13
    assert shown[2] == {"type": "buttons", "buttons": [button], "align": "center"}


@pytest.mark.parametrize(
    ("rich", "text"),
    [
        ({}, "rich message must be non-empty"),
        (
            {"html": "x", "markdown": "x"},
            "can't parse InputRichMessage: exactly one of html, markdown and blocks must be used",
        ),
        ({"html": "<b>x"}, "can't parse rich message: can't find end tag corresponding to start tag \"b\""),
        ({"html": "<b>x</i>"}, 'can\'t parse rich message: unexpected end tag "i"'),
        ({"blocks": [{"type": "poem"}]}, "can't parse InputRichBlock: unsupported type poem"),
        ({"blocks": [{"type": "thinking", "text": "x"}]}, "can't parse InputRichBlock: unsupported type thinking"),
        ({"blocks": [{"type": "paragraph", "text": 5}]}, "can't parse RichText: expected a String or an Object"),
        (
            {"blocks": [{"type": "paragraph", "text": {"type": "url", "text": "x"}}]},
            "can't parse RichText: can't find field \"url\"",
        ),
        ({"blocks": [{"type": "photo"}]}, "can't parse InputRichBlock: there is no photo"),
        ({"markdown": "x" * 32_769}, "message is too long"),
        ({"blocks": [{"type": "divider"}] * 501}, "RICH_MESSAGE_TOO_MANY_BLOCKS"),
        ({"html": "<blockquote>" * 17 + "x" + "</blockquote>" * 17}, "RICH_MESSAGE_TOO_DEEP"),
        ({"markdown": "|" + "a|" * 21 + "\n|" + "-|" * 21}, "RICH_MESSAGE_TOO_MANY_COLUMNS"),
        ({"html": '<img src="https://x.example/1">' * 51}, "RICH_MESSAGE_TOO_MANY_MEDIA"),
        (
            {"blocks": [{"type": "buttons", "buttons": [{"text": "x", "callback_data": "x" * 65}]}]},
            "BUTTON_DATA_INVALID",
        ),
    ],
)
def test_what_telegram_does_not_take_is_refused(telegram: Telegram, rich: dict, text: str):
    assert said(telegram, **rich) == text
    assert telegram.sent.total == 0


def test_a_rich_message_is_edited_to_plain_text_and_back(telegram: Telegram):
    sent = send(telegram, markdown="# Tea").result["message_id"]
    named = {"chat_id": ANN, "message_id": sent}
    plain = telegram.call(TOKEN, "editMessageText", {**named, "text": "Tea"})
    assert isinstance(plain, Answer)
    assert (plain.result["text"], "rich_message" in plain.result) == ("Tea", False)
    rich = telegram.call(TOKEN, "editMessageText", {**named, "rich_message": {"markdown": "## Tea"}})
    assert isinstance(rich, Answer)
    assert (rich.result["rich_message"]["blocks"][0]["size"], "text" in rich.result) == (2, False)
    assert telegram.applied.texts(ANN) == ["Tea", "Tea"]
    again = telegram.call(TOKEN, "editMessageText", {**named, "rich_message": {"html": "<h2>Tea</h2>"}})
    assert isinstance(again, Answer)
    assert "message is not modified" in again.description


def test_a_rich_draft_may_say_that_the_bot_thinks(telegram: Telegram):
    draft = {"chat_id": ANN, "draft_id": 3, "rich_message": {"html": "<tg-thinking>Boiling</tg-thinking>"}}
    answer = telegram.call(TOKEN, "sendRichMessageDraft", draft)
    assert isinstance(answer, Answer)
    assert answer.ok
    assert telegram.drafts(TOKEN, ANN)[3]["rich_message"]["blocks"] == [{"type": "thinking", "text": "Boiling"}]


def test_a_chosen_result_may_be_rich(telegram: Telegram):
    result = {
        "type": "article",
        "id": "1",
        "title": "Tea",
        "input_message_content": {"rich_message": {"markdown": "# Tea"}},
    }
    query_id = telegram.ask(TOKEN, ANN, "inline")
    assert telegram.call(TOKEN, "answerInlineQuery", {"inline_query_id": query_id, "results": [result]}).ok  # type: ignore[union-attr]
    telegram.choose(TOKEN, ANN, "1", chat=ANN)
    (update,) = [one for one in telegram.call(TOKEN, "getUpdates", {}).result if "message" in one]  # type: ignore[union-attr]
    assert update["message"]["rich_message"]["blocks"] == [{"type": "heading", "size": 1, "text": "Tea"}]
