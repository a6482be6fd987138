"""Telethon's client with three things changed: who gets its updates and when its state counts, that a hole in them is told
instead of skipped, and that it catches up after every reconnect.

All of it rests on how Telethon 1.45 is built inside, so `check_telethon` looks at that first.
"""
# ruff: noqa: SLF001  Telethon has no public seam for any of this

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import telethon
from telethon import TelegramClient, types, utils
from telethon._updates import EntityType, MessageBox
from telethon._updates.messagebox import ENTRY_ACCOUNT, ENTRY_SECRET
from telethon._updates.session import ChannelState, Entity, SessionState

from peik.errors import StartError
from peik.sessions.client import Gap
from peik.sessions.telethon_intake import ChannelPlace, Intake, Place, write_place

AGAIN_S = 5.0  # after a difference that Telegram could not give; Telethon by itself would wait 15 minutes
_LEAST_S = 0.001

# What calls what, inside Telethon: our changes are heard of only as long as it is so.
_CALLS: dict[Callable[..., Any], tuple[str, ...]] = {
    TelegramClient.connect: ("_update_loop", "_message_box", "_mb_entity_cache"),
    TelegramClient._update_loop: (
        "_catch_up",
        "_preprocess_updates",
        "process_updates",
        "apply_difference",
        "apply_channel_difference",
        "get_channel_difference",
        "end_difference",
        "end_channel_difference",
        "_updates_error",
    ),
    MessageBox.process_updates: ("_self_outgoing", "apply_pts_info"),
    MessageBox.session_state: ("map", "date", "seq"),
    MessageBox.get_channel_difference: ("getting_diff_for", "end_get_diff"),
    MessageBox.check_deadlines: ("next_deadline", "deadline"),
}


def check_telethon() -> None:
    """Raises StartError for a Telethon that is built differently: with it, updates could be lost in silence."""
    for function, names in _CALLS.items():
        code = getattr(function, "__code__", None)
        known = set() if code is None else _names_in(code)
        missing = [name for name in names if name not in known]
        if missing:
            raise StartError(
                f"This Telethon ({telethon.__version__}) is built differently: {function.__qualname__} does not use "
                f"{', '.join(missing)}. Known to work: Telethon 1.45."
            )


def _names_in(code: Any) -> set[str]:
    names = {*code.co_names, *(one for one in code.co_consts if isinstance(one, str))}
    for inner in code.co_consts:
        if hasattr(inner, "co_names"):
            names |= _names_in(inner)
    return names


class WatchedBox(MessageBox):  # type: ignore[misc]  # Telethon has no types
    """Telethon's book of where it is in the updates. What it would skip in silence it tells to `on_gap`."""

    def __init__(self, log: Any, on_gap: Callable[[Gap], None]) -> None:
        super().__init__(log)
        self._on_gap = on_gap

    def process_updates(self, updates: Any, chat_hashes: Any, result: list[Any]) -> Any:
        # Telethon hides from its handlers what the client did itself. We archive that as well.
        updates._self_outgoing = False
        return super().process_updates(updates, chat_hashes, result)

    def apply_pts_info(self, update: Any, *, reset_deadlines: Any) -> Any:
        if isinstance(update, types.UpdateChannelTooLong) and update.channel_id not in self.map:
            self._tell(update.channel_id)  # there is news, and no place from which it could be asked for
        return super().apply_pts_info(update, reset_deadlines=reset_deadlines)

    def apply_difference(self, diff: Any, chat_hashes: Any) -> Any:
        if isinstance(diff, types.updates.DifferenceTooLong):
            self._on_gap(Gap(chat_id=None))
        return super().apply_difference(diff, chat_hashes)

    def apply_channel_difference(self, request: Any, diff: Any, chat_hashes: Any) -> Any:
        if isinstance(diff, types.updates.ChannelDifferenceTooLong):
            self._tell(request.channel.channel_id)
        return super().apply_channel_difference(request, diff, chat_hashes)

    def get_channel_difference(self, chat_hashes: Any) -> Any:
        wanted = set(self.getting_diff_for)
        request = super().get_channel_difference(chat_hashes)
        for channel_id in wanted - self.getting_diff_for:  # its access hash is not known
            self._tell(channel_id)
        return request

    def check_deadlines(self) -> float:
        """A timer may fire a little before its time: then Telethon would ask again at once, and again, until it has come."""
        deadline = float(super().check_deadlines())
        now = asyncio.get_running_loop().time()
        return max(deadline, now + _LEAST_S) if deadline > now else deadline

    def end_difference(self) -> None:
        entries = {ENTRY_ACCOUNT, ENTRY_SECRET} & self.getting_diff_for
        super().end_difference()
        self._ask_again(entries)

    def end_channel_difference(self, request: Any, reason: Any, chat_hashes: Any) -> None:
        super().end_channel_difference(request, reason, chat_hashes)
        self._ask_again({request.channel.channel_id})

    def _tell(self, channel_id: int) -> None:
        self._on_gap(Gap(chat_id=utils.get_peer_id(types.PeerChannel(channel_id))))

    def _ask_again(self, entries: set[Any]) -> None:
        for entry in entries & set(self.map):
            self.map[entry].deadline = asyncio.get_running_loop().time() + AGAIN_S
            self.next_deadline = entry


