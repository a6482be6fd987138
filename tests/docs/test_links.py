"""Every link within the repository leads somewhere, anchors too, and every picture that a page shows is there."""

import posixpath

import pytest

from tests.docs.pages import NAMES, ROOT, anchors, links


def targets(name: str) -> list[tuple[str, str]]:
    """(file of the repository, anchor) for each link that does not leave it."""
    found = []
    for link in links(name):
        path, _, anchor = link.partition("#")
        if ":" not in path:
            whole = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            found.append((whole, anchor))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_to_a_file_and_its_anchor_to_a_heading(name: str) -> None:
    for target, anchor in targets(name):
        assert (ROOT / target).exists(), f"{name} links to {target}"
        if anchor:
            assert target.endswith(".md"), f"{name} has an anchor into {target}"
            assert anchor in anchors(target), f"{name} links to {target}#{anchor}"


def test_there_are_many_of_them() -> None:
    found = [link for name in NAMES for link in targets(name)]
    assert len(found) > 300
    assert any(target.startswith("docs/screens/") for target, _ in found)
