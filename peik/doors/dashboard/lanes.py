"""Lanes and holds: where letters wait, why, and until when chats and bots are kept back."""

import re

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.call import chat_key
from peik.core.letter import Chat
from peik.core.role import Role
from peik.doors.dashboard.asked import asked, bot_asked, bot_seen, bots_seen, query_of
from peik.doors.dashboard.board import Board, Page, Visitor
from peik.doors.dashboard.fields import Fields
from peik.doors.queries import CHAT_PATTERN, read_chat
from peik.errors import BadInput, NotFound
from peik.ports import BotRecord, ChatRecord

LANES_MAX = 100
HOLD_MINUTES_MAX = 365 * 24 * 60
RECORDS_MAX = 2_000  # that are looked through for holds


class Holds(msgspec.Struct, frozen=True, kw_only=True):
    """Which chats of a bot are held. `is_part`: there are more chats than were looked at."""

    chats: list[ChatRecord]
    bot_until_ms: int | None
    is_part: bool


class LanePages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._desk = board.peik.desk

    def table(self) -> tuple[Page, ...]:
        return (
            ("GET", "/admin/lanes", self.show, Role.VIEWER, "lanes.list"),
            ("POST", "/admin/lanes/hold", self.hold, Role.ADMIN, "chat.hold"),
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        told = asked(request.query_params, ("bot_id", "chat_id"))
        try:
            bot = bot_asked(self._desk, visitor, told.get("bot_id"))
        except NotFound:
            if "bot_id" in told:
                raise
            return self._board.page(request, visitor, "lanes.html", bot=None)
        chat = read_chat(request) if "chat_id" in told else None
        lanes = await self._desk.lanes(bot.bot_id, chat, limit=LANES_MAX)
        waiting = (await self._desk.tallies()).get(bot.bot_id)
        return self._board.page(
            request,
            visitor,
            "lanes.html",
            bot=bot,
            bots=bots_seen(self._desk, visitor),
            told=told,
            lanes=lanes,
            is_cut=len(lanes) == LANES_MAX,
            waiting=0 if waiting is None else waiting.waiting,
            holds=await self._holds(bot),
            records_max=RECORDS_MAX,
            here=f"/admin/lanes{query_of(told)}",
            may_act=visitor.may(Role.ADMIN),
        )

    async def hold(self, request: Request, visitor: Visitor) -> Response:
        """Nothing is sent to a chat for so many minutes."""
        fields = await Fields.sent(request)
        bot, chat = bot_seen(self._desk, visitor, fields.need("bot_id")), _chat_in(fields)
        await self._desk.hold_chat(bot.bot_id, chat, self._board.peik.clock.wall_ms() + hold_ms(fields))
        self._board.note(request, target=f"{bot.bot_id}/{chat}")
        return self._board.back(request, visitor, f"/admin/lanes?bot_id={bot.bot_id}", said="chats_held", chat=chat)

    async def _holds(self, bot: BotRecord) -> Holds:
        at_ms = self._board.peik.clock.wall_ms()
        records = await self._desk.chats(bot.bot_id, after=None, limit=RECORDS_MAX)
        held = [record for record in records if record.held_until_ms is not None and record.held_until_ms > at_ms]
        until_ms = await self._board.peik.store.bot_held_until(bot.bot_id)
        return Holds(
            chats=sorted(held, key=lambda record: record.held_until_ms or 0),
            bot_until_ms=until_ms if until_ms > at_ms else None,
            is_part=len(records) == RECORDS_MAX,
        )


def _chat_in(fields: Fields) -> Chat:
    """Only what the page of a chat can name: what is held there must be let go there."""
    text = fields.need("chat_id")
    if re.fullmatch(CHAT_PATTERN, text) is None:
        raise BadInput(code="bad_chat_id", detail="A chat is named by its number, or by @name.")
    return chat_key(text)


def hold_ms(fields: Fields) -> int:
    """How long a form wants a chat to be held. Raises BadInput."""
    minutes = fields.id("minutes")
    if minutes is None or not 1 <= minutes <= HOLD_MINUTES_MAX:
        raise BadInput(code="bad_minutes", detail=f"A chat is held for 1 to {HOLD_MINUTES_MAX} minutes.")
    return minutes * 60_000
