"""The filters that lists of messages, events and lines of the log share, as options."""

import enum
from typing import Annotated

import typer

from peik.doors.commands.words import moment, unshielded

_PANEL = "Which ones"


class DirectionName(enum.StrEnum):
    RECEIVED = "received"
    SENT = "sent"


class LevelName(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


OfSession = Annotated[
    str | None, typer.Option("--session", metavar="ID", help="Of this session.", rich_help_panel=_PANEL)
]
OfAgent = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Of this agent's sessions.", rich_help_panel=_PANEL)
]
OfChat = Annotated[
    str | None, typer.Option("--chat", metavar="CHAT", help="Of this chat, by its number.", rich_help_panel=_PANEL)
]
OfDirection = Annotated[
    DirectionName | None, typer.Option("--direction", help="Received or sent ones.", rich_help_panel=_PANEL)
]
OfSender = Annotated[
    str | None, typer.Option("--sender", metavar="ID", help="Written by this user or chat.", rich_help_panel=_PANEL)
]
OfKind = Annotated[
    str | None,
    typer.Option("--kind", metavar="KIND", help="Of this kind: text, photo, voice, …", rich_help_panel=_PANEL),
]
OfEvent = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Of this type: joined, read, reaction, …", rich_help_panel=_PANEL),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Since: 1h (ago), 2026-11-15T08:30.", rich_help_panel=_PANEL),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Until: 1h (ago), 2026-11-15T08:30.", rich_help_panel=_PANEL),
]
WithText = Annotated[
    str | None, typer.Option("--text", metavar="WORDS", help="With these whole words.", rich_help_panel=_PANEL)
]
IsDeleted = Annotated[
    bool | None,
    typer.Option("--deleted/--not-deleted", help="Only those that were deleted, or were not.", rich_help_panel=_PANEL),
]
Reader = Annotated[
    str | None,
    typer.Option("--reader", metavar="NAME", help="Go on where this reader was; its place is kept in the archive."),
]


def given(
    *,
    session: str | None = None,
    agent: str | None = None,
    chat: str | None = None,
    direction: str | None = None,
    sender: str | None = None,
    kind: str | None = None,
    event_type: str | None = None,
    since: str | None = None,
    until: str | None = None,
    text: str | None = None,
    deleted: bool | None = None,
    reader: str | None = None,
) -> dict[str, str]:
    """As in the queries of REST."""
    asked = {
        "session_id": session,
        "agent_id": agent,
        "chat_id": None if chat is None else unshielded(chat),
        "direction": direction,
        "sender_id": None if sender is None else unshielded(sender),
        "kind": kind,
        "event_type": event_type,
        "since": moment(since, "--since", is_past=True),
        "until": moment(until, "--until", is_past=True),
        "text": text,
        "deleted": None if deleted is None else str(deleted).lower(),
        "reader": reader,
    }
    return {name: value for name, value in asked.items() if value is not None}
