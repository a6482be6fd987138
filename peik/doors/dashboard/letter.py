"""The page of one letter: what it says, every try, why it waits, and what can be done about it."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.arrival import Arrival
from peik.core.letter import Priority, State
from peik.core.lifecycle import UNCERTAIN
from peik.core.role import Role
from peik.core.trace import certainty, plain
from peik.doors.bodies import parse_id
from peik.doors.dashboard.board import Board, Page, Visitor
from peik.doors.dashboard.fields import Fields
from peik.doors.inbox_views import text_of
from peik.doors.traces import after_ms, arrival_behind, ended_after_ms
from peik.errors import BadInput
from peik.ports import NOW, LetterView

_OPEN = (State.WAITING, State.DELAYED)
_TONES = {
    **dict.fromkeys(("refused", "expire", "shut_out", "orphan", "give_up", "cancel"), "bad"),
    **dict.fromkeys(("uncertain", "limited", "unsent"), "warn"),
}


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the story of a letter."""

    at_ms: int
    outcome: str  # as the history has it, with _ for blanks
    code: int | None = None
    words: str | None = None
    retry_after_s: float | None = None
    parameters: str | None = None  # JSON

    @property
    def tone(self) -> str:
        return _TONES.get(self.outcome, "")


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """What a letter answers, and how long after it the letter came and ended."""

    arrival: Arrival
    words: str | None
    accepted_after_ms: int
    ended_after_ms: int | None


class _Line(msgspec.Struct):
    at: int
    outcome: str
    code: int | None = None
    words: str | None = None
    retry_after_s: float | None = None
    parameters: msgspec.Raw | None = None


_decode_history = msgspec.json.Decoder(list[_Line]).decode


class LetterPage:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._desk = board.peik.desk

    def table(self) -> tuple[Page, ...]:
        one = "/admin/letters/{letter_id}"
        return (
            ("GET", one, self.show, Role.VIEWER, "letter.show"),
            ("POST", f"{one}/retry", self.retry, Role.OPERATOR, "letter.retry"),
            ("POST", f"{one}/cancel", self.cancel, Role.OPERATOR, "letter.cancel"),
            ("POST", f"{one}/resolve", self.resolve, Role.OPERATOR, "letter.resolve"),
            ("POST", f"{one}/change", self.change, Role.OPERATOR, "letter.change"),
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        letter = await self._seen(request, visitor)
        may_act = visitor.may(Role.OPERATOR)
        is_uncertain = letter.state is State.FAILED and letter.failed_reason == UNCERTAIN
        return self._board.page(
            request,
            visitor,
            "letter.html",
            letter=letter,
            is_uncertain=is_uncertain,
            story=story_of(letter),
            why=await self._desk.why(letter),
            priority=Priority.CRITICAL - letter.rank,
            priorities=[int(priority) for priority in sorted(Priority, reverse=True)],
            may_retry=may_act and letter.state is State.FAILED and not is_uncertain,
            may_resolve=may_act and is_uncertain,
            may_cancel=may_act and letter.state in _OPEN,
            may_change=may_act and letter.state in _OPEN,
            may_hurry=may_act and letter.state is State.DELAYED and letter.due_at_ms is not None,
            message_id=message_id_of(letter.result),
            trace=None if letter.trace is None else plain(letter.trace),
            trace_certainty=None if letter.trace is None else certainty(letter.trace),
            behind=await self._behind(letter, visitor),
        )

    async def _behind(self, letter: LetterView, visitor: Visitor) -> "Behind | None":
        """The update that it answers, if that is here and the visitor may see it."""
        view = await arrival_behind(self._board.peik.inbox, letter)
        if view is None or not visitor.sees(view.arrival.bot_id):
            return None
        arrival = view.arrival
        return Behind(
            arrival=arrival,
            words=text_of(arrival),
            accepted_after_ms=after_ms(arrival, letter.created_at_ms),
            ended_after_ms=ended_after_ms(arrival, letter),
        )

    async def retry(self, request: Request, visitor: Visitor) -> Response:
        letter = await self._seen(request, visitor)
        await self._desk.retry(letter.id)
        return self._back(request, visitor, letter, "letter_retried")

    async def cancel(self, request: Request, visitor: Visitor) -> Response:
        letter = await self._seen(request, visitor)
        await self._desk.cancel(letter.id)
        return self._back(request, visitor, letter, "letter_cancelled")

    async def resolve(self, request: Request, visitor: Visitor) -> Response:
        """`arrived`: yes completes it, no sends it again."""
        letter = await self._seen(request, visitor)
        arrived = (await Fields.sent(request)).need("arrived")
        if arrived not in ("yes", "no"):
            raise BadInput(code="bad_arrived", detail="arrived is yes or no.")
        await self._desk.resolve(letter.id, arrived=arrived == "yes")
        return self._back(request, visitor, letter, "letter_arrived" if arrived == "yes" else "letter_retried")

    async def change(self, request: Request, visitor: Visitor) -> Response:
        """Its priority, its time, or (`now`) that it goes as soon as it can."""
        letter = await self._seen(request, visitor)
        fields = await Fields.sent(request)
        priority, send_at_ms = fields.whole("priority"), fields.instant_ms("send_at")
        if priority == Priority.CRITICAL - letter.rank:
            priority = None
        is_now = fields.is_on("now")
        if priority is None and send_at_ms is None and not is_now:
            raise BadInput(code="nothing_to_change", detail="Choose another priority or another time.")
        await self._desk.change(letter.id, priority=priority, send_at_ms=NOW if is_now else send_at_ms)
        return self._back(request, visitor, letter, "letter_hurried" if is_now else "letter_changed")

    async def _seen(self, request: Request, visitor: Visitor) -> LetterView:
        letter = await self._desk.letter(parse_id(request.path_params["letter_id"], "letter_id"))
        visitor.caller.must_see(letter)
        return letter

    def _back(self, request: Request, visitor: Visitor, letter: LetterView, said: str) -> Response:
        return self._board.back(request, visitor, f"/admin/letters/{letter.id}", said=said, id=letter.id)


def story_of(letter: LetterView) -> list[Moment]:
    """Everything that happened to it, the oldest first. A plain delivery has no line of its own in the history."""
    told = [
        Moment(
            at_ms=line.at,
            outcome=line.outcome.replace(" ", "_"),
            code=line.code,
            words=line.words,
            retry_after_s=line.retry_after_s,
            parameters=None if line.parameters is None else bytes(line.parameters).decode(),
        )
        for line in _decode_history(letter.history or "[]")
    ]
    story = [Moment(at_ms=letter.created_at_ms, outcome="accepted"), *told]
    if letter.state is State.ACTIVE and letter.marked_at_ms is not None:
        story.append(Moment(at_ms=letter.marked_at_ms, outcome="sending"))
    if letter.state is State.COMPLETED and letter.settled_at_ms is not None:
        if letter.merged_into is not None:
            story.append(Moment(at_ms=letter.settled_at_ms, outcome="merged"))
        elif not any(moment.outcome in ("delivered", "resolve") for moment in told):
            story.append(Moment(at_ms=letter.settled_at_ms, outcome="delivered"))
    if letter.state is State.CANCELLED and letter.settled_at_ms is not None:
        story.append(Moment(at_ms=letter.settled_at_ms, outcome="cancel"))
    return story


class _Result(msgspec.Struct):
    message_id: int | None = None


def message_id_of(result: str | None) -> int | None:
    """The message that Telegram made of it, if it made one."""
    try:
        return None if result is None else msgspec.json.decode(result, type=_Result).message_id
    except msgspec.DecodeError:
        return None
