"""The filters that lists of letters share, as options."""

from collections.abc import Callable
from typing import Annotated

import typer

from peik.cli.arguments import moment, unshielded
from peik.cli.client import Document
from peik.cli.command import CommandContext

_PANEL = "Which letters"

Bot = Annotated[str | None, typer.Option("--bot", metavar="ID", help="The bot; not needed if there is one only.")]
OfBot = Annotated[str | None, typer.Option("--bot", metavar="ID", help="Of this bot.", rich_help_panel=_PANEL)]
OfChat = Annotated[
    str | None, typer.Option("--chat", metavar="CHAT", help="To this chat: a number or @name.", rich_help_panel=_PANEL)
]
OfUser = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="With this user_id in their metadata.", rich_help_panel=_PANEL),
]
OfType = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="With this message_type in their metadata.", rich_help_panel=_PANEL),
]
OfMethod = Annotated[
    str | None, typer.Option("--method", metavar="METHOD", help="Of this method.", rich_help_panel=_PANEL)
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Accepted since: 1h (ago), 2026-11-15T08:30.", rich_help_panel=_PANEL),
]
WithText = Annotated[
    str | None,
    typer.Option("--text", metavar="WORDS", help="With these words in their parameters.", rich_help_panel=_PANEL),
]
WithError = Annotated[
    str | None, typer.Option("--error", metavar="WORDS", help="That failed with these words.", rich_help_panel=_PANEL)
]
OfTrace = Annotated[
    str | None,
    typer.Option("--trace", metavar="TRACE", help="That answer this: u7000001.501.", rich_help_panel=_PANEL),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many to show.")]
Cursor = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where the last list ended (its next_cursor).")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


def filters(
    *,
    state: str | None = None,
    bot: str | None,
    chat: str | None,
    user: str | None,
    kind: str | None,
    method: str | None,
    since: str | None,
    text: str | None,
    error: str | None,
    trace: str | None = None,
) -> dict[str, str]:
    """As in the query of GET /v1/letters."""
    given = {
        "state": state,
        "bot_id": bot,
        "chat_id": None if chat is None else unshielded(chat),
        "user_id": user,
        "message_type": kind,
        "method": method,
        "since": moment(since, "--since", is_past=True),
        "text": text,
        "error": error,
        "trace": trace,
    }
    return {name: value for name, value in given.items() if value is not None}


# Acting on many dead things at once: which ones, how many that is, and whether the asker is sure.


COUNTED_MAX = 10_000
PAGE = 1000


def refuse_both(wanted: dict[str, str], *, is_all: bool) -> None:
    if wanted and is_all:
        raise typer.BadParameter("--all means all of them; leave it out where you say which.")


def is_confirmed(context: CommandContext, question: str, noun: str, count: Callable[[], int], *, is_sure: bool) -> bool:
    """Show how many it is about and ask; False if there are none."""
    if is_sure:
        return True
    found = count()
    if not found:
        return False
    words = f"more than {COUNTED_MAX:,} {noun}s" if found > COUNTED_MAX else counted(found, noun)
    context.confirm(question.format(words), is_sure=is_sure)
    return True


def count_pages(read: Callable[[str | None], Document], name: str) -> int:
    """How many there are over all pages, counted up to a bound: nobody should wait for the exact number."""
    count, cursor = 0, None
    while count <= COUNTED_MAX:
        page = read(cursor)
        found, more = page[name], page["next_cursor"]
        assert isinstance(found, list)
        count += len(found)
        if more is None:
            break
        cursor = str(more)
    return count


def counted(count: object, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
