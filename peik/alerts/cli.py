"""`peik alerts list`, `peik alerts test`: what is wrong, what was told, and whether anybody hears it."""

from typing import TYPE_CHECKING

import msgspec
import typer

from peik.cli.command import CommandContext, Exit, asks
from peik.cli.help import Listing

if TYPE_CHECKING:
    from rich.console import RenderableType

_LAST_SHOWN = 20


app = typer.Typer(cls=Listing, help="What is wrong with Peik, and who is told. Alone it lists what goes on.")


@asks(app, "list")
def show_all(context: CommandContext) -> None:
    """List what is wrong now and what to do about it, and what was told last."""
    from peik.alerts.api import AlertApi

    page = context.client.ask(AlertApi.list_alerts)

    def draw() -> "RenderableType":
        from rich.console import Group

        from peik.cli.output import age, plain, table

        now = [
            (plain(one.rule, "red"), age(one.since), one.count, f"{one.text}\n→ {one.todo or ''}")
            for one in page.ongoing
        ]
        before = [(age(one.at), one.kind, one.rule, one.text.partition("\n")[0]) for one in page.last[:_LAST_SHOWN]]
        return Group(
            table(
                ("rule", "since", "count", "what, and what to do"), now, counts=("count",), empty="Nothing is wrong."
            ),
            plain(""),
            table(("ago", "kind", "rule", "told"), before, empty="Nothing was told yet."),
        )

    context.show(msgspec.to_builtins(page), draw)


@asks(app)
def test(context: CommandContext) -> None:
    """Send one alert by every way: to the chats of PEIK_ADMIN_CHATS, and to the addresses of PEIK_ALERT_URLS."""
    from peik.alerts.api import AlertApi

    with context.waiting("Sending"):
        page = context.client.ask(AlertApi.test_alerts)

    def draw() -> "RenderableType":
        from peik.cli.output import plain, table

        rows = [
            (one.way, plain("went", "green") if one.is_done else plain("failed", "red"), one.why or "")
            for one in page.ways
        ]
        empty = "There is nobody to tell: set PEIK_ADMIN_CHATS, PEIK_ALERT_URLS, or both."
        return table(("way", "it", "why"), rows, empty=empty)

    context.show(msgspec.to_builtins(page), draw)
    if not page.ways or not all(one.is_done for one in page.ways):
        raise typer.Exit(Exit.PROBLEM)
