"""`peik toys`: what there is to play with."""

import typer

from peik.cli.command import Visit, asks
from peik.cli.remote import RestClient

app = typer.Typer(help="Toys.")


@asks(app, "count")
def count(visit: Visit) -> None:
    """Count the toys."""
    client = visit.client
    assert isinstance(client, RestClient)
    found = client.call("GET", "/v1/toys")
    visit.say(found, f"There are {found['count']} toys.")


@asks(app, "break")
def break_one(visit: Visit) -> None:
    """Break a toy."""
    client = visit.client
    assert isinstance(client, RestClient)
    left = client.call("POST", "/v1/toys/break")
    visit.say(left, f"{left['count']} are left.")
