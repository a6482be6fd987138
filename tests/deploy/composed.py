"""A compose file as Docker Compose would read it with these variables: merged, filled in, by profile."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Refused(Exception):
    """A variable that must be set is not."""


def composed(path: Path, variables: Mapping[str, str], *profiles: str) -> dict[str, Any]:
    """The services that would run."""
    services = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]
    chosen = {
        name: service
        for name, service in services.items()
        if not service.get("profiles") or set(service["profiles"]) & set(profiles)
    }
    return {name: _filled(service, variables) for name, service in chosen.items()}


def named(path: Path) -> set[str]:
    """Every variable that the file asks for."""
    return set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", path.read_text(encoding="utf-8")))


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    match value:
        case str():
            return filled(value, variables)
        case list():
            return [_filled(one, variables) for one in value]
        case dict():
            return {key: _filled(one, variables) for key, one in value.items()}
    return value


def filled(text: str, variables: Mapping[str, str]) -> str:
    """With ${NAME}, ${NAME:-else}, ${NAME:+instead}, ${NAME:?why}, one within another, and $$ for a dollar."""
    out, place = "", 0
    while place < len(text):
        if text.startswith("$$", place):
            out, place = out + "$", place + 2
        elif text.startswith("${", place):
            end = _closing(text, place + 2)
            out, place = out + _value(text[place + 2 : end], variables), end + 1
        else:
            assert text[place] != "$", f"a dollar that means nothing in {text!r}"
            out, place = out + text[place], place + 1
    return out


def _closing(text: str, place: int) -> int:
    depth = 1
    while depth:
        depth += 1 if text.startswith("${", place) else -1 if text[place] == "}" else 0
        place += 1
    return place - 1


def _value(inside: str, variables: Mapping[str, str]) -> str:
    name = _NAME.match(inside)
    assert name is not None, inside
    given, sign, rest = variables.get(name[0], ""), inside[name.end() : name.end() + 2], inside[name.end() + 2 :]
    match sign:
        case "":
            return given
        case ":-":
            return given or filled(rest, variables)
        case ":+":
            return filled(rest, variables) if given else ""
        case ":?":
            if not given:
                raise Refused(f"{name[0]}: {rest}")
            return given
    raise AssertionError(inside)
