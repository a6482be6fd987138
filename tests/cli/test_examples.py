"""The example in the help of every command: there is one, and it could be typed as it stands."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from peik.app.commands import app
from peik.cli.arguments import shielded
from peik.cli.help import EXAMPLES, lines_of
from tests.cli.shell import Shell


def _leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(words), command
        return
    for name, child in children.items():
        yield from _leaves(child, (*words, name))


COMMANDS = dict(_leaves(get_command(app)))


def test_every_command_has_an_example_and_every_example_a_command() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    for name, command in COMMANDS.items():
        assert command.epilog.startswith("Example"), name
        assert all(line in command.epilog for line in lines_of(name)), name


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_taken_by_the_parser_of_its_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("token.txt", "cat.jpg", "people.csv", "old.session", "peik-20261116T083000Z-1d23.backup"):
        (tmp_path / file).touch()
    for line in lines_of(name):
        arguments = [shielded(one) for one in shlex.split(line)][1 + len(name.split()) :]
        COMMANDS[name].make_context(name, arguments)  # raises what a terminal would show as wrong usage


def test_help_shows_the_example_as_it_is_typed(tmp_path: Path) -> None:
    shown = Shell(tmp_path, COLUMNS="120").peik("send", "--help").out
    assert "Examples:" in shown
    assert 'peik send 42 "Hello, <b>Sara</b>" --param parse_mode=HTML --wait 10s' in shown
