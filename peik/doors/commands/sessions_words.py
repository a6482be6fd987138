"""What the commands of accounts share: the session's id, its page, a proxy that may hold a password."""

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from peik.doors.commands.counter import Document

if TYPE_CHECKING:
    from rich.console import RenderableType

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="Its id, from `peik sessions list`.")]


def shown_session(session: Document) -> "RenderableType":
    from peik.doors.commands.printing import facts, state, when

    runs = {"file": "a session file", "key": "a sealed key"}.get(str(session["runs_from"]), "nothing yet: sign it in")
    metadata = msgspec.json.encode(session["metadata"]).decode()
    return facts(
        [
            ("session", session["session_id"]),
            ("agent", session["agent_id"]),
            ("phone", session["phone"]),
            ("account", session["user_id"]),
            ("name", f"@{session['username']}" if session["username"] else None),
            ("state", state(session["state"])),
            ("why", session["state_reason"]),
            ("until", when(session["state_until"])),
            ("connected", "yes" if session["is_connected"] else "no"),
            ("deactivated", None if session["is_active"] else "yes"),
            ("runs from", runs),
            ("proxy", "yes" if session["has_proxy"] else None),
            ("metadata", None if metadata == "{}" else metadata),
            ("registered", when(session["created_at"])),
            ("last active", when(session["active_at"])),
        ]
    )


def hidden(prompt: str) -> str:
    """Asked for in a terminal without being shown; else the next line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(prompt, hide_input=True, err=True))
    return sys.stdin.readline().strip("\r\n")


def only_dash(given: str | None, option: str) -> bool:
    """Whether a secret is to be read from standard input. Raises BadParameter for one that stands on the command line."""
    if given not in (None, "-"):
        raise typer.BadParameter(
            f"What is given as an argument stays in the shell's history and is seen by every user of the machine. Write "
            f"{option} - to read it from standard input, or leave it out to be asked for it.",
            param_hint=option,
        )
    return given is not None


def proxy_of(given: str | None) -> str | None:
    """An address without a password may stand on the command line; another is read."""
    if given is None or given == "-":
        return None if given is None else hidden("Proxy")
    if "@" in given:
        only_dash(given, "--proxy")
    return given
