"""The site has a place for every page, and every page can be reached. Whether it builds is for `make docs-check`."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.docs.pages import NAMES, ROOT
from tests.docs.test_links import targets


class Loader(yaml.SafeLoader):
    """MkDocs' own tags name functions of Python; we do not care for them."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def placed(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        place = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(place, list):
            yield from placed(place)
        else:
            yield place


def test_every_page_has_one_place_and_every_place_a_page() -> None:
    places = list(placed(SITE["nav"]))
    assert len(places) == len(set(places))
    pages = {name.removeprefix("docs/") for name in NAMES if name.startswith("docs/")}
    others = {place for place in places if place.startswith("project/")}
    assert set(places) == pages | others | {"index.md"}
    assert all((ROOT / place.removeprefix("project/")).is_file() for place in others)


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, waiting = {"README.md"}, ["README.md"]
    while waiting:
        found = {target for target, _ in targets(waiting.pop()) if target in NAMES} - seen
        seen |= found
        waiting += found
    assert {name for name in NAMES if name.startswith("docs/")} <= seen
    others = {place.removeprefix("project/") for place in placed(SITE["nav"]) if place.startswith("project/")}
    assert others <= seen  # the site makes a page of a file outside of docs/ only if another page leads to it


def test_nothing_is_asked_of_another_address() -> None:
    assert SITE["theme"]["font"] is False
    assert SITE["plugins"] == ["search"]  # those of blogs, cards and offline use fetch things while they build
    assert not {"extra_css", "extra_javascript"} & set(SITE)
    # Diagrams would be drawn by a script from a CDN.
    assert "mermaid" not in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
