"""aiogram's FSM on the bot's own file: each admin's conversation stands apart, and a restart loses no step."""

import json
from collections.abc import Mapping
from typing import Any

from aiogram.fsm.state import State
from aiogram.fsm.storage.base import BaseStorage, DefaultKeyBuilder, StateType, StorageKey

from examples.downloader_bot.book import Book


class BookStorage(BaseStorage):
    def __init__(self, book: Book) -> None:
        self._book = book
        self._keys = DefaultKeyBuilder(with_bot_id=True, with_business_connection_id=True, with_destiny=True)

    async def set_state(self, key: StorageKey, state: StateType = None) -> None:
        await self._book.set_step(self._keys.build(key), state=state.state if isinstance(state, State) else state)

    async def get_state(self, key: StorageKey) -> str | None:
        return (await self._book.step(self._keys.build(key)))[0]

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        await self._book.set_step_data(self._keys.build(key), json.dumps(dict(data)))

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((await self._book.step(self._keys.build(key)))[1])
        return data

    async def close(self) -> None:
        """The book is closed by who opened it."""
