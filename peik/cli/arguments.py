"""What people write on a command line, as the API wants it: moments, chats, key=value, secrets that are not arguments."""

import datetime
import re
import sys
import time
from pathlib import Path

import typer

from peik.core.units import parse_duration_s

_NUMBER = re.compile(r"\s*-?\d+")
_UNIX = re.compile(r"\d{9,11}(\.\d+)?")


def moment(text: str | None, option: str, *, is_past: bool = False) -> str | None:
    """RFC 3339 of a moment: so written, or local time without an offset, or Unix seconds, or "10m" away from now."""
    if text is None:
        return None
    if _UNIX.fullmatch(text):
        return _rfc3339(float(text))
    try:
        away = parse_duration_s(text)
    except ValueError:
        pass
    else:
        return _rfc3339(time.time() + (-away if is_past else away))
    try:
        return datetime.datetime.fromisoformat(text).astimezone().isoformat()
    except ValueError:
        near = "an hour ago is 1h" if is_past else "in ten minutes is 10m"
        raise typer.BadParameter(
            f"{text!r} is not a moment; {near}, or write 2026-11-15T08:30 (local) or …T08:30:00Z.", param_hint=option
        ) from None


def _rfc3339(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()


def seconds(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.", param_hint=option) from None


def shielded(argument: str) -> str:
    """A negative number on a command line is a group's id, not an option: a space before it tells the parser so."""
    return f" {argument}" if argument.startswith("-") and _NUMBER.fullmatch(argument) else argument


def unshielded(argument: str) -> str:
    return argument.strip() if _NUMBER.fullmatch(argument) else argument


def pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not name=value.", param_hint=option)
    return name, value


def secret(given: str | None, file: Path | None, prompt: str) -> str:
    """A token from standard input (`-`), a file or a prompt; never from the arguments, where everybody can read it."""
    if given is not None and given != "-":
        raise typer.BadParameter(
            "A token given as an argument stays in the shell's history and is seen by every user of the machine. "
            "Leave it out to be asked for it, write - to read it from standard input, or use --token-file. "
            "If it was a real one, revoke it with @BotFather."
        )
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{file} cannot be read: {error}.", param_hint="--token-file") from None
    if given == "-":
        return sys.stdin.readline().strip()
    if not sys.stdin.isatty():
        raise typer.BadParameter("Nobody can be asked for the token here. Write - to read it from standard input.")
    return str(typer.prompt(prompt, hide_input=True, err=True))
