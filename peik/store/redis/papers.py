"""Papers on Redis. What stands where:

papers:SHELF        hash    key -> its version, a space, and its body
paper_order:SHELF   zset    of keys, all with the same score, and so in the order of their bytes
shelves             zset    of shelves with papers on them, in the same order
"""

from collections.abc import Sequence

from peik.paper_ports import Filing, Paper
from peik.store import paper_rules
from peik.store.redis.paper_client import PaperWay

_CLEARED_AT_ONCE = (
    1000  # papers that one call of the server takes away: some milliseconds, in which its other clients wait
)


class RedisPapers:
    """See `peik.paper_ports.PaperStore`. Made by the store when it is opened."""

    def __init__(self, way: PaperWay) -> None:
        self._commits = way.commits
        self._ask = way.read

    async def file(self, filings: Sequence[Filing]) -> None:
        changes = paper_rules.changes_of(filings)
        if not changes:
            return

        def build(among: list[bytes]) -> list[object]:
            rows = []
            for change in changes:
                if change.body is not None:
                    among.append(change.body.encode())
                expected = False if change.expected is None else change.expected
                rows.append((change.shelf, change.key, expected, change.body is not None and len(among) + 1))
            return ["paper_file", rows]

        refused = await self._commits.submit(build, lambda done: done.value, weight=len(changes))
        if refused:
            raise paper_rules.changed(changes[refused - 1].name)

    async def paper(self, shelf: str, key: str) -> Paper | None:
        return (await self.those(shelf, [key])).get(key)

    async def those(self, shelf: str, keys: Sequence[str]) -> dict[str, Paper]:
        (found,) = await self._ask(["paper_those", shelf, list(keys)])
        return {key: paper_of(shelf, key, raw) for key, raw in zip(keys, found, strict=True) if raw is not None}

    async def papers(
        self, shelf: str, *, after: str | None = None, until: str | None = None, limit: int, is_backwards: bool = False
    ) -> list[Paper]:
        above, below = (until, after) if is_backwards else (after, until)
        bounds = [False if key is None else key for key in (above, below)]
        ((keys, found),) = await self._ask(["paper_page", shelf, *bounds, limit, is_backwards])
        return [paper_of(shelf, key.decode(), raw) for key, raw in zip(keys, found, strict=True)]

    async def count_papers(self, shelf: str) -> int:
        (found,) = await self._ask(["paper_count", shelf])
        return int(found)

    async def shelves(self, prefix: str) -> list[str]:
        (found,) = await self._ask(["paper_shelves", prefix, prefix + paper_rules.AFTER_ALL_ASCII])
        return [shelf.decode() for shelf in found]

    async def clear_shelf(self, shelf: str, *, until: str | None = None, limit: int) -> int:
        gone = 0
        while gone < limit:
            some = min(limit - gone, _CLEARED_AT_ONCE)
            went = await self._commits.write("paper_clear", shelf, False if until is None else until, some)
            gone += went
            if went < some:
                break
        return gone


def paper_of(shelf: str, key: str, raw: bytes) -> Paper:
    version, _, body = raw.partition(b" ")
    return Paper(shelf=shelf, key=key, body=body.decode(), version=int(version))
