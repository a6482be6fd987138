"""What a job answers: the update whose handler queued it. Kept in the job's metadata, and set while it works and is told of."""

from contextlib import AbstractContextManager

import msgspec

from peik.core.job import Job, JobDraft
from peik.core.problem import BadInput
from peik.core.trace import read_trace
from peik.tracing import under

FIELD = "peik_trace"


def traced(draft: JobDraft, trace: str | None) -> JobDraft:
    """The draft with its trace. One that its sender put there himself stays."""
    if trace is None:
        return draft
    metadata = {} if draft.metadata is None else msgspec.json.decode(draft.metadata, type=dict[str, msgspec.Raw])
    metadata.setdefault(FIELD, msgspec.Raw(msgspec.json.encode(trace)))
    return msgspec.structs.replace(draft, metadata=msgspec.json.encode(metadata).decode())


def trace_in(job: Job) -> str | None:
    if job.metadata is None:
        return None
    found = msgspec.json.decode(job.metadata, type=dict[str, object]).get(FIELD)
    try:
        return read_trace(found) if isinstance(found, str) else None
    except BadInput:
        return None  # metadata is its sender's, who may have put anything there


def under_trace_of(job: Job) -> AbstractContextManager[None]:
    """Letters that are accepted inside answer what the job answers."""
    return under(trace_in(job))
