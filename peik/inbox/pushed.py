"""Updates that Telegram pushes, one by one and out of order. They are stored by whichever process has the door open."""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from peik.core.arrival import Update
from peik.core.gap import is_pushed_anew
from peik.errors import StoreUnavailable
from peik.events import Events, NumberingReset
from peik.inbox.company import Company, Told
from peik.inbox.intake import Intake
from peik.inbox_ports import InboxStore

SECRET_BYTES = 32


class Secrets(Protocol):
    """Where secrets are kept."""

    async def secret(self, name: str, candidate: str) -> str: ...


class _Push:
    __slots__ = ("newest", "update")

    def __init__(self, update: Update, newest: int | None) -> None:
        self.update = update
        self.newest = newest  # the highest id before it


class Pushed:
    def __init__(self, *, store: InboxStore, secret_store: Secrets, intake: Intake, events: Events) -> None:
        self._store = store
        self._secret_store = secret_store
        self._intake = intake
        self._events = events
        self._newest: dict[int, int | None] = {}  # the highest id of each bot's epoch
        self._secrets: dict[int, str] = {}
        self._companies: dict[int, Company[_Push]] = {}

    async def secret(self, bot_id: int) -> str:
        """What Telegram shows us with every push. Made at the first use, and kept."""
        known = self._secrets.get(bot_id)
        if known is None:
            candidate = secrets.token_urlsafe(SECRET_BYTES)  # in the alphabet that Telegram allows
            known = await self._secret_store.secret(f"webhook:{bot_id}", candidate)
            self._secrets[bot_id] = known
        return known

    def known_secret(self, bot_id: int) -> str | None:
        """The same, if it need not be asked for."""
        return self._secrets.get(bot_id)

    async def take_in(self, bot_id: int, update: Update) -> None:
        """Make it durable. Those that come while others are stored go together. Raises StoreUnavailable."""
        if bot_id not in self._newest:
            newest = await self._newest_stored(bot_id)
            self._newest.setdefault(bot_id, newest)
        push, is_new_epoch = self._placed(bot_id, update)
        await self._company(bot_id).travel(push, begins=is_new_epoch)

    def take_in_at_once(self, bot_id: int, update: Update, told: Told) -> bool:
        """The same for one who is told how it ended. False: what is stored has to be asked first, and nothing was done."""
        if bot_id not in self._newest:
            return False
        push, is_new_epoch = self._placed(bot_id, update)
        self._company(bot_id).join(push, told, begins=is_new_epoch)
        return True

    def _placed(self, bot_id: int, update: Update) -> tuple[_Push, bool]:
        """An update as it goes on its way, and whether an epoch begins with it."""
        before = self._newest[bot_id]
        is_new_epoch = is_pushed_anew(update.update_id, newest=before)
        if before is None or is_new_epoch or update.update_id > before:
            self._newest[bot_id] = update.update_id
        return _Push(update, before), is_new_epoch

    def _company(self, bot_id: int) -> Company[_Push]:
        company = self._companies.get(bot_id)
        if company is None:
            company = self._companies[bot_id] = Company(partial(self._store_all, bot_id))
        return company

    async def _store_all(self, bot_id: int, pushes: Sequence[_Push], is_new_epoch: bool) -> None:
        # No last id: what a poll may confirm later is only what polls have brought. Here, something older may still
        # wait at Telegram for its next try.
        updates = [push.update for push in pushes]
        try:
            taken = await self._intake.take_in(bot_id, updates, last_update_id=None, is_new_epoch=is_new_epoch)
        except StoreUnavailable:
            self._newest.pop(bot_id, None)  # what is stored is asked anew
            raise
        if is_new_epoch:
            first = pushes[0]
            expected_id, first_id = (first.newest or 0) + 1, first.update.update_id
            self._events.tell(
                NumberingReset(bot_id=bot_id, expected_id=expected_id, first_id=first_id, epoch=taken.epoch)
            )

    def forget(self, bot_id: int) -> None:
        """Another source may bring this bot's updates from now on."""
        self._newest.pop(bot_id, None)

    async def _newest_stored(self, bot_id: int) -> int | None:
        state = await self._store.inbox(bot_id)
        return None if state is None else state.newest_update_id
