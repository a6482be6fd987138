"""What broadcasts ask of the rest of Peik: letters, by the desk; and what is known of chats."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from peik.core.letter import Chat, OnUncertain
from peik.ports import LetterView


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A letter that is to be accepted."""

    method: str
    params: bytes
    key: str | None = None  # of idempotency
    label: str | None = None  # its message_type
    number: int | None = None  # of the recipient: its user_id
    round: int = 0
    priority: int
    send_at_ms: int | None = None
    on_uncertain: OnUncertain | None = None


class Letters(Protocol):
    """Every method may raise StoreUnavailable."""

    async def accept(self, bot_id: int, letters: Sequence[Outgoing]) -> list[int]:
        """Their ids; all in one commit, or none. A key that was used before gives the letter of that time. Raises BadInput,
        Conflict (the key was used for another call) and NotFound (there is no such bot)."""

    async def those(self, letter_ids: Sequence[int]) -> dict[int, LetterView]:
        """Those that are still kept."""

    async def labelled(self, bot_id: int, label: str, *, limit: int) -> list[LetterView]:
        """The newest letters with this label."""

    async def cancel(self, letter_id: int) -> LetterView:
        """Raises Conflict if it is in flight or has ended, NotFound."""

    async def shut_chats(self, bot_id: int) -> set[Chat]:
        """Chats that cannot be reached."""

    def bot_id(self, asked: int | None) -> int:
        """That bot, or the only one. Raises NotFound, BadInput."""

    def per_s(self, bot_id: int) -> float | None:
        """How many messages of a broadcast the bot may send in a second. None: there is no such bound."""
