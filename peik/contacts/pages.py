"""Pages of chats: who is known, who cannot be reached and why, who is held; and all that passed with one of them."""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.core.documents import Contact, ContactFilter
from peik.core.letter import Chat
from peik.errors import BadInput, NotFound, Problem
from peik.inbox.pages import ArrivalLine, arrival_lines
from peik.inbox.store import ArrivalFilter
from peik.outbox.pages import lines_of
from peik.outbox.pages_lanes import hold_ms
from peik.outbox.service import OutboxService
from peik.outbox.store import BotRecord, ChatRecord, LetterFilter
from peik.web.dashboard.board import Board, Page, Visitor, own_path
from peik.web.dashboard.fields import PAGE, Fields, asked, bot_asked, bot_seen, bots_seen
from peik.web.parse import chat_in_path, parse_id, whole_number

# What is known of single chats that matters to sending, by way of the list of all such chats.


_DIGITS_MAX = 18  # fits into 64 bits, and is longer than any chat's number
_NAME_CHARS_MAX = 64


async def records_of(service: OutboxService, bot_id: int, chats: Sequence[Chat]) -> list[ChatRecord | None]:
    return list(await asyncio.gather(*(record_of(service, bot_id, chat) for chat in chats)))


async def record_of(service: OutboxService, bot_id: int, chat: Chat) -> ChatRecord | None:
    for after in places_before(chat):
        for record in await service.chats(bot_id, after=after, limit=1):
            if record.chat == chat:
                return record
    return None


def places_before(chat: Chat) -> tuple[Chat | None, ...]:
    """Keys with nothing between them and this chat: one as numbers are ordered (SQLite), one as texts are (the others)."""
    if isinstance(chat, str):
        return (chat[:-1] + chr(ord(chat[-1]) - 1) + "~" * _NAME_CHARS_MAX,)
    return (chat - 1, _before_as_text(str(chat)))


def _before_as_text(digits: str) -> int | None:
    head, last = digits[:-1], int(digits[-1])
    if digits in ("0", "1", "-1"):
        return 0 if digits == "1" else None  # None: from the very beginning
    return int(f"{head}{last - 1}".ljust(_DIGITS_MAX, "9")) if last else int(head)


FILTERS = ("bot_id", "type", "language", "reach", "campaign", "text")
TYPES = ("private", "group", "supergroup", "channel")
REACHES = ("reachable", "gone")
LATEST = 20  # letters and arrivals on the page of one chat
LANES_MAX = 20


