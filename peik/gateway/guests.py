"""Bots that came by themselves, through a gateway that is open: nobody who runs Peik has added them.

Such a bot is marked before it is known, so that none can be without its mark. Whoever adds it by its token (the settings, REST,
the dashboard, the command line) makes it the owner's.
"""

from peik.clock import Clock
from peik.core.documents import DocumentStore, Filing

COLLECTION = "guests"
FRESH_S = 60.0
KNOWN_MAX = 10_000


class Guests:
    def __init__(self, documents: DocumentStore, clock: Clock) -> None:
        self._documents = documents
        self._clock = clock
        self._known: dict[int, tuple[float, bool]] = {}

    async def has(self, bot_id: int) -> bool:
        """As it is, or was within the last minute. Raises StoreUnavailable."""
        at, is_guest = self._known.get(bot_id, (float("-inf"), True))
        if self._clock.mono() - at < FRESH_S:
            return is_guest
        is_guest = await self._documents.document(COLLECTION, str(bot_id)) is not None
        self._know(bot_id, is_guest=is_guest)
        return is_guest

    async def add(self, bot_id: int) -> None:
        await self._documents.file([Filing(collection=COLLECTION, key=str(bot_id), body="{}")])
        self._know(bot_id, is_guest=True)

    async def remove(self, bot_id: int) -> None:
        await self._documents.file([Filing(collection=COLLECTION, key=str(bot_id), body=None)])
        self._know(bot_id, is_guest=False)

    def _know(self, bot_id: int, *, is_guest: bool) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[bot_id] = (self._clock.mono(), is_guest)
