"""How far each chat of one session is known, and what opens it: the session's chat states, changed one after the other."""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from peik.archive_ports import ChatState
from peik.clock import Clock
from peik.errors import Unavailable
from peik.sessions.client import Dialog
from peik.sessions.ports import SeenBook
from peik.vault import Vault

SHARED = (
    0  # in the place of a chat's id: private chats and basic groups together, which have one order of ids per account
)
GAP = -1  # in the place of the newest id
_CHANNELS_BELOW = -1_000_000_000_000  # as the Bot API writes ids


def is_shared(chat_id: int) -> bool:
    return chat_id > _CHANNELS_BELOW


def has_gap(state: ChatState) -> bool:
    """Telegram said that it cannot replay what happened there, and the history was not read since."""
    return state.newest_id == GAP


class ChatStates:
    """Every change reads what is stored first: another node may have asked for a crawl meanwhile."""

    def __init__(self, session_id: str, book: SeenBook, vault: Vault, clock: Clock) -> None:
        self.session_id = session_id
        self._book = book
        self._vault = vault
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def all(self) -> dict[int, ChatState]:
        return {one.chat_id: one for one in await self._book.chat_states(self.session_id)}

    async def change(self, chat_id: int, make: Callable[[ChatState], ChatState]) -> ChatState:
        changed = await self.change_all([chat_id], lambda _, old: make(old))
        return changed[chat_id]

    async def change_all(
        self, chat_ids: Iterable[int], make: Callable[[int, ChatState], ChatState]
    ) -> dict[int, ChatState]:
        """As they are afterwards. One that is new comes to `make` with nothing known."""
        async with self._one_at_a_time:
            known = await self.all()
            changed = {}
            for chat_id in chat_ids:
                old = known.get(chat_id, ChatState(session_id=self.session_id, chat_id=chat_id))
                new = make(chat_id, old)
                if new != old or chat_id not in known:
                    new = msgspec.structs.replace(new, updated_at_ms=self._clock.wall_ms())
                    await self._book.save_chat_state(new)
                changed[chat_id] = new
            return changed

    def named(self, state: ChatState, dialog: Dialog) -> ChatState:
        """With its name, and what opens it, as Telegram has them now."""
        if state.title == dialog.title and self.access(state) == dialog.access:
            return state
        sealed = self._vault.seal(dialog.access.hex(), context=self._context(state.chat_id))
        return msgspec.structs.replace(state, title=dialog.title, access=sealed)

    def access(self, state: ChatState) -> bytes | None:
        """None: unknown, or sealed with a key that is gone. The client then finds the chat by its id."""
        if state.access is None:
            return None
        try:
            return bytes.fromhex(self._vault.open(state.access, context=self._context(state.chat_id)))
        except (Unavailable, ValueError):
            return None

    def _context(self, chat_id: int) -> str:
        return f"session:{self.session_id}:chat:{chat_id}"
