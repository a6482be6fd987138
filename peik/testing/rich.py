"""Rich messages: a text in blocks, with headings, lists, tables, media and buttons, given as blocks, as HTML or as Markdown.

How Telegram reads HTML and Markdown here is not public. Ours knows the tags and marks of its documentation; others are text.
"""

import html.parser
import re
from collections.abc import Iterator

import msgspec

from peik.testing.answer import Json, Params, bad, flag, integer, mapping, sequence, text_of
from peik.testing.media import described, hidden, take
from peik.testing.posting import checked_button
from peik.testing.world import SimCall, World

TEXT_MAX = 32_768
BLOCKS_MAX = 500
DEPTH_MAX = 16
MEDIA_MAX = 50
COLUMNS_MAX = 20
MAP_SIDES_MAX = 10_000


def rich_message(world: World, call: SimCall, params: Params, *, is_draft: bool = False) -> Json:
    """The `rich_message` of a request as the chat shows it. Raises for one that is empty, too large, or of unknown parts."""
    given = mapping(params, "rich_message", what="InputRichMessage") or {}
    sources = [name for name in ("html", "markdown", "blocks") if given.get(name)]
    if not sources:
        raise bad("rich message must be non-empty")
    if len(sources) > 1:
        raise bad("can't parse InputRichMessage: exactly one of html, markdown and blocks must be used")
    media = sequence(given, "media", what="InputRichMessageMedia") or []
    named = {text_of(one, "id"): one.get("media") for one in media if isinstance(one, dict)}
    if sources == ["blocks"]:
        raw = sequence(given, "blocks", what="InputRichBlock") or []
    else:
        text = text_of(given, sources[0])
        raw = list(_from_html(text) if sources == ["html"] else _from_markdown(text))
    reading = _Reading(world=world, call=call, named=named, is_draft=is_draft)
    blocks = reading.blocks(raw, depth=1)
    if not blocks:
        raise bad("rich message must be non-empty")
    return {"blocks": blocks} | ({"is_rtl": True} if flag(given, "is_rtl") else {})


def plain(shown: object) -> str:
    """The words of a rich message, for the ledger."""
    if isinstance(shown, str):
        return shown
    if isinstance(shown, list):
        return "".join(plain(one) for one in shown)
    if isinstance(shown, dict):
        label = f"{shown['label']} " if "label" in shown else ""
        words = label + "".join(plain(shown[name]) for name in _WORDED if name in shown)
        return f"{words}\n" if words and shown.get("type") in _PARAGRAPHS and not words.endswith("\n") else words
    return ""


_WORDED = ("summary", "blocks", "items", "cells", "text", "expression", "alternative_text", "caption", "credit")

# Blocks by what they hold: a text, other blocks, a file.
_TEXTS = frozenset({"paragraph", "heading", "pre", "footer", "pullquote", "expandable_blockquote", "thinking"})
_NESTS = frozenset({"blockquote", "details", "collage", "slideshow"})
_MEDIA = {
    "photo": "photo", "video": "video", "animation": "animation", "audio": "audio", "document": "document",
    "voice_note": "voice",
}  # fmt: skip
_OTHERS = frozenset({"divider", "mathematical_expression", "anchor", "list", "table", "map", "buttons"})
_PARAGRAPHS = _TEXTS | {"details", "list"}
# What a block keeps besides, as it was given.
_KEPT = ("language", "expression", "name", "is_open", "is_bordered", "is_striped", "is_compact", "align")
# Texts in texts, and the field that each demands.
_INLINE = {
    **dict.fromkeys(
        ("bold", "italic", "underline", "strikethrough", "spoiler", "code", "marked", "subscript", "superscript"), "text"
    ),
    "url": "url", "email_address": "email_address", "phone_number": "phone_number", "mention": "username",
    "hashtag": "hashtag", "cashtag": "cashtag", "bot_command": "bot_command", "bank_card_number": "bank_card_number",
    "text_mention": "user", "custom_emoji": "custom_emoji_id", "date_time": "unix_time", "anchor": "name",
    "anchor_link": "anchor_name", "reference": "name", "reference_link": "reference_name",
    "mathematical_expression": "expression", "button": "button",
}  # fmt: skip


