"""The schema in the database: made, checked, and brought up to date. Never anybody else's."""

from peik.archive.postgres.connection import PACKAGE, Asking, Server
from peik.archive.queries import load, migrations
from peik.errors import StartError

_SQL = load(PACKAGE, "queries.sql")


async def migrate(server: Server) -> None:
    """All steps in one transaction. Refuses a schema that is newer, or not ours."""
    schema, shown = server.address.schema, server.address.shown

    async def work(asking: Asking) -> None:
        if await asking.value(_SQL["encoding"]) != "UTF8":
            raise StartError(f"{shown} does not keep its texts in UTF-8. Make a database with ENCODING 'UTF8'.")
        await asking.value(_SQL["lock_schema"], schema=schema)
        if not await asking.value(_SQL["has_schema"], schema=schema):
            await asking.connection.execute(f'CREATE SCHEMA "{schema}"')
        version = 0
        if await asking.value(_SQL["is_ours"], schema=schema):
            version = await asking.value(_SQL["schema_version"])
        elif not await asking.value(_SQL["is_empty"], schema=schema):
            raise StartError(
                f"The schema {schema!r} at {shown} holds tables that are not an archive's. "
                "Name another one with ?schema=… in PEIK_ARCHIVE."
            )
        steps = migrations(PACKAGE)
        if version > len(steps):
            raise StartError(
                f"{shown} was written by a newer Peik (its schema is {version}, this Peik knows {len(steps)}). "
                "Upgrade Peik, or name another schema in PEIK_ARCHIVE. Nothing was changed."
            )
        for number, script in enumerate(steps[version:], start=version + 1):
            await asking.connection.execute(script)
            await asking.run(_SQL["note_schema_version"], version=number)

    await server.write(work)


async def weaknesses(asking: Asking) -> list[str]:
    """What this server does not promise of a commit."""
    found = dict(tuple(row) for row in await asking.rows(_SQL["promises"]))
    told: list[str] = []
    if found.get("fsync") == "off":
        told.append("PostgreSQL runs with fsync = off: a power cut can lose or damage everything. Set: fsync = on.")
    if found.get("full_page_writes") == "off":
        told.append(
            "PostgreSQL runs with full_page_writes = off: a power cut can damage it. Set: full_page_writes = on."
        )
    return told
