"""REST: arrivals, and who reads them. Lists, dead ones, replay, acknowledgements, the stream, recovery; named consumers."""

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from peik.core.letter import Chat, State
from peik.errors import BadInput
from peik.inbox.answers import (
    AcknowledgedAnswer,
    ArrivalAnswer,
    ArrivalLineAnswer,
    ArrivalsAnswer,
    BacklogAnswer,
    ConsumerAnswer,
    ConsumersAnswer,
    EventsAnswer,
    InboxAnswer,
    InboxesAnswer,
    NotedAnswer,
    RecoveryAnswer,
    ReplayedAnswer,
    WouldReplayAnswer,
    frames,
)
from peik.inbox.store import NAME_PATTERN, STATES, ArrivalFilter, ArrivalView, check_name
from peik.outbox.answers import ClearedAnswer, RetriedAnswer, answers_to, wanted_of
from peik.web.access import Caller
from peik.web.openapi import LIMIT_DEFAULT, LIMIT_MAX, WORD, Json
from peik.web.operations import StreamHeaders, operation
from peik.web.parse import (
    BOT,
    CURSOR,
    LIMIT,
    MOMENT,
    NUMBER,
    TEXT,
    NumberInPath,
    Param,
    Time,
    id_of,
    params_of,
    parse_id,
    state_of,
    whole_number,
)

if TYPE_CHECKING:
    from peik.inbox.service import InboxService
    from peik.outbox.service import OutboxService

_SEEN_BODY = 1024 * 1024
_NAMES_MAX = 64


# ---- which arrivals ----


def _consumer(text: str, name: str) -> str:
    check_name(text)
    return text


def _lane(text: str, name: str) -> Chat:
    """Updates name chats by number alone; what has no chat has a lane such as poll:7."""
    return int(text) if re.fullmatch("-?[0-9]{1,15}", text) else text


def _types(text: str, name: str) -> list[str] | None:
    """None: nothing was said."""
    names = [one.strip() for one in text.split(",") if one.strip()]
    if len(names) > _NAMES_MAX:
        raise BadInput(code="bad_type", detail=f"At most {_NAMES_MAX} types of updates.")
    return names or None


_NAME: Json = {"type": "string", "pattern": NAME_PATTERN}
_NAMED = Param(lambda text, name: text, _NAME, "The consumer; the default one if not given.")
_OF_CONSUMER = Param(_consumer, _NAME, _NAMED.text).as_filter()
_STATE = Param(state_of, {"type": "string", "enum": [str(state) for state in STATES]}).as_filter()
_DEAD = Param(state_of, {"type": "string", "enum": [str(State.FAILED)]}).as_filter()
_TYPES = Param(_types, WORD, "Types of updates, comma-separated.", write=",".join, is_list=True)


class ArrivalQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of arrivals: the same for lists, for what is done to many at once, and for commands."""

    bot_id: Annotated[int | None, BOT.as_filter()] = None
    consumer: Annotated[str | None, _OF_CONSUMER] = None
    state: Annotated[State | None, _STATE.saying("How it stands with the consumer.")] = None
    type: Annotated[str | None, TEXT.saying("A type of updates, such as message.")] = None
    chat_id: Annotated[Chat | None, Param(_lane, WORD, "A chat's number, or a lane such as poll:7.").as_filter()] = None
    user_id: Annotated[int | None, NUMBER.as_filter().saying("Who wrote it.")] = None
    since: Annotated[int | None, MOMENT.as_filter().saying("Received then or later; RFC 3339 or Unix seconds.")] = None
    until: Annotated[int | None, MOMENT.as_filter().saying("Received then or before.")] = None
    first_number: Annotated[int | None, NUMBER.as_filter().saying("From this number on.")] = None
    last_number: Annotated[int | None, NUMBER.as_filter().saying("Up to this number.")] = None
    text: Annotated[str | None, TEXT.saying("Words in the update.")] = None

    def wanted(self) -> ArrivalFilter:
        return ArrivalFilter(
            bot_id=self.bot_id,
            consumer=self.consumer,
            state=self.state,
            type=self.type,
            chat=self.chat_id,
            user_id=self.user_id,
            since_ms=self.since,
            until_ms=self.until,
            first_number=self.first_number,
            last_number=self.last_number,
            text=self.text,
        )


class ArrivalsQuery(ArrivalQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cursor: Annotated[int | None, CURSOR] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class DeadArrivalsQuery(ArrivalsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: Annotated[State | None, _DEAD.saying("That of dead arrivals, if it is said at all.")] = None


class ClearArrivalsQuery(ArrivalQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: Annotated[State | None, _DEAD.saying("That of dead arrivals, if it is said at all.")] = None


class InboxQuery(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Annotated[int | None, BOT] = None


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    unknown_filter: ClassVar[str] = "A stream takes bot_id, consumer and type."

    bot_id: Annotated[int | None, BOT] = None
    consumer: Annotated[str | None, _NAMED.saying("A durable consumer, made at first use.")] = None
    type: Annotated[list[str] | None, _TYPES] = None


_LAST_EVENT = Param(
    lambda text, name: text,
    {"type": "string", "pattern": "^[0-9]{0,18}$"},  # empty as if it were not there
    "The last event that was handled. With a consumer it acknowledges everything up to it.",
)


class LastArrivalHeaders(StreamHeaders, frozen=True, kw_only=True):
    last_event_id: Annotated[str | None, _LAST_EVENT] = None


class RetryArrivalQuery(msgspec.Struct, frozen=True, kw_only=True):
    consumer: Annotated[str | None, _NAMED] = None


# ---- bodies ----


class DeadArrivalsBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/arrivals/dead/retry`: which dead arrivals; all of them if nothing is said."""

    bot_id: int | str | None = None
    consumer: str | None = None
    type: str | None = None
    chat_id: int | str | None = None
    user_id: int | str | None = None
    since: Time = None
    until: Time = None
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
    since: Time = None
    until: Time = None
    first_number: int | None = None
    last_number: int | None = None
    text: str | None = None
    dry_run: bool = False
    limit: int | None = None
    cursor: str | None = None


