"""Bot API updates for the stories of MTProto clients, and the clients' own handlers' diary."""

import asyncio
from collections.abc import Callable
from typing import Any

from tests.patience import PATIENCE_S

BOT = 7000001
SARA = {"id": 42, "is_bot": False, "first_name": "Sara", "username": "sara", "language_code": "fa"}
PRIVATE = {"id": 42, "type": "private", "first_name": "Sara", "username": "sara"}
GROUP = {"id": -77, "type": "group", "title": "Old friends"}
SUPERGROUP = {"id": -1001234567890, "type": "supergroup", "title": "Readers", "username": "readers"}
CHANNEL = {"id": -1009876543210, "type": "channel", "title": "News"}
ME = {"id": BOT, "is_bot": True, "first_name": "Courier", "username": "courier_bot"}


def message(message_id: int, text: str | None = None, *, chat: dict[str, Any] = PRIVATE, **more: Any) -> dict[str, Any]:
    body = {"message_id": message_id, "date": 1_790_000_000 + message_id, "chat": chat, "from": SARA, **more}
    return body if text is None else {**body, "text": text}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  a fact of somebody else's library, which has no bell
            await asyncio.sleep(0.005)
