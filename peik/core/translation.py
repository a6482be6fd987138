"""Sentences that Peik says in English, in the languages of its users. They are written once, where they arise, and may be stored
or come from another node; they are translated where they are shown."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources

import msgspec

from peik.core.catalogue import look_up

# What a row of `translations/*.toml` has: an English sentence in three languages, and the English of pages where that is plainer.
# Places stand as {}, or numbered as {1} where a language orders them otherwise. {0:раз|раза|раз} is the form of a Russian noun
# that goes with the number at that place: 1, 21; 2 to 4; 5 and more.
_ORDER = ("fa", "ru", "uz", "en")
_PLACE = re.compile(r"\{(\w*)\}")
_FORMS = re.compile(r"\{(\d+):([^{}|]+)\|([^{}|]+)\|([^{}|]+)\}")
_LETTERS = re.compile(r"[^\W\d_]")
_LETTERS_MIN = (
    6  # of a sentence with fewer letters of its own, what is put into it is one word: else it would fit anything
)
_RTL = frozenset({"fa"})
_DEPTH_MAX = 3  # a sentence may be put into another one
_STATUS = re.compile(
    r"(Bad Request|Unauthorized|Forbidden|Not Found|Conflict|Too Many Requests|Internal Server Error)\b(: .|\. |$)"
)
_CODES = {
    "Bad Request": 400, "Unauthorized": 401, "Forbidden": 403, "Not Found": 404, "Conflict": 409, "Too Many Requests": 429,
    "Internal Server Error": 500,
}  # fmt: skip


class Said(msgspec.Struct, frozen=True):
    """A sentence in a language, and Telegram's own words behind it, which are nobody's to translate."""

    text: str
    quote: str = ""

    @property
    def whole(self) -> str:
        return f"{self.text} (\u2068{self.quote}\u2069)" if self.quote else self.text


class _Pattern(msgspec.Struct, frozen=True):
    key: str
    longest: str  # piece of it: what lacks that does not fit
    regex: re.Pattern[str]


class Translations:
    def __init__(self, rows: Mapping[str, Sequence[str]]) -> None:
        self.rows = {key: dict(zip(_ORDER, row, strict=False)) for key, row in rows.items()}
        patterns = [_pattern(key) for key in rows if _PLACE.search(key)]
        self._patterns = sorted(patterns, key=lambda one: -len(_PLACE.sub("", one.key)))
        self._found = lru_cache(maxsize=4096)(self._look)

    def say(self, language: str, text: str) -> Said:
        """What nobody wrote a translation for stays as it is."""
        found = self._found(language, text, 0)
        if found is not None:
            return Said(found)
        if language != "en" and (told := _STATUS.match(text)) is not None:
            advice = look_up(code=_CODES[told[1]], words=text, method="sendMessage").advice
            return Said(self.text(language, advice), text.removesuffix(advice).rstrip(". "))
        return Said(self._in_parts(language, text, 0))

    def text(self, language: str, text: str) -> str:
        return self.say(language, text).whole

    def fill(self, language: str, key: str, *values: str) -> str:
        """A sentence by its English, with what is put into it, as it is."""
        return _filled(self.rows.get(key, {}).get(language, key), values)

    def _look(self, language: str, text: str, depth: int) -> str | None:
        row = self.rows.get(text)
        if row is not None and not _PLACE.search(text):
            return row.get(language, text)
        is_quote = (
            _STATUS.match(text) is not None
        )  # Telegram's words; what stands in one of our patterns is no part of them
        for one in self._patterns if depth < _DEPTH_MAX else ():
            if is_quote and not _STATUS.match(one.key):
                continue
            if one.longest in text and (told := one.regex.fullmatch(text)) is not None:
                values = [self._value(language, value, depth + 1) for value in told.groups()]
                return _filled(self.rows[one.key].get(language, one.key), values)
        return None

    def _value(self, language: str, text: str, depth: int) -> str:
        found = self._found(language, text, depth)
        if found is None and _STATUS.match(text):
            return self.say(language, text).whole
        if found is None:
            found = self._in_parts(language, text, depth)
        # Names and foreign words keep their order, and their dots, within a line from right to left.
        is_foreign = language in _RTL and found == text and re.search(r"[A-Za-z]", text)
        return f"\u2068{found}\u2069" if is_foreign else found

    def _in_parts(self, language: str, text: str, depth: int) -> str:
        """Of several sentences behind each other, each by itself."""
        parts = re.split(r"(?<=[.!?]) ", text)
        if len(parts) == 1:
            return text
        return " ".join(self._part(language, part, depth) for part in parts)

    def _part(self, language: str, part: str, depth: int) -> str:
        found = self._found(language, part, depth)
        if found is None and part.endswith(".") and (bare := self._found(language, part[:-1], depth)) is not None:
            return f"{bare}."
        return found or part


def _pattern(key: str) -> _Pattern:
    pieces = [piece for place, piece in enumerate(_PLACE.split(key)) if place % 2 == 0]
    is_told = len(_LETTERS.findall("".join(pieces))) >= _LETTERS_MIN or re.fullmatch(r"[a-z]{3,}: ", pieces[0])
    hole = r"(.*?)" if is_told else r"(\S*?)"
    regex = re.compile(hole.join(re.escape(piece) for piece in pieces), re.DOTALL)
    return _Pattern(key, max(pieces, key=len), regex)


def _filled(text: str, values: Sequence[str]) -> str:
    left = iter(values)

    def put(found: re.Match[str]) -> str:
        return values[int(found[1])] if found[1].isdigit() else next(left, found[0])

    return _PLACE.sub(put, _FORMS.sub(lambda found: found[2 + russian_form(values[int(found[1])])], text))


def russian_form(number: str) -> int:
    """Which of three forms of a noun stands behind a number. What is no whole number takes the last one."""
    if not number.isascii() or not number.isdigit():
        return 2
    last, teens = int(number) % 10, int(number) % 100 // 10 == 1
    if last == 1 and not teens:
        return 0
    return 1 if 2 <= last <= 4 and not teens else 2


@cache
def translations() -> Translations:
    """All files of the folder, read once. A sentence stands in one of them only."""
    rows: dict[str, Sequence[str]] = {}
    for path in sorted(resources.files("peik.core").joinpath("translations").iterdir(), key=lambda one: one.name):
        for key, row in tomllib.loads(path.read_text(encoding="utf-8")).items():
            assert key not in rows, f"{key!r} is in two files, one of them {path.name}"
            rows[key] = row
    return Translations(rows)
