"""Which archive an address names."""

from pathlib import Path

import pytest

from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.wiring import archive_of, beside
from peik.errors import StartError


@pytest.mark.parametrize(
    ("store", "archive"),
    [
        ("sqlite:///peik.db", "sqlite:///peik.db.archive"),
        ("sqlite:////var/lib/peik.db", "sqlite:////var/lib/peik.db.archive"),
        ("postgresql://u:p@h/d", "postgresql://u:p@h/d?schema=peik_archive"),
        ("postgresql://h/d?sslmode=require&schema=own", "postgresql://h/d?sslmode=require&schema=own_archive"),
    ],
)
def test_without_a_name_it_is_beside_the_store(store: str, archive: str) -> None:
    assert beside(store) == archive


def test_redis_as_store_wants_a_name() -> None:
    with pytest.raises(StartError, match="Name one in PEIK_ARCHIVE"):
        archive_of(None, store="redis://localhost")


@pytest.mark.parametrize(
    "url", ["redis://localhost", "mysql://h/d", "sqlite://", "sqlite:///", "peik.db", "postgresql://h/d?schema=A-B"]
)
def test_what_is_no_archive_is_refused(url: str) -> None:
    with pytest.raises(StartError, match=r"archive|PEIK_ARCHIVE"):
        archive_of(url, store="sqlite:///peik.db")


def test_each_address_names_its_kind(tmp_path: Path) -> None:
    assert isinstance(archive_of(f"sqlite:///{tmp_path}/a", store="redis://h"), SqliteArchive)
    kinds = {
        "postgresql://h/d": "PostgresArchive",
        "postgres://h/d": "PostgresArchive",
        "mongodb://h/d": "MongoArchive",
        "mongodb+srv://h/d": "MongoArchive",
    }
    for url, kind in kinds.items():
        assert type(archive_of(url, store="sqlite:///peik.db")).__name__ == kind


def test_sessions_are_cached_in_redis_before_a_server(tmp_path: Path) -> None:
    cached = archive_of("mongodb://h/d", store="redis://h", cache="redis://h?prefix=own:")
    assert type(cached).__name__ == "CachedArchive"
    file = archive_of(f"sqlite:///{tmp_path}/a", store="redis://h", cache="redis://h")
    assert isinstance(file, SqliteArchive)
