"""The words of notices: the built-in ones, a user's own over them, and what is wrong with a file said plainly."""

from pathlib import Path

import pytest

from peik.core.notice import PLACES, NoticeWords, limited_text
from peik.errors import StartError
from peik.inbox.texts import load_texts
from tests.cli.shell import Shell


def written(folder: Path, text: str) -> Path:
    path = folder / "texts.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_changes_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    path = written(tmp_path, 'default = "uz"\n[en]\nlimited = "Slowly, please."\n[en.names]\nphoto = "picture"\n')
    texts, plain = load_texts(path), load_texts(None)
    assert limited_text(texts.words("en")) == "Slowly, please."
    assert texts.words("en").names == {**plain.words("en").names, "photo": "picture"}
    assert texts.words("en").again_one == plain.words("en").again_one
    assert texts.words("tg") == plain.words("uz")


def test_a_new_language_brings_all_of_its_words(tmp_path: Path) -> None:
    forms = ("minutes", "hours", "days", "more")
    lines = [f'{name} = ["{{n}} {name}"]' if name in forms else f'{name} = "{name}"' for name in PLACES]
    whole = "[TG]\n" + "\n".join(lines) + '\n[TG.names]\nother = "паём"\n'
    assert load_texts(written(tmp_path, whole)).words("tg-TJ").limited == "limited"
    with pytest.raises(StartError, match=r"texts.toml: \[TG\]: It missing required field limited"):
        load_texts(written(tmp_path, whole.replace('limited = "limited"\n', "")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[en", "texts.toml is not valid TOML"),
        ('[en]\nagain_one = "{name}"', r"\[en\] again_one holds {name}; between braces it may hold {away}, {quote}\."),
        ('[en]\nagain_one = "{quote!r}"', "again_one holds {quote!r}"),
        ('[en]\nagain_one = "{quote.__class__}"', "again_one holds {quote.__class__}"),
        ('[en]\nlimited = "a { b"', "limited: .*; write {{ and }} for braces"),
        ('[en]\nlimited = " "', "limited has 1 characters; it has 1 to 2000"),
        (f'[en]\nalert_now = "{"x" * 201}"', "alert_now has 201 characters; it has 1 to 200"),
        ('[en]\nagain = "x"', r"\[en\]: It contains unknown field again\. `peik config texts` prints"),
        ("[en]\nlimited = 5", r"\[en\]: Expected str, got int"),
        ('[en]\nmore = ["a", "b", "c", "d"]', "more has 4 forms; it is one, two .* or three"),
        ('[fa]\ndigits = "0123"', "digits has 4 characters"),
        ('[en.names]\nother = ""', "names needs other"),
        ('default = "tg"', "default = 'tg' is not one of the languages there are: en, fa, ru, uz"),
        ("deflaut = 3", r"\[deflaut\]: Expected object, got int"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=words):
        load_texts(written(tmp_path, text))


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"PEIK_TEXTS=.*nowhere.toml cannot be read: No such file"):
        load_texts(tmp_path / "nowhere.toml")


def test_config_texts_prints_words_that_can_be_read_again(tmp_path: Path) -> None:
    printed = Shell(tmp_path).peik("config", "texts").out
    assert load_texts(written(tmp_path, printed)) == load_texts(None)
    assert set(PLACES) < set(NoticeWords.__struct_fields__)
