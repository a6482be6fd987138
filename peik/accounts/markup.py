"""Marked-up text as the Bot API knows it (HTML, MarkdownV2, or a list of entities), read into plain text and entities.

MTProto has no parse mode: what the Bot API's server does for bots has to be done here for accounts. Pure.
"""

import re
from html.parser import HTMLParser

import msgspec


class BadMarkup(Exception):
    """The text cannot be read as what it says to be. The words are for the sender."""


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """As the Bot API writes one. Offset and length are counted in UTF-16 units, as Telegram counts."""

    type: str
    offset: int
    length: int
    url: str | None = None
    language: str | None = None
    custom_emoji_id: str | None = None
    user_id: int | None = None


def parse(text: str, parse_mode: str | None) -> tuple[str, list[Entity]]:
    """The text without its markup, and the entities in order. Raises BadMarkup."""
    match (parse_mode or "").lower():
        case "":
            return text, []
        case "html":
            return _parse_html(text)
        case "markdownv2":
            return _Markdown(text).parse()
        case other:
            raise BadMarkup(f"unsupported parse_mode {other}")


def units(text: str) -> int:
    """How long Telegram says this text is."""
    return len(text) + sum(1 for char in text if ord(char) > 0xFFFF)


class _Opened(msgspec.Struct):
    mark: str
    type: str  # "": it marks nothing by itself
    start: int
    url: str | None = None
    language: str | None = None
    custom_emoji_id: str | None = None
    expandable: bool = False


