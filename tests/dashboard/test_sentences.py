"""One language at a time: every sentence that may come to a page is translated, and no page says two languages at once."""

import asyncio
import html.parser
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from peik.app.apis import API_CLASSES
from peik.core.translation import Said, Translations, translations
from peik.monitoring.pages import runbook
from peik.settings.table import SETTINGS, SettingGroup
from peik.web.dashboard.render import LANGUAGES, load
from peik.web.operations import declared
from tests.dashboard.furnishing import furnished
from tests.dashboard.screens import SIGN_IN, pages_of
from tests.dashboard.sentences import PEIK, source_sentences
from tests.dashboard.visiting import House

ROWS = translations().rows
OTHERS = tuple(language for language in LANGUAGES if language != "en")
_PLACE = re.compile(r"\{(\w*)\}")
# Words that are put into sentences stand in a file of their own.
_WORDS = PEIK / "core" / "translations" / "words.toml"
# Of English, what the other three never have.
_ENGLISH = re.compile(
    r"(?<![/=._-])\b(the|is|are|was|were|of|and|not|with|this|that|it|its|has|have|cannot|for|from|to|by|no|an|be|at|on|or|in)\b(?![/=._-])"
)


def test_every_sentence_of_the_code_is_translated() -> None:
    missing = {text: file for text, file in source_sentences().items() if text not in ROWS}
    assert not missing, f"write them in peik/core/translations: {missing}"


def test_every_setting_and_its_group_is_explained_in_every_language() -> None:
    told = [setting.help for setting in SETTINGS] + [str(one.group) for one in SETTINGS]
    assert [text for text in told if text not in ROWS] == []


def test_no_translation_is_of_a_sentence_that_nobody_says() -> None:
    said = {*source_sentences(), *(setting.help for setting in SETTINGS), *SettingGroup}
    assert sorted(set(ROWS) - said - set(tomllib.loads(_WORDS.read_text(encoding="utf-8")))) == []


def test_every_translation_is_whole() -> None:
    wrong = {text: told for text, row in ROWS.items() for told in _faulty(text, row)}
    assert wrong == {}


def _faulty(text: str, row: dict[str, str]) -> list[str]:
    """Those that lack a place, or are still English."""
    places, found = _PLACE.findall(text), [f"no {language}" for language in OTHERS if language not in row]
    for language, told in row.items():
        filled = _PLACE.findall(told)
        numbers = [int(one) for one in filled if one.isdigit()]
        plain = re.sub(r"`[^`]*`|[a-z+]+://\S+|<[^>]*>", "", told)
        is_english = language != "en" and re.search(r"\b(the|is|are|was|not|and|with)\b", plain) is not None
        if len(filled) != len(places) or max(numbers, default=-1) >= len(places) or is_english or not told.strip(" "):
            found.append(told)
    return found


def test_every_deed_of_the_audit_log_has_a_name() -> None:
    operations = [found for one in API_CLASSES for name in dir(one) if (found := _declared(getattr(one, name)))]
    audited = {one.name for one in operations if one.verb != "GET" and not one.is_traffic}
    pages = [path.read_text(encoding="utf-8") for path in PEIK.rglob("*.py") if path.stem.startswith("pages")]
    audited |= {
        name for text in pages for name in re.findall(r'"POST",\s*f?"[^"]*",[^"]*Role\.\w+,\s*"([a-z_.]+)"', text)
    }
    assert len(audited) > 100
    assert sorted(name for name in audited if f"action_{name}" not in load()) == []


def _declared(found: Any) -> Any:
    try:
        return declared(found)
    except (AttributeError, KeyError, TypeError):
        return None


@pytest.mark.parametrize("language", OTHERS)
def test_the_runbook_is_whole_in_every_language(language: str) -> None:
    told, english = runbook(language), runbook("en")
    assert list(told) == list(english)
    for name, section in english.items():
        ours = "".join((*told[name].paragraphs, *told[name].points))
        theirs = "".join((*section.paragraphs, *section.points))
        assert len(told[name].points) == len(section.points), name
        for commands in (r"PEIK_[A-Z_]+", r"<code[^>]*>(.+?)</code>", r'href="([^"]+)"'):
            assert sorted(re.findall(commands, ours)) == sorted(re.findall(commands, theirs)), name


# ---- how it is done ----


