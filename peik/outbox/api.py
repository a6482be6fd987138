"""REST: letters and bots. What is accepted, looked at, taken back, changed, sent again; lanes, chats, and the bots themselves."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec

from peik.core.letter import Backoff, Chat, Enclosed, LetterCall, OnUncertain, State
from peik.core.token import Token
from peik.core.trace import read_trace
from peik.errors import BadInput
from peik.inbox.answers import InboxStatsAnswer
from peik.outbox.answers import (
    AcceptedAnswer,
    AcceptedBatchAnswer,
    BotAnswer,
    BotsAnswer,
    CancelledAnswer,
    CauseAnswer,
    CausesAnswer,
    ChangedChatAnswer,
    ChatAnswer,
    ChatsAnswer,
    ClearedAnswer,
    CountedAnswer,
    LaneAnswer,
    LanesAnswer,
    LetterAnswer,
    LettersAnswer,
    MessageLogAnswer,
    RetriedAnswer,
    StatsAnswer,
    wanted_of,
)
from peik.outbox.store import NOW, Counted, LetterFilter
from peik.web.access import Caller, header_in
from peik.web.openapi import LIMIT_DEFAULT
from peik.web.operations import CallHeaders, Object, Told, TraceHeaders, operation
from peik.web.parse import (
    BOT,
    CHAT,
    CURSOR,
    LIMIT,
    MOMENT,
    NUMBER,
    STATE,
    SWITCH,
    TEXT,
    TRACED,
    ChatInPath,
    NumberInPath,
    Time,
    WaitQuery,
    decoded,
    id_of,
    instant_ms,
    read_query,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from peik.inbox.service import InboxService
    from peik.monitoring.nodes import Nodes
    from peik.outbox.service import OutboxService
    from peik.settings.config import Config
    from peik.storage.spool import SpoolPort

# ---- which letters ----


class MessageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What letters and lines of the message log can be found by."""

    state: Annotated[State | None, STATE.as_filter().saying("Where letters stand.")] = None
    bot_id: Annotated[int | None, BOT.as_filter()] = None
    chat_id: Annotated[Chat | None, CHAT.as_filter().saying("A chat's number or @name.")] = None
    user_id: Annotated[str | None, TEXT.saying("As given in the letter's metadata.")] = None
    message_type: Annotated[str | None, TEXT.saying("As given in the letter's metadata.")] = None
    method: Annotated[str | None, TEXT.saying("A Bot API method.")] = None
    since: Annotated[int | None, MOMENT.as_filter().saying("Accepted then or later; RFC 3339 or Unix seconds.")] = None
    until: Annotated[int | None, MOMENT.as_filter().saying("Accepted then or before; RFC 3339 or Unix seconds.")] = None
    text: Annotated[str | None, TEXT.saying("Words in the parameters.")] = None
    error: Annotated[str | None, TEXT.saying("Words in the reason of failure.")] = None

    def wanted(self) -> LetterFilter:
        return LetterFilter(
            state=self.state,
            bot_id=self.bot_id,
            chat=self.chat_id,
            user_id=self.user_id,
            message_type=self.message_type,
            method=self.method,
            since_ms=self.since,
            until_ms=self.until,
            text=self.text,
            error=self.error,
        )


