"""All senders of this node, with the routes and the clockwork that they share. One sender's end never stops the others."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from peik.clock import Clock
from peik.core.events import Event, Events, Settled, StoreFailed, Surprise
from peik.core.letter import Chat, Draft, Letter, State
from peik.core.lifecycle import EXPIRED, Move
from peik.core.outcome import Delivered, Outcome, judge
from peik.core.token import Token
from peik.errors import StoreUnavailable, described
from peik.outbox.leases import Lease
from peik.outbox.provisional import ProvisionalIds
from peik.outbox.sender import Expressed, Sender, express_of
from peik.outbox.service import OutboxService
from peik.outbox.store import BotRecord, Followed, LetterView, Retention, Store, Stub
from peik.telegram.port import Request
from peik.telegram.routes import Routes
from peik.wakeup import Wakeup

RESTART_S = 1.0


class _Me(msgspec.Struct):
    username: str | None = None


async def ask_me(service: OutboxService, routes: Routes, bot: BotRecord, *, timeout_s: float) -> Outcome:
    """What Telegram says of a bot is kept."""
    reply = await routes.carry(Request(token=bot.token, method="getMe", params=b"{}", timeout_s=timeout_s))
    outcome = judge(reply, method="getMe")
    if isinstance(outcome, Delivered):
        with contextlib.suppress(msgspec.DecodeError):  # whoever answers there is not quite Telegram
            me = msgspec.json.decode(outcome.result, type=_Me)
            await service.note_me(bot.bot_id, outcome.result.decode(), me.username)
    return outcome


class Courier:
    """Listens to the store, and hands letters to the sender of their bot."""

    def __init__(
        self,
        *,
        clock: Clock,
        events: Events,
        lease_of: Callable[[int], Lease | None],
        make_sender: Callable[[BotRecord, Lease], Sender],
        routes: Routes,
    ) -> None:
        self._clock = clock
        self._events = events
        self._lease_of = lease_of
        self._make_sender = make_sender
        self._routes = routes
        self.senders: dict[int, Sender] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._routing: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None

    @property
    def routes(self) -> Routes:
        return self._routes

    def probe_token(self) -> Token | None:
        """Some bot to ask getMe as."""
        tokens = (sender.bot.token for sender in self.senders.values())
        return next((token for token in tokens if not token.is_account), None)

    def chat_of(self, bot_id: int, chat: Chat) -> Chat:
        sender = self.senders.get(bot_id)
        return chat if sender is None else sender.chats.same_as(chat)

    def express(self, draft: Draft) -> Expressed | None:
        """A place for a letter that may go in the commit which makes it durable."""
        return express_of(self.senders.get(draft.bot_id), draft)

    def why(self, view: LetterView, head: int | None) -> str | None:
        """Why a letter is still waiting, as a sentence."""
        sender = self.senders.get(view.bot_id)
        if sender is None:
            return (
                "Another node sends for this bot, and knows why: ask there "
                "(`peik nodes` or GET /v1/nodes says which it is)."
            )
        return sender.why(view, head)

    def is_chat_shut(self, bot_id: int, chat: Chat) -> bool:
        """Whether letters to this chat fail at once, as far as this process knows."""
        sender = self.senders.get(bot_id)
        return sender is not None and sender.chats.is_known_shut(sender.chats.same_as(chat))

    def watch(self, bot_id: int, letter_id: int, tell: Callable[[bytes], None] | None) -> None:
        """Tell Telegram's yes to a letter as it comes in; None ends that."""
        sender = self.senders.get(bot_id)
        if sender is not None:
            sender.watch(letter_id, tell)

    def open_chat(self, bot_id: int, chat: Chat) -> None:
        sender = self.senders.get(bot_id)
        if sender is not None:
            sender.open_chat(chat)

    def hold_chat(self, bot_id: int, chat: Chat, until_ms: int) -> None:
        sender = self.senders.get(bot_id)
        if sender is not None:
            sender.hold_chat(chat, until_ms)

    # ---- the store's listener ----

    def on_accepted(self, letters: Sequence[Letter]) -> None:
        if len({letter.bot_id for letter in letters}) == 1:
            sender = self.senders.get(letters[0].bot_id)
            if sender is not None:
                sender.offer(letters)
            return
        per_bot: dict[int, list[Letter]] = defaultdict(list)
        for letter in letters:
            per_bot[letter.bot_id].append(letter)
        surprises: list[Exception] = []
        for bot_id, own in per_bot.items():
            sender = self.senders.get(bot_id)
            if sender is not None:
                try:
                    sender.offer(own)
                except Exception as error:  # noqa: BLE001  it is raised when the other bots have theirs
                    surprises.append(error)
        if surprises:
            raise surprises[0]

    def on_removed(self, stubs: Sequence[Stub]) -> None:
        told: list[Event] = []
        for stub in stubs:
            sender = self.senders.get(stub.bot_id)
            if sender is not None:
                sender.remove(stub.lane, stub.letter_id)
            if stub.into is not None:
                told.append(_merged(stub))
        self._events.tell_all(told)

    def on_joined(self, stubs: Sequence[Stub]) -> None:
        for stub in stubs:
            sender = self.senders.get(stub.bot_id)
            if sender is not None:
                sender.reread(stub.lane)

    def on_followed(self, ends: Sequence[Followed]) -> None:
        self._events.tell_all([_followed(one) for one in ends])

    # ---- what other nodes wrote ----

    def reread(self, bot_id: int) -> None:
        sender = self.senders.get(bot_id)
        if sender is not None:
            sender.reread_all()

    def is_resting(self, bot_id: int) -> bool:
        """Whether nothing is sent for a bot now, so that nobody wants to read its letters yet."""
        sender = self.senders.get(bot_id)
        return sender is None or sender.bot.paused is not None

    def reread_all(self) -> None:
        for sender in self.senders.values():
            sender.reread_all()

    async def reread_chats(self, bot_id: int) -> None:
        """Chats were held, shut or opened elsewhere."""
        sender = self.senders.get(bot_id)
        if sender is not None:
            await sender.reread_chats()

    def catch_up(self, last_numbers: Mapping[int, int]) -> None:
        """What was accepted elsewhere without a sound, by the numbers of the newest letters."""
        for bot_id, number in last_numbers.items():
            sender = self.senders.get(bot_id)
            if sender is not None:
                sender.catch_up(number)

    # ---- running ----

    def open(self, group: asyncio.TaskGroup) -> None:
        """Look after the routes, whether or not letters are sent here: calls that go straight through take them, too."""
        self._group = group
        self._routing = group.create_task(self._routes.run())

    def stop(self) -> None:
        """End at once. What is still in flight is uncertain to the next sender."""
        for task in (self._routing, *self._tasks.values()):
            if task is not None:
                task.cancel()

    def add(self, bot: BotRecord) -> None:
        """Begin to send for a bot, if this node holds its lease; or take up a change of its record."""
        sender = self.senders.get(bot.bot_id)
        if sender is not None:
            sender.update(bot)
            return
        lease = self._lease_of(bot.bot_id)
        if self._group is None or lease is None:
            return
        self.senders[bot.bot_id] = self._make_sender(bot, lease)
        self._tasks[bot.bot_id] = self._group.create_task(self._supervise(bot.bot_id))

    def remove(self, bot_id: int) -> None:
        self.senders.pop(bot_id, None)
        task = self._tasks.pop(bot_id, None)
        if task is not None:
            task.cancel()

    async def let_go(self, bot_id: int) -> None:
        """Send nothing more for a bot; returns when nothing of it is in flight."""
        sender = self.senders.get(bot_id)
        if sender is not None:
            await sender.drain()
            if self.senders.get(bot_id) is sender:
                self.remove(bot_id)

    def wake_all(self) -> None:
        """Leases that seemed to be over go on."""
        for sender in self.senders.values():
            sender.wake()

    async def _supervise(self, bot_id: int) -> None:
        """A sender that meets a surprise starts over from the store; what it had in flight is uncertain then."""
        while True:
            sender = self.senders[bot_id]
            try:
                await sender.run()
            except Exception as error:  # noqa: BLE001  it is told, and the other bots go on
                self._events.tell(Surprise(bot_id=bot_id, where="sender", error=described(error)))
            await asyncio.sleep(RESTART_S)
            if self._lease_of(bot_id) is not sender.lease:
                return  # it was let go, or lost: the next sender takes up what is left
            self.senders[bot_id] = self._make_sender(self.senders[bot_id].bot, sender.lease)

    async def drain(self, grace_s: float) -> bool:
        """Stop taking, finish what is in flight. False if the grace was over before everything had come back."""
        drains = [asyncio.ensure_future(sender.drain()) for sender in self.senders.values()]
        if not drains:
            return True
        _, late = await asyncio.wait(drains, timeout=grace_s)
        for drain in late:
            drain.cancel()
        return not late


