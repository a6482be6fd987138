"""Small records and known chats: what is kept beside letters and arrivals, on every store alike.

A *document* is a small JSON text in a *collection*, in the order of its key. Broadcasts, notifications, sign-ins and the audit
log are made of documents: what they mean is theirs; that they outlive a crash, and that of two writers one wins, is the store's.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from peik.errors import BadInput, Conflict

COLLECTION_CHARS_MAX = 100
KEY_CHARS_MAX = 200
BODY_BYTES_MAX = 256 * 1024
FILINGS_MAX = 5_000  # in one commit
FILED_BYTES_MAX = 32 * 1024 * 1024  # in one commit


class StoredDocument(msgspec.Struct, frozen=True, kw_only=True):
    collection: str
    key: str  # printable ASCII, as the collection is; documents of a collection are ordered by it, byte by byte
    body: str  # JSON
    version: int  # 1 when it is new, and one more with every change; one that was taken away and comes again is new


class Filing(msgspec.Struct, frozen=True, kw_only=True):
    """One change. `body` None takes the document away. `version`: what it must be as it stands; 0: it must not be there yet;
    None: whatever it is."""

    collection: str
    key: str
    body: str | None
    version: int | None = None


class DocumentStore(Protocol):
    """Every method that writes answers after a durable commit, or raises StoreUnavailable."""

    async def file(self, filings: Sequence[Filing]) -> None:
        """All of them in one commit, or none. Raises Conflict (`paper_changed`) if one is not as it was expected to be, and
        BadInput (`bad_paper`) if one breaks a bound. Of several filings of one document in one call the last counts, as one
        change; only the first may expect a version. After InDoubt it may be there: look, or file again what expects a version."""

    async def document(self, collection: str, key: str) -> StoredDocument | None: ...

    async def those(self, collection: str, keys: Sequence[str]) -> dict[str, StoredDocument]:
        """Those that are there."""

    async def documents(
        self,
        collection: str,
        *,
        after: str | None = None,
        until: str | None = None,
        limit: int,
        is_backwards: bool = False,
    ) -> list[StoredDocument]:
        """In the order of keys, beginning behind `after` and up to `until`; both are left out. Backwards, from the end down,
        `after` is the upper bound and `until` the lower one. None: from one end to the other."""

    async def count_documents(self, collection: str) -> int: ...

    async def collections(self, prefix: str) -> list[str]:
        """The names of all collections with a document whose names begin so, in order."""

    async def clear_collection(self, collection: str, *, until: str | None = None, limit: int) -> int:
        """Take away documents with the lowest keys, below `until` or all. How many went; fewer than `limit`: that was all."""


# ---- known chats ----


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """A chat that has written to a bot, or that the bot was put into."""

    bot_id: int
    chat_id: int
    type: str  # private, group, supergroup or channel
    name: str | None = None  # its title, or the person's name
    username: str | None = None
    language: str | None = None  # language_code of the person, of private chats only
    first_seen_ms: int
    last_seen_ms: int
    is_gone: bool = False  # the bot was blocked, or thrown out
    campaign: str | None = None  # what stood behind the first /start


class ContactFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which chats. What is None does not matter."""

    types: frozenset[str] | None = None
    languages: frozenset[str] | None = (
        None  # `fa` also means `fa-IR`; "" those of whom it is not known; whatever their case
    )
    seen_since_ms: int | None = None  # then or later
    seen_before_ms: int | None = None
    is_gone: bool | None = None
    text: str | None = None  # in name or username, whatever its case; with an @ before it, the beginning of a username
    campaign: str | None = None  # "": those that came by none


CONTACTS_LOOKED_MAX = (
    20_000  # for one page: nobody waits for a walk through a million chats, and no engine waits behind it
)


class ContactPage(msgspec.Struct, frozen=True, kw_only=True):
    """Known chats, the last seen first. `cursor` None: there are no more. `is_cut`: so many were looked at that the page ends
    early; go on with `cursor`."""

    contacts: list[Contact]
    cursor: tuple[int, int] | None
    is_cut: bool = False


