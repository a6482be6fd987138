"""`peik consumers list|set|remove`, `peik inbox` and `peik recover`: who reads updates, and where they come from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peik.cli.arguments import secret
from peik.cli.client import Document
from peik.cli.command import Exit, Visit, asks
from peik.cli.filters import Bot, Yes
from peik.contacts.cli import only_bot
from peik.outbox.cli_bots import known_bots

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(no_args_is_help=True, help="Who reads the updates of a bot, and how far each is.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The consumer's name.")]


@asks(app, "list")
def show_all(visit: Visit, bot: Bot = None) -> None:
    """List the consumers, how far each is and what waits for it."""
    page = visit.counter.inbox.consumers(bot)
    found = page["consumers"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, plain, table

        rows = [
            (
                one["bot_id"],
                one["name"],
                one["kind"],
                one["open"],
                one["delayed"],
                plain(one["failed"], "red" if one["failed"] else ""),
                age(one["oldest_open_at"]),
                age(one["seen_at"]) or "never",
                one["url"],
            )
            for one in found
        ]
        columns = ("bot", "name", "kind", "open", "delayed", "dead", "oldest", "seen", "pushed to")
        return table(columns, rows, right=("open", "delayed", "dead"), empty="Nobody reads updates yet.")

    visit.show(page, draw)


@asks(app, "set")
def set_consumer(
    visit: Visit,
    name: Name,
    push_to: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Push its updates there.")] = None,
    no_push: Annotated[bool, typer.Option("--no-push", help="Push nothing: it reads for itself.")] = False,
    secret_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the secret that pushes show, as Telegram's do.")
    ] = None,
    types: Annotated[
        str | None, typer.Option(metavar="TYPES", help="Only updates of these types, comma-separated.")
    ] = None,
    connections: Annotated[int | None, typer.Option(min=1, max=100, help="Pushes at once.")] = None,
    bot: Bot = None,
) -> None:
    """Push a consumer's updates to an address, or let it read for itself again. Made if there is none."""
    if (push_to is None) != no_push:
        raise typer.BadParameter("Say --push-to with an address, or --no-push.")
    wanted: Document = {"url": push_to, "max_connections": connections}
    if types is not None:
        wanted["allowed_updates"] = [kind.strip() for kind in types.split(",") if kind.strip()]
    if secret_file is not None:
        wanted["secret"] = secret(None, secret_file, "")
    answer = visit.counter.inbox.set_consumer(only_bot(visit, bot), name, wanted)
    visit.say(answer, f"Updates of {name} are pushed." if push_to else f"{name} reads for itself.")


@asks(app)
def remove(visit: Visit, name: Name, bot: Bot = None, yes: Yes = False) -> None:
    """Forget a consumer and how far it was."""
    bot_id = only_bot(visit, bot)
    visit.confirm(f"Forget the consumer {name} and how far it was?", is_sure=yes)
    visit.counter.inbox.remove_consumer(bot_id, name)
    visit.say({"bot_id": bot_id, "name": name, "removed": True}, f"The consumer {name} is forgotten.")


def inbox(visit: Visit, bot: Bot = None) -> None:
    """Show where each bot's updates come from, how far they are, and what waits to be read."""
    page = visit.counter.inbox.inbox(bot)
    found = page["bots"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, table

        rows = [
            (
                one["bot_id"],
                one["source"],
                age(one["seen_at"]) or "never",
                age(one["received_at"]) or "never",
                one["last_update_id"],
                one["expired"],
                sum(consumer["open"] + consumer["delayed"] for consumer in one["consumers"]),
                sum(consumer["failed"] for consumer in one["consumers"]),
            )
            for one in found
        ]
        columns = ("bot", "updates", "asked", "last came", "last id", "expired", "unread", "dead")
        return table(columns, rows, right=columns[4:], empty="No bot yet: peik bots add")

    visit.show(page, draw)


def recover(visit: Visit, bot: Bot = None) -> None:
    """Fetch everything that Telegram has kept, once, store it, and say what it was."""
    bot_ids = [bot] if bot is not None else _all_bots(visit)
    reports = []
    for bot_id in bot_ids:
        with visit.waiting(f"Asking Telegram what it has kept for bot {bot_id}…"):
            reports.append(visit.counter.inbox.recover(bot_id))
    visit.show({"bots": reports}, lambda: _reports(reports))
    if not reports:
        raise typer.Exit(Exit.NOT_FOUND)


def _all_bots(visit: Visit) -> list[str]:
    found = known_bots(visit)["bots"]
    assert isinstance(found, list)
    return [str(one["bot_id"]) for one in found]


def _reports(reports: list[Document]) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import plain

    return Group(*(plain(_sentence(report)) for report in reports)) if reports else plain("No bot is known yet.")


def _sentence(report: Document) -> str:
    expired = "not known how many" if report["expired"] is None else report["expired"]
    return (
        f"Bot {report['bot_id']}: found {report['found']}, stored {report['stored']}, "
        f"duplicates {report['duplicates']}, expired {expired}, in {report['took_s']} s."
    )
