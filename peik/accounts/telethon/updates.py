"""Telethon's client with four things changed: who gets its updates and when its state counts, that a hole in them is told
instead of skipped, that it catches up after every reconnect, of which there are few in a row, and that a connect asks Telegram
for no more than it needs.

All of it rests on how Telethon 1.45 is built inside, so `check_telethon` looks at that first.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import telethon
from telethon import TelegramClient, functions, types, utils
from telethon._updates import EntityType, MessageBox
from telethon._updates.messagebox import ENTRY_ACCOUNT, ENTRY_SECRET, PtsInfo
from telethon._updates.session import ChannelState, Entity, SessionState
from telethon.errors import UnauthorizedError

from peik.accounts.client import ClientError, HistoryGap, Listener, Trouble
from peik.accounts.telethon.objects import Deleted, Seen, TelethonReader
from peik.archive.store import Happening, Message
from peik.errors import StartError

# From Telethon's update loop to the listener: in order, in batches, and the state only after what lies before it.
#
# Telethon moves its own state when an update comes off the socket. Here every batch travels with the state that holds
# once it is taken, and that state is handed on only then.


STATE_S = 1.0  # a crash repeats what came since; more often would be a write for every message
BATCHES_MAX = 100  # Telethon's loop waits when so many lie here, and Telegram keeps the rest
TAKEN_MAX = 1000  # what one commit takes

_STATE_VERSION = 1


class ChannelPlace(msgspec.Struct, frozen=True, array_like=True):
    pts: int
    access_hash: int | None  # without it a channel cannot be caught up


class UpdatesPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where an account is in Telegram's updates."""

    version: int
    pts: int
    qts: int
    date: int
    seq: int
    channels: dict[int, ChannelPlace]


_decode = msgspec.msgpack.Decoder(UpdatesPlace).decode


def read_place(state: bytes) -> UpdatesPlace:
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
        UpdatesPlace(version=_STATE_VERSION, pts=pts, qts=qts, date=date, seq=seq, channels=channels)
    )


class _Batch(msgspec.Struct, frozen=True):
    updates: Sequence[Any]
    gap: HistoryGap | None
    state: bytes | None


class UpdateIntake:
    """One listener's queue. `run` ends only by being cancelled, or by raising what the listener raised."""

    def __init__(self, reader: TelethonReader, listener: Listener, now: Callable[[], float]) -> None:
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

    def put_gap(self, gap: HistoryGap) -> None:
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


# ruff: noqa: SLF001  Telethon has no public seam for any of this


AGAIN_S = 5.0  # after a difference that Telegram could not give; Telethon by itself would wait 15 minutes
AGAIN_S_MAX = 900.0
FAILURES_MAX = 5  # of one difference; then the history is read as well
RECONNECTS_MAX = 3  # by Telethon itself, within RECONNECT_S
RECONNECT_S = 60.0
_LEAST_S = 0.001

