"""Pyrogram and its forks (kurigram, pyrofork): what a bot handled is noted, what it missed is handed to its own handlers.

It hooks into the client's dispatcher, through the seams that all three have: the table of parsers, through which every
update goes into the handlers, and the queue, to which a worker comes back when the handlers of an update have ended.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

import pyrogram
from pyrogram import handlers, raw, types, utils
from pyrogram.raw.core import TLObject

from peik.client.peik import Peik
from peik.errors import StartError
from peik.inbox.delivery import Absent
from peik.integrations import mtproto
from peik.integrations.mtproto import (
    HandledWatch,
    Hold,
    Item,
    get_last_update_id,
    get_pending_messages,
    mark_message_processed,
    save_last_update_id,
    save_pending_message,
)
from peik.integrations.tl import Json, Schema, TlParcel, translate

__all__ = [
    "get_last_update_id",
    "get_pending_messages",
    "mark_message_processed",
    "note_handled",
    "recover_missed_messages",
    "save_last_update_id",
    "save_pending_message",
]

_SCHEMA = Schema(raw.types, reread=lambda made: TLObject.read(BytesIO(made.write())))

_NEW = (raw.types.UpdateNewMessage, raw.types.UpdateNewChannelMessage)
_EDITED = (raw.types.UpdateEditMessage, raw.types.UpdateEditChannelMessage)
_PRESS = raw.types.UpdateBotCallbackQuery

# What each fork calls when a handler has raised, and which argument is the exception.
_ERROR_HOOKS = (("handle_update_handler_exception", 0), ("_handle_exception", 1))


def note_handled(client: pyrogram.Client, peik: Peik, *, bot_id: int | None = None) -> None:
    """Note every message whose handlers ran without error, so that a later recovery does not hand it over again.

    Call it before `client.start()`, once. Notes are durable moments after the handlers; stopping the client writes the
    last ones. If that fails the log says so, and the bot goes on.
    """
    mtproto.attach(client, _attach, peik=peik, bot_id=bot_id)


async def recover_missed_messages(
    client: pyrogram.Client,
    bot_token: str,
    *,
    store: str | None = None,
    policy: str | None = None,
    peik: Peik | None = None,
    **settings: str | float | bool,
) -> int:
    """Hand what the bot missed while it was away to the client's own handlers, in order per chat, and tell its senders: how many
    messages were handled, or, where they are not to be, told of.

    Call it after `client.start()`. Any absence counts, however short. What Telegram has kept is fetched by the Bot API, stored,
    and only then confirmed; what was noted as handled is left out. A handler that raises is tried again, and the message is a
    dead arrival after the last try. From the first call on what the client handles is noted too (`note_handled`).

    `store` and `settings` are those of `Peik.open`, which stays open until the client stops; or give an open `peik`.
    `policy` is what becomes of missed messages: process, notify, both or drop. None: as set for the bot or by PEIK_MISSED, and
    else both: they are handled, and each chat is told once. PEIK_MISSED_AFTER, if it is set, leaves out short absences.
    """
    return await mtproto.recover(client, _attach, bot_token, store=store, policy=policy, peik=peik, settings=settings)


def _attach(client: pyrogram.Client, watch: HandledWatch, on_stop: Callable[[], Awaitable[None]]) -> "_Dispatching":
    return _Dispatching(client, watch, on_stop)


class _Work:
    """One update in the hands of one worker of the client."""

    __slots__ = ("error", "handed", "hold")

    def __init__(self, hold: Hold, handed: "_Handed | None") -> None:
        self.hold = hold
        self.handed = handed
        self.error: BaseException | None = None


class _Handed:
    """An update that we put into the client's queue ourselves, and who waits for its handlers to end."""

    __slots__ = ("ended", "hold", "kind", "parcel")

    def __init__(self, hold: Hold, kind: str, parcel: TlParcel) -> None:
        self.hold = hold
        self.kind = kind
        self.parcel = parcel
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Dispatching:
    """The hooks in one client's dispatcher."""

    def __init__(self, client: pyrogram.Client, watch: HandledWatch, on_stop: Callable[[], Awaitable[None]]) -> None:
        self._client = client
        self._watch = watch
        self._at_work: dict[asyncio.Task[Any], _Work] = {}
        self._handed: dict[int, _Handed] = {}  # by the identity of the raw update
        self._is_stopping = False
        self._hook(client.dispatcher, on_stop)

    @property
    def bot_id(self) -> int | None:
        client = self._client
        if client.bot_token:
            return mtproto.bot_id_of(client.bot_token)
        return None if client.me is None else int(client.me.id)

    async def prepare(self) -> None:
        """Nothing to wait for: what the client catches up with by itself goes through the same queue and is watched."""
        if not self._client.dispatcher.handler_worker_tasks:
            raise StartError("The client takes no updates. Call client.start() first, and make it without no_updates.")

    async def hand(self, kind: str, body: Json, bot_id: int) -> bool:
        """Run the client's handlers for one update of the Bot API. Raises what they raise; False if they had it already."""
        dispatcher = self._client.dispatcher
        if self._is_stopping or not dispatcher.handler_worker_tasks:
            raise Absent("the client was stopped")
        parcel = translate(_SCHEMA, kind, body, bot_id=bot_id)
        item = _item(parcel.update)
        assert item is not None, "only messages and presses are translated"
        hold = await self._watch.begin_recovered(item)
        if hold is None:
            return False
        handed = self._handed[id(parcel.update)] = _Handed(hold, kind, parcel)
        dispatcher.updates_queue.put_nowait((parcel.update, parcel.users, parcel.chats))
        await handed.ended
        return True

    # ---- hooks ----

    def _hook(self, dispatcher: Any, on_stop: Callable[[], Awaitable[None]]) -> None:
        try:
            parsers, queue, stop = dispatcher.update_parsers, dispatcher.updates_queue, dispatcher.stop
        except AttributeError as error:
            raise StartError(
                f"This Pyrogram ({pyrogram.__version__}) is built differently: {error}. Known to work: kurigram 2.2."
            ) from None
        get = queue.get

        async def get_and_end() -> Any:
            """A worker asks for its next update: whatever it had is over."""
            self._end()
            return await get()

        async def stop_and_flush(*args: Any, **more: Any) -> None:
            self._is_stopping = True
            try:
                await stop(*args, **more)
            finally:
                self._is_stopping = False
                await on_stop()

        for kind in (*_NEW, *_EDITED, _PRESS):
            parsers[kind] = self._watched(parsers[kind])
        queue.get = get_and_end
        dispatcher.stop = stop_and_flush
        self._hook_errors(dispatcher)

    def _hook_errors(self, dispatcher: Any) -> None:
        for name, place in _ERROR_HOOKS:
            told = getattr(dispatcher, name, None)
            if told is not None:
                setattr(dispatcher, name, self._noticing(told, place))
                return
        # Pyrogram itself only writes a handler's exception to its log.
        logging.getLogger("pyrogram.dispatcher").addFilter(self._notice_record)

    def _noticing(self, told: Callable[..., Awaitable[None]], place: int) -> Callable[..., Awaitable[None]]:
        async def notice(*args: Any) -> None:
            self._failed(args[place])
            await told(*args)

        return notice

    def _notice_record(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            self._failed(record.exc_info[1])
        return True

    def _watched(self, parse: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(update: Any, users: dict[int, Any], chats: dict[int, Any]) -> Any:
            handed = self._handed.pop(id(update), None)
            item = _item(update)
            if item is None:
                return await parse(update, users, chats)
            hold = self._watch.begin(item) if handed is None else handed.hold
            if hold is None:
                return None, type(None)  # as the dispatcher says of what has no handlers
            work = self._at_work[_task()] = _Work(hold, handed)
            try:
                if handed is not None and (made := await self._parse(handed)) is not None:
                    return made
                return await parse(update, users, chats)
            except Exception as error:
                work.error = error
                raise

        return watched

    async def _parse(self, handed: _Handed) -> Any:
        """Our own update without what the parser of the dispatcher asks Telegram for: that is all here. None: it can do."""
        parcel = handed.parcel
        if handed.kind == "callback_query":
            await self._message(parcel.message, parcel)  # into the client's cache, where a query's parser looks first
            return None
        message = await self._message(parcel.message, parcel)
        message.reply_to_message = await self._message(parcel.reply, parcel)
        is_edit = handed.kind.startswith("edited_")
        return message, handlers.EditedMessageHandler if is_edit else handlers.MessageHandler

    async def _message(self, made: Any, parcel: TlParcel) -> Any:
        if made is None:
            return None
        return await types.Message._parse(self._client, made, parcel.users, parcel.chats, replies=0)

    def _failed(self, error: BaseException) -> None:
        try:
            work = self._at_work.get(_task())
        except RuntimeError:
            return  # logged outside of any event loop: none of ours
        if work is not None:
            work.error = error

    def _end(self) -> None:
        work = self._at_work.pop(_task(), None)
        if work is None:
            return
        self._watch.end(work.hold, is_handled=work.error is None)
        if work.handed is None or work.handed.ended.done():
            return
        if work.error is None:
            work.handed.ended.set_result(None)
        else:
            work.handed.ended.set_exception(work.error)


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _item(update: Any) -> Item | None:
    """What this update is about, if it is something that the Bot API would tell too."""
    if isinstance(update, _PRESS):
        return Item(query_id=update.query_id)
    message = update.message
    if isinstance(message, raw.types.MessageEmpty) or message.out:
        return None
    edited_at = message.edit_date if isinstance(update, _EDITED) else None
    return Item(chat=utils.get_peer_id(message.peer_id), message_id=message.id, edited_at=edited_at or 0)
