"""What sources and their watchers ask of the SQLite store: where a bot's inbox stands, outages, what MTProto clients saw."""

from collections.abc import Sequence

import apsw

from peik.core.arrival import DEFAULT_CONSUMER
from peik.core.spans import spans_of
from peik.inbox_ports import InboxState, Outage
from peik.store import inbox_consumers, inbox_lanes
from peik.store.inbox_rows import number, outage_from_row, state_from_row
from peik.store.statements import Row, load, run_many

_SQL = load("sqlite_inbox.sql")


def state(connection: apsw.Connection, bot_id: int) -> InboxState | None:
    for row in connection.execute(_SQL["inbox"], (bot_id,)):
        return state_from_row(row)
    return None


def open_inbox(connection: apsw.Connection, bot_id: int, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
    inbox_consumers.check_bot(connection, bot_id)
    before = state(connection, bot_id) or InboxState(bot_id=bot_id)
    connection.execute(_SQL["open_inbox"], {"bot": bot_id, "server": server, "at": at_ms})
    inbox_consumers.ensure(connection, bot_id, DEFAULT_CONSUMER, at_ms)
    now = state(connection, bot_id)
    assert now is not None
    return before, now


def note_seen(connection: apsw.Connection, bot_id: int, at_ms: int) -> None:
    connection.execute(_SQL["note_seen"], {"bot": bot_id, "at": at_ms})


def open_outage(connection: apsw.Connection, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last: int) -> Outage:
    row = (bot_id, began_at_ms, ended_at_ms, last)
    ((outage_id,),) = connection.execute(_SQL["open_outage"], row)
    connection.execute(_SQL["forget_outages"], {"bot": bot_id})
    return outage_from_row((outage_id, *row, None))


def outages(connection: apsw.Connection, bot_id: int, *, is_open: bool) -> list[Outage]:
    rows = connection.execute(_SQL["open_outages" if is_open else "outages"], (bot_id,))
    return [outage_from_row(row) for row in rows]


def settle_outage(connection: apsw.Connection, outage_id: int, at_ms: int) -> None:
    connection.execute(_SQL["settle_outage"], (at_ms, outage_id))


def note_handled(connection: apsw.Connection, bot_id: int, messages: Sequence[tuple[int, int]], at_ms: int) -> int:
    """How many of these messages were here and open."""
    noted = list(dict.fromkeys(messages))
    if not noted:
        return 0
    rows: list[Row] = [(bot_id, chat, message_id, at_ms) for chat, message_id in noted]
    run_many(connection, _SQL["note_handled"], rows)
    default = inbox_consumers.consumer(connection, bot_id, DEFAULT_CONSUMER)
    if default is None:
        return 0
    place = inbox_lanes.first_from(connection, bot_id, default.progress.watermark + 1)
    if place is None:
        return 0
    asked: list[Row] = [
        (bot_id, stretch, chat, place.id, message_id, at_ms)
        for stretch in place.stretches
        for chat, message_id in noted
    ]
    found = run_many(connection, _SQL["handled_here"], asked)
    open_ones = [one for (one,) in found if not default.progress.is_over(number(one))]
    over = spans_of([number(one) for one in open_ones])
    inbox_consumers.settle(connection, default.id, over=over, deferred=(), dead=(), at_ms=at_ms)
    return len(open_ones)
