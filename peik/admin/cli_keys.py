"""`peik keys list|create|remove`, and `peik routes`."""

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from peik.cli.arguments import moment
from peik.cli.client import Document
from peik.cli.command import CommandContext, asks
from peik.cli.filters import Yes

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.admin.api import KeyApi

app = typer.Typer(no_args_is_help=True, help="Keys of the REST API.")


class ScopeName(enum.StrEnum):
    READ = "read"
    SEND = "send"
    ADMIN = "admin"


def _api() -> "type[KeyApi]":
    from peik.admin.api import KeyApi  # late: see tests/cli/test_shape.py

    return KeyApi


@asks(app, "list")
def show_all(context: CommandContext) -> None:
    """List the keys, without their texts."""
    page = context.client.document(_api().list_keys)
    found = page["keys"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, table

        rows = [
            (
                key["id"],
                key["name"],
                ", ".join(key["scopes"]),
                "all" if key["bot_ids"] is None else ", ".join(key["bot_ids"]),
                age(key["created_at"]),
                age(key["last_used_at"]) or "never",
                age(key["expires_at"]) or "never",
            )
            for key in found
        ]
        columns = ("id", "name", "may", "bots", "made", "used", "expires")
        return table(columns, rows, right=("id",), empty="There is only the admin key.")

    context.show(page, draw)


@asks(app)
def create(
    context: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or what for.")],
    scope: Annotated[list[ScopeName], typer.Option(help="What it may do; again for more.")] = [ScopeName.SEND],  # noqa: B006
    bot: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="For this bot only; again for more. Else for all.")
    ] = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="30d (from now), 2026-11-15T08:30.")] = None,
    webhook_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Who is told how letters of this key ended.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="How often it may ask: 20/s, 20/s burst 100; off: as it likes.")
    ] = None,
) -> None:
    """Make a key. It is shown once, now."""
    wanted: Document = {"name": name, "scopes": list(scope)}
    optional = {
        "bot_ids": bot or None,
        "expires_at": moment(expires, "--expires"),
        "webhook_url": webhook_url,
        "rate": rate,
    }
    wanted |= {field: value for field, value in optional.items() if value is not None}
    made = context.client.document(_api().make_key, body=wanted)

    def draw() -> "RenderableType":
        from peik.cli.output import facts

        return facts([("id", made["id"]), ("key", made["key"]), ("webhook secret", made.get("webhook_secret"))])

    context.show(made, draw)
    context.note("Keep it now: it is not shown again.")


@asks(app)
def remove(
    context: CommandContext,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="From `peik keys list`.")],
    yes: Yes = False,
) -> None:
    """Revoke a key: it opens nothing any more."""
    context.confirm(f"Revoke key {key_id}?", is_sure=yes)
    context.client.document(_api().revoke_key, key_id=key_id)
    context.say({"id": key_id, "removed": True}, f"Key {key_id} is revoked.")


_ROUTE_STATES = {"closed": "up", "open": "down"}  # the API has the words of a breaker


def routes(context: CommandContext) -> None:
    """Show every way to Telegram: how it stands, and which one letters take."""
    from peik.monitoring.api import HealthApi

    page = context.client.document(HealthApi.list_routes)
    found = page["routes"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, state, table

        rows = [
            (
                "→" if route["in_use"] else "",
                route["name"],
                state(_ROUTE_STATES.get(str(route["state"]), route["state"])),
                route["failures"],
                age(route["since"]),
                age(route["probe_at"]),
                route["why"],
            )
            for route in found
        ]
        columns = ("", "route", "state", "failures", "since", "next look", "why")
        return table(columns, rows, counts=("failures",), empty="")

    context.show(page, draw)
