"""The command line as such: help, completion, what it loads before it knows what it is asked for."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import peik
from peik import __version__
from peik.app.cli import _commands, plain_serve
from peik.app.cli_serve import only_serve
from peik.app.commands import app
from peik.cli.command import EXITS, Exit, as_typed
from peik.cli.help import GROUPS, TOPICS
from tests import wanting
from tests.cli.shell import Shell

GERMAN = Path("/usr/share/i18n/locales/de_DE")


def _sentences(tree: ast.AST) -> Iterator[str]:
    """Texts of a module but its docstrings, with X where a value is put in."""
    if isinstance(tree, ast.JoinedStr):
        yield "".join(one.value if isinstance(one, ast.Constant) else "X" for one in tree.values)
    elif isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree.value
    elif not (isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Constant)):
        for child in ast.iter_child_nodes(tree):
            yield from _sentences(child)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, COLUMNS="120")


def test_help_is_one_screen_that_names_every_command(shell: Shell) -> None:
    ran = shell.peik("--help")
    assert ran.code == 0
    assert shell.peik().out.strip() == shell.peik("help").out.strip() == ran.out.strip()
    assert all(len(line) < 80 for line in ran.out.splitlines())
    assert len(ran.out.splitlines()) <= 25
    whole: Any = get_command(app)
    words = ran.out.split("All commands")[1].split()
    assert set(words) >= set(whole.commands)
    assert all(one.rich_help_panel in GROUPS for one in whole.commands.values())


def test_help_tells_about_groups_topics_and_commands(shell: Shell) -> None:
    for group in GROUPS:
        assert group in shell.peik("--help").out.split()
        assert shell.peik("help", group).out.startswith("peik ")
    for topic in TOPICS:
        assert topic in shell.peik("--help").out.split()
        assert shell.peik("help", topic).out.strip()
    for code, meaning in EXITS.items():
        assert f"{code:>3}  {meaning}".strip() in shell.peik("help", "exits").out
    assert shell.peik("help", "dead", "retry").out.strip() == shell.peik("dead", "retry", "--help").out.strip()
    assert shell.peik("bots", "add", "-h").out == shell.peik("bots", "add", "--help").out
    ran = shell.peik("help", "sendd")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert "'sendd'" in ran.err
    assert "peik status" in shell.peik("status").err  # an argument is missing, and the usage says which


def test_flags_are_shown_as_flags(shell: Shell) -> None:
    shown = [
        shell.peik(*words, "--help").out for words in (("backup", "restore"), ("dead", "retry"), ("nodes",), ("serve",))
    ]
    assert "--yes" in shown[0]
    assert all("bool" not in text for text in shown)


def test_the_version_is_told(shell: Shell) -> None:
    assert shell.peik("version").out == __version__ + "\n"
    assert shell.asked("version") == {"version": __version__}


def test_an_error_that_names_a_call_names_the_command_beside_it_and_the_command_line_says_only_that() -> None:
    files = [
        path
        for path in Path(peik.__file__).parent.rglob("*.py")
        if path.name not in ("answers.py", "api.py", "client.py")
    ]
    texts = [words for path in files for words in _sentences(ast.parse(path.read_text(encoding="utf-8")))]
    said = [words for words in texts if re.search(r"[A-Z]+ /v1/", words)]
    assert len(said) >= 5
    assert [words for words in said if re.search(r"[A-Z]+ /v1/", as_typed(words))] == []
    assert (
        as_typed("Make a code with `peik users link sara` or POST /v1/users/sara/link, and go on.")
        == "Make a code with `peik users link sara`, and go on."
    )


def test_a_terminal_shows_numbers_and_times_by_its_locale(tmp_path: Path) -> None:
    program = (
        "from peik.cli.output import amount, when; print(amount(1234567), when('2026-11-15T08:30:00Z').split(' (')[0])"
    )
    if not GERMAN.exists():
        wanting.skip("sources of locales", wanting.packaged("locales"))
    subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")], check=True)
    for name, shown in (("C.UTF-8", "1,234,567 2026-11-15 08:30:00"), ("de_DE.UTF-8", "1.234.567 15.11.2026 08:30:00")):
        shell = Shell(tmp_path, LC_ALL=name, LOCPATH=str(tmp_path))
        assert shell.in_terminal("-c", program, program=())[1].strip() == shown
        piped = subprocess.run(
            [sys.executable, "-c", program], env=shell.environment, capture_output=True, text=True, check=True
        )
        assert piped.stdout.strip() == "1,234,567 2026-11-15 08:30:00"


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
    for name in set(whole.commands) - {"help"}:  # that one tells of all others
        named: Any = get_command(_commands([name]))
        assert list(named.commands) == [name]
    for nothing in ([], ["--help"], ["stat"], ["Stats"], ["help"]):
        assert _commands(nothing) is app


def test_a_server_does_not_keep_what_only_other_commands_need() -> None:
    asked = "import sys, peik.app.cli; from peik.app.cli_serve import only_serve; only_serve()"
    program = f"{asked}; print([name for name in sys.modules if name == 'peik.outbox.cli'])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_server_reads_its_own_flags_without_typer_and_logs_without_rich() -> None:
    program = """
import sys
import peik.app.serve
from peik.app.cli import main

def serve(config, **rest):
    print(config.port, [name for name in ("typer", "pydantic", "rich") if name in sys.modules])
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
