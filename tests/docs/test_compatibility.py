"""The page about bot libraries is of a run of what is tested now. If one of these fails: make compatibility"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs.pages.compatibility import compatibility_page
from tests.clients.harness import LIBRARIES, MODES, ROUTES, Library
from tests.clients.stories import CAPABILITIES, TROUBLES

ROOT = Path(__file__).parents[2]
RECORDED = (ROOT / "docs" / "compatibility.json").read_text(encoding="utf-8")
FOUND: dict[str, Any] = json.loads(RECORDED)


def test_the_page_is_what_the_generator_makes_of_the_run() -> None:
    assert (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8") == compatibility_page(RECORDED)


def test_the_run_was_of_every_library() -> None:
    assert list(FOUND) == [library.name for library in LIBRARIES]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_the_run_was_of_the_version_that_is_pinned(library: Library) -> None:
    assert FOUND[library.name]["version"] == pinned(library)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_every_deed_that_is_tested_was_seen_by_every_route_in_every_mode(library: Library) -> None:
    routes = FOUND[library.name]["routes"]
    assert list(routes) == list(ROUTES)
    for route, deeds in routes.items():
        tested = [*CAPABILITIES, *(TROUBLES if route == "peik" else ())]
        assert deeds == {deed: list(MODES) for deed in tested}


def pinned(library: Library) -> str:
    """The version in package.json, or in the dev extras of pyproject.toml."""
    if library.is_node:
        packages = json.loads((ROOT / "tests" / "clients" / "package.json").read_text(encoding="utf-8"))
        return str(packages["dependencies"][library.package])
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf'"{re.escape(library.package)}(?:\[\w+\])?==([\d.]+)"', text)
    assert found is not None, f"{library.package} is not pinned"
    return found[1]
