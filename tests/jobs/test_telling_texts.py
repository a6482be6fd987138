"""The words of jobs: a user's own over the built-in ones, and a language that is older than jobs."""

import tomllib
from pathlib import Path

import pytest

from peik.core.notice import JOB_PLACES, JobWords
from peik.errors import StartError
from peik.inbox.texts import built_in, load_texts

TEXTS = load_texts(None)


def written(folder: Path, text: str) -> Path:
    path = folder / "texts.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_sentence_of_every_language_has_its_places() -> None:
    assert set(JOB_PLACES) == set(JobWords.__struct_fields__)
    for code in ("en", "fa", "ru", "uz"):
        words = tomllib.loads(built_in())[code]["jobs"]
        for name, places in JOB_PLACES.items():
            for sentence in words[name] if isinstance(words[name], list) else [words[name]]:
                assert all(f"{{{place}}}" in sentence for place in places), (code, name)


def test_a_file_changes_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    texts = load_texts(written(tmp_path, '[fa.jobs]\ndone = "تمام!"\n'))
    assert texts.words("fa").jobs.done == "تمام!"
    assert texts.words("fa").jobs.queued == TEXTS.words("fa").jobs.queued


def test_a_language_that_has_no_words_for_jobs_yet_speaks_of_them_in_english(tmp_path: Path) -> None:
    english = built_in().partition("[en]")[2].partition("[en.jobs]")[0]
    texts = load_texts(written(tmp_path, "[tg]" + english.replace("[en.names]", "[tg.names]")))
    assert texts.words("tg").jobs == TEXTS.words("en").jobs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[en.jobs]\ndone = "{percent}"', r"\[en\] jobs: done holds {percent}; between braces it may hold nothing"),
        ('[en.jobs]\nahead = "{who}"', r"jobs: ahead holds {who}; between braces it may hold {ahead}\."),
        ("[en.jobs]\nothers = []", "jobs: others has 0 forms"),
        ('[en.jobs]\nbegun = "x"', r"\[en\]: It contains unknown field begun"),
        ('[en]\njobs = "x"', r"\[en\]: Expected object, got str"),
    ],
)
def test_what_is_wrong_with_words_of_jobs_is_said_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=words):
        load_texts(written(tmp_path, text))
