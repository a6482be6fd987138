"""parse_mode as far as a sender can get it wrong: the plain text that a chat sees, or Telegram's "can't parse entities"."""

import html
import re

from peik.testing.answer import Refusal, bad

_TAGS = frozenset(
    {
        "b",
        "strong",
        "i",
        "em",
        "u",
        "ins",
        "s",
        "strike",
        "del",
        "span",
        "tg-spoiler",
        "tg-emoji",
        "tg-time",
        "a",
        "code",
    }
    | {"pre", "blockquote"}
)
_TAG = re.compile(r"<(/?)([^\s<>/]*)([^<>]*)>?")
_RESERVED = frozenset("_*[]()~`>#+-=|{}.!")


def plain(text: str, parse_mode: str) -> str:
    """The text without its markup. Raises the refusal for markup that is clearly broken."""
    match parse_mode.lower():
        case "":
            return text
        case "html":
            return _html(text)
        case "markdown":
            return _markdown(text)
        case "markdownv2":
            return _markdown_v2(text)
        case _:
            raise bad("unsupported parse_mode")


def _broken(why: str) -> Refusal:
    return bad(f"can't parse entities: {why}")


def _offset(text: str, index: int) -> int:
    return len(text[:index].encode())


def _html(text: str) -> str:
    open_tags: list[str] = []
    parts: list[str] = []
    index = 0
    while (start := text.find("<", index)) >= 0:
        parts.append(text[index:start])
        match = _TAG.match(text, start)
        assert match is not None
        closing, name, _ = match.groups()
        name = name.lower()
        if not closing and name not in _TAGS:
            raise _broken(f'Unsupported start tag "{name}" at byte offset {_offset(text, start)}')
        if not match[0].endswith(">"):
            raise _broken(f"Unclosed start tag at byte offset {_offset(text, start)}")
        if closing:
            if not open_tags:
                raise _broken(f"Unexpected end tag at byte offset {_offset(text, start)}")
            if name and name != open_tags[-1]:
                raise _broken(
                    f'Unmatched end tag at byte offset {_offset(text, start)}, expected "</{open_tags[-1]}>", found "</{name}>"'
                )
            open_tags.pop()
        else:
            open_tags.append(name)
        index = match.end()
    parts.append(text[index:])
    if open_tags:
        raise _broken(f'Can\'t find end tag corresponding to start tag "{open_tags[-1]}"')
    return html.unescape("".join(parts))


def _markdown(text: str) -> str:
    """The first Markdown: no nesting, and a backslash frees the four marks."""
    parts: list[str] = []
    index = 0
    while index < len(text):
        mark = text[index]
        if mark == "\\" and text[index + 1 : index + 2] in {"_", "*", "`", "["}:
            parts.append(text[index + 1])
            index += 2
            continue
        if mark not in "_*`[":
            parts.append(mark)
            index += 1
            continue
        fence = "```" if text.startswith("```", index) else "]" if mark == "[" else mark
        start = index + (3 if fence == "```" else 1)
        end = text.find(fence, start)
        if end < 0:
            raise _broken(f"Can't find end of the entity starting at byte offset {_offset(text, index)}")
        parts.append(text[start:end])
        index = end + len(fence)
        if mark == "[" and text.startswith("(", index):
            index = max(text.find(")", index), index) + 1
    return "".join(parts)


_V2_MARKS = ("```", "||", "__", "*", "_", "~", "`", "[", "]")


def _markdown_v2(text: str) -> str:
    """MarkdownV2: marks nest, and every other reserved character must be escaped."""
    open_marks: list[tuple[str, int]] = []
    parts: list[str] = []
    index = 0
    while index < len(text):
        character = text[index]
        if character == "\\" and index + 1 < len(text) and ord(text[index + 1]) < 128:
            parts.append(text[index + 1])
            index += 2
            continue
        inside = open_marks[-1][0] if open_marks else ""
        if inside in {"`", "```"} and not text.startswith(inside, index):
            parts.append(character)
            index += 1
            continue
        is_quote = (character == ">" or text.startswith("**>", index)) and (index == 0 or text[index - 1] == "\n")
        if is_quote:
            index += 3 if character == "*" else 1
            continue
        mark = next((mark for mark in _V2_MARKS if text.startswith(mark, index)), "")
        if mark == "||" and inside != "||" and text[index + 2 : index + 3] in {"", "\n"}:
            index += 2  # the end of an expandable quote
        elif mark:
            index = _v2_mark(text, index, mark, open_marks)
        elif character in _RESERVED and not text.startswith("![", index):
            raise _broken(f"Character '{character}' is reserved and must be escaped with the preceding '\\'")
        else:
            if character != "!":
                parts.append(character)
            index += 1
    if open_marks:
        mark, start = open_marks[-1]
        raise _broken(f"Can't find end of {_NAMES[mark]} entity at byte offset {_offset(text, start)}")
    return "".join(parts)


_NAMES = {
    "```": "Pre", "||": "Spoiler", "__": "Underline", "*": "Bold", "_": "Italic", "~": "Strikethrough",
    "`": "Code", "[": "TextUrl",
}  # fmt: skip


def _v2_mark(text: str, index: int, mark: str, open_marks: list[tuple[str, int]]) -> int:
    """Open or close one mark; the index behind it."""
    opener = "[" if mark == "]" else mark
    if open_marks and open_marks[-1][0] == opener and mark != "[":
        open_marks.pop()
        index += len(mark)
        if mark == "]" and text.startswith("(", index):
            end = text.find(")", index)
            if end < 0:
                raise _broken(f"Can't find end of a URL at byte offset {_offset(text, index)}")
            index = end + 1
        return index
    if mark == "]":
        raise _broken("Character ']' is reserved and must be escaped with the preceding '\\'")
    open_marks.append((mark, index))
    return index + len(mark)
