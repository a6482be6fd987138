"""A PostgreSQL that is emptied before a peer begins."""

import asyncpg


async def cleared(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        schemas = await connection.fetch(
            "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
        )
        for row in schemas:
            await connection.execute(f'DROP SCHEMA "{row["nspname"]}" CASCADE')
        await connection.execute("CREATE SCHEMA public")
    finally:
        await connection.close()
