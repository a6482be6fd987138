"""Notices as people read them, mark by mark, in four languages."""

# ruff: noqa: RUF001 - Persian and Uzbek are written with their own letters

import msgspec
import pytest

from peik.core.missed import MissedMessage, MissedNotice
from peik.core.notice import ALERT_MAX, Texts, alert_text, away_words, beginning, limited_text, notice_text, quoted
from peik.inbox.texts import load_texts

TEXTS: Texts = load_texts(None)
HOURS_3 = 3 * 3600.0
FSI, PDI, RLM = "\u2068", "\u2069", "\u200f"


def notice(text: str | None = "Hello", *, more: int = 0, **fields: str) -> MissedNotice:
    return MissedNotice(first=MissedMessage(number=1, chat=1, may_tell=True, text=text, **fields), more=more)


@pytest.mark.parametrize(
    ("language", "is_handled", "more", "expected"),
    [
        (
            "en", False, 0,
            ("We received your message: “\u2068Hello\u2069”\n"
            "The bot was offline for about 3 hours and could not handle it. Please send it again."),
        ),
        (
            "en", True, 2,
            ("We received your messages: “\u2068Hello\u2069” and 2 more\n"
            "The bot was offline for about 3 hours. It is back and is handling your messages now."),
        ),
        (
            "fa", False, 0,
            ("پیام شما دریافت شد: «\u2068Hello\u2069»\n"
            "ربات حدود ۳ ساعت آفلاین بود و نتوانست به آن رسیدگی کند. لطفاً دوباره آن را بفرستید."),
        ),
        (
            "fa-IR", True, 12,
            ("پیام‌های شما دریافت شد: «\u2068Hello\u2069» و ۱۲ پیام دیگر\n"
            "ربات حدود ۳ ساعت آفلاین بود و اکنون در حال رسیدگی به پیام‌های شماست."),
        ),
        (
            "ru", False, 3,
            ("Мы получили ваши сообщения: «\u2068Hello\u2069» и ещё 3 сообщения\n"
            "Бот был офлайн примерно 3 часа и не смог их обработать. Пожалуйста, отправьте их ещё раз."),
        ),
        (
            "ru", True, 0,
            ("Мы получили ваше сообщение: «\u2068Hello\u2069»\n"
            "Бот был офлайн примерно 3 часа. Он снова на связи и уже обрабатывает ваше сообщение."),
        ),
        (
            "uz", False, 0,
            ("Xabaringiz qabul qilindi: “\u2068Hello\u2069”\n"
            "Bot taxminan 3 soat davomida oflayn edi va xabaringizga javob bera olmadi. Iltimos, uni qayta yuboring."),
        ),
        (
            "uz", True, 1,
            ("Xabarlaringiz qabul qilindi: “\u2068Hello\u2069” va yana 1 ta xabar\n"
            "Bot taxminan 3 soat davomida oflayn edi. Endi u yana ishlayapti va xabarlaringiz koʻrib chiqilmoqda."),
        ),
    ],
)  # fmt: skip
def test_a_notice_reads_so(language: str, is_handled: bool, more: int, expected: str) -> None:
    shown = notice_text(notice(more=more), TEXTS.words(language), is_handled=is_handled, away_s=HOURS_3)
    assert shown == expected


@pytest.mark.parametrize(
    ("code", "language"),
    [("fa", "fa"), ("FA_ir", "fa"), ("uz-Latn", "uz"), ("tg", "en"), ("az", "en"), (None, "en"), ("", "en")],
)
def test_the_language_is_the_senders_or_the_default(code: str | None, language: str) -> None:
    assert TEXTS.words(code) is TEXTS.languages[language]


