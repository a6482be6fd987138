"""A shop whose orders and messages are one transaction: whatever fails, no order goes untold and none is told that is not.

    python shop.py postgresql://shop@localhost/shop <chat_id> lamp

Peik uses the same database (PEIK_STORE). It need not run while this does: it sends when it is back.
"""

import asyncio
import sys

import asyncpg

from peik import enqueue

TABLES = """
    CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, pieces integer NOT NULL CHECK (pieces >= 0));
    CREATE TABLE IF NOT EXISTS orders (
        id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, item text NOT NULL, chat_id bigint NOT NULL
    );
    INSERT INTO stock VALUES ('lamp', 3) ON CONFLICT DO NOTHING
"""


async def order(connection: asyncpg.Connection, chat_id: int, item: str, *, schema: str = "peik") -> int:
    """Order one piece and tell the customer. If there is none left, nothing has happened, and nobody is told anything."""
    async with connection.transaction():
        number = await connection.fetchval(
            "INSERT INTO orders (item, chat_id) VALUES ($1, $2) RETURNING id", item, chat_id
        )
        text = f"Your {item} is on its way. Order {number}."
        await enqueue(connection, "sendMessage", chat_id=chat_id, text=text, schema=schema)
        await connection.execute("UPDATE stock SET pieces = pieces - 1 WHERE item = $1", item)  # refused at 0: CHECK
    return int(number)


async def main(url: str, chat_id: int, item: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(TABLES)
        print("ordered:", await order(connection, chat_id, item))  # noqa: T201
    except asyncpg.CheckViolationError:
        sys.exit(f"No {item} is left. Nothing was ordered, and no message will be sent.")
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
