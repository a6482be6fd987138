"""docs/inbox.md names only what there is: calls of the API, commands, settings."""

import re
from pathlib import Path

from typer.main import get_command

from peik.app.commands import app
from peik.inbox.api import ArrivalApi, ConsumerApi
from peik.settings.table import SETTINGS
from peik.web.operations import operations_of

PAGE = (Path(__file__).parents[2] / "docs" / "inbox.md").read_text(encoding="utf-8")


def test_every_call_on_the_page_is_a_route() -> None:
    routes = {f"{one.verb} {one.path}" for api in (ArrivalApi, ConsumerApi) for one in operations_of(api)}
    named = set(re.findall(r"\b((?:GET|POST|PUT|DELETE) /v1/[a-z_/{}]+)", PAGE))
    assert len(named) > 8
    assert named <= routes
    assert set(re.findall(r"\$PEIK(/v1/[a-z/]+)", PAGE)) <= {route.split()[1] for route in routes}


def test_every_command_on_the_page_can_be_given() -> None:
    lines = re.findall(r"^peik ([a-z]+(?: [a-z]+)?)(.*)$", PAGE, re.MULTILINE)
    assert len(lines) > 6
    for words, rest in lines:
        command = get_command(app)
        for word in words.split():
            command = command.commands[word]  # type: ignore[attr-defined]
        known = {name for parameter in command.params for name in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, words


def test_every_setting_on_the_page_is_one() -> None:
    assert set(re.findall(r"PEIK_([A-Z_]+)", PAGE)) <= {setting.name.upper() for setting in SETTINGS}