class _Reading(msgspec.Struct):
    """One rich message while it is read: what it may still hold is counted."""

    world: World
    call: SimCall
    named: dict[str, object]  # media by the ids that HTML and Markdown name
    is_draft: bool
    length: int = 0
    count: int = 0
    media: int = 0

    def blocks(self, given: object, *, depth: int) -> list[Json]:
        if not isinstance(given, list):
            raise bad("expected an Array of InputRichBlock")
        if depth > DEPTH_MAX:
            raise bad("RICH_MESSAGE_TOO_DEEP")
        return [self._block(one, depth) for one in given]

    def _block(self, given: object, depth: int) -> Json:
        if not isinstance(given, dict):
            raise bad("can't parse InputRichBlock: expected an Object")
        self.count += 1
        if self.count > BLOCKS_MAX:
            raise bad("RICH_MESSAGE_TOO_MANY_BLOCKS")
        kind = text_of(given, "type")
        found: Json = {"type": kind} | {name: given[name] for name in _KEPT if given.get(name)}
        if kind in _TEXTS and (kind != "thinking" or self.is_draft):
            found["text"] = self.text(given.get("text", ""))
        elif kind in _NESTS:
            found["blocks"] = self.blocks(given.get("blocks"), depth=depth + 1)
        elif kind in _MEDIA:
            found |= self._file(kind, given)
        elif kind not in _OTHERS:
            raise bad(f"can't parse InputRichBlock: unsupported type {kind or 'must be specified'}")
        return found | self._own(kind, given, depth) | self._around(given)

    def _own(self, kind: str, given: Json, depth: int) -> Json:
        """What blocks of this kind alone have."""
        found: Json = {}
        match kind:
            case "heading":
                found["size"] = min(max(integer(given, "size", 1), 1), 6)
            case "details":
                found["summary"] = self.text(given.get("summary", ""))
            case "list":
                items = sequence(given, "items", what="InputRichBlockListItem") or []
                found["items"] = [self._item(one, place, depth) for place, one in enumerate(items, start=1)]
            case "table":
                found["cells"] = self._cells(given.get("cells"))
            case "map":
                found |= self._map(given)
            case "buttons":
                found["buttons"] = [self._button(one) for one in sequence(given, "buttons", what="buttons") or []]
        return found

    def _around(self, given: Json) -> Json:
        """A caption, of two fields or as a text, and a credit."""
        found: Json = {}
        caption = given.get("caption")
        if isinstance(caption, dict) and "type" not in caption:
            found["caption"] = {name: self.text(caption[name]) for name in ("text", "credit") if caption.get(name)}
        elif caption:
            found["caption"] = self.text(caption)
        if given.get("credit"):
            found["credit"] = self.text(given["credit"])
        return found

    def text(self, given: object) -> object:
        """A RichText: plain, a list of others, or one of some kind around another."""
        if isinstance(given, str):
            self.length += len(given)
            if self.length > TEXT_MAX:
                raise bad("message is too long")
            return given
        if isinstance(given, list):
            return [self.text(one) for one in given]
        kind = given.get("type") if isinstance(given, dict) else None
        if not isinstance(given, dict) or kind not in _INLINE:
            raise bad(
                "can't parse RichText: " + (f"unsupported type {kind}" if kind else "expected a String or an Object")
            )
        if _INLINE[str(kind)] not in given:
            raise bad(f"can't parse RichText: can't find field \"{_INLINE[str(kind)]}\"")
        found = dict(given)
        if "text" in given:
            found["text"] = self.text(given["text"])
        if kind == "button":
            found["button"] = self._button(given["button"])
        return found

    def _button(self, given: object) -> Json:
        """A button does what one of an inline keyboard does; its text may be rich."""
        if not isinstance(given, dict):
            raise bad("can't parse RichMessageButton: expected an Object")
        words = self.text(given.get("text", ""))
        if given.get("disabled"):
            return {**given, "text": words}
        return {**checked_button({**given, "text": plain(words)}), "text": words}

    def _item(self, given: object, place: int, depth: int) -> Json:
        if not isinstance(given, dict):
            raise bad("can't parse InputRichBlockListItem: expected an Object")
        value = integer(given, "value", place)
        kept: Json = {name: given[name] for name in ("has_checkbox", "is_checked", "value", "type") if given.get(name)}
        label = _label(value, text_of(given, "type")) if given.get("type") or given.get("value") else "•"
        return {"label": label, **kept, "blocks": self.blocks(given.get("blocks"), depth=depth + 1)}

    def _cells(self, given: object) -> list[list[Json]]:
        if not isinstance(given, list) or not all(isinstance(row, list) for row in given):
            raise bad("can't parse InputRichBlockTable: cells must be an Array of Arrays")
        if any(sum(integer(one, "colspan", 1) for one in row if isinstance(one, dict)) > COLUMNS_MAX for row in given):
            raise bad("RICH_MESSAGE_TOO_MANY_COLUMNS")
        return [[self._cell(one) for one in row] for row in given]

    def _cell(self, given: object) -> Json:
        if not isinstance(given, dict):
            raise bad("can't parse RichBlockTableCell: expected an Object")
        found: Json = {"align": given.get("align") or "left", "valign": given.get("valign") or "top"}
        found |= {name: given[name] for name in ("is_header", "colspan", "rowspan") if given.get(name)}
        return found | ({"text": self.text(given["text"])} if given.get("text") else {})

    def _map(self, given: Json) -> Json:
        place = mapping(given, "location", what="Location")
        if place is None or "latitude" not in place or "longitude" not in place:
            raise bad("can't parse InputRichBlockMap: location must be specified")
        width, height = integer(given, "width", 640) or 640, integer(given, "height", 320) or 320
        if width + height > MAP_SIDES_MAX or max(width, height) > 20 * min(width, height):
            raise bad("PHOTO_INVALID_DIMENSIONS")
        return {"location": place, "zoom": integer(given, "zoom", 13) or 13, "width": width, "height": height}

    def _file(self, kind: str, given: Json) -> Json:
        """A photo, video or other file, with an item of its own or named by an id."""
        self.media += 1
        if self.media > MEDIA_MAX:
            raise bad("RICH_MESSAGE_TOO_MANY_MEDIA")
        item = given.get(kind)
        item = self.named.get(item, {"media": item}) if isinstance(item, str) else item
        if not isinstance(item, dict):
            raise bad(f"can't parse InputRichBlock: there is no {kind.replace('_', ' ')}")
        sent_as = _MEDIA[kind]
        stored = take(self.world, self.call, item.get("media"), None, field="media", kind=sent_as, params=item)
        shown = described(stored, item)[stored.kind]
        spoiler = {"has_spoiler": True} if "has_media_spoiler" in hidden(item) else {}
        return {kind: shown, **spoiler}


