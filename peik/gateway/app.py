"""The gateway: `/bot<token>/<method>` and `/file/bot<token>/<path>`, as Telegram's own. It parses, asks the service, renders.

Sends become letters and wait a moment for Telegram's answer; the rest goes straight through. The token is the key.
"""

import re
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import msgspec

from peik.app.runtime import Runtime
from peik.core.events import Answered, Surprise
from peik.core.letter import Enclosed, LetterCall, Priority, State
from peik.core.methods import MethodClass, classify, is_method_name
from peik.core.trace import current_trace, read_parent, read_trace
from peik.errors import BadInput, Problem
from peik.gateway.answers import (
    NOT_FOUND,
    SURPRISE,
    GatewayAnswer,
    ResultShape,
    failure,
    messages_in,
    of_edited,
    of_letter,
    of_problem,
    of_reply,
    shape_of,
    success,
)
from peik.gateway.files import GatewayFiles
from peik.gateway.inbox import GatewayAsk, GatewayInbox, Own, consumer_of
from peik.gateway.params import GatewayParams, read_given, read_priority
from peik.gateway.tokens import Tokens, Turned
from peik.inbox.handed import Handed
from peik.inbox.readers import HangsUp
from peik.outbox.store import AcceptedLetter, BotRecord, Did, LetterView
from peik.telegram.port import Enclosure
from peik.telegram.routes import patience_with
from peik.web.access import host_of
from peik.web.bodies import ClientGone, UnreadableBody

# What a gateway call answers, as well as that can be known: what it says, what it replies to, or what its bot got
# last.


def trace_in(given: GatewayParams, bot_id: int, consumer: str, handed: Handed) -> str | None:
    """In the order of what is surest. A word that cannot be a trace is no reason to turn a message of a bot away."""
    if given.trace is not None:
        try:
            return read_trace(given.trace)
        except BadInput:
            pass
    known = current_trace() or handed.exactly(bot_id, given.params)
    if known is None and given.parent is not None:
        known = read_parent(given.parent)
    return known or handed.likely(bot_id, consumer, given.params)


REAL_WAIT_S = 60.0  # what cannot be stood in for waits so long for its answer (docs/gateway.md)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class GatewayPlace(msgspec.Struct, frozen=True):
    """What a path means."""

    token: str
    consumer: str | None  # None: the default one
    method: str


_CONSUMER = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def read_place(path: str) -> GatewayPlace | None:
    """`/bot<token>/<method>` or `/bot<token>/test/<method>`, the token perhaps with `@consumer`; None for anything else."""
    token, slash, method = path.removeprefix("/bot").partition("/")
    token, at, consumer = token.partition("@")
    if not slash or not token:
        return None
    if at and _CONSUMER.fullmatch(consumer) is None:
        return None
    if method.startswith("test/"):
        token, method = f"{token}/test", method.removeprefix("test/")
    return GatewayPlace(token, consumer if at else None, method.removesuffix("/"))