def _merged(stub: Stub) -> Settled:
    return Settled(
        bot_id=stub.bot_id,
        letter_id=stub.letter_id,
        method="",
        chat=stub.lane[0],
        move=Move.MERGE,
        state=State.DELAYED,
        merged_into=stub.into,
    )


def _followed(end: Followed) -> Settled:
    return Settled(
        bot_id=end.bot_id,
        letter_id=end.letter_id,
        method=end.method,
        chat=end.chat,
        move=Move.FOLLOW if end.state is State.COMPLETED else Move.FAIL_ALONG,
        state=end.state,
        reason=end.reason,
        uncertain_tries=end.uncertain_tries,
        merged_into=end.merged_into,
        trace=end.trace,
    )


# What happens to letters because time passes: scheduled ones join their lanes, late ones expire, old ones are cleaned up.

PAGE = 1000
LOOK_S_MAX = 60.0  # look again at the latest after so long, whatever the store said
CLEAN_S = 300.0
RETRY_S = 2.0


class Timekeeper:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        settled: Clock,
        events: Events,
        retention: Retention,
        provisional: ProvisionalIds,
        remove_blobs: Callable[[Sequence[str]], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._settled = settled
        self._events = events
        self._retention = retention
        self._provisional = provisional
        self._remove_blobs = remove_blobs
        self._bell = Wakeup()
        self._look_at_ms = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """One node does this for all, under the lease of the chores."""
        self.stop()
        self._task = group.create_task(self.run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None  # once: a second cancel would keep a reading from ending its transaction

    def expect(self, at_ms: int) -> None:
        """Somebody accepted a letter that is due, or expires, then."""
        # The second: the wall clock was set forward, past the look that is planned.
        if at_ms < self._look_at_ms or self._look_at_ms < self._clock.wall_ms():
            self._look_at_ms = at_ms
            self._bell.ring()

    async def run(self) -> None:
        clean_at = self._clock.mono() + CLEAN_S
        while True:
            try:
                await self._look()
                if self._clock.mono() >= clean_at:
                    await self._clean()
                    clean_at = self._clock.mono() + CLEAN_S
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="the clock", why=error.detail))
                await asyncio.sleep(RETRY_S)
                continue  # at once: when to look next is what the look would have told
            wait_s = (self._look_at_ms - self._clock.wall_ms()) / 1000
            await self._bell.wait(self._clock.mono() + min(max(wait_s, 0.0), LOOK_S_MAX))

    async def _look(self) -> None:
        at_ms = self._clock.wall_ms()
        self._look_at_ms = at_ms + int(LOOK_S_MAX * 1000)
        joined, expired = PAGE, PAGE
        next_due: int | None = None
        next_expiry: int | None = None
        while joined == PAGE:
            joined, next_due = await self._store.join_due(at_ms=at_ms, limit=PAGE)
        while expired == PAGE:
            views, next_expiry = await self._store.expire(at_ms=at_ms, limit=PAGE)
            self._events.tell_all([_expired(view) for view in views])
            expired = len(views)
        for at in (next_due, next_expiry):
            if at is not None:
                # One that is late and still there is in flight: look again when its try may be over.
                self._look_at_ms = min(self._look_at_ms, max(at, at_ms + 1000))

    async def _clean(self) -> None:
        """In small commits, so that letters that come in do not wait behind a big one."""
        await self._provisional.tidy(before_ms=self._settled.wall_ms() - self._retention.log_ms)
        gone = PAGE
        while gone >= PAGE:
            gone, blobs = await self._store.clean(self._retention, at_ms=self._settled.wall_ms(), limit=PAGE)
            self._remove_blobs(blobs)


def _expired(view: LetterView) -> Settled:
    return Settled(
        bot_id=view.bot_id,
        letter_id=view.id,
        method=view.method,
        chat=view.chat,
        move=Move.EXPIRE,
        state=State.FAILED,
        reason=EXPIRED,
        uncertain_tries=view.uncertain_tries,
        trace=view.trace,
    )
