"""Pages of letters: the list with its filters, what is done to all of a filter at once, and the form for a new one."""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.core.arrival import Arrival
from peik.core.letter import Chat, LetterCall, Priority, State, priority_of
from peik.core.lifecycle import UNCERTAIN
from peik.core.trace import certainty, plain
from peik.errors import BadInput, Problem, StoreUnavailable
from peik.inbox.answers import after_ms, ended_after_ms, text_of
from peik.monitoring.values import OTHER
from peik.outbox.answers import arrival_behind
from peik.outbox.api import LetterQuery, MessageQuery
from peik.outbox.message_log import MessageLogPage
from peik.outbox.store import NOW, Counted, LetterFilter, LetterView, Tally
from peik.web.dashboard.board import Board, Page, Visitor
from peik.web.dashboard.fields import PAGE, Fields, asked, bot_asked, bots_seen, query_of, with_zones
from peik.web.parse import parse_id, read_query

FILTERS = (
    "state",
    "bot_id",
    "chat_id",
    "method",
    "trace",
    "error",
    "cause",
    "since",
    "until",
    "text",
    "user_id",
    "message_type",
)
LOG_FILTERS = tuple(name for name in FILTERS if name not in ("trace", "cause"))
WORDS_CHARS_MAX = 120
ACTS = ("retry", "clear", "cancel")
TICKED_MAX = 200
_SAID = {"retry": "letters_all_retried", "clear": "letters_all_cleared", "cancel": "letters_all_cancelled"}
_SAID_OF_SOME = {"retry": "letters_some_retried", "clear": "letters_some_cleared", "cancel": "letters_some_cancelled"}
_OPEN = (State.WAITING, State.DELAYED)
TEXT_CHARS_MAX = 20_000
PARAMS_CHARS_MAX = 1024 * 1024
_WORDS = ("text", "caption", "question", "title", "emoji", "phone_number", "address")


class LetterLine(msgspec.Struct, frozen=True, kw_only=True):
    """A letter in a list: the beginning of what it says, and why it stands where it stands."""

    letter: LetterView
    words: str
    why: str | None
    person: str | None = None  # or the title of a group, if it is a known chat


