"""Who is written to: a list of chats, or the rows of a CSV. Duplicates go, what cannot be a chat is refused."""

import csv
import io
import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from peik.broadcasts.dispatch import CONTACT_COLUMNS
from peik.broadcasts.model import Broadcast, BroadcastLettersPort, PhaseStep, Recipient, RecipientState
from peik.broadcasts.repository import BroadcastRepository, FencedUpdate
from peik.core.call import chat_key
from peik.core.documents import Contact, ContactFilter, ContactStore
from peik.core.letter import Chat
from peik.errors import BadInput

RECIPIENTS_MAX = 1_000_000
COLUMNS_MAX = 50
VALUE_CHARS_MAX = 1000
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CHAT = re.compile(r"-?[0-9]{1,15}|@[A-Za-z0-9_]{1,64}")


class ListAudience(msgspec.Struct, frozen=True, kw_only=True):
    """Chats, each with the values of its columns."""

    recipients: tuple[tuple[Chat, dict[str, str] | None], ...]
    columns: tuple[str, ...] = ()
    duplicates: int = 0


class ContactAudience(msgspec.Struct, frozen=True, kw_only=True):
    """Known chats of the bot, as they are when the broadcast starts."""

    wanted: ContactFilter = ContactFilter()


Audience = ListAudience | ContactAudience


def listed(chats: Iterable[int | str]) -> ListAudience:
    """Raises BadInput."""
    return _gathered(((chat, None, f"Chat {index + 1}") for index, chat in enumerate(chats)), ())


def read_csv(raw: bytes) -> ListAudience:
    """Rows with a column chat_id; the others can be named in {placeholders}. Raises BadInput, with the line."""
    text = text_of(raw)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        head = [name.strip() for name in next(rows, [])]
        return _gathered(_read_rows(rows, _checked_head(head)), tuple(name for name in head if name != "chat_id"))
    except csv.Error as error:
        raise BadInput(code="bad_csv", detail=f"Line {rows.line_num} of the CSV cannot be read: {error}.") from None


def text_of(raw: bytes) -> str:
    """Raises BadInput."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(code="bad_csv", detail="The CSV is not text in UTF-8.") from None


def _delimiter(text: str) -> str:
    """Spreadsheets of half the world write semicolons."""
    head = text.partition("\n")[0]
    return max(",;\t", key=head.count) if any(mark in head for mark in ",;\t") else ","


def _checked_head(head: list[str]) -> list[str]:
    if "chat_id" not in head:
        raise BadInput(code="bad_csv", detail="The first line of the CSV must name its columns, chat_id among them.")
    if len(set(head)) != len(head) or len(head) > COLUMNS_MAX:
        raise BadInput(code="bad_csv", detail=f"Columns have different names, and there are at most {COLUMNS_MAX}.")
    for name in head:
        if _COLUMN.fullmatch(name) is None:
            raise BadInput(
                code="bad_csv", detail=f"The name of a column has Latin letters, digits and _ only, not {name[:40]!r}."
            )
    return head


def _read_rows(rows: "csv._reader", head: list[str]) -> Iterable[tuple[str, dict[str, str] | None, str]]:  # type: ignore[name-defined]
    for row in rows:
        where = f"Line {rows.line_num} of the CSV"
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(head):
            raise BadInput(code="bad_csv", detail=f"{where} has {len(row)} cells; the first line has {len(head)}.")
        values = dict(zip(head, row, strict=True))
        chat = values.pop("chat_id")
        if any(len(value) > VALUE_CHARS_MAX for value in values.values()):
            raise BadInput(code="bad_csv", detail=f"{where}: a value has at most {VALUE_CHARS_MAX} characters.")
        yield chat, values or None, where


def _gathered(
    rows: Iterable[tuple[int | str, Mapping[str, str] | None, str]], columns: tuple[str, ...]
) -> ListAudience:
    """Of several rows of one chat the first counts."""
    found: dict[Chat, dict[str, str] | None] = {}
    seen = 0
    for chat, values, where in rows:
        seen += 1
        if seen > RECIPIENTS_MAX:
            raise BadInput(
                code="too_many_recipients", detail=f"A broadcast has at most {RECIPIENTS_MAX} recipients; make several."
            )
        found.setdefault(_chat(chat, where), None if values is None else dict(values))
    if not found:
        raise BadInput(code="no_recipients", detail="There is nobody to write to.")
    return ListAudience(recipients=tuple(found.items()), columns=columns, duplicates=seen - len(found))


def _chat(chat: int | str, where: str) -> Chat:
    text = str(chat).strip().removeprefix("'")  # as our own ledgers have it, for the sake of spreadsheets
    if isinstance(chat, bool) or _CHAT.fullmatch(text) is None:
        raise BadInput(code="bad_chat_id", detail=f"{where}: {str(chat)[:40]!r} is no chat. Give its number, or @name.")
    return chat_key(text)


# Writes down who is to be written to, page by page: known chats as they are now; and of all, who cannot be reached.


PAGE = 1000


class Snapshot:
    def __init__(
        self, *, book: BroadcastRepository, pen: FencedUpdate, letters: BroadcastLettersPort, contacts: ContactStore
    ) -> None:
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
        await self._pen.move(seen, PhaseStep.GO if seen.canary is None else PhaseStep.TRY)

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
            (seen.total + index, recipient_of(contact, is_out=contact.is_gone or contact.chat_id in chats))
            for index, contact in enumerate(found, start=1)
        ]
        out = sum(line.state is RecipientState.SUPPRESSED for _, line in lines)
        counts = seen.counts.moved(RecipientState.SUPPRESSED, out)
        total, place = seen.total + len(found), found[-1].chat_id
        await self._pen.write(seen, lambda old: replace(old, total=total, place=place, counts=counts), lines)
        return True


async def unreachable(bot_id: int, letters: BroadcastLettersPort, contacts: ContactStore) -> set[Chat]:
    """Chats that are shut, and those that have blocked the bot or thrown it out."""
    chats = await letters.shut_chats(bot_id)
    after: int | None = None
    while page := await contacts.contacts(bot_id, ContactFilter(is_gone=True), after=after, limit=PAGE):
        chats.update(contact.chat_id for contact in page)
        after = page[-1].chat_id
    return chats


def _suppressed(line: Recipient) -> Recipient:
    return replace(line, state=RecipientState.SUPPRESSED)


def recipient_of(contact: Contact, *, is_out: bool) -> Recipient:
    values = {name: getattr(contact, name) or "" for name in CONTACT_COLUMNS}
    state = RecipientState.SUPPRESSED if is_out else RecipientState.PENDING
    return Recipient(chat=contact.chat_id, values=values, state=state)
