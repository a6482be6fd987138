"""`peik toys`: what there is to play with."""

import typer

from peik.cli.command import Visit, asks
from peik.cli.remote import RestClient

app = typer.Typer(help="Toys.")


@asks(app, "count")
def count(visit: Visit) -> None:
    """Count the toys."""
    counter = visit.counter
    assert isinstance(counter, RestClient)
    found = counter.call("GET", "/v1/toys")
    visit.say(found, f"There are {found['count']} toys.")


@asks(app, "break")
def break_one(visit: Visit) -> None:
    """Break a toy."""
    counter = visit.counter
    assert isinstance(counter, RestClient)
    left = counter.call("POST", "/v1/toys/break")
    visit.say(left, f"{left['count']} are left.")
