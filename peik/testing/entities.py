"""The text that a chat sees and its entities: parse_mode in its three kinds with Telegram's error texts, links and mentions found
in plain text, offsets in UTF-16. Pure."""

import functools
import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import msgspec

from peik.testing.answer import Json, Refusal, bad

# What is marked while it is being read: offsets count characters, and become UTF-16 at the end.


class Span(msgspec.Struct):
    """One entity. `more` is what it has besides its kind and its place."""

    kind: str
    start: int
    end: int
    more: Json


_TAGS = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "span": "spoiler", "tg-spoiler": "spoiler",
    "tg-emoji": "custom_emoji", "tg-time": "date_time", "a": "text_link", "code": "code", "pre": "pre",
    "blockquote": "blockquote",
}  # fmt: skip

# How Telegram's errors call them.
_NAMES = {
    "bold": "Bold", "italic": "Italic", "underline": "Underline", "strikethrough": "Strikethrough",
    "spoiler": "Spoiler", "code": "Code", "pre": "Pre", "text_link": "TextUrl", "custom_emoji": "CustomEmoji",
    "blockquote": "BlockQuote",
}  # fmt: skip

# Which comes first when two begin and end together.
_ORDER = {
    name: place
    for place, name in enumerate(
        (
            "mention", "hashtag", "bot_command", "url", "email", "cashtag", "phone_number", "expandable_blockquote",
            "blockquote", "pre", "code", "text_link", "text_mention", "bold", "italic", "underline", "strikethrough",
            "spoiler", "custom_emoji", "date_time",
        )
    )
}  # fmt: skip
_SPLITTABLE = frozenset({"bold", "italic", "underline", "strikethrough", "spoiler"})
_KNOWN = frozenset({*_ORDER, "bank_card_number"})


def formatted(text: str, parse_mode: str, given: list[object] | None) -> tuple[str, list[Json]]:
    """The text as a chat sees it, and its entities. Raises the refusal for markup or entities that are broken."""
    if given:
        # Given entities win over a parse mode, as at Telegram.
        spans = _given(text, given)
    else:
        text, spans = parsed(text, parse_mode)
    if not spans and not may_have_links(text):
        return trimmed(text), []
    return _finished(text.rstrip(), spans)


def may_have_links(text: str) -> bool:
    """Has it a character that every mention, tag, command, address or number has? Six looks are quicker than one pattern."""
    return "." in text or "/" in text or "@" in text or "#" in text or "$" in text or "+" in text


def trimmed(text: str) -> str:
    return text.rstrip().lstrip(" \n")


def parsed(text: str, parse_mode: str) -> tuple[str, list[Span]]:
    match parse_mode.lower():
        case "":
            return text, []
        case "html":
            return _html(text)
        case "markdown":
            return _markdown(text)
        case "markdownv2":
            return _MarkdownV2(text).read()
        case _:
            raise bad("unsupported parse_mode")


def _broken(why: str) -> Refusal:
    return bad(f"can't parse entities: {why}")


def _offset(text: str, index: int) -> int:
    return len(text[:index].encode(errors="surrogatepass"))


# HTML


_REFERENCE = re.compile(r"&(?:#x([0-9a-fA-F]+)|#([0-9]+)|(lt|gt|amp|quot)(?![A-Za-z]));?")
_NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_ATTRIBUTE = re.compile(r"""\s*([^\s=>/"']+)\s*(?:=\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9.-]*)(?=[\s>])))?""")

_PLAIN_LINK = re.compile(r'<a href="([^"&<>]+)">')
_TAG_END = re.compile(r"[\s>]")
_END_TAG = re.compile(r"</([^\s>]*)\s*(>?)")


def _referred(match: re.Match[str]) -> str:
    if match[3]:
        return _NAMED[match[3]]
    code = int(match[1], 16) if match[1] else int(match[2])
    return match[0] if code == 0 or code >= 0x10FFFF else chr(code)


