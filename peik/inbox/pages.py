"""Pages of arrivals: the list, one with the update itself and every delivery, replay of a filter, consumers and their backlog."""

from collections.abc import Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.core.arrival import DEFAULT_CONSUMER, UPDATE_TYPES, Arrival, wire_id
from peik.core.letter import State
from peik.core.trace import certainty, message_ids_in, trace_of
from peik.errors import BadInput, Problem
from peik.inbox.answers import after_ms, ended_after_ms, text_of
from peik.inbox.api import ArrivalQuery
from peik.inbox.store import STATES, ArrivalDelivery, ArrivalFilter, ArrivalView, InboxTally
from peik.outbox.answers import answers_to, wanted_of
from peik.outbox.store import LetterView
from peik.web.dashboard.board import Board, Page, Visitor
from peik.web.dashboard.fields import PAGE, Fields, asked, bot_asked, bots_seen, query_of, with_zones
from peik.web.parse import parse_id, read_query

FILTERS = ("bot_id", "consumer", "state", "type", "chat_id", "user_id", "since", "until", "text")
COUNTED_MAX = 1_000
SEARCHED = 50_000  # of the newest arrivals, in which words are looked for unless a time is given
LOOKED_AT = 200_000  # the same for what is quicker to look at, and has no index either


class DeliveryLine(msgspec.Struct, frozen=True, kw_only=True):
    at: int = 0
    outcome: str = ""
    code: int | None = None
    words: str | None = None
    traceback: str | None = None


class AnswerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A letter that answers an arrival: what Telegram calls it, and how long after the update it was."""

    letter: LetterView
    certainty: str
    message_ids: tuple[int, ...]
    accepted_after_ms: int
    ended_after_ms: int | None

    @classmethod
    def of(cls, arrival: Arrival, letter: LetterView) -> "AnswerLine":
        return cls(
            letter=letter,
            certainty=certainty(letter.trace or ""),
            message_ids=message_ids_in(letter.result or "null"),
            accepted_after_ms=after_ms(arrival, letter.created_at_ms),
            ended_after_ms=ended_after_ms(arrival, letter),
        )


class ArrivalLine(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival in a list: what somebody wrote, and how it stands with one consumer."""

    arrival: Arrival
    words: str | None
    state: State | None  # None: this consumer never sees it
    reason: str | None
    tries: int


_decode_history = msgspec.json.Decoder(list[DeliveryLine]).decode


