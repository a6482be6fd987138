"""Long jobs in the store itself. Nothing is done here: processes that know the kinds do it, and hear of what is queued."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from peik.cli.client import Document, Filters
from peik.clock import SystemClock
from peik.core.events import Events
from peik.errors import Unavailable
from peik.jobs.answers import page_view, stats_view, used_view, whole_view
from peik.jobs.api import JobBody, checked_kind, checked_user, job_filter_of, request_of
from peik.jobs.model import JobRecord
from peik.jobs.service import JobService
from peik.jobs.store import JobKinds, JobStore
from peik.outbox.service import OutboxService
from peik.web.parse import decode, parse_id


class FileJobs:
    def __init__(
        self, store: JobStore, *, desk: OutboxService, run: Callable[[Coroutine[object, object, Any]], Any]
    ) -> None:
        self._bots = desk
        self._run = run
        self._jobs = JobService(store=store, kinds=JobKinds(), teller=_Nobody(), clock=SystemClock(), events=Events())

    def queue(self, job: Document) -> Document:
        wanted = request_of(decode(JobBody, msgspec.json.encode(job)), self._bots)
        (queued,) = self._run(self._jobs.queue([wanted]))
        state = self._run(self._jobs.get(queued.job_id)).state if queued.is_repeat else queued.state
        return {"id": str(queued.job_id), "state": state}

    def job(self, job_id: str, wait_s: float = 0.0) -> Document:
        return self._shown(self._jobs.wait(parse_id(job_id, "job_id"), wait_s))

    def jobs(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        before = None if cursor is None else parse_id(cursor, "cursor")
        found = self._run(self._jobs.find(job_filter_of(filters), before=before, limit=limit))
        return _plain(page_view(found, limit))

    def cancel(self, job_id: str) -> Document:
        return self._shown(self._jobs.cancel(parse_id(job_id, "job_id")))

    def retry(self, job_id: str) -> Document:
        return self._shown(self._jobs.retry(parse_id(job_id, "job_id")))

    def stats(self) -> Document:
        return stats_view(self._run(self._jobs.tallies()))

    def used(self, kind: str, user: str) -> Document:
        used = self._run(self._jobs.used_today(checked_kind(kind), checked_user(user)))
        return used_view(kind, user, used)

    def hosts(self) -> Document:
        raise Unavailable(
            code="not_running", detail="Only a running Peik knows how hosts stand. Start it, or say where: --url."
        )

    def _shown(self, work: Coroutine[object, object, JobRecord]) -> Document:
        async def looked() -> dict[str, object]:
            return await whole_view(self._jobs, await work)

        return _plain(self._run(looked()))


class _Nobody:
    """Chats hear of a job from the process that does it."""

    def queued(self, job: JobRecord) -> None: ...

    def began(self, job: JobRecord) -> None: ...

    def progressed(self, job: JobRecord, progress: float | None, text: str | None) -> None: ...

    def ended(self, job: JobRecord) -> None: ...


def _plain(document: object) -> Document:
    """With what stays as bytes as values, as they come over the wire."""
    return dict(msgspec.json.decode(msgspec.json.encode(document)))