class LetterPages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._service = board.peik.outbox.service
        self._breakdown = board.peik.watch.figures.breakdown

    def table(self) -> tuple[Page, ...]:
        # Before those of one letter, whose path would take these words for ids.
        return (
            ("GET", "/admin/letters", self.show, Role.VIEWER, "letters.list"),
            ("GET", "/admin/log", self.show_log, Role.VIEWER, "letters.log"),
            ("GET", "/admin/letters/new", self.new, Role.OPERATOR, "letters.new"),
            ("POST", "/admin/letters/new", self.send, Role.OPERATOR, "letters.send"),
            ("GET", "/admin/letters/bulk", self.confirm, Role.OPERATOR, "letters.confirm"),
            ("POST", "/admin/letters/bulk", self.act, Role.OPERATOR, "letters.bulk"),
        )

    # ---- the list ----

    async def show(self, request: Request, visitor: Visitor) -> Response:
        query = request.query_params
        told: dict[str, str] = {}
        lines: list[LetterLine] = []
        cursor: int | None = None
        is_cut = False
        problem: Problem | None = None
        try:
            told = asked(query, FILTERS)
            before = parse_id(query["cursor"], "cursor") if query.get("cursor") else None
            found = await self._service.page(wanted_in(told, visitor), before=before, limit=PAGE)
            lines, cursor, is_cut = await lines_of(self._board, found.letters), found.cursor, found.is_cut
        except BadInput as error:
            problem = error
        return self._board.page(
            request,
            visitor,
            "letters.html",
            lines=lines,
            told=told,
            tab_lines=await self._tabs(told, visitor),
            bots=bots_seen(self._service, visitor),
            methods=await self._methods(visitor),
            acts=_acts_on(told.get("state")) if lines and visitor.may(Role.OPERATOR) else (),
            cursor=cursor,
            is_cut=is_cut,
            is_filtered=bool(told.keys() - {"state"}),
            problem=problem,
        )

    async def show_log(self, request: Request, visitor: Visitor) -> Response:
        query = request.query_params
        told: dict[str, str] = {}
        page = MessageLogPage(messages=[], cursor=None)
        problem: Problem | None = None
        try:
            told = asked(query, LOG_FILTERS)
            wanted = read_query(MessageQuery, with_zones(told, visitor.zone)).wanted()
            cursor = query.get("cursor") or None
            page = await self._service.log.page(visitor.caller.narrow(wanted), cursor=cursor, limit=PAGE)
        except BadInput as error:
            problem = error
        tabs = [
            (
                str(state),
                f"/admin/log{query_of({n: text for n, text in told.items() if n != 'state'}, state=state)}",
                None,
            )
            for state in ("", *State)
        ]
        return self._board.page(
            request,
            visitor,
            "log.html",
            messages=page.messages,
            told=told,
            tab_lines=tabs,
            bots=bots_seen(self._service, visitor),
            methods=await self._methods(visitor),
            cursor=page.cursor,
            is_cut=page.is_cut,
            is_filtered=bool(told.keys() - {"state"}),
            problem=problem,
        )

    async def _methods(self, visitor: Visitor) -> list[str]:
        """Those of the last week, the busiest first, to be offered in the filter. A key of some bots learns of no others'."""
        if visitor.bot_ids is not None:
            return []
        try:
            return [row.name for row in (await self._breakdown.seen("week")).rows("method") if row.name != OTHER]
        except StoreUnavailable:
            return []

    async def _tabs(self, told: Mapping[str, str], visitor: Visitor) -> list[tuple[str, str, int | None]]:
        """(state or "", address, how many). Counts that would have to be counted one by one are left out."""
        tallies = None
        if not told.keys() - {"state", "bot_id"}:
            tallies = await self._service.tallies()
        others = {name: text for name, text in told.items() if name != "state"}
        own = [
            tally
            for bot_id, tally in (tallies or {}).items()
            if visitor.key.serves(bot_id) and told.get("bot_id") in (None, str(bot_id))
        ]
        tabs = []
        for state in ("", *State):
            count = None if tallies is None or not state else sum(_count_in(tally, state) for tally in own)
            tabs.append((str(state), f"/admin/letters{query_of(others, state=state)}", count))
        return tabs

    # ---- all of a filter ----

    async def confirm(self, request: Request, visitor: Visitor) -> Response:
        """How many it would be, before anything is done."""
        act = _act(request.query_params.get("act"))
        shown = asked(request.query_params, FILTERS)
        ticked = ticked_in(request.query_params)
        # What comes from now on was not seen by the person who confirms.
        told = {"until": f"{self._board.peik.clock.wall_ms() / 1000:.3f}", **shown}
        count = await self._count(act, msgspec.structs.replace(wanted_in(told, visitor), ids=ticked))
        return self._board.page(
            request,
            visitor,
            "letters_bulk.html",
            act=act,
            told=told,
            shown=shown,
            ticked=sorted(ticked or ()),
            count=count.letters,
            is_least=count.is_least,
            back=f"/admin/letters{query_of(shown, chosen=' '.join(map(str, sorted(ticked or ()))))}",
        )

    async def _count(self, act: str, wanted: LetterFilter) -> Counted:
        _check_state(act, wanted)
        if act == "cancel":
            return await self._service.count_open(wanted)
        return await self._service.count(msgspec.structs.replace(wanted, state=State.FAILED))

    async def act(self, request: Request, visitor: Visitor) -> Response:
        fields = await request.form()
        act = _act(fields.get("act"))
        told = asked(fields, FILTERS)
        ticked, fitting = ticked_in(fields), parse_id(str(fields.get("fitting") or 0), "fitting")
        wanted = msgspec.structs.replace(wanted_in(told, visitor), ids=ticked)
        _check_state(act, wanted)
        match act:
            case "retry":
                count = await self._service.retry_dead(msgspec.structs.replace(wanted, state=None))
            case "clear":
                count = await self._service.clear_dead(msgspec.structs.replace(wanted, state=None))
            case _:
                count = await self._service.cancel_all(wanted)
        these = "" if ticked is None else f" {' '.join(map(str, sorted(ticked)))}"
        self._board.note(request, target=f"{act} {query_of(told)}{these}", detail=f"{count} letters")
        gone = ("until",) if ticked else ("until", "state", "cause")
        others = {name: text for name, text in told.items() if name not in gone}
        url = f"/admin/letters{query_of(others)}"
        if count < fitting:  # others have been dealt with meanwhile, or got there by themselves
            return self._board.back(
                request, visitor, url, said=_SAID_OF_SOME[act], is_bad=True, count=count, all=fitting
            )
        return self._board.back(request, visitor, url, said=_SAID[act], count=count)

    # ---- a new one ----

    async def new(self, request: Request, visitor: Visitor) -> Response:
        query = request.query_params
        fields = {
            "bot_id": query.get("bot_id", ""),
            "chat_id": query.get("chat_id", ""),
            "nonce": secrets.token_urlsafe(12),
        }
        return self._board.page(
            request,
            visitor,
            "letters_new.html",
            fields=fields,
            bots=bots_seen(self._service, visitor),
            priorities=[int(priority) for priority in sorted(Priority, reverse=True)],
        )

    async def send(self, request: Request, visitor: Visitor) -> Response:
        (accepted,) = await self._service.accept([self._call(await Fields.sent(request), visitor)])
        self._board.note(request, target=str(accepted.letter_id))
        return self._board.back(
            request, visitor, f"/admin/letters/{accepted.letter_id}", said="letters_sent", id=accepted.letter_id
        )

    def _call(self, fields: Fields, visitor: Visitor) -> LetterCall:
        bot = bot_asked(self._service, visitor, fields.text("bot_id"))
        method, params = _call_in(fields)
        # The form sent twice by a nervous hand is one letter; the same form with other words is another.
        content = f"{bot.bot_id}\0{method}\0".encode() + params
        nonce = fields.text("nonce")
        digest = hashlib.blake2b(content, digest_size=12, key=(nonce or "").encode()[:64]).hexdigest()
        return LetterCall(
            bot_id=bot.bot_id,
            method=method,
            params=params,
            priority=_priority(fields.text("priority") or "1"),
            send_at_ms=fields.instant_ms("send_at"),
            idempotency_key=None if nonce is None else f"dashboard-{digest}",
        )