def _html(text: str) -> tuple[str, list[Span]]:
    parts: list[str] = []
    size = 0
    spans: list[Span] = []
    nested: list[tuple[str, dict[str, str], int]] = []
    index = 0

    def take(piece: str) -> int:
        shown = _REFERENCE.sub(_referred, piece) if "&" in piece else piece
        parts.append(shown)
        return len(shown)

    while (start := text.find("<", index)) >= 0:
        size += take(text[index:start])
        if text.startswith("</", start):
            index = _html_end(text, start, nested, spans, parts, size)
        else:
            index = _html_start(text, start, nested, size)
    size += take(text[index:])
    if nested:
        raise _broken(f'Can\'t find end tag corresponding to start tag "{nested[-1][0]}"')
    return "".join(parts), spans


def _html_start(text: str, start: int, nested: list[tuple[str, dict[str, str], int]], size: int) -> int:
    """Read one start tag; the index behind it."""
    link = _PLAIN_LINK.match(text, start)  # most that have attributes are this one
    if link is not None:
        nested.append(("a", {"href": link[1]}, size))
        return link.end()
    end = _TAG_END.search(text, start + 1)
    if end is None:
        raise _broken(f"Unclosed start tag at byte offset {_offset(text, start)}")
    name = text[start + 1 : end.start()].lower()
    if name not in _TAGS:
        raise _broken(f'Unsupported start tag "{name}" at byte offset {_offset(text, start)}')
    attributes: dict[str, str] = {}
    index = end.start()
    if text[index] == ">" and name != "span":
        nested.append((name, attributes, size))
        return index + 1
    at = _offset(text, start)
    while True:
        while index < len(text) and text[index].isspace():
            index += 1
        if index >= len(text):
            raise _broken(f'Unclosed start tag "{name}" at byte offset {at}')
        if text[index] == ">":
            break
        match = _ATTRIBUTE.match(text, index)
        if match is None:
            raise _broken(f'Empty attribute name in the tag "{name}" at byte offset {at}')
        value = next((one for one in match.groups()[1:] if one is not None), "")
        attributes[match[1].lower()] = _REFERENCE.sub(_referred, value)
        index = match.end()
        if index < len(text) and text[index] == "=":
            raise _broken(f"Unclosed start tag at byte offset {at}")
    if name == "span" and attributes.get("class") != "tg-spoiler":
        raise _broken(f'Tag "span" must have class "tg-spoiler" at byte offset {at}')
    nested.append((name, attributes, size))
    return index + 1


def _html_end(
    text: str, start: int, nested: list[tuple[str, dict[str, str], int]], spans: list[Span], parts: list[str], size: int
) -> int:
    if not nested:
        raise _broken(f"Unexpected end tag at byte offset {_offset(text, start)}")
    match = _END_TAG.match(text, start)
    assert match is not None
    if not match[2]:
        raise _broken(f"Unclosed end tag at byte offset {_offset(text, start)}")
    name, attributes, begun = nested.pop()
    found = match[1].lower()
    if found and found != name:
        at = _offset(text, start)
        raise _broken(f'Unmatched end tag at byte offset {at}, expected "</{name}>", found "</{found}>"')
    if size > begun:
        is_bare = name == "a" and not attributes.get("href")
        span = _html_span(name, attributes, begun, size, "".join(parts)[begun:size] if is_bare else "")
        if span is not None:
            _add_code(spans, span)
    return match.end()


def _html_span(name: str, attributes: dict[str, str], start: int, end: int, shown: str) -> Span | None:
    kind = _TAGS[name]
    if kind in _SPLITTABLE:
        return Span(kind, start, end, {})
    match name:
        case "a":
            return _linked(attributes.get("href") or shown, start, end)
        case "tg-emoji":
            emoji_id = attributes.get("emoji-id", "")
            if not emoji_id.lstrip("-").isdecimal() or int(emoji_id) == 0:
                raise _broken("Invalid custom emoji identifier specified")
            return Span(kind, start, end, {"custom_emoji_id": emoji_id})
        case "tg-time":
            return _dated(attributes.get("unix", ""), attributes.get("format", ""), start, end)
        case "code":
            language = attributes.get("class", "")
            return Span(kind, start, end, {"language": language[9:]} if language.startswith("language-") else {})
        case "blockquote" if "expandable" in attributes:
            return Span("expandable_blockquote", start, end, {})
        case _:
            return Span(kind, start, end, {})