class LogQuery(MessageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cursor: Annotated[str | None, TEXT.saying("The next_cursor of the page before.")] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class LetterQuery(MessageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of letters: the same for lists, for what is done to many at once, and for commands."""

    cause: Annotated[str | None, TEXT.saying("What it died of, as `GET /v1/dead/causes` says it.")] = None
    trace: Annotated[str | None, TRACED.as_filter().saying("What they answer, for certain or likely.")] = None

    def wanted(self) -> LetterFilter:
        return msgspec.structs.replace(super().wanted(), cause=self.cause, trace=self.trace)


class DeadQuery(LetterQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cursor: Annotated[int | None, CURSOR] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class LettersQuery(DeadQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    arrival_id: Annotated[int | None, NUMBER.saying("The arrival that they answer, for certain or likely.")] = None


class ClearQuery(LetterQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: Annotated[bool, SWITCH.saying("Only count them.")] = False


class CausesQuery(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Annotated[int | None, BOT] = None
    since: Annotated[int | None, MOMENT.saying("Dead since then; RFC 3339 or Unix seconds.")] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class LanesQuery(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Annotated[int | None, BOT] = None
    chat_id: Annotated[Chat | None, CHAT.saying("One chat.")] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class ChatsQuery(msgspec.Struct, frozen=True, kw_only=True):
    bot_id: Annotated[int | None, BOT] = None
    cursor: Annotated[Chat | None, CHAT.saying("The next_cursor of the page before.")] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


# ---- bodies ----

_EMPTY = msgspec.Raw(b"{}")
_NOTHING = msgspec.Raw(b"null")  # Raw itself takes null; a union with None would take nothing else


class BackoffBody(msgspec.Struct, forbid_unknown_fields=True):
    type: Backoff = Backoff.EXPONENTIAL
    delay: int | None = None


class LetterBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/letters`. Parameters and metadata stay as the bytes that came."""

    method: str
    params: Object = msgspec.field(default_factory=lambda: _EMPTY)
    bot_id: int | str | None = None
    priority: int = 0
    attempts: int | None = None
    backoff_ms: int | None = None
    backoff: BackoffBody | None = None
    timeout_ms: int | None = None
    timeout: int | None = None  # BullMQ's word for the same
    send_at: Time = None
    expires_at: Time = None
    on_uncertain: OnUncertain | None = None
    idempotency_key: str | None = None
    webhook_url: str | None = None
    trace: str | None = None
    metadata: Annotated[
        msgspec.Raw, msgspec.Meta(extra_json_schema={"anyOf": [{"type": "object"}, {"type": "null"}]})
    ] = msgspec.field(default_factory=lambda: _NOTHING)


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    letters: list[LetterBody]


class ResolveBody(msgspec.Struct, forbid_unknown_fields=True):
    arrived: bool


class FilterBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/dead/retry`: which dead letters; all of them if nothing is said."""

    bot_id: int | str | None = None
    chat_id: int | str | None = None
    user_id: str | None = None
    message_type: str | None = None
    method: str | None = None
    since: int | float | str | None = None
    until: int | float | str | None = None
    text: str | None = None
    error: str | None = None
    cause: str | None = None
    dry_run: bool = False


class CancelBody(FilterBody, forbid_unknown_fields=True):
    """`POST /v1/letters/cancel`: which letters. At least one filter: nobody takes everything back by a slip."""

    state: str | None = None


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/letters/{letter_id}`. `send_at` is a time, or "now"."""

    priority: int | None = None
    send_at: int | float | str | None = None


class ChatBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/chats/{bot_id}/{chat_id}`. `held_until` null lets the chat go on."""

    reachable: bool | msgspec.UnsetType = msgspec.UNSET
    held_until: int | float | str | msgspec.UnsetType | None = msgspec.UNSET


_HELLO = {"method": "sendMessage", "params": {"chat_id": 123456789, "text": "Hello"}}
_decode_letter = msgspec.json.Decoder(LetterBody).decode


def call_of(
    letter: LetterBody, *, key: str | None = None, trace: str | None = None, enclosed: tuple[Enclosed, ...] = ()
) -> LetterCall:
    """The call for the service. A key or a trace in the body wins over the header."""
    params = bytes(letter.params)
    if _has_usual_terms(letter):
        return LetterCall(
            method=letter.method,
            params=params,
            bot_id=id_of(letter.bot_id, "bot_id"),
            priority=letter.priority,
            idempotency_key=key,
            enclosed=enclosed,
            trace=trace,
        )
    backoff = letter.backoff or BackoffBody()
    metadata = bytes(letter.metadata)
    return LetterCall(
        method=letter.method,
        params=params,
        bot_id=id_of(letter.bot_id, "bot_id"),
        priority=letter.priority,
        attempts=letter.attempts,
        backoff_ms=backoff.delay if letter.backoff_ms is None else letter.backoff_ms,
        backoff=backoff.type,
        timeout_ms=letter.timeout if letter.timeout_ms is None else letter.timeout_ms,
        send_at_ms=instant_ms(letter.send_at, "send_at"),
        expires_at_ms=instant_ms(letter.expires_at, "expires_at"),
        on_uncertain=letter.on_uncertain,
        idempotency_key=letter.idempotency_key or key,
        metadata=None if metadata == b"null" else metadata,
        enclosed=enclosed,
        hook=letter.webhook_url,
        trace=trace if letter.trace is None else read_trace(letter.trace),
    )


def _has_usual_terms(letter: LetterBody) -> bool:
    """Whether it says nothing of how it is to be delivered: most do not, and come by the hundred."""
    return (
        letter.metadata is _NOTHING
        and letter.attempts is None
        and letter.backoff_ms is None
        and letter.backoff is None
        and letter.timeout_ms is None
        and letter.timeout is None
        and letter.send_at is None
        and letter.expires_at is None
        and letter.on_uncertain is None
        and letter.idempotency_key is None
        and letter.webhook_url is None
        and letter.trace is None
    )


def letter_in_form(fields: dict[str, str]) -> LetterBody:
    """Either one field `letter` with the whole JSON, or the fields of it one by one, nested ones as JSON."""
    if "letter" in fields:
        return decoded(_decode_letter, fields["letter"].encode())
    nested = {
        name: msgspec.Raw(value.encode()) if name in _NESTED or _is_number(value) else value
        for name, value in fields.items()
    }
    return decoded(_decode_letter, msgspec.json.encode(nested))


_NESTED = frozenset({"params", "metadata", "backoff"})


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit() and text.isascii()


class LetterApi:
    def __init__(
        self, letters: "OutboxService", inbox: "InboxService", *, config: "Config", spool: "Callable[[], SpoolPort]"
    ) -> None:
        self._letters = letters
        self._inbox = inbox
        self._config = config
        self._spool = spool  # opened when the first file needs it

    # ---- accepting ----

    async def _read(self, request: "Request") -> tuple[LetterBody, tuple[Enclosed, ...]]:
        from peik.web.bodies import read_body, read_multipart

        if (header_in(request.scope, b"content-type") or "").startswith("multipart/form-data"):
            return await read_multipart(
                request, self._spool(), letter_in_form, file_bytes_max=self._config.upload_bytes_max
            )
        return decoded(_decode_letter, await read_body(request, bytes_max=self._config.body_max)), ()

    @operation(
        "POST",
        "/v1/letters",
        name="acceptLetter",
        tag="letters",
        scope="send",
        is_traffic=True,
        answers={200: LetterAnswer, 202: AcceptedAnswer},
        problems=(404, 409, 413, 422, 503),
        example=_HELLO | {"priority": 1, "metadata": {"user_id": "42", "message_type": "receipt"}},
        read_files=_read,
    )
    async def accept_letter(
        self,
        caller: Caller,
        body: LetterBody,
        query: WaitQuery,
        headers: CallHeaders,
        files: tuple[Enclosed, ...] = (),
    ) -> Told[AcceptedAnswer | LetterAnswer]:
        """Accept one call durably; with `?wait=10s`, answer with what became of it."""

        def make(files: tuple[Enclosed, ...]) -> LetterCall:
            return caller.own(call_of(body, key=headers.idempotency_key, trace=headers.trace, enclosed=files))

        if files:
            accepted = await self._letters.accept_with_files(files, make, remove=self._spool().remove)
        else:
            (accepted,) = await self._letters.accept([make(())])
        if not query.wait:
            return Told(AcceptedAnswer(id=str(accepted.letter_id), state=accepted.state), 202)
        view = await self._letters.outcome(accepted, make(files), self._bounded(query.wait))
        return Told(LetterAnswer.of(view), 200 if view.state.is_final else 202)

    def _bounded(self, wait_s: float) -> float:
        return min(wait_s, self._config.wait_max)

    @operation(
        "POST",
        "/v1/letters/batch",
        name="acceptBatch",
        tag="letters",
        scope="send",
        is_traffic=True,
        status=202,
        problems=(404, 409, 413, 422, 503),
        example={"letters": [_HELLO]},
        body_bytes_max=None,
    )
    async def accept_batch(self, caller: Caller, body: BatchBody, headers: TraceHeaders) -> AcceptedBatchAnswer:
        """Accept many calls in one commit, all or none."""
        calls = caller.own_all([call_of(letter, trace=headers.trace) for letter in body.letters])
        return AcceptedBatchAnswer(ids=[str(one.letter_id) for one in await self._letters.accept(calls)])

    # ---- looking ----

    @operation("GET", "/v1/letters/{letter_id}", name="getLetter", tag="letters", scope="read", problems=(404, 422))
    async def get_letter(self, caller: Caller, letter_id: NumberInPath, query: WaitQuery) -> LetterAnswer:
        """One letter with its whole history; with `?wait=10s`, once it has ended."""
        view = await self._letters.letter(letter_id)
        caller.must_see(view)
        if query.wait:
            view = await self._letters.wait(letter_id, self._bounded(query.wait))
        told = await self._letters.provisional.ids_of(view)
        return LetterAnswer.of(view, why=await self._letters.why(view), provisional_ids=told)

    @operation("GET", "/v1/letters", name="listLetters", tag="letters", scope="read", problems=(403, 404, 422))
    async def list_letters(self, caller: Caller, query: LettersQuery) -> LettersAnswer:
        """Letters by state, bot, chat, user, type, time, words of text or error, or what they answer; the newest first.

        One page looks at so many letters and not further: `is_cut` says that it ended for that, and `next_cursor` goes on."""
        wanted = query.wanted()
        if query.arrival_id is not None:
            wanted = await self._answering(wanted, caller, query.arrival_id)
        return await self._page(caller.narrow(wanted), query)

    async def _answering(self, wanted: LetterFilter, caller: Caller, arrival_id: int) -> LetterFilter:
        if wanted.trace is not None:
            raise BadInput(code="two_traces", detail="Say trace or arrival_id, not both.")
        view = await self._inbox.arrival(arrival_id)
        caller.must_see_arrival(view)
        answers = wanted_of(view.arrival)
        since_ms = answers.since_ms if wanted.since_ms is None else wanted.since_ms
        return msgspec.structs.replace(wanted, trace=answers.trace, since_ms=since_ms)

    @operation("GET", "/v1/dead", name="listDead", tag="dead letters", scope="read", problems=(403, 422))
    async def list_dead(self, caller: Caller, query: DeadQuery) -> LettersAnswer:
        """Dead letters, the newest first, with the same filters."""
        wanted = msgspec.structs.replace(query.wanted(), state=State.FAILED)
        return await self._page(caller.narrow(wanted), query)

    async def _page(self, wanted: LetterFilter, query: DeadQuery) -> LettersAnswer:
        return LettersAnswer.of(await self._letters.page(wanted, before=query.cursor, limit=query.limit))

    @operation("GET", "/v1/dead/causes", name="listCauses", tag="dead letters", scope="read", problems=(422,))
    async def list_causes(self, caller: Caller, query: CausesQuery) -> CausesAnswer:
        """What the newest dead letters died of, the most frequent cause first; figures in reasons are N, quoted words "…"."""
        narrowed = caller.narrow(LetterFilter(bot_id=query.bot_id))
        bot_ids = narrowed.bot_ids if query.bot_id is None else frozenset([query.bot_id])
        causes = await self._letters.causes(bot_ids=bot_ids, since_ms=query.since, limit=query.limit)
        return CausesAnswer(causes=[CauseAnswer.of(one) for one in causes])

    @operation("GET", "/v1/log", name="listMessageLog", tag="letters", scope="read", problems=(403, 422))
    async def list_log(self, caller: Caller, query: LogQuery) -> MessageLogAnswer:
        """The message log: every message with its text, state, error and times, also of letters that are gone; the newest first.

        It looks through so many and not further for one page, as the list of letters does."""
        wanted = caller.narrow(query.wanted())
        return MessageLogAnswer.of(await self._letters.log.page(wanted, cursor=query.cursor, limit=query.limit))

    @operation("GET", "/v1/stats", name="getStats", tag="letters", scope="read")
    async def get_stats(self, caller: Caller) -> StatsAnswer:
        """How many letters stand where, over all and per bot, and what waits for the consumers of arrivals."""
        tallies = await self._letters.tallies()
        waiting = [tally for tally in await self._inbox.tallies() if caller.key.serves(tally.consumer.bot_id)]
        letters = {bot_id: tally for bot_id, tally in tallies.items() if caller.key.serves(bot_id)}
        return StatsAnswer.whole(letters, InboxStatsAnswer.of(waiting))

    # ---- changing ----

    @operation(
        "DELETE",
        "/v1/letters/{letter_id}",
        name="cancelLetter",
        tag="letters",
        scope="send",
        problems=(404, 409, 422, 503),
    )
    async def cancel(self, caller: Caller, letter_id: NumberInPath) -> LetterAnswer:
        """Take a letter back. 409 if it is being sent right now, or has ended."""
        await self._must_own(caller, letter_id)
        return LetterAnswer.of(await self._letters.cancel(letter_id))

    @operation(
        "POST",
        "/v1/letters/cancel",
        name="cancelLetters",
        tag="letters",
        scope="send",
        problems=(413, 422, 503),
        example={"state": "delayed", "message_type": "reminder", "dry_run": True},
    )
    async def cancel_all(self, caller: Caller, body: CancelBody) -> CancelledAnswer | CountedAnswer:
        """Take back all letters of a filter that wait or are delayed; `dry_run` only counts them."""
        wanted = _filter_in(body)
        if wanted == LetterFilter():
            detail = 'Say which letters: a filter at least, such as {"state": "waiting"}.'
            raise BadInput(code="no_filter", detail=detail)
        if wanted.state not in (None, State.WAITING, State.DELAYED):
            raise BadInput(code="bad_state", detail="Only letters that are waiting or delayed can be taken back.")
        wanted = caller.narrow(wanted)
        if body.dry_run:
            return _counted(await self._letters.count_open(wanted))
        return CancelledAnswer(cancelled=await self._letters.cancel_all(wanted))

    @operation(
        "PATCH",
        "/v1/letters/{letter_id}",
        name="changeLetter",
        tag="letters",
        scope="send",
        problems=(404, 409, 413, 422, 503),
        example={"priority": 2, "send_at": "now"},
    )
    async def change(self, caller: Caller, letter_id: NumberInPath, body: ChangeBody) -> LetterAnswer:
        """Give a letter that waits another priority, another time, or both. 409 if it is being sent right now, or has ended.

        `{"send_at": "now"}` sends a scheduled letter now, and ends the wait of one that backs off."""
        await self._must_own(caller, letter_id)
        send_at_ms = NOW if body.send_at == "now" else instant_ms(body.send_at, "send_at")
        return LetterAnswer.of(await self._letters.change(letter_id, priority=body.priority, send_at_ms=send_at_ms))

    @operation(
        "POST",
        "/v1/letters/{letter_id}/retry",
        name="retryLetter",
        tag="letters",
        scope="send",
        status=202,
        problems=(404, 409, 422, 503),
    )
    async def retry(self, caller: Caller, letter_id: NumberInPath) -> LetterAnswer:
        """Send a dead letter again, at the end of its lane."""
        await self._must_own(caller, letter_id)
        return LetterAnswer.of(await self._letters.retry(letter_id))

    @operation(
        "POST",
        "/v1/letters/{letter_id}/resolve",
        name="resolveLetter",
        tag="letters",
        scope="send",
        problems=(404, 409, 413, 422, 503),
        example={"arrived": True},
    )
    async def resolve(self, caller: Caller, letter_id: NumberInPath, body: ResolveBody) -> LetterAnswer:
        """Say what became of an uncertain letter: `{"arrived": true}` completes it, `false` sends it again."""
        await self._must_own(caller, letter_id)
        return LetterAnswer.of(await self._letters.resolve(letter_id, arrived=body.arrived))

    async def _must_own(self, caller: Caller, letter_id: int) -> None:
        caller.must_see(await self._letters.letter(letter_id))

    @operation(
        "POST",
        "/v1/dead/retry",
        name="retryDead",
        tag="dead letters",
        scope="send",
        answers={200: CountedAnswer, 202: RetriedAnswer},
        problems=(403, 413, 422, 503),
        example={"error": "timeout"},
    )
    async def retry_dead(
        self, caller: Caller, body: FilterBody | None = None
    ) -> Told[RetriedAnswer] | Told[CountedAnswer]:
        """Send all dead letters of a filter again; `dry_run` only counts them."""
        body = body or FilterBody()
        wanted = caller.narrow(_filter_in(body))
        if body.dry_run:
            return Told(_counted(await self._letters.count(msgspec.structs.replace(wanted, state=State.FAILED))))
        return Told(RetriedAnswer(retried=await self._letters.retry_dead(wanted)), 202)

    @operation("DELETE", "/v1/dead", name="clearDead", tag="dead letters", scope="send", problems=(403, 422, 503))
    async def clear_dead(self, caller: Caller, query: ClearQuery) -> ClearedAnswer | CountedAnswer:
        """Clear away all dead letters of a filter; a line of each stays in the message log. `dry_run` only counts them."""
        if query.state not in (None, State.FAILED):
            raise BadInput(code="bad_state", detail="Only dead letters can be cleared.")
        wanted = caller.narrow(msgspec.structs.replace(query.wanted(), state=State.FAILED))
        if query.dry_run:
            return _counted(await self._letters.count(wanted))
        return ClearedAnswer(cleared=await self._letters.clear_dead(wanted))

    # ---- lanes and chats ----

    @operation("GET", "/v1/lanes", name="listLanes", tag="lanes", scope="read", problems=(403, 404, 422))
    async def list_lanes(self, caller: Caller, query: LanesQuery) -> LanesAnswer:
        """Lanes that have letters: how many, and why the first of them is waiting."""
        bot = self._letters.bot(caller.bot_id_of(query.bot_id))
        lanes = await self._letters.lanes(bot.bot_id, query.chat_id, limit=query.limit)
        return LanesAnswer(lanes=[LaneAnswer.of(lane, why) for lane, why in lanes])

    @operation("GET", "/v1/chats", name="listChats", tag="chats", scope="read", problems=(403, 404, 422))
    async def list_chats(self, caller: Caller, query: ChatsQuery) -> ChatsAnswer:
        """Chats of which something is known: other ids, out of reach, held."""
        bot = self._letters.bot(caller.bot_id_of(query.bot_id))
        chats = await self._letters.chats(bot.bot_id, after=query.cursor, limit=query.limit)
        cursor = str(chats[-1].chat) if len(chats) == query.limit else None
        return ChatsAnswer(chats=[ChatAnswer.of(chat) for chat in chats], next_cursor=cursor)

    @operation(
        "PATCH",
        "/v1/chats/{bot_id}/{chat_id}",
        name="changeChat",
        tag="chats",
        scope="admin",
        problems=(403, 404, 413, 422, 503),
        example={"reachable": True},
    )
    async def change_chat(
        self, caller: Caller, bot_id: NumberInPath, chat_id: ChatInPath, body: ChatBody
    ) -> ChangedChatAnswer:
        """Open a chat that could not be reached, hold it for a while, or let it go on."""
        caller.must_serve(bot_id)
        if body.reachable is False:
            raise BadInput(code="bad_reachable", detail="A chat can be opened (true); hold it to keep letters back.")
        if body.reachable is True:
            await self._letters.open_chat(bot_id, chat_id)
        if body.held_until is not msgspec.UNSET:
            await self._letters.hold_chat(bot_id, chat_id, instant_ms(body.held_until, "held_until") or 0)
        return ChangedChatAnswer(bot_id=str(bot_id), chat_id=str(chat_id))


def _filter_in(body: FilterBody) -> LetterFilter:
    given = {name: str(value) for name, value in msgspec.structs.asdict(body).items() if value is not None}
    del given["dry_run"]
    return read_query(LetterQuery, given).wanted()


def _counted(counted: Counted) -> CountedAnswer:
    return CountedAnswer(count=counted.letters, is_least=counted.is_least)


# ---- bots: added, paused and resumed, their tokens and limits ----

PAUSED_BY_HAND = "paused by hand"


class BotBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/bots`."""

    token: str
    inbound: str = "off"


class LimitsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Telegram's figures as this bot shall start with them; what is left out stays."""

    is_on: bool | msgspec.UnsetType = msgspec.UNSET
    bulk_per_s: float | msgspec.UnsetType = msgspec.UNSET
    interactive_per_s: float | msgspec.UnsetType = msgspec.UNSET
    interactive_per_s_max: float | msgspec.UnsetType = msgspec.UNSET
    private_per_s: float | msgspec.UnsetType = msgspec.UNSET
    private_burst: int | msgspec.UnsetType = msgspec.UNSET
    group_per_min: int | msgspec.UnsetType = msgspec.UNSET


class BotChange(msgspec.Struct, forbid_unknown_fields=True):
    """`PATCH /v1/bots/{bot_id}`. What is not given stays; `limits` null goes back to the usual figures."""

    paused: bool | msgspec.UnsetType = msgspec.UNSET
    token: str | msgspec.UnsetType = msgspec.UNSET
    inbound: str | msgspec.UnsetType = msgspec.UNSET
    limits: LimitsBody | msgspec.UnsetType | None = msgspec.UNSET
    missed: str | msgspec.UnsetType | None = msgspec.UNSET


class BotApi:
    def __init__(self, letters: "OutboxService", nodes: "Nodes") -> None:
        self._letters = letters
        self._nodes = nodes

    @operation(
        "POST",
        "/v1/bots",
        name="addBot",
        tag="bots",
        scope="admin",
        is_for_all=True,
        answers={200: BotAnswer, 201: BotAnswer},
        problems=(403, 413, 422, 503),
        example={"token": "123456789:AAE-as-BotFather-gave-it", "inbound": "off"},
    )
    async def add_bot(self, caller: Caller, body: BotBody) -> Told[BotAnswer]:
        """Add a bot by its token, or give a known one its new token."""
        bot, is_new = await self._letters.save_bot(Token(body.token), inbound=body.inbound)
        return Told(BotAnswer.of(bot), 201 if is_new else 200)

    @operation("GET", "/v1/bots", name="listBots", tag="bots", scope="read")
    async def list_bots(self, caller: Caller) -> BotsAnswer:
        """All bots, without their tokens, each with the node that serves it."""
        serving = await self._nodes.serving()
        bots = [bot for bot in self._letters.bots() if caller.key.serves(bot.bot_id)]
        return BotsAnswer(bots=[BotAnswer.of(bot, node=serving.get(bot.bot_id)) for bot in bots])

    @operation("GET", "/v1/bots/{bot_id}", name="getBot", tag="bots", scope="read", problems=(403, 404, 422))
    async def get_bot(self, caller: Caller, bot_id: NumberInPath) -> BotAnswer:
        """One bot, without its token, and the node that serves it."""
        caller.must_serve(bot_id)
        bot = self._letters.bot(bot_id)
        return BotAnswer.of(bot, node=(await self._nodes.serving()).get(bot_id))

    @operation(
        "PATCH",
        "/v1/bots/{bot_id}",
        name="changeBot",
        tag="bots",
        scope="admin",
        problems=(403, 404, 413, 422, 503),
        example={"paused": True},
    )
    async def change_bot(self, caller: Caller, bot_id: NumberInPath, body: BotChange) -> BotAnswer:
        """Pause, resume, rotate the token, set limits and policies."""
        caller.must_serve(bot_id)
        paused: str | msgspec.UnsetType | None = msgspec.UNSET
        if body.paused is not msgspec.UNSET:
            paused = PAUSED_BY_HAND if body.paused else None
        changed = await self._letters.change_bot(
            bot_id,
            token=None if body.token is msgspec.UNSET else Token(body.token),
            inbound=None if body.inbound is msgspec.UNSET else body.inbound,
            paused=paused,
            limits=_limits(body.limits),
            missed=body.missed,
        )
        return BotAnswer.of(changed)

    @operation(
        "DELETE",
        "/v1/bots/{bot_id}",
        name="removeBot",
        tag="bots",
        scope="admin",
        is_for_all=True,
        problems=(403, 404, 409, 422, 503),
    )
    async def remove_bot(self, caller: Caller, bot_id: NumberInPath) -> None:
        """Forget a bot that has no letters to send."""
        await self._letters.remove_bot(bot_id)


def _limits(body: LimitsBody | msgspec.UnsetType | None) -> dict[str, float] | msgspec.UnsetType | None:
    if body is None or body is msgspec.UNSET:
        return body
    return {name: figure for name, figure in msgspec.structs.asdict(body).items() if figure is not msgspec.UNSET}
