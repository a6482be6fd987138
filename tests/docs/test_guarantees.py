"""docs/guarantees.md: every line names a test of its own, and that test is there."""

import re

import pytest

from tests.docs.pages import ROOT, prose

ROWS = [
    line for line in prose("docs/guarantees.md") if line.startswith("| ") and not line.startswith(("| when", "| |"))
]
PROOFS = [
    pytest.param(file, name, id=name)
    for row in ROWS
    for file, name in re.findall(r"\[[^\]]+\]\(\.\./(tests/[^)#]+)#(\w+)\)", row)
]


def test_every_line_ends_with_its_proof() -> None:
    assert len(ROWS) > 30
    for row in ROWS:
        assert re.search(r"\]\([^)]+\) \|$", row), row


@pytest.mark.parametrize(("file", "name"), PROOFS)
def test_the_proof_is_a_test(file: str, name: str) -> None:
    assert name.startswith("test_")
    assert re.search(rf"def {name}\(", (ROOT / file).read_text(encoding="utf-8"))


def test_most_lines_have_a_test_of_their_own() -> None:
    assert len(PROOFS) >= len(ROWS) - 3  # power cuts, weak settings of Redis, and what libraries confirm too early
