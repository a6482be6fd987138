"""`peik logs`: Peik's own log, where PEIK_LOG_IN_ARCHIVE keeps it."""

from typing import TYPE_CHECKING, Annotated

import typer

from peik.doors.commands.archive_filters import LevelName, OfSession, Since, Until, given
from peik.doors.commands.filters import Cursor, Limit
from peik.doors.commands.visit import Visit

if TYPE_CHECKING:
    from rich.console import RenderableType


def logs(
    visit: Visit,
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
    wanted |= {
        name: value for name, value in (("level", level), ("event", event), ("bot_id", bot)) if value is not None
    }
    page = visit.accounts.logs(wanted, cursor=cursor, limit=limit)
    found = page["logs"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.doors.commands.archive_drawing import logs_table

        return logs_table(found)

    visit.show(page, draw)
    if page["next"] is not None:
        visit.note(f"There may be more: --cursor {page['next']}")
