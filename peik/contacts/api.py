"""REST: chats that have written to a bot, or that it was put into: who they are, how many, and whence they came."""

import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from peik.core.documents import Contact, ContactFilter
from peik.core.units import rfc3339
from peik.errors import BadInput, NotFound
from peik.web.access import Caller
from peik.web.openapi import LIMIT_DEFAULT
from peik.web.operations import Id, Moment, operation
from peik.web.parse import BOT, LIMIT, MOMENT, TEXT, WORD_CURSOR, NumberInPath, Param

if TYPE_CHECKING:
    from peik.core.documents import ContactStore
    from peik.outbox.service import OutboxService

TYPES = ("private", "group", "supergroup", "channel")
CURSOR_PATTERN = "^[0-9]{1,15}:-?[0-9]{1,16}$"
CHAT_ID_PATTERN = "^-?[0-9]{1,16}$"
# Counted one by one; anyone who uses another is counted under "other".
LANGUAGES = ("en", "fa", "ru", "uz", "ar", "tr", "es", "pt", "de", "fr", "it", "hi", "id", "uk", "kk", "zh", "")


# ---- which chats ----


def _several(text: str, name: str) -> frozenset[str]:
    """Comma-separated. An empty language: those of whom it is not known."""
    return frozenset(part.strip().lower() for part in text.split(","))


def _types(text: str, name: str) -> frozenset[str]:
    types = _several(text, name)
    if types - set(TYPES):
        raise BadInput(code="bad_type", detail=f"type is one or more of {', '.join(TYPES)}.")
    return types


def _gone(text: str, name: str) -> bool:
    if text not in ("true", "false"):
        raise BadInput(code="bad_gone", detail="gone is true or false.")
    return text == "true"


def _place(text: str, name: str) -> tuple[int, int]:
    if re.fullmatch(CURSOR_PATTERN, text) is None:
        raise BadInput(code="bad_cursor", detail="cursor is the next_cursor of the page before.")
    seen, _, chat = text.partition(":")
    return int(seen), int(chat)


def _chat_id(text: str, name: str) -> int:
    if re.fullmatch(CHAT_ID_PATTERN, text) is None:
        raise BadInput(code="bad_chat_id", detail="chat_id must be a number.")
    return int(text)


_WORDS = {"type": "string"}
_CURSOR = Param(_place, {"type": "string", "pattern": CURSOR_PATTERN}, WORD_CURSOR.text)
_TYPES = Param(_types, _WORDS, "Of these types, comma-separated.")
_LANGUAGES = Param(_several, _WORDS, "Of these languages, comma-separated; fa also means fa-IR, empty: not known.")
_GONE = Param(_gone, {"type": "string", "enum": ["true", "false"]}, "Whether the bot was blocked there.")


class ContactsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: Annotated[frozenset[str] | None, _TYPES] = None
    language: Annotated[frozenset[str] | None, _LANGUAGES] = None
    seen_since: Annotated[int | None, MOMENT.saying("Seen then or later.")] = None
    seen_before: Annotated[int | None, MOMENT.saying("Not seen since then.")] = None
    gone: Annotated[bool | None, _GONE] = None
    text: Annotated[str | None, TEXT.saying("In name or username.")] = None
    campaign: Annotated[str | None, TEXT.saying("Came by this campaign.")] = None
    bot_id: Annotated[int | None, BOT] = None
    cursor: Annotated[tuple[int, int] | None, _CURSOR] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT

    def wanted(self) -> ContactFilter:
        return ContactFilter(
            types=self.type,
            languages=self.language,
            seen_since_ms=self.seen_since,
            seen_before_ms=self.seen_before,
            is_gone=self.gone,
            text=self.text,
            campaign=self.campaign,
        )


class ContactStatsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bot_id: Annotated[int | None, BOT] = None
    since: Annotated[int | None, MOMENT.saying("New since then; left out: all.")] = None


# ---- what is answered ----


class ContactAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    chat_id: str
    type: Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(TYPES)})]
    name: str | None
    username: str | None
    language: str | None
    first_seen_at: Moment
    last_seen_at: Moment
    gone: Annotated[bool, msgspec.Meta(description="The bot was blocked there, or thrown out.")]
    campaign: Annotated[str | None, msgspec.Meta(description="What stood behind the first /start.")]

    @classmethod
    def of(cls, contact: Contact) -> "ContactAnswer":
        return cls(
            bot_id=str(contact.bot_id),
            chat_id=str(contact.chat_id),
            type=contact.type,
            name=contact.name,
            username=contact.username,
            language=contact.language,
            first_seen_at=rfc3339(contact.first_seen_ms),
            last_seen_at=rfc3339(contact.last_seen_ms),
            gone=contact.is_gone,
            campaign=contact.campaign,
        )


class ContactsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    contacts: list[ContactAnswer]
    next_cursor: Annotated[str | None, msgspec.Meta(description="The cursor of the next page; null at the end.")]


class ContactStatsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Id
    total: int
    gone: int
    by_type: dict[str, int]
    by_language: Annotated[
        dict[str, int],
        msgspec.Meta(description="Of private chats. Empty: not known; other: none of the usual ones."),
    ]
    since: Moment | None
    new: int
    by_campaign: Annotated[
        dict[str, int], msgspec.Meta(description="Of those that are new since then. Empty: they came by none.")
    ]


# ---- the operations ----


class ContactApi:
    def __init__(self, letters: "OutboxService", contacts: "ContactStore") -> None:
        self._letters = letters
        self._contacts = contacts

    @operation("GET", "/v1/contacts", name="listContacts", tag="contacts", scope="read", problems=(403, 404, 422, 503))
    async def list_contacts(self, caller: Caller, query: ContactsQuery) -> ContactsAnswer:
        """Known chats by type, language, time, campaign or name; who was seen last comes first."""
        bot = self._letters.bot(caller.bot_id_of(query.bot_id))
        found = await self._contacts.newest_contacts(bot.bot_id, query.wanted(), before=query.cursor, limit=query.limit)
        cursor = None if found.cursor is None else f"{found.cursor[0]}:{found.cursor[1]}"
        return ContactsAnswer(contacts=[ContactAnswer.of(one) for one in found.contacts], next_cursor=cursor)

    @operation(
        "GET",
        "/v1/contacts/stats",
        name="getContactStats",
        tag="contacts",
        scope="read",
        problems=(403, 404, 422, 503),
    )
    async def get_stats(self, caller: Caller, query: ContactStatsQuery) -> ContactStatsAnswer:
        """How many chats there are, by type and by language; and how many came new since a time, by campaign."""
        bot_id = self._letters.bot(caller.bot_id_of(query.bot_id)).bot_id
        since_ms = query.since or 0
        count = self._contacts.count_contacts
        total = await count(bot_id, ContactFilter())
        campaigns = await self._contacts.count_campaigns(bot_id, since_ms=since_ms)
        private = await count(bot_id, ContactFilter(types=frozenset({"private"})))
        languages = {
            language: await count(bot_id, ContactFilter(types=frozenset({"private"}), languages=frozenset({language})))
            for language in LANGUAGES
        }
        languages["other"] = max(0, private - sum(languages.values()))
        return ContactStatsAnswer(
            bot_id=str(bot_id),
            total=total,
            gone=await count(bot_id, ContactFilter(is_gone=True)),
            by_type={kind: await count(bot_id, ContactFilter(types=frozenset({kind}))) for kind in TYPES},
            by_language={name: number for name, number in languages.items() if number},
            since=rfc3339(since_ms) if since_ms else None,
            new=sum(campaigns.values()),
            by_campaign=campaigns,
        )

    @operation(
        "GET",
        "/v1/contacts/{bot_id}/{chat_id}",
        name="getContact",
        tag="contacts",
        scope="read",
        problems=(403, 404, 422, 503),
    )
    async def get_contact(
        self,
        caller: Caller,
        bot_id: NumberInPath,
        chat_id: Annotated[int, Param(_chat_id, {"type": "string", "pattern": CHAT_ID_PATTERN})],
    ) -> ContactAnswer:
        """One chat."""
        caller.must_serve(bot_id)
        contact = await self._contacts.contact(self._letters.bot(bot_id).bot_id, chat_id)
        if contact is None:
            raise NotFound(code="unknown_contact", detail=f"Chat {chat_id} has not been seen by bot {bot_id}.")
        return ContactAnswer.of(contact)
