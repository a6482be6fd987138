"""Which open letters of the SQLite store a look goes through, the newest first. Functions on a connection.

The index of open letters is ordered bot by bot. So the bots' own walks are merged: a look costs one step to the newest of each
bot that has any, and then what it looks at, however many letters lie behind.
"""

import heapq
from collections.abc import Iterator
from itertools import islice

import apsw

from peik.core.letter import State
from peik.ports import LetterFilter
from peik.store import paging
from peik.store.statements import Value, load

_SQL = load("sqlite_people.sql")
_FIRST_STRETCH, _STRETCH_MAX = 8, 1024  # ids that are read at once of a bot: few if it takes turns with many others

# The phase that such letters have, and the column of the tallies that counts them.
_PLACES: dict[State, tuple[int, str]] = {State.WAITING: (0, "in_lane"), State.DELAYED: (1, "apart")}


def is_walked(wanted: LetterFilter) -> bool:
    return paging.way_of(wanted) in paging.BOT_BY_BOT


def standing(connection: apsw.Connection, wanted: LetterFilter, of_bots: str, bound: dict[str, Value]) -> int:
    """How many letters stand where such letters do, from the tallies."""
    assert wanted.state is not None
    _, column = _PLACES[wanted.state]
    query = _SQL["standing"].replace("{column}", column).replace("{of_bots}", of_bots)
    ((letters,),) = connection.execute(query, bound)
    return int(letters)


def newest(
    connection: apsw.Connection,
    wanted: LetterFilter,
    *,
    within: str,
    of_bots: str,
    bound: dict[str, Value],
    most: int,
) -> list[int]:
    """Ids of letters that wait or are delayed, bots all together, the newest first."""
    assert wanted.state is not None
    phase, column = _PLACES[wanted.state]
    bound = bound | {"phase": phase, "looked": most}
    heads = _SQL["heads"].replace("{column}", column).replace("{of_bots}", of_bots).replace("{within}", within)
    stretch = _SQL["stretch"].replace("{within}", within)
    walks = [
        _walk(connection, stretch, bound | {"bot": bot_id}, head)
        for bot_id, head in connection.execute(heads, bound).fetchall()
        if head is not None
    ]
    if wanted.state is State.DELAYED:
        backing_off = connection.execute(_SQL["newest_backing_off"].replace("{within}", within), bound).fetchall()
        walks.append(row[0] for row in backing_off)
    return list(islice(heapq.merge(*walks, reverse=True), most))


def _walk(connection: apsw.Connection, stretch: str, bound: dict[str, Value], head: int) -> Iterator[int]:
    yield head
    below, many = head, _FIRST_STRETCH
    while rows := connection.execute(stretch, bound | {"below": below, "many": many}).fetchall():
        for (below,) in rows:
            yield below
        if len(rows) < many:
            return
        many = min(4 * many, _STRETCH_MAX)
