"""The settings in force: each with its value, where it was found and what it is for. Secrets are only said to be there."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.config import Config, Given, find, shown_address
from peik.core.role import Role
from peik.doors.dashboard.board import Board, Page, Visitor
from peik.errors import StartError
from peik.settings import SETTINGS, Setting


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    variable: str
    value: str | None  # None: not set
    is_secret: bool
    is_default: bool
    source: str | None  # None: a flag, or a file that has been changed since the start
    help: str


class SettingsPages:
    def __init__(self, board: Board) -> None:
        self._board = board

    def table(self) -> tuple[Page, ...]:
        return (("GET", "/admin/settings", self.settings, Role.ADMIN, ""),)

    async def settings(self, request: Request, visitor: Visitor) -> Response:
        visitor.caller.must_serve_all()
        found = _found()
        groups: dict[str, list[Shown]] = {}
        for setting in SETTINGS:
            row = shown(setting, self._board.peik.config, found.get(setting.name))
            groups.setdefault(setting.group, []).append(row)
        return self._board.page(request, visitor, "settings.html", groups=groups)


def _found() -> Mapping[str, Given]:
    """As the settings are written now. They were right when Peik started; what is wrong by now is simply not found."""
    try:
        return find()
    except (StartError, OSError, ValueError):
        return {}


def shown(setting: Setting, config: Config, given: Given | None) -> Shown:
    """One row. What is in force is shown as it was written, if that is what is written there now."""
    value = getattr(config, setting.name)
    is_as_written = given is not None and _parsed(setting, given.text) == value
    return Shown(
        variable=setting.variable,
        value=_text(setting, value, given.text if given is not None and is_as_written else None),
        is_secret=setting.is_secret,
        is_default=_parsed(setting, setting.default) == value,
        source=given.source if given is not None and is_as_written else None,
        help=setting.help,
    )


def _parsed(setting: Setting, text: str | None) -> object:
    try:
        return None if text is None else setting.parse(text)
    except ValueError:
        return ValueError  # which no setting is


def _text(setting: Setting, value: object, written: str | None) -> str | None:
    if value is None or value == "" or value == ():
        return None
    if setting.name == "routes":
        return ", ".join(route.name for route in value) if isinstance(value, tuple) else None
    if setting.is_secret:
        return ""
    if setting.has_secret:
        return shown_address(str(value))
    if written is not None:
        return written
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)
