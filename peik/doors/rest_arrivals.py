"""REST: what people and programs ask of arrivals. Lists, dead ones, replay, acknowledgements, streams, recovery."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.letter import State
from peik.desk import Desk
from peik.doors.access import Access, Caller
from peik.doors.bodies import decode, parse_id, read_body
from peik.doors.inbox_views import arrival_view, inbox_view, recovery_view, whole_arrival_view
from peik.doors.queries import LIMIT_MAX, arrival_filter_of, read_arrival_filter, read_cursor, read_limit
from peik.doors.replies import Route, json_response
from peik.doors.sse import EventStream
from peik.doors.traces import Answers, answers_to, wanted_of
from peik.errors import BadInput
from peik.inbox.desk import REPLAY_PAGE, InboxDesk
from peik.inbox_ports import ArrivalFilter, ArrivalView

_SMALL_BODY = 64 * 1024
_SEEN_BODY = 1024 * 1024
_NAMES_MAX = 64
_Moment = int | float | str | None


class DeadArrivalsBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/arrivals/dead/retry`: which dead arrivals; all of them if nothing is said."""

    bot_id: int | str | None = None
    consumer: str | None = None
    type: str | None = None
    chat_id: int | str | None = None
    user_id: int | str | None = None
    since: _Moment = None
    until: _Moment = None
    first_number: int | None = None
    last_number: int | None = None
    text: str | None = None


class ReplayBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/arrivals/replay`. At least one thing must say which arrivals are meant. With `limit` one page of it is
    done, and `next_cursor` goes on."""

    bot_id: int | str | None = None
    consumer: str = "default"
    state: str | None = None
    type: str | None = None
    chat_id: int | str | None = None
    user_id: int | str | None = None
    since: _Moment = None
    until: _Moment = None
    first_number: int | None = None
    last_number: int | None = None
    text: str | None = None
    dry_run: bool = False
    limit: int | None = None
    cursor: str | None = None


class SeenMessage(msgspec.Struct, forbid_unknown_fields=True):
    chat_id: int | str
    message_id: int | str


class SeenBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/arrivals/seen`: what a program has handled over MTProto."""

    messages: list[SeenMessage]
    bot_id: int | str | None = None


class AckBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/arrivals/ack`: up to which update as the consumer got it, or up to which number."""

    consumer: str
    bot_id: int | str | None = None
    update_id: int | None = None
    number: int | None = None


