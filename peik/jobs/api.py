"""REST: long jobs. Queueing, looking, waiting, cancelling, running again; and the outside hosts that jobs talk to."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Scope
from peik.core.letter import Backoff, Priority, State
from peik.core.trace import under
from peik.errors import BadInput
from peik.jobs.answers import host_view, page_view, stats_view, used_view, whole_view
from peik.jobs.hosts import HostState
from peik.jobs.model import KEY_CHARS_MAX, TIMEOUT_S_MAX, USER_CHARS_MAX, JobEnd, JobRecord, JobRequest, OnDone
from peik.jobs.store import JobFilter
from peik.outbox.service import OutboxService
from peik.web.access import Access
from peik.web.bodies import filter_of, read_body, read_cursor, read_limit, read_traced, wait_s
from peik.web.openapi import ID, LIMIT, SECONDS, TIME, Json, OperationRow, in_path, in_query, nullable, shape
from peik.web.parse import decode, instant_ms, parse_id
from peik.web.responses import Route, json_response

if TYPE_CHECKING:
    from peik.app.runtime import Runtime

KIND_PATTERN = "^[A-Za-z0-9_.-]{1,64}$"
FILTERS = ("kind", "user", "state", "since")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_Id = int | str | None


class NoticeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A chat in which a job is told of, in one message. Ids are numbers, or strings as they are shown."""

    chat_id: int | str
    bot_id: _Id = None
    thread_id: _Id = None
    reply_to: _Id = None
    language: str | None = None
    has_progress: bool = True
    on_done: OnDone = OnDone.EDIT
    label: str | None = None


