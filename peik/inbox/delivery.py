"""Handing on one arrival: to a handler in this process or to an address, the verdict, and what the verdict costs."""

import asyncio
import re
import traceback
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Protocol

import msgspec

from peik.clock import Clock
from peik.core.address import AddressReach
from peik.core.arrival import Arrival
from peik.core.events import AnswerIgnored, Events, StoreFailed
from peik.core.letter import Chat
from peik.core.methods import is_method_name
from peik.core.token import without_tokens
from peik.core.trace import HEADER, trace_of, under
from peik.errors import BadInput, Conflict, Problem, StoreUnavailable
from peik.inbox.store import Consumer, PushAnswer, PushHealth, PushPort

WORDS_MAX = 500


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The taker has it."""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The taker could not do it: it costs the arrival a try."""

    words: str
    code: int | None = None
    trace: str | None = None


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """There was no taker: nothing that the arrival is to blame for."""

    why: str
    wait_s: float | None = None  # it asked for so much time


Verdict = Done | Failed | Away


class Taker(Protocol):
    async def deliver(self, arrival: Arrival, *, tries: int) -> Verdict:
        """Hand one on and say what came of it. Bounded in time; it raises only for surprises."""


# The same updates with the message ids that their bot was told; see `peik.outbox.provisional`.
AsTold = Callable[[int, Sequence[Arrival]], Awaitable[list[Arrival]]]


async def as_they_came(bot_id: int, arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Of a bot that was told nothing else."""
    return list(arrivals)


class DeliveryPatience(msgspec.Struct, frozen=True, kw_only=True):
    """How often an arrival is tried, and the wait after the first failure; it doubles up to a minute."""

    attempts: int
    first_ms: int


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of an arrival's history. Fields of letters' histories have the same names."""

    at: int
    outcome: str
    code: int | None = None
    words: str
    traceback: str | None = None


def line_of(failed: Failed, *, at_ms: int) -> str:
    line = _Line(at=at_ms, outcome="failed", code=failed.code, words=failed.words[:WORDS_MAX], traceback=failed.trace)
    return msgspec.json.encode(line).decode()


# Tells a user (bot, user, chat, language), once, that what he writes is read more slowly than he writes it.
TellLimited = Callable[[int, int, Chat, str | None], Awaitable[None]]


async def tell_nobody(bot_id: int, user_id: int, chat: Chat, language_code: str | None) -> None:
    """The default: the event is enough."""


class _Person(msgspec.Struct):
    language_code: str | None = None


class _Sent(msgspec.Struct, rename={"sender": "from"}):
    sender: _Person | None = None
    user: _Person | None = None


_decode_sent = msgspec.json.Decoder(dict[str, _Sent]).decode


def language_of(arrival: Arrival) -> str | None:
    """What Telegram says of the user's language, if it does."""
    try:
        sent = _decode_sent(arrival.payload).get(arrival.type)
    except msgspec.DecodeError:
        return None
    person = None if sent is None else sent.sender or sent.user
    return None if person is None else person.language_code


# Arrivals for functions in this process: each gets its time, and what it raises becomes the arrival's history.


BACKOFF_MS = 2000
TRACE_CHARS_MAX = 4000  # the end of it, which is where the error is

Handle = Callable[[Arrival, int], Awaitable[None]]  # the arrival, and how many tries have failed


def patience_of(attempts: int) -> DeliveryPatience:
    return DeliveryPatience(attempts=attempts, first_ms=BACKOFF_MS)


class Absent(Exception):
    """What a `Handle` raises if there is nobody to hand on to just now. No try is used up."""


class InProcess:
    """A taker of arrivals."""

    def __init__(self, handle: Handle, *, timeout_s: float, as_told: AsTold = as_they_came) -> None:
        self._handle = handle
        self._as_told = as_told
        self._timeout_s = timeout_s

    async def deliver(self, arrival: Arrival, *, tries: int) -> Verdict:
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                with under(trace_of(arrival.bot_id, arrival.number)):
                    (told,) = await self._as_told(arrival.bot_id, [arrival])
                    await self._handle(told, tries)
        except StoreUnavailable as error:
            return Away(why=error.detail)  # it is ours to mend, and no fault of the arrival
        except Absent as error:
            return Away(why=str(error))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return _failed(error, "it was cancelled from within")
        except TimeoutError as error:
            return _failed(error, f"no end within {self._timeout_s:g} s" if limit.expired() else None)
        except Exception as error:  # noqa: BLE001  whatever a handler raises is its own
            return _failed(error, None)
        return Done()


def _failed(error: BaseException, words: str | None) -> Failed:
    text = "".join(traceback.format_exception(error))
    return Failed(
        words=without_tokens(words or f"{type(error).__name__}: {error}".removesuffix(": ")),
        trace=without_tokens(text)[-TRACE_CHARS_MAX:],
    )


# The call that a bot may put into its answer to a pushed update, as at Telegram. Reading only.
#
# See docs/telegram.md, Methods in webhook answers.


# What a bot may not ask for this way: its own inbox, and what answers with something that nobody would read.
_NEVER = frozenset({"setwebhook", "deletewebhook", "close", "logout"})
_FIELD = re.compile(rb'[;\s]name="([^"\r\n]{1,128})"')
_FILE = re.compile(rb"[;\s]filename\*?=")

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def read_answer(body: bytes) -> tuple[str, bytes] | None:
    """The method and its parameters as a JSON object; None if nothing is asked for. Raises BadInput if it is no call."""
    start = body.lstrip()[:1]
    if start == b"{":
        return _from_json(body)
    if body.startswith(b"--"):
        return _checked(_from_form(body))
    if b"method=" in body:
        return _checked(_from_query(body))
    return None


def _from_json(body: bytes) -> tuple[str, bytes] | None:
    try:
        fields = _decode_object(body)
        raw = fields.pop("method", None)
        method = None if raw is None else _decode_text(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _bad("it is not a JSON object with the name of a method") from None
    return None if method is None else (_allowed(method), msgspec.json.encode(fields))


def _from_query(body: bytes) -> dict[str, str]:
    try:
        return dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=256))
    except ValueError:
        raise _bad("it is not a form") from None


