"""Rows of the inbox as values, where they differ from SQLite's: an arrival's lane is written as a chat is."""

from collections.abc import Iterable

from peik.core.arrival import Arrival
from peik.store.inbox_rows import ARRIVAL_COLUMNS
from peik.store.postgres import chats
from peik.store.postgres.session import Row

ARRIVAL = ", ".join(f"a.{column}" for column in ARRIVAL_COLUMNS)


def arrivals_of(rows: Iterable[Row]) -> list[Arrival]:
    return [
        Arrival(
            id=row["id"],
            bot_id=row["bot_id"],
            number=row["number"],
            epoch=row["epoch"],
            update_id=row["update_id"],
            type=row["type"],
            lane=chats.decode(row["lane"]),
            user_id=row["user_id"],
            message_id=row["message_id"],
            sent_at_ms=row["sent_at"],
            received_at_ms=row["received_at"],
            payload=row["payload"],
            replay_of=row["replay_of"],
            only_for=row["only_for"] or None,
        )
        for row in rows
    ]
