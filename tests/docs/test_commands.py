"""Every command that any page shows can be given: `peik …` with its options, `make …`, and settings by their names."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from peik.app.commands import app
from peik.settings.table import SETTINGS
from tests.docs.pages import NAMES, ROOT, blocks

LANGUAGES = ("", "sh", "bash", "console")
CLI: Any = get_command(app)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
# Variables that are no settings of the server: those of the command line, and of tests and their machine.
OTHERS = {"PEIK_KEY", "PEIK_KEY_FILE", "PEIK_URL", "PEIK_PAGE"}
KNOWN = {variable for setting in SETTINGS for variable in setting.variables()} | OTHERS


def lines(name: str) -> Iterator[str]:
    """Each command line of a page, whole though it was folded, without prompt and comment."""
    for block in blocks(name, *LANGUAGES):
        for line in block.replace("\\\n", " ").splitlines():
            yield re.sub(r"(^|\s)# .*$", "", line.removeprefix("$ "))


def commands(line: str, program: str) -> Iterator[list[str]]:
    """The words after each call of a program, up to where another command begins. What is no shell has none."""
    try:
        words = list(shlex.shlex(line, posix=True, punctuation_chars="();<>|&"))
    except ValueError:
        return
    for place, word in enumerate(words):
        starts = place == 0 or re.search(r"[;|&(]$|^[A-Z_]+=|^sudo$|^exec$", words[place - 1])
        if starts and word.split("/")[-1] == program:
            rest = words[place + 1 :]
            end = next((at for at, one in enumerate(rest) if re.fullmatch(r"[();<>|&]+", one)), len(rest))
            yield rest[:end]


def asked(words: list[str]) -> None:
    """Fails unless the command line knows this command and its options."""
    command = CLI
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if not re.fullmatch(r"[a-z][a-z-]*", words[0]):
            return  # a stand-in such as `…` or `COMMAND`
        assert words[0] in command.commands, f"there is no {words[0]!r} of {command.name!r}"
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    options = {word.split("=")[0] for word in words if re.fullmatch(r"--[a-z][a-z-]*(=.*)?", word)}
    assert options <= known | {"--help"}, f"{command.name}: {options - known}"


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_a_page_can_be_given(name: str) -> None:
    for line in lines(name):
        for words in commands(line, "peik"):
            asked(words)
        for words in commands(line, "make"):
            wanted = {word for word in words if "=" not in word and not word.startswith("-")}
            assert wanted <= TARGETS, line


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_commands_are_settings(name: str) -> None:
    for line in lines(name):
        assert set(re.findall(r"\b(PEIK_[A-Z_]*[A-Z])=", line)) <= KNOWN, line


def test_there_are_many_commands_and_a_wrong_one_is_seen() -> None:
    found = [words for name in NAMES for line in lines(name) for words in commands(line, "peik")]
    assert len(found) > 60
    for wrong in (["sendd", "7"], ["send", "7", "--prioritty", "2"], ["backup", "make"]):
        with pytest.raises(AssertionError):
            asked(wrong)
