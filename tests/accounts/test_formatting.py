"""Markup of the Bot API, read as its server reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.accounts.markup import BadMarkup, Entity, parse, units


def E(kind: str, offset: int, length: int, **more: object) -> Entity:  # noqa: N802  short, for a table
    return Entity(type=kind, offset=offset, length=length, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "text", "entities"),
    [
        ("plain &lt;b&gt; &amp; &quot;", 'plain <b> & "', []),
        ("<b>a<i>b</i></b>", "ab", [E("bold", 0, 2), E("italic", 1, 1)]),
        ("😀<u>x</u>", "😀x", [E("underline", 2, 1)]),
        ('<a href="https://t.me/x?a=1&amp;b=2">t</a>', "t", [E("text_link", 0, 1, url="https://t.me/x?a=1&b=2")]),
        ('<a href="tg://user?id=42">t</a>', "t", [E("text_mention", 0, 1, user_id=42)]),
        ('<pre><code class="language-py">x</code></pre>', "x", [E("pre", 0, 1, language="py")]),
        ("<blockquote expandable>q</blockquote>", "q", [E("expandable_blockquote", 0, 1)]),
        ('<span class="tg-spoiler">s</span><del>d</del>', "sd", [E("spoiler", 0, 1), E("strikethrough", 1, 1)]),
        ('<tg-emoji emoji-id="5">👍</tg-emoji>', "👍", [E("custom_emoji", 0, 2, custom_emoji_id="5")]),
    ],
)
def test_html(source: str, text: str, entities: list[Entity]) -> None:
    assert parse(source, "HTML") == (text, entities)


@pytest.mark.parametrize(
    ("source", "text", "entities"),
    [
        (r"plain \*not bold\* 1\.5", "plain *not bold* 1.5", []),
        ("*a _b_*", "a b", [E("bold", 0, 3), E("italic", 2, 1)]),
        ("__u__ ~s~ ||x||", "u s x", [E("underline", 0, 1), E("strikethrough", 2, 1), E("spoiler", 4, 1)]),
        (r"[t](https://x.y/\))", "t", [E("text_link", 0, 1, url="https://x.y/)")]),
        ("![👍](tg://emoji?id=5)", "👍", [E("custom_emoji", 0, 2, custom_emoji_id="5")]),
        (r"`a\`b`", "a`b", [E("code", 0, 3)]),
        ("```py\nx\n```", "x\n", [E("pre", 0, 2, language="py")]),
        (">a\n>b\nc", "a\nb\nc", [E("blockquote", 0, 3)]),
        ("**>a\n>b||\nc", "a\nb\nc", [E("expandable_blockquote", 0, 3)]),
    ],
)
def test_markdown(source: str, text: str, entities: list[Entity]) -> None:
    assert parse(source, "MarkdownV2") == (text, entities)


@pytest.mark.parametrize(
    ("source", "mode"),
    [
        ("<b>x", "HTML"),
        ("x</b>", "HTML"),
        ("<b>x</i>", "HTML"),
        ("<script>x</script>", "HTML"),
        ("1 < 2", "HTML"),
        ("*x", "MarkdownV2"),
        ("1.5", "MarkdownV2"),
        ("[x]", "MarkdownV2"),
        ("`x", "MarkdownV2"),
        ("*a _b* c_", "MarkdownV2"),
        ("x", "BBCode"),
    ],
)
def test_what_is_broken_is_refused(source: str, mode: str) -> None:
    with pytest.raises(BadMarkup):
        parse(source, mode)


@given(st.text(), st.sampled_from(["HTML", "MarkdownV2"]))
def test_any_text_is_read_or_refused_and_entities_lie_within(source: str, mode: str) -> None:
    try:
        text, entities = parse(source, mode)
    except BadMarkup:
        return
    assert all(one.offset >= 0 and one.length > 0 and one.offset + one.length <= units(text) for one in entities)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_without_a_mode_a_text_is_itself(text: str) -> None:
    assert parse(text, None) == (text, [])
    assert units(text) == len(text.encode("utf-16-le")) // 2
