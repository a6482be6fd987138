"""What is PostgreSQL's own: its programs, a user who may make no database, passwords, files in a folder."""

from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from peik.backups.model import BackupWatch
from peik.backups.postgres import named, restore, run
from peik.errors import Conflict, StartError
from peik.storage.postgres.session import read_address
from tests.backups.trips import backups_in
from tests.storage.acts import accept, draft, enclosed
from tests.storage.all_places import HAS_SERVERS
from tests.storage.moving.filling import BLOB

if not HAS_SERVERS:
    pytest.skip("they need servers", allow_module_level=True)

from tests.storage.postgres_place import PostgresPlace


def test_no_list_of_processes_shows_a_password() -> None:
    address, secret = named("postgres://peik:pass%40word@db.example:5433/shop?sslmode=require&application_name=x")
    assert address == "postgresql://peik@db.example:5433/shop?sslmode=require"
    assert secret == {"PGPASSWORD": "pass@word"}


async def test_without_its_programs_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartError, match="postgresql-client"):
        await backups_in(tmp_path, place).create(BackupWatch())


async def test_a_user_who_may_make_no_database_has_it_read_through(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft(), draft())
    made = await backups_in(tmp_path, place).create(BackupWatch())
    user = f"plain_{place.schema[:8]}"
    await place.run(f"CREATE ROLE {user} LOGIN")
    url = place.url.replace(f"{urlsplit(place.url).username}@", f"{user}@")
    warned: list[str] = []
    await backups_in(tmp_path, url).verify(made.path, BackupWatch(warn=warned.append))
    assert len(warned) == 1
    assert "may not make a database" in warned[0]


async def test_trying_out_leaves_no_database_behind(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    backups = backups_in(tmp_path, place)
    await backups.verify((await backups.create(BackupWatch())).path, BackupWatch())
    connection = await asyncpg.connect(place.server.url)
    try:
        names = [str(row[0]) for row in await connection.fetch("SELECT datname FROM pg_database")]
        assert [name for name in names if place.schema[:32] in name] == []
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
    made = await backups_in(tmp_path, place, files=str(folder)).create(BackupWatch())
    assert made.manifest.part("files").counts == {"files": 1}
    place.unseat()
    with pytest.raises(Conflict) as caught:
        await backups_in(tmp_path, place).restore(made.path, BackupWatch())
    assert caught.value.code == "no_files_folder"
    (folder / BLOB).unlink()
    await backups_in(tmp_path, place, files=str(folder)).restore(made.path, BackupWatch())
    assert (folder / BLOB).read_bytes() == b"a cat"


async def test_privileges_that_are_given_stay_and_nobody_else_gets_any(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    role = f"App {place.schema[:8]}"  # a name that has to be quoted
    async with place.open() as store:
        await accept(store, draft())
    backups = backups_in(tmp_path, place)
    made = await backups.create(BackupWatch())
    await place.run(f'CREATE ROLE "{role}"')
    try:
        await place.run(f'GRANT USAGE ON SCHEMA {place.schema} TO "{role}"')
        await place.run(f'GRANT EXECUTE ON FUNCTION enqueue TO "{role}"')
        await place.run(f'GRANT SELECT, UPDATE ON letters TO "{role}" WITH GRANT OPTION')
        await place.run(f'GRANT SELECT (id) ON letters TO "{role}"')
        await place.run("GRANT SELECT ON tallies TO PUBLIC")
        await place.run("CREATE TABLE newer (than_the_backup int)")
        await place.run(f'GRANT SELECT ON newer TO "{role}"')
        before = await privileges(place)
        assert any("enqueue" in one for one in before)
        place.unseat()
        await backups.restore(made.path, BackupWatch())
        assert await privileges(place) == {one for one in before if not one.startswith("newer ")}
    finally:
        await place.run(f'DROP OWNED BY "{role}"')
        await place.run(f'DROP ROLE "{role}"')


async def test_in_an_empty_place_everybody_is_kept_from_sending(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft())
    backups = backups_in(tmp_path, place)
    made = await backups.create(BackupWatch())
    await place.run(f"DROP SCHEMA {place.schema} CASCADE")
    await backups.restore(made.path, BackupWatch())
    assert await privileges(place) == set()
    ((acl,),) = await place.run("SELECT proacl::text FROM pg_proc WHERE oid = 'enqueue'::regproc")
    assert acl is not None
    assert "{=X" not in acl
    assert ",=X" not in acl


async def privileges(place: PostgresPlace) -> set[str]:
    """Of all but the owner; without what everybody may by default."""
    rows = await place.run(
        """SELECT format('%s %s %s %s', name, coalesce(rolname, 'PUBLIC'), privilege_type, is_grantable) FROM (
            SELECT nspname::text AS name, nspowner AS owner, nspacl AS acl FROM pg_namespace
            WHERE nspname = current_schema()
            UNION ALL SELECT relname, relowner, relacl FROM pg_class
            WHERE relnamespace = current_schema()::regnamespace
            UNION ALL SELECT relname || '.' || attname, relowner, attacl
            FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
            WHERE relnamespace = current_schema()::regnamespace AND attacl IS NOT NULL
            UNION ALL SELECT proname, proowner, proacl FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
        ) AS things CROSS JOIN LATERAL aclexplode(acl) LEFT JOIN pg_roles ON pg_roles.oid = grantee
        WHERE grantee <> owner"""
    )
    return {str(row[0]) for row in rows}


async def test_a_dump_that_is_cut_off_changes_nothing(tmp_path: Path) -> None:
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, *(draft(chat=number) for number in range(1, 200)))
    url = read_address(place.url).url
    dump = tmp_path / "dump"
    options = ("--format=custom", "--compress=0", "--no-owner", "--no-privileges", f"--schema={place.schema}")
    await run(url, "pg_dump", *options, f"--file={dump}")
    dump.write_bytes(dump.read_bytes()[: dump.stat().st_size // 2])
    with pytest.raises(Conflict) as caught:
        await restore(url, dump, f'DROP SCHEMA "{place.schema}" CASCADE', "")
    assert caught.value.code == "backup_broken"
    ((count,),) = await place.run("SELECT count(*) FROM letters")
    assert count == 199


async def test_a_node_that_begins_while_it_is_unpacked_stops_it(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / BLOB).write_bytes(b"a cat")
    place = PostgresPlace(tmp_path)
    async with place.open() as store:
        await accept(store, draft(enclosed=(enclosed(BLOB),)))
        await place.crash(store)  # its line stays, and its lease is over
    backups = backups_in(tmp_path, place, files=str(folder))
    made = await backups.create(BackupWatch())
    (folder / BLOB).unlink()

    def begin(words: str, total: int) -> None:
        place._do("UPDATE nodes SET ends_at = 'infinity'")

    with pytest.raises(Conflict) as caught:
        await backups.restore(made.path, BackupWatch(begin=begin))
    assert caught.value.code == "in_use"
    assert not (folder / BLOB).exists()
