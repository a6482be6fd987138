"""`peik bots list|add|pause|resume|inbound|token|remove|limits`. Tokens are never arguments."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peik.cli.arguments import secret
from peik.cli.client import Document
from peik.cli.command import CommandContext, asks
from peik.cli.filters import Yes
from peik.errors import NotFound

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.outbox.api import BotApi

app = typer.Typer(no_args_is_help=True, help="The bots that Peik serves.")

BotId = Annotated[str, typer.Argument(metavar="BOT", help="The number before the colon of its token.")]
TokenFrom = Annotated[str | None, typer.Argument(metavar="-", help="- reads the token from standard input.")]
TokenFile = Annotated[Path | None, typer.Option("--token-file", metavar="FILE", help="A file with the token.")]

_INBOUND = "Its updates: off, polling or webhook."


@asks(app, "list")
def show_all(context: CommandContext) -> None:
    """List the bots."""
    page = known_bots(context)
    found = page["bots"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import age, plain, table

        rows = [
            (
                bot["bot_id"],
                f"@{bot['username']}" if bot["username"] else "",
                bot["inbound"],
                "Telegram's" if bot["limits"] is None else "own",
                age(bot["created_at"]),
                plain(bot["paused"], "yellow") if bot["paused"] else plain("serving", "green"),
            )
            for bot in found
        ]
        return table(("bot", "name", "updates", "limits", "added", "state"), rows, empty="No bot yet: peik bots add")

    context.show(page, draw)


@asks(app, may_create=True)
def add(
    context: CommandContext,
    token: TokenFrom = None,
    token_file: TokenFile = None,
    inbound: Annotated[str, typer.Option(metavar="HOW", help=_INBOUND)] = "off",
) -> None:
    """Add a bot by its token, from a hidden prompt, a file or standard input; or give a known one its new token."""
    text = secret(token, token_file, "Token of the bot")
    bot = context.client.document(_api().add_bot, body={"token": text, "inbound": inbound})
    context.say(bot, f"Bot {bot['bot_id']} is served.")


@asks(app)
def pause(context: CommandContext, bot: BotId) -> None:
    """Send nothing for a bot; its letters wait."""
    context.say(_changed(context, bot, {"paused": True}), f"Bot {bot} is paused; its letters wait.")


@asks(app)
def resume(context: CommandContext, bot: BotId) -> None:
    """Let a paused bot go on."""
    context.say(_changed(context, bot, {"paused": False}), f"Bot {bot} goes on.")


@asks(app)
def inbound(
    context: CommandContext, bot: BotId, how: Annotated[str, typer.Argument(metavar="HOW", help=_INBOUND)]
) -> None:
    """Say how a bot's updates come: another program keeps its own with "off"."""
    context.say(_changed(context, bot, {"inbound": how}), f"Updates of bot {bot}: {how}.")


@asks(app)
def token(context: CommandContext, bot: BotId, given: TokenFrom = None, token_file: TokenFile = None) -> None:
    """Give a bot its new token after a change at @BotFather, from a hidden prompt, a file or standard input."""
    text = secret(given, token_file, f"New token of bot {bot}")
    context.say(_changed(context, bot, {"token": text}), f"Bot {bot} has its new token.")


@asks(app)
def remove(context: CommandContext, bot: BotId, yes: Yes = False) -> None:
    """Forget a bot that has no letters to send."""
    _known(context, bot)
    context.confirm(f"Forget bot {bot} and its token?", is_sure=yes)
    context.client.document(_api().remove_bot, bot_id=bot)
    context.say({"bot_id": bot, "removed": True}, f"Bot {bot} is forgotten.")


@asks(app)
def limits(
    context: CommandContext,
    bot: BotId,
    pace: Annotated[bool | None, typer.Option("--pace/--no-pace", help="Whether to keep a pace at all.")] = None,
    bulk_per_s: Annotated[float | None, typer.Option(help="Letters of priority 0 and below, a second.")] = None,
    interactive_per_s: Annotated[float | None, typer.Option(help="Those of higher priority, a second.")] = None,
    interactive_per_s_max: Annotated[float | None, typer.Option(help="What that may grow to.")] = None,
    private_per_s: Annotated[float | None, typer.Option(help="To one private chat, a second.")] = None,
    private_burst: Annotated[int | None, typer.Option(help="How many at once to one private chat.")] = None,
    group_per_min: Annotated[int | None, typer.Option(help="To one group, a minute.")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Back to Telegram's figures.")] = False,
) -> None:
    """Show the limits of a bot, or change those that are given."""
    given = {
        "is_on": pace,
        "bulk_per_s": bulk_per_s,
        "interactive_per_s": interactive_per_s,
        "interactive_per_s_max": interactive_per_s_max,
        "private_per_s": private_per_s,
        "private_burst": private_burst,
        "group_per_min": group_per_min,
    }
    wanted = {name: value for name, value in given.items() if value is not None}
    if wanted and reset:
        raise typer.BadParameter("--reset takes all of them back; give it alone.")
    known = _known(context, bot)
    if reset:
        known = _changed(context, bot, {"limits": None})
    elif wanted:
        old = known["limits"]
        known = _changed(context, bot, {"limits": {**(old if isinstance(old, dict) else {}), **wanted}})
    context.show(known, lambda: _limits(known))


def _api() -> "type[BotApi]":
    from peik.outbox.api import BotApi  # with all that it needs: help is shown without

    return BotApi


def known_bots(context: CommandContext) -> Document:
    return context.client.document(_api().list_bots)


def _changed(context: CommandContext, bot: str, change: Document) -> Document:
    return context.client.document(_api().change_bot, bot_id=bot, body=change)


def _known(context: CommandContext, bot: str) -> Document:
    found = known_bots(context)["bots"]
    assert isinstance(found, list)
    for one in found:
        if one["bot_id"] == bot:
            return dict(one)
    raise NotFound(code="unknown_bot", detail=f"Bot {bot} is not known here. `peik bots list` shows who is.")


def _limits(bot: Document) -> "RenderableType":
    import msgspec

    from peik.cli.output import table
    from peik.core.pace import PaceLimits

    usual = msgspec.structs.asdict(PaceLimits())
    own = bot["limits"]
    figures = usual | own if isinstance(own, dict) else usual
    rows = [(name.replace("_", "-"), figures[name], usual[name]) for name in usual if name != "is_on"]
    rows.insert(0, ("pace", "on" if figures["is_on"] else "off", "on"))
    return table(("limit", "here", "usual"), rows, right=("here", "usual"), empty="")
