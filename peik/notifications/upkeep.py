"""Clears away what nobody can ask for any more: old notices, codes that are over, wrong tries and rates of yesterday."""

import contextlib
import re
from collections.abc import Callable

from peik.clock import Clock
from peik.core.documents import DocumentStore, Filing, StoredDocument
from peik.erasure.model import ErasedCounts, ErasedPerson, Found, names
from peik.errors import Conflict
from peik.notifications.model import (
    CODES,
    KEYS,
    NOTICES,
    PARCELS,
    RATE_WINDOW_MS,
    RATES,
    TRIES,
    USER_PATTERN,
    USERS,
    WAITING,
    Code,
    Notice,
    Parcel,
    Rates,
    Tries,
    User,
    collection_of,
    filed,
    read,
    waiting_key,
)
from peik.notifications.repeats import freed

CLEAN_PAGE = 500
CLEAN_S = 3600.0
LATE_MS = 25 * 3600 * 1000  # Telegram keeps what people write for a day: until then a code may still be shown in time


class Cleaning:
    def __init__(self, documents: DocumentStore, *, clock: Clock, keep_ms: int) -> None:
        self._documents = documents
        self._clock = clock
        self._keep_ms = keep_ms
        self._look_at = 0.0

    async def look(self) -> None:
        """Once an hour at most. Raises StoreUnavailable."""
        if self._clock.mono() < self._look_at:
            return
        now_ms = self._clock.wall_ms()
        await self._notices(now_ms - self._keep_ms)
        await self._each(CODES, lambda document: read(document, Code).expires_at_ms < now_ms - LATE_MS)
        await self._each(TRIES, lambda document: all(at < now_ms - LATE_MS for _, at in read(document, Tries).shown))
        await self._each(
            RATES, lambda document: all(at < now_ms - RATE_WINDOW_MS for at in read(document, Rates).sent_ms)
        )
        self._look_at = self._clock.mono() + CLEAN_S

    async def _notices(self, before_ms: int) -> None:
        after: str | None = None
        while page := await self._documents.documents(
            NOTICES, after=after, until=f"{max(before_ms, 0):011x}", limit=CLEAN_PAGE
        ):
            after = page[-1].key
            filings: list[Filing] = []
            for notice in (read(document, Notice) for document in page):
                if notice.is_over:
                    filings += gone(notice)
            if filings:
                await self._documents.file(filings)

    async def _each(self, collection: str, is_old: Callable[[StoredDocument], bool]) -> None:
        after: str | None = None
        while page := await self._documents.documents(collection, after=after, limit=CLEAN_PAGE):
            after = page[-1].key
            old = [filed(collection, document.key, None, document.version) for document in page if is_old(document)]
            with contextlib.suppress(Conflict):  # one of them was changed just now: the next look sees
                if old:
                    await self._documents.file(old)


def gone(notice: Notice) -> list[Filing]:
    """All of it: the notice, its line in the list of its recipient, and its key."""
    return [filed(NOTICES, notice.id, None), filed(collection_of(notice.recipient), notice.id, None), *freed(notice)]


# Users, links, codes and notifications of a person who is forgotten. What waits for its time is taken back with them.


ERASE_PAGE = 500
COLLECTIONS = (USERS, CODES, TRIES, NOTICES, WAITING, PARCELS, KEYS, RATES, collection_of(""))


async def names_of(documents: DocumentStore, user_id: int) -> frozenset[str]:
    """What the caller's own systems call the person behind a chat."""
    found: set[str] = set()
    after: str | None = None
    while page := await documents.documents(USERS, after=after, limit=ERASE_PAGE):
        after = page[-1].key
        users = [read(document, User) for document in page]
        found |= {user.user_id for user in users if user.link is not None and user.link.chat_id == user_id}
    return frozenset(found)


async def chat_of(documents: DocumentStore, name: str) -> int | None:
    """The private chat that a user is linked to."""
    if re.fullmatch(USER_PATTERN, name) is None:
        return None  # nobody can have it
    document = await documents.document(USERS, name)
    link = None if document is None else read(document, User).link
    return None if link is None else link.chat_id


class NotificationsPart:
    """The port `ErasurePart`."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        notices = await self._each(NOTICES, lambda document: _notice(person, document), is_dry=is_dry)
        notices += await self._each(PARCELS, lambda document: _parcel(person, document), is_dry=is_dry)
        users = await self._each(USERS, lambda document: _user(person, document), is_dry=is_dry)
        users += await self._each(CODES, lambda document: _code(person, document), is_dry=is_dry)
        for collection in (TRIES, RATES):
            users += await self._each(collection, lambda document: _keyed(person, document), is_dry=is_dry)
        if not is_dry:
            await self._clear_lists(person)
        return {"notifications": notices, "users": users}

    async def _clear_lists(self, person: ErasedPerson) -> None:
        """Where the ids of their notices lay: these went with the notices, but for what a crash left."""
        for collection in await self._documents.collections(collection_of("")):
            if _is_recipient(person, collection.removeprefix(collection_of(""))):
                while await self._documents.clear_collection(collection, limit=ERASE_PAGE) >= ERASE_PAGE:
                    pass

    async def _each(
        self, collection: str, judge: Callable[[StoredDocument], list[Filing] | None], *, is_dry: bool
    ) -> ErasedCounts:
        """`judge` says what goes with a document: None, it is no matter of this person's; nothing, it is in use just now."""
        found = ErasedCounts()
        after: str | None = None
        while page := await self._documents.documents(collection, after=after, limit=ERASE_PAGE):
            after = page[-1].key
            for document in page:
                filings = judge(document)
                if filings is None:
                    continue
                try:
                    if filings and not is_dry:
                        await self._documents.file(filings)
                except Conflict:  # somebody changed it just now: the next look sees
                    filings = []
                found += ErasedCounts(removed=1) if filings else ErasedCounts(left=1)
        return found


def _notice(person: ErasedPerson, document: StoredDocument) -> list[Filing] | None:
    notice = read(document, Notice)
    request = notice.request
    is_theirs = person.is_called(request.user_id) or person.is_chat(request.chat_id)
    if not is_theirs and not (notice.is_over and names(person, document.body)):
        return None
    return [*gone(notice), filed(WAITING, waiting_key(notice), None)]


def _parcel(person: ErasedPerson, document: StoredDocument) -> list[Filing] | None:
    """It is about to be letters, which are looked at the next time."""
    parcel = read(document, Parcel)
    return [] if person.is_called(parcel.user_id) or person.is_chat(parcel.chat_id) else None


def _user(person: ErasedPerson, document: StoredDocument) -> list[Filing] | None:
    user = read(document, User)
    is_linked = user.link is not None and user.link.chat_id == person.user_id
    if not is_linked and not person.is_called(user.user_id):
        return None
    return [filed(USERS, document.key, None, document.version)]


def _code(person: ErasedPerson, document: StoredDocument) -> list[Filing] | None:
    code = read(document, Code)
    is_theirs = person.is_called(code.user_id) or code.used_by == person.user_id
    return [filed(CODES, document.key, None, document.version)] if is_theirs else None


def _keyed(person: ErasedPerson, document: StoredDocument) -> list[Filing] | None:
    is_theirs = _is_recipient(person, document.key)
    return [filed(document.collection, document.key, None, document.version)] if is_theirs else None


def _is_recipient(person: ErasedPerson, key: str) -> bool:
    """Keys are u/name, c/bot/chat, or bot/chat."""
    kind, _, rest = key.partition("/")
    if kind == "u":
        return person.is_called(rest)
    return key.rpartition("/")[2] == str(person.user_id)
