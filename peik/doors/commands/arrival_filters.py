"""The filters that lists of arrivals share, as options."""

from typing import Annotated

import typer

from peik.doors.commands.words import moment, unshielded

_PANEL = "Which arrivals"

OfBot = Annotated[str | None, typer.Option("--bot", metavar="ID", help="Of this bot.", rich_help_panel=_PANEL)]
OfConsumer = Annotated[
    str | None,
    typer.Option("--consumer", metavar="NAME", help="As this consumer sees them.", rich_help_panel=_PANEL),
]
ForConsumer = Annotated[str, typer.Option("--consumer", metavar="NAME", help="Who gets them.")]
OfType = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Of this type, such as message.", rich_help_panel=_PANEL),
]
OfChat = Annotated[
    str | None, typer.Option("--chat", metavar="CHAT", help="Of this chat, by its number.", rich_help_panel=_PANEL)
]
OfUser = Annotated[str | None, typer.Option("--user", metavar="ID", help="Of this user.", rich_help_panel=_PANEL)]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Received since: 1h (ago), 2026-11-15T08:30.", rich_help_panel=_PANEL),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="TIME", help="Received until: 10m (ago), 2026-11-15T08:30.", rich_help_panel=_PANEL
    ),
]
OfFirst = Annotated[
    int | None, typer.Option("--first", metavar="N", min=0, help="From this number on.", rich_help_panel=_PANEL)
]
OfLast = Annotated[
    int | None, typer.Option("--last", metavar="N", min=0, help="Up to this number.", rich_help_panel=_PANEL)
]
WithText = Annotated[
    str | None,
    typer.Option("--text", metavar="WORDS", help="With these words in the update.", rich_help_panel=_PANEL),
]


def filters(
    *,
    state: str | None = None,
    consumer: str | None = None,
    bot: str | None,
    kind: str | None,
    chat: str | None,
    user: str | None,
    since: str | None,
    until: str | None,
    first: int | None = None,
    last: int | None = None,
    text: str | None,
) -> dict[str, str]:
    """As in the query of GET /v1/arrivals."""
    given = {
        "state": state,
        "consumer": consumer,
        "bot_id": bot,
        "type": kind,
        "chat_id": None if chat is None else unshielded(chat),
        "user_id": user,
        "since": moment(since, "--since", is_past=True),
        "until": moment(until, "--until", is_past=True),
        "first_number": None if first is None else str(first),
        "last_number": None if last is None else str(last),
        "text": text,
    }
    return {name: value for name, value in given.items() if value is not None}