class JobBody(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/jobs`. What is left out is as its kind says, where the node that is asked knows the kind."""

    kind: str
    params: dict[str, Any] = {}
    user: int | str = ""
    priority: int = Priority.NORMAL.value
    attempts: int | None = None
    backoff_ms: int | None = None
    backoff: Backoff | None = None
    timeout_ms: int | None = None
    run_at: int | float | str | None = None
    idempotency_key: str | None = None
    metadata: dict[str, Any] | None = None
    notice: NoticeBody | None = None


class JobBatchBody(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[JobBody]


def request_of(body: JobBody, desk: OutboxService, *, key: str | None = None) -> JobRequest:
    """The service's request. A key in the body wins over the header. Raises BadInput, and NotFound for a bot that is not there:
    nobody would ever hear of the job."""
    notice = None if body.notice is None else _notice_of(body.notice)
    if notice is not None:
        desk.bot(notice["bot_id"] or None)
    return JobRequest(
        kind=body.kind,
        params=body.params,
        user=str(body.user),
        priority=body.priority,
        attempts=body.attempts,
        backoff_ms=body.backoff_ms,
        backoff=body.backoff,
        timeout_s=_timeout_s(body.timeout_ms),
        run_at_ms=instant_ms(body.run_at, "run_at"),
        key=body.idempotency_key or key,
        notice=notice,
        metadata=body.metadata,
    )


def _notice_of(body: NoticeBody) -> dict[str, Any]:
    given = msgspec.structs.asdict(body)
    for name in ("bot_id", "thread_id", "reply_to"):
        if isinstance(given[name], str):
            given[name] = parse_id(given[name], name)
    return given


def _timeout_s(timeout_ms: int | None) -> float | None:
    if timeout_ms is None:
        return None
    most_ms = int(TIMEOUT_S_MAX * 1000)
    if not 1 <= timeout_ms <= most_ms:
        raise BadInput(code="bad_timeout_ms", detail=f"timeout_ms must be between 1 and {most_ms}.")
    return timeout_ms / 1000


class JobRoutes:
    """Jobs belong to no bot, even if one tells of them: all of this is for keys without bot_ids."""

    def __init__(self, peik: "Runtime", access: Access) -> None:
        self._jobs = peik.jobs
        self._hosts = peik.hosts
        self._desk = peik.desk
        self._config = peik.config
        self._clock = peik.clock
        self._node = peik.store.nodes.node
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("POST", "/v1/jobs", self.queue, "queueJob", "jobs"),
            ("GET", "/v1/jobs", self.list_jobs, "listJobs", "jobs"),
            # Before those with an id: the first path that fits is taken.
            ("POST", "/v1/jobs/batch", self.queue_batch, "queueJobs", "jobs"),
            ("GET", "/v1/jobs/stats", self.get_stats, "getJobStats", "jobs"),
            ("GET", "/v1/jobs/used", self.get_used, "getJobsUsed", "jobs"),
            ("GET", "/v1/jobs/{job_id}", self.get_job, "getJob", "jobs"),
            ("DELETE", "/v1/jobs/{job_id}", self.cancel, "cancelJob", "jobs"),
            ("POST", "/v1/jobs/{job_id}/retry", self.retry, "retryJob", "jobs"),
            ("GET", "/v1/hosts", self.list_hosts, "listHosts", "jobs"),
        )

    # ---- queueing ----

    async def queue(self, request: Request) -> Response:
        """Queue a job durably; with `?wait=10s`, answer with what became of it."""
        self._admit(request, "send")
        wait = self._wait_s(request)
        body = decode(JobBody, await self._body(request))
        wanted = request_of(body, self._desk, key=request.headers.get("idempotency-key"))
        with under(read_traced(request)):
            (queued,) = await self._jobs.queue([wanted])
        if wait:
            job = await self._jobs.wait(queued.job_id, wait)
            return await self._shown(job, 200 if job.state.is_final else 202)
        state = (await self._jobs.get(queued.job_id)).state if queued.is_repeat else queued.state
        return json_response({"id": str(queued.job_id), "state": state}, 202)

    async def queue_batch(self, request: Request) -> Response:
        """Queue many jobs in one commit, all or none."""
        self._admit(request, "send")
        body = decode(JobBatchBody, await self._body(request))
        with under(read_traced(request)):
            queued = await self._jobs.queue([request_of(one, self._desk) for one in body.jobs])
        return json_response({"ids": [str(one.job_id) for one in queued]}, 202)

    # ---- looking ----

    async def get_job(self, request: Request) -> Response:
        """One job: how far it is, its place while it waits, and every run; with `?wait=10s`, once it has ended."""
        self._admit(request, "read")
        return await self._shown(await self._jobs.wait(_path_id(request), self._wait_s(request)))

    async def list_jobs(self, request: Request) -> Response:
        """Jobs by kind, user, state and time, the newest first."""
        self._admit(request, "read")
        wanted = job_filter_of(_given(request, FILTERS, also=("cursor", "limit")))
        limit = read_limit(request)
        jobs = await self._jobs.find(wanted, before=read_cursor(request), limit=limit)
        return json_response(page_view(jobs, limit))

    async def get_stats(self, request: Request) -> Response:
        """How many jobs of each kind stand where."""
        self._admit(request, "read")
        return json_response(stats_view(await self._jobs.tallies()))

    async def get_used(self, request: Request) -> Response:
        """What a user has had of a kind of jobs today (UTC), and what the day allows."""
        self._admit(request, "read")
        given = _given(request, ("kind", "user"))
        kind, user = checked_kind(given.get("kind", "")), checked_user(given.get("user", ""))
        return json_response(used_view(kind, user, await self._jobs.used_today(kind, user)))

    async def list_hosts(self, request: Request) -> Response:
        """The outside hosts that jobs of the node that answers talk to, and which of them are left alone for a while."""
        self._admit(request, "read")
        now_ms = self._clock.wall_ms()
        return json_response({"node": self._node, "hosts": [host_view(one, now_ms) for one in self._hosts.all()]})

    # ---- changing ----

    async def cancel(self, request: Request) -> Response:
        """Cancel a job. One that runs is told to end, and ends soon after: `is_cancelling` is true until then."""
        self._admit(request, "send")
        return await self._shown(await self._jobs.cancel(_path_id(request)))

    async def retry(self, request: Request) -> Response:
        """Run a failed or cancelled job again, with all of its attempts."""
        self._admit(request, "send")
        return await self._shown(await self._jobs.retry(_path_id(request)), 202)

    # ---- ----

    def _admit(self, request: Request, scope: Scope) -> None:
        self._access.admit(request, scope).must_serve_all()

    async def _body(self, request: Request) -> bytes:
        return await read_body(request, bytes_max=self._config.body_max)

    def _wait_s(self, request: Request) -> float:
        return wait_s(request, most_s=self._config.wait_max)

    async def _shown(self, job: JobRecord, status: int = 200) -> Response:
        return json_response(await whole_view(self._jobs, job), status)


# ---- reading ----


def _path_id(request: Request) -> int:
    return parse_id(request.path_params["job_id"], "job_id")


def _given(request: Request, names: tuple[str, ...], *, also: tuple[str, ...] = ()) -> dict[str, str]:
    """An unknown name is refused: a mistyped filter must not mean "everything"."""
    query = request.query_params
    unknown = set(query) - {*names, *also}
    if unknown:
        raise BadInput(
            code="unknown_filter",
            detail=f"There is no filter {', '.join(sorted(unknown))}. There are: {', '.join((*names, *also))}.",
        )
    return {name: query[name] for name in names if name in query}


def job_filter_of(given: Mapping[str, str]) -> JobFilter:
    """Which jobs. An empty user is one, too: those that belong to nobody in particular."""
    shared = filter_of({name: given[name] for name in ("state", "since") if name in given})
    return JobFilter(
        kind=checked_kind(given["kind"]) if "kind" in given else None,
        user=checked_user(given["user"]) if "user" in given else None,
        state=shared.state,
        since_ms=shared.since_ms,
    )


def checked_kind(text: str) -> str:
    if re.fullmatch(KIND_PATTERN, text) is None:
        raise BadInput(code="bad_kind", detail="kind names a kind of jobs: 1 to 64 letters, digits and . _ - only.")
    return text


def checked_user(text: str) -> str:
    if len(text) > USER_CHARS_MAX or _UNSEEN.search(text):
        raise BadInput(
            code="bad_user", detail=f"user has at most {USER_CHARS_MAX} characters, and none that is unseen."
        )
    return text


# The jobs' part of the OpenAPI document: one row per operation, and what the answers look like.


_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer"}
_FLAG: Json = {"type": "boolean"}
_STATE: Json = {"type": "string", "enum": [str(state) for state in State]}
_KIND: Json = {"type": "string", "pattern": KIND_PATTERN}
_COUNTS: Json = dict.fromkeys(("waiting", "delayed", "active", "completed", "failed", "cancelled"), _WHOLE)

_JOB = shape(
    id=ID,
    kind=_KIND,
    user=_TEXT | {"description": "Whose it is: turns and limits go by it. Empty: nobody's in particular."},
    params={"type": "object"},
    state=_STATE,
    is_cancelling=_FLAG | {"description": "It runs, and was told to end."},
    priority={"type": "integer", "minimum": -1, "maximum": 2},
    attempts=_WHOLE,
    attempts_made=_WHOLE,
    backoff_ms=_WHOLE,
    backoff={"type": "string", "enum": [str(kind) for kind in Backoff]},
    timeout_ms=nullable(_WHOLE) | {"description": "Of one run."},
    progress=nullable({"type": "number", "minimum": 0, "maximum": 1}),
    progress_text=nullable(_TEXT),
    result={"description": "What its function returned, once it is completed."},
    failed_reason=nullable(_TEXT),
    history={
        "type": "array",
        "items": shape(
            at=TIME,
            end={"type": "string", "enum": [str(end) for end in JobEnd]},
            run=_WHOLE,
            reason=nullable(_TEXT),
            node=nullable(_TEXT),
        ),
        "description": "Its runs that are over.",
    },
    node=nullable(_TEXT) | {"description": "Where it runs."},
    notice=nullable({"type": "object"}) | {"description": "The chat in which it is told of."},
    metadata=nullable({"type": "object"}),
    bytes_used=_WHOLE,
    idempotency_key=nullable(_TEXT),
    created_at=TIME,
    due_at=nullable(TIME) | {"description": "While it is delayed."},
    started_at=nullable(TIME) | {"description": "Of its last run."},
    ended_at=nullable(TIME),
)
_JOB["properties"] |= {
    "position": nullable(_WHOLE) | {"description": "1: it is the next. Where one job is shown, while it waits."},
    "eta_s": nullable(SECONDS) | {"description": "About so long until it begins; null: nobody knows."},
}

JOB_SCHEMAS: Json = {
    "Job": _JOB,
    "QueuedJob": shape(id=ID, state=_STATE),
    "QueuedJobs": shape(ids={"type": "array", "items": ID}),
    "Jobs": shape(
        jobs={"type": "array", "items": {"$ref": "#/components/schemas/Job"}},
        next=nullable(ID) | {"description": "The cursor of the next page; null at the end."},
    ),
    "JobStats": shape(kinds={"type": "object", "additionalProperties": shape(**_COUNTS)}),
    "JobsUsed": shape(
        kind=_KIND,
        user=_TEXT,
        jobs=_WHOLE,
        bytes=_WHOLE,
        jobs_max=nullable(_WHOLE) | {"description": "Null: no bound, or the node that answers does not know the kind."},
        bytes_max=nullable(_WHOLE),
    ),
    "Hosts": shape(
        node=_TEXT | {"description": "The node that answers: each has met hosts of its own."},
        hosts={
            "type": "array",
            "items": shape(
                host=_TEXT,
                state={"type": "string", "enum": [str(state) for state in HostState]},
                why=nullable(_TEXT),
                since=nullable(TIME) | {"description": "Since when it is left alone."},
                retry_s=nullable(SECONDS) | {"description": "Until a job may try."},
            ),
        },
    ),
}

_OF_JOB = (in_path("job_id"),)
_USER: Json = {"type": "string", "maxLength": USER_CHARS_MAX}
_DURATION: Json = {"anyOf": [{"type": "string", "pattern": "^[0-9]{1,3}(ms|s|m)$"}, SECONDS]}
_WAIT = in_query("wait", _DURATION, "Wait for the end, at most so long: 10s.")
_KEY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
    "description": "A repeat with the same key and kind, while the job is kept, is the same job.",
}
_DOWNLOAD = {"kind": "download", "params": {"url": "https://example.com/film.mp4"}, "user": "42"}

JOB_OPERATIONS: dict[str, OperationRow] = {
    "queueJob": OperationRow(
        answers={200: "Job", 202: "QueuedJob"},
        parameters=(_WAIT, _KEY),
        body=JobBody,
        example=_DOWNLOAD,
        problems=(404, 409, 413, 422, 503),
    ),
    "queueJobs": OperationRow(
        answers={202: "QueuedJobs"},
        body=JobBatchBody,
        example={"jobs": [_DOWNLOAD]},
        problems=(404, 409, 413, 422, 503),
    ),
    "listJobs": OperationRow(
        answers={200: "Jobs"},
        parameters=(
            in_query("kind", _KIND, "Of this kind."),
            in_query("user", _USER, "Of this user; empty: of nobody in particular."),
            in_query("state", _STATE, "Where they stand."),
            in_query(
                "since",
                {"anyOf": [TIME, SECONDS | {"exclusiveMaximum": 1e11}]},
                "Queued then or later; RFC 3339 or Unix seconds.",
            ),
            in_query("cursor", ID, "The next of the page before."),
            LIMIT,
        ),
        problems=(422, 503),
    ),
    "getJob": OperationRow(answers={200: "Job"}, parameters=(*_OF_JOB, _WAIT), problems=(404, 422, 503)),
    "cancelJob": OperationRow(answers={200: "Job"}, parameters=_OF_JOB, problems=(404, 409, 422, 503)),
    "retryJob": OperationRow(answers={202: "Job"}, parameters=_OF_JOB, problems=(404, 409, 422, 503)),
    "getJobStats": OperationRow(answers={200: "JobStats"}, problems=(503,)),
    "getJobsUsed": OperationRow(
        answers={200: "JobsUsed"},
        parameters=(
            {**in_query("kind", _KIND, "Of this kind."), "required": True},
            in_query("user", _USER, "By this user; left out: by nobody in particular."),
        ),
        problems=(422, 503),
    ),
    "listHosts": OperationRow(answers={200: "Hosts"}),
}
