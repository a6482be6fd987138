"""Pages: bots. How each stands; adding, pausing, its updates, its limits, its token, removing."""

from collections import Counter

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.missed import Policy
from peik.core.pace import Limits
from peik.core.role import Role
from peik.core.token import Token
from peik.doors.bodies import parse_id
from peik.doors.dashboard.board import Board, Page, Visitor
from peik.doors.dashboard.fields import PAGE, Fields
from peik.doors.dashboard.nodes import nodes_of
from peik.doors.dashboard.reach import must_see, must_see_all
from peik.doors.rest_bots import PAUSED_BY_HAND
from peik.errors import BadInput
from peik.ports import BotRecord, Tally

INBOUND = ("polling", "webhook", "off")
FIGURES = tuple(name for name in Limits.__struct_fields__ if name != "is_on")


class BotRow(msgspec.Struct, frozen=True, kw_only=True):
    bot: BotRecord
    tally: Tally
    backlog: int  # arrivals that wait, over all consumers
    node: str | None


class BotPages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._desk = board.peik.desk
        self._inbox = board.peik.inbox
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
            (bot for bot in self._desk.bots() if visitor.sees(bot.bot_id) and _fits(bot, text)),
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
        tallies = await self._desk.tallies()
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
        bot, is_new = await self._desk.save_bot(
            Token(fields.need("token")), inbound=fields.text("inbound") or "polling"
        )
        self._board.note(request, target=str(bot.bot_id))
        return self._back(request, visitor, bot, "bots_added" if is_new else "bots_token_changed")

    async def pause(self, request: Request, visitor: Visitor) -> Response:
        bot = await self._desk.change_bot(self._bot(request, visitor).bot_id, paused=PAUSED_BY_HAND)
        return self._back(request, visitor, bot, "bots_paused")

    async def resume(self, request: Request, visitor: Visitor) -> Response:
        bot = await self._desk.change_bot(self._bot(request, visitor).bot_id, paused=None)
        return self._back(request, visitor, bot, "bots_resumed")

    async def set_inbound(self, request: Request, visitor: Visitor) -> Response:
        inbound = (await Fields.sent(request)).need("inbound")
        bot = await self._desk.change_bot(self._bot(request, visitor).bot_id, inbound=inbound)
        return self._back(request, visitor, bot, "bots_changed")

    async def set_missed(self, request: Request, visitor: Visitor) -> Response:
        """An empty field: as the settings say."""
        missed = (await Fields.sent(request)).text("missed")
        bot = await self._desk.change_bot(self._bot(request, visitor).bot_id, missed=missed)
        return self._back(request, visitor, bot, "bots_changed")

    async def set_limits(self, request: Request, visitor: Visitor) -> Response:
        fields = await Fields.sent(request)
        limits = None if fields.is_on("usual") else _limits(fields)
        bot = await self._desk.change_bot(self._bot(request, visitor).bot_id, limits=limits)
        return self._back(request, visitor, bot, "bots_changed")

    async def set_token(self, request: Request, visitor: Visitor) -> Response:
        token = Token((await Fields.sent(request)).need("token"))
        bot = await self._desk.change_bot(self._bot(request, visitor).bot_id, token=token)
        return self._back(request, visitor, bot, "bots_token_changed")

    async def remove(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        bot = self._bot(request, visitor)
        await self._desk.remove_bot(bot.bot_id)
        return self._board.back(request, visitor, "/admin/bots", said="bots_removed", id=bot.bot_id)

    # ---- ----

    def _bot(self, request: Request, visitor: Visitor) -> BotRecord:
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        must_see(visitor, bot_id)
        return self._desk.bot(bot_id)

    def _back(self, request: Request, visitor: Visitor, bot: BotRecord, said: str) -> Response:
        return self._board.back(request, visitor, f"/admin/bots/{bot.bot_id}", said=said, id=bot.bot_id)


def _fits(bot: BotRecord, text: str) -> bool:
    return text in (bot.username or "").lower() or text in str(bot.bot_id)


def _limits(fields: Fields) -> Limits:
    """Every figure has to be there: an empty field is a mistake rather than a wish."""
    given: dict[str, float | int] = {}
    for name in FIGURES:
        number = fields.decimal(name)
        if number is None:
            raise BadInput(
                code="bad_limits", detail=f"{name} is empty. Give every figure, or go back to the usual ones."
            )
        is_whole = isinstance(getattr(Limits(), name), int)
        if is_whole and not number.is_integer():
            raise BadInput(code="bad_limits", detail=f"{name} is a whole number.")
        given[name] = int(number) if is_whole else number
    return msgspec.convert({**given, "is_on": fields.is_on("is_on")}, Limits)
