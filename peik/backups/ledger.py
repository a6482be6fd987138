"""What is known of backups, on every node: papers on a shelf of the store, one for each."""

import msgspec

from peik.core.documents import DocumentStore, Filing

SHELF = "backups"
PAGE = 500


class BackupEntry(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    made_at_ms: int
    size_bytes: int
    is_sealed: bool
    verified_at_ms: int | None = None
    is_broken: bool = False  # it was tried out, and is not what it should be


class Newest(msgspec.Struct, frozen=True, kw_only=True):
    made_at_ms: int | None = None
    verified_at_ms: int | None = None


_decode = msgspec.json.Decoder(BackupEntry).decode


class BackupLedger:
    def __init__(self, papers: DocumentStore) -> None:
        self._papers = papers

    async def entries(self) -> dict[str, BackupEntry]:
        """By the name of the file. Raises StoreUnavailable."""
        found: dict[str, BackupEntry] = {}
        after: str | None = None
        while True:
            page = await self._papers.papers(SHELF, after=after, limit=PAGE)
            found |= {paper.key: _decode(paper.body) for paper in page}
            if len(page) < PAGE:
                return found
            after = page[-1].key

    async def sound(self) -> set[str]:
        """The names of those that were tried out and found good. Raises StoreUnavailable."""
        entries = await self.entries()
        return {name for name, one in entries.items() if one.verified_at_ms is not None and not one.is_broken}

    async def note(self, name: str, entry: BackupEntry) -> None:
        await self._papers.file([Filing(shelf=SHELF, key=name, body=msgspec.json.encode(entry).decode())])

    async def note_verified(self, name: str, at_ms: int) -> None:
        await self._change(name, verified_at_ms=at_ms, is_broken=False)

    async def note_broken(self, name: str) -> None:
        await self._change(name, is_broken=True)

    async def _change(self, name: str, **fields: object) -> None:
        """Nothing, if nobody knows of it: it may be of another store, or older than the ledger."""
        paper = await self._papers.paper(SHELF, name)
        if paper is not None:
            await self.note(name, msgspec.structs.replace(_decode(paper.body), **fields))

    async def forget(self, names: list[str]) -> None:
        if names:
            await self._papers.file([Filing(shelf=SHELF, key=name, body=None) for name in names])


async def newest(papers: DocumentStore) -> Newest:
    """Of the good ones; for metrics and alerts. Raises StoreUnavailable."""
    entries = [one for one in (await BackupLedger(papers).entries()).values() if not one.is_broken]
    return Newest(
        made_at_ms=max((one.made_at_ms for one in entries), default=None),
        verified_at_ms=max((one.verified_at_ms for one in entries if one.verified_at_ms is not None), default=None),
    )


async def last_good_ms(papers: DocumentStore) -> int | None:
    """When the newest good one was made; None: there is none. Raises StoreUnavailable."""
    return (await newest(papers)).made_at_ms