class ArrivalPages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._service = board.peik.outbox.service
        self._inbox = board.peik.inbox.service

    def table(self) -> tuple[Page, ...]:
        one = "/admin/arrivals/{arrival_id}"
        return (
            ("GET", "/admin/arrivals", self.show_all, Role.VIEWER, "arrivals.list"),
            ("GET", "/admin/arrivals/replay", self.confirm, Role.OPERATOR, "arrivals.confirm"),
            ("POST", "/admin/arrivals/replay", self.replay, Role.OPERATOR, "arrivals.replay"),
            ("GET", one, self.show, Role.VIEWER, "arrival.show"),
            ("POST", f"{one}/retry", self.retry, Role.OPERATOR, "arrival.retry"),
            ("POST", f"{one}/replay", self.replay_one, Role.OPERATOR, "arrival.replay"),
        )

    # ---- looking ----

    async def show_all(self, request: Request, visitor: Visitor) -> Response:
        query = request.query_params
        told: dict[str, str] = {}
        lines: list[ArrivalLine] = []
        cursor: int | None = None
        problem: Problem | None = None
        looked_at: int | None = None
        try:
            told = asked(query, FILTERS)
            before = parse_id(query["cursor"], "cursor") if query.get("cursor") else None
            wanted, looked_at = await self._bounded(wanted_in(told, visitor))
            found = await self._inbox.arrivals(wanted, before=before, limit=PAGE)
            lines = arrival_lines(found, wanted.consumer)
            cursor = found[-1].arrival.id if len(found) == PAGE else None
        except BadInput as error:
            problem = error
        tallies = [one for one in await self._inbox.tallies() if visitor.key.serves(one.consumer.bot_id)]
        return self._board.page(
            request,
            visitor,
            "arrivals.html",
            lines=lines,
            told=told,
            tallies=_of_bot(tallies, told.get("bot_id")),
            names=sorted({one.consumer.name for one in tallies}),
            states=STATES,
            types=UPDATE_TYPES,
            bots=bots_seen(self._service, visitor),
            cursor=cursor,
            replay_url=f"/admin/arrivals/replay{query_of(told)}" if lines and visitor.may(Role.OPERATOR) else None,
            looked_at=looked_at,
            is_filtered=bool(told),
            problem=problem,
        )

    async def _bounded(self, wanted: ArrivalFilter) -> tuple[ArrivalFilter, int | None]:
        """The filter over as many of the newest arrivals as can be looked at one by one while somebody waits; and how many
        that are, if there are more."""
        most = _most(wanted)
        if most is None:
            return wanted, None
        inbox = self._board.peik.store.inbox
        last = await inbox.last_arrival_id()
        oldest = await inbox.arrival(last - most) if last > most else None
        if oldest is None:  # there are not so many, or older ones have left
            return wanted, None
        return msgspec.structs.replace(wanted, since_ms=oldest.arrival.received_at_ms), most

    async def show(self, request: Request, visitor: Visitor) -> Response:
        view = await self._seen(request, visitor)
        consumers = await self._inbox.consumers(view.arrival.bot_id)
        answers = await answers_to(self._service, visitor.caller.narrow(wanted_of(view.arrival)))
        return self._board.page(
            request,
            visitor,
            "arrival.html",
            arrival=view.arrival,
            shown_id=wire_id(view.arrival.number),
            words=text_of(view.arrival),
            deliveries=[(one, history_of(one)) for one in view.deliveries],
            update=view.arrival.wire().decode(),
            consumers=sorted(one.name for one in consumers),
            may_act=visitor.may(Role.OPERATOR),
            trace=trace_of(view.arrival.bot_id, view.arrival.number),
            answers=[AnswerLine.of(view.arrival, letter) for letter in answers.letters],
            answers_are_cut=answers.is_cut,
        )

    async def _seen(self, request: Request, visitor: Visitor) -> ArrivalView:
        view = await self._inbox.arrival(parse_id(request.path_params["arrival_id"], "arrival_id"))
        visitor.caller.must_see_arrival(view)
        return view

    # ---- acting ----

    async def retry(self, request: Request, visitor: Visitor) -> Response:
        """A dead one goes to the consumer that gave it up once more."""
        view = await self._seen(request, visitor)
        again = await self._inbox.retry(view.arrival.id, (await Fields.sent(request)).text("consumer"))
        return self._board.back(
            request, visitor, f"/admin/arrivals/{again.arrival.id}", said="arrivals_retried", id=view.arrival.id
        )

    async def replay_one(self, request: Request, visitor: Visitor) -> Response:
        view = await self._seen(request, visitor)
        consumer = (await Fields.sent(request)).text("consumer") or DEFAULT_CONSUMER
        number = view.arrival.number
        wanted = ArrivalFilter(bot_id=view.arrival.bot_id, first_number=number, last_number=number)
        count = await self._inbox.replay(wanted, consumer)
        return self._board.back(
            request, visitor, f"/admin/arrivals/{view.arrival.id}", said="arrivals_replayed", count=count
        )

    async def confirm(self, request: Request, visitor: Visitor) -> Response:
        """How many a replay would hand on, before it is done."""
        given = asked(request.query_params, FILTERS)
        bot = bot_asked(self._service, visitor, given.get("bot_id"))
        shown = {"consumer": DEFAULT_CONSUMER, **given, "bot_id": str(bot.bot_id)}
        told = {"until": f"{self._board.peik.clock.wall_ms() / 1000:.3f}", **shown}
        await self._inbox.consumer(bot.bot_id, told["consumer"])
        wanted, looked_at = await self._bounded(wanted_in(told, visitor))
        wanted = msgspec.structs.replace(wanted, is_original=True)
        found = await self._inbox.arrivals(wanted, before=None, limit=COUNTED_MAX)
        return self._board.page(
            request,
            visitor,
            "arrivals_replay.html",
            told=told,
            shown=shown,
            looked_at=looked_at,
            count=len(found),
            is_least=len(found) == COUNTED_MAX,
            back=f"/admin/arrivals{query_of(given)}",
        )

    async def replay(self, request: Request, visitor: Visitor) -> Response:
        told = asked(await request.form(), FILTERS)
        bot = bot_asked(self._service, visitor, told.get("bot_id"))
        wanted, _ = await self._bounded(wanted_in(told, visitor))
        wanted = msgspec.structs.replace(wanted, bot_id=bot.bot_id, consumer=None)
        count = await self._inbox.replay(wanted, told.get("consumer", DEFAULT_CONSUMER))
        self._board.note(request, target=query_of(told), detail=f"{count} arrivals")
        return self._board.back(
            request, visitor, f"/admin/arrivals?bot_id={bot.bot_id}", said="arrivals_replayed", count=count
        )


def wanted_in(told: Mapping[str, str], visitor: Visitor) -> ArrivalFilter:
    """The filter that fields name, over the bots that the visitor may see. Raises BadInput, Forbidden."""
    return visitor.caller.narrow(read_query(ArrivalQuery, with_zones(told, visitor.zone)).wanted())


def _most(wanted: ArrivalFilter) -> int | None:
    """How many arrivals may be looked at for a filter. None: an index leads to what it finds."""
    if wanted.since_ms is not None:
        return None
    if wanted.text is not None:
        return SEARCHED
    is_walk = wanted.type is not None or wanted.user_id is not None or wanted.state is State.COMPLETED
    return LOOKED_AT if is_walk and wanted.chat is None else None


def _of_bot(tallies: Sequence[InboxTally], bot_id: str | None) -> list[InboxTally]:
    own = [one for one in tallies if bot_id in (None, str(one.consumer.bot_id))]
    return sorted(own, key=lambda one: (-one.open - one.delayed, one.consumer.bot_id, one.consumer.name))[:PAGE]


def arrival_lines(views: Sequence[ArrivalView], consumer: str | None) -> list[ArrivalLine]:
    """How each stands with the consumer that was asked for; else with the default one, or the only one."""
    lines = []
    for view in views:
        named = {one.consumer: one for one in view.deliveries}
        only = next(iter(view.deliveries), None) if len(named) == 1 and consumer is None else None
        found = only or named.get(consumer or DEFAULT_CONSUMER)
        lines.append(
            ArrivalLine(
                arrival=view.arrival,
                words=text_of(view.arrival),
                state=None if found is None else found.state,
                reason=None if found is None else found.failed_reason,
                tries=0 if found is None else found.tries,
            )
        )
    return lines


def history_of(delivery: ArrivalDelivery) -> list[DeliveryLine]:
    """Every try that failed."""
    return _decode_history(delivery.history or "[]")
