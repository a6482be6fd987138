"""`peik events list|follow`: what else accounts saw."""

from typing import TYPE_CHECKING, Annotated

import typer

from peik.archive.cli import (
    LevelName,
    OfAgent,
    OfChat,
    OfEvent,
    OfSession,
    Reader,
    Since,
    Until,
    api,
    follow_lines,
    given,
)
from peik.cli.client import Document, page_of, some
from peik.cli.command import CommandContext, asks
from peik.cli.filters import Cursor, Limit

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(no_args_is_help=True, help="What else accounts saw: who joined, left, read, reacted.")


@asks(app, "list", has_archive=True)
def show_all(
    context: CommandContext,
    session: OfSession = None,
    agent: OfAgent = None,
    event_type: OfEvent = None,
    chat: OfChat = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List events, the newest first."""
    wanted = given(session=session, agent=agent, event_type=event_type, chat=chat, since=since, until=until)
    page = context.accounts.document(api().list_events, query={**wanted, **page_of(cursor, limit)})
    found = page["events"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.archive.tables import events_table

        return events_table(found)

    context.show(page, draw)
    if page["next"] is not None:
        context.note(f"There may be more: --cursor {page['next']}")


@asks(app, has_archive=True)
def follow(
    context: CommandContext,
    session: OfSession = None,
    agent: OfAgent = None,
    chat: OfChat = None,
    reader: Reader = None,
) -> None:
    """Print events as they are archived, until Ctrl-C. With --json one document to a line."""

    def words(kind: str, line: Document) -> str:
        from peik.archive.tables import event_line

        return event_line(line)

    follow_lines(context, api().stream_events, given(session=session, agent=agent, chat=chat, reader=reader), words)


# `peik logs`: Peik's own log, where PEIK_LOG_IN_ARCHIVE keeps it.


if TYPE_CHECKING:
    from rich.console import RenderableType


def logs(
    context: CommandContext,
    level: Annotated[LevelName | None, typer.Option(help="This level and worse.")] = None,
    event: Annotated[str | None, typer.Option(metavar="NAME", help="Lines of this event.")] = None,
    session: OfSession = None,
    bot: Annotated[str | None, typer.Option(metavar="ID", help="Of this bot or account.")] = None,
    since: Since = None,
    until: Until = None,
    text: Annotated[str | None, typer.Option(metavar="WORDS", help="With these words anywhere.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> None:
    """Show Peik's log, the newest first, where PEIK_LOG_IN_ARCHIVE keeps it."""
    wanted = given(session=session, since=since, until=until, text=text)
    wanted |= some(level=level, event=event, bot_id=bot) | page_of(cursor, limit)
    page = context.accounts.document(api().list_logs, query=wanted)
    found = page["logs"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.archive.tables import logs_table

        return logs_table(found)

    context.show(page, draw)
    if page["next"] is not None:
        context.note(f"There may be more: --cursor {page['next']}")
