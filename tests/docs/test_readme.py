"""README.md and its Persian sister say the same, and what both say of other pages is what those say."""

import re

from tests.docs.pages import ROOT, blocks, headings, links, prose, read
from tests.docs.test_links import targets

ENGLISH, PERSIAN = "README.md", "README.fa.md"


def without_comments(code: str) -> list[str]:
    return [re.sub(r"\s+# .*$", "", line) for line in code.splitlines()]


def test_headings_are_of_the_same_levels_in_the_same_order() -> None:
    assert [level for level, _ in headings(ENGLISH)] == [level for level, _ in headings(PERSIAN)]
    assert len(headings(ENGLISH)) > 5


def test_commands_and_code_are_the_same_but_for_their_comments() -> None:
    languages = ("", "sh", "python", "js")
    english, persian = ([without_comments(block) for block in blocks(name, *languages)] for name in (ENGLISH, PERSIAN))
    assert english == persian
    assert ["make demo", "make test"] in english


def test_tables_have_the_same_rows_and_the_same_proofs() -> None:
    assert rows(ENGLISH) == rows(PERSIAN)


def rows(name: str) -> list[tuple[int, list[str]]]:
    """Of each row the number of its cells, and the links in it, in order."""
    lines = (line for line in prose(name) if line.startswith("|"))
    return [(line.count("|"), re.findall(r"\]\(([^)]+)\)", line)) for line in lines]


def test_what_one_links_to_the_other_does_too() -> None:
    def others(name: str) -> set[tuple[str, str]]:
        return {one for one in targets(name) if not one[0].startswith(("README", "docs/screens/"))}

    assert others(ENGLISH) == others(PERSIAN)


def test_each_shows_the_dashboard_in_its_own_language() -> None:
    assert "docs/screens/overview-en-light-1280.png" in links(ENGLISH)
    assert "docs/screens/overview-fa-light-1280.png" in links(PERSIAN)


def test_the_line_of_each_library_is_that_of_the_gateway() -> None:
    def settings(name: str) -> list[str]:
        return [
            line.split(" | ", 1)[1] for line in read(name).splitlines() if re.match(r"\| .*127\.0\.0\.1:8081", line)
        ]

    assert settings(ENGLISH) == settings("docs/gateway.md") == settings(PERSIAN)
    assert len(settings(ENGLISH)) == 6


def test_every_promise_has_a_proof_in_the_tests_or_in_a_run() -> None:
    text = read(ENGLISH)
    promises = text[text.index("## What it promises") : text.index("## How fast")]
    lines = [line for line in promises.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(lines) > 7
    for line in lines:
        proofs = re.findall(r"\]\(([^)]+)\)", line.split(" | ")[-1])
        assert proofs, line
        assert all(proof.startswith(("tests/", "docs/")) and (ROOT / proof).is_file() for proof in proofs), line


def test_the_number_of_planted_bugs_is_that_of_the_list() -> None:
    proof = read("docs/reference/proof.md")
    planted = re.search(r"\[(\d+) planted bugs, all caught\]", read(ENGLISH))
    assert planted is not None
    assert planted[1] in proof