def _call_in(fields: Fields) -> tuple[str, bytes]:
    """A text to a chat, or any method with its parameters as JSON. What was filled in for the one is not passed over for the
    other."""
    chat, text = fields.text("chat_id"), fields.text("text", chars_max=TEXT_CHARS_MAX)
    method, params = fields.text("method") or "sendMessage", fields.text("params", chars_max=PARAMS_CHARS_MAX)
    if params is not None:
        for name, given in (("chat_id", chat), ("text", text)):
            if given is not None:
                raise BadInput(
                    code="two_ways",
                    detail="Fill in a chat and a text, or the parameters as JSON, not both: empty the one you do not mean.",
                    field=name,
                )
        return method, params.encode()
    if chat is None or text is None:
        raise BadInput(
            code="chat_and_text",
            detail="Say to which chat and what, or write the parameters as JSON.",
            field="chat_id" if chat is None else "text",
        )
    if method.lower() != "sendmessage":
        raise BadInput(
            code="no_params",
            detail=f"Write the parameters of {method} as JSON; a text is for sendMessage.",
            field="params",
        )
    number = chat.removeprefix("-")
    is_number = number.isascii() and number.isdigit() and len(number) < 19
    return method, msgspec.json.encode({"chat_id": int(chat) if is_number else chat, "text": text})


def _priority(text: str) -> int:
    try:
        return int(Priority(int(text)))
    except ValueError:
        raise BadInput(code="bad_priority", detail="priority is one of -1, 0, 1 and 2.", field="priority") from None


# ---- filters ----


def wanted_in(told: Mapping[str, str], visitor: Visitor) -> LetterFilter:
    """The filter that fields name, over the bots that the visitor may see. Raises BadInput, Forbidden."""
    return visitor.caller.narrow(read_query(LetterQuery, with_zones(told, visitor.zone)).wanted())


def ticked_in(fields: QueryParams | FormData) -> frozenset[int] | None:
    """The rows that were ticked. None: all of the filter is meant, and a form of ticked rows never says that by having none.
    Raises BadInput."""
    if not fields.get("ticked"):
        return None
    ids = [parse_id(text, "id") for texts in fields.getlist("id") for text in str(texts).split()]
    if not 0 < len(ids) <= TICKED_MAX:
        raise BadInput(code="nothing_ticked", detail=f"Tick from 1 to {TICKED_MAX} rows first.")
    return frozenset(ids)


def _act(text: object) -> str:
    if text not in ACTS or not isinstance(text, str):
        raise BadInput(code="bad_act", detail=f"act is one of {', '.join(ACTS)}.")
    return text


def _acts_on(state: str | None) -> tuple[str, ...]:
    if state is None:
        return ACTS
    if state == State.FAILED:
        return ("retry", "clear")
    return ("cancel",) if state in _OPEN else ()


def _check_state(act: str, wanted: LetterFilter) -> None:
    """Raises BadInput if the filter asks for letters to which this cannot be done."""
    if wanted.state is not None and act not in _acts_on(wanted.state):
        raise BadInput(code="bad_state", detail=f"This cannot be done to letters that are {wanted.state}.")


def _count_in(tally: Tally, state: str) -> int:
    count: int = getattr(tally, state)
    return count


# ---- lines ----


