"""Notifications as pure decisions: how one reads, what several become, and when the next may go to the same person."""

import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from peik.core.documents import Filing, StoredDocument
from peik.core.events import Event
from peik.core.letter import Backoff, Chat, Priority
from peik.core.notice import places_of, put_in
from peik.core.quiet import Quiet
from peik.errors import BadInput
from peik.outbox.store import LetterView

TEXT_UNITS_MAX = 4096  # of a message, in UTF-16 code units after its markup is read
CAPTION_UNITS_MAX = 1024
BULLET = "• "
RATE_WINDOW_MS = 3600 * 1000
DEFAULT = "default"  # as a type: for every type; as a language: for every language

_TAG = re.compile(r"<[^<>]*>")
_PLACE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

# Those that carry a text of their own beside what they show.
CAPTIONED = frozenset({"sendPhoto", "sendDocument", "sendVideo", "sendAnimation", "sendAudio", "sendVoice"})


class RenderedText(msgspec.Struct, frozen=True, kw_only=True):
    """What one notification has to say."""

    title: str
    message: str
    data: Mapping[str, str | int | float | bool] = {}
    is_html: bool = False  # the message is markup of the caller's own
    template: str | None = None  # None: the plain one


def rendered(said: RenderedText) -> str:
    """As HTML of Telegram's. Raises BadInput if the template names what is not in the data."""
    message = said.message if said.is_html else html.escape(said.message, quote=False)
    if said.template is None:
        return f"<b>{html.escape(said.title, quote=False)}</b>\n\n{message}" if said.title else message
    values = {name: html.escape(_written(value), quote=True) for name, value in said.data.items()}
    values |= {"title": html.escape(said.title, quote=False), "message": message}
    for place in places_of(said.template):
        if place not in values:
            detail = f"The template of this type speaks of {{{place}}}: give it in data."
            raise BadInput(code="missing_data", detail=detail)
    return put_in(said.template, values).strip()


def merged(several: Sequence[RenderedText]) -> list[str]:
    """The same as few messages: under one title if they share it, else one below the other. None is left out."""
    first = several[0]
    if len(several) > 1 and all(one.template is None and one.title == first.title for one in several):
        head = f"<b>{html.escape(first.title, quote=False)}</b>\n" if first.title else ""
        lines = [rendered(msgspec.structs.replace(one, title="")) for one in several]
        bullets = [BULLET + line if units_of(BULLET + line) <= TEXT_UNITS_MAX else line for line in lines]
        return _parts(bullets, head=head, between="\n")
    return _parts([rendered(one) for one in several], head="", between="\n\n")


def _parts(texts: Sequence[str], *, head: str, between: str) -> list[str]:
    parts: list[str] = []
    for text in texts:
        longer = f"{parts[-1]}{between}{text}" if parts else ""
        if parts and units_of(longer) <= TEXT_UNITS_MAX:
            parts[-1] = longer
        else:
            parts.append(head + text)
            if head and units_of(parts[-1]) > TEXT_UNITS_MAX:
                parts[-1] = text
    return parts


def units_of(markup: str) -> int:
    """How long Telegram finds it: without tags, in UTF-16 code units."""
    return len(html.unescape(_TAG.sub("", markup)).encode("utf-16-le", "surrogatepass")) // 2


