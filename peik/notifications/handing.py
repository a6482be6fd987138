"""Hands parcels to the outbox, and notes what became of them."""

from collections.abc import Iterator, Sequence

import msgspec

from peik.errors import Problem, Unavailable
from peik.notifications.ports import Letters
from peik.notifications.values import NOTICES, PARCELS, Notice, Parcel, filed, read
from peik.paper_ports import Filing, PaperStore

FEW = 100  # notices that are noted in one commit: a paper has at most 256 KB, and a commit 32 MB


class Handing:
    def __init__(self, papers: PaperStore, letters: Letters) -> None:
        self._papers = papers
        self._letters = letters

    async def over(self, parcels: Sequence[Parcel]) -> list[Notice]:
        """Their notices, as they are filed now. Raises Unavailable; then the parcels lie where they can be found, and are
        handed over later. To hand one over twice gives the same letters."""
        return [notice for few in _few(parcels) for notice in await self._over(few)]

    async def _over(self, parcels: Sequence[Parcel]) -> list[Notice]:
        try:
            accepted = await self._letters.accept(parcels)
        except Unavailable:
            raise
        except Problem as problem:
            if len(parcels) == 1:
                return await self._note(parcels, [()], reason=f"{problem.code}: {problem.detail}")
            return [notice for parcel in parcels for notice in await self._over([parcel])]
        return await self._note(parcels, [tuple(ids) for ids in accepted], reason=None)

    async def _note(
        self, parcels: Sequence[Parcel], letters: Sequence[tuple[int, ...]], *, reason: str | None
    ) -> list[Notice]:
        ids = [notice_id for parcel in parcels for notice_id in parcel.notice_ids]
        found = await self._papers.those(NOTICES, ids)
        filings: list[Filing] = []
        notices: list[Notice] = []
        for parcel, letter_ids in zip(parcels, letters, strict=True):
            filings.append(filed(PARCELS, parcel.id, None))
            for notice_id in parcel.notice_ids:
                if notice_id in found:
                    known = read(found[notice_id], Notice)
                    notices.append(msgspec.structs.replace(known, letter_ids=letter_ids, failed_reason=reason))
                    filings.append(filed(NOTICES, notice_id, notices[-1]))
        await self._papers.file(filings)
        return notices


def _few(parcels: Sequence[Parcel]) -> Iterator[list[Parcel]]:
    few: list[Parcel] = []
    notices = 0
    for parcel in parcels:
        if few and notices + len(parcel.notice_ids) > FEW:
            yield few
            few, notices = [], 0
        few.append(parcel)
        notices += len(parcel.notice_ids)
    if few:
        yield few