# What calls what, inside Telethon: our changes are heard of only as long as it is so.
_CALLS: dict[Callable[..., Any], tuple[str, ...]] = {
    TelegramClient.connect: ("_update_loop", "_message_box", "_mb_entity_cache", "get_me", "_on_login"),
    TelegramClient._on_login: ("set_self_user", "_authorized", "GetStateRequest", "load"),
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
    MessageBox.apply_difference_type: ("other_updates", "process_updates"),
    MessageBox.apply_channel_difference: ("other_updates", "process_updates"),
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

    def __init__(self, log: Any, on_gap: Callable[[HistoryGap], None]) -> None:
        super().__init__(log)
        self._on_gap = on_gap
        self._failures: Counter[Any] = Counter()  # in a row, of each difference

    def process_updates(self, updates: Any, chat_hashes: Any, result: list[Any]) -> Any:
        # Telethon hides from its handlers what the client did itself. We archive that as well.
        updates._self_outgoing = False
        return super().process_updates(updates, chat_hashes, result)

    def apply_pts_info(self, update: Any, *, reset_deadlines: Any) -> Any:
        if isinstance(update, types.UpdateChannelTooLong) and update.channel_id not in self.map:
            self._tell(update.channel_id)  # there is news, and no place from which it could be asked for
        return super().apply_pts_info(update, reset_deadlines=reset_deadlines)

    def apply_difference(self, diff: Any, chat_hashes: Any) -> Any:
        self._failures.pop(ENTRY_ACCOUNT, None)
        if isinstance(diff, types.updates.DifferenceTooLong):
            self._on_gap(HistoryGap(chat_id=None))
        held = _held_back(diff, {ENTRY_ACCOUNT, ENTRY_SECRET})
        updates, users, chats = super().apply_difference(diff, chat_hashes)
        return [*updates, *held], users, chats

    def apply_channel_difference(self, request: Any, diff: Any, chat_hashes: Any) -> Any:
        self._failures.pop(request.channel.channel_id, None)
        if isinstance(diff, types.updates.ChannelDifferenceTooLong):
            self._tell(request.channel.channel_id)
        held = _held_back(diff, {request.channel.channel_id})
        updates, users, chats = super().apply_channel_difference(request, diff, chat_hashes)
        return [*updates, *held], users, chats

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
        self._ask_again(entries, ENTRY_ACCOUNT)

    def end_channel_difference(self, request: Any, reason: Any, chat_hashes: Any) -> None:
        super().end_channel_difference(request, reason, chat_hashes)
        self._ask_again({request.channel.channel_id}, request.channel.channel_id)

    def _tell(self, channel_id: int) -> None:
        self._on_gap(HistoryGap(chat_id=utils.get_peer_id(types.PeerChannel(channel_id))))

    def _ask_again(self, entries: set[Any], which: Any) -> None:
        """Later each time: Telegram may never give one, and a hundred channels that are asked for every five seconds cost the
        account. What it cannot give is in the history."""
        self._failures[which] += 1
        if self._failures[which] == FAILURES_MAX:
            if which == ENTRY_ACCOUNT:
                self._on_gap(HistoryGap(chat_id=None))
            elif which in self.map:
                self._tell(which)
        pause_s = min(AGAIN_S * 2 ** min(self._failures[which] - 1, 20), AGAIN_S_MAX)
        for entry in entries & set(self.map):
            self.map[entry].deadline = asyncio.get_running_loop().time() + pause_s
        if self.map:
            self.next_deadline = min(self.map, key=lambda entry: float(self.map[entry].deadline))


def _held_back(diff: Any, entries: set[Any]) -> list[Any]:
    """Take out of a difference what Telethon would drop: an edit or a deletion in it has a pts of the order that is asked for
    just now, and such a one Telethon believes to be still coming. It goes behind the messages that it may concern."""
    others = getattr(diff, "other_updates", None) or []
    held = [one for one in others if (pts := PtsInfo.from_update(one)) is not None and pts.entry in entries]
    if held:
        diff.other_updates = [one for one in others if one not in held]
    return held


class WatchedTelegram(TelegramClient):  # type: ignore[misc]
    """A TelegramClient whose updates go to an Intake. Until `begin` it hears of nothing but a scanned QR code."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._message_box = WatchedBox(self._log["messagebox"], self._on_gap)
        self._intake: UpdateIntake | None = None
        self.qr_news = asyncio.Event()
        self._reconnected_at: list[float] = []
        self._who: Any = None  # is signed in, as Telegram told last; or the error that it told instead

    def who(self) -> Any:
        """Who is signed in, as Telegram answered at the last connect. Raises what it answered instead."""
        if isinstance(self._who, UnauthorizedError):
            raise self._who
        return self._who

    async def get_me(self, input_peer: bool = False) -> Any:
        """Telethon asks at each connect. The answer is kept for `who`: Telegram is asked once, not twice."""
        if input_peer:
            return await super().get_me(input_peer)
        try:
            [self._who] = await self(functions.users.GetUsersRequest([types.InputUserSelf()]))
        except UnauthorizedError as error:
            self._who = error
            return None
        return self._who

    async def _on_login(self, user: Any) -> Any:
        """Telethon asks here, at each connect, where the updates are. Who goes on from a kept place need not: `find_place`."""
        self._who = user
        self._mb_entity_cache.set_self_user(user.id, user.bot, user.access_hash)
        self._authorized = True
        return user

    async def find_place(self) -> None:
        """Ask where the updates are now, unless that is known."""
        if self._message_box.is_empty():
            await super()._on_login(self._who)

    async def begin(self, intake: UpdateIntake, place: UpdatesPlace | None) -> None:
        """Hand updates to this intake, from that place on. Once for each connect."""
        if place is not None:
            self._go_to(place)
        self._intake = intake
        self._updates_queue.put_nowait(types.UpdatesTooLong())  # wakes the loop below, or is the first that it takes

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

    def _go_to(self, place: UpdatesPlace) -> None:
        self._message_box.load(
            SessionState(0, 0, False, place.pts, place.qts, place.date, place.seq, None),  # noqa: FBT003  as Telethon has it
            [ChannelState(channel_id, channel.pts) for channel_id, channel in place.channels.items()],
        )
        for channel_id, channel in place.channels.items():
            if channel.access_hash is not None and self._mb_entity_cache.get(channel_id) is None:
                self._mb_entity_cache.put(Entity(EntityType.CHANNEL, channel_id, channel.access_hash))

    def _on_gap(self, gap: HistoryGap) -> None:
        if self._intake is not None:
            self._intake.put_gap(gap)

    async def _update_loop(self) -> None:
        update = None
        while self._intake is None:
            # Nothing is lost here: what comes before `begin` is in the difference that follows it.
            update = await self._updates_queue.get()
            if isinstance(update, types.UpdateShort) and isinstance(update.update, types.UpdateLoginToken):
                self.qr_news.set()
        self._catch_up = isinstance(update, types.UpdatesTooLong)  # else that of `begin` is still to be taken
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
        """Telethon connects anew at once, and asks what it had asked: where that is what the server breaks off for, hundreds of
        times a minute. After a few times whoever runs the session decides when to connect."""
        now = asyncio.get_running_loop().time()
        self._reconnected_at = [at for at in self._reconnected_at if now - at < RECONNECT_S] + [now]
        if len(self._reconnected_at) > RECONNECTS_MAX:
            words = f"Telegram broke the connection off {len(self._reconnected_at)} times within a minute."
            self.mark_lost(ClientError(Trouble.OFFLINE, words))
            await self.disconnect()
            return
        if self._intake is None:
            await super()._handle_auto_reconnect()
        else:
            await self.catch_up()

    def mark_lost(self, error: BaseException) -> None:
        """Why the client is about to disconnect by itself."""
        self._updates_error = error

    @property
    def why_lost(self) -> BaseException | None:
        error: BaseException | None = self._updates_error
        return error