class _Text:
    """Plain text that grows, and the entities that end in it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.length = 0
        self.entities: list[Entity] = []

    def add(self, text: str) -> None:
        self._parts.append(text)
        self.length += units(text)

    def close(self, opened: _Opened) -> None:
        length = self.length - opened.start
        if not length or not opened.type:
            return
        kind, url, user_id = opened.type, opened.url, None
        if kind == "text_link" and url is not None:
            match = _MENTION.fullmatch(url)
            if match is not None:
                kind, url, user_id = "text_mention", None, int(match[1])
        if kind == "blockquote" and opened.expandable:
            kind = "expandable_blockquote"
        self.entities.append(
            Entity(
                type=kind,
                offset=opened.start,
                length=length,
                url=url,
                language=opened.language,
                custom_emoji_id=opened.custom_emoji_id,
                user_id=user_id,
            )
        )

    def done(self) -> tuple[str, list[Entity]]:
        return "".join(self._parts), sorted(self.entities, key=lambda one: (one.offset, -one.length))


_MENTION = re.compile(r"tg://user\?id=(\d{1,18})")

_TAGS = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "tg-spoiler": "spoiler",
    "span": "spoiler",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
    "a": "text_link",
    "tg-emoji": "custom_emoji",
}


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = _Text()
        self.open: list[_Opened] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = _TAGS.get(tag)
        given = dict(attrs)
        if kind is None or (tag == "span" and given.get("class") != "tg-spoiler"):
            raise BadMarkup(f'Unsupported start tag "{tag}"')
        opened = _Opened(mark=tag, type=kind, start=self.text.length)
        if tag == "a":
            opened.url = given.get("href")
            opened.type = "text_link" if opened.url else ""
        elif tag == "tg-emoji":
            opened.custom_emoji_id = given.get("emoji-id")
            opened.type = "custom_emoji" if opened.custom_emoji_id else ""
        elif tag == "blockquote":
            opened.expandable = "expandable" in given
        elif tag == "code" and self.open and self.open[-1].mark == "pre" and self.open[-1].start == self.text.length:
            language = given.get("class") or ""
            if language.startswith("language-"):
                self.open[-1].language = language.removeprefix("language-")
                opened.type = ""  # one block of code, not two
        self.open.append(opened)

    def handle_endtag(self, tag: str) -> None:
        if not self.open:
            raise BadMarkup(f'Unexpected end tag "{tag}"')
        opened = self.open.pop()
        if opened.mark != tag:
            raise BadMarkup(f'Unmatched end tag, expected "</{opened.mark}>", found "</{tag}>"')
        self.text.close(opened)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self.text.add(data)


def _parse_html(text: str) -> tuple[str, list[Entity]]:
    parser = _Html()
    # A "<" that begins no tag is a mistake to Telegram; HTMLParser would take it as text.
    stray = re.search(r"<(?![/a-zA-Z])", text)
    if stray is not None:
        raise BadMarkup(f"Unsupported start tag at byte offset {len(text[: stray.start()].encode())}")
    parser.feed(text)
    if parser.rawdata and "<" in parser.rawdata:
        raise BadMarkup("Unclosed start tag")
    parser.close()
    if parser.open:
        raise BadMarkup(f'Can\'t find end tag corresponding to start tag "{parser.open[-1].mark}"')
    return parser.text.done()


_SIMPLE = {"*": "bold", "_": "italic", "__": "underline", "~": "strikethrough", "||": "spoiler"}
_RESERVED = frozenset("_*[]()~`>#+-=|{}.!")
_LINK = re.compile(r"\]\(((?:\\.|[^\\)])*)\)", re.DOTALL)
_EMOJI = re.compile(r"tg://emoji\?id=(\d{1,20})")


class _Markdown:
    """MarkdownV2, read from left to right."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._text = _Text()
        self._open: list[_Opened] = []
        self._quote: _Opened | None = None

    def parse(self) -> tuple[str, list[Entity]]:
        source = self._source
        is_line_start = True
        while self._at < len(source):
            if is_line_start:
                self._begin_line()
                is_line_start = False
                continue
            char = source[self._at]
            if char == "\\" and self._at + 1 < len(source) and ord(source[self._at + 1]) < 127:
                self._text.add(source[self._at + 1])
                self._at += 2
            elif char == "\n":
                is_line_start = True
                self._end_line()
            elif char == "`":
                self._code()
            elif char in _RESERVED:
                self._mark(char)
            else:
                self._text.add(char)
                self._at += 1
        self._close_quote()
        if self._open:
            raise BadMarkup(f"Can't find end of {self._open[-1].type or 'link'} entity")
        return self._text.done()

    def _begin_line(self) -> None:
        source = self._source
        is_expandable = source.startswith("**>", self._at)
        if is_expandable or source.startswith(">", self._at):
            if self._quote is None or is_expandable:
                self._close_quote()
                self._quote = _Opened(mark=">", type="blockquote", start=self._text.length, expandable=is_expandable)
            self._at += 3 if is_expandable else 1
        elif self._quote is not None:
            self._close_quote()

    def _end_line(self) -> None:
        follows = self._source[self._at + 1 : self._at + 4]
        if self._quote is not None and not follows.startswith(">"):
            self._close_quote()  # the line break after a quotation is not part of it
        self._text.add("\n")
        self._at += 1

    def _close_quote(self) -> None:
        if self._quote is not None:
            self._text.close(self._quote)
            self._quote = None

    def _code(self) -> None:
        source = self._source
        fence = "```" if source.startswith("```", self._at) else "`"
        begin = self._at + len(fence)
        end = begin
        while (end := source.find(fence, end)) >= 0 and source[end - 1] == "\\" and source[end - 2] != "\\":
            end += 1
        if end < 0:
            raise BadMarkup(f"Can't find end of {'Pre' if fence == '```' else 'Code'} entity")
        body = source[begin:end]
        opened = _Opened(mark=fence, type="code" if fence == "`" else "pre", start=self._text.length)
        if fence == "```":
            first, line_break, rest = body.partition("\n")
            if line_break and re.fullmatch(r"[^\s`]*", first):
                opened.language, body = first or None, rest
        self._text.add(re.sub(r"\\([\\`])", r"\1", body))
        self._text.close(opened)
        self._at = end + len(fence)

    def _mark(self, char: str) -> None:
        source = self._source
        mark = next((two for two in ("__", "||") if source.startswith(two, self._at)), char)
        if mark == "||" and self._quote is not None and self._is_last_of_quote():
            self._quote.expandable = True
            self._at += 2
        elif mark in _SIMPLE:
            if self._open and self._open[-1].mark == mark:
                self._text.close(self._open.pop())
            else:
                self._open.append(_Opened(mark=mark, type=_SIMPLE[mark], start=self._text.length))
            self._at += len(mark)
        elif char == "[" or source.startswith("![", self._at):
            self._open.append(_Opened(mark="!" if char == "!" else "[", type="", start=self._text.length))
            self._at += 2 if char == "!" else 1
        elif char == "]" and self._open and self._open[-1].mark in ("[", "!"):
            self._link(self._open.pop())
        else:
            at = len(source[: self._at].encode())
            raise BadMarkup(f"Character '{char}' is reserved and must be escaped with the preceding '\\' (byte {at})")

    def _is_last_of_quote(self) -> bool:
        """The two bars at the very end of a quotation make it a long one that can be unfolded."""
        is_open = any(one.mark == "||" for one in self._open)
        follows = self._source[self._at + 2 :]
        return not is_open and (not follows or follows.startswith("\n"))

    def _link(self, opened: _Opened) -> None:
        match = _LINK.match(self._source, self._at)
        if match is None:
            raise BadMarkup("Can't find the address of a link")
        address = re.sub(r"\\(.)", r"\1", match[1])
        if opened.mark == "!":
            emoji = _EMOJI.fullmatch(address)
            if emoji is None:
                raise BadMarkup("Custom emoji must have a tg://emoji?id=… link")
            opened.type, opened.custom_emoji_id = "custom_emoji", emoji[1]
        else:
            opened.type, opened.url = "text_link", address
        self._text.close(opened)
        self._at = match.end()
