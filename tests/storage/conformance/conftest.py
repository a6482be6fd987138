from pathlib import Path

import pytest

from tests.storage.all_places import PLACES
from tests.storage.places import Place


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each kind: every story is told on every store."""
    return request.param(tmp_path)
