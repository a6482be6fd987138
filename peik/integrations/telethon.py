"""Telethon: what a bot handled is noted, and what it missed is handed to its own event handlers.

Telethon can catch up by itself (`TelegramClient(…, catch_up=True)`), with its own objects; that goes first, and the Bot API
brings only what it left. It hooks into `_dispatch_update`, through which every update goes to the event handlers.
"""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import telethon
from telethon import TelegramClient, events, utils
from telethon.errors import AlreadyInConversationError, RPCError
from telethon.extensions import BinaryReader
from telethon.tl import types

from peik.client.peik import Peik
from peik.errors import StartError
from peik.inbox.delivery import Absent
from peik.integrations import mtproto
from peik.integrations.mtproto import (
    HandledWatch,
    Item,
    get_last_update_id,
    get_pending_messages,
    mark_message_processed,
    save_last_update_id,
    save_pending_message,
)
from peik.integrations.tl import Json, Schema, TlParcel, translate
from peik.monitoring.log_file import plain_log

__all__ = [
    "get_last_update_id",
    "get_pending_messages",
    "mark_message_processed",
    "note_handled",
    "recover_missed_messages",
    "save_last_update_id",
    "save_pending_message",
]

CATCH_UP_S = 60.0  # for Telethon's own catching up; what it brings later is noted as anything else
_LOOK_S = 0.05

_SCHEMA = Schema(
    types,
    reread=lambda made: BinaryReader(bytes(made)).tgread_object(),
    instant=lambda seconds: datetime.datetime.fromtimestamp(seconds, datetime.UTC),
)

# What we use of Telethon that it does not promise to keep.
_NEEDED = (
    "_catch_up",
    "_disconnect_coro",
    "_dispatch_update",
    "_event_builders",
    "_event_handler_tasks",
    "_message_box",
    "_self_id",
    "_updates_queue",
)


def note_handled(client: TelegramClient, peik: Peik, *, bot_id: int | None = None) -> None:
    """Note every message whose handlers ran without error, so that a later recovery does not hand it over again.

    Call it before `client.start()`, once. Notes are durable moments after the handlers; disconnecting writes the last
    ones. If that fails the log says so, and the bot goes on.
    """
    mtproto.attach(client, _attach, peik=peik, bot_id=bot_id)


async def recover_missed_messages(
    client: TelegramClient,
    bot_token: str,
    *,
    store: str | None = None,
    policy: str | None = None,
    peik: Peik | None = None,
    **settings: str | float | bool,
) -> int:
    """Hand what the bot missed while it was away to the client's own handlers, in order per chat, and tell its senders: how many
    messages were handled, or, where they are not to be, told of.

    Call it after `client.start()`. Any absence counts, however short. Telethon's own catching up is waited for first. Then what
    Telegram has kept is fetched by the Bot API, stored, and only then confirmed; what was noted as handled is left out. A handler
    that raises is tried again, and the message is a dead arrival after the last try. From the first call on what the client
    handles is noted too; with `catch_up=True` call `note_handled` before `client.start()`, so that nothing is handed over twice.

    `store` and `settings` are those of `Peik.open`, which stays open until the client disconnects; or give an open `peik`.
    `policy` is what becomes of missed messages: process, notify, both or drop. None: as set for the bot or by PEIK_MISSED, and
    else both: they are handled, and each chat is told once. PEIK_MISSED_AFTER, if it is set, leaves out short absences.
    """
    return await mtproto.recover(client, _attach, bot_token, store=store, policy=policy, peik=peik, settings=settings)


def _attach(client: TelegramClient, watch: HandledWatch, on_stop: Callable[[], Awaitable[None]]) -> "_Dispatching":
    missing = [name for name in _NEEDED if not hasattr(client, name)]
    if missing:
        raise StartError(
            f"This Telethon ({telethon.__version__}) is built differently: it has no {', '.join(missing)}. "
            "Known to work: Telethon 1.45."
        )
    return _Dispatching(client, watch, on_stop)


class _Work:
    """One update in the hands of the client's handlers."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: BaseException | None = None


_AT_WORK: ContextVar[_Work | None] = ContextVar("peik_telethon_work", default=None)


class _Noticing:
    """A handler that tells us when it raises, and is equal to itself without us: so it can still be removed."""

    def __init__(self, callback: Callable[[Any], Awaitable[Any]]) -> None:
        self._callback = callback
        self.__name__ = getattr(callback, "__name__", repr(callback))

    async def __call__(self, event: Any) -> Any:
        try:
            return await self._callback(event)
        except (events.StopPropagation, AlreadyInConversationError):
            raise
        except BaseException as error:
            work = _AT_WORK.get()
            if work is not None:
                work.error = error
            raise

    def __eq__(self, other: object) -> bool:
        mine = self._callback
        return mine == (other._callback if isinstance(other, _Noticing) else other)

    def __hash__(self) -> int:
        return hash(self._callback)


class _Handlers(list[tuple[Any, Any]]):
    """The client's list of handlers. Telethon logs what a handler raises and forgets it; by this list we hear of it."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((builder, _Noticing(callback)) for builder, callback in super().__iter__())


