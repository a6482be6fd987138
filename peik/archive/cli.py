"""`peik messages list|show|count|export|follow|forget|stats`: what accounts saw and said, in the archive. `peik events`, and
`peik logs`."""

import csv
import enum
import io
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from peik.cli.arguments import moment, unshielded
from peik.cli.client import Document, Filters, page_of, some
from peik.cli.command import CommandContext, Exit, asks
from peik.cli.filters import Cursor, Limit, Yes, counted
from peik.errors import BadInput, Conflict, Problem, Unavailable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.archive.api import MessageApi
    from peik.cli.archive import ArchiveClient
    from peik.cli.remote import RestClient

# The filters that lists of messages, events and lines of the log share, as options.


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
    return some(
        session_id=session,
        agent_id=agent,
        chat_id=None if chat is None else unshielded(chat),
        direction=direction,
        sender_id=None if sender is None else unshielded(sender),
        kind=kind,
        event_type=event_type,
        since=moment(since, "--since", is_past=True),
        until=moment(until, "--until", is_past=True),
        text=text,
        deleted=None if deleted is None else str(deleted).lower(),
        reader=reader,
    )


def api() -> "type[MessageApi]":
    from peik.archive.api import MessageApi  # with all that it needs: help is shown without

    return MessageApi


# Lines of a feed as they come, until Ctrl-C.


RETRY_S = 2.0


def follow_lines(
    context: CommandContext,
    handler: Callable[..., Awaitable[object]],
    wanted: Filters,
    words: Callable[[str, Document], str],
) -> None:
    """A line is asked for only after the one before was written."""
    try:
        for frame in followed(context.accounts, handler, wanted, on_lost=context.note):
            line: Document = msgspec.json.decode(frame.data, type=dict[str, object])
            shown = (
                msgspec.json.encode({"line": frame.event, **line}).decode()
                if context.is_json
                else words(frame.event, line)
            )
            sys.stdout.write(shown + "\n")
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        leave_stdout()
        raise typer.Exit(Exit.SUCCESS) from None


class SseFrame(NamedTuple):
    """Of a stream of server-sent events."""

    event: str
    id: str
    data: bytes


def followed(
    client: "RestClient | ArchiveClient",
    handler: Callable[..., Awaitable[object]],
    wanted: Filters,
    *,
    on_lost: Callable[[str], None],
) -> Iterator[SseFrame]:
    """Lines as they come, for ever. A connection that breaks is made again, from the last line on."""
    from peik.archive.api import FeedHeaders

    last: str | None = None
    has_begun = False
    while True:
        # A reader with a name has its place in the archive.
        headers = FeedHeaders(last_event_id=None if "reader" in wanted else last)
        try:
            with client.stream(handler, query=wanted, headers=headers) as answer:
                has_begun = True
                for frame in frames(answer.chunks):
                    if frame.data:
                        yield frame
                    last = frame.id or last
            on_lost("Peik ended the stream; trying again.")
        except Unavailable as error:
            if not has_begun:
                raise
            on_lost(f"{error.detail} Trying again.")
        client.pause(RETRY_S)


def frames(chunks: Iterator[bytes]) -> Iterator[SseFrame]:
    """Whole ones only: what comes after the last blank line is nothing yet."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n\n")
        for text in whole:
            fields = dict(_field(line) for line in text.split(b"\n") if line and not line.startswith(b":"))
            event, name = (fields.get(one, b"").decode() for one in (b"event", b"id"))
            yield SseFrame(event, name, fields.get(b"data", b""))


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name, value.removeprefix(b" ")


def leave_stdout() -> None:
    """Whoever read it has seen enough: what Python still wants to write at its end goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(no_args_is_help=True, help="Messages that accounts received and sent: find, export, follow, forget.")


class FormName(enum.StrEnum):
    JSONL = "jsonl"
    CSV = "csv"


# ---- looking ----


@asks(app, "list", has_archive=True)
def show_all(
    context: CommandContext,
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
    page = context.accounts.document(api().list_messages, query={**wanted, **page_of(cursor, limit)})
    found = page["messages"]
    assert isinstance(found, list)

    def draw() -> "RenderableType":
        from peik.archive.tables import messages_table

        return messages_table(found, empty="There are no such messages.")

    context.show(page, draw)
    if page["next"] is not None:
        context.note(f"There may be more: --cursor {page['next']}")


@asks(app, has_archive=True)
def show(
    context: CommandContext,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session that saw it.")],
    chat: Annotated[str, typer.Argument(metavar="CHAT", help="The chat's number.")],
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="The message's number in it.")],
) -> None:
    """Show a message: all that Telegram told of it, and every version."""
    found = context.accounts.document(
        api().get_message, session_id=session, chat_id=unshielded(chat), message_id=message
    )

    def draw() -> "RenderableType":
        from peik.archive.tables import message_page

        return message_page(found)

    context.show(found, draw)


