"""Writes down who is to be written to, page by page: known chats as they are now; and of all, who cannot be reached."""

from msgspec.structs import replace

from peik.broadcasts.book import Book
from peik.broadcasts.pen import Pen
from peik.broadcasts.ports import Letters
from peik.broadcasts.records import Broadcast, Recipient
from peik.broadcasts.writing import CONTACT_COLUMNS
from peik.core.broadcast import RecipientState, Step
from peik.core.letter import Chat
from peik.paper_ports import Contact, ContactFilter, ContactStore

PAGE = 1000


class Snapshot:
    def __init__(self, *, book: Book, pen: Pen, letters: Letters, contacts: ContactStore) -> None:
        self._book = book
        self._pen = pen
        self._letters = letters
        self._contacts = contacts
        self._out_of_reach: tuple[str, set[Chat]] | None = None  # of the one that is being written down

    async def page(self, seen: Broadcast) -> None:
        """One more page; after the last, it goes on its way. Raises Overtaken."""
        chats = await self._unreachable(seen)
        more = self._given(seen, chats) if seen.wanted is None else self._known(seen, seen.wanted, chats)
        if await more:
            return
        self._out_of_reach = None
        await self._pen.move(seen, Step.GO if seen.canary is None else Step.TRY)

    async def _unreachable(self, seen: Broadcast) -> set[Chat]:
        if self._out_of_reach is None or self._out_of_reach[0] != seen.id:
            self._out_of_reach = (seen.id, await unreachable(seen.bot_id, self._letters, self._contacts))
        return self._out_of_reach[1]

    async def _given(self, seen: Broadcast, chats: set[Chat]) -> bool:
        first = (seen.place or 0) + 1
        lines = await self._book.lines(seen.id, first=first, limit=PAGE)
        if not lines:
            return False
        out = [(number, _suppressed(line)) for number, line in lines if line.chat in chats]
        counts = seen.counts.moved(RecipientState.SUPPRESSED, len(out))
        await self._pen.write(seen, lambda old: replace(old, place=lines[-1][0], counts=counts), out)
        return True

    async def _known(self, seen: Broadcast, wanted: ContactFilter, chats: set[Chat]) -> bool:
        found = await self._contacts.contacts(seen.bot_id, wanted, after=seen.place, limit=PAGE)
        if not found:
            return False
        lines = [
            (seen.total + index, _recipient(contact, is_out=contact.is_gone or contact.chat_id in chats))
            for index, contact in enumerate(found, start=1)
        ]
        out = sum(line.state is RecipientState.SUPPRESSED for _, line in lines)
        counts = seen.counts.moved(RecipientState.SUPPRESSED, out)
        total, place = seen.total + len(found), found[-1].chat_id
        await self._pen.write(seen, lambda old: replace(old, total=total, place=place, counts=counts), lines)
        return True


async def unreachable(bot_id: int, letters: Letters, contacts: ContactStore) -> set[Chat]:
    """Chats that are shut, and those that have blocked the bot or thrown it out."""
    chats = await letters.shut_chats(bot_id)
    after: int | None = None
    while page := await contacts.contacts(bot_id, ContactFilter(is_gone=True), after=after, limit=PAGE):
        chats.update(contact.chat_id for contact in page)
        after = page[-1].chat_id
    return chats


def _suppressed(line: Recipient) -> Recipient:
    return replace(line, state=RecipientState.SUPPRESSED)


def _recipient(contact: Contact, *, is_out: bool) -> Recipient:
    values = {name: getattr(contact, name) or "" for name in CONTACT_COLUMNS}
    state = RecipientState.SUPPRESSED if is_out else RecipientState.PENDING
    return Recipient(chat=contact.chat_id, values=values, state=state)
