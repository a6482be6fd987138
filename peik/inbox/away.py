"""What those who were away say of it, and ask before they go on. Who settles it is in `outages`."""

from collections.abc import Callable
from typing import Protocol

SOURCE = "source"  # who was away


class Outages(Protocol):
    """Who settles what waited while a source or the default consumer was away."""

    def expect(self, bot_id: int, who: str, since_ms: int, /) -> None:
        """It was away since then, and begins to catch up."""

    async def kept(self, bot_id: int, /) -> None:
        """Returns when that is durable. A source asks before anything is confirmed to Telegram."""

    def over(self, bot_id: int, who: str, /) -> None:
        """It has caught up."""

    def forget(self, bot_id: int, /) -> None:
        """It will never catch up: the bot was removed, or its updates are turned off."""

    def holds(self, bot_id: int, /) -> bool:
        """Whether the default consumer has to wait: what it would get may not be meant for it."""

    def when_released(self, ring: Callable[[int], None], /) -> None:
        """`ring` is called with a bot's id when its arrivals are not held any more."""


class NoOutages:
    """Nobody settles anything: everything is handed on."""

    def expect(self, bot_id: int, who: str, since_ms: int, /) -> None: ...

    async def kept(self, bot_id: int, /) -> None: ...

    def over(self, bot_id: int, who: str, /) -> None: ...

    def forget(self, bot_id: int, /) -> None: ...

    def holds(self, bot_id: int, /) -> bool:
        return False

    def when_released(self, ring: Callable[[int], None], /) -> None: ...
