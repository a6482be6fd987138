"""The command line begins here: `peik serve` by itself, everything else from the whole tree of commands."""

import copy
import os
import sys
from typing import Any

import typer

from peik.cli.arguments import shielded
from peik.cli.command import Exit, tell, write_problem
from peik.cli.examples import name_of
from peik.errors import BadInput, Problem, StartError


def _is_text(argument: str) -> bool:
    """Python hands on bytes that are not UTF-8 as half characters, which can be neither sent nor printed."""
    return argument.encode(errors="replace").decode() == argument


# What Typer raises for all that can be wrong with a command line; it has no public name.
_UsageError: type[Any] = typer.BadParameter.mro()[1]


def main() -> None:
    """Exit codes are in `peik.cli.command.Exit`."""
    arguments = [shielded(argument) for argument in sys.argv[1:]]
    if len(arguments) == 2 and arguments[0] == "--show-completion":
        # Typer itself takes no shell here, and guesses it from the process above.
        os.environ["_PEIK_COMPLETE"] = f"source_{arguments[1]}"
    is_json = "--json" in arguments
    if not all(map(_is_text, arguments)):
        garbled = BadInput(code="garbled", detail="An argument is not text in UTF-8. Look at the terminal's encoding.")
        sys.exit(tell(garbled, is_json=is_json))
    try:
        ended = _commands(arguments)(arguments, prog_name="peik", standalone_mode=not is_json)
        sys.exit(ended if isinstance(ended, int) else 0)
    except (StartError, Problem) as error:  # of a server that could not start
        tell(error, is_json=is_json)
        sys.exit(Exit.PROBLEM)
    except _UsageError as error:
        words = error.format_message()
        write_problem(code="wrong_usage", status=400, detail=words)
        sys.exit(Exit.USAGE)


def _commands(arguments: list[str]) -> typer.Typer:
    if arguments[:1] == ["serve"]:
        from peik.app.cli_serve import only_serve

        return only_serve()
    from peik.app.commands import app

    return _branch(app, arguments[0]) if arguments else app


def _branch(app: typer.Typer, name: str) -> typer.Typer:
    """The command or the group of this name alone: to make all hundred of them takes longer than most of them run."""
    branch = copy.copy(app)
    branch.registered_commands = [one for one in app.registered_commands if name_of(one) == name]
    branch.registered_groups = [one for one in app.registered_groups if one.name == name]
    return branch if branch.registered_commands or branch.registered_groups else app
