"""`peik events list|follow`: what else accounts saw."""

from typing import TYPE_CHECKING

import typer

from peik.doors.commands.archive_filters import OfAgent, OfChat, OfEvent, OfSession, Reader, Since, Until, given
from peik.doors.commands.counter import Document
from peik.doors.commands.filters import Cursor, Limit
from peik.doors.commands.following import follow_lines
from peik.doors.commands.visit import Visit, asks

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(no_args_is_help=True, help="What else accounts saw: who joined, left, read, reacted.")


@asks(app, "list", has_archive=True)
def show_all(
    visit: Visit,
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
    page = visit.accounts.events(wanted, cursor=cursor, limit=limit)
    found = page["events"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.doors.commands.archive_drawing import events_table

        return events_table(found)

    visit.show(page, draw)
    if page["next"] is not None:
        visit.note(f"There may be more: --cursor {page['next']}")


@asks(app, has_archive=True)
def follow(
    visit: Visit, session: OfSession = None, agent: OfAgent = None, chat: OfChat = None, reader: Reader = None
) -> None:
    """Print events as they are archived, until Ctrl-C. With --json one document to a line."""

    def words(kind: str, line: Document) -> str:
        from peik.doors.commands.archive_drawing import event_line

        return event_line(line)

    follow_lines(visit, "events", given(session=session, agent=agent, chat=chat, reader=reader), words)
