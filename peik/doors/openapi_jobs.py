"""The jobs' part of the OpenAPI document: one row per operation, and what the answers look like."""

from peik.core.host_breaker import HostState
from peik.core.job import End
from peik.core.letter import Backoff, State
from peik.doors.openapi_shapes import ID, LIMIT, SECONDS, TIME, Json, Operation, in_path, in_query, nullable, shape
from peik.doors.rest_jobs import KIND_PATTERN, JobBatchBody, JobBody
from peik.jobs.desk import KEY_CHARS_MAX, USER_CHARS_MAX

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
            end={"type": "string", "enum": [str(end) for end in End]},
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

JOB_OPERATIONS: dict[str, Operation] = {
    "queueJob": Operation(
        answers={200: "Job", 202: "QueuedJob"},
        parameters=(_WAIT, _KEY),
        body=JobBody,
        example=_DOWNLOAD,
        problems=(404, 409, 413, 422, 503),
    ),
    "queueJobs": Operation(
        answers={202: "QueuedJobs"},
        body=JobBatchBody,
        example={"jobs": [_DOWNLOAD]},
        problems=(404, 409, 413, 422, 503),
    ),
    "listJobs": Operation(
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
    "getJob": Operation(answers={200: "Job"}, parameters=(*_OF_JOB, _WAIT), problems=(404, 422, 503)),
    "cancelJob": Operation(answers={200: "Job"}, parameters=_OF_JOB, problems=(404, 409, 422, 503)),
    "retryJob": Operation(answers={202: "Job"}, parameters=_OF_JOB, problems=(404, 409, 422, 503)),
    "getJobStats": Operation(answers={200: "JobStats"}, problems=(503,)),
    "getJobsUsed": Operation(
        answers={200: "JobsUsed"},
        parameters=(
            {**in_query("kind", _KIND, "Of this kind."), "required": True},
            in_query("user", _USER, "By this user; left out: by nobody in particular."),
        ),
        problems=(422, 503),
    ),
    "listHosts": Operation(answers={200: "Hosts"}),
}
