"""Jobs of a person that is forgotten: theirs, and those that name them. Their folders go with their runs, as always."""

from peik.clock import Clock
from peik.core.forgetting import Found, Gone, Person, names
from peik.core.job import Job
from peik.core.letter import State
from peik.errors import Conflict, NotFound
from peik.forgetting_ports import Forgetting
from peik.job_ports import JobFilter, JobStore

PAGE = 200
REASON = "Whoever asked for it is forgotten."


class JobsPart:
    """The port `Part`."""

    def __init__(self, jobs: JobStore, forgetting: Forgetting, *, clock: Clock) -> None:
        self._jobs = jobs
        self._forgetting = forgetting
        self._clock = clock

    async def forget(self, person: Person, *, is_dry: bool) -> Found:
        found, before = Gone(), None
        while True:
            page = await self._jobs.jobs(JobFilter(), before=before, limit=PAGE)
            meant = [job for job in page if person.is_called(job.user) or _names(person, job)]
            ended = [job.id for job in meant if await self._is_over(person, job, is_dry=is_dry)]
            removed = len(ended) if is_dry or not ended else await self._forgetting.drop_jobs(ended)
            found += Gone(removed=removed, left=len(meant) - removed)
            if len(page) < PAGE:
                break
            before = page[-1].id
        days = await self._forgetting.drop_job_days(sorted(person.words), is_dry=is_dry)
        return {"jobs": found, "job_days": Gone(removed=days)}

    async def _is_over(self, person: Person, job: Job, *, is_dry: bool) -> bool:
        if job.state.is_final:
            return True
        if not person.is_called(job.user):
            return False  # somebody else waits for it
        if is_dry:
            return job.state is not State.ACTIVE
        try:
            # Not by the desk, which would tell the person about it.
            return (await self._jobs.cancel(job.id, reason=REASON, at_ms=self._clock.wall_ms())).state.is_final
        except Conflict:
            return True  # it ended a moment ago
        except NotFound:
            return False


def _names(person: Person, job: Job) -> bool:
    texts = (job.params, job.result, job.failed_reason, job.history, job.metadata, job.progress_text, job.notice)
    return names(person, *texts, job.notice_state, job.key)
