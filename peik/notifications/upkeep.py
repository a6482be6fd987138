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
    filed,
    read,
    shelf_of,
    waiting_key,
)
from peik.notifications.repeats import freed

CLEAN_PAGE = 500
CLEAN_S = 3600.0
LATE_MS = 25 * 3600 * 1000  # Telegram keeps what people write for a day: until then a code may still be shown in time


class Cleaning:
    def __init__(self, papers: DocumentStore, *, clock: Clock, keep_ms: int) -> None:
        self._papers = papers
        self._clock = clock
        self._keep_ms = keep_ms
        self._look_at = 0.0

    async def look(self) -> None:
        """Once an hour at most. Raises StoreUnavailable."""
        if self._clock.mono() < self._look_at:
            return
        now_ms = self._clock.wall_ms()
        await self._notices(now_ms - self._keep_ms)
        await self._each(CODES, lambda paper: read(paper, Code).expires_at_ms < now_ms - LATE_MS)
        await self._each(TRIES, lambda paper: all(at < now_ms - LATE_MS for _, at in read(paper, Tries).shown))
        await self._each(RATES, lambda paper: all(at < now_ms - RATE_WINDOW_MS for at in read(paper, Rates).sent_ms))
        self._look_at = self._clock.mono() + CLEAN_S

    async def _notices(self, before_ms: int) -> None:
        after: str | None = None
        while page := await self._papers.papers(
            NOTICES, after=after, until=f"{max(before_ms, 0):011x}", limit=CLEAN_PAGE
        ):
            after = page[-1].key
            filings: list[Filing] = []
            for notice in (read(paper, Notice) for paper in page):
                if notice.is_over:
                    filings += gone(notice)
            if filings:
                await self._papers.file(filings)

    async def _each(self, shelf: str, is_old: Callable[[StoredDocument], bool]) -> None:
        after: str | None = None
        while page := await self._papers.papers(shelf, after=after, limit=CLEAN_PAGE):
            after = page[-1].key
            old = [filed(shelf, paper.key, None, paper.version) for paper in page if is_old(paper)]
            with contextlib.suppress(Conflict):  # one of them was changed just now: the next look sees
                if old:
                    await self._papers.file(old)


def gone(notice: Notice) -> list[Filing]:
    """All of it: the notice, its line in the list of its recipient, and its key."""
    return [filed(NOTICES, notice.id, None), filed(shelf_of(notice.recipient), notice.id, None), *freed(notice)]


# Users, links, codes and notifications of a person who is forgotten. What waits for its time is taken back with them.


ERASE_PAGE = 500
SHELVES = (USERS, CODES, TRIES, NOTICES, WAITING, PARCELS, KEYS, RATES, shelf_of(""))


async def names_of(papers: DocumentStore, user_id: int) -> frozenset[str]:
    """What the caller's own systems call the person behind a chat."""
    found: set[str] = set()
    after: str | None = None
    while page := await papers.papers(USERS, after=after, limit=ERASE_PAGE):
        after = page[-1].key
        users = [read(paper, User) for paper in page]
        found |= {user.user_id for user in users if user.link is not None and user.link.chat_id == user_id}
    return frozenset(found)


async def chat_of(papers: DocumentStore, name: str) -> int | None:
    """The private chat that a user is linked to."""
    if re.fullmatch(USER_PATTERN, name) is None:
        return None  # nobody can have it
    paper = await papers.paper(USERS, name)
    link = None if paper is None else read(paper, User).link
    return None if link is None else link.chat_id


class NotificationsPart:
    """The port `ErasurePart`."""

    def __init__(self, papers: DocumentStore) -> None:
        self._papers = papers

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        notices = await self._each(NOTICES, lambda paper: _notice(person, paper), is_dry=is_dry)
        notices += await self._each(PARCELS, lambda paper: _parcel(person, paper), is_dry=is_dry)
        users = await self._each(USERS, lambda paper: _user(person, paper), is_dry=is_dry)
        users += await self._each(CODES, lambda paper: _code(person, paper), is_dry=is_dry)
        for shelf in (TRIES, RATES):
            users += await self._each(shelf, lambda paper: _keyed(person, paper), is_dry=is_dry)
        if not is_dry:
            await self._clear_lists(person)
        return {"notifications": notices, "users": users}

    async def _clear_lists(self, person: ErasedPerson) -> None:
        """Where the ids of their notices lay: these went with the notices, but for what a crash left."""
        for shelf in await self._papers.shelves(shelf_of("")):
            if _is_recipient(person, shelf.removeprefix(shelf_of(""))):
                while await self._papers.clear_shelf(shelf, limit=ERASE_PAGE) >= ERASE_PAGE:
                    pass

    async def _each(
        self, shelf: str, judge: Callable[[StoredDocument], list[Filing] | None], *, is_dry: bool
    ) -> ErasedCounts:
        """`judge` says what goes with a paper: None, it is no matter of this person's; nothing, it is in use just now."""
        found = ErasedCounts()
        after: str | None = None
        while page := await self._papers.papers(shelf, after=after, limit=ERASE_PAGE):
            after = page[-1].key
            for paper in page:
                filings = judge(paper)
                if filings is None:
                    continue
                try:
                    if filings and not is_dry:
                        await self._papers.file(filings)
                except Conflict:  # somebody changed it just now: the next look sees
                    filings = []
                found += ErasedCounts(removed=1) if filings else ErasedCounts(left=1)
        return found


def _notice(person: ErasedPerson, paper: StoredDocument) -> list[Filing] | None:
    notice = read(paper, Notice)
    request = notice.request
    is_theirs = person.is_called(request.user_id) or person.is_chat(request.chat_id)
    if not is_theirs and not (notice.is_over and names(person, paper.body)):
        return None
    return [*gone(notice), filed(WAITING, waiting_key(notice), None)]


def _parcel(person: ErasedPerson, paper: StoredDocument) -> list[Filing] | None:
    """It is about to be letters, which are looked at the next time."""
    parcel = read(paper, Parcel)
    return [] if person.is_called(parcel.user_id) or person.is_chat(parcel.chat_id) else None


def _user(person: ErasedPerson, paper: StoredDocument) -> list[Filing] | None:
    user = read(paper, User)
    is_linked = user.link is not None and user.link.chat_id == person.user_id
    if not is_linked and not person.is_called(user.user_id):
        return None
    return [filed(USERS, paper.key, None, paper.version)]


def _code(person: ErasedPerson, paper: StoredDocument) -> list[Filing] | None:
    code = read(paper, Code)
    is_theirs = person.is_called(code.user_id) or code.used_by == person.user_id
    return [filed(CODES, paper.key, None, paper.version)] if is_theirs else None


def _keyed(person: ErasedPerson, paper: StoredDocument) -> list[Filing] | None:
    is_theirs = _is_recipient(person, paper.key)
    return [filed(paper.shelf, paper.key, None, paper.version)] if is_theirs else None


def _is_recipient(person: ErasedPerson, key: str) -> bool:
    """Keys are u/name, c/bot/chat, or bot/chat."""
    kind, _, rest = key.partition("/")
    if kind == "u":
        return person.is_called(rest)
    return key.rpartition("/")[2] == str(person.user_id)