def _written(value: str | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def check_template(text: str) -> None:
    """Raises BadInput if it could never be filled, or never be sent."""
    if not text.strip() or units_of(text) > TEXT_UNITS_MAX:
        raise BadInput(code="bad_template", detail=f"A template has 1 to {TEXT_UNITS_MAX} characters.")
    try:
        places = places_of(text)
    except ValueError as error:
        detail = f"The template cannot be read: {error}. Write {{{{ and }}}} for braces that are meant as such."
        raise BadInput(code="bad_template", detail=detail) from None
    for place in places:
        if _PLACE.fullmatch(place) is None:
            detail = f"{{{place}}} is no name of a field: letters, digits and underscores, beginning with a letter."
            raise BadInput(code="bad_template", detail=detail)


def template_keys(kind: str, language: str | None) -> list[str]:
    """Where a template is looked for, the best first: fa-IR, fa and the default of the type, then of all types."""
    code = (language or "").lower().replace("_", "-")
    languages = [one for one in dict.fromkeys((code, code.partition("-")[0], DEFAULT)) if one]
    return [f"{one}/{spoken}" for one in dict.fromkeys((kind, DEFAULT)) for spoken in languages]


# ---- when ----


def fresh(sent_ms: Sequence[int], *, at_ms: int) -> list[int]:
    """Of what was sent, that which still counts."""
    return [one for one in sent_ms if at_ms - RATE_WINDOW_MS < one <= at_ms]


def may_go_at(sent_ms: Sequence[int], *, at_ms: int, rate_max: int) -> int:
    """When one more may go to somebody who was sent these: at once, or when enough of them are an hour old."""
    counted = fresh(sent_ms, at_ms=at_ms)
    return at_ms if len(counted) < rate_max else sorted(counted)[-rate_max] + RATE_WINDOW_MS


def digest_at(at_ms: int, window_ms: int) -> int:
    """The end of the window in which this instant lies. Windows are the same on every node: they begin at full multiples."""
    return (at_ms // window_ms + 1) * window_ms


# Users, codes, notices and parcels as they lie in the store, and on which collections.


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


class UserLink(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: int
    chat_id: int
    since_ms: int


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whom a company knows by a name of its own."""

    user_id: str
    link: UserLink | None = None
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


class LetterTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How its letters are to be tried, where somebody says so; as for any letter."""

    attempts: int | None = None
    backoff_ms: int | None = None
    backoff: Backoff = Backoff.EXPONENTIAL
    timeout_ms: int | None = None
    message_type: str | None = None  # None: the notification's own type


class NotifyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One notification as a caller hands it in: for a user by his name, or for a chat."""

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
    terms: LetterTerms | None = None
    hook: int | str | None = None
    bot_ids: frozenset[int] | None = None  # those that the caller may use; None: all


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that was accepted. While it has neither letters nor a reason, it waits until `due_at_ms`."""

    id: str
    request: NotifyRequest
    said: RenderedText
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


class OutgoingNotice(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a parcel."""

    method: str
    params: dict[str, Any]


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """Notices of one person that go together, with their calls as they will be made: each node makes the same."""

    id: str  # of its first notice
    notice_ids: tuple[str, ...]
    bot_id: int
    calls: tuple[OutgoingNotice, ...]
    priority: int
    packed_at_ms: int
    chat_id: int | str
    type: str
    user_id: str | None = None
    hook: int | str | None = None
    expires_at_ms: int | None = None
    metadata: dict[str, Any] = {}
    terms: LetterTerms | None = None


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    sent_ms: tuple[int, ...] = ()


# ---- on document ----


def read(document: StoredDocument, kind: type[T]) -> T:
    return msgspec.json.decode(document.body, type=kind)


def filed(collection: str, key: str, value: object, version: int | None = None) -> Filing:
    body = None if value is None else msgspec.json.encode(value).decode()
    return Filing(collection=collection, key=key, body=body, version=version)


def collection_of(recipient: str) -> str:
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


# What notifications need of the rest of Peik: the outbox, and the bots.


class NotificationLettersPort(Protocol):
    async def accept(self, parcels: Sequence[Parcel]) -> list[list[int]]:
        """The letters of each parcel, durable, all or none; the same ones if it was accepted before. Raises Problem."""

    async def answer(self, bot_id: int, chat_id: int, text: str, *, idempotency_key: str) -> None:
        """A plain text to somebody, once under this key. Raises Problem."""

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        """Those that are still kept."""


class Bots(Protocol):
    def receiving(self, bot_id: int | None) -> int:
        """The bot, or the only one there is. Raises NotFound, BadInput; Conflict if nobody fetches its updates."""

    def are_several(self) -> bool:
        """Whether there is more than one bot."""

    def named(self, bot_id: int | None) -> int:
        """The same of a bot that may only send."""

    async def username(self, bot_id: int) -> str | None:
        """As Telegram calls it. None: that cannot be asked now."""


# What can be observed of notifications and of the links they go by.


class Notified(Event, frozen=True, kw_only=True):
    """A notification was accepted. `letter_id` None: it waits for a digest, or for the end of quiet hours."""

    notification_id: str
    user_id: str
    type: str
    letter_id: int | None


class UserLinked(Event, frozen=True, kw_only=True):
    user_id: str
    chat: Chat


class UserUnlinked(Event, frozen=True, kw_only=True):
    user_id: str
    chat: Chat
    why: str


class LinkRefused(Event, frozen=True, kw_only=True):
    """Somebody showed a code that is wrong, used up or too old."""

    chat: Chat
    why: str
