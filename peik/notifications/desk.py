"""Everything a door may ask about notifications. What it accepted is filed before it answers, and goes out whatever happens."""

import asyncio
import contextlib
import secrets
import zlib
from collections.abc import Sequence

import msgspec

from peik.clock import Clock
from peik.core.quiet import Quiet
from peik.errors import BadInput, Conflict, NotFound, TooLarge, Unavailable
from peik.events import Events
from peik.notifications.checking import Checking
from peik.notifications.handing import Handing
from peik.notifications.links import Links, in_turn
from peik.notifications.packing import Packing, put_off
from peik.notifications.ports import Letters
from peik.notifications.releasing import Releasing
from peik.notifications.repeats import Repeats, bot_key, taken
from peik.notifications.templates import Templates
from peik.notifications.values import (
    NOTICES,
    Notice,
    NoticeView,
    NotifyRequest,
    Parcel,
    checked_user,
    filed,
    read,
    shelf_of,
)
from peik.outreach_events import Notified
from peik.paper_ports import Filing, PaperStore

BATCH_MAX = 500
LOCKS = 64


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    rate_max: int = 30  # messages an hour to one person; 0: no bound
    quiet: Quiet | None = None  # for whoever has no hours of his own
    keep_ms: int = 7 * 86400 * 1000


