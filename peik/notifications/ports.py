"""What notifications need of the rest of Peik: the outbox, and the bots."""

from collections.abc import Sequence
from typing import Protocol

from peik.notifications.values import Parcel
from peik.ports import LetterView


class Letters(Protocol):
    async def accept(self, parcels: Sequence[Parcel]) -> list[list[int]]:
        """The letters of each parcel, durable, all or none; the same ones if it was accepted before. Raises Problem."""

    async def answer(self, bot_id: int, chat_id: int, text: str, *, idempotency_key: str) -> None:
        """A plain text to somebody, once under this key. Raises Problem."""

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        """Those that are still kept."""


class Bots(Protocol):
    def receiving(self, bot_id: int | None) -> int:
        """The bot, or the only one there is. Raises NotFound, BadInput; Conflict if nobody fetches its updates."""

    def are_several(self) -> bool:
        """Whether there is more than one bot."""

    def named(self, bot_id: int | None) -> int:
        """The same of a bot that may only send."""

    async def username(self, bot_id: int) -> str | None:
        """As Telegram calls it. None: that cannot be asked now."""
