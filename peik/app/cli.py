"""The command line begins here: a plain `peik serve` by itself, everything else from the whole tree of commands."""

import copy
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from peik.errors import BadInput, Problem, StartError
from peik.settings.table import SETTINGS, SettingGroup

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Exit codes are in `peik.cli.command.Exit`."""
    flags = plain_serve(sys.argv[1:])
    if flags is None:
        _read_by_typer()
    else:
        sys.exit(_serve(flags))


def plain_serve(arguments: Sequence[str]) -> dict[str, str] | None:
    """The settings of a `peik serve` that is given nothing else. None: Typer has to read it, or say what is wrong with it.

    A server runs for months. Typer and what comes with it take 9 MB, which it would keep for having read its own flags.
    """
    if arguments[:1] != ["serve"]:
        return None
    names = {setting.flag: setting.argument for setting in SETTINGS if setting.group is not SettingGroup.CLIENT}
    flags: dict[str, str] = {}
    rest = iter(arguments[1:])
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if not equals:
            value = next(rest, "-")
        if flag not in names or value.startswith("-") or not value.isascii():
            return None
        flags[names[flag]] = value
    return flags


def _serve(flags: dict[str, str]) -> int:
    from peik.app.processes import serve_all
    from peik.settings.config import load

    try:
        return serve_all(load(flags))
    except (StartError, Problem) as error:
        return _could_not_start(error)
    except KeyboardInterrupt:  # before it listens to signals
        return 130


def _could_not_start(error: StartError | Problem, *, is_json: bool = False) -> int:
    from peik.cli.command import Exit, tell

    tell(error, is_json=is_json)
    return Exit.PROBLEM


def _is_text(argument: str) -> bool:
    """Python hands on bytes that are not UTF-8 as half characters, which can be neither sent nor printed."""
    return argument.encode(errors="replace").decode() == argument


def _read_by_typer() -> None:
    import typer

    from peik.cli.arguments import shielded
    from peik.cli.command import Exit, tell, write_problem

    # What Typer raises for all that can be wrong with a command line; it has no public name.
    usage_error: type[Any] = typer.BadParameter.mro()[1]
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
        sys.exit(_could_not_start(error, is_json=is_json))
    except usage_error as error:
        words = error.format_message()
        write_problem(code="wrong_usage", status=400, detail=words)
        sys.exit(Exit.USAGE)


def _commands(arguments: list[str]) -> "typer.Typer":
    if arguments[:1] == ["serve"]:
        from peik.app.cli_serve import only_serve

        return only_serve()
    from peik.app.commands import app

    return _branch(app, arguments[0]) if arguments and arguments[0] != "help" else app


def _branch(app: "typer.Typer", name: str) -> "typer.Typer":
    """The command or the group of this name alone: to make all hundred of them takes longer than most of them run."""
    from peik.cli.help import name_of

    branch = copy.copy(app)
    branch.registered_commands = [one for one in app.registered_commands if name_of(one) == name]
    branch.registered_groups = [one for one in app.registered_groups if one.name == name]
    return branch if branch.registered_commands or branch.registered_groups else app
