"""All senders of this node, with the routes and the clockwork that they share. One sender's end never stops the others."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from peik.clock import Clock
from peik.core.letter import Chat, Letter, State
from peik.core.lifecycle import Move
from peik.core.token import Token
from peik.engine.routes import Routes
from peik.engine.sender import Sender
from peik.engine.timekeeper import Timekeeper
from peik.errors import described
from peik.events import Event, Events, Settled, Surprise
from peik.ports import BotRecord, LetterView, Stub

RESTART_S = 1.0


class Courier:
    """Listens to the store, and hands letters to the sender of their bot."""

    def __init__(
        self,
        *,
        clock: Clock,
        events: Events,
        make_sender: Callable[[BotRecord], Sender],
        routes: Routes,
        timekeeper: Timekeeper,
    ) -> None:
        self._clock = clock
        self._events = events
        self._make_sender = make_sender
        self._routes = routes
        self._timekeeper = timekeeper
        self._senders: dict[int, Sender] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._shared: list[asyncio.Task[None]] = []
        self._group: asyncio.TaskGroup | None = None  # None: another process owns the store, and nothing is sent here

    @property
    def routes(self) -> Routes:
        return self._routes

    def sender(self, bot_id: int) -> Sender | None:
        return self._senders.get(bot_id)

    def probe_token(self) -> Token | None:
        """Somebody to ask getMe as."""
        for sender in self._senders.values():
            return sender.bot.token
        return None

    def chat_of(self, bot_id: int, chat: Chat) -> Chat:
        sender = self._senders.get(bot_id)
        return chat if sender is None else sender.chat_of(chat)

    def why(self, view: LetterView, head: int | None) -> str | None:
        """Why a letter is still waiting, as a sentence."""
        sender = self._senders.get(view.bot_id)
        return None if sender is None else sender.why(view, head)

    def is_chat_shut(self, bot_id: int, chat: Chat) -> bool:
        """Whether letters to this chat fail at once, as far as this process knows."""
        sender = self._senders.get(bot_id)
        return sender is not None and sender.is_chat_shut(sender.chat_of(chat))

    def watch(self, bot_id: int, letter_id: int, tell: Callable[[bytes], None] | None) -> None:
        """Tell Telegram's yes to a letter as it comes in; None ends that."""
        sender = self._senders.get(bot_id)
        if sender is not None:
            sender.watch(letter_id, tell)

    def open_chat(self, bot_id: int, chat: Chat) -> None:
        sender = self._senders.get(bot_id)
        if sender is not None:
            sender.open_chat(chat)

    def hold_chat(self, bot_id: int, chat: Chat, until_ms: int) -> None:
        sender = self._senders.get(bot_id)
        if sender is not None:
            sender.hold_chat(chat, until_ms)

    # ---- the store's listener ----

    def on_accepted(self, letters: Sequence[Letter]) -> None:
        if len(letters) == 1:
            sender = self._senders.get(letters[0].bot_id)
            if sender is not None:
                sender.offer(letters)
            return
        per_bot: dict[int, list[Letter]] = defaultdict(list)
        for letter in letters:
            per_bot[letter.bot_id].append(letter)
        for bot_id, own in per_bot.items():
            sender = self._senders.get(bot_id)
            if sender is not None:
                sender.offer(own)

    def on_removed(self, stubs: Sequence[Stub]) -> None:
        told: list[Event] = []
        for stub in stubs:
            sender = self._senders.get(stub.bot_id)
            if sender is not None:
                sender.remove(stub.lane, stub.letter_id)
            if stub.into is not None:
                told.append(_merged(stub))
        self._events.tell_all(told)

    def on_joined(self, stubs: Sequence[Stub]) -> None:
        for stub in stubs:
            sender = self._senders.get(stub.bot_id)
            if sender is not None:
                sender.reread(stub.lane)

    def reread_all(self) -> None:
        """Another process wrote to the store."""
        for sender in self._senders.values():
            sender.reread_all()
        self._timekeeper.expect(0)  # something may be due, or expire, earlier than all that we know of

    # ---- running ----

    def open(self, group: asyncio.TaskGroup) -> None:
        """Look after the routes, whether or not letters are sent here: calls that go straight through take them, too."""
        self._shared.append(group.create_task(self._routes.run()))

    def start(self, bots: Sequence[BotRecord], group: asyncio.TaskGroup) -> None:
        self._group = group
        self._shared.append(group.create_task(self._timekeeper.run()))
        for bot in bots:
            self.add(bot)

    def stop(self) -> None:
        """End at once. What is still in flight is uncertain to the next owner."""
        for task in (*self._shared, *self._tasks.values()):
            task.cancel()

    def add(self, bot: BotRecord) -> None:
        """Begin to send for a bot, or take up a change of its record."""
        sender = self._senders.get(bot.bot_id)
        if sender is not None:
            sender.update(bot)
            return
        if self._group is None:
            return
        self._senders[bot.bot_id] = self._make_sender(bot)
        self._tasks[bot.bot_id] = self._group.create_task(self._supervise(bot.bot_id))

    def remove(self, bot_id: int) -> None:
        self._senders.pop(bot_id, None)
        task = self._tasks.pop(bot_id, None)
        if task is not None:
            task.cancel()

    async def _supervise(self, bot_id: int) -> None:
        """A sender that meets a surprise begins anew from the store; what it had in flight is uncertain then."""
        while True:
            try:
                await self._senders[bot_id].run()
            except Exception as error:  # noqa: BLE001  it is told, and the other bots go on
                self._events.tell(Surprise(bot_id=bot_id, where="sender", error=described(error)))
            await asyncio.sleep(RESTART_S)
            self._senders[bot_id] = self._make_sender(self._senders[bot_id].bot)

    async def drain(self, grace_s: float) -> bool:
        """Stop taking, finish what is in flight. False if the grace was over before everything had come back."""
        drains = [asyncio.ensure_future(sender.drain()) for sender in self._senders.values()]
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
        state=State.COMPLETED,
        merged_into=stub.into,
    )