def _add_code(spans: list[Span], span: Span) -> None:
    """`<pre><code class="language-x">`, either way round, is one entity."""
    last = spans[-1] if spans else None
    if last is not None and (last.start, last.end) == (span.start, span.end):
        if span.kind == "pre" and last.kind == "code" and last.more:
            last.kind = "pre"
            return
        if span.kind == "code" and last.kind == "pre" and span.more:
            last.more = span.more
            return
    spans.append(span)


def _dated(unix: str, form: str, start: int, end: int) -> Span | None:
    if not unix.isdecimal() or int(unix) <= 0:
        return None
    return Span("date_time", start, end, {"unix_time": int(unix)} | ({"date_time_format": form} if form else {}))


def _linked(url: str, start: int, end: int) -> Span | None:
    user = re.fullmatch(r"tg://user\?id=(\d+)", url.strip()) if "?id=" in url else None
    if user is not None:
        return Span("text_mention", start, end, {"user": int(user[1])})
    checked = checked_link(url)
    return Span("text_link", start, end, {"url": checked}) if checked else None


@functools.lru_cache(maxsize=1024)  # the same few stand in very many messages
def checked_link(url: str) -> str:
    """The address as Telegram writes it; "" if it is none."""
    url = url.strip()
    scheme, colon, rest = url.partition(":")
    if colon and scheme.lower() in {"tg", "ton", "tonsite"}:
        host = rest.removeprefix("//")
        return f"{scheme.lower()}://{host}" if host and not host[0].isspace() else ""
    whole = url if re.match(r"(?i)https?://", url) else f"http://{url}"
    try:
        parts = urlsplit(whole)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        return ""
    if (colon and "://" in url and parts.scheme not in {"http", "https"}) or "." not in host or re.search(r"\s", whole):
        return ""
    login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    tail = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    tail += f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.scheme}://{login}{host}{f':{port}' if port else ''}{tail}"


# The first Markdown: no nesting, and a backslash frees the four marks.


_SIMPLE_MARK = re.compile(r"\\([_*`\[])|[_*`\[]")
_SIMPLE = {"_": "italic", "*": "bold", "`": "code", "[": "text_link"}


def _markdown(text: str) -> tuple[str, list[Span]]:
    parts: list[str] = []
    size = 0
    spans: list[Span] = []
    index = 0
    while (match := _SIMPLE_MARK.search(text, index)) is not None:
        parts.append(text[index : match.start()])
        size += match.start() - index
        if match[1]:
            parts.append(match[1])
            size += 1
            index = match.end()
            continue
        mark, start = match[0], match.start()
        index, language = start + 1, ""
        fence = "]" if mark == "[" else mark
        if text.startswith("```", start):
            fence = "```"
            index, language = _fenced(text, start + 3)
        end = text.find(fence, index)
        if end < 0:
            raise _broken(f"Can't find end of the entity starting at byte offset {_offset(text, start)}")
        shown = text[index:end]
        span: Span | None = Span("pre" if fence == "```" else _SIMPLE[mark], size, size + len(shown), {})
        assert span is not None
        if language:
            span.more = {"language": language}
        index = end + len(fence)
        if mark == "[":
            url = shown
            if text.startswith("(", index):
                stop = text.find(")", index)
                url = text[index + 1 : stop if stop >= 0 else None]
                index = stop + 1 if stop >= 0 else len(text)
            span = _linked(url, size, size + len(shown))
        if shown and span is not None:
            spans.append(span)
        parts.append(shown)
        size += len(shown)
    parts.append(text[index:])
    return "".join(parts), spans


def _fenced(text: str, index: int) -> tuple[int, str]:
    """Behind three backticks: where the code begins, and its language."""
    match = re.compile(r"([^\s`]+)(?=\s)").match(text, index)
    language = match[1] if match else ""
    index += len(language)
    if text[index : index + 2] in {"\r\n", "\n\r"}:
        return index + 2, language
    return (index + 1 if text[index : index + 1] in {"\n", "\r"} else index), language


# MarkdownV2: marks nest, and every other reserved character must be escaped.


