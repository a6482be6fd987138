"""Puts into the store how runs ended, however long the store is away, and tells of it only after the commit."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from peik.core.job import End, Job, Ran
from peik.core.letter import State
from peik.errors import InDoubt, StoreUnavailable
from peik.events import StoreFailed
from peik.job_events import JobRan
from peik.job_ports import JobStore, Settled
from peik.jobs.running import Tools

RETRY_S = 1.0
PAGE = 100

T = TypeVar("T")


class Settling:
    def __init__(self, store: JobStore, tools: Tools, *, answer_s: float) -> None:
        self._store = store
        self._tools = tools
        self._answer_s = answer_s
        self._waiting = 0  # runs that are over, and that the store could not be told of yet

    async def settle(self, ran: Ran, *, run_s: float) -> None:
        """Until the store answers. A run that was given up meanwhile cannot be settled: the store knows by its number, so
        that asking late does no harm, and a store that comes back after an hour still hears of work that was done."""
        is_doubtful = is_waiting = False
        try:
            while True:
                try:
                    settled = await self._settled(ran)
                    break
                except StoreUnavailable as error:
                    is_doubtful = is_doubtful or isinstance(error, InDoubt)
                    if not is_waiting:
                        is_waiting = True
                        self._waiting += 1
                        self._tools.events.tell(StoreFailed(what=f"the end of job {ran.job_id}", why=error.detail))
                    await asyncio.sleep(RETRY_S)
        finally:
            self._waiting -= is_waiting
        job = None if settled is None else settled.job
        if job is None and is_doubtful:
            job = await self._as_stored(ran)
        if job is not None:
            self.tell(job, ran, run_s=run_s)

    async def _settled(self, ran: Ran) -> Settled | None:
        return (await self.asked(self._store.settle([ran], at_ms=self._tools.clock.wall_ms())))[0]

    async def _as_stored(self, ran: Ran) -> Job | None:
        """A settlement whose answer was lost may be there already."""
        try:
            job = await self.asked(self._store.job(ran.job_id))
        except StoreUnavailable:
            return None
        return job if job is not None and job.run == ran.run and job.state is not State.ACTIVE else None

    async def reap(self) -> int:
        """Give up runs whose workers are dead, whosever they are. How many. Raises StoreUnavailable."""
        if self._waiting:
            return 0  # the store comes back just now, and some of them may be ours: their ends first
        count, gone = 0, PAGE
        while gone >= PAGE:
            at_ms = self._tools.clock.wall_ms()
            reaped = await self.asked(self._store.reap(at_ms=at_ms, limit=PAGE))
            for one in reaped:
                ran = Ran(job_id=one.job.id, run=one.job.run, end=End.LOST, reason=one.verdict.reason)
                self.tell(one.job, ran, run_s=max(at_ms - (one.job.started_at_ms or at_ms), 0) / 1000)
            gone = len(reaped)
            count += gone
        return count

    def tell(self, job: Job, ran: Ran, *, run_s: float) -> None:
        self._tools.events.tell(
            JobRan(
                bot_id=bot_of(job),
                job_id=job.id,
                kind=job.kind,
                user=job.user,
                run=ran.run,
                end=ran.end,
                state=job.state,
                reason=ran.reason if ran.reason is not None else job.failed_reason,
                run_s=run_s,
            )
        )
        self._tools.teller.ended(job)

    async def asked(self, answer: Awaitable[T]) -> T:
        """A store that hangs is one whose answer was lost. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(self._answer_s):
                return await answer
        except TimeoutError:
            raise InDoubt(code="store_slow", detail="The store does not answer.") from None


class _Notice(msgspec.Struct):
    bot_id: int = 0


_read_notice = msgspec.json.Decoder(_Notice).decode


def bot_of(job: Job) -> int:
    """The bot that tells of a job; 0: none."""
    return 0 if job.notice is None else _read_notice(job.notice).bot_id
