"""docs/alerts.md and docs/runbook.md: a section for every rule, and only settings and commands that there are."""

import re
from pathlib import Path

from typer.main import get_command

from peik.alerts.rules import RULES
from peik.app.commands import app
from peik.settings.table import SETTINGS

DOCS = Path(__file__).parents[2] / "docs"
RUNBOOK = (DOCS / "runbook.md").read_text(encoding="utf-8")
PAGE = (DOCS / "alerts.md").read_text(encoding="utf-8")


def test_every_rule_has_a_section_of_the_runbook_and_every_section_a_rule() -> None:
    assert sorted(re.findall(r"^### (.+)$", RUNBOOK, re.MULTILINE)) == sorted(rule.name for rule in RULES)
    assert set(re.findall(r"\]\((?:runbook\.md)?#([a-z-]+)\)", RUNBOOK + PAGE)) <= {rule.name for rule in RULES}


def test_every_setting_is_one() -> None:
    said = RUNBOOK + PAGE + " ".join(rule.means + rule.todo for rule in RULES)
    known = {name for setting in SETTINGS for name in setting.variables()}
    assert set(re.findall(r"PEIK_[A-Z_]+", said)) <= known


def test_every_command_can_be_given() -> None:
    said = RUNBOOK + PAGE + " ".join(rule.todo for rule in RULES)
    named = set(re.findall(r"`peik ([a-z]+(?: [a-z]+)?)", said))
    assert len(named) > 10
    for words in named:
        command = get_command(app)
        for word in words.split():
            if hasattr(command, "commands"):
                command = command.commands[word]