class _Dispatching:
    """The hooks in one client."""

    def __init__(self, client: Any, watch: HandledWatch, on_stop: Callable[[], Awaitable[None]]) -> None:
        self._client = client
        self._watch = watch
        self._dispatch = client._dispatch_update
        self._was_there_first = not client.is_connected()
        self._is_stopped = False
        disconnect = client._disconnect_coro

        async def disconnect_and_flush() -> None:
            self._is_stopped = True
            try:
                await disconnect()
            finally:
                await on_stop()

        client._event_builders = _Handlers(client._event_builders)
        client._dispatch_update = self._watched
        client._disconnect_coro = disconnect_and_flush

    @property
    def bot_id(self) -> int | None:
        bot_id: int | None = self._client._self_id
        return bot_id

    async def prepare(self) -> None:
        """Wait for Telethon's own catching up, whose objects are better than ours."""
        client = self._client
        self._is_stopped = False
        if not client.is_connected():
            return
        if client._catch_up and not self._was_there_first:
            plain_log().warning(
                "~ Telethon caught up before Peik was there to see it; call note_handled before client.start(), "
                "or what it brought is handed over again"
            )
        if client._message_box.is_empty():
            return
        await client.catch_up()
        try:
            async with asyncio.timeout(CATCH_UP_S):
                while not self._is_quiet():  # noqa: ASYNC110  Telethon has no bell for it
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            plain_log().warning("~ Telethon is still catching up; going on without it")

    def _is_quiet(self) -> bool:
        client = self._client
        return (
            client._updates_queue.empty()
            and not client._message_box.getting_diff_for
            and not client._event_handler_tasks
        )

    async def hand(self, kind: str, body: Json, bot_id: int) -> bool:
        """Run the client's handlers for one update of the Bot API. Raises what they raise; False if they had it already."""
        if self._is_stopped:
            raise Absent("the client was disconnected")
        parcel = translate(_SCHEMA, kind, body, bot_id=bot_id)
        item = _item(parcel.update)
        assert item is not None, "only messages and presses are translated"
        hold = await self._watch.begin_recovered(item)
        if hold is None:
            return False
        is_handled = False
        try:
            await self._address(parcel)
            await self._run(parcel.update)
            is_handled = True
        finally:
            self._watch.end(hold, is_handled=is_handled)
        return True

    async def _address(self, parcel: TlParcel) -> None:
        """What an update brings with it: its people, known to the client well enough to be answered."""
        entities = {utils.get_peer_id(one): one for one in (*parcel.users.values(), *parcel.chats.values())}
        parcel.update._entities = entities
        if self._client.is_connected():
            for peer_id in entities:
                try:
                    await self._client.get_input_entity(peer_id)
                except (ValueError, RPCError):
                    continue  # its handlers run all the same, as they do for somebody whom Telegram hides
        if parcel.reply is not None:
            parcel.reply._finish_init(self._client, entities, None)
            parcel.message._reply_message = parcel.reply

    async def _watched(self, update: Any) -> None:
        """In place of the client's own dispatch."""
        item = _item(update)
        if item is None:
            await self._dispatch(update)
            return
        hold = self._watch.begin(item)
        if hold is None:
            return
        is_handled = False
        try:
            await self._run(update)
            is_handled = True
        except Exception:  # noqa: BLE001  Telethon has logged it, as it always does
            return
        finally:
            self._watch.end(hold, is_handled=is_handled)

    async def _run(self, update: Any) -> None:
        work = _Work()
        token = _AT_WORK.set(work)
        try:
            await self._dispatch(update)
        finally:
            _AT_WORK.reset(token)
        if work.error is not None:
            raise work.error


def _item(update: Any) -> Item | None:
    """What this update is about, if it is something that the Bot API would tell too."""
    match update:
        case types.UpdateBotCallbackQuery():
            return Item(query_id=update.query_id)
        case types.UpdateNewMessage() | types.UpdateNewChannelMessage():
            return _message_item(update.message)
        case types.UpdateEditMessage() | types.UpdateEditChannelMessage():
            edited = update.message.edit_date
            return _message_item(update.message, edited_at=int(edited.timestamp()) if edited else 0)
        case types.UpdateShortMessage() if not update.out:
            return Item(chat=update.user_id, message_id=update.id)
        case types.UpdateShortChatMessage() if not update.out:
            return Item(chat=-update.chat_id, message_id=update.id)
    return None


def _message_item(message: Any, *, edited_at: int = 0) -> Item | None:
    if isinstance(message, types.MessageEmpty) or message.out:
        return None
    return Item(chat=utils.get_peer_id(message.peer_id), message_id=message.id, edited_at=edited_at)