_RESERVED = frozenset("_*[]()~`>#+-=|{}.!\n")
_CODE_RESERVED = frozenset("`")
_CLOSING = {
    "bold": "*", "code": "`", "pre": "```", "text_link": "]", "underline": "__", "strikethrough": "~", "spoiler": "||",
    "custom_emoji": "]",
}  # fmt: skip
_OPENING = {"__": "underline", "||": "spoiler", "_": "italic", "*": "bold", "~": "strikethrough", "[": "text_link"}


class _Open(msgspec.Struct):
    kind: str
    start: int
    at: int  # where in the source
    more: Json


class _MarkdownV2:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts: list[str] = []
        self.size = 0
        self.spans: list[Span] = []
        self.nested: list[_Open] = []
        self.index = 0
        self.in_quote = False
        self.may_quote = True

    def read(self) -> tuple[str, list[Span]]:
        text = self.text
        while self.index < len(text):
            character = text[self.index]
            following = text[self.index + 1 : self.index + 2]
            if character == "\\" and following and 0 < ord(following) <= 126:
                self._put(following)
                self.may_quote = following == "\n" or (following == "\r" and self.may_quote)
                self.index += 2
                continue
            inside = self.nested[-1].kind if self.nested else ""
            if character not in (_CODE_RESERVED if inside in {"code", "pre"} else _RESERVED):
                self._put(character)
                self.may_quote = character == "\r" and self.may_quote
                self.index += 1
            elif self._ends(inside, character):
                self._end(inside, character)
            else:
                self._begin(character)
        self._end_quote_at_end()
        if self.nested:
            raise self._endless(self.nested[-1])
        return "".join(self.parts), self.spans

    def _put(self, character: str) -> None:
        self.parts.append(character)
        self.size += 1

    def _ends(self, inside: str, character: str) -> bool:
        text, index = self.text, self.index
        if not inside:
            return False
        if self.in_quote and character == "\n" and text[index + 1 : index + 2] != ">":
            return True
        if inside == "italic":
            return character == "_" and text[index + 1 : index + 2] != "_"
        return inside in _CLOSING and text.startswith(_CLOSING[inside], index)

    def _begin(self, character: str) -> None:
        text, index = self.text, self.index
        if character == "\n":
            self._put(character)
            self.may_quote = True
            self.index += 1
            return
        if character == ">" and self.may_quote:
            if not self.in_quote:
                self.nested.append(_Open("blockquote", self.size, index, {}))
            self.in_quote = True
            self.index += 1
            return
        if text.startswith("```", index):
            self.index, language = _fenced(text, index + 3)
            self.nested.append(_Open("pre", self.size, index, {"language": language} if language else {}))
            return
        if text.startswith("![", index):
            self.nested.append(_Open("custom_emoji", self.size, index, {}))
            self.index += 2
            return
        mark = text[index : index + 2] if text[index : index + 2] in _OPENING else character
        kind = "code" if mark == "`" else _OPENING.get(mark)
        if kind is None:
            raise _broken(f"Character '{character}' is reserved and must be escaped with the preceding '\\'")
        self.nested.append(_Open(kind, self.size, index + len(mark) - 1, {}))
        self.index += len(mark)

    def _end(self, inside: str, character: str) -> None:
        if character == "\n" and self.in_quote and inside not in {"code", "pre"}:
            self._end_quote()
            return
        opened = self.nested.pop()
        self.index += len(_CLOSING.get(inside, "_"))
        span: Span | None = Span(inside, opened.start, self.size, opened.more)
        if inside == "text_link":
            shown = "".join(self.parts)[opened.start : self.size]
            span = _linked(self._url() if self.text.startswith("(", self.index) else shown, opened.start, self.size)
        elif inside == "custom_emoji":
            span = self._emoji(opened)
        if span is not None and span.end > span.start:
            _add_code(self.spans, span)

    def _end_quote(self) -> None:
        """A quote ends with its last line; a spoiler mark that opens nothing makes it expandable."""
        kind = "blockquote"
        if self.nested[-1].kind == "spoiler" and self.nested[-1].at == self.index - 1:
            self.nested.pop()
            kind = "expandable_blockquote"
        if not self.nested or self.nested[-1].kind != "blockquote":
            raise self._endless(self.nested[-1])
        opened = self.nested.pop()
        self._put("\n")
        self.spans.append(Span(kind, opened.start, self.size, {}))
        self.in_quote, self.may_quote = False, True
        self.index += 1

    def _end_quote_at_end(self) -> None:
        if not self.in_quote:
            return
        kind = "blockquote"
        if self.nested and self.nested[-1].kind == "spoiler" and self.nested[-1].at == len(self.text) - 1:
            self.nested.pop()
            kind = "expandable_blockquote"
        if self.nested and self.nested[-1].kind == "blockquote":
            opened = self.nested.pop()
            if self.size > opened.start:
                self.spans.append(Span(kind, opened.start, self.size, {}))

    def _emoji(self, opened: _Open) -> Span | None:
        if not self.text.startswith("(", self.index):
            raise _broken("The entity must contain a tg://emoji or tg://time URL")
        url = self._url()
        emoji = re.fullmatch(r"tg://emoji/?\?id=(\d+)", url)
        if emoji is not None:
            return Span("custom_emoji", opened.start, self.size, {"custom_emoji_id": emoji[1]})
        date = re.fullmatch(r"tg://time/?\?unix=(\d+)(?:&format=([^&]*))?", url)
        if date is None:
            raise _broken("Invalid tg://emoji or tg://time URL specified")
        return _dated(date[1], date[2] or "", opened.start, self.size)

    def _url(self) -> str:
        begun = self.index + 1
        match = re.compile(r"((?:\\[\x01-\x7e]|[^)])*)\)").match(self.text, begun)
        if match is None:
            raise _broken(f"Can't find end of a URL at byte offset {_offset(self.text, begun)}")
        self.index = match.end()
        return re.sub(r"\\([\x01-\x7e])", r"\1", match[1])

    def _endless(self, opened: _Open) -> Refusal:
        # Of a mark of two characters Telegram counts from the first.
        at = opened.at - 1 if opened.kind in {"underline", "spoiler"} else opened.at
        kind = "PreCode" if opened.kind == "pre" and opened.more else _NAMES[opened.kind]
        return _broken(f"Can't find end of {kind} entity at byte offset {_offset(self.text, at)}")


