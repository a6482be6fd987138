"""Lines of ledgers about a person who is forgotten. A line keeps its number and its end, so that counts stay right; whom it
was for is not known any more. Who still waits for his turn is passed over."""

from msgspec.structs import replace

from peik.broadcasts.book import Book
from peik.broadcasts.records import SHELF, Broadcast, Recipient, ledger_of
from peik.core.broadcast import RecipientState
from peik.core.forgetting import NOBODY, Found, Gone, Person, names, scrubbed
from peik.errors import NotFound, Unavailable
from peik.paper_ports import PaperStore

PAGE = 500
SHELVES = (SHELF, ledger_of(""))  # how the names of its shelves begin
_WAITING = (RecipientState.PENDING, RecipientState.QUEUED)


class LedgersPart:
    """The port `Part`."""

    def __init__(self, papers: PaperStore) -> None:
        self._book = Book(papers)

    async def forget(self, person: Person, *, is_dry: bool) -> Found:
        found = Gone()
        for broadcast_id in await self._book.ledgers():
            first = 1
            while lines := await self._book.lines(broadcast_id, first=first, limit=PAGE):
                first = lines[-1][0] + 1
                for number, line in lines:
                    if _is_about(person, line):
                        found += await self._line(broadcast_id, number, line, person, is_dry=is_dry)
        return {"broadcasts": found}

    async def _line(self, broadcast_id: str, number: int, line: Recipient, person: Person, *, is_dry: bool) -> Gone:
        if is_dry:
            return Gone(left=1) if line.state is RecipientState.QUEUED else Gone(blanked=1)
        if line.state not in _WAITING:
            await self._book.write(broadcast_id, [(number, _blank(line, person))])
            return Gone(blanked=1)
        if line.state is RecipientState.QUEUED:
            return Gone(left=1)  # its letter is on its way; its end is written down first

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
        return Gone(left=1) if changed is None else Gone(blanked=1)


def _is_about(person: Person, line: Recipient) -> bool:
    return person.is_chat(line.chat) or any(names(person, value) for value in (line.values or {}).values())


def _blank(line: Recipient, person: Person) -> Recipient:
    chat = NOBODY if person.is_chat(line.chat) else line.chat
    error = None if line.error is None else scrubbed(person, line.error)
    return replace(line, chat=chat, values=None, messages=(), error=error)
