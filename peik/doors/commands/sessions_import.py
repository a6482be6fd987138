"""`peik sessions import`: session files of Telethon that exist already. It works on the archive itself, beside a running Peik."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peik.doors.commands.exits import Exit
from peik.doors.commands.many import counted
from peik.doors.commands.visit import Visit, asks
from peik.errors import BadInput

if TYPE_CHECKING:
    from rich.console import RenderableType

    from peik.sessions.importing import Looked

# What leaves nothing to be done. The rest makes the exit code 1.
_FINE = frozenset({"imported", "duplicate"})
_STYLES = {"imported": "green", "duplicate": "dim", "unchecked": "yellow"}


def register(app: typer.Typer) -> None:
    asks(app, "import", may_create=True, has_archive=True, has_keys=True)(take_in)


def take_in(
    visit: Visit,
    files: Annotated[list[Path], typer.Argument(metavar="FILES|FOLDER", help="*.session files of Telethon 1.")],
    agent: Annotated[str, typer.Option(metavar="NAME", help="Whose accounts they are.")],
    check: Annotated[
        bool,
        typer.Option("--check", help="Ask Telegram about each first. No other program may be using them meanwhile."),
    ] = False,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Run from copies in PEIK_SESSIONS_DIR instead of sealed keys.")
    ] = False,
) -> None:
    """Take in session files of Telethon: each is looked at, told of, and registered once. The files stay as they are."""
    paths = _paths(files)
    way = visit.archive_itself()
    reports: list[Looked] = []
    try:
        with visit.progress("Taking in", len(paths), is_bytes=False) as advance:

            def note(looked: "Looked") -> None:
                reports.append(looked)
                advance(1)

            try:
                way.take_in(paths, agent_id=agent, check=check, keep_files=keep_files, on_each=note)
            except KeyboardInterrupt:
                visit.note(
                    f"Interrupted after {len(reports)} of {len(paths)}. What was taken in stays; start again to go on."
                )
    finally:
        way.close()
    counts: dict[str, int] = {}
    for looked in reports:
        counts[looked.verdict] = counts.get(looked.verdict, 0) + 1
    visit.show({"files": [_view(one) for one in reports], "counts": counts}, lambda: _table(reports))
    visit.note(", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in counts.items()) + ".")
    if len(reports) < len(paths):
        raise typer.Exit(Exit.INTERRUPTED)
    if set(counts) - _FINE:
        raise typer.Exit(Exit.PROBLEM)


def _paths(files: list[Path]) -> list[Path]:
    paths: list[Path] = []
    for path in files:
        if not path.is_dir():
            paths.append(path)
            continue
        found = sorted(one for one in path.iterdir() if one.suffix == ".session" and one.is_file())
        if not found:
            raise BadInput(code="no_file", detail=f"There are no *.session files in {path}.")
        paths.extend(found)
    return paths


def _view(looked: "Looked") -> dict[str, object]:
    return {
        "file": looked.file,
        "verdict": looked.verdict,
        "detail": looked.detail,
        "session_id": looked.session_id,
        "user_id": None if looked.user_id is None else str(looked.user_id),
    }


def _table(reports: "list[Looked]") -> "RenderableType":
    from peik.doors.commands.printing import plain, table

    rows = [
        (one.file, plain(one.verdict.replace("_", " "), _STYLES.get(one.verdict, "red")), one.session_id, one.detail)
        for one in reports
    ]
    return table(("file", "verdict", "session", "why"), rows, empty=f"{counted(0, 'file')} to take in.")
