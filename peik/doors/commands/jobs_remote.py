"""Long jobs, asked of a running Peik over REST."""

import urllib.parse

from peik.doors.commands.counter import Document, Filters
from peik.doors.commands.remote_inbox import Call

ANSWER_S = 60.0


class RestJobs:
    def __init__(self, call: Call) -> None:
        self._call = call

    def queue(self, job: Document) -> Document:
        return self._call("POST", "/v1/jobs", body=job)

    def job(self, job_id: str, wait_s: float = 0.0) -> Document:
        query = {"wait": f"{wait_s:.3f}s"} if wait_s > 0 else {}
        return self._call("GET", _path(job_id), query, timeout_s=wait_s + ANSWER_S)

    def jobs(self, filters: Filters, *, cursor: str | None, limit: int) -> Document:
        query = {**filters, "limit": str(limit)}
        return self._call("GET", "/v1/jobs", query if cursor is None else {**query, "cursor": cursor})

    def cancel(self, job_id: str) -> Document:
        return self._call("DELETE", _path(job_id))

    def retry(self, job_id: str) -> Document:
        return self._call("POST", f"{_path(job_id)}/retry")

    def stats(self) -> Document:
        return self._call("GET", "/v1/jobs/stats")

    def used(self, kind: str, user: str) -> Document:
        return self._call("GET", "/v1/jobs/used", {"kind": kind, "user": user})

    def hosts(self) -> Document:
        return self._call("GET", "/v1/hosts")


def _path(job_id: str) -> str:
    return f"/v1/jobs/{urllib.parse.quote(job_id, safe='')}"
