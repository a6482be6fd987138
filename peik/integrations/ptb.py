"""python-telegram-bot with Peik in the same process: requests that go to Peik's gateway without HTTP, and a feed of updates
that are acknowledged when the application has processed them.
"""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote, urlsplit

from telegram import Update
from telegram.error import NetworkError, TimedOut
from telegram.ext import Application, CallbackContext
from telegram.request import BaseRequest, RequestData

from peik.client.calls import FileParcel, chunks
from peik.client.peik import Peik
from peik.errors import Problem
from peik.integrations.inprocess import CutShort, GatewayUpload, LocalGateway, UpdateFeed, hand_on, whose

# Only the library's arithmetic for long polls needs a figure: it adds their own time to this. How long anything else may
# take is bounded by Peik, and never by less than this.
READ_TIMEOUT_S = 90.0


class PeikRequest(BaseRequest):
    """`ApplicationBuilder().request(…).get_updates_request(…)`: all calls go through an open `Peik.open`, in this process.

    Results and exceptions are the library's own. How long a call waits is Peik's affair (`gateway_wait` for sends); a
    `read_timeout` that is given to a call ends the waiting, never the letter.
    """

    def __init__(self, peik: Peik) -> None:
        self._peik = LocalGateway(peik)

    @property
    def read_timeout(self) -> float | None:
        return READ_TIMEOUT_S

    async def initialize(self) -> None:
        """Nothing is opened here: the caller that opened Peik closes it."""

    async def shutdown(self) -> None:
        """See initialize."""

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = BaseRequest.DEFAULT_NONE,
        write_timeout: Any = BaseRequest.DEFAULT_NONE,
        connect_timeout: Any = BaseRequest.DEFAULT_NONE,
        pool_timeout: Any = BaseRequest.DEFAULT_NONE,
    ) -> tuple[int, bytes]:
        path = unquote(urlsplit(url).path)
        timeout_s = None if read_timeout is BaseRequest.DEFAULT_NONE else read_timeout
        try:
            if path.startswith("/file/"):
                return await self._file(path, timeout_s)
            async with asyncio.timeout(timeout_s):
                return await self._call(path, request_data)
        except TimeoutError as error:
            raise TimedOut from error

    async def _call(self, path: str, data: RequestData | None) -> tuple[int, bytes]:
        token, _, method = path.removeprefix("/bot").partition("/")
        fields = {} if data is None else data.json_parameters
        files = {} if data is None else data.multipart_data
        uploads = [_upload(name, *file) for name, file in files.items()]
        answer = await self._peik.call(token, method, fields, uploads)
        return answer.status, answer.body

    async def _file(self, path: str, timeout_s: float | None) -> tuple[int, bytes]:
        try:
            async with self._peik.download(path, timeout_s=timeout_s) as incoming:
                return incoming.status, b"".join([chunk async for chunk in incoming.chunks()])
        except (CutShort, Problem) as error:
            raise NetworkError(str(error)) from error


def _upload(field: str, filename: str, content: Any, content_type: str) -> GatewayUpload:
    parcel = FileParcel(field=field, filename=filename, content_type=content_type, content=content)
    return GatewayUpload(field=field, filename=filename, content_type=content_type, chunks=chunks(parcel))


# What the handlers of the update at hand have raised. The application itself gives that to its error handlers only.
_raised: ContextVar[list[Exception]] = ContextVar("raised")


async def feed(
    peik: Peik,
    application: Application[Any, Any, Any, Any, Any, Any],
    *,
    allowed_updates: Sequence[str] | None = None,
    handle_signals: bool = True,
) -> None:
    """Stands in for `application.run_polling()`: an update is acknowledged when its handlers have returned.

    If one raises, the update is tried again, and is a dead arrival after the last try; unless an error handler raises
    ApplicationHandlerStop, which says that the error was dealt with. A handler with `block=False` counts as done when it
    has begun. After a crash the updates that were not processed to their end come again. Updates of one chat come one
    after another; how many chats at once says `concurrent_updates`. Starts and stops the application unless it runs
    already. Runs until SIGINT or SIGTERM, until it is cancelled or Peik is closed.
    """
    if application.running:
        await _feed(peik, application, allowed_updates, handle_signals=handle_signals)
        return
    async with application:
        if application.post_init is not None:
            await application.post_init(application)
        await application.start()
        try:
            await _feed(peik, application, allowed_updates, handle_signals=handle_signals)
        finally:
            await application.stop()
            if application.post_stop is not None:
                await application.post_stop(application)
    if application.post_shutdown is not None:
        await application.post_shutdown(application)


async def _feed(
    peik: Peik,
    application: Application[Any, Any, Any, Any, Any, Any],
    allowed_updates: Sequence[str] | None,
    *,
    handle_signals: bool,
) -> None:
    async def note(update: object, context: CallbackContext[Any, Any, Any, Any]) -> None:
        raised = _raised.get(None)
        if raised is not None and isinstance(context.error, Exception):
            raised.append(context.error)

    async def handle(body: dict[str, Any]) -> None:
        update = Update.de_json(body, application.bot)
        raised: list[Exception] = []
        _raised.set(raised)
        await application.update_processor.process_update(update, application.process_update(update))
        if raised:
            raise raised[0]

    token, consumer = whose(application.bot.token)
    feed = UpdateFeed(
        token=token,
        consumer=consumer,
        handle=handle,
        allowed=None if allowed_updates is None else frozenset(allowed_updates),
        at_once=max(1, application.concurrent_updates),
    )
    application.add_error_handler(note, block=True)
    try:
        await hand_on(peik, [feed], handle_signals=handle_signals)
    finally:
        application.remove_error_handler(note)