# Entities that a request gives itself.


def _given(text: str, given: list[object]) -> list[Span]:
    to_index = _indices(text)
    spans = []
    for one in given:
        if not isinstance(one, dict):
            raise _broken("expected an Object")
        kind, offset, length = one.get("type"), one.get("offset"), one.get("length")
        if not isinstance(offset, int) or not isinstance(length, int):
            raise _broken('field "offset" must be of type Number' if not isinstance(offset, int) else
                          'field "length" must be of type Number')  # fmt: skip
        if kind not in _KNOWN:
            raise _broken("unsupported type specified")
        if offset < 0 or offset > 1_000_000 or length < 0 or length > 1_000_000:
            which = ("offset", offset) if not 0 <= offset <= 1_000_000 else ("length", length)
            raise bad(f"receive an entity with incorrect {which[0]} {which[1]}")
        start, end = to_index(offset), to_index(offset + length)
        if start is None or end is None:
            raise bad("ENTITY_BOUNDS_INVALID")
        more = {name: held for name, held in one.items() if name not in {"type", "offset", "length"}}
        if kind == "text_link":
            url = checked_link(str(more.get("url", "")))
            if not url:
                continue
            more = {"url": url}
        if kind == "text_mention":
            user = more.get("user")
            more = {"user": user.get("id") if isinstance(user, dict) else 0}
        # What Telegram finds by itself it finds again.
        if end > start and kind in _OWN:
            spans.append(Span(str(kind), start, end, more))
    return spans


_OWN = frozenset(
    {"bold", "italic", "underline", "strikethrough", "spoiler", "blockquote", "expandable_blockquote", "code", "pre"}
    | {"text_link", "text_mention", "custom_emoji", "date_time"}
)


