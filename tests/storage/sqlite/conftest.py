from pathlib import Path

import pytest

from tests.storage.places import SqlitePlace


@pytest.fixture
def place(tmp_path: Path) -> SqlitePlace:
    return SqlitePlace(tmp_path)
