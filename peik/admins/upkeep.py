"""Lets go of what is over: old lines of the audit log, old sign-ins, old failures. Any node may, as often as it likes."""

import asyncio

from peik.admins.attempts import Attempts
from peik.admins.audit import Audit
from peik.admins.sign_ins import SignIns
from peik.clock import Clock
from peik.errors import Conflict, StoreUnavailable, described
from peik.events import Events, StoreFailed, Surprise

EVERY_S = 3600.0


class Upkeep:
    def __init__(self, *, audit: Audit, sign_ins: SignIns, attempts: Attempts, clock: Clock, events: Events) -> None:
        self._audit = audit
        self._sign_ins = sign_ins
        self._attempts = attempts
        self._clock = clock
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
            except Exception as error:  # noqa: BLE001  nobody waits for this task: what ends it would end it in silence
                self._events.tell(Surprise(where="upkeep of the dashboard", error=described(error)))
            await asyncio.sleep(EVERY_S)

    async def once(self) -> None:
        await self._audit.sweep(at_ms=self._clock.wall_ms())
        await self._sign_ins.sweep()
        await self._attempts.sweep(at_ms=self._clock.wall_ms())
