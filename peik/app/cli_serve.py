"""The trunk of the command line, with `peik serve` alone on it: that one runs for months, and what only other commands need is
not in its memory."""

from typing import Annotated

import typer

from peik import __version__
from peik.cli.help import RUNNING, FirstScreen, show_examples, with_plain_flags
from peik.errors import StartError
from peik.settings import cli
from peik.settings.config import Config


def trunk() -> typer.Typer:
    app = typer.Typer(
        cls=FirstScreen,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        help="The courier for Telegram.",
    )
    app.callback()(_peik)
    app.command("serve", rich_help_panel=RUNNING)(cli.with_settings(_serve))
    return app


def only_serve() -> typer.Typer:
    app = trunk()
    show_examples(app)
    with_plain_flags(app)
    return app


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


def _peik(
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    pass


def _serve(
    config: Config,
    *,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Take over from the Peik that runs here: it ends once this one accepts letters, and no connection is refused.",
        ),
    ] = False,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="Return as soon as it serves, and let it run on by itself. With --replace alone."
        ),
    ] = False,
) -> int:
    """Run Peik: accept letters, deliver them. Every setting is a flag, and flags win."""
    from peik.app.handover import in_background
    from peik.app.processes import serve_all

    if detach and not replace:
        raise StartError(
            "--detach goes with --replace: a Peik that nobody looks after is started by systemd or Docker."
        )
    if detach:
        return in_background(lambda begun: serve_all(config, replaces=True, begun=begun))
    return serve_all(config, replaces=replace)
