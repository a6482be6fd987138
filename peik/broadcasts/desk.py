"""What the doors ask of broadcasts: to make them, to see how they stand, to start, halt and end them."""

import random
from collections.abc import AsyncIterator, Callable

import msgspec

from peik.broadcasts.book import Book, unknown
from peik.broadcasts.drafting import KEY_CHARS_MAX as KEY_CHARS_MAX
from peik.broadcasts.drafting import BroadcastRequest as BroadcastRequest
from peik.broadcasts.drafting import check_start
from peik.broadcasts.making import Making
from peik.broadcasts.moving import moved, told
from peik.broadcasts.ports import Letters
from peik.broadcasts.records import Broadcast, Recipient
from peik.broadcasts.snapshot import unreachable
from peik.broadcasts.writing import preview_of
from peik.clock import Clock
from peik.core.broadcast import (
    Estimate,
    Phase,
    RecipientState,
    Step,
    estimated,
    work_ms,
)
from peik.core.letter import Chat
from peik.core.problem import BadInput
from peik.core.quiet import done_at
from peik.errors import Conflict
from peik.events import Events
from peik.paper_ports import ContactStore, PaperStore
from peik.zones import zone_of

PAGE_MAX = 1000
SCANNED_MAX = 20_000  # lines of a ledger that one question looks at

Line = tuple[int, Recipient]


