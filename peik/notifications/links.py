"""Who is whom: codes that link a user of a company to his chat, and the links that came of them.

Of a code only its digest is kept, and of each user one code at a time is good. Whatever is read, changed and written here is
written under the version that was read: of two who do it at once one begins again.
"""

import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from peik.clock import Clock, zone_of
from peik.contacts.model import CODE_PREFIX, Sighting
from peik.core.arrival import Arrival
from peik.core.documents import DocumentStore
from peik.core.events import Events
from peik.core.quiet import Quiet, checked_quiet
from peik.errors import BadInput, Conflict, Forbidden, NotFound, StoreUnavailable
from peik.notifications.model import (
    CODES,
    TRIES,
    USERS,
    Bots,
    Code,
    LinkRefused,
    NotificationLettersPort,
    Tries,
    User,
    UserLink,
    UserLinked,
    UserUnlinked,
    checked_language,
    checked_user,
    digest_of,
    filed,
    read,
)
from peik.notifications.templates import Templates, words_of

CODE_S = 15 * 60.0
CODE_S_MIN, CODE_S_MAX = 10.0, 7 * 86400.0
CODE_BYTES = 16
TURNS_MAX = 50  # so often somebody else may have been faster before we say so

T = TypeVar("T")


class NewCode(msgspec.Struct, frozen=True, kw_only=True):
    """Shown once. `url` None: Telegram could not be asked for the bot's name; `/start <code>` does the same."""

    code: str
    url: str | None
    expires_at_ms: int
    bot_id: int

    def __repr__(self) -> str:
        return f"NewCode(bot_id={self.bot_id})"


class Links:
    def __init__(self, *, documents: DocumentStore, bots: Bots, clock: Clock, events: Events) -> None:
        self._documents = documents
        self._bots = bots
        self._clock = clock
        self._events = events

    async def new_code(
        self,
        user_id: str,
        *,
        bot_id: int | None = None,
        expires_s: float = CODE_S,
        language: str | None = None,
        bot_ids: frozenset[int] | None = None,
    ) -> NewCode:
        """A code that links one chat to this user, once. An older one of his is over; a link that he has stays until then.

        `bot_ids`: those of the caller; None: all. Anyone who has some bots only makes names for them, and takes over none that is
        another's. Anyone who has all takes over a name that was made for one bot, and a link that came of it is over. Raises
        Forbidden."""
        checked_user(user_id)
        spoken = None if language is None else checked_language(language)
        if not CODE_S_MIN <= expires_s <= CODE_S_MAX:
            detail = f"A code is good for {CODE_S_MIN:.0f} seconds to {CODE_S_MAX / 86400:.0f} days."
            raise BadInput(code="bad_expires_in", detail=detail)
        if (known := await self.user(user_id)) is not None:
            await self.check_own(known, bot_ids)
        bot_id = self._bots.receiving(bot_id)
        code = CODE_PREFIX + secrets.token_urlsafe(CODE_BYTES)
        expires_at_ms = self._clock.wall_ms() + int(expires_s * 1000)
        kept = Code(user_id=user_id, bot_id=bot_id, expires_at_ms=expires_at_ms, language=spoken)

        async def give() -> None:
            user, version = await self._stored(user_id)
            await self.check_own(user, bot_ids, is_new=version == 0)
            owner = None if bot_ids is None else bot_id if version == 0 else user.owner
            changed = msgspec.structs.replace(
                user,
                owner=owner,
                link=user.link if owner == user.owner else None,
                code=digest_of(code),
                code_expires_at_ms=expires_at_ms,
            )
            filings = [filed(USERS, user_id, changed, version), filed(CODES, digest_of(code), kept)]
            if user.code is not None:
                filings.append(filed(CODES, user.code, None))
            await self._documents.file(filings)

        await in_turn(give)
        name = await self._bots.username(bot_id)
        url = None if name is None else f"https://t.me/{name}?start={code}"
        return NewCode(code=code, url=url, expires_at_ms=expires_at_ms, bot_id=bot_id)

    async def user(self, user_id: str) -> User | None:
        document = await self._documents.document(USERS, checked_user(user_id))
        return None if document is None else read(document, User)

    async def known(self, user_id: str) -> User:
        user = await self.user(user_id)
        if user is None:
            raise unknown(user_id)
        return user

    async def users(self, *, after: str | None, limit: int) -> list[User]:
        """In the order of their ids."""
        return [read(document, User) for document in await self._documents.documents(USERS, after=after, limit=limit)]

    async def check_own(self, user: User, bot_ids: frozenset[int] | None, *, is_new: bool = False) -> None:
        """Raises Forbidden for somebody else's user. `is_new`: nobody knows this name yet, and it is free."""
        if not is_new and not await self.seen([user], bot_ids):
            detail = "This user is known to all of Peik, or belongs to a bot that this key is not for."
            raise Forbidden(code="wrong_bot", detail=detail)

    async def bots_of(self, users: Sequence[User]) -> list[frozenset[int]]:
        """For each the bots that it concerns: of its owner, of the link, and of a code that may still be shown. Who has only keys
        of other bots must not take such a user over."""
        codes = await self._documents.those(CODES, [user.code for user in users if user.code is not None])
        found = []
        for user in users:
            document = codes.get(user.code or "")
            linked = set() if user.link is None else {user.link.bot_id}
            linked |= set() if user.owner is None else {user.owner}
            found.append(frozenset(linked if document is None else linked | {read(document, Code).bot_id}))
        return found

    async def seen(self, users: Sequence[User], bot_ids: frozenset[int] | None) -> Sequence[User]:
        """Those of them whom somebody with these bots may see and change: who concern them, and no other bot. None: all bots.
        A name that concerns no bot just now, since it was unlinked or its code is over, is known to all of Peik all the same."""
        if bot_ids is None:
            return users
        return [user for user, own in zip(users, await self.bots_of(users), strict=True) if own and own <= bot_ids]

    async def unlink(self, user_id: str, *, why: str = "asked") -> User:
        """He is not written to any more, and a code that he has is over. Raises NotFound if there is nothing to undo."""

        async def undo() -> tuple[User, User]:
            user, version = await self._stored(user_id)
            if user.link is None and user.code is None:
                raise not_linked(user_id)
            changed = msgspec.structs.replace(user, link=None, code=None, code_expires_at_ms=None)
            filings = [filed(USERS, user_id, changed, version)]
            if user.code is not None:
                filings.append(filed(CODES, user.code, None))
            await self._documents.file(filings)
            return user, changed

        checked_user(user_id)
        before, after = await in_turn(undo)
        if before.link is not None:
            link = before.link
            self._events.tell(UserUnlinked(bot_id=link.bot_id, user_id=user_id, chat=link.chat_id, why=why))
        return after

    async def change(
        self,
        user_id: str,
        *,
        language: str | msgspec.UnsetType | None = msgspec.UNSET,
        quiet: Quiet | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> User:
        """Set the language that he is written to in, or hours in which he is left alone. None: as it would be by itself."""
        if isinstance(language, str):
            language = checked_language(language)
        if isinstance(quiet, Quiet):
            zone_of(checked_quiet(quiet).tz)

        async def write() -> User:
            user, version = await self._stored(user_id)
            if version == 0:
                await self.known(user_id)
            changed = msgspec.structs.replace(
                user,
                language=user.language if language is msgspec.UNSET else language,
                quiet=user.quiet if quiet is msgspec.UNSET else quiet,
            )
            await self._documents.file([filed(USERS, user_id, changed, version)])
            return changed

        checked_user(user_id)
        return await in_turn(write)

    async def _stored(self, user_id: str) -> tuple[User, int]:
        """As he is kept, and the version; one who is not known yet has 0."""
        document = await self._documents.document(USERS, user_id)
        return (User(user_id=user_id), 0) if document is None else (read(document, User), document.version)


async def in_turn(act: Callable[[], Awaitable[T]]) -> T:
    """Do it again for as long as others change the same documents meanwhile. Raises StoreUnavailable if they always do."""
    for _ in range(TURNS_MAX):
        try:
            return await act()
        except Conflict as error:
            if error.code != "paper_changed":
                raise
    raise StoreUnavailable(code="busy", detail="Many change the same thing at once. Ask again in a moment.")


def unknown(user_id: str) -> NotFound:
    detail = f"Nobody is known as {user_id}. Make a link: `peik users link {user_id}` or POST /v1/users/{user_id}/link."
    return NotFound(code="unknown_user", detail=detail)


def not_linked(user_id: str) -> NotFound:
    detail = (
        f"{user_id} has linked no chat. Make a code with `peik users link {user_id}` or POST /v1/users/{user_id}/link, "
        "and let the person open its url."
    )
    return NotFound(code="user_not_linked", detail=detail)


# Sees link codes in what people write to a bot, links them, and answers. A witness of the census, so that it may see
# one twice.
#
# A code that was used stays for a day, with the chat that used it, and a wrong one is counted by the number of its
# arrival. So anyone who sees the same message again comes to the same end, and its answer goes out under a key of that
# message.


TRIES_MAX = 5
TRIES_MS = 3600 * 1000
_WHY = {"wrong": "no such code", "late": "too late", "used": "used up", "refused": "too many wrong codes"}


class Redeeming:
    def __init__(
        self,
        *,
        documents: DocumentStore,
        letters: NotificationLettersPort,
        templates: Templates,
        texts: Mapping[str, Mapping[str, str]],
        events: Events,
    ) -> None:
        self._documents = documents
        self._letters = letters
        self._templates = templates
        self._texts = texts
        self._events = events

    async def see(self, arrival: Arrival, sighting: Sighting) -> None:
        """Raises StoreUnavailable; then it is to see the same again."""
        code = sighting.code
        if code is None or sighting.type != "private":  # in a group everybody would read what is for one
            return
        verdict, language = await in_turn(lambda: self._judge(arrival, sighting, digest_of(code)))
        if verdict is not None:
            await self._answer(arrival, sighting.chat_id, verdict, language or sighting.language)

    async def _judge(self, arrival: Arrival, sighting: Sighting, digest: str) -> tuple[str | None, str | None]:
        """What to say, if anything, and in which language."""
        shown = _place(arrival, sighting)
        document = await self._documents.document(TRIES, shown)
        tries = Tries() if document is None else read(document, Tries)
        lately = [one for one in tries.shown if one[1] > sighting.at_ms - TRIES_MS and one[0] < arrival.number]
        if len(lately) >= TRIES_MAX:
            self._refuse(arrival, sighting, "refused")
            return None, None  # it was said with the last wrong code
        code_document = await self._documents.document(CODES, digest)
        code = None if code_document is None else read(code_document, Code)
        if code_document is None or code is None or code.bot_id != arrival.bot_id:
            verdict = "wrong"
        elif code.used_by is not None:
            if await self._is_linked(code, arrival, sighting):
                return "linked", code.language
            verdict = "used"  # by another chat, or by this one, which was unlinked since
        elif sighting.at_ms < code.expires_at_ms:
            # Telegram's own time of the message: who wrote in time is linked, however long Peik was away.
            await self._link(arrival, sighting, digest, code, code_document.version)
            return "linked", code.language
        else:
            verdict = "late"
        counted = (*lately, (arrival.number, sighting.at_ms))
        if arrival.number not in (number for number, _ in tries.shown):
            version = 0 if document is None else document.version
            await self._documents.file([filed(TRIES, shown, Tries(shown=counted), version)])
            self._refuse(arrival, sighting, verdict)
        return ("refused" if len(counted) == TRIES_MAX else "wrong" if verdict == "used" else verdict), None

    async def _is_linked(self, code: Code, arrival: Arrival, sighting: Sighting) -> bool:
        """Whether what came of a code that was used still holds for this chat."""
        document = await self._documents.document(USERS, code.user_id)
        link = None if document is None else read(document, User).link
        return link is not None and (link.bot_id, link.chat_id) == (arrival.bot_id, sighting.chat_id)

    async def _link(self, arrival: Arrival, sighting: Sighting, digest: str, code: Code, version: int) -> None:
        document = await self._documents.document(USERS, code.user_id)
        if document is None:
            raise Conflict(code="paper_changed", detail="The user was forgotten a moment ago.")
        user = read(document, User)
        link = UserLink(bot_id=arrival.bot_id, chat_id=sighting.chat_id, since_ms=sighting.at_ms)
        changed = msgspec.structs.replace(
            user,
            link=link,
            language=code.language or user.language or sighting.language,
            code=None if user.code == digest else user.code,
            code_expires_at_ms=None if user.code == digest else user.code_expires_at_ms,
        )
        used = msgspec.structs.replace(code, used_by=sighting.chat_id)
        await self._documents.file(
            [filed(CODES, digest, used, version), filed(USERS, code.user_id, changed, document.version)]
        )
        before = user.link
        if before is not None and (before.bot_id, before.chat_id) != (link.bot_id, link.chat_id):
            moved = UserUnlinked(bot_id=before.bot_id, user_id=user.user_id, chat=before.chat_id, why="moved")
            self._events.tell(moved)
        self._events.tell(UserLinked(bot_id=link.bot_id, user_id=user.user_id, chat=link.chat_id))

    async def _answer(self, arrival: Arrival, chat_id: int, verdict: str, language: str | None) -> None:
        own = await self._templates.find(f"peik.{verdict}", language)
        text = words_of(self._texts, language)[verdict] if own is None or own.type == "default" else own.text
        with contextlib.suppress(Conflict):  # it was said in other words, by a life that had other texts
            await self._letters.answer(
                arrival.bot_id, chat_id, text, idempotency_key=f"peik-link:{arrival.bot_id}:{arrival.number}"
            )

    def _refuse(self, arrival: Arrival, sighting: Sighting, verdict: str) -> None:
        self._events.tell(LinkRefused(bot_id=arrival.bot_id, chat=sighting.chat_id, why=_WHY[verdict]))


def _place(arrival: Arrival, sighting: Sighting) -> str:
    return f"{arrival.bot_id}/{sighting.chat_id}"
