"""The words of a text as a search knows them: one function for all archives, so that they find the same.

Case, diacritics and vowel signs do not matter, nor how a keyboard writes a letter: Arabic ي and ك are Persian ی and ک,
Russian yo is ye, every alef is one, digits of all scripts are 0 to 9. Half-spaces and other invisible characters are not
there at all.
"""

import re
import unicodedata

WORD_CHARS_MAX = 64  # the rest of a longer one does not matter; a database bounds them, too
WORDS_MAX = 5000  # of one text; Telegram's own longest has 4096 characters

# Letters of their own, though Unicode writes them with a mark: without it they would be other words.
_WHOLE = frozenset("йїў")
_ALIKE = {"ي": "ی", "ى": "ی", "ك": "ک", "ە": "ه", "ة": "ه", "ı": "i", "ـ": ""}  # noqa: RUF001  just these
# Scripts without spaces between words: every character is one.
_IDEOGRAPH = re.compile("([぀-ヿ㐀-䶿一-鿿豈-﫿\U00020000-\U0003ffff])")
_WORD = re.compile(r"[^\W_]+")


def words(text: str) -> list[str]:
    """Each once, in the order in which they come."""
    folded = text.lower() if text.isascii() else _folded(text)
    found = dict.fromkeys(word[:WORD_CHARS_MAX] for word in _WORD.findall(folded))
    return list(found)[:WORDS_MAX]


def _folded(text: str) -> str:
    return _IDEOGRAPH.sub(r" \1 ", unicodedata.normalize("NFC", text).translate(_TABLE))


class _Table(dict[int, str]):
    """What becomes of a character, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold(chr(code))
        return folded


def _fold(character: str) -> str:
    out: list[str] = []
    for one in unicodedata.normalize("NFKC", character).casefold():
        if one in _WHOLE:
            out.append(one)
            continue
        for part in unicodedata.normalize("NFD", one):
            category = unicodedata.category(part)
            if category[0] == "M" or category == "Cf":
                continue
            digit = unicodedata.digit(part, None)
            out.append(_ALIKE.get(part, part) if digit is None else str(digit))
    return "".join(out)


_TABLE = _Table()