@pytest.mark.parametrize("language", ["en", "fa", "ru", "uz"])
def test_every_language_has_all_it_needs(language: str) -> None:
    words = TEXTS.words(language)
    for is_handled in (True, False):
        alert = alert_text(words, is_handled=is_handled, away_s=99 * 86400)
        assert 0 < len(alert) <= ALERT_MAX
        assert "{" not in alert + notice_text(notice(query_id="1"), words, is_handled=is_handled, away_s=60)
    assert limited_text(words)
    assert words.names.keys() == TEXTS.words("en").names.keys()


@pytest.mark.parametrize(
    ("away_s", "english", "russian", "persian"),
    [
        (61, "1 minute", "1 минуту", "۱ دقیقه"),
        (120, "2 minutes", "2 минуты", "۲ دقیقه"),
        (11 * 60, "11 minutes", "11 минут", "۱۱ دقیقه"),
        (21 * 60, "21 minutes", "21 минуту", "۲۱ دقیقه"),
        (90 * 60, "2 hours", "2 часа", "۲ ساعت"),
        (25 * 3600, "25 hours", "25 часов", "۲۵ ساعت"),
        (72 * 3600, "3 days", "3 дня", "۳ روز"),
        (5 * 86400, "5 days", "5 дней", "۵ روز"),
    ],
)
def test_how_long_is_said_roughly_and_in_the_right_form(
    away_s: float, english: str, russian: str, persian: str
) -> None:
    assert [away_words(away_s, TEXTS.words(code)) for code in ("en", "ru", "fa")] == [english, russian, persian]


@pytest.mark.parametrize(
    ("more", "form"), [(1, "сообщение"), (2, "сообщения"), (5, "сообщений"), (11, "сообщений"), (21, "сообщение")]
)
def test_russian_counts_in_three_forms(more: int, form: str) -> None:
    shown = notice_text(notice(more=more), TEXTS.words("ru"), is_handled=True, away_s=60)
    assert f" и ещё {more} {form}\n" in shown


FAMILY = "👨\u200d👩\u200d👧"
FLAG = "🇮🇷"
THUMB = "👍🏽"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 50, "x" * 50),
        ("x" * 51, "x" * 50 + "…"),
        ("x" * 49 + " and more", "x" * 49 + "…"),  # no blank before the dots
        ("x" * 49 + FAMILY + "y", "x" * 49 + FAMILY + "…"),
        ("x" * 50 + FAMILY, "x" * 50 + "…"),
        (FLAG * 51, FLAG * 50 + "…"),
        ("x" * 49 + THUMB + "y", "x" * 49 + THUMB + "…"),
        ("e\u0301" * 51, "e\u0301" * 50 + "…"),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_a_quote_is_fifty_characters_and_cuts_none_in_two(text: str, expected: str) -> None:
    assert beginning(text) == expected


def test_a_few_letters_with_hundreds_of_marks_do_not_fill_the_notice() -> None:
    assert len(beginning("z" + "\u0335" * 4000)) < 300


def test_a_quote_cannot_turn_or_break_what_stands_around_it() -> None:
    words = TEXTS.words("en")
    assert quoted("a\u202eb\u2069c\u2068d\n\n<b>{quote}</b>", "text", words) == f"“{FSI}abcd <b>{{quote}}</b>{PDI}”"
    assert quoted(" \n ", "photo", words) == "photo"
    assert quoted(None, "dice", TEXTS.words("fa")) == "پیام"


def test_a_persian_line_that_does_not_begin_with_a_letter_of_its_own_is_told_its_direction() -> None:
    words = msgspec.structs.replace(
        TEXTS.words("fa"), again_one="{quote}\n{away} آفلاین بود\nربات", names={"other": "GIF"}
    )
    shown = notice_text(notice("سلام"), words, is_handled=False, away_s=60)
    assert shown == f"{RLM}«{FSI}سلام{PDI}»\n{RLM}۱ دقیقه آفلاین بود\nربات"
    shown = notice_text(notice(None), words, is_handled=False, away_s=60)
    assert shown.startswith(f"{RLM}GIF\n")
