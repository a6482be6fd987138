"""The documents of broadcasts: read, and changed so that of two writers none undoes the other's work."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from peik.broadcasts.model import (
    ACTIVE_COLLECTION,
    COLLECTION,
    KEY_COLLECTION,
    Broadcast,
    BroadcastAdvanced,
    BroadcastMoved,
    Phase,
    PhaseStep,
    Recipient,
    RecipientState,
    key_of,
    ledger_of,
    read_broadcast,
    read_recipient,
    stepped,
    written,
)
from peik.clock import Clock
from peik.core.documents import DocumentStore, Filing
from peik.core.events import Events
from peik.erasure.model import NOBODY, ErasedCounts, ErasedPerson, Found, names, scrubbed
from peik.errors import Conflict, NotFound, Unavailable

TRIES_MAX = 100  # against others who change the same broadcast; each of them has got further then
ACTIVE_PAGE = 1000
CLEAR_PAGE = 1000

Lines = Sequence[tuple[int, Recipient]]


class BroadcastRepository:
    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def find(self, broadcast_id: str) -> Broadcast | None:
        document = await self._documents.document(COLLECTION, broadcast_id)
        return None if document is None else read_broadcast(document)

    async def get(self, broadcast_id: str) -> Broadcast:
        """Raises NotFound."""
        found = await self.find(broadcast_id)
        if found is None:
            raise unknown(broadcast_id)
        return found

    async def newest(self, *, before: str | None, limit: int) -> list[Broadcast]:
        documents = await self._documents.documents(COLLECTION, after=before, limit=limit, is_backwards=True)
        return [read_broadcast(document) for document in documents]

    async def active(self) -> list[str]:
        """The ids of those that an engine must look at, the oldest first. All of them: of many that are to start next month
        none may keep one of today from being seen."""
        ids: list[str] = []
        while page := await self._documents.documents(
            ACTIVE_COLLECTION, after=ids[-1] if ids else None, limit=ACTIVE_PAGE
        ):
            ids += [document.key for document in page]
            if len(page) < ACTIVE_PAGE:
                break
        return ids

    async def add(self, broadcast: Broadcast, more: Sequence[Filing] = ()) -> None:
        """A new one. Raises Conflict if it, or something of `more`, is there already."""
        filings = [Filing(collection=COLLECTION, key=broadcast.id, body=written(broadcast), version=0)]
        if not broadcast.is_at_rest:
            filings.append(_marked(broadcast.id, "1"))
        await self._documents.file([*filings, *more])

    async def change(
        self, broadcast_id: str, change: Callable[[Broadcast], Broadcast | None], lines: Lines = ()
    ) -> tuple[Broadcast, Broadcast] | None:
        """Store what `change` makes of it, with lines of its ledger, in one commit: the old one and the new one. `change` is
        asked again if somebody else was faster; None from it stores nothing. Raises NotFound."""
        for _ in range(TRIES_MAX):
            document = await self._documents.document(COLLECTION, broadcast_id)
            if document is None:
                raise unknown(broadcast_id)
            old = read_broadcast(document)
            new = change(old)
            if new is None:
                return None
            filings = [Filing(collection=COLLECTION, key=old.id, body=written(new), version=document.version)]
            if old.is_at_rest is not new.is_at_rest:
                filings.append(_marked(old.id, None if new.is_at_rest else "1"))
            filings += line_filings(old.id, lines)
            try:
                await self._documents.file(filings)
            except Conflict:
                continue
            return old, new
        raise _busy(broadcast_id)

    async def remove(self, broadcast_id: str, *, may: Callable[[Broadcast], bool]) -> bool:
        """Take it away, and then its ledger, if it may go as it stands. What a crash leaves of that is swept later. Raises
        Unavailable."""
        for _ in range(TRIES_MAX):
            document = await self._documents.document(COLLECTION, broadcast_id)
            if document is None:
                return True
            old = read_broadcast(document)
            if not may(old):
                return False
            filings = [
                Filing(collection=COLLECTION, key=old.id, body=None, version=document.version),
                _marked(old.id, None),
            ]
            if old.key is not None:
                filings.append(Filing(collection=KEY_COLLECTION, key=old.key, body=None))
            try:
                await self._documents.file(filings)
            except Conflict:
                continue
            await self.clear(old.id)
            return True
        raise _busy(broadcast_id)

    # ---- the ledger ----

    async def begin(self, broadcast_id: str, lines: Lines) -> None:
        """Recipients of a broadcast that is about to be made. Raises Conflict if another one has this id: the first line is
        what it is known by."""
        first, *others = line_filings(broadcast_id, lines)
        await self._documents.file([replace(first, version=0), *others])

    async def write(self, broadcast_id: str, lines: Lines) -> None:
        await self._documents.file(line_filings(broadcast_id, lines))

    async def lines(self, broadcast_id: str, *, first: int, limit: int) -> list[tuple[int, Recipient]]:
        """Recipients from a number on."""
        documents = await self._documents.documents(ledger_of(broadcast_id), after=key_of(first - 1), limit=limit)
        return [read_recipient(document) for document in documents]

    async def those(self, broadcast_id: str, numbers: Sequence[int]) -> dict[int, Recipient]:
        found = await self._documents.those(ledger_of(broadcast_id), [key_of(number) for number in numbers])
        return dict(read_recipient(document) for document in found.values())

    async def clear(self, broadcast_id: str) -> None:
        while await self._documents.clear_collection(ledger_of(broadcast_id), limit=CLEAR_PAGE) >= CLEAR_PAGE:
            pass

    async def ledgers(self) -> list[str]:
        """The ids of all broadcasts of which there are recipients."""
        return [
            collection.removeprefix(ledger_of("")) for collection in await self._documents.collections(ledger_of(""))
        ]


def line_filings(broadcast_id: str, lines: Lines) -> list[Filing]:
    collection = ledger_of(broadcast_id)
    return [Filing(collection=collection, key=key_of(number), body=written(line)) for number, line in lines]


def _marked(broadcast_id: str, body: str | None) -> Filing:
    return Filing(collection=ACTIVE_COLLECTION, key=broadcast_id, body=body)


def _busy(broadcast_id: str) -> Unavailable:
    return Unavailable(code="busy", detail=f"Broadcast {broadcast_id} is changed by many at once. Ask again.")


def unknown(broadcast_id: str) -> NotFound:
    return NotFound(code="unknown_broadcast", detail=f"There is no broadcast {broadcast_id[:40]} here (any more).")


# Moves of a broadcast from one phase to another, the same for anyone who makes them.


_WITHDRAWN_BY = frozenset(
    {PhaseStep.PAUSE, PhaseStep.HUSH, PhaseStep.STOP, PhaseStep.FAIL, PhaseStep.CANCEL, PhaseStep.RECALL}
)


def moved(
    broadcast: Broadcast, step: PhaseStep, *, at_ms: int, reason: str | None = None, until_ms: int | None = None
) -> Broadcast | None:
    """The broadcast after this step. None: it cannot be made from where it stands. `until_ms` is the end of quiet hours, or
    the time of its start."""
    phase = stepped(step, broadcast.phase, back_to=broadcast.back_to)
    if phase is None:
        return None
    new = replace(broadcast, phase=phase, reason=reason, moved_at_ms=at_ms, quiet_until_ms=None)
    match step:
        case PhaseStep.PAUSE | PhaseStep.HUSH | PhaseStep.STOP if broadcast.phase is not Phase.QUIET:
            new = replace(new, back_to=broadcast.phase)
        case PhaseStep.FAIL:  # the slice is judged: who lets it go on knows better
            new = replace(new, back_to=Phase.RUNNING)
        case PhaseStep.SCHEDULE:
            new = replace(new, start_at_ms=until_ms)
        case PhaseStep.START:
            new = replace(new, started_at_ms=at_ms)
        case PhaseStep.RECALL if broadcast.phase.is_final:
            # From the first on, also if a recall was ended before: in letters of its own. One that is only paused goes on under
            # its keys, for a batch of it may be on its way.
            new = replace(new, ended_at_ms=None, recall_next=0, unrecalled=0, recalls=broadcast.recalls + 1)
        case PhaseStep.END:
            new = replace(new, ended_at_ms=at_ms)
        case _:
            pass
    if step is PhaseStep.HUSH:
        new = replace(new, quiet_until_ms=until_ms)
    return replace(new, is_withdrawing=True) if step in _WITHDRAWN_BY else new


def told(new: Broadcast) -> BroadcastMoved:
    return BroadcastMoved(bot_id=new.bot_id, broadcast_id=new.id, state=new.phase, reason=new.reason)


# How an engine changes a broadcast: only while it is the one that works on it, and only from the phase that it saw.


class Overtaken(Exception):
    """Somebody else has changed it meanwhile: what was about to be done may be wrong now. It is read again."""


class FencedUpdate:
    def __init__(self, book: BroadcastRepository, *, holder: str, clock: Clock, events: Events) -> None:
        self._book = book
        self._holder = holder
        self._clock = clock
        self._events = events

    async def claim(self, broadcast: Broadcast) -> Broadcast:
        """From now on nobody else's work on it is stored."""
        if broadcast.holder == self._holder:
            return broadcast
        changed = await self._book.change(broadcast.id, lambda old: replace(old, holder=self._holder))
        assert changed is not None
        return changed[1]

    async def write(self, seen: Broadcast, change: Callable[[Broadcast], Broadcast], lines: Lines = ()) -> Broadcast:
        """What became of it. Raises Overtaken, and then nothing is stored."""

        def checked(old: Broadcast) -> Broadcast:
            if old.holder != self._holder or old.phase is not seen.phase:
                raise Overtaken
            return change(old)

        changed = await self._book.change(seen.id, checked, lines)
        assert changed is not None
        old, new = changed
        if new.phase is not old.phase:
            self._events.tell(told(new))
        if (new.counts, new.total) != (old.counts, old.total):
            self._events.tell(
                BroadcastAdvanced(bot_id=new.bot_id, broadcast_id=new.id, total=new.total, done=new.counts.done)
            )
        return new

    async def move(
        self, seen: Broadcast, step: PhaseStep, *, reason: str | None = None, until_ms: int | None = None
    ) -> Broadcast:
        def change(old: Broadcast) -> Broadcast:
            new = moved(old, step, at_ms=self._clock.wall_ms(), reason=reason, until_ms=until_ms)
            assert new is not None, (step, old.phase)
            return new

        return await self.write(seen, change)


