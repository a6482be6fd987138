"""`peik config show|example|texts`, and every setting as a flag of `peik serve`: all made from the one table of settings."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from peik.config import Config, find, load, read, shown_address
from peik.doors.commands.env_files import env_example, env_production, grouped
from peik.doors.commands.visit import Visit, tell
from peik.errors import StartError
from peik.settings import SETTINGS, Group, Setting
from peik.texts import built_in

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(no_args_is_help=True, help="Settings: what is in force, and where it comes from.")

MASK = "***"


@app.command()
def show(
    store: Annotated[str | None, typer.Option(metavar="URL", help="As if this flag were given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Show every setting, its value and where that comes from. Secrets are masked."""
    visit = Visit({}, is_json=as_json, may_create=False)
    try:
        found = find({} if store is None else {"store": store})
        read(found)  # what would stop `peik serve` stops this as well
    except StartError as error:
        raise typer.Exit(tell(error, is_json=as_json)) from None
    rows = [
        {
            "name": setting.name,
            "variable": setting.variable,
            "value": _shown(setting, found[setting.name].text),
            "source": found[setting.name].source,
            "secret": setting.is_secret,
        }
        for setting in SETTINGS
    ]

    def draw() -> "RenderableType":
        from peik.doors.commands.printing import plain, table

        lines = [
            (
                row["variable"],
                plain("-" if row["value"] is None else row["value"], "dim" if row["source"] == "default" else ""),
                plain(row["source"], "dim" if row["source"] == "default" else "green"),
            )
            for row in rows
        ]
        return table(("setting", "value", "from"), lines, empty="")

    visit.show({"settings": rows}, draw)


def _shown(setting: Setting, text: str | None) -> str | None:
    """Secrets are masked, whatever they are; a default is no secret."""
    if text is not None and setting.has_secret:
        return shown_address(text)
    return MASK if setting.is_secret and text is not None and text != setting.default else text


@app.command()
def example(
    production: Annotated[
        bool, typer.Option("--production", help="One for a server, with what must be set first.")
    ] = False,
) -> None:
    """Print an `.env` with every setting, its meaning and its default."""
    typer.echo(env_production() if production else env_example(), nl=False)


@app.command()
def texts() -> None:
    """Print the words of notices to users, as TOML: copy what you change into a file and name it in PEIK_TEXTS."""
    typer.echo(built_in(), nl=False)


# ---- flags ----


def with_settings(run: Callable[[Config], int]) -> Callable[..., None]:
    """A command that takes every setting as a flag, and runs with what is in force."""

    def command(**flags: str | None) -> None:
        raise typer.Exit(run(load({name: value for name, value in flags.items() if value is not None})))

    served = [setting for setting in grouped() if setting.group is not Group.CLIENT]
    signature = inspect.Signature([_flag(setting) for setting in served])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    command.__doc__ = run.__doc__
    return command


def _flag(setting: Setting) -> inspect.Parameter:
    """A secret has a flag for the file that it is in: what stands on a command line is no secret."""
    name = f"{setting.name}_file" if setting.is_secret else setting.name
    words = setting.help + (f" [default: {setting.default}]" if setting.default and not setting.is_secret else "")
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=("A file with this. " if setting.is_secret else "") + words.replace("[", "\\["),
        metavar="FILE" if setting.is_secret else "VALUE",
        rich_help_panel=setting.group,
        show_default=False,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )
