"""REST: chats that have written to a bot, or that it was put into: who they are, how many, and whence they came."""

import re

from starlette.requests import Request
from starlette.responses import Response

from peik.core.documents import Contact, ContactFilter, ContactStore
from peik.core.units import rfc3339
from peik.errors import BadInput, NotFound
from peik.outbox.service import OutboxService
from peik.web.access import Access
from peik.web.bodies import read_limit
from peik.web.openapi import WORD_CHARS_MAX
from peik.web.parse import instant_ms, parse_id
from peik.web.responses import Route, json_response

TYPES = ("private", "group", "supergroup", "channel")
CURSOR_PATTERN = "^[0-9]{1,15}:-?[0-9]{1,16}$"
CHAT_ID_PATTERN = "^-?[0-9]{1,16}$"
FILTERS = ("type", "language", "seen_since", "seen_before", "gone", "text", "campaign")
# Counted one by one; whoever uses another is counted under "other".
LANGUAGES = ("en", "fa", "ru", "uz", "ar", "tr", "es", "pt", "de", "fr", "it", "hi", "id", "uk", "kk", "zh", "")


class ContactRoutes:
    def __init__(self, desk: OutboxService, contacts: ContactStore, access: Access) -> None:
        self._desk = desk
        self._contacts = contacts
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/contacts", self.list_contacts, "listContacts", "contacts"),
            ("GET", "/v1/contacts/stats", self.stats, "getContactStats", "contacts"),
            ("GET", "/v1/contacts/{bot_id}/{chat_id}", self.show, "getContact", "contacts"),
        )

    async def list_contacts(self, request: Request) -> Response:
        """Known chats by type, language, time, campaign or name; who was seen last comes first."""
        bot_id = self._bot(request)
        wanted, limit = read_contact_filter(request, also=("bot_id", "cursor", "limit")), read_limit(request)
        found = await self._contacts.newest_contacts(bot_id, wanted, before=_cursor(request), limit=limit)
        cursor = None if found.cursor is None else f"{found.cursor[0]}:{found.cursor[1]}"
        return json_response({"contacts": [contact_view(one) for one in found.contacts], "next_cursor": cursor})

    async def show(self, request: Request) -> Response:
        """One chat."""
        caller = self._access.admit(request, "read")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        text = request.path_params["chat_id"]
        if re.fullmatch(CHAT_ID_PATTERN, text) is None:
            raise BadInput(code="bad_chat_id", detail="chat_id must be a number.")
        contact = await self._contacts.contact(self._desk.bot(bot_id).bot_id, int(text))
        if contact is None:
            raise NotFound(code="unknown_contact", detail=f"Chat {text} has not been seen by bot {bot_id}.")
        return json_response(contact_view(contact))

    async def stats(self, request: Request) -> Response:
        """How many chats there are, by type and by language; and how many came new since a time, by campaign."""
        bot_id = self._bot(request)
        if unknown := set(request.query_params) - {"bot_id", "since"}:
            raise _unknown(unknown, ("bot_id", "since"))
        since_ms = _moment(request, "since") or 0
        count = self._contacts.count_contacts
        total = await count(bot_id, ContactFilter())
        campaigns = await self._contacts.count_campaigns(bot_id, since_ms=since_ms)
        private = await count(bot_id, ContactFilter(types=frozenset({"private"})))
        languages = {
            language: await count(bot_id, ContactFilter(types=frozenset({"private"}), languages=frozenset({language})))
            for language in LANGUAGES
        }
        languages["other"] = max(0, private - sum(languages.values()))
        answer = {
            "bot_id": str(bot_id),
            "total": total,
            "gone": await count(bot_id, ContactFilter(is_gone=True)),
            "by_type": {kind: await count(bot_id, ContactFilter(types=frozenset({kind}))) for kind in TYPES},
            "by_language": {name: number for name, number in languages.items() if number},
            "since": rfc3339(since_ms) if since_ms else None,
            "new": sum(campaigns.values()),
            "by_campaign": campaigns,
        }
        return json_response(answer)

    def _bot(self, request: Request) -> int:
        caller = self._access.admit(request, "read")
        text = request.query_params.get("bot_id")
        return self._desk.bot(caller.bot_id_of(None if text is None else parse_id(text, "bot_id"))).bot_id


def contact_view(contact: Contact) -> dict[str, object]:
    return {
        "bot_id": str(contact.bot_id),
        "chat_id": str(contact.chat_id),
        "type": contact.type,
        "name": contact.name,
        "username": contact.username,
        "language": contact.language,
        "first_seen_at": rfc3339(contact.first_seen_ms),
        "last_seen_at": rfc3339(contact.last_seen_ms),
        "gone": contact.is_gone,
        "campaign": contact.campaign,
    }


def read_contact_filter(request: Request, *, also: tuple[str, ...]) -> ContactFilter:
    """Which chats. An unknown name is refused: a mistyped filter must not mean "everything"."""
    query = request.query_params
    if unknown := set(query) - {*FILTERS, *also}:
        raise _unknown(unknown, (*FILTERS, *also))
    for name in ("text", "campaign"):
        if not 0 < len(query.get(name, "-")) <= WORD_CHARS_MAX:
            raise BadInput(code="bad_filter", detail=f"{name} has 1 to {WORD_CHARS_MAX} characters.")
    types = _several(query.get("type"))
    if types is not None and types - set(TYPES):
        raise BadInput(code="bad_type", detail=f"type is one or more of {', '.join(TYPES)}.")
    gone = query.get("gone")
    if gone not in (None, "true", "false"):
        raise BadInput(code="bad_gone", detail="gone is true or false.")
    return ContactFilter(
        types=types,
        languages=_several(query.get("language")),
        seen_since_ms=_moment(request, "seen_since"),
        seen_before_ms=_moment(request, "seen_before"),
        is_gone=None if gone is None else gone == "true",
        text=query.get("text"),
        campaign=query.get("campaign"),
    )


def _unknown(names: set[str], known: tuple[str, ...]) -> BadInput:
    detail = f"There is no filter {', '.join(sorted(names))}. There are: {', '.join(known)}."
    return BadInput(code="unknown_filter", detail=detail)


def _several(text: str | None) -> frozenset[str] | None:
    """Comma-separated. An empty language: those of whom it is not known."""
    return None if text is None else frozenset(part.strip().lower() for part in text.split(","))


def _moment(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        return instant_ms(float(text), name)
    except ValueError:
        return instant_ms(text, name)


def _cursor(request: Request) -> tuple[int, int] | None:
    text = request.query_params.get("cursor")
    if text is None:
        return None
    if re.fullmatch(CURSOR_PATTERN, text) is None:
        raise BadInput(code="bad_cursor", detail="cursor is the next_cursor of the page before.")
    seen, _, chat = text.partition(":")
    return int(seen), int(chat)
