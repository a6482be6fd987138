"""Each story that is not about a disk is told on every store."""

from pathlib import Path

import pytest

from tests.faults.stores import STORES, SqliteFile


@pytest.fixture(params=STORES, ids=[each.name for each in STORES])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteFile:
    made = request.param(tmp_path)
    assert isinstance(made, SqliteFile)
    return made
