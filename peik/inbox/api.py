"""REST: what people and programs ask of arrivals. Lists, dead ones, replay, acknowledgements, streams, recovery."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.core.letter import State
from peik.errors import BadInput
from peik.inbox.answers import arrival_view, consumer_view, inbox_view, recovery_view, tally_view, whole_arrival_view
from peik.inbox.service import REPLAY_PAGE, STATES, InboxService
from peik.inbox.store import ArrivalFilter, ArrivalView, Consumer, ConsumerKind
from peik.outbox.answers import TraceAnswers, answers_to, wanted_of
from peik.outbox.service import OutboxService
from peik.web.access import Access, Caller
from peik.web.bodies import arrival_filter_of, read_arrival_filter, read_body, read_cursor, read_limit
from peik.web.openapi import (
    BOT,
    CURSOR,
    ID,
    LIMIT,
    LIMIT_MAX,
    SECONDS,
    TIME,
    WORD,
    Json,
    OperationRow,
    in_path,
    in_query,
    nullable,
    shape,
)
from peik.web.parse import decode, parse_id
from peik.web.responses import EventStream, Route, json_response

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
    def __init__(self, desk: OutboxService, inbox: InboxService, access: Access) -> None:
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

    async def _answers(self, caller: Caller, view: ArrivalView) -> TraceAnswers:
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


async def replay(inbox: InboxService, bot_id: int, body: ReplayBody) -> dict[str, object]:
    """The same for everybody who takes this body. Raises BadInput if nothing says which arrivals: everything is rarely
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


async def acknowledge(inbox: InboxService, bot_id: int, body: AckBody) -> dict[str, object]:
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


# REST: who reads a bot's arrivals. Named consumers, where theirs are pushed to, and forgetting them.


class ConsumerBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PUT /v1/consumers/{bot_id}/{name}`. `url` null: nothing is pushed, and it reads for itself."""

    url: str | None = None
    secret: str | None = None
    allowed_updates: list[str] | None = None
    max_connections: int | None = None


class ConsumerRoutes:
    def __init__(self, desk: OutboxService, inbox: InboxService, access: Access) -> None:
        self._desk = desk
        self._inbox = inbox
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/consumers", self.list_consumers, "listConsumers", "consumers"),
            ("PUT", "/v1/consumers/{bot_id}/{name}", self.set_consumer, "setConsumer", "consumers"),
            ("DELETE", "/v1/consumers/{bot_id}/{name}", self.remove_consumer, "removeConsumer", "consumers"),
        )

    async def list_consumers(self, request: Request) -> Response:
        """Who reads arrivals, how far each is, and what waits for it."""
        caller = self._access.admit(request, "admin")
        asked = request.query_params.get("bot_id")
        bot_id = None if asked is None else parse_id(asked, "bot_id")
        if bot_id is not None:
            caller.must_serve(bot_id)
        tallies = await self._inbox.tallies(bot_id)
        return json_response(
            {"consumers": [tally_view(tally) for tally in tallies if caller.sees(tally.consumer.bot_id)]}
        )

    async def set_consumer(self, request: Request) -> Response:
        """Push a consumer's arrivals to an address, or let it read for itself again. Made if there is none."""
        caller = self._access.admit(request, "admin")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        body = decode(ConsumerBody, await read_body(request, bytes_max=_SMALL_BODY))
        bot = self._desk.bot(bot_id)
        return json_response(
            consumer_view(await set_consumer(self._inbox, bot.bot_id, request.path_params["name"], body))
        )

    async def remove_consumer(self, request: Request) -> Response:
        """Forget a consumer; arrivals are not kept for it any more. The default one stays."""
        caller = self._access.admit(request, "admin")
        bot_id = parse_id(request.path_params["bot_id"], "bot_id")
        caller.must_serve(bot_id)
        await self._inbox.remove_consumer(bot_id, request.path_params["name"])
        return Response(status_code=204)


async def set_consumer(inbox: InboxService, bot_id: int, name: str, body: ConsumerBody) -> Consumer:
    """The same for everybody who takes this body."""
    return await inbox.set_consumer(
        bot_id,
        name,
        url=body.url,
        secret=body.secret,
        allowed=body.allowed_updates,
        connections_max=body.max_connections,
    )


# The inbox's part of the OpenAPI document: one row per operation, and what the answers look like.


_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_ARRIVAL: Json = {
    "id": ID,
    "bot_id": ID,
    "number": _WHOLE | {"description": "Its place in the order of its bot."},
    "update_id": _WHOLE | {"description": "As bots get it: the number, under 2^31."},
    "telegram_update_id": _WHOLE,
    "epoch": _WHOLE,
    "type": _TEXT,
    "lane": _TEXT,
    "chat_id": nullable(_TEXT),
    "user_id": nullable(_TEXT),
    "message_id": nullable(_TEXT),
    "text": nullable(_TEXT),
    "trace": _TEXT | {"description": "What its answers are found by."},
    "state": nullable({"type": "string", "enum": [str(state) for state in State]}),
    "sent_at": nullable(TIME),
    "received_at": TIME,
    "replay_of": nullable(ID),
    "deliveries": {
        "type": "array",
        "items": shape(
            consumer=_TEXT,
            state={"type": "string", "enum": [str(state) for state in State]},
            tries=_WHOLE,
            due_at=nullable(TIME),
            failed_reason=nullable(_TEXT),
            settled_at=nullable(TIME),
            history={"type": "array", "items": {"type": "object"}},
        ),
    },
}
_ANSWER: Json = shape(
    letter_id=ID,
    method=_TEXT,
    chat_id=_TEXT,
    state={"type": "string", "enum": [str(state) for state in State]},
    trace_certainty=nullable({"type": "string", "enum": ["exact", "likely"]}),
    message_ids={"type": "array", "items": _TEXT},
    accepted_at=TIME,
    finished_at=nullable(TIME),
    accepted_after_ms=_WHOLE | {"description": "After the update had come."},
    finished_after_ms=nullable(_WHOLE),
)
_CONSUMER: Json = {
    "bot_id": ID,
    "name": _TEXT,
    "kind": {"type": "string", "enum": [str(kind) for kind in ConsumerKind]},
    "url": nullable(_TEXT),
    "has_secret": {"type": "boolean"},
    "allowed_updates": nullable({"type": "array", "items": _TEXT}),
    "max_connections": _WHOLE,
    "acknowledged_up_to": _WHOLE,
    "seen_at": nullable(TIME),
    "created_at": TIME,
}
_BACKLOG: Json = {
    **_CONSUMER,
    "open": _WHOLE,
    "delayed": _WHOLE,
    "failed": _WHOLE,
    "oldest_open_at": nullable(TIME),
}

INBOX_SCHEMAS: Json = {
    "Arrival": shape(
        **_ARRIVAL,
        update={"type": "object", "description": "The update as a bot gets it."},
        answers={"type": "array", "items": _ANSWER},
        answers_are_cut={"type": "boolean", "description": "There may be more of them: GET /v1/letters?arrival_id="},
    ),
    "Arrivals": shape(arrivals={"type": "array", "items": shape(**_ARRIVAL)}, next_cursor=nullable(ID)),
    "Events": {"type": "string", "description": "One event per arrival: its number as id, the update as data."},
    "Replayed": {
        "anyOf": [
            shape(replayed=_WHOLE, next_cursor=nullable(_TEXT)),
            shape(would_replay=_WHOLE | {"description": "Of a dry run."}),
        ],
    },
    "Noted": shape(noted=_WHOLE, matched=_WHOLE | {"description": "How many of them were here already."}),
    "Acknowledged": shape(consumer=_TEXT, acknowledged_up_to=_WHOLE),
    "Consumer": shape(**_CONSUMER),
    "Consumers": shape(consumers={"type": "array", "items": shape(**_BACKLOG)}),
    "Inboxes": shape(
        bots={
            "type": "array",
            "items": shape(
                bot_id=ID,
                source={"type": "string", "enum": ["polling", "webhook", "off"]},
                epoch=nullable(_WHOLE),
                last_update_id=nullable(_WHOLE),
                last_number=nullable(_WHOLE),
                started_at=nullable(TIME),
                seen_at=nullable(TIME),
                received_at=nullable(TIME),
                expired=_WHOLE,
                expires_at=nullable(TIME),
                consumers={"type": "array", "items": shape(**_BACKLOG)},
            ),
        }
    ),
    "Recovery": shape(
        bot_id=ID, found=_WHOLE, stored=_WHOLE, duplicates=_WHOLE, expired=nullable(_WHOLE), took_s={"type": "number"}
    ),
}

NAME_PATTERN = "^[A-Za-z0-9_.-]{1,64}$"
_MOMENT: Json = {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]}
_CONSUMER_NAME = in_query(
    "consumer", {"type": "string", "pattern": NAME_PATTERN}, "The consumer; the default one if not given."
)
_FILTERS = (
    BOT,
    _CONSUMER_NAME,
    in_query("type", WORD, "A type of updates, such as message."),
    in_query("chat_id", WORD, "A chat's number, or a lane such as poll:7."),
    in_query("user_id", ID, "Who wrote it."),
    in_query("since", _MOMENT, "Received then or later; RFC 3339 or Unix seconds."),
    in_query("until", _MOMENT, "Received then or before."),
    in_query("first_number", ID, "From this number on."),
    in_query("last_number", ID, "Up to this number."),
    in_query("text", WORD, "Words in the update."),
)
_STATE = in_query(
    "state", {"type": "string", "enum": [str(state) for state in STATES]}, "How it stands with the consumer."
)
_DEAD = in_query(
    "state", {"type": "string", "enum": [str(State.FAILED)]}, "That of dead arrivals, if it is said at all."
)
_OF_CONSUMER = (in_path("bot_id"), in_path("name", {"type": "string", "pattern": NAME_PATTERN}))

INBOX_OPERATIONS: dict[str, OperationRow] = {
    "listArrivals": OperationRow(
        answers={200: "Arrivals"}, parameters=(_STATE, *_FILTERS, CURSOR, LIMIT), problems=(403, 422)
    ),
    "streamArrivals": OperationRow(
        answers={200: "Events"},
        parameters=(
            BOT,
            in_query("consumer", {"type": "string", "pattern": NAME_PATTERN}, "A durable consumer, made at first use."),
            in_query("type", WORD, "Types of updates, comma-separated."),
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "schema": {"type": "string", "pattern": "^[0-9]{0,18}$"},  # empty as if it were not there
                "description": "The last event that was handled. With a consumer it acknowledges everything up to it.",
            },
        ),
        problems=(404, 409, 422, 503),
        media_type="text/event-stream",
    ),
    "listDeadArrivals": OperationRow(
        answers={200: "Arrivals"}, parameters=(_DEAD, *_FILTERS, CURSOR, LIMIT), problems=(403, 422)
    ),
    "clearDeadArrivals": OperationRow(
        answers={200: "Cleared"}, parameters=(_DEAD, *_FILTERS), problems=(403, 422, 503)
    ),
    "retryDeadArrivals": OperationRow(
        answers={202: "Retried"},
        body=DeadArrivalsBody,
        example={"consumer": "default", "since": "2026-11-15T08:30:00Z"},
        problems=(403, 413, 422, 503),
        is_body_optional=True,
    ),
    "replayArrivals": OperationRow(
        answers={200: "Replayed"},
        body=ReplayBody,
        example={"consumer": "default", "since": "2026-11-15T08:30:00Z", "dry_run": True},
        problems=(403, 404, 413, 422, 503),
    ),
    "noteSeen": OperationRow(
        answers={200: "Noted"},
        body=SeenBody,
        example={"messages": [{"chat_id": 123456789, "message_id": 42}]},
        problems=(403, 404, 413, 422, 503),
    ),
    "acknowledgeArrivals": OperationRow(
        answers={200: "Acknowledged"},
        body=AckBody,
        example={"consumer": "default", "number": 42},
        problems=(403, 404, 413, 422, 503),
    ),
    "getArrival": OperationRow(answers={200: "Arrival"}, parameters=(in_path("arrival_id"),), problems=(404, 422)),
    "retryArrival": OperationRow(
        answers={202: "Arrival"},
        parameters=(in_path("arrival_id"), _CONSUMER_NAME),
        problems=(404, 409, 422, 503),
    ),
    "getInbox": OperationRow(answers={200: "Inboxes"}, parameters=(BOT,), problems=(403, 404, 422)),
    "recoverBot": OperationRow(
        answers={200: "Recovery"}, parameters=(in_path("bot_id"),), problems=(403, 404, 409, 422, 503)
    ),
    "listConsumers": OperationRow(answers={200: "Consumers"}, parameters=(BOT,), problems=(403, 422)),
    "setConsumer": OperationRow(
        answers={200: "Consumer"},
        parameters=_OF_CONSUMER,
        body=ConsumerBody,
        example={"url": "https://bot.example/updates", "secret": "as-long-as-you-like"},
        problems=(403, 404, 409, 413, 422, 503),
    ),
    "removeConsumer": OperationRow(answers={204: ""}, parameters=_OF_CONSUMER, problems=(403, 404, 422, 503)),
}
