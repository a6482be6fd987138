"""Sees link codes in what people write to a bot, links them, and answers. A witness of the census, so that it may see one twice.

A code that was used stays for a day, with the chat that used it, and a wrong one is counted by the number of its arrival. So
whoever sees the same message again comes to the same end, and its answer goes out under a key of that message.
"""

import contextlib
from collections.abc import Mapping

import msgspec

from peik.core.arrival import Arrival
from peik.core.sighting import Sighting
from peik.errors import Conflict
from peik.events import Events
from peik.notifications.links import in_turn
from peik.notifications.ports import Letters
from peik.notifications.templates import Templates
from peik.notifications.texts import words_of
from peik.notifications.values import CODES, TRIES, USERS, Code, Link, Tries, User, digest_of, filed, read
from peik.outreach_events import LinkRefused, UserLinked, UserUnlinked
from peik.paper_ports import PaperStore

TRIES_MAX = 5
TRIES_MS = 3600 * 1000
_WHY = {"wrong": "no such code", "late": "too late", "used": "used up", "refused": "too many wrong codes"}


class Redeeming:
    def __init__(
        self,
        *,
        papers: PaperStore,
        letters: Letters,
        templates: Templates,
        texts: Mapping[str, Mapping[str, str]],
        events: Events,
    ) -> None:
        self._papers = papers
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
        paper = await self._papers.paper(TRIES, shown)
        tries = Tries() if paper is None else read(paper, Tries)
        lately = [one for one in tries.shown if one[1] > sighting.at_ms - TRIES_MS and one[0] < arrival.number]
        if len(lately) >= TRIES_MAX:
            self._refuse(arrival, sighting, "refused")
            return None, None  # it was said with the last wrong code
        code_paper = await self._papers.paper(CODES, digest)
        code = None if code_paper is None else read(code_paper, Code)
        if code_paper is None or code is None or code.bot_id != arrival.bot_id:
            verdict = "wrong"
        elif code.used_by is not None:
            if await self._is_linked(code, arrival, sighting):
                return "linked", code.language
            verdict = "used"  # by another chat, or by this one, which was unlinked since
        elif sighting.at_ms < code.expires_at_ms:
            # Telegram's own time of the message: who wrote in time is linked, however long Peik was away.
            await self._link(arrival, sighting, digest, code, code_paper.version)
            return "linked", code.language
        else:
            verdict = "late"
        counted = (*lately, (arrival.number, sighting.at_ms))
        if arrival.number not in (number for number, _ in tries.shown):
            version = 0 if paper is None else paper.version
            await self._papers.file([filed(TRIES, shown, Tries(shown=counted), version)])
            self._refuse(arrival, sighting, verdict)
        return ("refused" if len(counted) == TRIES_MAX else "wrong" if verdict == "used" else verdict), None

    async def _is_linked(self, code: Code, arrival: Arrival, sighting: Sighting) -> bool:
        """Whether what came of a code that was used still holds for this chat."""
        paper = await self._papers.paper(USERS, code.user_id)
        link = None if paper is None else read(paper, User).link
        return link is not None and (link.bot_id, link.chat_id) == (arrival.bot_id, sighting.chat_id)

    async def _link(self, arrival: Arrival, sighting: Sighting, digest: str, code: Code, version: int) -> None:
        paper = await self._papers.paper(USERS, code.user_id)
        if paper is None:
            raise Conflict(code="paper_changed", detail="The user was forgotten a moment ago.")
        user = read(paper, User)
        link = Link(bot_id=arrival.bot_id, chat_id=sighting.chat_id, since_ms=sighting.at_ms)
        changed = msgspec.structs.replace(
            user,
            link=link,
            language=code.language or user.language or sighting.language,
            code=None if user.code == digest else user.code,
            code_expires_at_ms=None if user.code == digest else user.code_expires_at_ms,
        )
        used = msgspec.structs.replace(code, used_by=sighting.chat_id)
        await self._papers.file(
            [filed(CODES, digest, used, version), filed(USERS, code.user_id, changed, paper.version)]
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
