"""The command line: every command, and what `peik help` says."""

import inspect
from collections.abc import Iterator
from typing import Any

from docs.pages.markdown import code, table
from peik.cli.command import EXITS
from peik.cli.help import TOPICS, lines_of
from peik.settings.table import SETTINGS

_FLAGS = frozenset(("peik serve", setting.argument) for setting in SETTINGS)


def cli_parts() -> list[str]:
    from typer.main import get_command

    from peik.app.commands import app

    exits = table(("code", "means"), [(str(int(number)), meaning) for number, meaning in EXITS.items()])
    parts = ["What `peik help` says, and every command. Where to begin: [the command line](../cli.md)."]
    for name, (title, words) in TOPICS.items():
        parts.append(f"## {title[0].upper()}{title[1:]}")
        parts.append(exits if name == "exits" else f"```text\n{inspect.cleandoc(words)}\n```")
    left_out = "`--json`, `--url`, `--store` and `--key-file`, which most commands take, are left out here."
    return [*parts, "## Commands", left_out, *_commands(get_command(app), "peik")]


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
    options = [
        one
        for one in shown
        if one.param_type_name == "option" and one.name not in (_FLAGS if name == "peik serve" else ())
    ]
    usage = [name, *(one.metavar if one.required else f"[{one.metavar}]" for one in arguments)]
    yield f"### `{' '.join(usage)}`"
    yield command.help if name != "peik serve" else f"{command.help} They are on [a page of their own](settings.md)."
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
