from pathlib import Path

import pytest

from tests.store.places import SqlitePlace


@pytest.fixture
def place(tmp_path: Path) -> SqlitePlace:
    return SqlitePlace(tmp_path)
