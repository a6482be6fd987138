"""The words that people read after an outage: quotes, numbers and directions of writing put together. Pure text.

Sentences come from a file that users can change (`peik/inbox/notices.toml`). Nothing here is markup: a notice is sent
without a parse mode, so that nothing in a quote can break it.
"""

import string
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from peik.core.missed import MissedNotice

# The words in which people hear how their job goes, of one language.


# What each sentence may hold between braces.
JOB_PLACES: Mapping[str, frozenset[str]] = {
    "queued": frozenset(),
    "next": frozenset(),
    "ahead": frozenset({"ahead"}),
    "ahead_about": frozenset({"ahead", "wait"}),
    "later": frozenset({"wait"}),
    "working": frozenset(),
    "progress": frozenset({"bar", "percent"}),
    "done": frozenset(),
    "failed": frozenset(),
    "failed_why": frozenset({"why"}),
    "cancelled": frozenset(),
    "percent": frozenset({"n"}),
    "others": frozenset({"n"}),
}


class JobWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queued: str  # the first that people see of a job
    next: str
    ahead: str
    ahead_about: str
    later: str  # it was put off, or is tried again
    working: str
    progress: str
    done: str
    failed: str
    failed_why: str
    cancelled: str
    percent: str
    others: tuple[str, ...]  # how many are ahead, as forms for numbers


QUOTE_MAX = 50  # characters, as people count them
_QUOTE_POINTS_MAX = 250  # code points: a few letters can wear hundreds of marks

FSI, PDI = "\u2068", "\u2069"  # what stands between them has a direction of its own, and disturbs none around it
RLM = "\u200f"
_JOINER = "\u200d"
# Controls that could reach beyond the quote. ZWNJ, ZWJ and the plain marks stay: Persian and emoji need them.
_UNWANTED = {ord(mark): None for mark in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}

# What each sentence may hold between braces.
PLACES: dict[str, frozenset[str]] = {
    "again_one": frozenset({"quote", "away"}),
    "again_many": frozenset({"quote", "more", "away"}),
    "again_press": frozenset({"away"}),
    "now_one": frozenset({"quote", "away"}),
    "now_many": frozenset({"quote", "more", "away"}),
    "now_press": frozenset({"away"}),
    "alert_again": frozenset({"away"}),
    "alert_now": frozenset({"away"}),
    "limited": frozenset(),
    "minutes": frozenset({"n"}),
    "hours": frozenset({"n"}),
    "days": frozenset({"n"}),
    "more": frozenset({"n"}),
}
ALERT_MAX = 200  # characters of an answer to a button press
SENTENCE_MAX = 2000  # with quote and figures it still fits into one message
OTHER = "other"


class NoticeWords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One language. Of forms for numbers there are one, two (1, others) or three (1, 2, 5 as in Russian)."""

    again_one: str
    again_many: str
    again_press: str
    now_one: str
    now_many: str
    now_press: str
    alert_again: str
    alert_now: str
    limited: str
    minutes: tuple[str, ...]
    hours: tuple[str, ...]
    days: tuple[str, ...]
    more: tuple[str, ...]
    names: Mapping[str, str]  # of media without text
    jobs: JobWords
    quotes: tuple[str, str] = ("“", "”")
    digits: str = "0123456789"
    is_rtl: bool = False


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """Every language that notices can be written in."""

    default: str
    languages: Mapping[str, NoticeWords]

    def words(self, language_code: str | None) -> NoticeWords:
        """fa-IR finds fa; what is not known finds the default."""
        code = (language_code or "").lower().replace("_", "-")
        found = self.languages.get(code) or self.languages.get(code.partition("-")[0])
        return self.languages[self.default] if found is None else found


def notice_text(notice: MissedNotice, words: NoticeWords, *, is_handled: bool, away_s: float) -> str:
    """A chat's notice. `is_handled`: what was missed is being handled now; else it has to be sent again."""
    how = "press" if notice.first.query_id is not None else "many" if notice.more else "one"
    template: str = getattr(words, f"{'now' if is_handled else 'again'}_{how}")
    return _filled(
        template,
        words,
        quote=quoted(notice.first.text, notice.first.content, words),
        more=counted(notice.more, words.more, words),
        away=away_words(away_s, words),
    )


def alert_text(words: NoticeWords, *, is_handled: bool, away_s: float) -> str:
    """The answer to a press, which Telegram shows in a small window."""
    filled = _filled(words.alert_now if is_handled else words.alert_again, words, away=away_words(away_s, words))
    return filled[:ALERT_MAX]


