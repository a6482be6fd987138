"""A test that is marked to raise an alert must do so: by its real cause, heard by people."""

from collections.abc import Iterator

import pytest

from tests.alerts.alarm import RAISED


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "raises_alert(rule): raises the alert of this rule by its real cause")


@pytest.fixture(autouse=True)
def raised(request: pytest.FixtureRequest) -> Iterator[None]:
    """The mark alone proves nothing: that somebody has heard it does."""
    RAISED.clear()
    yield
    marked = {mark.args[0] for mark in request.node.iter_markers("raises_alert")}
    assert marked <= RAISED, f"marked, but nobody heard of {marked - RAISED}"
