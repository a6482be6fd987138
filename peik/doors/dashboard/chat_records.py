"""What is known of single chats that matters to sending, by way of the list of all such chats."""

import asyncio
from collections.abc import Sequence

from peik.core.letter import Chat
from peik.desk import Desk
from peik.ports import ChatRecord

_DIGITS_MAX = 18  # fits into 64 bits, and is longer than any chat's number
_NAME_CHARS_MAX = 64


async def records_of(desk: Desk, bot_id: int, chats: Sequence[Chat]) -> list[ChatRecord | None]:
    return list(await asyncio.gather(*(record_of(desk, bot_id, chat) for chat in chats)))


async def record_of(desk: Desk, bot_id: int, chat: Chat) -> ChatRecord | None:
    for after in places_before(chat):
        for record in await desk.chats(bot_id, after=after, limit=1):
            if record.chat == chat:
                return record
    return None


def places_before(chat: Chat) -> tuple[Chat | None, ...]:
    """Keys with nothing between them and this chat: one as numbers are ordered (SQLite), one as texts are (the others)."""
    if isinstance(chat, str):
        return (chat[:-1] + chr(ord(chat[-1]) - 1) + "~" * _NAME_CHARS_MAX,)
    return (chat - 1, _before_as_text(str(chat)))


def _before_as_text(digits: str) -> int | None:
    head, last = digits[:-1], int(digits[-1])
    if digits in ("0", "1", "-1"):
        return 0 if digits == "1" else None  # None: from the very beginning
    return int(f"{head}{last - 1}".ljust(_DIGITS_MAX, "9")) if last else int(head)
