"""Every story is told once in each place."""

from pathlib import Path

import pytest

from tests.archive.places import PLACES, Place


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__.removesuffix("Place").lower())
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind: type[Place] = request.param
    return kind(tmp_path)
