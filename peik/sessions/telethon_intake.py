"""From Telethon's update loop to the listener: in order, in batches, and the state only after what lies before it.

Telethon moves its own state when an update comes off the socket. Here every batch travels with the state that holds once it
is taken, and that state is handed on only then.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from peik.archive_ports import Happening, Message
from peik.sessions.client import ClientError, Gap, Listener, Trouble
from peik.sessions.telethon_reading import Deleted, Reader, Seen

STATE_S = 1.0  # a crash repeats what came since; more often would be a write for every message
BATCHES_MAX = 100  # Telethon's loop waits when so many lie here, and Telegram keeps the rest
TAKEN_MAX = 1000  # what one commit takes

_STATE_VERSION = 1


class ChannelPlace(msgspec.Struct, frozen=True, array_like=True):
    pts: int
    access_hash: int | None  # without it a channel cannot be caught up


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where an account is in Telegram's updates."""

    version: int
    pts: int
    qts: int
    date: int
    seq: int
    channels: dict[int, ChannelPlace]


_decode = msgspec.msgpack.Decoder(Place).decode


def read_place(state: bytes) -> Place:
    """Raises ClientError for a state that is not ours."""
    try:
        place = _decode(state)
    except (msgspec.DecodeError, msgspec.ValidationError):
        place = None
    if place is None or place.version != _STATE_VERSION:
        raise ClientError(
            Trouble.REFUSED, "The kept state of updates cannot be read: it is of another version of Peik."
        )
    return place


def write_place(pts: int, qts: int, date: int, seq: int, channels: dict[int, ChannelPlace]) -> bytes:
    return msgspec.msgpack.encode(
        Place(version=_STATE_VERSION, pts=pts, qts=qts, date=date, seq=seq, channels=channels)
    )


class _Batch(msgspec.Struct, frozen=True):
    updates: Sequence[Any]
    gap: Gap | None
    state: bytes | None


class Intake:
    """One listener's queue. `run` ends only by being cancelled, or by raising what the listener raised."""

    def __init__(self, reader: Reader, listener: Listener, now: Callable[[], float]) -> None:
        self._reader = reader
        self._listener = listener
        self._now = now
        self._batches: asyncio.Queue[_Batch] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._state: bytes | None = None  # of what was taken
        self._saved: bytes | None = None
        self._saved_at = float("-inf")

    async def put(self, updates: Sequence[Any], state: bytes | None) -> None:
        """Waits while too much lies here."""
        await self._has_room.wait()
        self._batches.put_nowait(_Batch(updates, None, state))
        if self._batches.qsize() >= BATCHES_MAX:
            self._has_room.clear()

    def put_gap(self, gap: Gap) -> None:
        self._batches.put_nowait(_Batch((), gap, None))

    def put_seen(self, deleted: Deleted) -> None:
        """What we did ourselves and Telegram does not tell us of."""
        self._batches.put_nowait(_Batch((deleted,), None, None))

    async def run(self) -> None:
        while True:
            batches = await self._next()
            self._has_room.set()
            await self._take(batches)
            if self._now() - self._saved_at >= STATE_S:
                await self.save()

    async def save(self) -> None:
        """Hand on the state of what was taken so far."""
        if self._state is not None and self._state != self._saved:
            state = self._state
            await self._listener.on_state(state)
            self._saved = state
        self._saved_at = self._now()

    async def _next(self) -> list[_Batch]:
        """What lies here; the state is saved meanwhile, if its time comes first."""
        while self._batches.empty() and self._state != self._saved:
            left_s = self._saved_at + STATE_S - self._now()
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    return self._with_more([await self._batches.get()])
            except TimeoutError:
                await self.save()
        return self._with_more([await self._batches.get()])

    def _with_more(self, batches: list[_Batch]) -> list[_Batch]:
        count = len(batches[0].updates)
        while count < TAKEN_MAX and not self._batches.empty():
            batches.append(self._batches.get_nowait())
            count += len(batches[-1].updates)
        return batches

    async def _take(self, batches: Sequence[_Batch]) -> None:
        run: list[Seen] = []
        for batch in batches:
            run.extend(seen for update in batch.updates if (seen := self._reader.seen(update)) is not None)
            if batch.gap is not None:
                await self._hand_on(run)
                run = []
                await self._listener.on_gap(batch.gap)
        await self._hand_on(run)
        self._state = next((batch.state for batch in reversed(batches) if batch.state is not None), self._state)

    async def _hand_on(self, run: Iterable[Seen]) -> None:
        """Neighbours of one kind together; a deletion never before the message that it deletes."""
        messages: list[Message] = []
        happenings: list[Happening] = []
        for seen in run:
            match seen:
                case Message():
                    messages.append(seen)
                case Happening():
                    happenings.append(seen)
                case Deleted():
                    if messages:
                        await self._listener.on_messages(messages)
                        messages = []
                    await self._listener.on_deleted(seen.chat_id, seen.message_ids)
        if messages:
            await self._listener.on_messages(messages)
        if happenings:
            await self._listener.on_happenings(happenings)