def _from_form(body: bytes) -> dict[str, str]:
    """multipart/form-data, whose first line is its boundary: what aiogram answers."""
    boundary = body.split(b"\r\n", 1)[0]
    fields: dict[str, str] = {}
    for part in body.split(boundary)[1:-1]:
        head, _, value = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if _FILE.search(head):
            raise _bad("it carries a file; send files as letters of their own")
        name = _FIELD.search(head)
        if name is None:
            raise _bad("it is not a form")
        try:
            fields[name[1].decode()] = value.removesuffix(b"\r\n").decode()
        except UnicodeDecodeError:
            raise _bad("it is not text") from None
    return fields


def _checked(fields: dict[str, str]) -> tuple[str, bytes] | None:
    method = fields.pop("method", None)
    return None if method is None else (_allowed(method), msgspec.json.encode(fields))


def _allowed(method: str) -> str:
    lowered = method.lower()
    if not is_method_name(method) or lowered in _NEVER or lowered.startswith("get"):
        raise _bad(f"{method[:64]!r} is not called by an answer")
    return method


def _bad(why: str) -> BadInput:
    return BadInput(code="bad_answer", detail=f"The answer to the push cannot be a call: {why}.")


# Arrivals for bots behind an address: one POST each, as Telegram makes it. A call in the answer goes to the outbox.
#
# It is accepted there before the arrival is settled, under a key of its own: a crash neither loses it nor sends it
# twice.


TRY_S = 60.0  # as Telegram waits (docs/telegram.md, Webhook delivery)
PATIENCE = DeliveryPatience(attempts=30, first_ms=1000)
RETRY_S = 2.0
# Somebody answers in the bot's place that it is not there, or that it wants to be left alone for a while.
AWAY_STATUS = frozenset({429, 502, 503, 504})
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  the name of a header

# Where calls go: bot, method, params and idempotency key. Raises BadInput if it cannot be one, and Conflict if the key was used
# for another.
Accept = Callable[[int, str, bytes, str], Awaitable[None]]


class PushTaker:
    """A taker of arrivals."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        pusher: PushPort,
        reach_of: Callable[[int], Awaitable[AddressReach]],
        accept: Accept,
        events: Events,
        clock: Clock,
        health: PushHealth,
        as_told: AsTold = as_they_came,
    ) -> None:
        assert consumer.url is not None
        self._consumer = consumer
        self._url = consumer.url
        self._headers = {} if consumer.secret is None else {SECRET_HEADER: consumer.secret}
        self._pusher = pusher
        self._reach_of = reach_of
        self._accept = accept
        self._events = events
        self._clock = clock
        self._health = health
        self._as_told = as_told

    async def deliver(self, arrival: Arrival, *, tries: int) -> Verdict:
        trace = trace_of(arrival.bot_id, arrival.number)
        headers = {**self._headers, HEADER: trace}
        try:
            reach = await self._reach_of(
                arrival.bot_id
            )  # now: it may have become the owner's, or have come anew by itself
            (told,) = await self._as_told(arrival.bot_id, [arrival])  # here: the store may be away for this, too
        except StoreUnavailable as error:
            return Away(why=error.detail, wait_s=RETRY_S)
        pushed = await self._pusher.push(self._url, headers, told.wire(), timeout_s=TRY_S, reach=reach)
        verdict = _judge(pushed)
        failure = None if isinstance(verdict, Done) else _error_of(pushed)
        self._health.note(pushed, error=failure, at_ms=self._clock.wall_ms())
        if isinstance(verdict, Done) and pushed.body:
            with under(trace):
                await self._take_call(arrival, pushed.body)
        return verdict

    async def _take_call(self, arrival: Arrival, body: bytes) -> None:
        try:
            call = read_answer(body)
            if call is not None:
                await self._surely_accept(arrival, *call)
        except Conflict:
            return  # it had answered once before, with other words, and those were taken
        except Problem as problem:
            self._events.tell(
                AnswerIgnored(
                    bot_id=arrival.bot_id, consumer=self._consumer.name, arrival_id=arrival.id, why=problem.detail
                )
            )

    async def _surely_accept(self, arrival: Arrival, method: str, params: bytes) -> None:
        """Until the store takes it: the bot said it once, and will not say it again."""
        key = f"push:{self._consumer.id}:{arrival.number}"
        while True:
            try:
                return await self._accept(arrival.bot_id, method, params, key)
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="a call in the answer to a push", why=error.detail))
                await asyncio.sleep(RETRY_S)


def _judge(pushed: PushAnswer) -> Verdict:
    if 200 <= pushed.status < 300:
        return Done()
    why = f"it answered {pushed.status}" if pushed.status else pushed.why
    if not pushed.status or pushed.status in AWAY_STATUS:
        return Away(why=why, wait_s=pushed.retry_after_s)
    return Failed(words=why, code=pushed.status)


def _error_of(pushed: PushAnswer) -> str:
    """In Telegram's words where it has some: what is said of a webhook is read by people who know them."""
    if not pushed.status:
        return pushed.why
    known = {status.value: status.phrase for status in HTTPStatus}
    return f"Wrong response from the webhook: {pushed.status} {known.get(pushed.status, '')}".rstrip()
