"""`peik messages list|show|count|export|follow|forget|stats`: what accounts saw and said, in the archive."""

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peik.doors.commands.archive_filters import (
    IsDeleted,
    OfAgent,
    OfChat,
    OfDirection,
    OfKind,
    OfSender,
    OfSession,
    Reader,
    Since,
    Until,
    WithText,
    given,
)
from peik.doors.commands.counter import Document
from peik.doors.commands.filters import Cursor, Limit, Yes
from peik.doors.commands.following import follow_lines
from peik.doors.commands.many import counted
from peik.doors.commands.visit import Visit, asks
from peik.doors.commands.words import unshielded

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(no_args_is_help=True, help="Messages that accounts received and sent: find, export, follow, forget.")


class FormName(enum.StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


# ---- looking ----


@asks(app, "list", has_archive=True)
def show_all(
    visit: Visit,
    session: OfSession = None,
    agent: OfAgent = None,
    chat: OfChat = None,
    direction: OfDirection = None,
    sender: OfSender = None,
    kind: OfKind = None,
    since: Since = None,
    until: Until = None,
    text: WithText = None,
    deleted: IsDeleted = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> None:
    """List messages, the newest first."""
    wanted = given(
        session=session, agent=agent, chat=chat, direction=direction, sender=sender, kind=kind,
        since=since, until=until, text=text, deleted=deleted,
    )  # fmt: skip
    page = visit.accounts.messages(wanted, cursor=cursor, limit=limit)
    found = page["messages"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.doors.commands.archive_drawing import messages_table

        return messages_table(found, empty="There are no such messages.")

    visit.show(page, draw)
    if page["next"] is not None:
        visit.note(f"There may be more: --cursor {page['next']}")


@asks(app, has_archive=True)
def show(
    visit: Visit,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session that saw it.")],
    chat: Annotated[str, typer.Argument(metavar="CHAT", help="The chat's number.")],
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="The message's number in it.")],
) -> None:
    """Show a message: all that Telegram told of it, and every version."""
    found = visit.accounts.message(session, unshielded(chat), message)

    def draw() -> "RenderableType":
        from peik.doors.commands.archive_drawing import message_page

        return message_page(found)

    visit.show(found, draw)


@asks(app, has_archive=True)
def count(
    visit: Visit,
    session: OfSession = None,
    agent: OfAgent = None,
    chat: OfChat = None,
    direction: OfDirection = None,
    sender: OfSender = None,
    kind: OfKind = None,
    since: Since = None,
    until: Until = None,
    text: WithText = None,
    deleted: IsDeleted = None,
) -> None:
    """Count messages."""
    wanted = given(
        session=session, agent=agent, chat=chat, direction=direction, sender=sender, kind=kind,
        since=since, until=until, text=text, deleted=deleted,
    )  # fmt: skip
    with visit.waiting("Counting"):
        answer = visit.accounts.count(wanted)
    visit.say(answer, str(answer["count"]))


@asks(app, has_archive=True)
def stats(visit: Visit, agent: OfAgent = None) -> None:
    """Show how much is in the archive."""
    answer = visit.accounts.stats(agent)

    def draw() -> "RenderableType":
        from peik.doors.commands.printing import facts

        return facts([(name, f"{answer[name]:,}") for name in ("sessions", "messages", "versions", "events")])

    visit.show(answer, draw)


# ---- out of the archive ----


@asks(app, has_archive=True)
def export(
    visit: Visit,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Where to; else standard output.")] = None,
    form: Annotated[FormName | None, typer.Option("--format", help="By default as FILE is named, or jsonl.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an export to FILE that was interrupted.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Even if FILE is there.")] = False,
    session: OfSession = None,
    agent: OfAgent = None,
    chat: OfChat = None,
    direction: OfDirection = None,
    sender: OfSender = None,
    kind: OfKind = None,
    since: Since = None,
    until: Until = None,
    text: WithText = None,
    deleted: IsDeleted = None,
) -> None:
    """Write messages to a file as JSON Lines or CSV, the newest first. One that was interrupted goes on with --resume."""
    from peik.doors.commands.exporting import export_to_file, export_to_stdout

    wanted = given(
        session=session, agent=agent, chat=chat, direction=direction, sender=sender, kind=kind,
        since=since, until=until, text=text, deleted=deleted,
    )  # fmt: skip
    if file is None or str(file) == "-":
        if resume or overwrite or visit.is_json:
            raise typer.BadParameter(
                "--resume, --overwrite and --json need a FILE: the messages go to standard output."
            )
        export_to_stdout(visit, wanted, form or FormName.JSONL)
        return
    if resume and overwrite:
        raise typer.BadParameter("Say --resume or --overwrite; not both.")
    by_name = FormName.CSV if file.suffix.lower() == ".csv" else FormName.JSONL
    export_to_file(visit, file, wanted, form or by_name, is_resumed=resume, may_overwrite=overwrite)


@asks(app, has_archive=True)
def follow(
    visit: Visit, session: OfSession = None, agent: OfAgent = None, chat: OfChat = None, reader: Reader = None
) -> None:
    """Print messages as they are archived, edits and deletions too, until Ctrl-C. With --json one document to a line."""

    def words(kind: str, line: Document) -> str:
        from peik.doors.commands.archive_drawing import message_line

        return message_line(kind, line)

    follow_lines(visit, "messages", given(session=session, agent=agent, chat=chat, reader=reader), words)


@asks(app, has_archive=True)
def forget(
    visit: Visit,
    user: Annotated[str, typer.Argument(metavar="USER", help="The person's id at Telegram.")],
    yes: Yes = False,
) -> None:
    """Remove for good what a person wrote and did, in the archives of all accounts. Asks first."""
    visit.confirm(f"Remove everything that {user} wrote and did, for good?", is_sure=yes)
    with visit.waiting("Removing"):
        answer = visit.accounts.forget(unshielded(user))
    removed = answer["removed"]
    assert isinstance(removed, dict)
    parts = [counted(number, kind.removesuffix("s").replace("_", " ")) for kind, number in removed.items() if number]
    visit.say(answer, f"Removed: {', '.join(parts) or 'nothing, since nothing was there'}.")
