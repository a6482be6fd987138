"""`peik doctor`: gathers the facts that `peik.ops.doctor` judges. Nothing is sent, and no file is made by it; but opening a
server's store brings its schema up to date, as every opening does."""

from typing import TYPE_CHECKING, Annotated

import typer

from peik.doors.commands.exits import Exit
from peik.doors.commands.visit import Visit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.ops.doctor import Finding


def doctor(
    store: Annotated[str | None, typer.Option(metavar="URL", help="As if this flag were given.")] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="The running Peik that should answer.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Look whether Peik can work here: settings, store, durability, clocks, room, Telegram, each bot's token."""
    from peik.doors.commands.examining import examine
    from peik.ops.doctor import Grade, worst

    visit = Visit({}, is_json=as_json, may_create=False)
    with visit.waiting("Looking around"):
        found = examine({name: value for name, value in (("store", store), ("url", url)) if value is not None})
    grade = worst(found)
    visit.show({"grade": grade, "findings": found}, lambda: _drawn(found))
    if grade is Grade.RED:
        raise typer.Exit(Exit.PROBLEM)


def _drawn(found: "list[Finding]") -> "RenderableType":
    from peik.doors.commands.printing import plain, table

    rows = [
        (plain(one.grade, one.grade), one.name, plain(f"{one.words} → {one.fix}" if one.fix else one.words))
        for one in found
    ]
    return table(("", "what", "how it stands"), rows, empty="")
