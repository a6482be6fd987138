"""Makes broadcasts: recipients first, a page at a time, and last the one commit that makes them a broadcast."""

import random
from collections.abc import Sequence

import msgspec

from peik.broadcasts.audience import ListAudience
from peik.broadcasts.book import Book
from peik.broadcasts.drafting import BroadcastRequest, digest_of, drafted, id_of, shelved
from peik.broadcasts.moving import told
from peik.broadcasts.ports import Letters
from peik.broadcasts.records import KEY_SHELF, Broadcast, Recipient
from peik.clock import Clock
from peik.errors import Conflict, Unavailable
from peik.events import Events
from peik.paper_ports import Filing, PaperStore

FILED = 1000  # recipients in one commit
IDS_TRIED = 20


class _Key(msgspec.Struct, frozen=True):
    id: str
    digest: str


class Making:
    def __init__(
        self, *, papers: PaperStore, letters: Letters, clock: Clock, events: Events, chance: random.Random
    ) -> None:
        self._papers = papers
        self._book = Book(papers)
        self._letters = letters
        self._clock = clock
        self._events = events
        self._chance = chance

    async def create(self, request: BroadcastRequest) -> Broadcast:
        """Durably; its recipients too, if they are given. Of a key that was used before, the broadcast of that time. Raises
        BadInput, NotFound, Conflict (another broadcast under the same key) and StoreUnavailable."""
        bot_id = self._letters.bot_id(request.bot_id)
        key = None if request.key is None else shelved(request.key, bot_id)
        draft = drafted(request, bot_id=bot_id, number=self._number(), at_ms=self._clock.wall_ms())
        digest = ""
        if key is not None:
            digest = digest_of(request, bot_id)
            known = await self._known(key, digest)
            if known is not None:
                return known
            draft = msgspec.structs.replace(draft, key=key)
        if isinstance(request.audience, ListAudience):
            draft = await self._write_down(draft, request.audience)
        more = []
        if key is not None:
            body = msgspec.json.encode(_Key(draft.id, digest)).decode()
            more = [Filing(shelf=KEY_SHELF, key=key, body=body, version=0)]
        try:
            # The last commit, and the one that counts: recipients without a broadcast are swept away.
            await self._book.add(draft, more)
        except Conflict:
            known = None if key is None else await self._known(key, digest)
            if known is None:
                raise
            await self._book.clear(draft.id)
            return known
        self._events.tell(told(draft))
        return draft

    async def _known(self, key: str, digest: str) -> Broadcast | None:
        paper = await self._papers.paper(KEY_SHELF, key)
        if paper is None:
            return None
        noted = msgspec.json.decode(paper.body, type=_Key)
        if noted.digest != digest:
            raise Conflict(
                code="idempotency_key_reused",
                detail="This key was used for another broadcast. Use a new key for a new one.",
            )
        return await self._book.get(noted.id)

    def _number(self) -> int:
        return self._chance.randrange(100_000)

    async def _write_down(self, draft: Broadcast, audience: ListAudience) -> Broadcast:
        """The draft, under an id that nobody else has."""
        for first in range(0, len(audience.recipients), FILED):
            page = audience.recipients[first : first + FILED]
            lines = [
                (number, Recipient(chat=chat, values=values))
                for number, (chat, values) in enumerate(page, start=first + 1)
            ]
            if first:
                await self._book.write(draft.id, lines)
            else:
                draft = await self._begun(draft, lines)
        return draft

    async def _begun(self, draft: Broadcast, lines: Sequence[tuple[int, Recipient]]) -> Broadcast:
        for _ in range(IDS_TRIED):
            try:
                await self._book.begin(draft.id, lines)
            except Conflict:  # two of one millisecond drew the same number
                draft = msgspec.structs.replace(draft, id=id_of(draft.created_at_ms, self._number()))
            else:
                return draft
        raise Unavailable(code="busy", detail="Very many broadcasts are made at once. Ask again.")
