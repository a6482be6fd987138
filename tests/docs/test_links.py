"""Every link within the repository leads somewhere, anchors too, and every picture that a page shows is there.

The same holds for comments: what they send their reader to can be opened.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proofs.house import dangling, texts
from tests.docs.pages import NAMES, ROOT, anchors, headings, links, read

TELEGRAM = "docs/telegram.md"
_NAMED = re.compile(r"(docs/[\w/-]+\.md), (?=[A-Z])(.{1,80})")
_WRAPPED = re.compile(r"\s*\n\s*(?:(?:#|--|//) ?)?")  # a comment that goes on in the next line


def targets(name: str) -> list[tuple[str, str]]:
    """(file of the repository, anchor) for each link that does not leave it."""
    found = []
    for link in links(name):
        path, _, anchor = link.partition("#")
        if ":" not in path:
            whole = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            found.append((whole, anchor))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_to_a_file_and_its_anchor_to_a_heading_or_a_function(name: str) -> None:
    for target, anchor in targets(name):
        assert (ROOT / target).exists(), f"{name} links to {target}"
        if anchor and target.endswith(".py"):
            assert re.search(rf"def {anchor}\(", read(target)), f"{name} links to {target}#{anchor}"
        elif anchor:
            assert target.endswith(".md"), f"{name} has an anchor into {target}"
            assert anchor in anchors(target), f"{name} links to {target}#{anchor}"


def test_there_are_many_of_them() -> None:
    found = [link for name in NAMES for link in targets(name)]
    assert len(found) > 300
    assert any(target.startswith("docs/screens/") for target, _ in found)


def test_no_picture_is_kept_that_no_page_shows() -> None:
    shown = {target for name in NAMES for target, _ in targets(name) if target.startswith("docs/screens/")}
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "screens").iterdir()} == shown


def named_in(text: str) -> Iterator[tuple[str, str]]:
    """(page, words that begin with one of its headings) wherever a comment names a page and, after a comma, a heading."""
    for found in _NAMED.finditer(_WRAPPED.sub(" ", text)):
        yield found[1], found[2]


def is_heading_of(page: str, words: str) -> bool:
    return any(re.match(re.escape(title) + r"\b", words) for _, title in headings(page))


def test_nothing_sends_its_reader_to_a_document_that_is_not_here() -> None:
    assert list(dangling()) == []


@pytest.mark.parametrize(
    "words",
    [
        "# {name}.md has more",
        "-- as {name} S3 asks",
        "(\u00a78 D)",
        "# \u00a71.2, \u00a73",
        "docs/{name}.md",
        "see {mark}.2",
    ],
)
def test_such_a_reference_is_found(words: str, tmp_path: Path) -> None:
    (tmp_path / "peik").mkdir()
    (tmp_path / "peik" / "one.py").write_text(
        f"# RFC 9110 \u00a79.3\n{words.format(name='DESIGN', mark='S3')}\n", encoding="utf-8"
    )
    assert list(dangling(tmp_path)) == ["peik/one.py:2"]


def test_every_heading_that_a_comment_names_is_on_its_page() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {page}, {words}"
        for path, text in texts()
        for page, words in named_in(text)
        if not is_heading_of(page, words)
    ]
    assert wrong == []


def test_headings_are_named_often_also_across_lines_and_wrong_ones_are_told() -> None:
    named = [words for _, text in texts() for page, words in named_in(text) if page == TELEGRAM]
    assert len(named) > 50
    assert list(named_in(f"# so it is ({TELEGRAM},\n    # Flood limits)")) == [(TELEGRAM, "Flood limits)")]
    assert is_heading_of(TELEGRAM, "Flood limits). And so on")
    assert not is_heading_of(TELEGRAM, "Flood limitations")
