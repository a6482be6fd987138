"""aiogram with Peik in the same process: a session whose calls go to Peik's gateway without HTTP, and a feed of updates
that are acknowledged when the dispatcher has handled them.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import aiohttp
from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramNetworkError
from aiogram.methods import TelegramMethod
from aiogram.methods.base import TelegramType
from aiogram.types import InputFile, Update
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from peik.client.peik import Peik
from peik.integrations.inprocess import CutShort, GatewayUpload, LocalGateway, UpdateFeed, hand_on, whose

# Nothing is ever sent to this address; aiogram builds the addresses of files with it, and we know them by it.
_ROOT = "http://peik.invalid"
_FILES = f"{_ROOT}/file/"


class PeikSession(AiohttpSession):
    """`Bot(token, session=PeikSession(peik))`: all calls of the bot go through an open `Peik.open`, in this process.

    Results and exceptions are aiogram's own. How long a call waits is Peik's affair (`gateway_wait` for sends); a
    `request_timeout` that is given to a call ends the waiting, never the letter. What is to be fetched from elsewhere
    (`URLInputFile`) still goes over HTTP.
    """

    def __init__(self, peik: Peik, **more: Any) -> None:
        super().__init__(api=TelegramAPIServer.from_base(_ROOT), **more)
        self._peik = LocalGateway(peik)

    async def make_request(
        self, bot: Bot, method: TelegramMethod[TelegramType], timeout: int | None = None
    ) -> TelegramType:
        files: dict[str, InputFile] = {}
        fields = {
            name: prepared
            for name, value in method.model_dump(warnings=False).items()
            if (prepared := self.prepare_value(value, bot=bot, files=files))
        }
        uploads = [
            GatewayUpload(
                field=name,
                filename=file.filename or name,
                content_type="application/octet-stream",
                chunks=file.read(bot),
            )
            for name, file in files.items()
        ]
        try:
            async with asyncio.timeout(timeout):
                answer = await self._peik.call(bot.token, method.__api_method__, fields, uploads)
        except TimeoutError as error:
            raise TelegramNetworkError(method=method, message="Request timeout error") from error
        except aiohttp.ClientError as error:  # a file that was to come from elsewhere
            raise TelegramNetworkError(method=method, message=f"{type(error).__name__}: {error}") from error
        response = self.check_response(bot=bot, method=method, status_code=answer.status, content=answer.body.decode())
        return cast(TelegramType, response.result)

    async def stream_content(
        self,
        url: str,
        headers: dict[str, Any] | None = None,
        timeout: int = 30,
        chunk_size: int = 65536,
        raise_for_status: bool = True,
    ) -> AsyncGenerator[bytes, None]:
        if not url.startswith(_FILES):
            async with aclosing(super().stream_content(url, headers, timeout, chunk_size, raise_for_status)) as stream:
                async for chunk in stream:
                    yield chunk
            return
        path = unquote(urlsplit(url).path)
        async with self._peik.download(path, timeout_s=timeout) as incoming:
            if raise_for_status and incoming.status >= 400:
                raise _refused(incoming.status)
            try:
                async for chunk in incoming.chunks():
                    for begin in range(0, len(chunk), chunk_size):
                        yield chunk[begin : begin + chunk_size]
            except CutShort as error:
                raise aiohttp.ClientPayloadError(str(error)) from error


def _refused(status: int) -> aiohttp.ClientResponseError:
    """What aiogram's own session raises; without the address, which holds the token."""
    asked = aiohttp.RequestInfo(URL(_FILES), "GET", CIMultiDictProxy(CIMultiDict()), URL(_FILES))
    return aiohttp.ClientResponseError(asked, (), status=status, message="the file is not to be had")


async def feed(
    peik: Peik,
    dispatcher: Dispatcher,
    *bots: Bot,
    allowed_updates: Sequence[str] | None = None,
    handle_signals: bool = True,
    close_bot_session: bool = True,
    **data: Any,
) -> None:
    """Stands in for `dispatcher.start_polling(*bots)`: an update is acknowledged when its handlers have returned.

    If they raise, it is tried again, and is a dead arrival after the last try; what `dispatcher.errors` handles counts as
    handled. After a crash the updates that were not handled to their end come again. Updates of one chat come one after
    another, those of different chats side by side. Runs until SIGINT or SIGTERM, until it is cancelled or Peik is closed.
    """
    if not bots:
        raise ValueError("At least one bot is needed.")
    known = {"dispatcher": dispatcher, "bots": bots, **dispatcher.workflow_data, **data}
    known.pop("bot", None)
    allowed = frozenset(dispatcher.resolve_used_update_types() if allowed_updates is None else allowed_updates)

    def feed_of(bot: Bot) -> UpdateFeed:
        async def handle(body: dict[str, Any]) -> None:
            update = Update.model_validate(body, context={"bot": bot})
            result = await dispatcher.feed_update(bot, update, **known)
            if isinstance(result, TelegramMethod):  # a handler may return a call instead of making it
                await dispatcher.silent_call_request(bot, result)

        token, consumer = whose(bot.token)
        return UpdateFeed(token=token, consumer=consumer, handle=handle, allowed=allowed)

    feeds = [feed_of(bot) for bot in bots]
    await dispatcher.emit_startup(bot=bots[-1], **known)
    try:
        await hand_on(peik, feeds, handle_signals=handle_signals)
    finally:
        try:
            await dispatcher.emit_shutdown(bot=bots[-1], **known)
        finally:
            if close_bot_session:
                await asyncio.gather(*(bot.session.close() for bot in bots))
