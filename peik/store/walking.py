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
        _walk(connection, stretch, bound | {"bot": bot_id}, int(head))
        for bot_id, head in connection.execute(heads, bound).fetchall()
        if head is not None
    ]
    if wanted.state is State.DELAYED:
        walks.append(iter(_ids(connection, _SQL["newest_backing_off"].replace("{within}", within), bound)))
    return list(islice(heapq.merge(*walks, reverse=True), most))


def _walk(connection: apsw.Connection, stretch: str, bound: dict[str, Value], head: int) -> Iterator[int]:
    yield head
    below, many = head, _FIRST_STRETCH
    while ids := _ids(connection, stretch, bound | {"below": below, "many": many}):
        yield from ids
        if len(ids) < many:
            return
        below, many = ids[-1], min(4 * many, _STRETCH_MAX)


def _ids(connection: apsw.Connection, query: str, bound: dict[str, Value]) -> list[int]:
    """Read to their end at once: others ask the same statement in between."""
    return [value for (value,) in connection.execute(query, bound).fetchall() if isinstance(value, int)]
