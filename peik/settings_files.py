"""Reads the two files that settings may lie in, `.env` and `peik.toml`. What cannot be read is told with the file, the line and
the fix: a setting that is passed over in silence is found out much later, and elsewhere."""

import io
import tomllib
from pathlib import Path

from dotenv import dotenv_values
from dotenv.parser import parse_stream

from peik.errors import StartError


def read_env(path: Path) -> dict[str, str | None]:
    """The variables of an `.env`; none if there is no such file. Raises StartError."""
    text = _text(path)
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:
            blank = binding.original.string[
                : -len(binding.original.string.lstrip())
            ]  # lines before it count as its own
            line = binding.original.line + blank.count("\n")
            # The line itself may hold a token, and is not shown.
            raise StartError(f"{path}, line {line}: this is not NAME=value. Mend it, or put # before it.")
    return dict(dotenv_values(stream=io.StringIO(text)))


def read_toml(path: Path) -> dict[str, str]:
    """The settings of a `peik.toml`; none if there is no such file. Raises StartError."""
    try:
        table = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise StartError(f"{path} is not valid TOML: {error}.") from None
    return {name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in table.items()}


def _text(path: Path) -> str:
    if not path.is_file():  # a folder named .env is a virtual environment of somebody's
        return ""
    try:
        return path.read_text(encoding="utf-8-sig")  # Windows puts a mark before the first name
    except OSError as error:
        words = (
            f"{path} cannot be read: {error.strerror}. Give this user the right to read it, or start Peik elsewhere."
        )
        raise StartError(words) from None
    except UnicodeDecodeError:
        raise StartError(f"{path} cannot be read: it is not text in UTF-8. Save it as UTF-8.") from None