class WatchedTelegram(TelegramClient):  # type: ignore[misc]
    """A TelegramClient whose updates go to an Intake. Until `begin` it hears of nothing but a scanned QR code."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._message_box = WatchedBox(self._log["messagebox"], self._on_gap)
        self._intake: Intake | None = None
        self.qr_news = asyncio.Event()

    async def begin(self, intake: Intake, place: Place | None) -> None:
        """Hand updates to this intake, from that place on. Once for each connect."""
        if place is not None:
            self._go_to(place)
        self._intake = intake
        self._catch_up = True
        self._updates_queue.put_nowait(types.UpdatesTooLong())  # wakes the loop below

    def place(self) -> bytes | None:
        """Where the account is now, as bytes of our own form."""
        if self._message_box.is_empty():
            return None
        account, channels = self._message_box.session_state()
        hashes = self._mb_entity_cache
        return write_place(
            account["pts"],
            account["qts"],
            int(account["date"].timestamp()),
            account["seq"],
            {
                channel_id: ChannelPlace(pts, entity.hash if (entity := hashes.get(channel_id)) else None)
                for channel_id, pts in channels.items()
            },
        )

    def _go_to(self, place: Place) -> None:
        self._message_box.load(
            SessionState(0, 0, False, place.pts, place.qts, place.date, place.seq, None),  # noqa: FBT003  as Telethon has it
            [ChannelState(channel_id, channel.pts) for channel_id, channel in place.channels.items()],
        )
        for channel_id, channel in place.channels.items():
            if channel.access_hash is not None and self._mb_entity_cache.get(channel_id) is None:
                self._mb_entity_cache.put(Entity(EntityType.CHANNEL, channel_id, channel.access_hash))

    def _on_gap(self, gap: Gap) -> None:
        if self._intake is not None:
            self._intake.put_gap(gap)

    async def _update_loop(self) -> None:
        while self._intake is None:
            # Nothing is lost here: what comes before `begin` is in the difference that follows it.
            update = await self._updates_queue.get()
            if isinstance(update, types.UpdateShort) and isinstance(update.update, types.UpdateLoginToken):
                self.qr_news.set()
        await super()._update_loop()

    async def _preprocess_updates(
        self, updates: Sequence[Any], users: Sequence[Any], chats: Sequence[Any]
    ) -> list[Any]:
        """Where every batch comes by, right after the state was moved past it. Nothing is left for Telethon to dispatch."""
        state = self.place()
        await super()._preprocess_updates(updates, users, chats)
        assert self._intake is not None, "the loop runs only after begin"
        await self._intake.put(updates, state)
        return []

    async def _handle_auto_reconnect(self) -> None:
        await super()._handle_auto_reconnect()
        if self._intake is not None:
            await self.catch_up()

    def mark_lost(self, error: BaseException) -> None:
        """Why the client is about to disconnect by itself."""
        self._updates_error = error

    @property
    def why_lost(self) -> BaseException | None:
        error: BaseException | None = self._updates_error
        return error
