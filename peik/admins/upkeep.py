"""Lets go of what is over: old lines of the audit log, old sign-ins, old failures. Any node may, as often as it likes."""

import asyncio

from peik.admins.attempts import Attempts
from peik.admins.audit import Audit
from peik.admins.sign_ins import SignIns
from peik.errors import Conflict, StoreUnavailable
from peik.events import Events, StoreFailed

EVERY_S = 3600.0


class Upkeep:
    def __init__(self, *, audit: Audit, sign_ins: SignIns, attempts: Attempts, events: Events) -> None:
        self._audit = audit
        self._sign_ins = sign_ins
        self._attempts = attempts
        self._events = events

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.once()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="the audit log", why=error.detail))
            except Conflict:
                pass  # another node was at the same; the rest goes the next time
            await asyncio.sleep(EVERY_S)

    async def once(self) -> None:
        await self._audit.sweep()
        await self._sign_ins.sweep()
        await self._attempts.sweep()