def _filter_in(body: ReplayBody | DeadArrivalsBody) -> ArrivalFilter:
    """As a query would say it; but words of a body may be of any length."""
    given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not None}
    params = params_of(ArrivalQuery)
    read: dict[str, Any] = {name: params[name].read(str(given[name]), name) for name in params if name in given}
    return ArrivalQuery(**read).wanted()


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


class ArrivalApi:
    def __init__(self, letters: "OutboxService", inbox: "InboxService") -> None:
        self._letters = letters
        self._inbox = inbox

    # ---- looking ----

    @operation("GET", "/v1/arrivals", name="listArrivals", tag="arrivals", scope="read", problems=(403, 422))
    async def list_arrivals(self, caller: Caller, query: ArrivalsQuery) -> ArrivalsAnswer:
        """Arrivals by bot, consumer, state, type, chat, user, time or words; the newest first."""
        return await self._page(caller.narrow(query.wanted()), query)

    async def _page(self, wanted: ArrivalFilter, query: ArrivalsQuery) -> ArrivalsAnswer:
        views = await self._inbox.arrivals(wanted, before=query.cursor, limit=query.limit)
        return ArrivalsAnswer(
            arrivals=[ArrivalLineAnswer.of(view, consumer=wanted.consumer) for view in views],
            next_cursor=str(views[-1].arrival.id) if len(views) == query.limit else None,
        )

    @operation(
        "GET",
        "/v1/arrivals/stream",
        name="streamArrivals",
        tag="arrivals",
        scope="read",
        media_type="text/event-stream",
        problems=(404, 409, 422, 503),
    )
    async def stream(self, caller: Caller, query: StreamQuery, headers: LastArrivalHeaders) -> EventsAnswer:
        """Arrivals as server-sent events, resumed after `Last-Event-ID`; with `consumer` durably, else from now on."""
        if query.consumer is not None:
            caller.must_have("send")  # it moves a cursor
        bot = self._letters.bot(caller.bot_id_of(query.bot_id))
        last = (headers.last_event_id or "").strip()
        after = parse_id(last, "last_event_id") if last else None
        stream = await self._inbox.stream(bot.bot_id, query.consumer, after=after, types=query.type)
        return EventsAnswer(chunks=frames(stream))

    @operation(
        "GET", "/v1/arrivals/dead", name="listDeadArrivals", tag="dead arrivals", scope="read", problems=(403, 422)
    )
    async def list_dead(self, caller: Caller, query: DeadArrivalsQuery) -> ArrivalsAnswer:
        """Arrivals that a consumer could not be brought to take, the newest first."""
        _only_dead(query.state)
        wanted = msgspec.structs.replace(query.wanted(), state=State.FAILED)
        return await self._page(caller.narrow(wanted), query)

    # ---- acting ----

    @operation(
        "DELETE",
        "/v1/arrivals/dead",
        name="clearDeadArrivals",
        tag="dead arrivals",
        scope="send",
        problems=(403, 422, 503),
    )
    async def clear_dead(self, caller: Caller, query: ClearArrivalsQuery) -> ClearedAnswer:
        """Forget dead arrivals of a filter, or all. The updates themselves stay as long as any others."""
        _only_dead(query.state)
        wanted = msgspec.structs.replace(query.wanted(), state=None)
        return ClearedAnswer(cleared=await self._inbox.clear_dead(caller.narrow(wanted)))

    @operation(
        "POST",
        "/v1/arrivals/dead/retry",
        name="retryDeadArrivals",
        tag="dead arrivals",
        scope="send",
        status=202,
        problems=(403, 413, 422, 503),
        example={"consumer": "default", "since": "2026-11-15T08:30:00Z"},
    )
    async def retry_dead(self, caller: Caller, body: DeadArrivalsBody | None = None) -> RetriedAnswer:
        """Hand all dead arrivals of a filter on once more."""
        wanted = caller.narrow(_filter_in(body or DeadArrivalsBody()))
        return RetriedAnswer(retried=await self._inbox.retry_dead(wanted))

    @operation(
        "POST",
        "/v1/arrivals/replay",
        name="replayArrivals",
        tag="arrivals",
        scope="send",
        problems=(403, 404, 413, 422, 503),
        example={"consumer": "default", "since": "2026-11-15T08:30:00Z", "dry_run": True},
    )
    async def replay(self, caller: Caller, body: ReplayBody) -> ReplayedAnswer | WouldReplayAnswer:
        """Hand arrivals of a filter to one consumer once more, with new numbers; or count them, as a dry run."""
        bot_id = self._bot_id(caller, body.bot_id)
        wanted = msgspec.structs.replace(_filter_in(body), bot_id=None, consumer=None)
        if wanted == ArrivalFilter():  # everything is rarely meant
            raise BadInput(
                code="replay_of_what",
                detail="Say which arrivals: since, first_number, type, chat_id … For all: since 0.",
            )
        wanted = msgspec.structs.replace(wanted, bot_id=bot_id)
        if body.dry_run:
            return WouldReplayAnswer(would_replay=await self._inbox.count_replay(wanted, body.consumer))
        if body.limit is None and body.cursor is None:
            return ReplayedAnswer(replayed=await self._inbox.replay(wanted, body.consumer), next_cursor=None)
        if body.limit is not None and not 1 <= body.limit <= LIMIT_MAX:
            raise BadInput(code="bad_limit", detail=f"limit is between 1 and {LIMIT_MAX}.")
        count, cursor = await self._inbox.replay_page(wanted, body.consumer, cursor=body.cursor, limit=body.limit)
        return ReplayedAnswer(replayed=count, next_cursor=cursor)

    @operation(
        "POST",
        "/v1/arrivals/seen",
        name="noteSeen",
        tag="arrivals",
        scope="send",
        is_traffic=True,
        problems=(403, 404, 413, 422, 503),
        example={"messages": [{"chat_id": 123456789, "message_id": 42}]},
        body_bytes_max=_SEEN_BODY,
    )
    async def seen(self, caller: Caller, body: SeenBody) -> NotedAnswer:
        """Note messages that a program has handled itself: they are not handed to the default consumer."""
        bot_id = self._bot_id(caller, body.bot_id)
        messages = [
            (whole_number(str(one.chat_id), "chat_id"), whole_number(str(one.message_id), "message_id"))
            for one in body.messages
        ]
        return NotedAnswer(noted=len(messages), matched=await self._inbox.note_handled(bot_id, messages))

    @operation(
        "POST",
        "/v1/arrivals/ack",
        name="acknowledgeArrivals",
        tag="arrivals",
        scope="send",
        is_traffic=True,
        problems=(403, 404, 413, 422, 503),
        example={"consumer": "default", "number": 42},
    )
    async def acknowledge(self, caller: Caller, body: AckBody) -> AcknowledgedAnswer:
        """Say that a consumer is done with everything up to an update. Committed when this answers."""
        bot_id = self._bot_id(caller, body.bot_id)
        if (body.update_id is None) == (body.number is None):
            raise BadInput(code="which_number", detail="Say update_id or number, and not both.")
        progress = await self._inbox.acknowledge(bot_id, body.consumer, up_to=body.number, update_id=body.update_id)
        return AcknowledgedAnswer(consumer=body.consumer, acknowledged_up_to=progress.watermark)

    # ---- one ----

    @operation("GET", "/v1/arrivals/{arrival_id}", name="getArrival", tag="arrivals", scope="read", problems=(404, 422))
    async def get_arrival(self, caller: Caller, arrival_id: NumberInPath) -> ArrivalAnswer:
        """One arrival: the update itself, and how it stands with each consumer, with every try."""
        view = await self._inbox.arrival(arrival_id)
        caller.must_see_arrival(view)
        return await self._whole(caller, view)

    async def _whole(self, caller: Caller, view: ArrivalView) -> ArrivalAnswer:
        return ArrivalAnswer.whole(view, await answers_to(self._letters, caller.narrow(wanted_of(view.arrival))))

    @operation(
        "POST",
        "/v1/arrivals/{arrival_id}/retry",
        name="retryArrival",
        tag="dead arrivals",
        scope="send",
        status=202,
        problems=(404, 409, 422, 503),
    )
    async def retry(self, caller: Caller, arrival_id: NumberInPath, query: RetryArrivalQuery) -> ArrivalAnswer:
        """Hand a dead arrival on once more, at the end of its lane; the new arrival. `consumer` if several gave it up."""
        caller.must_see_arrival(await self._inbox.arrival(arrival_id))
        return await self._whole(caller, await self._inbox.retry(arrival_id, query.consumer))

    # ---- whole inboxes ----

    @operation("GET", "/v1/inbox", name="getInbox", tag="arrivals", scope="read", problems=(403, 404, 422))
    async def get_inbox(self, caller: Caller, query: InboxQuery) -> InboxesAnswer:
        """How each bot's inbox stands: its source, how far it is, and the backlog of every consumer."""
        if query.bot_id is not None:
            caller.must_serve(query.bot_id)
            bots = [self._letters.bot(query.bot_id)]
        else:
            bots = [bot for bot in self._letters.bots() if caller.key.serves(bot.bot_id)]
        return InboxesAnswer(bots=[InboxAnswer.of(bot, await self._inbox.inbox(bot.bot_id)) for bot in bots])

    @operation(
        "POST",
        "/v1/bots/{bot_id}/recover",
        name="recoverBot",
        tag="bots",
        scope="send",
        problems=(403, 404, 409, 422, 503),
    )
    async def recover(self, caller: Caller, bot_id: NumberInPath) -> RecoveryAnswer:
        """Fetch everything that Telegram has kept for a bot, once, and say what it was."""
        caller.must_serve(bot_id)
        return RecoveryAnswer.of(await self._inbox.recover(self._letters.bot(bot_id).bot_id))

    def _bot_id(self, caller: Caller, asked: int | str | None) -> int:
        return self._letters.bot(caller.bot_id_of(id_of(asked, "bot_id"))).bot_id