class ArrivalRoutes:
    def __init__(self, desk: Desk, inbox: InboxDesk, access: Access) -> None:
        self._desk = desk
        self._inbox = inbox
        self._access = access

    def table(self) -> tuple[Route, ...]:
        # Paths with fixed words come before /v1/arrivals/{arrival_id}, which would take them for ids.
        return (
            ("GET", "/v1/arrivals", self.list_arrivals, "listArrivals", "arrivals"),
            ("GET", "/v1/arrivals/stream", self.stream, "streamArrivals", "arrivals"),
            ("GET", "/v1/arrivals/dead", self.list_dead, "listDeadArrivals", "dead arrivals"),
            ("DELETE", "/v1/arrivals/dead", self.clear_dead, "clearDeadArrivals", "dead arrivals"),
            ("POST", "/v1/arrivals/dead/retry", self.retry_dead, "retryDeadArrivals", "dead arrivals"),
            ("POST", "/v1/arrivals/replay", self.replay, "replayArrivals", "arrivals"),
            ("POST", "/v1/arrivals/seen", self.seen, "noteSeen", "arrivals"),
            ("POST", "/v1/arrivals/ack", self.acknowledge, "acknowledgeArrivals", "arrivals"),
            ("GET", "/v1/arrivals/{arrival_id}", self.get_arrival, "getArrival", "arrivals"),
            ("POST", "/v1/arrivals/{arrival_id}/retry", self.retry, "retryArrival", "dead arrivals"),
            ("GET", "/v1/inbox", self.get_inbox, "getInbox", "arrivals"),
            ("POST", "/v1/bots/{bot_id}/recover", self.recover, "recoverBot", "bots"),
        )

    # ---- looking ----

    async def list_arrivals(self, request: Request) -> Response:
        """Arrivals by bot, consumer, state, type, chat, user, time or words; the newest first."""
        caller = self._access.admit(request, "read")
        return await self._page(request, caller.narrow(read_arrival_filter(request)))

    async def list_dead(self, request: Request) -> Response:
        """Arrivals that a consumer could not be brought to take, the newest first."""
        caller = self._access.admit(request, "read")
        wanted = read_arrival_filter(request)
        _only_dead(wanted.state)
        return await self._page(request, caller.narrow(msgspec.structs.replace(wanted, state=State.FAILED)))

    async def _page(self, request: Request, wanted: ArrivalFilter) -> Response:
        limit = read_limit(request)
        views = await self._inbox.arrivals(wanted, before=read_cursor(request), limit=limit)
        cursor = str(views[-1].arrival.id) if len(views) == limit else None
        shown = [arrival_view(view, consumer=wanted.consumer) for view in views]
        return json_response({"arrivals": shown, "next_cursor": cursor})

    async def _answers(self, caller: Caller, view: ArrivalView) -> Answers:
        return await answers_to(self._desk, caller.narrow(wanted_of(view.arrival)))

    async def get_arrival(self, request: Request) -> Response:
        """One arrival: the update itself, and how it stands with each consumer, with every try."""
        caller = self._access.admit(request, "read")
        view = await self._inbox.arrival(parse_id(request.path_params["arrival_id"], "arrival_id"))
        caller.must_see_arrival(view)
        return json_response(whole_arrival_view(view, await self._answers(caller, view)))

    async def get_inbox(self, request: Request) -> Response:
        """How each bot's inbox stands: its source, how far it is, and the backlog of every consumer."""
        caller = self._access.admit(request, "read")
        asked = request.query_params.get("bot_id")
        if asked is not None:
            bot_id = parse_id(asked, "bot_id")
            caller.must_serve(bot_id)
            bots = [self._desk.bot(bot_id)]
        else:
            bots = [bot for bot in self._desk.bots() if caller.sees(bot.bot_id)]
        return json_response({"bots": [inbox_view(bot, await self._inbox.inbox(bot.bot_id)) for bot in bots]})

    async def stream(self, request: Request) -> Response:
        """Arrivals as server-sent events, resumed after `Last-Event-ID`; with `consumer` durably, else from now on."""
        caller = self._access.admit(request, "read")
        query = request.query_params
        unknown = set(query) - {"bot_id", "consumer", "type"}
        if unknown:
            raise BadInput(code="unknown_filter", detail="A stream takes bot_id, consumer and type.")
        consumer = query.get("consumer")
        if consumer is not None:
            caller = self._access.admit(request, "send")  # it moves a cursor
        bot = self._desk.bot(caller.bot_id_of(None if "bot_id" not in query else parse_id(query["bot_id"], "bot_id")))
        stream = await self._inbox.stream(
            bot.bot_id, consumer, after=_last_event(request), types=_types(query.getlist("type"))
        )
        return EventStream(stream)

    # ---- acting ----

    async def retry(self, request: Request) -> Response:
        """Hand a dead arrival on once more, at the end of its lane; the new arrival. `consumer` if several gave it up."""
        caller = self._access.admit(request, "send")
        arrival_id = parse_id(request.path_params["arrival_id"], "arrival_id")
        caller.must_see_arrival(await self._inbox.arrival(arrival_id))
        view = await self._inbox.retry(arrival_id, request.query_params.get("consumer"))
        return json_response(whole_arrival_view(view, await self._answers(caller, view)), 202)

    async def retry_dead(self, request: Request) -> Response:
        """Hand all dead arrivals of a filter on once more."""
        caller = self._access.admit(request, "send")
        text = await read_body(request, bytes_max=_SMALL_BODY)
        body = decode(DeadArrivalsBody, text) if text.strip() else DeadArrivalsBody()
        return json_response({"retried": await self._inbox.retry_dead(caller.narrow(filter_in(body)))}, 202)

    async def clear_dead(self, request: Request) -> Response:
        """Forget dead arrivals of a filter, or all. The updates themselves stay as long as any others."""
        caller = self._access.admit(request, "send")
        wanted = read_arrival_filter(request, also=())
        _only_dead(wanted.state)
        wanted = msgspec.structs.replace(wanted, state=None)
        return json_response({"cleared": await self._inbox.clear_dead(caller.narrow(wanted))})

    async def replay(self, request: Request) -> Response:
        """Hand arrivals of a filter to one consumer once more, with new numbers; or count them, as a dry run."""
        caller = self._access.admit(request, "send")
        body = decode(ReplayBody, await read_body(request, bytes_max=_SMALL_BODY))
        return json_response(await replay(self._inbox, self._bot(caller, body.bot_id), body))

    async def seen(self, request: Request) -> Response:
        """Note messages that a program has handled itself: they are not handed to the default consumer."""
        caller = self._access.admit(request, "send")
        body = decode(SeenBody, await read_body(request, bytes_max=_SEEN_BODY))
        bot_id = self._bot(caller, body.bot_id)
        messages = seen_messages(body)
        matched = await self._inbox.note_handled(bot_id, messages)
        return json_response({"noted": len(messages), "matched": matched})

    async def acknowledge(self, request: Request) -> Response:
        """Say that a consumer is done with everything up to an update. Committed when this answers."""
        caller = self._access.admit(request, "send")
        body = decode(AckBody, await read_body(request, bytes_max=_SMALL_BODY))
        return json_response(await acknowledge(self._inbox, self._bot(caller, body.bot_id), body))

    async def recover(self, request: Request) -> Response:
        """Fetch everything that Telegram has kept for a bot, once, and say what it was."""
        caller = self._access.admit(request, "send")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        return json_response(recovery_view(await self._inbox.recover(self._desk.bot(bot_id).bot_id)))

    def _bot(self, caller: Caller, asked: int | str | None) -> int:
        bot_id = parse_id(asked, "bot_id") if isinstance(asked, str) else asked
        return self._desk.bot(caller.bot_id_of(bot_id)).bot_id