async def lines_of(board: Board, letters: list[LetterView]) -> list[LetterLine]:
    whys = await asyncio.gather(*(board.peik.outbox.service.why(letter) for letter in letters))
    people = await names_of(board, letters)
    return [
        LetterLine(
            letter=letter,
            words=words_of(letter.params),
            why=_reason(letter) if why is None else why,
            person=people.get((letter.bot_id, letter.chat)),
        )
        for letter, why in zip(letters, whys, strict=True)
    ]


async def names_of(board: Board, letters: list[LetterView]) -> dict[tuple[int, Chat], str]:
    """What the chats of these letters are called, as far as they are known."""
    chats = list({(letter.bot_id, letter.chat) for letter in letters if isinstance(letter.chat, int)})
    store = board.peik.store.contacts
    found = await asyncio.gather(*(store.contact(bot_id, chat) for bot_id, chat in chats))
    return {place: one.name for place, one in zip(chats, found, strict=True) if one is not None and one.name}


def _reason(letter: LetterView) -> str | None:
    return None if letter.failed_reason == UNCERTAIN else letter.failed_reason  # its state says so


def words_of(params: str) -> str:
    """The beginning of what a call says; of one without words, the beginning of its parameters."""
    try:
        fields: Any = msgspec.json.decode(params)
    except msgspec.DecodeError:
        fields = None
    if isinstance(fields, dict):
        for name in _WORDS:
            if isinstance(fields.get(name), str) and fields[name].strip():
                return _cut(" ".join(fields[name].split()))
    return _cut(params)


def _cut(text: str) -> str:
    return text if len(text) <= WORDS_CHARS_MAX else f"{text[: WORDS_CHARS_MAX - 1]}…"


# The page of one letter: what it says, every try, why it waits, and what can be done about it.


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


class OneLetterPage:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._service = board.peik.outbox.service

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
            why=await self._service.why(letter),
            priority=priority_of(letter.rank),
            priorities=[int(priority) for priority in sorted(Priority, reverse=True)],
            may_retry=may_act and letter.state is State.FAILED and not is_uncertain,
            may_resolve=may_act and is_uncertain,
            may_cancel=may_act and letter.state in _OPEN,
            may_change=may_act and letter.state in _OPEN,
            may_hurry=may_act and letter.state is State.DELAYED and letter.due_at_ms is not None,
            person=(await names_of(self._board, [letter])).get((letter.bot_id, letter.chat)),
            message_id=message_id_of(letter.result),
            trace=None if letter.trace is None else plain(letter.trace),
            trace_certainty=None if letter.trace is None else certainty(letter.trace),
            behind=await self._behind(letter, visitor),
        )

    async def _behind(self, letter: LetterView, visitor: Visitor) -> "Behind | None":
        """The update that it answers, if that is here and the visitor may see it."""
        view = await arrival_behind(self._board.peik.inbox.service, letter)
        if view is None or not visitor.key.serves(view.arrival.bot_id):
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
        await self._service.retry(letter.id)
        return self._back(request, visitor, letter, "letter_retried")

    async def cancel(self, request: Request, visitor: Visitor) -> Response:
        letter = await self._seen(request, visitor)
        await self._service.cancel(letter.id)
        return self._back(request, visitor, letter, "letter_cancelled")

    async def resolve(self, request: Request, visitor: Visitor) -> Response:
        """`arrived`: yes completes it, no sends it again."""
        letter = await self._seen(request, visitor)
        arrived = (await Fields.sent(request)).need("arrived")
        if arrived not in ("yes", "no"):
            raise BadInput(code="bad_arrived", detail="arrived is yes or no.")
        await self._service.resolve(letter.id, arrived=arrived == "yes")
        return self._back(request, visitor, letter, "letter_arrived" if arrived == "yes" else "letter_retried")

    async def change(self, request: Request, visitor: Visitor) -> Response:
        """Its priority, its time, or (`now`) that it goes as soon as it can."""
        letter = await self._seen(request, visitor)
        fields = await Fields.sent(request)
        priority, send_at_ms = fields.whole("priority"), fields.instant_ms("send_at")
        if priority == priority_of(letter.rank):
            priority = None
        is_now = fields.is_on("now")
        if priority is None and send_at_ms is None and not is_now:
            raise BadInput(code="nothing_to_change", detail="Choose another priority or another time.")
        await self._service.change(letter.id, priority=priority, send_at_ms=NOW if is_now else send_at_ms)
        return self._back(request, visitor, letter, "letter_hurried" if is_now else "letter_changed")

    async def _seen(self, request: Request, visitor: Visitor) -> LetterView:
        letter = await self._service.letter(parse_id(request.path_params["letter_id"], "letter_id"))
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
