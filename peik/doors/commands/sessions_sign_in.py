"""`peik sessions sign-in`: by code and password, asked for step by step, or by a QR code that is drawn in the terminal.

Without a terminal it makes one step at a time, and reads what is secret from standard input.
"""

import contextlib
import datetime
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from peik.doors.commands.accounts_counter import LOOK_S
from peik.doors.commands.counter import Document
from peik.doors.commands.sessions_words import SessionId, hidden, only_dash, shown_session
from peik.doors.commands.visit import Visit, asks
from peik.doors.commands.words import unshielded
from peik.errors import BadInput, Conflict, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

# What is worth another try of the same step.
_AGAIN = frozenset({"bad_code", "malformed_code", "bad_password", "malformed_password"})
_READ = "- reads it from standard input; else you are asked."
_CLEAR = "\x1b[{}A\x1b[J"  # up so many lines, and empty from there on


def register(app: typer.Typer) -> None:
    asks(app, "sign-in", has_archive=True, has_keys=True)(sign_in)


def sign_in(
    visit: Visit,
    session: SessionId,
    phone: Annotated[str | None, typer.Option(metavar="NUMBER", help="Else the one that is registered.")] = None,
    sms: Annotated[bool, typer.Option("--sms", help="Ask Telegram to send the code by SMS.")] = False,
    qr: Annotated[
        bool, typer.Option("--qr", help="Draw a QR code, to be scanned by a device that is signed in.")
    ] = False,
    code: Annotated[str | None, typer.Option("--code", metavar="-", help=_READ)] = None,
    password: Annotated[str | None, typer.Option("--password", metavar="-", help=_READ)] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Leave a sign-in that was begun.")] = False,
) -> None:
    """Sign an account in: asks for the code and the password, or draws a QR code. Begins where it was left."""
    has_code, has_password = only_dash(code, "--code"), only_dash(password, "--password")
    if sum((qr, has_code or has_password, cancel)) > 1:
        raise typer.BadParameter("Say --qr, --code and --password, or --cancel; not all at once.")
    number = None if phone is None else unshielded(phone)
    if cancel:
        visit.say(visit.accounts.cancel_sign_in(session), f"Session {session} is not being signed in any more.")
        return
    if qr:
        found = _by_qr(visit, session)
    elif has_code or has_password:
        found = _by_stdin(visit, session, has_code=has_code, has_password=has_password)
    elif visit.is_json or not sys.stdin.isatty():
        found = visit.accounts.send_code(session, number, by_sms=sms)
    else:
        found = _by_code(visit, session, number, by_sms=sms)
    visit.show(found, lambda: shown_session(found))
    _note_next(visit, session, found)


def _note_next(visit: Visit, session: str, found: Document) -> None:
    match found["state"]:
        case "active":
            visit.note(f"Signed in as {found['username'] or found['user_id']}.")
        case "code_sent":
            visit.note(f"Give the code: peik sessions sign-in {session} --code -")
        case "password_needed":
            visit.note(f"Give the password: peik sessions sign-in {session} --password -")


# ---- step by step ----


def _by_stdin(visit: Visit, session: str, *, has_code: bool, has_password: bool) -> Document:
    """A line for each that is asked for. An account without a password leaves its line unread."""
    found: Document = {}
    if has_code:
        found = visit.accounts.give_code(session, hidden("Code"))
    if has_password and found.get("state", "password_needed") == "password_needed":
        found = visit.accounts.give_password(session, hidden("Password"))
    return found


def _by_code(visit: Visit, session: str, phone: str | None, *, by_sms: bool) -> Document:
    found = visit.accounts.session(session)
    if found["state"] == "active":
        raise Conflict(code="signed_in", detail="Somebody is signed in already. Sign out first: peik sessions log-out")
    is_begun = phone is None and not by_sms and found["state"] in ("code_sent", "password_needed")
    if not is_begun:
        if phone is None and found["phone"] is None:
            phone = str(typer.prompt("Phone number", err=True))
        found = visit.accounts.send_code(session, phone, by_sms=by_sms)
    if found["state"] == "code_sent":
        visit.note(str(found["state_reason"]))
    while found["state"] == "code_sent":
        found = _tried(visit, found, visit.accounts.give_code, hidden("Code"))
    return _with_password(visit, found)


def _with_password(visit: Visit, found: Document) -> Document:
    while found["state"] == "password_needed":
        found = _tried(visit, found, visit.accounts.give_password, hidden("Password (two-step verification)"))
    return found


def _tried(visit: Visit, before: Document, step: "Callable[[str, str], Document]", given: str) -> Document:
    """What came of a step; as before, if it was a slip of the finger. Peik counts these, and ends it after a few."""
    try:
        return step(str(before["session_id"]), given)
    except Problem as problem:
        if problem.code not in _AGAIN:
            raise
        visit.note(f"{problem.detail} Try again.")
        return before


# ---- by QR ----


def _by_qr(visit: Visit, session: str) -> Document:
    if visit.is_json or not sys.stderr.isatty():
        raise BadInput(code="no_terminal", detail="A QR code needs a terminal to be drawn in. REST has it: GET …/qr.")
    if visit.accounts.session(session)["state"] == "active":
        raise Conflict(code="signed_in", detail="Somebody is signed in already. Sign out first: peik sessions log-out")
    visit.note("Scan it in Telegram: Settings, Devices, Link Desktop Device. Ctrl-C ends it.")
    try:
        found = _scanned(visit, session)
    except KeyboardInterrupt:
        with contextlib.suppress(Problem):
            visit.accounts.cancel_sign_in(session)
        raise
    return _with_password(visit, found)


def _scanned(visit: Visit, session: str) -> Document:
    """Draws a fresh one over the last when that is over, for as long as it takes."""
    lines = 0
    while True:
        qr = visit.accounts.qr(session)
        drawn = _drawn(str(qr["url"]))
        sys.stderr.write((_CLEAR.format(lines) if lines else "") + drawn)
        sys.stderr.flush()
        lines = drawn.count("\n")
        found = visit.accounts.scanned(session, looks=_looks(str(qr["expires_at"])))
        if found is not None:
            sys.stderr.write(_CLEAR.format(lines))
            return found


def _looks(expires_at: str) -> int:
    left = datetime.datetime.fromisoformat(expires_at) - datetime.datetime.now(datetime.UTC)
    return max(1, int(left.total_seconds() / LOOK_S))


def _drawn(url: str) -> str:
    import io

    try:
        import segno
    except ImportError:
        raise Conflict(
            code="no_pictures", detail="Drawing a QR code needs a package: pip install 'peik[sessions]'."
        ) from None
    text = io.StringIO()
    segno.make(url, error="l").terminal(text, compact=True)
    return text.getvalue()
