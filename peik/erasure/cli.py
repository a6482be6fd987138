"""`peik forget`: remove a person's data everywhere, and say which backups still hold it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from peik.cli.client import Document
from peik.cli.command import CommandContext
from peik.cli.filters import Yes

if TYPE_CHECKING:
    from rich.console import RenderableType


def forget(
    context: CommandContext,
    user: Annotated[
        str | None, typer.Option("--user", help="The Telegram user id: the number of the private chat.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Your own name of a linked user, instead of the number.")
    ] = None,
    bot: Annotated[str | None, typer.Option("--bot", help="Only what this bot knows of them.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and change nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Remove a person's data from letters, arrivals, jobs, notifications, the archive and the logs, for good. Asks first."""
    if (user is None) is (name is None):
        raise typer.BadParameter("Say who: --user with a number, or --name.")
    from peik.erasure.api import FORGET_S, ErasureApi

    wanted: Document = {"user_id": user, "name": name, "bot_id": bot}
    with context.waiting("Looking through everything"):
        found = context.client.document(ErasureApi.forget, body={**wanted, "dry_run": True}, timeout_s=FORGET_S)
    if dry_run:
        context.show(found, lambda: _drawn(found))
        return
    context.confirm(f"Remove or blank {found['count']} records of this person for good?", is_sure=yes)
    with context.waiting("Forgetting"):
        done = context.client.document(ErasureApi.forget, body=wanted, timeout_s=FORGET_S)
    context.show(done, lambda: _drawn(done))


def _drawn(page: Document) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import plain, table

    places: Any = page["places"]
    rows = [
        (place.replace("_", " "), one["removed"], one["blanked"], one["left"])
        for place, one in places.items()
        if any(one.values())
    ]
    backups: Any = page["backups"]
    notes: Any = page["notes"]
    words = {
        "done": "It is done.",
        "going_on": "Peik goes on with it by itself: something is in use just now, or the last look is to come.",
        "dry_run": "Nothing was changed.",
    }[str(page["state"])]
    return Group(
        table(
            ("place", "removed", "blanked", "left"), rows, counts=("removed", "blanked", "left"), empty="Nothing here."
        ),
        plain(words),
        *(plain(note) for note in notes),
        plain(""),
        table(
            ("backup that still holds it", "made", "goes"),
            [(one["path"], one["made_at"], one["goes_at"] or "when you remove it") for one in backups],
            empty="No backup holds it.",
        ),
    )