# Lines of ledgers about a person who is forgotten. A line keeps its number and its end, so that counts stay right;
# whom it was for is not known any more. Who still waits for his turn is passed over.


PAGE = 500
COLLECTIONS = (COLLECTION, ledger_of(""))  # how the names of its collections begin
_WAITING = (RecipientState.PENDING, RecipientState.QUEUED)


class LedgersPart:
    """The port `ErasurePart`."""

    def __init__(self, documents: DocumentStore) -> None:
        self._book = BroadcastRepository(documents)

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        found = ErasedCounts()
        for broadcast_id in await self._book.ledgers():
            first = 1
            while lines := await self._book.lines(broadcast_id, first=first, limit=PAGE):
                first = lines[-1][0] + 1
                for number, line in lines:
                    if _is_about(person, line):
                        found += await self._line(broadcast_id, number, line, person, is_dry=is_dry)
        return {"broadcasts": found}

    async def _line(
        self, broadcast_id: str, number: int, line: Recipient, person: ErasedPerson, *, is_dry: bool
    ) -> ErasedCounts:
        if is_dry:
            return ErasedCounts(left=1) if line.state is RecipientState.QUEUED else ErasedCounts(blanked=1)
        if line.state not in _WAITING:
            await self._book.write(broadcast_id, [(number, _blank(line, person))])
            return ErasedCounts(blanked=1)
        if line.state is RecipientState.QUEUED:
            return ErasedCounts(left=1)  # its letter is on its way; its end is written down first

        def passed_over(old: Broadcast) -> Broadcast | None:
            in_hand = () if old.batch is None else tuple(entry.number for entry in old.batch.entries)
            if number < old.next or number in in_hand:
                return None
            return replace(old, counts=old.counts.moved(RecipientState.SUPPRESSED))

        out = replace(_blank(line, person), state=RecipientState.SUPPRESSED)
        try:
            changed = await self._book.change(broadcast_id, passed_over, [(number, out)])
        except (NotFound, Unavailable):  # it is being made, or removed, or changed by many at once
            changed = None
        return ErasedCounts(left=1) if changed is None else ErasedCounts(blanked=1)


def _is_about(person: ErasedPerson, line: Recipient) -> bool:
    return person.is_chat(line.chat) or any(names(person, value) for value in (line.values or {}).values())


def _blank(line: Recipient, person: ErasedPerson) -> Recipient:
    chat = NOBODY if person.is_chat(line.chat) else line.chat
    error = None if line.error is None else scrubbed(person, line.error)
    return replace(line, chat=chat, values=None, messages=(), error=error)
