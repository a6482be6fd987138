"""What happens to jobs in the stories, in few words."""

import asyncio
from typing import Any

from peik.jobs.model import JobDraft, JobEnd, JobRecord, Ran
from peik.jobs.store import JobStore, KindTerms, Queued, SettledRun
from tests.storage.acts import HOUR, NOW
from tests.storage.places import Place

KIND = "download"
WIDE = KindTerms(concurrency=1000, per_user=1000)
SHORT_MS = 5  # a lease that is over as soon as a story wants it to be


def terms(concurrency: int = 1000, per_user: int = 1000) -> KindTerms:
    return KindTerms(concurrency=concurrency, per_user=per_user)


def a_job(user: str = "ann", **more: Any) -> JobDraft:
    more.setdefault("kind", KIND)
    return JobDraft(user=user, **more)


async def queue(jobs: JobStore, *drafts: JobDraft, at_ms: int = NOW) -> list[int]:
    return [one.job_id for one in await queued(jobs, *drafts, at_ms=at_ms)]


async def queued(jobs: JobStore, *drafts: JobDraft, at_ms: int = NOW) -> list[Queued]:
    return await jobs.queue(drafts, quotas={}, at_ms=at_ms)


async def take(
    jobs: JobStore,
    limit: int = 100,
    *,
    within: KindTerms = WIDE,
    kind: str = KIND,
    lease_ms: int = HOUR,
    at_ms: int = NOW,
) -> list[JobRecord]:
    return await jobs.take(kind, within, limit=limit, lease_ms=lease_ms, at_ms=at_ms)


async def taken(jobs: JobStore, limit: int = 100, **how: Any) -> list[int]:
    return [one.id for one in await take(jobs, limit, **how)]


async def take_one(jobs: JobStore, **how: Any) -> JobRecord:
    (job,) = await take(jobs, 1, **how)
    return job


def ran(job: JobRecord, end: JobEnd = JobEnd.DONE, **more: Any) -> Ran:
    return Ran(job_id=job.id, run=job.run, end=end, **more)


async def settle(jobs: JobStore, *runs: Ran, at_ms: int = NOW) -> list[SettledRun | None]:
    return await jobs.settle(runs, at_ms=at_ms)


async def end(jobs: JobStore, job: JobRecord, how: JobEnd = JobEnd.DONE, *, at_ms: int = NOW, **more: Any) -> JobRecord:
    """The job after its run ended so."""
    (settled,) = await settle(jobs, ran(job, how, **more), at_ms=at_ms)
    assert settled is not None
    assert await jobs.job(job.id) == settled.job  # what is told is what is kept
    return settled.job


async def the_job(jobs: JobStore, job_id: int) -> JobRecord:
    job = await jobs.job(job_id)
    assert job is not None
    return job


async def pass_leases(place: Place) -> None:
    """Leases of SHORT_MS are over now: on the clock of the stories, and on that of a server."""
    place.clock.pass_ms(2 * SHORT_MS)
    await asyncio.sleep(2 * SHORT_MS / 1000)


async def lose(place: Place, jobs: JobStore, *, at_ms: int = NOW, limit: int = 100) -> list[JobRecord]:
    """Whatever was taken for SHORT_MS is given up; the jobs after that."""
    await pass_leases(place)
    return [one.job for one in await jobs.reap(at_ms=at_ms, limit=limit)]
