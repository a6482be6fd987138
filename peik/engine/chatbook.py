"""What one bot knows of its chats: which are one and the same, which cannot be reached, which are moving right now."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import msgspec

from peik.core.call import readdress
from peik.core.letter import Chat, Letter
from peik.core.pace import Pace
from peik.ports import Store

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
