"""A message as the person who gets it sees it: its text with its formatting, its file by name, its buttons. Only to be looked
at: no link in it can be followed, and nothing is loaded from elsewhere."""

import html.parser
import itertools
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from markupsafe import Markup, escape

_WORDS = ("text", "caption", "question", "title", "first_name", "address", "emoji")
_ENTITIES_OF = {"text": "entities", "caption": "caption_entities", "question": "question_entities"}
_FILES = (
    "photo", "live_photo", "video", "animation", "audio", "document", "voice", "video_note", "sticker", "paid_media", "media",
)  # fmt: skip
TEXT_CHARS_MAX = 20_000
BUTTONS_MAX = 100
_TAG_OF = {
    "bold": "b", "italic": "i", "underline": "u", "strikethrough": "s", "spoiler": "mark", "code": "code", "pre": "pre",
    "blockquote": "blockquote", "expandable_blockquote": "blockquote",
    **dict.fromkeys(("text_link", "url", "email", "mention", "text_mention", "hashtag", "cashtag", "bot_command"), "u"),
}  # fmt: skip
_TAG_OF_HTML = {
    "b": "b", "strong": "b", "i": "i", "em": "i", "u": "u", "ins": "u", "s": "s", "strike": "s", "del": "s",
    "tg-spoiler": "mark", "span": "mark", "code": "code", "pre": "pre", "blockquote": "blockquote", "a": "u",
}  # fmt: skip
_MARKS = {"*": "b", "_": "i", "__": "u", "~": "s", "||": "mark", "`": "code", "```": "pre"}
_JOINERS = {"\u200c": "ZWNJ", "\u200d": "ZWJ"}  # without them Persian words and families of emoji fall apart
_NAMED = {
    "\u200b": "ZWSP", "\u200e": "LRM", "\u200f": "RLM", "\u202a": "LRE", "\u202b": "RLE", "\u202c": "PDF", "\u202d": "LRO",
    "\u202e": "RLO", "\u2060": "WJ", "\u2066": "LRI", "\u2067": "RLI", "\u2068": "FSI", "\u2069": "PDI", "\ufeff": "BOM",
    "\u00ad": "SHY", "\u061c": "ALM", "\u00a0": "NBSP",
}  # fmt: skip


class Bubble(msgspec.Struct, frozen=True, kw_only=True):
    text: Markup
    files: tuple[str, ...] = ()
    buttons: tuple[tuple[str, ...], ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.files or self.buttons)


def bubble_of(params: str | bytes) -> Bubble:
    """Of the parameters of a call, or of an update."""
    try:
        given: Any = msgspec.json.decode(params)
    except msgspec.DecodeError:
        given = None
    if (
        isinstance(given, dict) and "update_id" in given
    ):  # what else it has is one object; of a press, the message pressed
        given = next((one for one in given.values() if isinstance(one, dict)), None)
        given = given["message"] if isinstance(given, dict) and isinstance(given.get("message"), dict) else given
    if not isinstance(given, dict):
        return Bubble(text=Markup())
    name = next((one for one in _WORDS if isinstance(given.get(one), str) and given[one].strip()), None)
    text = Markup()
    if name is not None:
        entities = _read(given.get(_ENTITIES_OF.get(name, "")))
        text = _formatted(given[name][:TEXT_CHARS_MAX], entities, str(given.get("parse_mode") or "").lower())
    files = tuple(line for kind in _FILES if given.get(kind) for line in _files(kind, given[kind]))
    return Bubble(text=text, files=files, buttons=tuple(_buttons(given.get("reply_markup"))))