class ChatLine(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a chat: by what came from it, and by what was sent to it."""

    chat: Chat
    contact: Contact | None
    record: ChatRecord | None


class ChatPages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._service = board.peik.outbox.service

    def table(self) -> tuple[Page, ...]:
        one = "/admin/chats/{bot_id}/{chat_id}"
        return (
            ("GET", "/admin/chats", self.show_all, Role.VIEWER, "chats.list"),
            ("GET", "/admin/chats/shut", self.show_shut, Role.VIEWER, "chats.shut"),
            ("GET", one, self.show, Role.VIEWER, "chat.show"),
            ("POST", f"{one}/open", self.open, Role.ADMIN, "chat.open"),
            ("POST", f"{one}/hold", self.hold, Role.ADMIN, "chat.hold"),
            ("POST", f"{one}/release", self.release, Role.ADMIN, "chat.release"),
            ("POST", "/admin/chats/forget", self.forget, Role.ADMIN, "chat.forget"),
        )

    # ---- who is known ----

    async def show_all(self, request: Request, visitor: Visitor) -> Response:
        told: dict[str, str] = {}
        lines: list[ChatLine] = []
        cursor: str | None = None
        is_cut = False
        problem: Problem | None = None
        bot: BotRecord | None = None
        try:
            told = asked(request.query_params, FILTERS)
            bot = bot_asked(self._service, visitor, told.get("bot_id"))
            before = _place(request.query_params.get("cursor"))
            found = await self._board.peik.store.contacts.newest_contacts(
                bot.bot_id, _wanted(told), before=before, limit=PAGE
            )
            lines, is_cut = await self._lines(bot.bot_id, found.contacts), found.is_cut
            if found.cursor is not None:
                cursor = f"{found.cursor[0]}.{found.cursor[1]}"
        except (BadInput, NotFound) as error:
            problem = None if error.code == "no_bot" else error
        return self._list(request, visitor, "known", bot, told, lines, cursor, problem, is_cut=is_cut)

    async def _lines(self, bot_id: int, contacts: list[Contact]) -> list[ChatLine]:
        records = await records_of(self._service, bot_id, [contact.chat_id for contact in contacts])
        return [
            ChatLine(chat=contact.chat_id, contact=contact, record=record)
            for contact, record in zip(contacts, records, strict=True)
        ]

    # ---- who cannot be reached, is held, or has another id ----

    async def show_shut(self, request: Request, visitor: Visitor) -> Response:
        told: dict[str, str] = {}
        lines: list[ChatLine] = []
        cursor: str | None = None
        problem: Problem | None = None
        bot: BotRecord | None = None
        try:
            told = asked(request.query_params, ("bot_id",))
            bot = bot_asked(self._service, visitor, told.get("bot_id"))
            text = request.query_params.get("cursor")
            records = await self._service.chats(bot.bot_id, after=_chat(text) if text else None, limit=PAGE)
            lines = await self._known(bot.bot_id, records)
            cursor = str(records[-1].chat) if len(records) == PAGE else None
        except (BadInput, NotFound) as error:
            problem = None if error.code == "no_bot" else error
        return self._list(request, visitor, "shut", bot, told, lines, cursor, problem)

    async def _known(self, bot_id: int, records: list[ChatRecord]) -> list[ChatLine]:
        contacts = await asyncio.gather(*(self._contact(bot_id, record.chat) for record in records))
        return [
            ChatLine(chat=record.chat, contact=contact, record=record)
            for record, contact in zip(records, contacts, strict=True)
        ]

    async def _contact(self, bot_id: int, chat: Chat) -> Contact | None:
        if not isinstance(chat, int):
            return None
        return await self._board.peik.store.contacts.contact(bot_id, chat)

    def _list(
        self,
        request: Request,
        visitor: Visitor,
        tab: str,
        bot: BotRecord | None,
        told: dict[str, str],
        lines: list[ChatLine],
        cursor: str | None,
        problem: Problem | None,
        *,
        is_cut: bool = False,
    ) -> Response:
        return self._board.page(
            request,
            visitor,
            "chats.html",
            status=200 if problem is None else problem.status,
            tab=tab,
            bot=bot,
            bots=bots_seen(self._service, visitor),
            told=told,
            lines=lines,
            types=TYPES,
            reaches=REACHES,
            cursor=cursor,
            is_cut=is_cut,
            is_filtered=bool(told.keys() - {"bot_id"}),
            problem=problem,
        )

    # ---- one chat ----

    async def show(self, request: Request, visitor: Visitor) -> Response:
        bot, chat = self._named(request, visitor)
        page = await self._service.page(LetterFilter(bot_id=bot.bot_id, chat=chat), before=None, limit=LATEST)
        record = await record_of(self._service, bot.bot_id, chat)
        arrivals: list[ArrivalLine] = []
        if isinstance(chat, int):
            wanted = ArrivalFilter(bot_id=bot.bot_id, chat=chat)
            arrivals = arrival_lines(
                await self._board.peik.inbox.service.arrivals(wanted, before=None, limit=LATEST), None
            )
        return self._board.page(
            request,
            visitor,
            "chat.html",
            bot=bot,
            chat_id=chat,
            contact=await self._contact(bot.bot_id, chat),
            record=record,
            is_shut=record is not None and record.shut_reason is not None,
            is_held=record is not None and (record.held_until_ms or 0) > self._board.peik.clock.wall_ms(),
            lanes=await self._service.lanes(bot.bot_id, chat, limit=LANES_MAX),
            lines=await lines_of(self._board, page.letters),
            arrivals=arrivals,
            here=f"/admin/chats/{bot.bot_id}/{chat}",
            may_act=visitor.may(Role.ADMIN),
            may_forget=isinstance(chat, int) and chat > 0 and visitor.bot_ids is None,
            may_send=visitor.may(Role.OPERATOR),
        )

    async def open(self, request: Request, visitor: Visitor) -> Response:
        """A chat that could not be reached is tried again."""
        bot, chat = self._named(request, visitor)
        await self._service.open_chat(bot.bot_id, chat)
        return await self._back(request, visitor, bot, chat, "chats_opened")

    async def hold(self, request: Request, visitor: Visitor) -> Response:
        """Nothing is sent there for a number of minutes."""
        bot, chat = self._named(request, visitor)
        until_ms = self._board.peik.clock.wall_ms() + hold_ms(await Fields.sent(request))
        await self._service.hold_chat(bot.bot_id, chat, until_ms)
        return await self._back(request, visitor, bot, chat, "chats_held")

    async def release(self, request: Request, visitor: Visitor) -> Response:
        bot, chat = self._named(request, visitor)
        await self._service.hold_chat(bot.bot_id, chat, 0)
        return await self._back(request, visitor, bot, chat, "chats_released")

    async def forget(self, request: Request, visitor: Visitor) -> Response:
        """Remove a person everywhere. Their number is typed again, so that nobody does it by a slip. It stands in no path, so
        that the audit log does not have it."""
        visitor.caller.must_serve_all()
        sent, forgetter = await Fields.sent(request), self._board.peik.eraser
        person = await forgetter.person(user_id=whole_number(sent.need("chat_id"), "chat_id"))
        if sent.text("typed") != str(person.user_id):
            raise BadInput(code="not_confirmed", detail="Type the number of the chat to confirm.")
        report = await forgetter.forget(person, who=visitor.name)
        self._board.note(request, target=report.mark, detail=f"count {report.count}")
        return self._board.back(request, visitor, "/admin/chats", said="chats_forgotten", count=report.count)

    def _named(self, request: Request, visitor: Visitor) -> tuple[BotRecord, Chat]:
        return bot_seen(self._service, visitor, request.path_params["bot_id"]), chat_in_path(
            request.path_params["chat_id"], "chat_id"
        )

    async def _back(self, request: Request, visitor: Visitor, bot: BotRecord, chat: Chat, said: str) -> Response:
        wanted = (await Fields.sent(request)).text("back")
        url = own_path(wanted) if wanted else f"/admin/chats/{bot.bot_id}/{chat}"
        return self._board.back(request, visitor, url, said=said, chat=chat)


def _wanted(told: dict[str, str]) -> ContactFilter:
    if told.get("type", "private") not in TYPES or told.get("reach", "gone") not in REACHES:
        raise BadInput(code="bad_filter", detail="There are no such chats.")
    return ContactFilter(
        types=frozenset({told["type"]}) if "type" in told else None,
        languages=frozenset({told["language"].lower()}) if "language" in told else None,
        is_gone=told["reach"] == "gone" if "reach" in told else None,
        text=told.get("text"),
        campaign=told.get("campaign"),
    )


def _place(text: str | None) -> tuple[int, int] | None:
    """Of a cursor: when the last chat that was shown was last seen, and which it was."""
    if not text:
        return None
    seen, _, chat = text.partition(".")
    number = _chat(chat)
    if not isinstance(number, int):
        raise BadInput(code="bad_cursor", detail="cursor is the one of the page before.")
    return parse_id(seen, "cursor"), number


def _chat(text: str) -> Chat:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else text