@asks(app, has_archive=True)
def count(
    context: CommandContext,
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
    with context.waiting("Counting"):
        answer = context.accounts.document(api().count_messages, query=wanted, timeout_s=None)
    context.say(answer, str(answer["count"]))


@asks(app, has_archive=True)
def stats(context: CommandContext, agent: OfAgent = None) -> None:
    """Show how much is in the archive."""
    answer = context.accounts.document(api().get_stats, query=some(agent_id=agent))

    def draw() -> "RenderableType":
        from peik.cli.output import facts

        return facts([(name, f"{answer[name]:,}") for name in ("sessions", "messages", "versions", "events")])

    context.show(answer, draw)


# ---- out of the archive ----


@asks(app, has_archive=True)
def export(
    context: CommandContext,
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
    wanted = given(
        session=session, agent=agent, chat=chat, direction=direction, sender=sender, kind=kind,
        since=since, until=until, text=text, deleted=deleted,
    )  # fmt: skip
    if file is None or str(file) == "-":
        if resume or overwrite or context.is_json:
            raise typer.BadParameter(
                "--resume, --overwrite and --json need a FILE: the messages go to standard output."
            )
        export_to_stdout(context, wanted, form or FormName.JSONL)
        return
    if resume and overwrite:
        raise typer.BadParameter("Say --resume or --overwrite; not both.")
    by_name = FormName.CSV if file.suffix.lower() == ".csv" else FormName.JSONL
    export_to_file(context, file, wanted, form or by_name, is_resumed=resume, may_overwrite=overwrite)


@asks(app, has_archive=True)
def follow(
    context: CommandContext,
    session: OfSession = None,
    agent: OfAgent = None,
    chat: OfChat = None,
    reader: Reader = None,
) -> None:
    """Print messages as they are archived, edits and deletions too, until Ctrl-C. With --json one document to a line."""

    def words(kind: str, line: Document) -> str:
        from peik.archive.tables import message_line

        return message_line(kind, line)

    follow_lines(context, api().stream_messages, given(session=session, agent=agent, chat=chat, reader=reader), words)


@asks(app, has_archive=True)
def forget(
    context: CommandContext,
    user: Annotated[str, typer.Argument(metavar="USER", help="The person's id at Telegram.")],
    yes: Yes = False,
) -> None:
    """Remove for good what a person wrote and did, in the archives of all accounts. Asks first."""
    context.confirm(f"Remove everything that {user} wrote and did, for good?", is_sure=yes)
    with context.waiting("Removing"):
        answer = context.accounts.document(api().forget, body={"user_id": unshielded(user)}, timeout_s=None)
    removed = answer["removed"]
    assert isinstance(removed, dict)
    parts = [counted(number, kind.removesuffix("s").replace("_", " ")) for kind, number in removed.items() if number]
    context.say(answer, f"Removed: {', '.join(parts) or 'nothing, since nothing was there'}.")


# `peik messages export`: page by page to standard output or into a file.
#
# While it goes on, the file is named FILE.part, and FILE.part.place says up to where it is whole and where the next page begins.
# Both are synced page by page, so that an export goes on exactly there, whatever ended it.


PAGE = 1000


class ExportPage(NamedTuple):
    data: bytes
    cursor: str | None  # where the next one begins; None: this was the last


def page_at(context: CommandContext, wanted: Filters, form: str, cursor: str | None) -> ExportPage:
    from peik.archive.api import NEXT_CURSOR

    query = {**wanted, "format": form, **page_of(cursor, PAGE)}
    with context.accounts.stream(api().export, query=query) as answer:
        return ExportPage(b"".join(answer.chunks), answer.headers.get(NEXT_CURSOR.lower()))


class ExportPlace(msgspec.Struct, kw_only=True):
    """How far an export is, and what it is an export of."""

    filters: dict[str, str]
    form: str
    size_bytes: int = 0
    count: int = 0
    cursor: str | None = None


def export_to_stdout(context: CommandContext, wanted: dict[str, str], form: str) -> None:
    cursor: str | None = None
    out = sys.stdout.buffer
    try:
        with context.progress("Exporting", _total(context, wanted), is_bytes=False) as advance:
            while True:
                page = page_at(context, wanted, form, cursor)
                out.write(page.data)
                out.flush()
                advance(_records(page, form, is_first=cursor is None))
                cursor = page.cursor
                if cursor is None:
                    return
    except BrokenPipeError:
        leave_stdout()
        raise typer.Exit(Exit.PROBLEM) from None


def export_to_file(
    context: CommandContext, file: Path, wanted: dict[str, str], form: str, *, is_resumed: bool, may_overwrite: bool
) -> None:
    part, kept = file.with_name(file.name + ".part"), file.with_name(file.name + ".part.place")
    try:
        place = _begun(file, part, kept, wanted, form, is_resumed=is_resumed, may_overwrite=may_overwrite)
        was_at = place.count
        _export(context, part, kept, place)
        part.replace(file)
        kept.unlink(missing_ok=True)
    except OSError as error:
        raise Problem(code="cannot_write", detail=f"{part} cannot be written: {error.strerror}.") from None
    except KeyboardInterrupt:
        context.note("What was exported so far is kept. Go on with --resume.")
        raise typer.Exit(Exit.INTERRUPTED) from None
    document = {
        "file": str(file),
        "format": form,
        "count": place.count,
        "resumed_at": was_at,
        "bytes": place.size_bytes,
    }
    context.say(document, f"{counted(place.count, 'message')} exported to {file}.")


def _begun(
    file: Path, part: Path, kept: Path, wanted: dict[str, str], form: str, *, is_resumed: bool, may_overwrite: bool
) -> ExportPlace:
    if is_resumed and kept.exists():
        return _kept(kept, part, wanted, form)
    if is_resumed:
        raise BadInput(code="nothing_to_resume", detail=f"No export to {file} was interrupted. Leave --resume out.")
    for path in (file, part):
        if path.exists() and not may_overwrite:
            hint = (
                "--resume goes on with it, --overwrite starts from the beginning"
                if path == part
                else "--overwrite replaces it"
            )
            raise Conflict(code="file_exists", detail=f"{path} is there already: {hint}.")
    part.write_bytes(b"")
    return ExportPlace(filters=wanted, form=form)


def _kept(kept: Path, part: Path, wanted: dict[str, str], form: str) -> ExportPlace:
    """Of an export of the same. Times that were meant from now on (an hour ago) stay those of the beginning."""
    try:
        place = msgspec.json.decode(kept.read_bytes(), type=ExportPlace)
    except msgspec.DecodeError:
        raise Conflict(
            code="bad_place", detail=f"{kept} cannot be read. --overwrite starts from the beginning."
        ) from None
    if not part.exists() or part.stat().st_size < place.size_bytes:
        raise Conflict(
            code="bad_place", detail=f"{part} is not what {kept} says. --overwrite starts from the beginning."
        )
    if _without_times(place.filters) != _without_times(wanted) or place.form != form:
        raise Conflict(
            code="other_export", detail=f"{part} is an export of something else. Say the same filters, or --overwrite."
        )
    return place


def _without_times(filters: dict[str, str]) -> dict[str, str]:
    """An hour ago is another time now: only whether one was given is compared."""
    return {name: "" if name in ("since", "until") else value for name, value in filters.items()}


def _export(context: CommandContext, part: Path, kept: Path, place: ExportPlace) -> None:
    with (
        part.open("r+b") as out,
        context.progress("Exporting", _total(context, place.filters), is_bytes=False) as advance,
    ):
        out.truncate(place.size_bytes)  # what came after is of a page that was not whole
        out.seek(place.size_bytes)
        advance(place.count)
        while True:
            is_first = place.cursor is None
            page = page_at(context, place.filters, place.form, place.cursor)
            out.write(page.data)
            out.flush()
            os.fsync(out.fileno())
            records = _records(page, place.form, is_first=is_first)
            place.size_bytes += len(page.data)
            place.count += records
            place.cursor = page.cursor
            advance(records)
            if page.cursor is None:
                return
            _keep(kept, place)


def _keep(kept: Path, place: ExportPlace) -> None:
    new = kept.with_name(kept.name + ".new")
    with new.open("wb") as file:
        file.write(msgspec.json.encode(place))
        file.flush()
        os.fsync(file.fileno())
    new.replace(kept)


def _total(context: CommandContext, wanted: dict[str, str]) -> int:
    """For the bar only: where nobody sees one, nothing is counted."""
    if context.is_json or not sys.stderr.isatty():
        return 0
    count = context.accounts.document(api().count_messages, query=wanted, timeout_s=None)["count"]
    assert isinstance(count, int)
    return count


def _records(page: ExportPage, form: str, *, is_first: bool) -> int:
    if form == "jsonl":
        return page.data.count(b"\n")
    return sum(1 for _ in csv.reader(io.StringIO(page.data.decode(), newline=""))) - is_first


# `peik events list|follow`: what else accounts saw.


events_app = typer.Typer(no_args_is_help=True, help="What else accounts saw: who joined, left, read, reacted.")


@asks(events_app, "list", has_archive=True)
def list_events(
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


@asks(events_app, "follow", has_archive=True)
def follow_events(
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
