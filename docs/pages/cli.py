"""The commands, below what a person wrote of them."""

from collections.abc import Iterator
from typing import Any

from docs.pages.markdown import code, table
from peik.cli.examples import lines_of

MARK = "<!-- What follows is written by docs/generate.py from the commands themselves. -->"


def cli_page(written: str) -> str:
    """docs/cli.md: what a person wrote above the mark stays, what is below it is made anew."""
    from typer.main import get_command

    from peik.app.commands import app
    from peik.cli.command import EXITS

    by_hand, _, _ = written.partition(MARK)
    exits = table(("code", "means"), [(str(int(number)), meaning) for number, meaning in EXITS.items()])
    parts = [by_hand.rstrip(), MARK, "## Exit codes", exits, "## Commands", *_commands(get_command(app), "peik")]
    return "\n\n".join(parts) + "\n"


def _commands(command: Any, name: str) -> Iterator[str]:
    subcommands = getattr(command, "commands", None)
    if subcommands is not None:
        for child_name, child in subcommands.items():
            yield from _commands(child, f"{name} {child_name}")
        return
    asks = any(one.name == "url" for one in command.params)
    hidden = {"help", "as_json", *(("url", "store", "key_file") if asks else ())}  # told above the mark
    shown = [one for one in command.params if not getattr(one, "hidden", False) and one.name not in hidden]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    usage = [name, *(one.metavar if one.required else f"[{one.metavar}]" for one in arguments)]
    yield f"### `{' '.join(usage)}`"
    yield command.help
    rows = [(code(one.metavar), _words_of(one)) for one in arguments]
    rows += [(code(_option(one)), _words_of(one)) for one in options]
    if rows:
        yield table(("", ""), rows)
    if examples := lines_of(name.removeprefix("peik ")):
        yield "\n".join(["```text", *examples, "```"])


def _option(option: Any) -> str:
    names = "/".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    kind = option.type_descriptor
    usual = "|".join(map(str, kind.choices)) if kind.choices else "TEXT" if kind.annotation is str else "NUMBER"
    return f"{names} {option.metavar or usual}"


def _words_of(parameter: Any) -> str:
    return (parameter.help or "").replace("\\[", "[").replace("|", "\\|")