class Gateway:
    """An ASGI application in front of another one, which gets everything that is not Telegram's.

    Without `keeps_files` downloads only pass through: the folder for them belongs to the server of a store alone.
    """

    def __init__(self, peik: Runtime, otherwise: App, *, keeps_files: bool = True) -> None:
        self._peik = peik
        self._service = peik.outbox.service
        self._config = peik.config
        self._otherwise = otherwise
        self._tokens = Tokens(peik)
        self._files = GatewayFiles(peik, self._tokens, is_keeping=keeps_files)
        # What Peik answers itself, by the methods' names.
        self._own: dict[str, Own] = {"getMe": self._get_me, **GatewayInbox(peik).table()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            if path.startswith("/bot"):
                answer = await self._guarded(self._answer(path, scope, receive))
                if answer is not None:
                    await respond(send, answer)
                return
            if path.startswith("/file/bot"):
                await self._files.serve(scope, send)
                return
        await self._otherwise(scope, receive, send)

    async def call(self, token: str, method: str, given: GatewayParams) -> GatewayAnswer:
        """One call from within this process, with no HTTP around it. The token may name a consumer, as in a path.

        Whoever is cancelled while he waits takes nothing back: what is accepted by then goes its way.
        """
        answer = await self._guarded(self._called(token, method, given))
        assert answer is not None, "nobody goes away in the middle of a request that is whole"
        return answer

    async def _guarded(self, answering: Awaitable[GatewayAnswer]) -> GatewayAnswer | None:
        """Whatever happens is said in Telegram's envelope. None: nobody is there to hear it."""
        try:
            return await answering
        except Turned as turned:
            return turned.answer
        except UnreadableBody as unreadable:
            return failure(unreadable.status, unreadable.words)
        except Problem as problem:
            return of_problem(problem)
        except ClientGone:
            return None
        except Exception as error:  # noqa: BLE001  it is told, without its words, which may hold a token
            self._peik.events.tell(Surprise(where="gateway", error=f"{type(error).__name__} in {_place_of(error)}"))
            return SURPRISE

    async def _answer(self, path: str, scope: Scope, receive: Receive) -> GatewayAnswer:
        place = read_place(path)
        if place is None or scope["method"] not in ("GET", "POST"):
            return NOT_FOUND
        bot = await self._tokens.admit(place.token, host_of(scope))
        if not is_method_name(place.method):
            return NOT_FOUND
        given = await read_given(
            scope["headers"],
            scope["query_string"],
            receive,
            spool=self._peik.spool,
            file_bytes_max=self._config.upload_bytes_max,
        )
        return await self._serve(bot, place, given, hangs_up=partial(_gone, receive))

    async def _called(self, token: str, method: str, given: GatewayParams) -> GatewayAnswer:
        try:
            place = read_place(f"/bot{token}/{method}")
            bot = None if place is None else await self._tokens.admit(place.token)
        except BaseException:
            self._drop(given.enclosed)
            raise
        if place is None or bot is None or not is_method_name(place.method):
            self._drop(given.enclosed)
            return NOT_FOUND
        return await self._serve(bot, place, given)

    async def _serve(
        self, bot: BotRecord, place: GatewayPlace, given: GatewayParams, *, hangs_up: HangsUp | None = None
    ) -> GatewayAnswer:
        name, kind = classify(place.method)
        if kind is not None and kind.is_queued:
            return await self._accept(bot, place.consumer, name, kind, given)
        try:
            own = self._own.get(name)
            if own is not None:
                ask = GatewayAsk(bot=bot, consumer=consumer_of(place.consumer), given=given, hangs_up=hangs_up)
                return await own(ask)
            answer = await self._pass(bot, name, kind, given)
            if kind is MethodClass.ANSWER:
                self._tell_answered(bot, place.consumer, name, given, answer)
                self._peik.inbox.service.answered(bot.bot_id, consumer_of(place.consumer), name, given.params)
            return answer
        finally:
            self._drop(given.enclosed)

    # ---- letters ----

    async def _accept(
        self, bot: BotRecord, consumer: str | None, name: str, kind: MethodClass, given: GatewayParams
    ) -> GatewayAnswer:
        call = LetterCall(
            method=name,
            params=given.params,
            bot_id=bot.bot_id,
            priority=self._priority(bot.bot_id, consumer, name, kind, given),
            is_judged=given.priority is None,
            idempotency_key=given.key,
            enclosed=given.enclosed,
            trace=trace_in(given, bot.bot_id, consumer_of(consumer), self._peik.inbox.service.handed),
        )
        accepted = await self._service.accept_with_files(given.enclosed, lambda _: call, remove=self._peik.spool.remove)
        if call.priority is not Priority.BULK:  # what goes to many answers nobody
            self._peik.inbox.service.answered(bot.bot_id, consumer_of(consumer), name, given.params)
        if accepted.did is not None:
            return await self._answer_done(bot, accepted)
        # From here on the letter goes its way, whether or not anybody waits for it.
        shape = shape_of(name, kind)
        wait_s = REAL_WAIT_S if shape is ResultShape.REAL else self._config.gateway_wait
        # What a repeat is to be answered with, or must not happen twice, is heard from the store alone.
        if given.key is None and not kind.is_at_most_once:
            view = await self._service.answer(bot.bot_id, accepted.letter_id, wait_s)
        else:
            view = await self._service.outcome(accepted, call, wait_s, may_mend=True)
        provisional = self._service.provisional
        if isinstance(view, bytes):
            return success(await provisional.result(bot.bot_id, view))
        first_id: int | None = None
        if not view.state.is_final and shape.is_message:
            view, first_id = await provisional.give(view, messages_in(shape, view))
        if view.state is State.COMPLETED and view.result is not None:
            view = msgspec.structs.replace(view, result=await self._result_of(view))
        return of_letter(view, shape, bot, at_ms=self._peik.clock.wall_ms(), first_id=first_id)

    async def _result_of(self, view: LetterView) -> str:
        return (await self._service.provisional.result(view.bot_id, (view.result or "null").encode())).decode()

    async def _answer_done(self, bot: BotRecord, accepted: AcceptedLetter) -> GatewayAnswer:
        """An edit or a deletion of a message that was not sent yet: it is done, and answered as one of a message is."""
        if accepted.did is Did.DELETE:
            return success(b"true")
        view = await self._service.letter(accepted.letter_id)
        if view.state is State.COMPLETED:
            view = msgspec.structs.replace(view, result=await self._result_of(view))
        ids = await self._service.provisional.ids_of(view)
        return of_edited(view, bot, item=accepted.item, ids=ids, at_ms=self._peik.clock.wall_ms())

    def _priority(
        self, bot_id: int, consumer: str | None, name: str, kind: MethodClass, given: GatewayParams
    ) -> Priority:
        """What the call is worth: what it says, or as it answers somebody. It counts as an answer in either case."""
        judged = self._peik.inbox.service.answers.priority(bot_id, consumer_of(consumer), name, kind, given.params)
        return judged if given.priority is None else read_priority(given.priority)

    def _drop(self, enclosed: tuple[Enclosed, ...]) -> None:
        if enclosed:
            self._peik.spool.remove([one.blob for one in enclosed])

    # ---- straight through ----

    async def _pass(self, bot: BotRecord, name: str, kind: MethodClass | None, given: GatewayParams) -> GatewayAnswer:
        enclosures = [
            Enclosure(
                field=one.field,
                path=self._peik.spool.path_of(one.blob),
                filename=one.filename,
                content_type=one.content_type,
                size_bytes=one.size_bytes,
            )
            for one in given.enclosed
        ]
        patience = patience_with(name, kind)
        params = await self._service.provisional.translated(
            bot.bot_id, name, given.params, timeout_s=self._config.gateway_wait
        )
        reply = await self._peik.passthrough.carry(bot.token, name, params, patience=patience, enclosures=enclosures)
        return of_reply(reply)

    def _tell_answered(
        self, bot: BotRecord, consumer: str | None, name: str, given: GatewayParams, answer: GatewayAnswer
    ) -> None:
        trace = trace_in(given, bot.bot_id, consumer_of(consumer), self._peik.inbox.service.handed)
        if trace is not None:
            told = Answered(bot_id=bot.bot_id, method=name, trace=trace, is_taken=answer.status == 200)
            self._peik.events.tell(told)

    async def _get_me(self, ask: GatewayAsk) -> GatewayAnswer:
        """Telegram's answer; while it cannot be reached, what it said the last time: a bot must be able to start."""
        bot = ask.bot
        answer = await self._pass(bot, "getMe", MethodClass.READ, ask.given)
        if answer.status == 200:
            await self._tokens.learn(bot.bot_id, _result_of(answer.body))
        elif answer.status >= 500 and bot.me is not None:
            return success(bot.me.encode())
        return answer


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _place_of(error: BaseException) -> str:
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{last.filename}:{last.lineno}"


class _Result(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")


def _result_of(body: bytes) -> bytes:
    """The result in an answer; nothing if it only begins like one."""
    try:
        return bytes(msgspec.json.decode(body, type=_Result).result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b""


_JSON = (b"content-type", b"application/json")


async def respond(send: Send, answer: GatewayAnswer) -> None:
    length = (b"content-length", b"%d" % len(answer.body))
    await send({"type": "http.response.start", "status": answer.status, "headers": [_JSON, length, *answer.headers]})
    await send({"type": "http.response.body", "body": answer.body})