def limited_text(words: NoticeWords) -> str:
    """For somebody who writes faster than updates are delivered."""
    return _filled(words.limited, words)


def away_words(away_s: float, words: NoticeWords) -> str:
    """About how long: minutes up to an hour and a half, hours up to a day and a half, then days."""
    if away_s < 90 * 60:
        return counted(max(round(away_s / 60), 1), words.minutes, words)
    if away_s < 36 * 3600:
        return counted(round(away_s / 3600), words.hours, words)
    return counted(round(away_s / 86400), words.days, words)


def counted(count: int, forms: Sequence[str], words: NoticeWords) -> str:
    """A number with its noun in the right form and the language's own digits."""
    shown = str(count).translate({ord("0") + place: digit for place, digit in enumerate(words.digits)})
    return put_in(forms[_form(count, len(forms))], {"n": shown})


def _form(count: int, forms: int) -> int:
    if forms == 1:
        return 0
    if forms == 2:
        return 0 if count == 1 else 1
    if count % 10 == 1 and count % 100 != 11:
        return 0
    return 1 if 2 <= count % 10 <= 4 and not 12 <= count % 100 <= 14 else 2


def put_in(template: str, values: Mapping[str, str]) -> str:
    """The template with its {places} filled. What is put in is never read as a template."""
    return "".join(
        literal + ("" if place is None else values[place])
        for literal, place, _, _ in string.Formatter().parse(template)
    )


def places_of(template: str) -> list[str]:
    """The names between braces, with whatever follows them there. Raises ValueError if a brace stands alone."""
    return [
        place + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
        for _, place, form, conversion in string.Formatter().parse(template)
        if place is not None
    ]


# ---- quotes ----


def quoted(text: str | None, content: str, words: NoticeWords) -> str:
    """The beginning of a message between quotation marks, isolated; or what kind of media it was."""
    plain = one_line(text or "")
    if not plain:
        return words.names.get(content, words.names[OTHER])
    opening, closing = words.quotes
    return f"{opening}{FSI}{beginning(plain)}{PDI}{closing}"


def one_line(text: str) -> str:
    """Somebody's text in one line, and without what could reach beyond it."""
    return " ".join(text.translate(_UNWANTED).split())


def beginning(text: str, length: int = QUOTE_MAX) -> str:
    """The first characters as people count them: letters keep their marks, and an emoji is never cut in two."""
    taken: list[str] = []
    points = 0
    for character in characters(text):
        points += len(character)
        if len(taken) == length or points > _QUOTE_POINTS_MAX:
            return "".join(taken).rstrip() + "…"
        taken.append(character)
    return "".join(taken)


def characters(text: str) -> Iterator[str]:
    """Groups of code points that are shown as one, near enough to Unicode's rules for a quote."""
    current = ""
    flags = 0  # regional indicators at the end of `current`: two of them are one flag
    for point in text:
        is_flag = "\U0001f1e6" <= point <= "\U0001f1ff"
        if current and (_joins(point) or current[-1] == _JOINER or (is_flag and flags % 2 == 1)):
            current += point
        else:
            if current:
                yield current
            current = point
            flags = 0
        flags = flags + 1 if is_flag else 0
    if current:
        yield current


def _joins(point: str) -> bool:
    """Whether it belongs to what stands before it: marks, joiners, skin tones, and the letters of regional flags."""
    return (
        point in ("\u200c", _JOINER)
        or unicodedata.category(point) in ("Mn", "Mc", "Me")
        or "\U0001f3fb" <= point <= "\U0001f3ff"
        or "\U000e0020" <= point <= "\U000e007f"
    )


# ---- directions ----


def _filled(template: str, words: NoticeWords, **values: str) -> str:
    return directed(put_in(template, values).strip(), words)


def directed(text: str, words: NoticeWords) -> str:
    """The text with every line in the language's direction."""
    return "\n".join(map(_pointed, text.split("\n"))) if words.is_rtl else text


def _pointed(line: str) -> str:
    """A line that is read from the right. Telegram takes the direction of a line from its first letter, so that one that
    begins with a quotation mark, a figure or a foreign word is told its direction first."""
    is_clear = not line or unicodedata.bidirectional(line[0]) in ("R", "AL")
    return line if is_clear else RLM + line
