"""`peik chats list|open|hold`: chats of which something is known that matters to sending."""

from typing import TYPE_CHECKING, Annotated

import typer

from peik.cli.arguments import moment, unshielded
from peik.cli.client import Document, page_of, some
from peik.cli.command import CommandContext, asks
from peik.cli.filters import Bot, Cursor, Limit
from peik.errors import BadInput, NotFound
from peik.outbox.cli_bots import known_bots

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(no_args_is_help=True, help="Chats that cannot be reached, are held, or have several ids.")

ChatId = Annotated[str, typer.Argument(metavar="CHAT", help="A number or @name.")]


@asks(app, "list")
def show_all(context: CommandContext, bot: Bot = None, limit: Limit = 50, cursor: Cursor = None) -> None:
    """List the chats of a bot of which something is known."""
    from peik.outbox.api import LetterApi

    query = some(bot_id=bot, **page_of(None if cursor is None else unshielded(cursor), limit))
    page = context.client.document(LetterApi.list_chats, query=query)
    found = page["chats"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import table

        rows = [(chat["chat_id"], chat["same_as"], _how(chat)) for chat in found]
        return table(("chat", "is", "how it stands"), rows, empty="Nothing special is known of any chat.")

    context.show(page, draw)
    if page["next_cursor"] is not None:
        context.note(f"There may be more: --cursor {page['next_cursor']}")


def _how(chat: Document) -> str:
    from peik.cli.output import age

    said = []
    if not chat["reachable"]:
        said.append(f"out of reach since {age(chat['refused_at'])}: {chat['reason']}")
    held = age(chat["held_until"])
    if held.startswith("in "):  # a hold that is over is still known
        said.append(f"held, goes on {held}")
    return "; ".join(said) or "open"


@asks(app, "open")
def open_chat(context: CommandContext, chat: ChatId, bot: Bot = None) -> None:
    """Let letters go to a chat again that was out of reach or held."""
    answer = _changed(context, bot, chat, {"reachable": True, "held_until": None})
    context.say(answer, f"Letters go to {unshielded(chat)} again.")


@asks(app)
def hold(
    context: CommandContext,
    chat: ChatId,
    until: Annotated[str, typer.Option("--until", "--for", metavar="TIME", help="10m (from now), 2026-11-15T08:30.")],
    bot: Bot = None,
) -> None:
    """Send nothing to a chat until then; its letters wait."""
    at = moment(until, "--until")
    answer = _changed(context, bot, chat, {"held_until": at})
    context.say({**answer, "held_until": at}, f"Nothing goes to {unshielded(chat)} until {at}.")


def _changed(context: CommandContext, bot: str | None, chat: str, change: Document) -> Document:
    from peik.outbox.api import LetterApi

    return context.client.document(
        LetterApi.change_chat, bot_id=only_bot(context, bot), chat_id=unshielded(chat), body=change
    )


def only_bot(context: CommandContext, bot: str | None) -> str:
    """As given, or the only one there is, where a path names the bot."""
    if bot is not None:
        return bot
    found = known_bots(context)["bots"]
    assert isinstance(found, list)
    if not found:
        raise NotFound(code="no_bot", detail="No bot is known yet: peik bots add")
    if len(found) > 1:
        raise BadInput(code="which_bot", detail="There are several bots: say which with --bot.")
    return str(found[0]["bot_id"])
