"""Collects what the libraries have been seen to do. With `--compatibility FILE` it is written down for the docs."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.clients.harness import LIBRARIES, MODES, ROUTES, Library
from tests.clients.stories import CAPABILITIES, TROUBLES

Proven = Callable[[Library, str, str, Iterable[str]], None]

_PROPERTY = "compatibility"
_seen: set[tuple[str, ...]] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compatibility", type=Path, metavar="FILE", help="write which library did what to this file")


@pytest.fixture
def proven(record_property: Callable[[str, object], None]) -> Proven:
    """Notes what a library did by that route and in that mode."""

    def note(library: Library, route: str, mode: str, capabilities: Iterable[str]) -> None:
        for capability in capabilities:
            record_property(_PROPERTY, [library.name, route, mode, capability])

    return note


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Properties travel with the report, from the workers of xdist too.
    if report.when == "call":
        _seen.update(tuple(value) for name, value in report.user_properties if name == _PROPERTY)


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = session.config.getoption("--compatibility", None)
    if target is not None and not hasattr(session.config, "workerinput"):
        target.write_text(json.dumps(_table(), indent=2) + "\n", encoding="utf-8")


def _table() -> dict[str, object]:
    """For each library, route and deed: the modes in which it was seen."""
    return {
        library.name: {
            "version": library.version,
            "program": library.program,
            "routes": {
                route: {
                    deed: [mode for mode in MODES if (library.name, route, mode, deed) in _seen]
                    for deed in (*CAPABILITIES, *(TROUBLES if route == "peik" else ()))
                }
                for route in ROUTES
            },
        }
        for library in LIBRARIES
    }