def _indices(text: str) -> Callable[[int], int | None]:
    """From UTF-16 to characters; None past the end."""
    if not text or max(text) <= "\uffff":
        return lambda offset: offset if offset <= len(text) else None
    places: dict[int, int] = {}
    count = 0
    for index, character in enumerate(text):
        places[count] = index
        count += 1 + (character > "\uffff")
    places[count] = len(text)
    return lambda offset: places.get(offset, places.get(offset + 1)) if offset <= count else None


# What is found in plain text.


_TOP = (
    "com|org|net|me|ru|io|dev|app|info|biz|edu|gov|uz|ir|de|fr|uk|us|co|tv|xyz|online|site|shop|ai|ton|eu|in|cn|jp|kz|ua"
    "|by|tr|it|es|pl|nl|ch|at|be|se|no|fi|cz|br|ca|au|tj|tm|kg|af|link|live|club|pro|tech|blog|store|news|page|wiki"
)
_FOUND = re.compile(
    r"(?P<email>(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})"
    r"|(?P<url>(?<![\w@.])(?:(?:https?|ftp|tg|ton)://[^\s<>\"«»]+"
    rf"|(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:{_TOP})(?![\w.-]*\w)(?::\d+)?(?:[/?#][^\s<>\"«»]*)?))"
    r"|(?P<mention>(?<![\w/@.])@[A-Za-z0-9_]{2,32}(?!\w))"
    r"|(?P<bot_command>(?<![\w/<>@])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?(?![\w/<>@]))"
    r"|(?P<hashtag>(?<![\w#])#(?=\w*[^\W\d])\w{1,256}(?:@[A-Za-z0-9_]{3,32})?)"
    r"|(?P<phone_number>(?<![\w+])\+[1-9]\d{9,14}(?!\w))"
    r"|(?P<cashtag>(?<![\w$])\$(?:1INCH|[A-Z]{1,8})(?![\w$]))",
    re.IGNORECASE,
)


def _found(text: str) -> Iterator[Span]:
    for match in _FOUND.finditer(text):
        kind = str(match.lastgroup)
        shown = match[0]
        if kind == "url":
            shown = shown.rstrip(".,:;!?'`*_~|")
            for one, other in (("(", ")"), ("[", "]")):
                while shown.endswith(other) and shown.count(other) > shown.count(one):
                    shown = shown[:-1]
        if kind == "cashtag" and shown != shown.upper():
            continue
        yield Span(kind, match.start(), match.start() + len(shown), {})


def _finished(text: str, spans: list[Span]) -> tuple[str, list[Json]]:
    """Trim, find what plain text has in it, and say it in UTF-16."""
    left = len(text) - len(text.lstrip(" \n"))
    if spans:
        left = min(left, min(span.start for span in spans))
    text = text[left:]
    kept: list[Span] = []
    for span in spans:
        span.start, span.end = span.start - left, min(span.end - left, len(text))
        if span.end > span.start and (span.kind == "custom_emoji" or text[span.start : span.end].strip()):
            kept.append(span)
    _join(kept)
    if may_have_links(text):
        firm = [span for span in kept if span.kind not in _SPLITTABLE and "quote" not in span.kind]
        kept += [
            span for span in _found(text) if not any(one.start < span.end and span.start < one.end for one in firm)
        ]  # fmt: skip
    kept.sort(key=lambda span: (span.start, -span.end, _ORDER[span.kind]))
    place = _places(text)
    shown: list[Json] = []
    for span in kept:
        if span.kind == "code":
            span.more = {}
        start = place(span.start)
        shown.append({"offset": start, "length": place(span.end) - start, "type": span.kind, **span.more})
    return text, shown


def _join(spans: list[Span]) -> None:
    """Two of one kind that touch are one."""
    last: dict[str, Span] = {}
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        if span.kind not in _SPLITTABLE:
            continue
        before = last.get(span.kind)
        if before is not None and span.start <= before.end:
            before.end = max(before.end, span.end)
            spans.remove(span)
        else:
            last[span.kind] = span


def _places(text: str) -> Callable[[int], int]:
    """From characters to UTF-16."""
    if text.isascii() or max(text) <= "\uffff":
        return lambda index: index
    sums = [0]
    for character in text:
        sums.append(sums[-1] + 1 + (character > "\uffff"))
    return lambda index: sums[index]
