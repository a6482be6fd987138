"""What an outcome means beyond its letter: holds, moved and shut chats, a bot that Telegram does not take, files it knows."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager

import msgspec

from peik.clock import Clock
from peik.core.call import readdress
from peik.core.catalogue import Scope
from peik.core.events import BotPaused, BotResumed, ChatMoved, ChatShut, Events, Held, StoreFailed
from peik.core.lanes import Lanes
from peik.core.letter import Chat, Letter
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Uncertain, Unsent, judge
from peik.core.pace import Pace
from peik.errors import StoreUnavailable
from peik.outbox.attachments import Attachments
from peik.outbox.store import BotRecord, Store
from peik.telegram.port import Request
from peik.telegram.routes import Routes

# What one bot knows of its chats: which are one and the same, which cannot be reached, which are moving right now.


PROBE_MS = 24 * 3600 * 1000  # one letter a day after the last refusal is let through


class _Chat(msgspec.Struct):
    id: int


class _Message(msgspec.Struct):
    chat: _Chat


_decode = msgspec.json.Decoder(_Message | list[_Message]).decode


class ChatBook:
    def __init__(self, bot_id: int, store: Store) -> None:
        self._bot_id = bot_id
        self._store = store
        self._same_as: dict[Chat, int] = {}
        self._shut: dict[Chat, tuple[str, int]] = {}  # reason, last refusal
        self._held: dict[Chat, int] = {}  # until when, as it is stored,
        self._heeded: dict[Chat, int] = {}  # as the pace was last told,
        self._own: dict[Chat, int] = {}  # and what was sent from here to be stored
        self._moving: set[Chat] = set()
        # For who looks at every letter: nearly always both are empty.
        self.shut_chats: Collection[Chat] = self._shut.keys()
        self.moving_chats: Collection[Chat] = self._moving

    async def load(self) -> None:
        records = await self._store.chats(self._bot_id)
        self._shut.clear()
        self._held = {}
        for record in records:
            if record.same_as is not None:
                self._same_as[record.chat] = record.same_as
            if record.shut_reason is not None:
                self._shut[record.chat] = (record.shut_reason, record.shut_at_ms or 0)
            if record.held_until_ms is not None:
                self._held[record.chat] = record.held_until_ms

    def hold(self, pace: Pace, now: float, at_ms: int) -> None:
        """Let the pace know of the holds that are stored, as they were when last read. One that it knows is no news: since
        then the chat may have been held for a few seconds, which is not stored."""
        for chat, until_ms in self._held.items():
            if until_ms not in (self._heeded.get(chat), self._own.get(chat)):
                pace.hold_chat(chat, now, now + (until_ms - at_ms) / 1000)
        self._own = {chat: until_ms for chat, until_ms in self._own.items() if self._held.get(chat) != until_ms}
        self._heeded = self._held

    def holds(self, chat: Chat, until_ms: int) -> None:
        """The pace knows it already, and it is about to be stored."""
        self._own[chat] = until_ms

    # ---- one chat, several names ----

    def same_as(self, chat: Chat) -> Chat:
        """The key under which this chat's letters wait."""
        return self._same_as.get(chat, chat)

    def readdressed(self, letter: Letter, params: str) -> bytes:
        """The parameters to send: with the new number, if the group that they name has become a supergroup."""
        if letter.is_moved and isinstance(letter.chat, int):
            return readdress(params, letter.chat).encode()
        return params.encode()

    def number_in(self, result: bytes) -> int | None:
        """The number of a chat that was addressed by name, as Telegram's answer tells it."""
        try:
            message = _decode(result)
        except msgspec.DecodeError:
            return None
        first: _Message = message[0] if isinstance(message, list) else message
        return first.chat.id

    def is_moving(self, chat: Chat) -> bool:
        return chat in self._moving

    @contextmanager
    def moving(self, old: Chat, new: int) -> Iterator[None]:
        """Nothing is tried under the old key while its letters are re-addressed."""
        self._moving.add(old)
        try:
            yield
            self._same_as[old] = new
        finally:
            self._moving.discard(old)

    # ---- chats that cannot be reached ----

    def is_shut(self, chat: Chat, at_ms: int) -> bool:
        known = self._shut.get(chat) if self._shut else None
        return known is not None and at_ms - known[1] < PROBE_MS

    def shut_reason(self, chat: Chat, at_ms: int) -> str | None:
        """Why a letter to this chat must fail now. None lets it through: the chat is open, or it is time for a probe."""
        known = self._shut.get(chat) if self._shut else None
        if known is None:
            return None
        if at_ms - known[1] < PROBE_MS:
            return known[0]
        self._shut[chat] = (known[0], at_ms)  # this one is the probe; the next must wait for another day
        return None

    def shut(self, chat: Chat, reason: str, at_ms: int) -> bool:
        """Remember a refusal. Whether it is news."""
        is_news = chat not in self._shut
        self._shut[chat] = (reason, at_ms)
        return is_news

    def is_known_shut(self, chat: Chat) -> bool:
        return chat in self._shut

    def open(self, chat: Chat) -> None:
        self._shut.pop(chat, None)


