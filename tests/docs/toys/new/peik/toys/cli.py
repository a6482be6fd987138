"""`peik toys`: what there is to play with."""

import typer

from peik.cli.command import CommandContext, asks
from peik.cli.remote import RestClient

app = typer.Typer(help="Toys.")


@asks(app, "count")
def count(context: CommandContext) -> None:
    """Count the toys."""
    client = context.client
    assert isinstance(client, RestClient)
    found = client.call("GET", "/v1/toys")
    context.say(found, f"There are {found['count']} toys.")


@asks(app, "break")
def break_one(context: CommandContext) -> None:
    """Break a toy."""
    client = context.client
    assert isinstance(client, RestClient)
    left = client.call("POST", "/v1/toys/break")
    context.say(left, f"{left['count']} are left.")
