"""The whole command line: `peik demo` and `peik sim` here, on the trunk; the commands that ask something are in the modules
beside this one."""

import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from peik import __version__
from peik.accounts import cli as sessions
from peik.admin import cli, cli_keys
from peik.alerts import cli as alerts
from peik.app.cli_serve import trunk
from peik.archive import cli as messages
from peik.backups import cli as backup
from peik.broadcasts import cli as broadcast
from peik.cli.command import asks, tell
from peik.cli.help import (
    ACCESS,
    ACCOUNTS,
    OPERATING,
    RECEIVING,
    RUNNING,
    SENDING,
    WORK,
    help_about,
    show_examples,
    with_plain_flags,
)
from peik.contacts import cli as chats
from peik.erasure import cli as forget
from peik.errors import BadInput, StartError
from peik.importing import cli as importing
from peik.inbox import cli as arrivals
from peik.jobs import cli as jobs
from peik.load import cli as load
from peik.monitoring import cli as doctor
from peik.monitoring import cli as nodes
from peik.notifications import cli as users
from peik.outbox import cli as dead
from peik.outbox import cli as letters
from peik.outbox import cli_bots
from peik.schedules import cli as schedules
from peik.secrets import cli as secrets
from peik.settings import cli as settings
from peik.storage import cli as migrate

app = trunk()


@app.command(rich_help_panel=RUNNING)
def demo(
    once: Annotated[
        bool | None,
        typer.Option(
            help="Play the story once, print the counts, and end; so it is where standard input is no terminal."
        ),
    ] = None,
    whom: Annotated[
        str, typer.Option("--for", metavar="WHOM", help="The chapters for bot (who runs one), backend, crawler or all.")
    ] = "all",
    language: Annotated[
        str | None, typer.Option(metavar="LANGUAGE", help="en, fa, ru or uz; by default that of the locale.")
    ] = None,
    browser: Annotated[
        bool | None, typer.Option(help="Open the dashboard; so it is in a terminal of a machine with a screen.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all chance in the story.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", hidden=True)] = False,
) -> None:
    """Watch Peik deliver through an outage, a crash and a flood. Needs no token and no network."""
    from peik.demo.play import CRAWLER, STORIES, Showing
    from peik.demo.play import demo as play
    from peik.demo.screen import language_of, narration

    if whom not in (*STORIES, CRAWLER):
        raise typer.BadParameter(f"{whom!r} is none of {', '.join(STORIES)}, {CRAWLER}.", param_hint="--for")
    if language is not None and language not in narration.languages:
        raise typer.BadParameter(f"{language!r} is none of {', '.join(narration.languages)}.", param_hint="--language")
    is_watched = sys.stdin is not None and sys.stdin.isatty()  # else nobody is there to press Ctrl-C
    has_screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    showing = Showing(
        story=whom,
        language=language or language_of(os.environ),
        is_once=not is_watched if once is None else once,
        is_quick=quick,
        seed=seed,
        has_browser=is_watched and has_screen if browser is None else browser,
    )
    raise typer.Exit(play(showing))


@app.command(rich_help_panel=RUNNING)
def sim(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where bots go; 0 takes any free one.")] = 8082,
    control_port: Annotated[int, typer.Option(min=0, max=65535, help="Where it is driven; 0 takes any free one.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Of all chance: ids, jitter, faults.")] = None,
    config: Annotated[str, typer.Option(help="Options as a JSON object, or the path of a JSON file.")] = "{}",
    as_json: Annotated[bool, typer.Option("--json", help="Say where it listens in JSON, in a terminal too.")] = False,
) -> None:
    """Run the simulated Telegram alone. docs/simulator.md says what it can do."""
    import uvloop

    from peik.testing import SimServer, run_sim
    from peik.testing.server import announce

    def greet(server: SimServer) -> None:
        if as_json or not sys.stdout.isatty():
            announce(server)
        else:
            typer.echo(f"The simulated Telegram listens on {server.url}")
            typer.echo(f"It is driven through {server.control_url}, for example /sim/counters. Ctrl-C ends it.")

    try:
        uvloop.run(run_sim(host, port, control_port=control_port, seed=seed, ready=greet, **_sim_options(config)))
    except OSError as error:
        raise StartError(f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port.") from None


def _sim_options(text: str) -> dict[str, object]:
    try:
        whole = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
        return msgspec.json.decode(whole, type=dict[str, object])
    except OSError as error:
        raise StartError(f"--config {text}: {error.strerror}.") from None
    except msgspec.DecodeError as error:
        raise StartError(f"--config is not a JSON object: {error}.") from None


letters.register(app)
app.add_typer(dead.app, name="dead", rich_help_panel=SENDING)
app.add_typer(broadcast.app, name="broadcast", rich_help_panel=SENDING)
app.add_typer(schedules.app, name="schedules", rich_help_panel=WORK)
app.add_typer(jobs.app, name="jobs", rich_help_panel=WORK)
app.add_typer(arrivals.app, name="arrivals", rich_help_panel=RECEIVING)
app.add_typer(arrivals.consumers, name="consumers", rich_help_panel=RECEIVING)
asks(app, rich_help_panel=RECEIVING)(arrivals.inbox)
asks(app, rich_help_panel=RECEIVING)(arrivals.recover)
app.add_typer(sessions.app, name="sessions", rich_help_panel=ACCOUNTS)
app.add_typer(messages.app, name="messages", rich_help_panel=ACCOUNTS)
app.add_typer(messages.events_app, name="events", rich_help_panel=ACCOUNTS)
asks(app, has_archive=True, rich_help_panel=ACCOUNTS)(messages.logs)
app.add_typer(cli_bots.app, name="bots", rich_help_panel=ACCESS)
app.add_typer(users.app, name="users", rich_help_panel=ACCESS)
asks(app, rich_help_panel=SENDING)(users.notify)
app.add_typer(chats.app, name="chats", rich_help_panel=ACCESS)
asks(app, rich_help_panel=ACCESS)(forget.forget)
asks(app, rich_help_panel=ACCESS)(cli_keys.routes)
app.add_typer(cli_keys.app, name="keys", rich_help_panel=ACCESS)
app.add_typer(secrets.app, name="secrets", rich_help_panel=ACCESS)
app.add_typer(cli.app, name="admins", rich_help_panel=ACCESS)
app.command(rich_help_panel=ACCESS)(cli.audit)
app.add_typer(nodes.app, name="nodes", rich_help_panel=OPERATING)
app.add_typer(alerts.app, name="alerts", rich_help_panel=OPERATING)
app.command(rich_help_panel=OPERATING)(doctor.doctor)
app.command(rich_help_panel=OPERATING)(load.load)
app.command(rich_help_panel=OPERATING)(migrate.migrate)
importing.register(app, OPERATING)
app.add_typer(backup.app, name="backup", rich_help_panel=OPERATING)
app.add_typer(settings.app, name="config", rich_help_panel=OPERATING)


@app.command(rich_help_panel=OPERATING)
def version(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Print the version."""
    typer.echo(msgspec.json.encode({"version": __version__}).decode() if as_json else __version__)


@app.command("help", rich_help_panel=OPERATING)
def help_(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help="A command, a group of commands, or a topic.")
    ] = None,
) -> None:
    """Tell about a command, a group of commands, or a topic: `peik help sending`, `peik help times`."""
    try:
        said = help_about(ctx, words or [])
    except BadInput as problem:
        raise typer.Exit(tell(problem, is_json=False)) from None
    if said:
        typer.echo(said)


show_examples(app)
with_plain_flags(app)
