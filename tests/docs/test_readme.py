"""README.md and its sisters in three languages say the same, and what they say of other pages is what those say."""

import json
import re

import pytest

from tests.docs.pages import ROOT, blocks, headings, links, prose, read
from tests.docs.test_links import targets

ENGLISH = "README.md"
LANGUAGES = ("fa", "ru", "uz")
SISTERS = [f"README.{language}.md" for language in LANGUAGES]
WORDS_MAX = 950  # one screen and a half
each_sister = pytest.mark.parametrize("sister", SISTERS)


def without_comments(code: str) -> list[str]:
    return [re.sub(r"\s+# .*$", "", line) for line in code.splitlines()]


def test_it_is_read_in_three_minutes() -> None:
    assert len(read(ENGLISH).split()) <= WORDS_MAX


def test_there_is_one_in_each_language_of_the_dashboard() -> None:
    assert sorted(path.name for path in ROOT.glob("README*.md")) == sorted([ENGLISH, *SISTERS])
    for name in (ENGLISH, *SISTERS):
        assert {one for one in links(name) if one.startswith("README")} == {ENGLISH, *SISTERS} - {name}


@each_sister
def test_headings_are_of_the_same_levels_in_the_same_order(sister: str) -> None:
    assert [level for level, _ in headings(ENGLISH)] == [level for level, _ in headings(sister)]
    assert len(headings(ENGLISH)) > 5


@each_sister
def test_commands_and_code_are_the_same_but_for_their_comments(sister: str) -> None:
    languages = ("", "sh", "python", "js")
    english, other = ([without_comments(block) for block in blocks(name, *languages)] for name in (ENGLISH, sister))
    assert english == other
    assert ["make demo", "make test"] in english


@each_sister
def test_tables_have_the_same_rows_and_the_same_links(sister: str) -> None:
    assert rows(ENGLISH) == rows(sister)


@each_sister
def test_lists_have_the_same_points_and_the_same_links(sister: str) -> None:
    assert points(ENGLISH) == points(sister)


def rows(name: str) -> list[tuple[int, list[str]]]:
    """Of each row the number of its cells, and the links in it, in order."""
    lines = (line for line in prose(name) if line.startswith("|"))
    return [(line.count("|"), re.findall(r"\]\(([^)]+)\)", line)) for line in lines]


def points(name: str) -> list[list[str]]:
    return [re.findall(r"\]\(([^)]+)\)", one) for one in re.findall(r"^- (.+(?:\n  .+)*)", read(name), re.MULTILINE)]


@each_sister
def test_what_one_links_to_the_other_does_too(sister: str) -> None:
    def others(name: str) -> set[tuple[str, str]]:
        return {one for one in targets(name) if not one[0].startswith(("README", "docs/screens/"))}

    assert others(ENGLISH) == others(sister)


@pytest.mark.parametrize("language", ["en", *LANGUAGES])
def test_each_shows_the_dashboard_in_its_own_language(language: str) -> None:
    name = ENGLISH if language == "en" else f"README.{language}.md"
    assert [one for one in links(name) if one.endswith(".png")] == [f"docs/screens/overview-{language}-light-1280.png"]


@pytest.mark.parametrize("name", [ENGLISH, *SISTERS])
def test_its_figures_are_those_of_the_last_run(name: str) -> None:
    found = {one["name"]: one["median"] for one in json.loads(read("docs/reference/bench.json"))["figures"]}
    run = {f"{found['drain'] / 100:.0f}00", f"{found['rss_idle_mb']:.0f}"}
    run |= {f"{found[one]:.1f}" for one in ("idle_p50_ms", "gateway_added_p50_ms")}
    bold = [one.strip() for one in re.findall(r"\*\*(\d[\d\s.,]*)", read(name))]
    plain = {re.sub(r"[,\s](?=\d{3})", "", one).replace(",", ".") for one in bold}
    assert plain == run


def test_the_line_of_each_library_is_the_same_in_each_language() -> None:
    def settings(name: str) -> list[str]:
        return [
            line.split(" | ", 1)[1] for line in read(name).splitlines() if re.match(r"\| .*127\.0\.0\.1:8081", line)
        ]

    for name in SISTERS:
        assert settings(ENGLISH) == settings(name)
    assert len(settings(ENGLISH)) == 6


def test_every_promise_has_a_proof_in_the_tests_or_in_a_run() -> None:
    text = read(ENGLISH)
    promises = text[text.index("## What it promises") : text.index("## How fast")]
    lines = [line for line in promises.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(lines) > 6
    for line in lines:
        proofs = re.findall(r"\]\(([^)]+)\)", line.split(" | ")[-1])
        assert proofs, line
        assert all(proof.startswith(("tests/", "docs/")) and (ROOT / proof).is_file() for proof in proofs), line