class BroadcastsDesk:
    def __init__(
        self,
        *,
        papers: PaperStore,
        contacts: ContactStore,
        letters: Letters,
        clock: Clock,
        events: Events,
        chance: random.Random,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """`look` wakes the engine, if it is in this process."""
        self._book = Book(papers)
        self._making = Making(papers=papers, letters=letters, clock=clock, events=events, chance=chance)
        self._contacts = contacts
        self._letters = letters
        self._clock = clock
        self._events = events
        self._look = look

    # ---- making ----

    async def create(self, request: BroadcastRequest) -> Broadcast:
        """Durably; its recipients too, if they are given. Of a key that was used before, the broadcast of that time. Raises
        BadInput, NotFound, Conflict (another broadcast under the same key) and StoreUnavailable."""
        made = await self._making.create(request)
        self._look()
        return made

    # ---- looking ----

    async def get(self, broadcast_id: str) -> Broadcast:
        """Raises NotFound."""
        return await self._book.get(_checked_id(broadcast_id))

    async def find(
        self, *, bot_ids: frozenset[int] | None = None, before: str | None = None, limit: int = 50
    ) -> list[Broadcast]:
        """The newest first, of these bots or of all."""
        _check_limit(limit)
        found: list[Broadcast] = []
        while len(found) < limit:
            page = await self._book.newest(before=before, limit=limit)
            found += [one for one in page if bot_ids is None or one.bot_id in bot_ids]
            if len(page) < limit:
                break
            before = page[-1].id
        return found[:limit]

    async def recipients(
        self, broadcast_id: str, *, state: RecipientState | None = None, after: int | None = None, limit: int = 50
    ) -> tuple[list[Line], int | None]:
        """Lines of the ledger in their order, and where to go on. A page may have fewer than there are: so many lines are
        looked at, and no more. Raises NotFound."""
        _check_limit(limit)
        await self.get(broadcast_id)
        found: list[Line] = []
        place = after or 0
        for _ in range(SCANNED_MAX // PAGE_MAX):
            page = await self._book.lines(broadcast_id, first=place + 1, limit=PAGE_MAX if state else limit)
            for number, line in page:
                place = number
                if state is None or line.state is state:
                    found.append((number, line))
                if len(found) == limit:
                    return found, place
            if len(page) < (PAGE_MAX if state else limit):
                return found, None
        return found, place

    async def ledger(self, broadcast_id: str, *, state: RecipientState | None = None) -> AsyncIterator[list[Line]]:
        """The whole ledger, page by page. Raises NotFound."""
        place: int | None = 0
        while place is not None:
            lines, place = await self.recipients(broadcast_id, state=state, after=place, limit=PAGE_MAX)
            yield lines

    def per_s(self, bot_id: int) -> float | None:
        """The pace of a bot. None: it has none to speak of."""
        return self._letters.per_s(bot_id)

    async def estimate(self, broadcast_id: str) -> Estimate:
        """What it would take if it began now; or what is left of it. Sends nothing. Raises NotFound."""
        found = await self.get(broadcast_id)
        recipients, suppressed, is_least = await self._counted(found)
        per_s = self._letters.per_s(found.bot_id)
        needed_ms = work_ms(recipients * max(1, found.weight), per_s)
        begins_ms = max(self._clock.wall_ms(), found.start_at_ms or 0 if found.phase is Phase.SCHEDULED else 0)
        zone = zone_of("UTC" if found.quiet is None else found.quiet.tz)
        return estimated(
            recipients=recipients,
            suppressed=suppressed,
            is_least=is_least,
            weight=found.weight,
            per_s=per_s,
            done_at_ms=done_at(begins_ms, needed_ms, found.quiet, zone),
            paid=found.paid,
        )

    async def _counted(self, found: Broadcast) -> tuple[int, int, bool]:
        """Recipients, those who are suppressed, and whether there may be more of these: of a long list only so many lines
        are looked at."""
        if found.phase not in (Phase.DRAFT, Phase.SCHEDULED, Phase.SNAPSHOTTING):
            return found.pending + found.queued, found.counts.suppressed, False
        if found.wanted is not None:
            total = await self._contacts.count_contacts(found.bot_id, found.wanted)
            if found.wanted.is_gone is not None:
                return (0, total, False) if found.wanted.is_gone else (total, 0, False)
            gone = await self._contacts.count_contacts(
                found.bot_id, msgspec.structs.replace(found.wanted, is_gone=True)
            )
            return total - gone, gone, False
        chats = await unreachable(found.bot_id, self._letters, self._contacts)
        if not chats:
            return found.total, 0, False
        suppressed = 0
        for first in range(1, min(found.total, SCANNED_MAX) + 1, PAGE_MAX):
            page = await self._book.lines(found.id, first=first, limit=PAGE_MAX)
            suppressed += sum(line.chat in chats for _, line in page)
        return found.total - suppressed, suppressed, found.total > SCANNED_MAX

    async def preview(self, broadcast_id: str, chat: Chat) -> int:
        """Send it to one chat, as its first recipient would get it. The letter's id. Raises NotFound, BadInput."""
        found = await self.get(broadcast_id)
        lines = await self._book.lines(found.id, first=1, limit=1)
        letter = preview_of(found, chat, lines[0][1] if lines else None)
        (letter_id,) = await self._letters.accept(found.bot_id, [letter])
        return letter_id

    # ---- changing ----

    async def start(self, broadcast_id: str, *, at_ms: int | None = None) -> Broadcast:
        """Begin, now or at a time. Raises NotFound, and Conflict if it has begun."""
        now_ms = self._clock.wall_ms()
        if at_ms is None or at_ms <= now_ms:
            return await self._step(broadcast_id, Step.START)
        check_start(at_ms, now_ms)
        return await self._step(broadcast_id, Step.SCHEDULE, until_ms=at_ms)

    async def pause(self, broadcast_id: str) -> Broadcast:
        """Halt. What still waits in the outbox is taken back; what is in flight ends. Raises NotFound, Conflict."""
        return await self._step(broadcast_id, Step.PAUSE)

    async def resume(self, broadcast_id: str) -> Broadcast:
        """Go on, also after it stopped itself. Raises NotFound, Conflict."""
        return await self._step(broadcast_id, Step.RESUME)

    async def cancel(self, broadcast_id: str) -> Broadcast:
        """End it: nobody who has had nothing yet gets anything. Raises NotFound, Conflict."""
        return await self._step(broadcast_id, Step.CANCEL)

    async def recall(self, broadcast_id: str) -> Broadcast:
        """End it, and delete what was sent. Telegram deletes only what is younger than 48 hours. Raises NotFound, Conflict."""
        return await self._step(broadcast_id, Step.RECALL)

    async def _step(self, broadcast_id: str, step: Step, *, until_ms: int | None = None) -> Broadcast:
        def change(old: Broadcast) -> Broadcast:
            new = moved(old, step, at_ms=self._clock.wall_ms(), until_ms=until_ms)
            if new is None:
                raise Conflict(code="wrong_phase", detail=_why_not(old, step))
            return new

        changed = await self._book.change(_checked_id(broadcast_id), change)
        assert changed is not None
        self._events.tell(told(changed[1]))
        self._look()
        return changed[1]

    async def delete(self, broadcast_id: str) -> None:
        """Forget one that was never begun, or that is over. Raises NotFound, Conflict."""
        found = await self.get(broadcast_id)
        if not _may_be_deleted(found):
            raise Conflict(code="wrong_phase", detail=f"Broadcast {found.id} is {found.phase}: cancel it first.")
        if not await self._book.remove(found.id, may=_may_be_deleted):
            raise Conflict(code="wrong_phase", detail=f"Broadcast {found.id} was begun a moment ago: cancel it first.")


def _may_be_deleted(found: Broadcast) -> bool:
    return found.phase is Phase.DRAFT or found.phase.is_final


def _why_not(found: Broadcast, step: Step) -> str:
    if found.phase is Phase.QUIET and step is Step.RESUME:
        return f"Broadcast {found.id} rests in its quiet hours, and goes on by itself."
    return f"Broadcast {found.id} is {found.phase}: it cannot {step} from there."


def _checked_id(broadcast_id: str) -> str:
    if not (broadcast_id.isascii() and broadcast_id.isdigit() and len(broadcast_id) <= 18):
        raise unknown(broadcast_id)
    return broadcast_id


def _check_limit(limit: int) -> None:
    if not 0 < limit <= PAGE_MAX:
        raise BadInput(code="bad_limit", detail=f"limit must be between 1 and {PAGE_MAX}.")
