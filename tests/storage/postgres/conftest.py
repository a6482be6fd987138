from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.postgres_place import PostgresPlace
from tests.storage.servers import PostgresServer


@pytest.fixture
def place(tmp_path: Path) -> PostgresPlace:
    return PostgresPlace(tmp_path)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a story may stop, with the settings that it would have by itself."""
    server = PostgresServer({})
    server.start()
    yield server
    server.remove()
