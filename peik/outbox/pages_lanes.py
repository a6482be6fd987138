"""Lanes and holds: where letters wait, why, and until when chats and bots are kept back."""

import re
from collections import Counter

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.core.call import chat_key
from peik.core.catalogue import Scope
from peik.core.letter import Chat
from peik.core.missed import Policy
from peik.core.outcome import Refused
from peik.core.pace import PaceLimits
from peik.core.token import Token
from peik.errors import BadInput, NotFound
from peik.monitoring.nodes import nodes_of
from peik.outbox.api import PAUSED_BY_HAND
from peik.outbox.courier import ask_me
from peik.outbox.store import BotRecord, ChatRecord, Tally
from peik.web.dashboard.board import Board, Page, Visitor, must_see, must_see_all
from peik.web.dashboard.fields import PAGE, Fields, asked, bot_asked, bot_seen, bots_seen, query_of
from peik.web.parse import CHAT_PATTERN, parse_id

LANES_MAX = 100
ASK_S = 3.0  # for getMe, while somebody waits for the page
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
        self._service = board.peik.outbox.service

    def table(self) -> tuple[Page, ...]:
        return (
            ("GET", "/admin/lanes", self.show, Role.VIEWER, "lanes.list"),
            ("POST", "/admin/lanes/hold", self.hold, Role.ADMIN, "chat.hold"),
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        told = asked(request.query_params, ("bot_id", "chat_id"))
        try:
            bot = bot_asked(self._service, visitor, told.get("bot_id"))
        except NotFound:
            if "bot_id" in told:
                raise
            return self._board.page(request, visitor, "lanes.html", bot=None)
        chat = chat_key(request.query_params["chat_id"]) if "chat_id" in told else None
        lanes = await self._service.lanes(bot.bot_id, chat, limit=LANES_MAX)
        waiting = (await self._service.tallies()).get(bot.bot_id)
        return self._board.page(
            request,
            visitor,
            "lanes.html",
            bot=bot,
            bots=bots_seen(self._service, visitor),
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
        """Nothing is sent to a chat for a number of minutes."""
        fields = await Fields.sent(request)
        bot, chat = bot_seen(self._service, visitor, fields.need("bot_id")), _chat_in(fields)
        await self._service.hold_chat(bot.bot_id, chat, self._board.peik.clock.wall_ms() + hold_ms(fields))
        self._board.note(request, target=f"{bot.bot_id}/{chat}")
        return self._board.back(request, visitor, f"/admin/lanes?bot_id={bot.bot_id}", said="chats_held", chat=chat)

    async def _holds(self, bot: BotRecord) -> Holds:
        at_ms = self._board.peik.clock.wall_ms()
        records = await self._service.chats(bot.bot_id, after=None, limit=RECORDS_MAX)
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


# Pages: bots. How each stands; adding, pausing, its updates, its limits, its token, removing.


INBOUND = ("polling", "webhook", "off")
FIGURES = tuple(name for name in PaceLimits.__struct_fields__ if name != "is_on")


class BotRow(msgspec.Struct, frozen=True, kw_only=True):
    bot: BotRecord
    tally: Tally
    backlog: int  # arrivals that wait, over all consumers
    node: str | None


class BotPages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._service = board.peik.outbox.service
        self._inbox = board.peik.inbox.service
        self._nodes = nodes_of(board.peik)

    def table(self) -> tuple[Page, ...]:
        one = "/admin/bots/{bot_id}"
        return (
            ("GET", "/admin/bots", self.show_all, Role.VIEWER, ""),
            ("POST", "/admin/bots", self.add, Role.ADMIN, "bots.add"),
            ("GET", one, self.show, Role.VIEWER, ""),
            ("POST", f"{one}/pause", self.pause, Role.ADMIN, "bots.pause"),
            ("POST", f"{one}/resume", self.resume, Role.ADMIN, "bots.resume"),
            ("POST", f"{one}/inbound", self.set_inbound, Role.ADMIN, "bots.inbound"),
            ("POST", f"{one}/missed", self.set_missed, Role.ADMIN, "bots.missed"),
            ("POST", f"{one}/limits", self.set_limits, Role.ADMIN, "bots.limits"),
            ("POST", f"{one}/token", self.set_token, Role.ADMIN, "bots.token"),
            ("POST", f"{one}/remove", self.remove, Role.ADMIN, "bots.remove"),
        )

    # ---- looking ----

    async def show_all(self, request: Request, visitor: Visitor) -> Response:
        fields = Fields.asked(request)
        text, after = (fields.text("text") or "").lower().removeprefix("@"), fields.id("cursor") or 0
        seen = sorted(
            (bot for bot in self._service.bots() if visitor.key.serves(bot.bot_id) and _fits(bot, text)),
            key=lambda bot: bot.bot_id,
        )
        page = [bot for bot in seen if bot.bot_id > after][: PAGE + 1]
        return self._board.page(
            request,
            visitor,
            "bots.html",
            rows=await self._rows(page[:PAGE]),
            count=len(seen),
            text=text,
            url=fields.address("/admin/bots", "text"),
            cursor=str(page[PAGE - 1].bot_id) if len(page) > PAGE else None,
            inbounds=INBOUND,
            may_add=visitor.bot_ids is None,
        )

    async def _rows(self, bots: list[BotRecord]) -> list[BotRow]:
        tallies = await self._service.tallies()
        serving = await self._nodes.serving()
        backlog: Counter[int] = Counter()
        for one in await self._inbox.tallies():
            backlog[one.consumer.bot_id] += one.open + one.delayed
        return [
            BotRow(
                bot=bot,
                tally=tallies.get(bot.bot_id, Tally()),
                backlog=backlog[bot.bot_id],
                node=serving.get(bot.bot_id),
            )
            for bot in bots
        ]

    async def show(self, request: Request, visitor: Visitor) -> Response:
        bot = self._bot(request, visitor)
        (row,) = await self._rows([bot])
        return self._board.page(
            request,
            visitor,
            "bot.html",
            row=row,
            bot=bot,
            inbox=None if bot.token.is_account else await self._inbox.inbox(bot.bot_id),
            inbounds=INBOUND,
            policies=tuple(Policy),
            policy_usual=self._board.peik.config.missed,
            limits=bot.limits or bot.usual_limits,
            figures=FIGURES,
            usual=bot.usual_limits,
            may_remove=visitor.bot_ids is None,
        )

    # ---- changing ----

    async def add(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        fields = await Fields.sent(request)
        bot, is_new = await self._service.save_bot(
            Token(fields.need("token")), inbound=fields.text("inbound") or "polling"
        )
        self._board.note(request, target=str(bot.bot_id))
        return await self._with_token(request, visitor, bot, "bots_added" if is_new else "bots_token_changed")

    async def _with_token(self, request: Request, visitor: Visitor, bot: BotRecord, said: str) -> Response:
        """A slip in the token is told at once. Where Telegram cannot be asked just now, the bot has it all the same."""
        outcome = await ask_me(self._service, self._board.peik.outbox.courier.routes, bot, timeout_s=ASK_S)
        if isinstance(outcome, Refused) and outcome.scope is Scope.BOT:
            url = f"/admin/bots/{bot.bot_id}"
            return self._board.back(request, visitor, url, said="bots_token_refused", is_bad=True, id=bot.bot_id)
        return self._back(request, visitor, bot, said)

    async def pause(self, request: Request, visitor: Visitor) -> Response:
        bot = await self._service.change_bot(self._bot(request, visitor).bot_id, paused=PAUSED_BY_HAND)
        return self._back(request, visitor, bot, "bots_paused")

    async def resume(self, request: Request, visitor: Visitor) -> Response:
        bot = await self._service.change_bot(self._bot(request, visitor).bot_id, paused=None)
        return self._back(request, visitor, bot, "bots_resumed")

    async def set_inbound(self, request: Request, visitor: Visitor) -> Response:
        inbound = (await Fields.sent(request)).need("inbound")
        bot = await self._service.change_bot(self._bot(request, visitor).bot_id, inbound=inbound)
        return self._back(request, visitor, bot, "bots_changed")

    async def set_missed(self, request: Request, visitor: Visitor) -> Response:
        """An empty field: as the settings say."""
        missed = (await Fields.sent(request)).text("missed")
        bot = await self._service.change_bot(self._bot(request, visitor).bot_id, missed=missed)
        return self._back(request, visitor, bot, "bots_changed")

    async def set_limits(self, request: Request, visitor: Visitor) -> Response:
        fields = await Fields.sent(request)
        limits = None if fields.is_on("usual") else _limits(fields)
        bot = await self._service.change_bot(self._bot(request, visitor).bot_id, limits=limits)
        return self._back(request, visitor, bot, "bots_changed")

    async def set_token(self, request: Request, visitor: Visitor) -> Response:
        token = Token((await Fields.sent(request)).need("token"))
        bot = await self._service.change_bot(self._bot(request, visitor).bot_id, token=token)
        return await self._with_token(request, visitor, bot, "bots_token_changed")

    async def remove(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        bot = self._bot(request, visitor)
        await self._service.remove_bot(bot.bot_id)
        return self._board.back(request, visitor, "/admin/bots", said="bots_removed", id=bot.bot_id)

    # ---- ----

    def _bot(self, request: Request, visitor: Visitor) -> BotRecord:
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        must_see(visitor, bot_id)
        return self._service.bot(bot_id)

    def _back(self, request: Request, visitor: Visitor, bot: BotRecord, said: str) -> Response:
        return self._board.back(request, visitor, f"/admin/bots/{bot.bot_id}", said=said, id=bot.bot_id)


def _fits(bot: BotRecord, text: str) -> bool:
    return text in (bot.username or "").lower() or text in str(bot.bot_id)


def _limits(fields: Fields) -> PaceLimits:
    """Every figure has to be there: an empty field is a mistake rather than a wish."""
    given: dict[str, float | int] = {}
    for name in FIGURES:
        number = fields.decimal(name)
        if number is None:
            raise BadInput(
                code="bad_limits", detail=f"{name} is empty. Give every figure, or go back to the usual ones."
            )
        is_whole = isinstance(getattr(PaceLimits(), name), int)
        if is_whole and not number.is_integer():
            raise BadInput(code="bad_limits", detail=f"{name} is a whole number.")
        given[name] = int(number) if is_whole else number
    return msgspec.convert({**given, "is_on": fields.is_on("is_on")}, PaceLimits)
