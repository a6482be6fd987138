"""`peik users link|show|unlink|list` and `peik notify`: users of a company, their chats, and what they are notified of."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from peik.cli.arguments import moment, pair, unshielded
from peik.cli.client import Document, page_of
from peik.cli.command import CommandContext, asks
from peik.cli.filters import Cursor, Limit
from peik.errors import Unavailable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.cli.remote import RestClient
    from peik.notifications.api import UserApi

app = typer.Typer(no_args_is_help=True, help="Users of your own, and the chats that they linked.")

UserId = Annotated[str, typer.Argument(metavar="USER", help="As your own programs call the user.")]
Language = Annotated[str | None, typer.Option(metavar="CODE", help="To write in, such as fa.")]
Bot = Annotated[str | None, typer.Option(metavar="ID", help="The bot; not needed if there is one only.")]


def _rest(context: CommandContext) -> "RestClient":
    """The running Peik: it is the one that sees codes, and sends."""
    from peik.cli.remote import RestClient

    client = context.client
    if not isinstance(client, RestClient):
        detail = "Links and notifications need a running Peik: start `peik serve`, or say --url."
        raise Unavailable(code="not_running", detail=detail)
    return client


def _users() -> "type[UserApi]":
    from peik.notifications.api import UserApi  # with all that it needs: help is shown without

    return UserApi


@asks(app)
def link(
    context: CommandContext,
    user: UserId,
    bot: Bot = None,
    expires_in: Annotated[str | None, typer.Option(metavar="TIME", help="How long it is good: 15m by default.")] = None,
    language: Language = None,
) -> None:
    """Make a code that links one chat to a user, once. It is shown this once; an older one is over."""
    given = {"bot_id": bot, "expires_in": expires_in, "language": language}
    made = _rest(context).document(_users().link, user_id=unshielded(user), body=_said(given))
    way = made["url"] or f"/start {made['code']}"
    context.say(made, f"{way}\nGood until {made['expires_at']}, for whoever opens it first.")


@asks(app)
def show(context: CommandContext, user: UserId) -> None:
    """Show whether a user has linked a chat: which one, and since when."""
    found = _rest(context).document(_users().get_link, user_id=unshielded(user))
    context.show(found, lambda: _facts(found))


@asks(app)
def unlink(context: CommandContext, user: UserId) -> None:
    """Undo the link of a user; a code that was given out is over, too."""
    answer = _rest(context).document(_users().unlink, user_id=unshielded(user))
    context.say(answer, f"{user} is linked to no chat any more.")


@asks(app, "list")
def show_all(context: CommandContext, limit: Limit = 20, cursor: Cursor = None) -> None:
    """List users that were ever given a code, in the order of their ids."""
    page = _rest(context).document(_users().list_users, query=page_of(cursor, limit))
    found = page["users"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.cli.output import table, when

        rows = [
            (one["user_id"], one["chat_id"], one["bot_id"], one["language"], when(one["linked_at"])) for one in found
        ]
        columns = ("user", "chat", "bot", "language", "linked")
        return table(columns, rows, right=("chat", "bot"), shrinking=("user",), empty="There are no users yet.")

    context.show(page, draw)
    if page["next_cursor"] is not None:
        context.note(f"There may be more: --cursor {page['next_cursor']}")


def notify(
    context: CommandContext,
    user: Annotated[str, typer.Argument(metavar="USER", help="As your own programs call the user; - for --chat.")],
    message: Annotated[str, typer.Argument(metavar="TEXT", help="What there is to say.")],
    kind: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="What it is about: chooses the template.")
    ] = "note",
    title: Annotated[str, typer.Option(metavar="TEXT", help="Above the message.")] = "",
    chat: Annotated[str | None, typer.Option(metavar="CHAT", help="A chat instead of a user.")] = None,
    bot: Bot = None,
    language: Language = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="For the template; again for more.")
    ] = None,
    priority: Annotated[int, typer.Option(min=-1, max=2, help="2 waits for no quiet hours, rate or digest.")] = 1,
    photo: Annotated[str | None, typer.Option(metavar="URL", help="A picture, by its address or file_id.")] = None,
    document: Annotated[str | None, typer.Option(metavar="URL", help="A file, by its address or file_id.")] = None,
    digest: Annotated[str | None, typer.Option(metavar="TIME", help="Gather others of this type for so long.")] = None,
    send_at: Annotated[str | None, typer.Option(metavar="TIME", help="Not before: 10m, 2026-11-15T08:30.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(metavar="KEY", help="Sent once, however often asked.")] = None,
) -> None:
    """Notify a user in the chat that he linked: now, or when quiet hours, a digest or his rate allow it."""
    from peik.notifications.api import NotificationApi

    given = {
        "user_id": unshielded(user) if chat is None else None,
        "chat_id": None if chat is None else unshielded(chat),
        "bot_id": bot,
        "type": kind,
        "title": title,
        "message": message,
        "language": language,
        "data": dict(pair(one, "--data") for one in data or ()),
        "priority": priority,
        "photo": photo,
        "document": document,
        "digest": digest,
        "send_at": moment(send_at, "--send-at"),
        "idempotency_key": idempotency_key,
    }
    accepted = _rest(context).document(NotificationApi.notify, body=_said(given))
    goes = f"as letter {accepted['letter_id']}" if accepted["due_at"] is None else f"at {accepted['due_at']}"
    context.say(accepted, f"Accepted as notification {accepted['id']}; it goes out {goes}.")


def _said(given: Mapping[str, object]) -> Document:
    return {name: value for name, value in given.items() if value is not None}


def _facts(found: Document) -> "RenderableType":
    from peik.cli.output import facts

    quiet = found["quiet"]
    shown = {**found, "quiet": None if quiet is None else msgspec.json.encode(quiet).decode()}
    return facts([(name, value) for name, value in shown.items() if value is not None])