def _only_dead(state: State | None) -> None:
    if state not in (None, State.FAILED):
        raise BadInput(code="bad_state", detail="This is about dead arrivals, and their state is failed.")


# ---- who reads a bot's arrivals, and where theirs are pushed to ----

ConsumerInPath = Annotated[str, _NAMED]


class ConsumerBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PUT /v1/consumers/{bot_id}/{name}`. `url` null: nothing is pushed, and it reads for itself."""

    url: str | None = None
    secret: str | None = None
    allowed_updates: list[str] | None = None
    max_connections: int | None = None


class ConsumerApi:
    def __init__(self, letters: "OutboxService", inbox: "InboxService") -> None:
        self._letters = letters
        self._inbox = inbox

    @operation("GET", "/v1/consumers", name="listConsumers", tag="consumers", scope="admin", problems=(403, 422))
    async def list_consumers(self, caller: Caller, query: InboxQuery) -> ConsumersAnswer:
        """Who reads arrivals, how far each is, and what waits for it."""
        if query.bot_id is not None:
            caller.must_serve(query.bot_id)
        tallies = await self._inbox.tallies(query.bot_id)
        return ConsumersAnswer(
            consumers=[BacklogAnswer.counted(tally) for tally in tallies if caller.key.serves(tally.consumer.bot_id)]
        )

    @operation(
        "PUT",
        "/v1/consumers/{bot_id}/{name}",
        name="setConsumer",
        tag="consumers",
        scope="admin",
        problems=(403, 404, 409, 413, 422, 503),
        example={"url": "https://bot.example/updates", "secret": "as-long-as-you-like"},
    )
    async def set_consumer(
        self, caller: Caller, bot_id: NumberInPath, name: ConsumerInPath, body: ConsumerBody
    ) -> ConsumerAnswer:
        """Push a consumer's arrivals to an address, or let it read for itself again. Made if there is none."""
        caller.must_serve(bot_id)
        consumer = await self._inbox.set_consumer(
            self._letters.bot(bot_id).bot_id,
            name,
            url=body.url,
            secret=body.secret,
            allowed=body.allowed_updates,
            connections_max=body.max_connections,
        )
        return ConsumerAnswer.of(consumer)

    @operation(
        "DELETE",
        "/v1/consumers/{bot_id}/{name}",
        name="removeConsumer",
        tag="consumers",
        scope="admin",
        problems=(403, 404, 422, 503),
    )
    async def remove_consumer(self, caller: Caller, bot_id: NumberInPath, name: ConsumerInPath) -> None:
        """Forget a consumer; arrivals are not kept for it any more. The default one stays."""
        caller.must_serve(bot_id)
        await self._inbox.remove_consumer(bot_id, name)
