"""The schema in the database: made, checked, and brought up to date. Never anybody else's."""

import re
from importlib.resources import files

from peik.errors import StartError
from peik.store.postgres.address import Address
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session

_SQL = load("session.sql")
_MIGRATION = re.compile(r"(\d{3})\.sql")


async def migrate(session: Session, address: Address) -> None:
    """Bring the schema up to date, all steps in one transaction. Refuses one that is newer, or not ours."""
    if await session.text(_SQL["encoding"]) != "UTF8":
        raise StartError(f"{address.shown} does not keep its texts in UTF-8. Make a database with ENCODING 'UTF8'.")
    schema = address.schema
    if await _is_current(session, schema):
        return
    async with session.connection.transaction():
        await session.rows(_SQL["lock_schema"], schema=schema)
        if not await session.number(_SQL["has_schema"], schema=schema):
            await session.connection.execute(f'CREATE SCHEMA "{schema}"')
        if await session.number(_SQL["is_new"], schema=schema):
            version = 0
        elif not await session.number(_SQL["is_ours"], schema=schema):
            raise StartError(
                f"The schema {schema!r} at {address.shown} holds tables that are not Peik's. "
                "Name another one with ?schema=… in PEIK_STORE."
            )
        else:
            version = await session.number(_SQL["version"])
        steps = _steps()
        if version > len(steps):
            raise StartError(
                f"{address.shown} was written by a newer Peik (its schema is {version}, this Peik knows {len(steps)}). "
                "Upgrade Peik, or name another schema in PEIK_STORE. Nothing was changed."
            )
        for number, script in enumerate(steps[version:], start=version + 1):
            await session.connection.execute(script)
            await session.run(_SQL["note_version"], version=number)


async def _is_current(session: Session, schema: str) -> bool:
    """The usual case, without a lock and without a write."""
    if not await session.number(_SQL["is_ours"], schema=schema):
        return False
    return await session.number(_SQL["version"]) == len(_steps())


def _steps() -> list[str]:
    scripts = sorted(
        (int(match[1]), entry.read_text(encoding="utf-8"))
        for entry in (files("peik.store.postgres") / "sql").iterdir()
        if (match := _MIGRATION.fullmatch(entry.name))
    )
    assert [number for number, _ in scripts] == list(range(1, len(scripts) + 1)), "migrations are numbered without gaps"
    return [script for _, script in scripts]
