"""The filters that lists of letters share, as options."""

from typing import Annotated

import typer

from peik.cli.arguments import moment, unshielded

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
