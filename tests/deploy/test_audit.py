"""`make audit`: what could not be asked about is not called sound."""

import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from proofs.audit import SOUND, UNASKED, VULNERABLE, Report, main, verdict

ROOT = Path(__file__).parents[2]
FINE = {"name": "good", "version": "1.0", "vulns": []}
SKIPPED = {"name": "unknown", "skip_reason": "Dependency not found on PyPI and could not be audited"}
OWN = {"name": "peik", "skip_reason": "not on PyPI"}
HOLED = {"name": "bad", "version": "0.9", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.0"], "aliases": []}]}


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([FINE, OWN], SOUND, "No known vulnerabilities in 1 packages"),
        ([FINE, SKIPPED], UNASKED, "NOT AUDITED: of 1 of 2 packages"),
        ([SKIPPED], UNASKED, "NOT AUDITED"),
        ([FINE, SKIPPED, HOLED], VULNERABLE, "bad 0.9: PYSEC-1, mended in 1.0"),
    ],
)
def test_a_report_is_sound_only_if_all_was_asked(packages: list[object], code: int, words: str) -> None:
    report = msgspec.convert({"dependencies": packages}, Report)
    found, lines = verdict(report)
    assert found == code
    assert words in "\n".join(lines)


def test_an_audit_that_does_not_run_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("/no/such/program", ".") == UNASKED
    assert main(sys.executable, ".") == UNASKED  # it knows no such options, and writes no report
    assert capsys.readouterr().err.count("NOT AUDITED") == 2


def test_the_workflow_can_be_read_and_the_gate_does_not_need_the_network() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/audit.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["audit"]["steps"][-1] == {"run": "make audit"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (gate,) = [line for line in makefile.splitlines() if line.startswith("test:")]
    assert "audit" not in gate