SERVER_ERROR_S = 30.0  # a 429 so soon after a 5xx may hide a send that went through
HOLD_KEPT_S = 5.0  # shorter holds are over before a restart would matter
NOTE_RETRY_S = 1.0
WELCOME_S_FIRST = 5.0
WELCOME_S_MAX = 1800.0  # Telegram itself remembers a failed login for up to 30 minutes
WELCOME_TIMEOUT_S = 10.0


class LetterEffects:
    """Applies them, and keeps the bot's own standing with Telegram: `bot.paused` says why nothing is sent."""

    def __init__(
        self,
        bot: BotRecord,
        *,
        store: Store,
        routes: Routes,
        clock: Clock,
        events: Events,
        lanes: Lanes,
        pace: Pace,
        chats: ChatBook,
        enclosing: Attachments,
        ring: Callable[[], None],
    ) -> None:
        self.bot = bot
        self._record = bot  # as it is stored
        self.pace = pace
        self._store = store
        self._routes = routes
        self._clock = clock
        self._events = events
        self._lanes = lanes
        self._chats = chats
        self._enclosing = enclosing
        self._ring = ring
        self.server_error_at = float("-inf")  # when Telegram last answered with one

    def begin(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def apply(self, letter: Letter, outcome: Outcome, now: float, at_ms: int) -> Outcome:
        """The outcome to settle by, which is nearly always the same."""
        match outcome:
            case Delivered(result=result):
                chat = letter.chat
                if letter.enclosed or isinstance(chat, str) or chat in self._chats.shut_chats:
                    self._learn(letter, result)
            case Limited(retry_after_s=wait):
                self._hold(letter, now, wait, at_ms)
            case Moved(to_chat_id=new):
                self._spawn(self._move(letter.chat, new))
            case Uncertain(code=code):
                if code >= 500:
                    self.server_error_at = now
            case Refused(scope=Scope.BOT):
                self._spawn(self._pause(outcome))
                return Unsent(why=outcome.words)  # the letter is kept, and it costs nothing
            case Refused() if self._enclosing.is_reused(letter) and "file" in outcome.words.lower():
                self._enclosing.forget(letter)
                return Unsent(why=f"the remembered file id is not taken any more: {outcome.words}")
            case Refused(scope=Scope.CHAT, is_passing=False):
                self._shut(letter.chat, outcome.words, at_ms)
        return outcome

    def _learn(self, letter: Letter, result: bytes) -> None:
        if self._chats.is_known_shut(letter.chat):
            self._chats.open(letter.chat)
            at_ms = self._clock.wall_ms()
            self._spawn(self._store.shut_chat(self.bot.bot_id, letter.chat, None, at_ms=at_ms))
        if letter.enclosed and not self._enclosing.is_reused(letter):
            self._spawn(self._enclosing.delivered(letter, result))
        if isinstance(letter.chat, str) and letter.chat.startswith("@"):
            number = self._chats.number_in(result)
            if number is not None:
                self._spawn(self._move(letter.chat, number))

    def _hold(self, letter: Letter, now: float, wait_s: float, at_ms: int) -> None:
        chat = letter.chat
        scope = self.pace.limited(chat, now, retry_after_s=wait_s, is_edit=letter.is_edit)
        held = None if scope is Scope.BOT else chat
        self._events.tell(Held(bot_id=self.bot.bot_id, chat=held, wait_s=wait_s))
        if wait_s >= HOLD_KEPT_S:
            until_ms = at_ms + int(wait_s * 1000)
            if held is not None:
                self._chats.holds(held, until_ms)
            self._spawn(self._store.hold(self.bot.bot_id, held, until_ms))

    def _shut(self, chat: Chat, reason: str, at_ms: int) -> None:
        if self._chats.shut(chat, reason, at_ms):
            self._events.tell(ChatShut(bot_id=self.bot.bot_id, chat=chat, reason=reason))
        self._spawn(self._store.shut_chat(self.bot.bot_id, chat, reason, at_ms=at_ms))

    async def _move(self, old: Chat, new: int) -> None:
        """The chat has another id now: its lanes go there, in order, before anything else is tried in them."""
        if old == new or self._chats.is_moving(old):
            return
        with self._chats.moving(old, new):
            is_stored = False
            while not is_stored:
                is_stored = await self._noted(self._store.readdress(self.bot.bot_id, old, new))
                await asyncio.sleep(0 if is_stored else NOTE_RETRY_S)
            self.pace.move(old, new)
        self._events.tell(ChatMoved(bot_id=self.bot.bot_id, chat=old, to_chat_id=new))
        self._lanes.forget_chat(old)
        self._lanes.forget_chat(new)
        self._ring()

    # ---- a bot that Telegram does not take ----

    def update(self, bot: BotRecord) -> None:
        """The record was changed, or somebody lets the bot go on. That Telegram does not take its token is no part of the record:
        another figure or policy does not end it."""
        record, self._record = self._record, bot
        is_same_way = (bot.token, bot.paused) == (record.token, record.paused)
        self.bot = msgspec.structs.replace(bot, paused=self.bot.paused) if bot != record and is_same_way else bot

    async def _pause(self, refused: Refused) -> None:
        """Keep all letters, ask with getMe now and then, and go on when the token is taken again."""
        if self.bot.paused:
            return
        self.bot = msgspec.structs.replace(self.bot, paused=refused.words)
        self._events.tell(BotPaused(bot_id=self.bot.bot_id, reason=f"{refused.words}. {refused.advice}"))
        wait_s = WELCOME_S_FIRST
        while self.bot.paused == refused.words:
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, WELCOME_S_MAX)
            if self.bot.paused == refused.words and await self._is_welcome():
                self.bot = msgspec.structs.replace(self.bot, paused=None)
        # By itself, or because somebody gave it another token, or paused it himself.
        self._events.tell(BotResumed(bot_id=self.bot.bot_id))
        self._ring()

    async def _is_welcome(self) -> bool:
        request = Request(token=self.bot.token, method="getMe", params=b"{}", timeout_s=WELCOME_TIMEOUT_S)
        return isinstance(judge(await self._routes.carry(request), method="getMe"), Delivered)

    # ---- notes to the store ----

    def _spawn(self, work: Awaitable[None]) -> None:
        self._group.create_task(self._noted(work))

    async def _noted(self, work: Awaitable[None]) -> bool:
        """A note that is good to have over a restart and not worth stopping for: memory has it already."""
        try:
            await work
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(bot_id=self.bot.bot_id, what="a note", why=error.detail))
            return False
        return True