def _label(value: int, kind: str) -> str:
    """How an item of an ordered list is counted."""
    letter = chr(ord("a") + (value - 1) % 26)
    return {"a": letter, "A": letter.upper(), "i": _roman(value).lower(), "I": _roman(value)}.get(
        kind, str(value)
    ) + "."


def _roman(value: int) -> str:
    found = ""
    for size, sign in ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        found += sign * (value // size)
        value %= size
    return found


# HTML: first a tree, then blocks.


class _Node(msgspec.Struct):
    tag: str
    attributes: dict[str, str]
    inner: list["_Node | str"] = msgspec.field(default_factory=list)


_EMPTY = frozenset({"br", "hr", "img", "input"})
_WRAPPED = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "code": "code", "mark": "marked",
    "sub": "subscript", "sup": "superscript", "tg-spoiler": "spoiler",
}  # fmt: skip
_SOURCES = {"img": "photo", "video": "video", "audio": "audio"}
_TEXT_TAGS = {"p": "paragraph", "footer": "footer", "aside": "pullquote", "tg-thinking": "thinking"}
_NEST_TAGS = {"blockquote": "blockquote", "tg-collage": "collage", "tg-slideshow": "slideshow"}


class _Tree(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = _Node("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = _Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].inner.append(node)
        if tag not in _EMPTY:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        if tag in _EMPTY:
            return
        if tag != self.open[-1].tag:
            raise bad(f'can\'t parse rich message: unexpected end tag "{tag}"')
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].inner.append(data)


def _from_html(text: str) -> Iterator[Json]:
    tree = _Tree()
    tree.feed(text)
    tree.close()
    if len(tree.open) > 1:
        raise bad(f"can't parse rich message: can't find end tag corresponding to start tag \"{tree.open[-1].tag}\"")
    return _blocks_of(tree.root.inner)


def _blocks_of(inner: list[_Node | str]) -> Iterator[Json]:
    """Blocks, and paragraphs of what stands between them."""
    loose: list[object] = []
    for one in [*inner, None]:
        block = _block_of(one) if isinstance(one, _Node) else None
        if one is not None and block is None:
            loose.append(_inline_of(one))
            continue
        if plain(loose).strip():
            yield {"type": "paragraph", "text": _joined(loose)}
        loose = []
        if block is not None:
            yield block


def _block_of(node: _Node) -> Json | None:
    tag, inner = node.tag, _inline_all(node.inner)
    found: Json
    if tag in _TEXT_TAGS:
        return {"type": _TEXT_TAGS[tag], "text": inner}
    if re.fullmatch(r"h[1-6]", tag):
        return {"type": "heading", "text": inner, "size": int(tag[1])}
    if tag == "blockquote" and "collapsed" in node.attributes:
        return {"type": "expandable_blockquote", "text": inner}
    if tag in _NEST_TAGS:
        return {"type": _NEST_TAGS[tag], "blocks": list(_blocks_of(node.inner))}
    if tag in _SOURCES:
        return {"type": _SOURCES[tag], _SOURCES[tag]: node.attributes.get("src", "")}
    match tag:
        case "hr":
            return {"type": "divider"}
        case "pre":
            code = next(iter(_named(node, "code")), node)
            language = code.attributes.get("class", "").removeprefix("language-")
            found = {"type": "pre", "text": plain(inner)}
            return found | ({"language": language} if language else {})
        case "tg-math-block":
            return {"type": "mathematical_expression", "expression": plain(inner)}
        case "ul" | "ol":
            return {"type": "list", "items": [_item_of(one, tag) for one in _named(node, "li")]}
        case "details":
            summary = next(iter(_named(node, "summary")), _Node("", {}))
            rest = [one for one in node.inner if one is not summary]
            found = {"type": "details", "summary": _inline_all(summary.inner), "blocks": list(_blocks_of(rest))}
            return found | ({"is_open": True} if "open" in node.attributes else {})
        case "table":
            return _table_of(node)
        case _:
            return None


def _named(node: _Node, *tags: str) -> list[_Node]:
    return [one for one in node.inner if isinstance(one, _Node) and one.tag in tags]


def _item_of(node: _Node, tag: str) -> Json:
    found: Json = {"blocks": list(_blocks_of([one for one in node.inner if one not in _named(node, "input")]))}
    for box in _named(node, "input"):
        found |= {"has_checkbox": True} | ({"is_checked": True} if "checked" in box.attributes else {})
    if tag == "ol":
        found["type"] = "1"
    return found


def _table_of(node: _Node) -> Json:
    bodies = [node, *_named(node, "thead", "tbody", "tfoot")]
    cells = [
        [
            {"text": _inline_all(cell.inner), **({"is_header": True} if cell.tag == "th" else {})}
            | {
                name: int(cell.attributes[name])
                for name in ("colspan", "rowspan")
                if cell.attributes.get(name, "").isdecimal()
            }
            | ({"align": cell.attributes["align"]} if cell.attributes.get("align") else {})
            for cell in _named(row, "td", "th")
        ]
        for body in bodies
        for row in _named(body, "tr")
    ]
    caption = [_inline_all(one.inner) for one in _named(node, "caption")]
    return {"type": "table", "cells": cells, **({"caption": caption[0]} if caption else {})}


def _inline_all(inner: list[_Node | str]) -> object:
    return _joined([_inline_of(one) for one in inner])


def _joined(parts: list[object]) -> object:
    """One text instead of a list of one."""
    return parts[0] if len(parts) == 1 else parts or ""


def _inline_of(node: _Node | str) -> object:
    if isinstance(node, str):
        return node
    inner, given = _inline_all(node.inner), node.attributes
    kind = "spoiler" if node.tag == "span" and given.get("class") == "tg-spoiler" else _WRAPPED.get(node.tag)
    if kind is not None:
        return {"type": kind, "text": inner}
    match node.tag:
        case "br":
            return "\n"
        case "a" if given.get("name") and not given.get("href"):
            return {"type": "anchor", "name": given["name"]}
        case "a":
            url = given.get("href") or plain(inner)
            if url.startswith("#"):
                return {"type": "anchor_link", "text": inner, "anchor_name": url[1:]}
            return {"type": "url", "text": inner, "url": url}
        case "tg-emoji":
            return {
                "type": "custom_emoji",
                "custom_emoji_id": given.get("emoji-id", ""),
                "alternative_text": plain(inner),
            }
        case "tg-time":
            unix = int(given["unix"]) if given.get("unix", "").isdecimal() else 0
            return {"type": "date_time", "text": inner, "unix_time": unix, "date_time_format": given.get("format", "")}
        case "tg-math":
            return {"type": "mathematical_expression", "expression": plain(inner)}
        case _:
            return inner


# Markdown, line by line.

_MARKS = re.compile(
    r"\*\*(?P<bold>.+?)\*\*|~~(?P<strikethrough>.+?)~~|\|\|(?P<spoiler>.+?)\|\||==(?P<marked>.+?)==|"
    r"`(?P<code>[^`]+)`|\[(?P<link>[^\]]+)\]\((?P<url>[^)\s]+)\)|\$(?P<math>[^$\s][^$]*)\$|"
    r"(?<!\w)[*_](?P<italic>[^*_]+)[*_](?!\w)",
    re.DOTALL,
)


def _marked(text: str) -> object:
    parts: list[object] = []
    at = 0
    for found in _MARKS.finditer(text):
        if found.start() > at:
            parts.append(text[at : found.start()])
        at = found.end()
        kind = str(found.lastgroup)
        if kind == "url":
            parts.append({"type": "url", "text": _marked(found["link"]), "url": found["url"]})
        elif kind == "math":
            parts.append({"type": "mathematical_expression", "expression": found["math"]})
        else:
            parts.append({"type": kind, "text": found[kind] if kind == "code" else _marked(found[kind])})
    if at < len(text):
        parts.append(text[at:])
    return _joined(parts)


_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_ITEM = re.compile(r"\s*(?:[-*+]|(\d+)[.)])\s+(?:\[([ xX])\]\s+)?(.*)")
_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_RULE = re.compile(r"\|?[\s:|-]*-[\s:|-]*\|?")


def _from_markdown(text: str) -> Iterator[Json]:
    for passage in _passages(text):
        first = passage[0]
        heading, image = _HEADING.fullmatch(first), _IMAGE.fullmatch(first)
        if first.startswith("```"):
            language = first[3:].strip()
            code = "\n".join(passage[1:-1] if passage[-1].startswith("```") else passage[1:])
            yield {"type": "pre", "text": code, **({"language": language} if language else {})}
        elif first.startswith("$$"):
            yield {"type": "mathematical_expression", "expression": "\n".join(passage).strip("$\n ")}
        elif heading is not None:
            yield {"type": "heading", "size": len(heading[1]), "text": _marked(heading[2])}
        elif re.fullmatch(r"(-{3,}|\*{3,}|_{3,})", first):
            yield {"type": "divider"}
        elif image is not None:
            yield {"type": "photo", "photo": image[2]} | ({"caption": {"text": image[1]}} if image[1] else {})
        elif first.startswith(">"):
            inner = "\n".join(line.removeprefix(">").removeprefix(" ") for line in passage)
            yield {"type": "blockquote", "blocks": list(_from_markdown(inner))}
        elif _ITEM.fullmatch(first):
            yield {"type": "list", "items": [_marked_item(line) for line in passage]}
        elif len(passage) > 1 and "|" in first and _RULE.fullmatch(passage[1]):
            yield {
                "type": "table",
                "cells": [_row(line, is_header=line is first) for line in passage if line is not passage[1]],
            }
        else:
            yield {"type": "paragraph", "text": _marked("\n".join(passage))}


def _passages(text: str) -> Iterator[list[str]]:
    """Lines that belong together: between empty ones, and by what they begin with."""
    held: list[str] = []
    fence = ""
    for line in [*text.splitlines(), ""]:
        if fence:
            held.append(line)
            if line.rstrip().endswith(fence):
                yield held
                held, fence = [], ""
            continue
        kind = _line_kind(line)
        if held and (not line.strip() or kind != _line_kind(held[0]) or kind == "alone"):
            yield held
            held = []
        if line.strip():
            held.append(line.rstrip())
            mark = next((one for one in ("```", "$$") if line.startswith(one)), "")
            fence = (
                mark if mark and not (mark == "$$" and len(line.strip()) > 2 and line.rstrip().endswith("$$")) else ""
            )
    if held:
        yield held


def _line_kind(line: str) -> str:
    if line.startswith(("```", "$$")) or _HEADING.fullmatch(line) or _IMAGE.fullmatch(line.strip()):
        return "alone"
    if re.fullmatch(r"(-{3,}|\*{3,}|_{3,})", line.strip()):
        return "alone"
    return ">" if line.startswith(">") else "-" if _ITEM.fullmatch(line) else "text"


def _marked_item(line: str) -> Json:
    found = _ITEM.fullmatch(line)
    number, box, words = found.groups() if found is not None else (None, None, line)
    item: Json = {"blocks": [{"type": "paragraph", "text": _marked(words)}]}
    if number:
        item |= {"type": "1", "value": int(number)}
    if box:
        item |= {"has_checkbox": True} | ({"is_checked": True} if box in "xX" else {})
    return item


def _row(line: str, *, is_header: bool) -> list[Json]:
    words = [one.strip() for one in line.strip().strip("|").split("|")]
    return [{"text": _marked(one), **({"is_header": True} if is_header else {})} for one in words]
