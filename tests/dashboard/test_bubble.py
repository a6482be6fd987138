"""A message as its reader sees it: formatting, files and buttons; what cannot be seen is made visible, and does nothing."""

from pathlib import Path

import msgspec
import pytest

from peik.core.documents import Contact
from peik.notifications.wiring import NAME_FRESH_S, BotNames
from peik.web.dashboard.bubble import bubble_of
from tests.dashboard.test_letters_pages import accept
from tests.dashboard.visiting import BOT, House, visit


def text(**params: object) -> str:
    return str(bubble_of(msgspec.json.encode(params)).text)


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({"text": "a < b"}, "a &lt; b"),
        ({"text": "a <b>c</b>"}, "a &lt;b&gt;c&lt;/b&gt;"),
        ({"text": "<b>a</b> <script>x</script>", "parse_mode": "HTML"}, "<b>a</b> x"),
        ({"text": "<a href='javascript:x'>a</a><b>", "parse_mode": "HTML"}, "<u>a</u><b></b>"),
        ({"text": "*a* _b_ \\*c", "parse_mode": "MarkdownV2"}, "<b>a</b> <i>b</i> *c"),
        ({"text": "[a](https://x)", "parse_mode": "MarkdownV2"}, "<u>a</u>"),
        ({"text": "😀ab", "entities": [{"type": "bold", "offset": 2, "length": 1}]}, "😀<b>a</b>b"),
        (
            {
                "text": "abc",
                "entities": [{"type": "bold", "offset": 0, "length": 2}, {"type": "italic", "offset": 1, "length": 2}],
            },
            "<b>a</b><i><b>b</b></i><i>c</i>",
        ),
        ({"text": "a\u202eb"}, 'a<span class="invisible" title="U+202E">RLO</span>b'),
        ({"text": "a\u0007b"}, 'a<span class="invisible" title="U+0007">U+0007</span>b'),
        ({"text": "a\u200cb"}, 'a<span class="joiner" title="ZWNJ">\u200c</span>b'),
        ({"caption": "c", "photo": "p"}, "c"),
    ],
)
def test_the_text_has_its_formatting_and_nothing_hidden(params: dict[str, object], shown: str) -> None:
    assert text(**params) == shown


def test_files_and_buttons_are_named() -> None:
    markup = {"inline_keyboard": [[{"text": "Yes"}, {"text": "No"}], "broken"]}
    one = bubble_of(msgspec.json.encode({"document": "https://x/a.pdf", "caption": "c", "reply_markup": markup}))
    assert (one.files, one.buttons) == (("document: https://x/a.pdf",), (("Yes", "No"),))
    update = {"update_id": 5, "message": {"document": {"file_name": "bill.pdf", "file_id": "f"}, "chat": {"id": 1}}}
    assert bubble_of(msgspec.json.encode(update)).files == ("document: bill.pdf",)
    assert bubble_of(b"no json").is_empty


def test_names_stand_where_numbers_were(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        home.sim.telegram.user(5)
        known = Contact(bot_id=BOT, chat_id=5, type="private", name="<Ali>", first_seen_ms=1, last_seen_ms=1)
        await home.peik.store.contacts.save_contacts(BOT, [known], place=1)
        peik = home.peik
        names = BotNames(peik.outbox.service, peik.outbox.courier.routes, peik.clock, is_meant=lambda: True)
        await names.look()
        (bot,) = peik.outbox.service.bots()
        assert bot.username
        letter_id = await accept(home, chat=5, text="hello")
        async with home.visitor() as browser:
            for path in ("/admin/letters", f"/admin/letters/{letter_id}", "/admin/lanes", "/admin/bots"):
                page = await browser.get(path)
                assert f"@{bot.username}" in page.text, path
            page = await browser.get("/admin/letters")
            assert "<Ali>" in page.text
            page = await browser.get(f"/admin/letters/{letter_id}")
            assert '<div class="bubble-text" dir="auto">hello</div>' in page.body
            assert "<Ali>" in page.text

    visit(tmp_path, story)


def test_a_bot_is_asked_for_its_name_once_a_day_and_only_by_one_node(tmp_path: Path) -> None:
    async def story(home: House) -> None:
        peik = home.peik
        asked = {"is_meant": False}
        names = BotNames(
            peik.outbox.service, peik.outbox.courier.routes, peik.clock, is_meant=lambda: asked["is_meant"]
        )
        await names.look()
        assert peik.outbox.service.bot(BOT).me is None
        asked["is_meant"] = True
        await names.look()
        first = peik.outbox.service.bot(BOT).me
        assert first is not None
        home.sim.telegram.bot(BOT).user.username = "renamed_bot"
        await names.look()
        assert peik.outbox.service.bot(BOT).me == first
        for token in names._due:
            names._due[token] -= NAME_FRESH_S
        await names.look()
        assert peik.outbox.service.bot(BOT).username == "renamed_bot"

    visit(tmp_path, story)
