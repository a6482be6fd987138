"""docs/stores.md, nodes.md, compose.md and deploy.md name only what there is: settings, commands, calls of the API, files."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from peik.app.commands import app
from peik.app.rest import OPERATIONS
from peik.monitoring.nodes import NodeApi
from peik.settings.config import load
from peik.settings.table import SETTINGS
from peik.web.operations import operations_of

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    name: (DOCS / name).read_text(encoding="utf-8") for name in ("stores.md", "nodes.md", "compose.md", "deploy.md")
}


@pytest.mark.parametrize("name", PAGES)
def test_every_setting_on_a_page_is_one(name: str) -> None:
    known = {variable for setting in SETTINGS for variable in setting.variables()}
    assert set(re.findall(r"PEIK_[A-Z_]+", PAGES[name])) <= known


@pytest.mark.parametrize("name", PAGES)
def test_every_command_on_a_page_can_be_given(name: str) -> None:
    named = re.findall(
        r"(?:`|^|\bnode-1 |\bapp )peik ([a-z]+)(?: (drain|resume))?( --wait)?", PAGES[name], re.MULTILINE
    )
    assert named
    for words in named:
        command = get_command(app)
        for word in filter(None, words[:2]):
            command = command.commands[word]  # type: ignore[attr-defined]
        if words[2]:
            assert "--wait" in {option for parameter in command.params for option in parameter.opts}


def test_every_call_about_nodes_is_a_route() -> None:
    routes = {f"{one.verb} {one.path}" for one in operations_of(NodeApi)}
    named = set(re.findall(r"(?:GET|POST) /v1/nodes[a-z/{}]*", PAGES["nodes.md"]))
    assert named
    assert named <= routes
    assert {"getHealth", "getReady", "listNodes", "drainNode", "resumeNode"} <= set(OPERATIONS)


def test_every_address_of_a_store_can_be_read() -> None:
    addresses = re.findall(r"^PEIK_STORE=(\S+)", PAGES["stores.md"], re.MULTILINE)
    assert len(addresses) == 7
    for address in addresses:
        load({"store": address}, environment={}, folder=DOCS / "nowhere")


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", PAGES[name]):
        assert (DOCS / link).exists(), link
