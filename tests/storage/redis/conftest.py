from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.redis_place import RedisPlace
from tests.storage.redis_server import RedisServer


@pytest.fixture
def place(tmp_path: Path) -> RedisPlace:
    return RedisPlace(tmp_path)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of its own that syncs its log before it answers."""
    server = RedisServer(tmp_path, appendonly="yes", appendfsync="always").start()
    yield server
    server.kill()
