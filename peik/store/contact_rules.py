"""What holds for known chats on every store: what becomes of one that is seen again, and which ones a filter wants."""

from collections.abc import Sequence

import msgspec

from peik.paper_ports import Contact, ContactFilter, ContactPage

LOOKED_FIRST = 1_000  # a page that most chats fit is full after so many


def folded(contacts: Sequence[Contact]) -> list[Contact]:
    """One for each chat, each as if they had been saved one after the other."""
    found: dict[int, Contact] = {}
    for contact in contacts:
        clean = msgspec.structs.replace(
            contact,
            name=_text(contact.name),
            username=_text(contact.username),
            language=_text(contact.language),
            campaign=_text(contact.campaign),
        )
        before = found.get(contact.chat_id)
        found[contact.chat_id] = clean if before is None else met_again(before, clean)
    return list(found.values())


def met_again(known: Contact, new: Contact) -> Contact:
    """A chat that was known before, as it is now."""
    return msgspec.structs.replace(
        new,
        name=known.name if new.name is None else new.name,
        username=known.username if new.username is None else new.username,
        language=known.language if new.language is None else new.language,
        first_seen_ms=known.first_seen_ms,
        last_seen_ms=max(known.last_seen_ms, new.last_seen_ms),
        campaign=known.campaign,
    )


def words_of(name: str | None, username: str | None) -> str:
    """What is searched: its name, and its username with an @ before it. Folded here, since databases fold Latin letters only."""
    return f"{name or ''}\n@{username or ''}".casefold()


def is_wanted(contact: Contact, wanted: ContactFilter) -> bool:
    """For a store that cannot ask its database."""
    return (
        (wanted.types is None or contact.type in wanted.types)
        and (wanted.languages is None or _speaks(contact.language, wanted.languages))
        and (wanted.seen_since_ms is None or contact.last_seen_ms >= wanted.seen_since_ms)
        and (wanted.seen_before_ms is None or contact.last_seen_ms < wanted.seen_before_ms)
        and (wanted.is_gone is None or contact.is_gone == wanted.is_gone)
        and (wanted.text is None or wanted.text.casefold() in words_of(contact.name, contact.username))
        and (wanted.campaign is None or (contact.campaign or "") == wanted.campaign)
    )


def is_tallied(wanted: ContactFilter) -> bool:
    """Whether it asks for kinds of chats only, of which it is known how many there are."""
    others = (wanted.seen_since_ms, wanted.seen_before_ms, wanted.text, wanted.campaign)
    return all(one is None for one in others)


def turned(contacts: list[Contact], *, limit: int, edge: tuple[int, int] | None) -> ContactPage:
    """A page of what was found. `edge`: the last chat that was looked at, if the look ended for its bound."""
    if len(contacts) >= limit:
        return ContactPage(contacts=contacts, cursor=(contacts[-1].last_seen_ms, contacts[-1].chat_id))
    return ContactPage(contacts=contacts, cursor=edge, is_cut=edge is not None)


def languages_of(wanted: ContactFilter) -> list[str] | None:
    """As they are compared."""
    return None if wanted.languages is None else sorted({language.lower() for language in wanted.languages})


def _speaks(language: str | None, wanted: frozenset[str]) -> bool:
    spoken = (language or "").lower()
    return any(spoken == one.lower() or spoken.startswith(f"{one.lower()}-") for one in wanted)


def _text(text: str | None) -> str | None:
    """Nothing is None. What not every database can keep, a zero character or half of one, must not stop the others."""
    if not text:
        return None
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode() or None
