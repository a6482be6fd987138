"""The mutants still fit the source, and the last run caught them all. If one of these fails: python -m proofs.mutants"""

import re

import pytest

from proofs.mutants.planting import ROOT, Mutant, read_mutants
from proofs.mutants.report import read_report

MUTANTS = read_mutants()
ROWS = {row.name: row for row in read_report()}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_source_exactly_once(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    planted = mutant.planted_in(text)
    assert planted != text
    if mutant.file.endswith(".py"):
        compile(planted, mutant.file, "exec")  # a bug that nobody can even import proves nothing


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_last_run_caught_it_and_was_of_this_promise(mutant: Mutant) -> None:
    row = ROWS[mutant.name]
    assert row.caught_by in ("world", "test")
    assert (row.promise, row.file, row.beyond) == (mutant.promise, mutant.file, mutant.beyond)


def test_a_test_that_caught_one_is_of_the_suites_that_are_named_for_it() -> None:
    for mutant in MUTANTS:
        row = ROWS[mutant.name]
        assert row.caught_by == "world" or row.where.startswith(mutant.suites), mutant.name


def test_the_report_has_no_mutant_that_is_gone() -> None:
    assert list(ROWS) == [mutant.name for mutant in MUTANTS]


def test_there_are_enough_of_them_over_enough_of_the_code() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    assert len({mutant.file for mutant in MUTANTS}) >= 10


def test_every_suite_that_is_named_is_there() -> None:
    assert {suite for mutant in MUTANTS for suite in mutant.suites if not (ROOT / suite).exists()} == set()


@pytest.mark.parametrize("readme", ["README.md", "README.fa.md", "README.ru.md", "README.uz.md"])
def test_the_readme_says_how_many_there_are(readme: str) -> None:
    said = re.search(r"\[(\d+) [^\]]+\]\(docs/reference/proof\.md\)", (ROOT / readme).read_text(encoding="utf-8"))
    assert said is not None
    assert int(said[1]) == len(MUTANTS)
