"""What is PostgreSQL's own: its programs, a user who may make no database, passwords, files in a folder."""

from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from peik.backups.postgres import _named
from peik.backups.watching import Watch
from peik.errors import Conflict, StartError
from tests.backups.trips import backups_in
from tests.store.acts import accept, draft, enclosed
from tests.store.all_places import HAS_SERVERS
from tests.store.moving.filling import BLOB

if not HAS_SERVERS:
    pytest.skip("they need servers", allow_module_level=True)

from tests.store.postgres_place import PostgresPlace


def test_no_list_of_processes_shows_a_password() -> None:
    address, secret = _named("postgres://peik:pass%40word@db.example:5433/shop?sslmode=require&application_name=x")
    assert address == "postgresql://peik@db.example:5433/shop?sslmode=require"
    assert secret == {"PGPASSWORD": "pass@word"}


async def test_without_its_programs_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartError, match="postgresql-client"):
        await backups_in(tmp_path, place).create(Watch())


async def test_a_user_who_may_make_no_database_has_it_read_through(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft(), draft())
    made = await backups_in(tmp_path, place).create(Watch())
    user = f"plain_{place.schema[:8]}"
    await place.run(f"CREATE ROLE {user} LOGIN")
    url = place.url.replace(f"{urlsplit(place.url).username}@", f"{user}@")
    warned: list[str] = []
    await backups_in(tmp_path, url).verify(made.path, Watch(warn=warned.append))
    assert len(warned) == 1
    assert "may not make a database" in warned[0]


async def test_trying_out_leaves_no_database_behind(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    backups = backups_in(tmp_path, place)
    await backups.verify((await backups.create(Watch())).path, Watch())
    connection = await asyncpg.connect(place.server.url)
    try:
        assert await connection.fetch("SELECT 1 FROM pg_database WHERE datname LIKE 'peik_verify_%'") == []
    finally:
        await connection.close()


async def test_files_of_a_shared_folder_come_along(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / BLOB).write_bytes(b"a cat")
    (folder / ("f" * 32)).write_bytes(b"of nobody")
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft(enclosed=(enclosed(BLOB),)))
    made = await backups_in(tmp_path, place, files=str(folder)).create(Watch())
    assert made.manifest.part("files").counts == {"files": 1}
    place.unseat()
    with pytest.raises(Conflict) as caught:
        await backups_in(tmp_path, place).restore(made.path, Watch())
    assert caught.value.code == "no_files_folder"
    (folder / BLOB).unlink()
    await backups_in(tmp_path, place, files=str(folder)).restore(made.path, Watch())
    assert (folder / BLOB).read_bytes() == b"a cat"