class ContactStore(Protocol):
    async def contacts_place(self, bot_id: int) -> int:
        """The number of the last arrival that was looked at; 0: none."""

    async def save_contacts(self, bot_id: int, contacts: Sequence[Contact], *, place: int) -> None:
        """Take them up, and the place, in one commit. A place only goes on: an older one changes nothing at all, the same one may
        save again. Of one that is known first_seen_ms, campaign, and what the new one leaves None stay; last_seen_ms only goes
        on. Several of one chat count one after the other. Raises NotFound (`unknown_bot`): a bot's chats are forgotten
        with it."""

    async def contact(self, bot_id: int, chat_id: int) -> Contact | None: ...

    async def contacts(self, bot_id: int, wanted: ContactFilter, *, after: int | None, limit: int) -> list[Contact]:
        """In the order of chat ids, behind `after`."""

    async def newest_contacts(
        self,
        bot_id: int,
        wanted: ContactFilter,
        *,
        before: tuple[int, int] | None,
        limit: int,
        looked_max: int = CONTACTS_LOOKED_MAX,
    ) -> ContactPage:
        """The last seen first, of those seen at once the highest chat id; `before` is the cursor of the page before:
        (last_seen_ms, chat_id)."""

    async def count_contacts(self, bot_id: int, wanted: ContactFilter) -> int: ...

    async def count_campaigns(self, bot_id: int, *, since_ms: int) -> dict[str, int]:
        """How many chats first wrote since then, by campaign; under "" those that came by none."""


# What holds for documents on every store: what may be filed, what several filings of one document come to, and when one is
# refused.


Name = tuple[str, str]  # collection, key


class DocumentChange(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit does to one document. `body` None takes it away."""

    collection: str
    key: str
    body: str | None
    expected: int | None

    @property
    def name(self) -> Name:
        return self.collection, self.key


def changes_of(filings: Sequence[Filing]) -> list[DocumentChange]:
    """One for each document, in the order in which they were first named. Raises BadInput for what no store would keep."""
    if len(filings) > FILINGS_MAX:
        raise _bad(f"{len(filings)} papers are too many for one commit: {FILINGS_MAX} at most.")
    changes: dict[Name, DocumentChange] = {}
    size_bytes = 0
    for filing in filings:
        size_bytes += _checked_bytes(filing)
        before = changes.get((filing.collection, filing.key))
        if before is not None and filing.version is not None:
            raise _bad(f"Of several filings of {filing.collection}/{filing.key} only the first may expect a version.")
        changes[filing.collection, filing.key] = DocumentChange(
            collection=filing.collection,
            key=filing.key,
            body=filing.body,
            expected=filing.version if before is None else before.expected,
        )
    if size_bytes > FILED_BYTES_MAX:
        raise _bad(f"{size_bytes} bytes of papers are too many for one commit: {FILED_BYTES_MAX} at most.")
    return list(changes.values())


def check_expected(changes: Sequence[DocumentChange], versions: Mapping[Name, int]) -> None:
    """Raises Conflict if one of the documents is not as it was expected to be. One that has no version is not there."""
    for change in changes:
        if change.expected is not None and change.expected != versions.get(change.name, 0):
            raise changed(change.name)


def changed(name: Name) -> Conflict:
    return Conflict(
        code="paper_changed",
        detail=f"Somebody else has changed {'/'.join(name)} in the meantime. Look at it as it is now, and try again.",
    )


def _checked_bytes(filing: Filing) -> int:
    """How large it is, if it can be kept."""
    for word, chars_max in ((filing.collection, COLLECTION_CHARS_MAX), (filing.key, KEY_CHARS_MAX)):
        if not 0 < len(word) <= chars_max or not (word.isascii() and word.isprintable()):
            raise _bad(f"{word[:50]!r} cannot name a paper: 1 to {chars_max} printable ASCII characters can.")
    if filing.body is None:
        return 0
    try:
        size_bytes = len(filing.body.encode())
    except UnicodeEncodeError:
        size_bytes = -1
    if size_bytes < 0 or "\0" in filing.body:
        raise _bad(f"{filing.collection}/{filing.key} is no JSON: it holds characters that no text can hold.")
    if size_bytes > BODY_BYTES_MAX:
        raise _bad(f"{filing.collection}/{filing.key} is larger than {BODY_BYTES_MAX} bytes.")
    return size_bytes


def _bad(detail: str) -> BadInput:
    return BadInput(code="bad_paper", detail=detail)


AFTER_ALL_ASCII = (
    "\x7f"  # behind every printable character: what begins with a word comes before the word with this behind it
)
