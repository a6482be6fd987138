"""The search that is on every page: a number, a chat, a name, words of a message or of an error. It looks through so many of the
newest at a time, says how far it came, and goes on from there: 100,000 letters that wait make no page slow."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.core.documents import Contact, ContactFilter
from peik.core.folded import folded, is_found, needles_of, said_in
from peik.core.letter import Chat
from peik.errors import BadInput, NotFound
from peik.inbox.pages import ArrivalLine, arrival_lines
from peik.inbox.store import ArrivalFilter, ArrivalView
from peik.outbox.pages import LetterLine, lines_of
from peik.outbox.store import BotRecord, LetterFilter, LetterView
from peik.web.dashboard.board import Board, Page, Visitor
from peik.web.dashboard.fields import PAGE, Fields, bots_seen
from peik.web.parse import parse_id

LETTERS_LOOKED_MAX = 4_000  # for one answer: each is read and judged here, the same on every store
ARRIVALS_LOOKED_MAX = 2_000
CONTACTS_LOOKED_MAX = 2_000  # over all bots
BOTS_ASKED_MAX = 20
CHATS_SHOWN_MAX = 20
STEP = 250  # others have their turn after so many
KINDS = ("letters", "arrivals")
_NUMBER_DIGITS_MAX = 18


class Walked(msgspec.Struct, frozen=True, kw_only=True):
    """What a walk from the newest down has found. `cursor` None: it saw the end. `reached_ms`: how old the last one was."""

    found: list[Any]
    cursor: int | None
    looked: int
    reached_ms: int | None


class ChatHit(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: int
    chat: Chat
    name: str | None = None
    username: str | None = None


class Hits(msgspec.Struct, frozen=True, kw_only=True):
    """What carries the number or the name that was asked for, and needs no walk."""

    letter: LetterLine | None = None
    arrival: ArrivalLine | None = None
    bots: list[BotRecord] = []
    chats: list[ChatHit] = []
    are_all_chats: bool = True


class SearchPages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._service = board.peik.outbox.service
        self._inbox = board.peik.inbox.service

    def table(self) -> tuple[Page, ...]:
        return (("GET", "/admin/search", self.show, Role.VIEWER, "search"),)

    async def show(self, request: Request, visitor: Visitor) -> Response:
        fields = Fields.asked(request)
        asked = fields.text("q") or ""
        needles = needles_of(asked.removeprefix("@"))
        kind = fields.text("in") or ""
        before = fields.id("before")
        if kind not in ("", *KINDS):
            raise BadInput(code="bad_filter", detail=f"in is one of {', '.join(KINDS)}.")
        empty = Walked(found=[], cursor=None, looked=0, reached_ms=None)
        hits, letters, arrivals = Hits(), empty, empty
        if needles:
            if before is None and not kind:
                hits = await self._hits(asked, needles, visitor)
            if kind != "arrivals":
                letters = await self._letters(needles, visitor, before)
            if kind != "letters":
                arrivals = await self._arrivals(needles, visitor, before)
        return self._board.page(
            request,
            visitor,
            "search.html",
            asked=asked,
            kind=kind,
            is_asked=bool(needles),
            hits=hits,
            letters=letters,
            lines=await lines_of(self._board, letters.found),
            arrivals=arrivals,
            arrival_found=arrival_lines(arrivals.found, None),
        )

    # ---- what has the number or the name ----

    async def _hits(self, asked: str, needles: tuple[str, ...], visitor: Visitor) -> Hits:
        bots = bots_seen(self._service, visitor)
        number = _number(asked)
        chats, are_all = await self._named(needles, bots)
        if number is not None:
            chats = [*await self._numbered(number, bots), *chats]
        own = [one for one in bots if one.bot_id == number or is_found(needles, one.username)]
        return Hits(
            letter=None if number is None or number < 0 else await self._letter(number, visitor),
            arrival=None if number is None or number < 0 else await self._arrival(number, visitor),
            bots=own[:CHATS_SHOWN_MAX],
            chats=list({(one.bot_id, one.chat): one for one in chats}.values())[:CHATS_SHOWN_MAX],
            are_all_chats=are_all,
        )

    async def _letter(self, number: int, visitor: Visitor) -> LetterLine | None:
        try:
            letter = await self._service.letter(number)
        except NotFound:
            return None
        return (await lines_of(self._board, [letter]))[0] if visitor.key.serves(letter.bot_id) else None

    async def _arrival(self, number: int, visitor: Visitor) -> ArrivalLine | None:
        try:
            view = await self._inbox.arrival(number)
        except NotFound:
            return None
        return arrival_lines([view], None)[0] if visitor.key.serves(view.arrival.bot_id) else None

    async def _numbered(self, chat: int, bots: Sequence[BotRecord]) -> list[ChatHit]:
        """The chat with this number, of each bot that knows it or has letters for it."""
        found = await asyncio.gather(*(self._chat(bot.bot_id, chat) for bot in bots[:BOTS_ASKED_MAX]))
        return [one for one in found if one is not None]

    async def _chat(self, bot_id: int, chat: int) -> ChatHit | None:
        known = await self._board.peik.store.contacts.contact(bot_id, chat)
        if known is not None:
            return _hit(known)
        page = await self._service.page(LetterFilter(bot_id=bot_id, chat=chat), before=None, limit=1)
        return ChatHit(bot_id=bot_id, chat=chat) if page.letters else None

    async def _named(self, needles: tuple[str, ...], bots: Sequence[BotRecord]) -> tuple[list[ChatHit], bool]:
        """Chats by what they are called, the newest of each bot first; and whether all were looked at."""
        found: list[ChatHit] = []
        share = CONTACTS_LOOKED_MAX // max(1, min(len(bots), BOTS_ASKED_MAX))
        are_all = len(bots) <= BOTS_ASKED_MAX
        for bot in bots[:BOTS_ASKED_MAX]:
            if bot.token.is_account:
                continue
            before: tuple[int, int] | None = None
            looked = 0
            while True:
                page = await self._board.peik.store.contacts.newest_contacts(
                    bot.bot_id, ContactFilter(), before=before, limit=min(STEP, share)
                )
                found += [_hit(one) for one in page.contacts if is_found(needles, one.name, one.username)]
                looked, before = looked + len(page.contacts), page.cursor
                if before is None:
                    break
                if looked >= share or len(found) >= CHATS_SHOWN_MAX:
                    are_all = False
                    break
        return found, are_all

    # ---- what says it ----

    async def _letters(self, needles: tuple[str, ...], visitor: Visitor, before: int | None) -> Walked:
        wanted = visitor.caller.narrow(LetterFilter())

        async def step(below: int | None) -> tuple[list[LetterView], int | None]:
            page = await self._service.page(wanted, before=below, limit=STEP)
            return page.letters, page.cursor

        def is_one(letter: LetterView) -> bool:
            chat = letter.chat if isinstance(letter.chat, str) else None
            return is_found(needles, said_in(letter.params), letter.failed_reason, chat)

        return await _walked(step, is_one, lambda one: one.created_at_ms, before=before, looked_max=LETTERS_LOOKED_MAX)

    async def _arrivals(self, needles: tuple[str, ...], visitor: Visitor, before: int | None) -> Walked:
        wanted = visitor.caller.narrow(ArrivalFilter())

        async def step(below: int | None) -> tuple[list[ArrivalView], int | None]:
            page = await self._inbox.arrivals(wanted, before=below, limit=STEP)
            return page, page[-1].arrival.id if len(page) == STEP else None

        def is_one(view: ArrivalView) -> bool:
            reasons = (one.failed_reason for one in view.deliveries)
            return is_found(needles, said_in(view.arrival.payload), *reasons)

        return await _walked(
            step, is_one, lambda one: one.arrival.received_at_ms, before=before, looked_max=ARRIVALS_LOOKED_MAX
        )


async def _walked(
    step: Callable[[int | None], Awaitable[tuple[list[Any], int | None]]],
    is_one: Callable[[Any], bool],
    at_ms: Callable[[Any], int],
    *,
    before: int | None,
    looked_max: int,
) -> Walked:
    """From the newest down until a page is full, the bound is reached, or there is no more."""
    found: list[Any] = []
    looked, below, reached = 0, before, None
    for _ in range(looked_max // STEP):  # and not until so many were seen: of few bots among many, a page may have none
        views, cursor = await step(below)
        for view in views:
            looked, reached = looked + 1, at_ms(view)
            if is_one(view):
                found.append(view)
            if len(found) == PAGE:
                return Walked(found=found, cursor=_id_of(view), looked=looked, reached_ms=reached)
        below = cursor
        if cursor is None:
            break
        await asyncio.sleep(0)
    return Walked(found=found, cursor=below, looked=looked, reached_ms=reached)


def _id_of(view: LetterView | ArrivalView) -> int:
    return view.id if isinstance(view, LetterView) else view.arrival.id


def _hit(contact: Contact) -> ChatHit:
    return ChatHit(bot_id=contact.bot_id, chat=contact.chat_id, name=contact.name, username=contact.username)


def _number(asked: str) -> int | None:
    """A number as people copy it: with digits of any script, and a minus of any kind before that of a group."""
    text = folded(asked).replace("\u2212", "-").removeprefix("#").replace(",", "")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _NUMBER_DIGITS_MAX):
        return None
    return -parse_id(digits, "q") if text.startswith("-") else parse_id(digits, "q")
