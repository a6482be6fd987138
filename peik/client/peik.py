"""The library: `Peik.open` runs the courier in this process, `Peik.connect` asks one over REST. The same methods on both, and on
`BlockingPeik` for programs without an event loop."""

import asyncio
import functools
import inspect
import os
import ssl
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from peik.client.accounts import AccountCalls
from peik.client.broadcasts import Broadcasts, Schedules
from peik.client.handlers import AnyHandler, Handlers
from peik.client.jobs import GivenKind, JobCalls
from peik.client.letters import LetterCalls, SendCalls
from peik.client.people import OutreachCalls
from peik.errors import Unavailable

if TYPE_CHECKING:
    from peik.client.transport import Transport

T = TypeVar("T")
_ALSO = {"api_id": "telegram_api_id", "api_hash": "telegram_api_hash"}  # as every MTProto library calls them


class Peik(SendCalls, LetterCalls, AccountCalls, JobCalls, OutreachCalls):
    """A courier for Telegram. Every method that sends returns after a durable commit: what it returned a letter for will
    be delivered, or its failure will be seen, whatever crashes from then on.

    With `wait=` (seconds) a method that sends answers with the receipt instead: once Telegram has answered, or as the
    letter stands when the time is over. A letter that has failed by then raises `Refused`; one that failed as
    "uncertain" does not, since it may have arrived. Whoever stops waiting takes nothing back: the letter goes on.

    Raised are the problems of `peik.errors`: BadInput, NotFound, Conflict, TooLarge, Unavailable; over REST also Denied.
    """

    def __init__(self, transport: "Transport") -> None:
        self._transport = transport
        self._is_open = False
        self._handlers = Handlers(self)
        self.broadcasts = Broadcasts(self._open_transport)
        self.schedules = Schedules(self._open_transport)

    @classmethod
    def open(
        cls,
        store: str | None = None,
        *,
        token: str | Sequence[str] | None = None,
        **settings: str | float | bool | Path,
    ) -> Self:
        """Peik in this process, on one store: `async with Peik.open("sqlite:///peik.db", token=TOKEN) as peik:`.

        Several processes may open one file. One of them owns it and sends; the others accept durably, read and wait, and
        one of them takes over when the owner ends. Settings are those of docs/reference/settings.md by their names in
        lower case (`api_root=…`, `pace=False`); what is not given comes from the environment as for `peik serve`.
        With `api_id` and `api_hash` (of your application at my.telegram.org) Peik also signs in as accounts of people; they
        and what they see are kept in `archive=…`, by default beside the store.
        Entering raises StartError with what to do; leaving finishes what is in flight, and the rest waits in the store.
        """
        from peik.client.local import LocalTransport

        tokens = token if token is None or isinstance(token, str) else ",".join(token)
        told = {_ALSO.get(name, name): _setting(value) for name, value in settings.items()}
        # A program that only sends must not take the bot's updates: they are polled for once it has a handler.
        settled = {"store": store, "bot_tokens": tokens, "inbound": "off", **told}
        return cls(LocalTransport(settled, may_poll="inbound" not in told))

    @classmethod
    def connect(cls, url: str, *, key: str, ssl_context: ssl.SSLContext | None = None) -> Self:
        """A `peik serve` over REST: `async with Peik.connect("http://127.0.0.1:8081", key=KEY) as peik:`.

        Certificates are verified; `ssl_context` is for a certificate authority of your own. While the server cannot be
        reached, methods raise Unavailable: "unreachable" if nothing was accepted, "no_answer" if it may have been, and
        then a repeat with the same `idempotency_key` is safe. `wait` rides through a restart of the server.
        """
        from peik.client.remote import RemoteTransport

        return cls(RemoteTransport(url, key, ssl_context))

    async def __aenter__(self) -> Self:
        await self._transport.open()
        self._is_open = True
        try:
            if self._handlers:
                self._transport.serve(self._handlers)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """The same as leaving `async with`, for programs that open in one place and close in another."""
        if self._is_open:
            try:
                await self._transport.close()  # handlers that are still at work may send until it is closed
            finally:
                self._is_open = False

    # ---- receiving ----

    @overload
    def on_update(self, handler: AnyHandler, /) -> AnyHandler: ...
    @overload
    def on_update(
        self, *types: str, bot_id: int | None = None, consumer: str | None = None
    ) -> Callable[[AnyHandler], AnyHandler]: ...
    def on_update(self, *types: Any, bot_id: int | None = None, consumer: str | None = None) -> Any:
        """Register an async function for updates: `@peik.on_update("message", "callback_query")`, or all without types.

        An update is over when every handler that wants it has returned, one after another in the order in which they
        were registered. If one raises, or the process dies, it is handed on again, five times in all (settings
        `handler_attempts`, `handler_timeout`), and then kept as a dead arrival. Updates of one chat come one at a time
        and in order; those of other chats meanwhile. Each `consumer` has a cursor of its own.
        """
        if len(types) == 1 and callable(types[0]):
            self._register(types[0], (), bot_id, consumer)
            return types[0]

        def register(handler: AnyHandler) -> AnyHandler:
            self._register(handler, types, bot_id, consumer)
            return handler

        return register

    def _register(self, handler: Any, types: Sequence[str], bot_id: int | None, consumer: str | None) -> None:
        self._handlers.add(handler, types, bot_id, consumer)
        if self._is_open:
            self._transport.serve(self._handlers)

    async def run(self) -> None:
        """Until SIGINT or SIGTERM, or until cancelled: for programs that only handle updates. Leave `async with` then."""
        await self._open_transport().until_stopped()

    # ---- people ----

    async def forget(
        self,
        user_id: int | None = None,
        *,
        name: str | None = None,
        bot_id: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Remove a person's data everywhere: what went, place by place, and which backups still hold it. By Telegram's user id,
        or by your own name of a linked user. See docs/forget.md."""
        from peik.erasure.api import FORGET_S, ErasureApi, ForgetEverywhereBody

        body = ForgetEverywhereBody(user_id=user_id, name=name, bot_id=bot_id, dry_run=dry_run)
        return await self._open_transport().ask(ErasureApi.forget, into=dict[str, Any], timeout_s=FORGET_S, body=body)

    # ---- jobs: see JobCalls ----

    def _works(self, kind: GivenKind) -> None:
        self._transport.work(kind)

    def _open_transport(self) -> "Transport":
        if not self._is_open:
            raise Unavailable(code="closed", detail="This Peik is not open: use it within `async with`.")
        return self._transport


def _setting(value: str | float | bool | Path) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


class BlockingPeik:
    """`Peik.connect` for code that is not async (Flask, Celery, scripts): `peik = BlockingPeik.connect(URL, key=KEY)`, then the
    methods of `Peik` without `await`: `peik.send_text(42, "Hello")`. Their async iterators are plain ones here.

    One thread runs an event loop; calls of any number of threads wait for it. It begins at the first call, and anew after a
    fork, so it may be a global of a program whose workers are forked (Celery, gunicorn). Raises what `Peik` raises.
    """

    def __init__(self, url: str, *, key: str, ssl_context: ssl.SSLContext | None = None) -> None:
        self._made = functools.partial(Peik.connect, url, key=key, ssl_context=ssl_context)
        self._begin()
        # The child of a fork has neither the thread nor a lock that anybody would open.
        os.register_at_fork(after_in_child=functools.partial(_once_more, weakref.WeakMethod(self._begin)))

    @classmethod
    def connect(cls, url: str, *, key: str, ssl_context: ssl.SSLContext | None = None) -> Self:
        """As `Peik.connect`. Nothing is asked before the first call."""
        return cls(url, key=key, ssl_context=ssl_context)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._opened: tuple[asyncio.AbstractEventLoop, Peik] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends connections and thread. A later call begins anew."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            loop, peik = opened
            asyncio.run_coroutine_threadsafe(peik.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def run(self, work: Callable[[Peik], Awaitable[T]]) -> T:
        """What an async function of yours answers that is given the `Peik`: for several calls at once, or in one go."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("An event loop runs here, and a call that blocks would stop it: use Peik and await.")
        loop, peik = self._open()

        async def working() -> T:
            return await work(peik)

        future = asyncio.run_coroutine_threadsafe(working(), loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C, or whatever ends the caller's wait: nobody waits for the answer any more
            future.cancel()
            raise

    def _open(self) -> "tuple[asyncio.AbstractEventLoop, Peik]":
        with self._lock:
            if self._opened is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=_looping, args=(loop,), name="peik", daemon=True).start()
                peik = self._made()
                asyncio.run_coroutine_threadsafe(peik.__aenter__(), loop).result()
                self._opened = loop, peik
            return self._opened

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = getattr(Peik, name, None)
        if name.startswith("_") or not (inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)):
            raise AttributeError(
                f"BlockingPeik has no {name!r}. Broadcasts, schedules and handlers: see run(), or use Peik."
            )

        @functools.wraps(found)
        def call(*given: Any, **named: Any) -> Any:
            async def begun(peik: Peik) -> Any:
                answer = found(peik, *given, **named)
                return await answer if inspect.isawaitable(answer) else answer

            answer = self.run(begun)
            return self._each(answer) if isinstance(answer, AsyncIterator) else answer

        return call

    def _each(self, answers: AsyncIterator[T]) -> Iterator[T]:
        async def following(_: Peik) -> tuple[T, ...]:
            async for answer in answers:
                return (answer,)
            return ()

        while found := self.run(following):
            yield from found


def _once_more(reference: "weakref.WeakMethod[Callable[[], None]]") -> None:
    begin = reference()
    if begin is not None:
        begin()


def _looping(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