class NotificationsDesk:
    def __init__(
        self,
        *,
        papers: PaperStore,
        letters: Letters,
        links: Links,
        templates: Templates,
        checking: Checking,
        packing: Packing,
        handing: Handing,
        releasing: Releasing,
        clock: Clock,
        events: Events,
    ) -> None:
        self._papers = papers
        self._letters = letters
        self.links = links
        self.templates = templates
        self._checking = checking
        self._packing = packing
        self._handing = handing
        self._releasing = releasing
        self._repeats = Repeats(papers)
        self._clock = clock
        self._events = events
        self._last_ms = 0
        self._turns = [asyncio.Lock() for _ in range(LOCKS)]

    async def notify(self, requests: Sequence[NotifyRequest]) -> list[Notice]:
        """Accept notifications, all or none. When this returns, each goes out, waits for its time, or its failure can be seen.
        What was accepted before is answered with that, also if it would be refused by now.

        Raises NotFound for a user who has linked no chat, BadInput, Conflict for a key that was used for another one.
        """
        if not requests:
            raise BadInput(code="empty_batch", detail="There is no notification in the batch.")
        if len(requests) > BATCH_MAX:
            detail = f"A batch holds at most {BATCH_MAX} notifications; send several."
            raise TooLarge(code="batch_too_large", detail=detail)
        at_ms = self._clock.wall_ms()
        earlier = await self._repeats.of(requests)
        checked = await self._checking.check(requests, at_ms=at_ms, passed=earlier)
        ids = self._new_ids(len(checked), at_ms)
        notices = [msgspec.structs.replace(one, id=own) for one, own in zip(checked, ids, strict=True)]
        accepted = iter(await self._accept(notices, at_ms) if notices else [])
        return [earlier[at] if at in earlier else next(accepted) for at in range(len(requests))]

    async def _accept(self, notices: Sequence[Notice], at_ms: int) -> list[Notice]:
        """In their order, each as it stands now; of a repeat, the first."""
        ids = {notice.id for notice in notices}
        async with contextlib.AsyncExitStack() as stack:
            for lock in self._locks(notices):
                await stack.enter_async_context(lock)
            answers, parcels = await in_turn(lambda: self._file(notices, at_ms))
        handed = await self._hand_over(parcels)
        for notice in answers:
            if notice.id in ids:
                self._tell(handed.get(notice.id, notice))
        return [handed.get(notice.id, notice) for notice in answers]

    def _new_ids(self, count: int, at_ms: int) -> list[str]:
        """In the order of acceptance here, also within one millisecond: what waits goes out in the order of ids."""
        self._last_ms = max(at_ms, self._last_ms + 1)
        return [f"{self._last_ms:011x}{index:03x}{secrets.token_hex(5)}" for index in range(count)]

    def _locks(self, notices: Sequence[Notice]) -> list[asyncio.Lock]:
        """Those of one person are filed one after the other: each counts what the one before has taken of his rate. Between
        nodes the versions of papers do the same, less gently. Always in one order, so that nobody waits in a ring."""
        return [self._turns[at] for at in sorted({zlib.crc32(one.recipient.encode()) % LOCKS for one in notices})]

    async def _file(self, notices: Sequence[Notice], at_ms: int) -> tuple[list[Notice], list[Parcel]]:
        known = await self._repeats.under([key for key in map(bot_key, notices) if key is not None])
        answers: list[Notice] = []
        new: dict[str, Notice] = {}
        filings: list[Filing] = []
        keys: dict[str, Notice] = {}
        for notice in notices:
            key = bot_key(notice)
            earlier = None if key is None else known.get(key) or keys.get(key)
            if earlier is not None:
                if earlier.digest != notice.digest:
                    raise _reused(notice)
                answers.append(earlier)
                continue
            answers.append(notice)
            new[notice.id] = notice
            filings.append(filed(shelf_of(notice.recipient), notice.id, {}))
            filings += taken(notice)
            if key is not None:
                keys[key] = notice
        now = [notice for notice in new.values() if notice.due_at_ms <= at_ms]
        later = [notice for notice in new.values() if notice.due_at_ms > at_ms]
        plan = await self._packing.plan(now, at_ms=at_ms, may_merge=False)
        filings += [*put_off(later), *plan.filings]
        if filings:
            await self._papers.file(filings)
        waiting = {notice.id: notice for notice in plan.put_off}
        for notice in [*later, *plan.put_off]:
            self._releasing.expect(notice.due_at_ms)
        return [waiting.get(notice.id, notice) for notice in answers], plan.parcels

    async def _hand_over(self, parcels: Sequence[Parcel]) -> dict[str, Notice]:
        try:
            return {notice.id: notice for notice in await self._handing.over(parcels)}
        except Unavailable:
            # They are accepted all the same: their parcels are durable, and whoever does the chores hands them over.
            self._releasing.look()
            return {}

    def _tell(self, notice: Notice) -> None:
        request = notice.request
        self._events.tell(
            Notified(
                bot_id=request.bot_id or 0,
                notification_id=notice.id,
                user_id=request.user_id or "",
                type=request.type,
                letter_id=notice.letter_ids[0] if notice.letter_ids else None,
            )
        )

    # ---- looking ----

    async def notification(self, notice_id: str) -> NoticeView:
        paper = await self._papers.paper(NOTICES, notice_id) if notice_id.isalnum() and notice_id.isascii() else None
        if paper is None:
            raise NotFound(code="unknown_notification", detail="There is no such notification here (any more).")
        return (await self._views([read(paper, Notice)]))[0]

    async def recent(self, *, user_id: str | None = None, before: str | None = None, limit: int) -> list[NoticeView]:
        """The newest first: of a user, or of all."""
        if user_id is None:
            papers = await self._papers.papers(NOTICES, after=before, limit=limit, is_backwards=True)
        else:
            shelf = shelf_of(f"u/{checked_user(user_id)}")
            lines = await self._papers.papers(shelf, after=before, limit=limit, is_backwards=True)
            found = await self._papers.those(NOTICES, [line.key for line in lines])
            papers = [found[line.key] for line in lines if line.key in found]
        return await self._views([read(paper, Notice) for paper in papers])

    async def _views(self, notices: Sequence[Notice]) -> list[NoticeView]:
        ids = sorted({letter_id for notice in notices for letter_id in notice.letter_ids})
        letters = {view.id: view for view in await self._letters.letters(ids)} if ids else {}
        return [
            NoticeView(notice=one, letters=[letters[each] for each in one.letter_ids if each in letters])
            for one in notices
        ]


def _reused(notice: Notice) -> Conflict:
    return Conflict(
        code="idempotency_key_reused",
        detail=f"The key {notice.request.idempotency_key!r} was used for another notification.",
    )
