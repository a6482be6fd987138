"""Words as people mean them when they look for something: without regard to case, to keyboards that write the same letter in two
ways, to joiners that nobody sees, and to digits. Pure."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgspec

NEEDLES_MAX = 8
_DEPTH_MAX = 20
CHARS_KEPT_MAX = 20_000
_UNSAID = frozenset({"parse_mode", "type"})  # values that name something, and say nothing
_SAME = {
    **dict(zip("يىئۍێ", "ییییی", strict=True)),
    **dict(zip("كڪ", "کک", strict=True)),
    **dict(zip("ةۀۂہە", "ههههه", strict=True)),  # noqa: RUF001
    **dict(zip("أإآٱ", "اااا", strict=True)),  # noqa: RUF001
    "ؤ": "و",
    "\u0640": "",  # a letter drawn long
    "ё": "е",  # noqa: RUF001
    **dict.fromkeys("ʻʼ‘’`´", "'"),  # noqa: RUF001  as Uzbeks type the same sign
}
# A joiner between two parts of a Persian word, a blank there, and nothing are the same to whoever looks for it.
_BETWEEN = re.compile(r"(?<=[\u0600-\u06ff])[ \u00a0]+(?=[\u0600-\u06ff])")


class _Folds(dict[int, str]):
    """What each character is compared as, found out when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        found = _SAME.get(char)
        if found is None:
            match unicodedata.category(char):
                case "Cf" | "Mn":  # joiners, marks of direction, vowel signs
                    found = ""
                case "Nd":
                    found = str(unicodedata.decimal(char))
                case _:
                    found = char
        if len(self) < CHARS_KEPT_MAX:
            self[code] = found
        return found


_FOLDS = _Folds()


def folded(text: str) -> str:
    """The text as it is compared."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return plain if plain.isascii() else _BETWEEN.sub("", plain.translate(_FOLDS))


def needles_of(text: str) -> tuple[str, ...]:
    """What all has to be found: each word by itself."""
    words = (folded(word) for word in text.split()[:NEEDLES_MAX])
    return tuple(dict.fromkeys(word for word in words if word))


def is_found(needles: tuple[str, ...], *texts: str | None) -> bool:
    """Whether every needle stands somewhere in these texts."""
    whole = folded("\n".join(text for text in texts if text))
    return bool(needles) and all(needle in whole for needle in needles)


def said_in(params: str | bytes) -> str:
    """All texts of a call or an update, one per line. Names of parameters are none of them."""
    try:
        value: Any = msgspec.json.decode(params)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return "\n".join(_texts(value, _DEPTH_MAX))


def _texts(value: object, depth: int) -> Iterator[str]:
    if depth <= 0:
        return
    if isinstance(value, str):
        inner = _inner(value)
        if inner is None:
            yield value
        else:
            yield from _texts(inner, depth - 1)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name not in _UNSAID:
                yield from _texts(one, depth - 1)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, depth - 1)


def _inner(text: str) -> object:
    """A parameter may be JSON within a string; its names are no words either."""
    if text[:1] not in "[{":
        return None
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value