def _read(value: object) -> object:
    """A parameter may be JSON itself, or a string with JSON in it."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return None


def _formatted(text: str, entities: object, mode: str) -> Markup:
    if isinstance(entities, list) and entities:
        return _with_entities(text, entities)
    if mode == "html":
        reading = _Html()
        reading.feed(text)
        reading.close()
        return reading.whole()
    if mode in ("markdown", "markdownv2"):
        return _markdown(text)
    return visible(text)


def visible(text: str) -> Markup:
    """The text with what cannot be seen in it made visible, and without its power: a mark of direction turns nothing over."""
    out: list[str] = []
    for char in text:
        name = _JOINERS.get(char)
        if name is not None:
            out.append(f'<span class="joiner" title="{name}">{char}</span>')
        elif (name := _invisible(char)) is not None:
            out.append(f'<span class="invisible" title="U+{ord(char):04X}">{name}</span>')
        else:
            out.append(escape(char))
    return Markup("".join(out))  # noqa: S704  every character was escaped


def _invisible(char: str) -> str | None:
    if char in "\n\t ":
        return None
    if char in _NAMED:
        return _NAMED[char]
    return f"U+{ord(char):04X}" if unicodedata.category(char) in ("Cc", "Cf") else None


def _with_entities(text: str, entities: Sequence[object]) -> Markup:
    """Telegram counts in UTF-16. Tags nest by their length; one that would overlap another is closed and opened again."""
    units = text.encode("utf-16-le")
    spans: list[tuple[int, int, str]] = []
    for one in entities:
        if isinstance(one, dict) and isinstance(one.get("offset"), int) and isinstance(one.get("length"), int):
            tag = _TAG_OF.get(str(one.get("type")))
            first, last = max(0, one["offset"]), min(len(units) // 2, one["offset"] + one["length"])
            if tag is not None and first < last:
                spans.append((first, last, tag))
    edges = sorted({0, len(units) // 2, *(edge for first, last, _ in spans for edge in (first, last))})
    out: list[Markup] = []
    for begin, end in itertools.pairwise(edges):
        piece = visible(units[begin * 2 : end * 2].decode("utf-16-le", "replace"))
        for _, _, tag in sorted(
            (one for one in spans if one[0] <= begin and end <= one[1]), key=lambda one: one[1] - one[0]
        ):
            piece = _tagged(tag, piece)
        out.append(piece)
    return Markup().join(out)


def _begin(tag: str) -> Markup:
    return Markup(f"<{tag}>")  # noqa: S704  one of the tags above


def _end(tag: str) -> Markup:
    return Markup(f"</{tag}>")  # noqa: S704  one of the tags above


def _tagged(tag: str, piece: Markup) -> Markup:
    return _begin(tag) + piece + _end(tag)


class _Html(html.parser.HTMLParser):
    """Telegram's few tags, and nothing else of what was written."""

    def __init__(self) -> None:
        super().__init__()
        self._out: list[Markup] = []
        self._open: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _TAG_OF_HTML:
            shown = _TAG_OF_HTML[tag]
            self._open.append((tag, shown))
            self._out.append(_begin(shown))

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1][0] == tag:
            self._out.append(_end(self._open.pop()[1]))

    def handle_data(self, data: str) -> None:
        self._out.append(visible(data))

    def whole(self) -> Markup:
        return Markup().join([*self._out, *(_end(shown) for _, shown in reversed(self._open))])


def _markdown(text: str) -> Markup:
    out: list[Markup] = []
    is_open: list[str] = []
    place, plain = 0, ""
    while place < len(text):
        char = text[place]
        if char == "\\" and place + 1 < len(text):
            plain, place = plain + text[place + 1], place + 2
            continue
        mark = next((one for one in ("```", "||", "__", "*", "_", "~", "`") if text.startswith(one, place)), None)
        link = _link_at(text, place) if char == "[" else None
        if mark is None and link is None:
            plain, place = plain + char, place + 1
            continue
        out.append(visible(plain))
        plain = ""
        if link is not None:
            out.append(_tagged("u", visible(link[0])))
            place = link[1]
        elif mark is not None:
            tag = _MARKS[mark]
            if is_open and is_open[-1] == tag:
                is_open.pop()
                out.append(_end(tag))
            elif tag not in is_open:
                is_open.append(tag)
                out.append(_begin(tag))
            else:
                out.append(visible(mark))
            place += len(mark)
    out.append(visible(plain))
    return Markup().join([*out, *(_end(tag) for tag in reversed(is_open))])


def _link_at(text: str, place: int) -> tuple[str, int] | None:
    middle = text.find("](", place)
    end = text.find(")", middle)
    return None if middle < 0 or end < 0 else (text[place + 1 : middle].replace("\\", ""), end + 1)


def _files(kind: str, value: object) -> Iterator[str]:
    """What is sent along, by its kind and what it is called."""
    value = _read(value) if isinstance(value, str) and value[:1] in "[{" else value
    if kind == "photo" and isinstance(value, list):  # one picture in its sizes
        yield "photo"
    elif isinstance(value, list):
        for one in value[:10]:
            if isinstance(one, dict):
                yield f"{one.get('type', kind)}: {_name(one.get('media'))}"
    else:
        yield f"{kind}: {_name(value)}" if _name(value) else kind


def _name(value: object) -> str:
    if isinstance(value, Mapping):
        return str(value.get("file_name") or value.get("emoji") or value.get("title") or "")[:80]
    return str(value or "")[:80]


def _buttons(value: object) -> Iterator[tuple[str, ...]]:
    markup = _read(value)
    rows = (markup.get("inline_keyboard") or markup.get("keyboard")) if isinstance(markup, dict) else None
    for row in rows[:BUTTONS_MAX] if isinstance(rows, list) else ():
        if isinstance(row, list):
            texts = (one.get("text") if isinstance(one, dict) else one for one in row)
            yield tuple(text[:64] for text in texts if isinstance(text, str))
