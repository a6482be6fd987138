"""The command line as such: help, completion, what it loads before it knows what it is asked for."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from peik import __version__
from peik.app.cli import _commands, plain_serve
from peik.app.cli_serve import only_serve
from peik.app.commands import app
from peik.cli.command import EXITS
from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, COLUMNS="120")


def test_help_names_every_command_and_every_exit_code(shell: Shell) -> None:
    ran = shell.peik("--help")
    assert ran.code == 0
    commands = (
        "serve demo sim send status letters cancel resolve stats lanes dead jobs arrivals consumers inbox recover "
        "broadcast users notify change bots chats routes keys admins audit nodes sessions messages events logs alerts "
        "backup doctor load migrate import config version"
    )
    for name in commands.split():
        assert f"│ {name} " in ran.out
    for code, meaning in EXITS.items():
        assert f"{code:>3}  {meaning}" in ran.out
    assert shell.peik("version").out == __version__ + "\n"
    assert shell.asked("version") == {"version": __version__}
    assert shell.peik("bots", "add", "-h").out == shell.peik("bots", "add", "--help").out
    assert "peik status" in shell.peik("status").err  # an argument is missing, and the usage says which


def test_a_shell_can_complete(shell: Shell) -> None:
    for name, words in (("bash", "complete -o default -F _peik_completion peik"), ("zsh", "#compdef peik")):
        ran = shell.peik("--show-completion", name)
        assert ran.code == 0
        assert words in ran.out
        assert "_PEIK_COMPLETE=complete_" in ran.out
    ran = shell.peik(_PEIK_COMPLETE="complete_bash", COMP_WORDS="peik dead re", COMP_CWORD="2")
    assert ran.out.split() == ["retry"]
    ran = shell.peik(_PEIK_COMPLETE="complete_bash", COMP_WORDS="peik letters --state co", COMP_CWORD="3")
    assert ran.out.split() == ["completed"]


def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    heavy = "rich starlette asyncio apsw uvloop structlog ssl http.client"
    program = f"import sys, peik.app.commands; print([name for name in {heavy.split()!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_whatever_is_named_is_made_alone() -> None:
    whole: Any = get_command(app)
    for name in whole.commands:
        named: Any = get_command(_commands([name]))
        assert list(named.commands) == [name]
    for nothing in ([], ["--help"], ["stat"], ["Stats"]):
        assert _commands(nothing) is app


def test_a_server_does_not_keep_what_only_other_commands_need() -> None:
    asked = "import sys, peik.app.cli; from peik.app.cli_serve import only_serve; only_serve()"
    program = f"{asked}; print([name for name in sys.modules if name == 'peik.outbox.cli'])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_server_reads_its_own_flags_without_typer() -> None:
    program = """
import sys
import peik.app.serve
from peik.app.cli import main

def serve(config):
    print(config.port, [name for name in ("typer", "pydantic") if name in sys.modules])
    return 7

peik.app.serve.serve = serve
sys.argv = ["peik", "serve", "--port=18081", "--grace", "3s"]
main()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("18081 []\n", 7), ran.stderr


def test_a_plain_serve_is_read_as_typer_reads_it() -> None:
    whole: Any = get_command(only_serve())
    command = whole.commands["serve"]
    flags = [name for one in command.params for name in one.opts if not one.is_flag and name != "--help"]
    assert len(flags) > 100
    for flag in flags:
        for arguments in ([flag, "2"], [f"{flag}=2"], [f"{flag}=a=b"], [flag, "1", flag, "2"], [flag, ""]):
            read = command.make_context("serve", list(arguments)).params
            given = {name: value for name, value in read.items() if value not in (None, False)}
            assert plain_serve(["serve", *arguments]) == given
    odd = (
        "--help",
        "-h",
        "--replace",
        "--port",
        "--port=",
        "--prot 1",
        "here",
        "--port --help",
        "--port 1 x",
        "--host é",
    )
    assert [words for words in odd if plain_serve(["serve", *words.split()]) not in (None, {"port": ""})] == []
    assert plain_serve(["status", "--port", "1"]) is None
    assert plain_serve([]) is None