def test_what_is_put_into_a_sentence_finds_its_place_in_every_language() -> None:
    made = Translations(
        {
            "Message {} goes before it, for {}.": [
                "پیش از آن {0} تا {1}.",
                "{1}: {0}.",
                "{} {}.",
                "Message {} is before it, {}.",
            ],
            "{} hours": ["{} ساعت", "{} ч", "{} soat"],
            "{} is {}": ["{} است {}", "{} = {}", "{}: {}"],
        }
    )
    text = "Message 5 goes before it, for 3 hours."
    assert made.text("fa", text) == "پیش از آن 5 تا 3 ساعت."
    assert made.text("ru", text) == "3 ч: 5."
    assert made.text("en", text) == "Message 5 is before it, 3 hours."
    assert made.text("ru", "a = b is what nobody foresaw") == "a = b is what nobody foresaw"  # it would fit anything
    assert made.text("fa", f"{text} Nobody wrote this.") == "پیش از آن 5 تا 3 ساعت. Nobody wrote this."


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("1", "1 сообщение"),
        ("2", "2 сообщения"),
        ("5", "5 сообщений"),
        ("11", "11 сообщений"),
        ("21", "21 сообщение"),
        ("24", "24 сообщения"),
        ("112", "112 сообщений"),
        ("many", "many сообщений"),
    ],
)
def test_a_russian_noun_goes_with_its_number(number: str, said: str) -> None:
    made = Translations({"{} letters": ["{}", "{} {0:сообщение|сообщения|сообщений}", "{}"]})
    assert made.fill("ru", "{} letters", number) == said


def test_an_alert_counts_in_russian() -> None:
    text = (
        "bot 7: 3 updates could not be handled by default and became dead arrivals; the last one is 35 (message): ValueError. "
        "Read them, mend the cause, and retry them: see inbox.md."
    )
    assert "не смог обработать 3 обновления" in translations().text("ru", text)
    assert "упал 22 раза подряд" in translations().text(
        "ru", "its poller died 22 times in a row with only this update in hand"
    )


def test_names_within_a_line_from_right_to_left_keep_their_order() -> None:
    text = "route proxy.example does not answer: nobody. Peik asks it again and again; letters take another one."
    assert "\u2068proxy.example\u2069" in translations().text("fa", text)
    assert "\u2068" not in translations().text("ru", text)
    command = translations().text("fa", "Sign it in: peik sessions sign-in grace")
    assert command.endswith("\u2066peik sessions sign-in \u2068grace\u2069\u2069")


def test_telegrams_words_stay_and_what_they_mean_is_told_before_them() -> None:
    said = translations().say("ru", "Forbidden: bot was blocked by the user")
    assert said == Said(
        "Пользователь заблокировал бота; чат откроется, когда он снимет блокировку.",
        "Forbidden: bot was blocked by the user",
    )
    assert (
        translations().text("en", "Forbidden: bot was blocked by the user") == "Forbidden: bot was blocked by the user"
    )


@pytest.mark.parametrize("language", OTHERS)
def test_telegrams_words_are_not_taken_apart_by_a_sentence_of_ours(language: str) -> None:
    """`{} not found` is one of ours."""
    said = translations().say(language, "Bad Request: chat not found")
    assert said.quote == "Bad Request: chat not found"
    assert "Bad Request" not in said.text


# ---- on the pages ----


class _Spoken(html.parser.HTMLParser):
    """What a page says in its own words: not what people wrote, nor names, nor what is marked as another language."""

    SILENT = frozenset({"code", "pre", "script", "style", "textarea", "svg"})
    VOID = frozenset({"input", "br", "img", "hr", "meta", "link"})

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self._open: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, given: list[tuple[str, str | None]]) -> None:
        values = dict(given)
        is_foreign = values.get("lang") == "en" or values.get("dir") == "ltr" or "data-own" in values
        is_silent = tag in self.SILENT or (is_foreign and tag != "html")
        if tag not in self.VOID:
            self._open.append((tag, is_silent))
        self.said += [
            values[name] or "" for name in ("title", "aria-label", "placeholder") if values.get(name) and not is_silent
        ]

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if data.strip() and not any(is_silent for _, is_silent in self._open):
            self.said.append(" ".join(data.split()))


# What people and their programs said in the demo, in English.
_OWN = re.compile(
    r"There is no month|The file is no picture|^Thanks for writing!|^The code to sign in|^(<b>Sent</b> )?Your (order|parcel)"
    r"|^I would like to return the blue one|Pallet 14 is in|^We are open|^Peik: a new error"
)


def english_in(body: str) -> list[str]:
    page = _Spoken()
    page.feed(body)
    return [text for text in page.said if len(_ENGLISH.findall(_OWN.sub("", text))) > 1 and not _OWN.match(text)]


def test_english_is_seen_where_it_is() -> None:
    assert english_in('<p>نام the store is full <code>it is not</code></p><p title="it is on">x</p>') == [
        "نام the store is full",
        "it is on",
    ]


@pytest.mark.gate  # all pages of a full house, in three languages
def test_no_page_says_two_languages_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        found: dict[str, list[str]] = {}
        async with furnished(tmp_path) as demo:
            house = House(demo.url, demo.runtime, demo.sim, demo.dashboard, [])
            async with house.visitor() as visitor:
                for language in OTHERS:
                    await visitor.get(f"/admin?lang={language}")
                    for name, path in pages_of(demo).items():
                        page = await visitor.get(path) if path != SIGN_IN else None
                        if page is not None and (english := english_in(page.body)):
                            found[f"{name} in {language}"] = list(dict.fromkeys(english))
        assert found == {}

    asyncio.run(story())
