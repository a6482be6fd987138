"""How the SQLite store looks through one lane's arrivals: stretch by stretch of its bot's numbers, as the index has them.

Functions on a connection, no state. Numbers only rise, and a reader looks up first which stretch is the last: what comes while
it goes on stands there or beyond, so that nothing can appear behind it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import apsw
import msgspec

from peik.core.arrival import Arrival
from peik.core.letter import Chat
from peik.store.inbox_rows import ARRIVAL, arrivals_from_json, encode_numbers
from peik.store.statements import Value, load

_SQL = load("sqlite_inbox.sql")
THOSE = load("sqlite_arrivals.sql")["those"].replace("{arrival}", ARRIVAL)
STRETCH_BITS = 12  # as in the index


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """From where on a bot's lanes are looked through: an id, and the stretches that can hold it and those above."""

    id: int
    stretches: range


def stretches(connection: apsw.Connection, bot_id: int, *, first: int | None = None, last: int | None = None) -> range:
    """Those that hold arrivals of a bot, from and up to these numbers if there are any."""
    ((lowest, highest),) = connection.execute(_SQL["stretches"], {"bot": bot_id})
    if lowest is None:
        return range(0)
    begin = lowest if first is None else max(lowest, first >> STRETCH_BITS)
    end = highest if last is None else min(highest, last >> STRETCH_BITS)
    return range(begin, end + 1)


def page(
    connection: apsw.Connection,
    bot_id: int,
    lane: Chat,
    after: int,
    *,
    consumer_id: int,
    limit: int,
    bytes_max: int,
) -> list[Arrival]:
    """What a reader may see of a lane above a number: as many as fit, and at least one if there is any."""
    bound: dict[str, Value] = {"bot": bot_id, "lane": lane, "consumer": consumer_id, "after": after}
    ids: list[int] = []
    total = 0
    for stretch in stretches(connection, bot_id, first=after):
        bound |= {"stretch": stretch, "limit": limit - len(ids)}
        for arrival_id, size_bytes in connection.execute(_SQL["lane_stretch"], bound):
            total += size_bytes
            if ids and total > bytes_max:
                return those(connection, ids)
            ids.append(arrival_id)
        if len(ids) == limit:
            break
    return those(connection, ids)


def first_since(connection: apsw.Connection, bot_id: int, at_ms: int, *, before_epoch: int) -> Place | None:
    """The first of a bot's arrivals that was received then or later, found in twenty steps; see `inbox_consumers.id_at`. Its
    stretches end with the last arrival of an earlier epoch than this: days after one began, nearly all are of that one."""
    first = _from_number(connection, bot_id, _search(connection, bot_id, lambda row: row.received_at < at_ms))
    if first is None:
        return None
    beyond = _search(connection, bot_id, lambda row: row.epoch < before_epoch)
    return Place(id=first.id, stretches=stretches(connection, bot_id, first=first.number, last=beyond - 1))


def first_from(connection: apsw.Connection, bot_id: int, first: int) -> Place | None:
    """The first of a bot's arrivals that has this number or a higher one: from there on a lane is looked through, and not
    from its beginning."""
    row = _from_number(connection, bot_id, first)
    return None if row is None else Place(id=row.id, stretches=stretches(connection, bot_id, first=row.number))


class _Found(NamedTuple):
    id: int
    number: int
    epoch: int
    received_at: int


def _search(connection: apsw.Connection, bot_id: int, is_below: Callable[[_Found], bool]) -> int:
    """The least number above all arrivals that are below what is looked for."""
    every = stretches(connection, bot_id)
    low, high = every.start << STRETCH_BITS, every.stop << STRETCH_BITS
    while low < high:
        middle = (low + high) // 2
        row = _from_number(connection, bot_id, middle)
        if row is not None and is_below(row):
            low = row.number + 1
        else:
            high = middle
    return low


def _from_number(connection: apsw.Connection, bot_id: int, first: int) -> _Found | None:
    for row in connection.execute(_SQL["from_number"], (bot_id, first)):
        return _Found(*row)
    return None


def those(connection: apsw.Connection, ids: Sequence[int]) -> list[Arrival]:
    """In the order in which they came."""
    ((text,),) = connection.execute(THOSE, (encode_numbers(ids),))
    return arrivals_from_json(text)
