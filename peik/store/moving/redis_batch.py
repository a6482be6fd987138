"""Commands for a Redis server that go in one transaction, as few as possible: what concerns one key is one command."""

from collections import defaultdict
from typing import Any

Cell = str | bytes | int


class RedisBatch:
    """Collects; `prepare` reads what has to be known before, `put` gives all of it to a transaction."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._hashes: dict[str, dict[Cell, Cell]] = defaultdict(dict)
        self._zsets: dict[str, dict[str, int]] = defaultdict(dict)
        self._sets: dict[str, set[str]] = defaultdict(set)
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._texts: dict[str, Cell] = {}
        self._lists: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._highest: dict[tuple[str, str], int] = {}

    def field(self, key: str, field: Cell, value: Cell) -> None:
        self._hashes[key][field] = value

    def member(self, key: str, member: Cell, score: int) -> None:
        self._zsets[key][str(member)] = score

    def element(self, key: str, element: Cell) -> None:
        self._sets[key].add(str(element))

    def count(self, key: str, field: Cell) -> None:
        self._counts[key][str(field)] += 1

    def text(self, key: str, value: Cell) -> None:
        self._texts[key] = value

    def listed(self, key: str, field: Cell, one: Cell) -> None:
        """An id more in a list of ids that is a text."""
        self._lists[key][str(field)].append(str(one))

    def at_least(self, key: str, field: str, value: int) -> None:
        known = self._highest.get((key, field))
        self._highest[key, field] = value if known is None else max(known, value)

    async def prepare(self, redis: Any) -> None:
        """Nobody else writes here, so that what is read now is still so when it is written."""
        for key, lists in self._lists.items():
            found = await redis.hmget(self._prefix + key, list(lists))
            for (field, ids), before in zip(lists.items(), found, strict=True):
                self.field(key, field, ",".join(([before.decode()] if before else []) + ids))
        for (key, field), value in self._highest.items():
            known = await redis.hget(self._prefix + key, field)
            self.field(key, field, value if known is None else max(int(known), value))

    def put(self, pipe: Any) -> None:
        for key, fields in self._hashes.items():
            pipe.hset(self._prefix + key, mapping=fields)
        for key, members in self._zsets.items():
            pipe.zadd(self._prefix + key, members)
        for key, elements in self._sets.items():
            pipe.sadd(self._prefix + key, *elements)
        for key, counts in self._counts.items():
            for field, more in counts.items():
                pipe.hincrby(self._prefix + key, field, more)
        for key, value in self._texts.items():
            pipe.set(self._prefix + key, value)
