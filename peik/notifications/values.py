"""Users, codes, notices and parcels as they lie in the store, and on which shelves."""

import hashlib
import re
from typing import Any, TypeVar

import msgspec

from peik.core.letter import Priority
from peik.core.notification import Said
from peik.core.quiet import Quiet
from peik.errors import BadInput
from peik.paper_ports import Filing, Paper
from peik.ports import LetterView

USERS = "users"
CODES = "link-codes"
TRIES = "link-tries"
TEMPLATES = "templates"
NOTICES = "notices"
WAITING = "notices-waiting"  # what is due later, in the order of its time
PARCELS = "notices-parcels"  # what is on its way into the outbox
KEYS = "notices-keys"
RATES = "notices-rates"

USER_PATTERN = "^[A-Za-z0-9_.:@+=|~-]{1,64}$"
TYPE_PATTERN = "^[A-Za-z0-9_.-]{1,64}$"
LANGUAGE_PATTERN = "^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,3}$"

T = TypeVar("T")


class Link(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: int
    chat_id: int
    since_ms: int


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whom a company knows by a name of its own."""

    user_id: str
    link: Link | None = None
    language: str | None = None
    quiet: Quiet | None = None  # None: as the settings say
    owner: int | None = None  # the bot for which a key of some bots made this name; None: it is known to all of Peik
    code: str | None = None  # the digest of the one code that is still good
    code_expires_at_ms: int | None = None


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """A code that was given out, by its digest. One that was used stays for a while: its message may be seen again."""

    user_id: str
    bot_id: int
    expires_at_ms: int
    language: str | None = None
    used_by: int | None = None  # the chat


class Tries(msgspec.Struct, frozen=True, kw_only=True):
    """Wrong codes that a chat has shown: (number of the arrival, when)."""

    shown: tuple[tuple[int, int], ...] = ()


class Template(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    language: str
    text: str


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A call that goes out with the words, or behind them."""

    method: str
    params: dict[str, Any]


class NotifyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One notification as a door hands it in: for a user by his name, or for a chat."""

    type: str
    title: str = ""
    message: str = ""
    user_id: str | None = None
    chat_id: int | str | None = None
    bot_id: int | None = None
    language: str | None = None
    data: dict[str, str | int | float | bool] = {}
    priority: int = Priority.HIGH
    is_html: bool = False
    attachment: Attachment | None = None
    idempotency_key: str | None = None
    digest_s: float | None = None  # wait so long for others of this type; None: only if it has to wait anyway; 0: never
    send_at_ms: int | None = None
    expires_at_ms: int | None = None
    metadata: dict[str, Any] = {}
    hook: int | str | None = None
    bot_ids: frozenset[int] | None = None  # those that the caller may use; None: all


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that was accepted. While it has neither letters nor a reason, it waits until `due_at_ms`."""

    id: str
    request: NotifyRequest
    said: Said
    created_at_ms: int
    due_at_ms: int
    letter_ids: tuple[int, ...] = ()
    failed_reason: str | None = None
    digest: str = ""  # of the request, for repeats under its key

    @property
    def recipient(self) -> str:
        """Whose turn and whose rate it is."""
        request = self.request
        return f"u/{request.user_id}" if request.user_id is not None else f"c/{request.bot_id}/{request.chat_id}"

    @property
    def is_over(self) -> bool:
        return bool(self.letter_ids) or self.failed_reason is not None


class NoticeView(msgspec.Struct, frozen=True, kw_only=True):
    notice: Notice
    letters: list[LetterView]


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a parcel."""

    method: str
    params: dict[str, Any]


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """Notices of one person that go together, with their calls as they will be made: whoever finishes it makes the same."""

    id: str  # of its first notice
    notice_ids: tuple[str, ...]
    bot_id: int
    calls: tuple[Outgoing, ...]
    priority: int
    packed_at_ms: int
    chat_id: int | str
    type: str
    user_id: str | None = None
    hook: int | str | None = None
    expires_at_ms: int | None = None
    metadata: dict[str, Any] = {}


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    sent_ms: tuple[int, ...] = ()


# ---- on paper ----


def read(paper: Paper, kind: type[T]) -> T:
    return msgspec.json.decode(paper.body, type=kind)


def filed(shelf: str, key: str, value: object, version: int | None = None) -> Filing:
    body = None if value is None else msgspec.json.encode(value).decode()
    return Filing(shelf=shelf, key=key, body=body, version=version)


def shelf_of(recipient: str) -> str:
    """Where the ids of somebody's notices lie, so that they can be listed."""
    return f"notices-of/{recipient}"


def waiting_key(notice: Notice) -> str:
    return f"{notice.due_at_ms:015d}/{notice.id}"


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def checked(pattern: str, text: str, name: str, words: str) -> str:
    if re.fullmatch(pattern, text) is None:
        raise BadInput(code=f"bad_{name}", detail=f"{name} is {words}.")
    return text


def checked_user(user_id: str) -> str:
    return checked(USER_PATTERN, user_id, "user_id", "1 to 64 letters, digits or characters of _.:@+=|~-")


def checked_type(kind: str) -> str:
    return checked(TYPE_PATTERN, kind, "type", "1 to 64 letters, digits, dots, dashes or underscores")


def checked_language(language: str) -> str:
    return checked(LANGUAGE_PATTERN, language, "language", "a code such as fa or pt-BR").lower()