async def replay(inbox: InboxDesk, bot_id: int, body: ReplayBody) -> dict[str, object]:
    """The same for every door that takes this body. Raises BadInput if nothing says which arrivals: everything is rarely
    meant."""
    wanted = msgspec.structs.replace(filter_in(body), bot_id=None, consumer=None)
    if wanted == ArrivalFilter():
        raise BadInput(
            code="replay_of_what", detail="Say which arrivals: since, first_number, type, chat_id … For all: since 0."
        )
    wanted = msgspec.structs.replace(wanted, bot_id=bot_id)
    if body.dry_run:
        return {"would_replay": await inbox.count_replay(wanted, body.consumer)}
    if body.limit is None and body.cursor is None:
        return {"replayed": await inbox.replay(wanted, body.consumer), "next_cursor": None}
    limit = REPLAY_PAGE if body.limit is None else body.limit
    if not 1 <= limit <= LIMIT_MAX:
        raise BadInput(code="bad_limit", detail=f"limit is between 1 and {LIMIT_MAX}.")
    count, cursor = await inbox.replay_page(wanted, body.consumer, cursor=body.cursor, limit=limit)
    return {"replayed": count, "next_cursor": cursor}


async def acknowledge(inbox: InboxDesk, bot_id: int, body: AckBody) -> dict[str, object]:
    if (body.update_id is None) == (body.number is None):
        raise BadInput(code="which_number", detail="Say update_id or number, and not both.")
    progress = await inbox.acknowledge(bot_id, body.consumer, up_to=body.number, update_id=body.update_id)
    return {"consumer": body.consumer, "acknowledged_up_to": progress.watermark}


def seen_messages(body: SeenBody) -> list[tuple[int, int]]:
    return [(_whole(one.chat_id, "chat_id"), _whole(one.message_id, "message_id")) for one in body.messages]


def filter_in(body: ReplayBody | DeadArrivalsBody) -> ArrivalFilter:
    given = {name: str(value) for name, value in msgspec.structs.asdict(body).items() if value is not None}
    return arrival_filter_of(given)


def _whole(value: int | str, name: str) -> int:
    text = str(value)
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 19:
        return int(text)
    raise BadInput(code=f"bad_{name}", detail=f"{name} must be a number.")


def _only_dead(state: State | None) -> None:
    if state not in (None, State.FAILED):
        raise BadInput(code="bad_state", detail="This is about dead arrivals, and their state is failed.")


def _last_event(request: Request) -> int | None:
    text = request.headers.get("last-event-id", "").strip()
    return parse_id(text, "last_event_id") if text else None


def _types(given: list[str]) -> list[str] | None:
    """`type=message,callback_query`, or several times `type`. None: nothing was said."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if len(names) > _NAMES_MAX:
        raise BadInput(code="bad_type", detail=f"At most {_NAMES_MAX} types of updates.")
    return names or None
