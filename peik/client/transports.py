"""Jobs of a `peik serve` far away, asked over REST: queued and looked at there, done by programs on its store."""

import asyncio
import csv
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from peik.broadcasts.answers import broadcast_view, estimate_view, recipient_view
from peik.broadcasts.audience import ContactAudience, ListAudience
from peik.broadcasts.model import Broadcast, PhaseStep, RecipientState
from peik.broadcasts.service import BroadcastRequest
from peik.client.broadcasts import BroadcastEstimate, BroadcastInfo, RecipientInfo
from peik.client.jobs import (
    GivenKind,
    HostInfo,
    JobCounts,
    JobInfo,
    JobPage,
    JobsUsed,
    QueuedJob,
    decode_counted,
    decode_hosts,
    decode_job,
    decode_jobs,
    decode_queued,
    decode_used,
)
from peik.client.remote import BATCH_TIMEOUT_S, encode, read, with_query
from peik.core.documents import ContactFilter
from peik.core.letter import Chat
from peik.core.units import rfc3339
from peik.errors import BadInput
from peik.jobs.model import JobRequest
from peik.jobs.store import JobFilter

if TYPE_CHECKING:
    from peik.client.remote import RemoteTransport


class RemoteJobs:
    def __init__(self, counter: "RemoteTransport") -> None:
        self._counter = counter

    def work(self, kind: GivenKind) -> None:
        raise BadInput(
            code="jobs_need_open",
            detail=f"Jobs of the kind {kind.kind.name} are done by a program on Peik.open. From here they are queued.",
        )

    async def queue(self, request: JobRequest) -> QueuedJob:
        return read(decode_queued, await self._counter.exchange("POST", "/v1/jobs", body=_body(request)))

    async def get(self, job_id: int) -> JobInfo:
        return read(decode_job, await self._counter.exchange("GET", f"/v1/jobs/{job_id}"))

    async def wait(self, job_id: int, timeout_s: float) -> JobInfo:
        return await self._counter.watch(
            f"/v1/jobs/{job_id}", decode_job, is_over=lambda job: job.state.is_final, timeout_s=timeout_s
        )

    async def find(self, wanted: JobFilter, *, before: int | None, limit: int) -> JobPage:
        told = {
            "kind": wanted.kind,
            "user": wanted.user,
            "state": wanted.state,
            "since": rfc3339(wanted.since_ms),
            "cursor": before,
            "limit": limit,
        }
        query = {name: str(value) for name, value in told.items() if value is not None}
        return read(decode_jobs, await self._counter.exchange("GET", with_query("/v1/jobs", query)))

    async def cancel(self, job_id: int) -> JobInfo:
        return read(decode_job, await self._counter.exchange("DELETE", f"/v1/jobs/{job_id}"))

    async def retry(self, job_id: int) -> JobInfo:
        return read(decode_job, await self._counter.exchange("POST", f"/v1/jobs/{job_id}/retry"))

    async def counts(self) -> dict[str, JobCounts]:
        return read(decode_counted, await self._counter.exchange("GET", "/v1/jobs/stats")).kinds

    async def used(self, kind: str, user: str) -> JobsUsed:
        path = with_query("/v1/jobs/used", {"kind": kind, "user": user})
        return read(decode_used, await self._counter.exchange("GET", path))

    async def hosts(self) -> list[HostInfo]:
        return read(decode_hosts, await self._counter.exchange("GET", "/v1/hosts")).hosts


def _body(request: JobRequest) -> bytes:
    """`POST /v1/jobs` of a request: only what was given."""
    told: dict[str, Any] = {
        "kind": request.kind,
        "params": _raw(request.params, "params"),
        "user": request.user,
        "priority": request.priority,
        "attempts": request.attempts,
        "backoff_ms": request.backoff_ms,
        "backoff": request.backoff,
        "timeout_ms": None if request.timeout_s is None else max(int(request.timeout_s * 1000), 1),
        "run_at": rfc3339(request.run_at_ms),
        "idempotency_key": request.key,
        "metadata": None if request.metadata is None else _raw(request.metadata, "metadata"),
        "notice": None if request.notice is None else _raw(request.notice, "notice"),
    }
    return encode({name: value for name, value in told.items() if value is not None})


def _raw(value: object, name: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(code=f"bad_{name}", detail=f"{name} cannot be written as JSON: {error}.") from None


# Broadcasts asked of the Peik in this process, and of one far away. Both answers are read from the words of REST.


if TYPE_CHECKING:
    from peik.app.runtime import Runtime
    from peik.broadcasts.service import BroadcastService
    from peik.client.remote import RemoteTransport


class _Found(msgspec.Struct):
    broadcasts: list[BroadcastInfo]


class _Ledger(msgspec.Struct):
    recipients: list[RecipientInfo]
    next_cursor: str | None = None


class _Preview(msgspec.Struct):
    letter_id: str


_decode = msgspec.json.Decoder(BroadcastInfo).decode
_decode_found = msgspec.json.Decoder(_Found).decode
_decode_ledger = msgspec.json.Decoder(_Ledger).decode
_decode_estimate = msgspec.json.Decoder(BroadcastEstimate).decode
_decode_preview = msgspec.json.Decoder(_Preview).decode


class LocalBroadcasts:
    def __init__(self, office: "Callable[[], Runtime]") -> None:
        """`office` raises Unavailable once it is closed."""
        self._office = office

    async def create(self, request: BroadcastRequest) -> BroadcastInfo:
        return self._shown(await self._desk.create(request))

    async def get(self, broadcast_id: str) -> BroadcastInfo:
        return self._shown(await self._desk.get(broadcast_id))

    async def find(self, *, bot_id: int | None, before: str | None, limit: int) -> list[BroadcastInfo]:
        bot_ids = None if bot_id is None else frozenset({bot_id})
        return [self._shown(one) for one in await self._desk.find(bot_ids=bot_ids, before=before, limit=limit)]

    async def step(self, broadcast_id: str, step: PhaseStep, *, at_ms: int | None) -> BroadcastInfo:
        desk = self._desk
        match step:
            case PhaseStep.START:
                return self._shown(await desk.start(broadcast_id, at_ms=at_ms))
            case PhaseStep.PAUSE:
                return self._shown(await desk.pause(broadcast_id))
            case PhaseStep.RESUME:
                return self._shown(await desk.resume(broadcast_id))
            case PhaseStep.CANCEL:
                return self._shown(await desk.cancel(broadcast_id))
            case _:
                assert step is PhaseStep.RECALL, step
                return self._shown(await desk.recall(broadcast_id))

    async def estimate(self, broadcast_id: str) -> BroadcastEstimate:
        return _decode_estimate(encode(estimate_view(await self._desk.estimate(broadcast_id))))

    async def preview(self, broadcast_id: str, chat: Chat) -> str:
        return str(await self._desk.preview(broadcast_id, chat))

    async def recipients(
        self, broadcast_id: str, *, state: RecipientState | None, after: int | None, limit: int
    ) -> tuple[list[RecipientInfo], int | None]:
        lines, place = await self._desk.recipients(broadcast_id, state=state, after=after, limit=limit)
        shown = {"recipients": [recipient_view(number, line) for number, line in lines]}
        return _decode_ledger(encode(shown)).recipients, place

    async def delete(self, broadcast_id: str) -> None:
        await self._desk.delete(broadcast_id)

    @property
    def _desk(self) -> "BroadcastService":
        return self._office().broadcasts

    def _shown(self, found: Broadcast) -> BroadcastInfo:
        now_ms = self._office().clock.wall_ms()
        return _decode(encode(broadcast_view(found, per_s=self._desk.per_s(found.bot_id), now_ms=now_ms)))


class RemoteBroadcasts:
    def __init__(self, counter: "RemoteTransport") -> None:
        self._counter = counter

    async def create(self, request: BroadcastRequest) -> BroadcastInfo:
        body = await asyncio.to_thread(lambda: encode(_broadcast_body(request)))  # a million rows take seconds
        return read(_decode, await self._counter.exchange("POST", _PATH, body=body, timeout_s=BATCH_TIMEOUT_S))

    async def get(self, broadcast_id: str) -> BroadcastInfo:
        return read(_decode, await self._counter.exchange("GET", f"{_PATH}/{broadcast_id}"))

    async def find(self, *, bot_id: int | None, before: str | None, limit: int) -> list[BroadcastInfo]:
        told = {"bot_id": bot_id, "cursor": before, "limit": limit}
        query = {name: str(value) for name, value in told.items() if value is not None}
        return read(_decode_found, await self._counter.exchange("GET", with_query(_PATH, query))).broadcasts

    async def step(self, broadcast_id: str, step: PhaseStep, *, at_ms: int | None) -> BroadcastInfo:
        body = b"" if at_ms is None else encode({"send_at": rfc3339(at_ms)})
        return read(_decode, await self._counter.exchange("POST", f"{_PATH}/{broadcast_id}/{step}", body=body))

    async def estimate(self, broadcast_id: str) -> BroadcastEstimate:
        return read(_decode_estimate, await self._counter.exchange("POST", f"{_PATH}/{broadcast_id}/estimate"))

    async def preview(self, broadcast_id: str, chat: Chat) -> str:
        body = encode({"chat_id": chat})
        reply = await self._counter.exchange("POST", f"{_PATH}/{broadcast_id}/preview", body=body)
        return read(_decode_preview, reply).letter_id

    async def recipients(
        self, broadcast_id: str, *, state: RecipientState | None, after: int | None, limit: int
    ) -> tuple[list[RecipientInfo], int | None]:
        told = {"state": state, "cursor": after or None, "limit": limit}
        query = {name: str(value) for name, value in told.items() if value is not None}
        path = with_query(f"{_PATH}/{broadcast_id}/recipients", query)
        page = read(_decode_ledger, await self._counter.exchange("GET", path))
        return page.recipients, None if page.next_cursor is None else int(page.next_cursor)

    async def delete(self, broadcast_id: str) -> None:
        await self._counter.exchange("DELETE", f"{_PATH}/{broadcast_id}")


_PATH = "/v1/broadcasts"


def _broadcast_body(request: BroadcastRequest) -> dict[str, object]:
    """`POST /v1/broadcasts` of a request: only what was given."""
    given: dict[str, object] = {
        "method": request.method,
        "params": dict(request.params),
        "audience": _audience(request.audience),
        "bot_id": request.bot_id,
        "name": request.name,
        "canary": request.canary,
        "quiet": request.quiet,
        "paid": request.paid,
        "on_uncertain": request.on_uncertain,
        "start": request.start or None,
        "send_at": rfc3339(request.start_at_ms),
        "idempotency_key": request.key,
    }
    return {name: value for name, value in given.items() if value is not None}


def _audience(audience: ListAudience | ContactAudience) -> dict[str, object]:
    if isinstance(audience, ContactAudience):
        return {"contacts": _contacts(audience.wanted)}
    if not audience.columns:
        return {"chat_ids": [chat for chat, _ in audience.recipients]}
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["chat_id", *audience.columns])
    for chat, values in audience.recipients:
        writer.writerow([str(chat), *((values or {}).get(name, "") for name in audience.columns)])
    return {"csv": text.getvalue()}


def _contacts(wanted: ContactFilter) -> dict[str, object]:
    told: dict[str, object] = {
        "types": None if wanted.types is None else sorted(wanted.types),
        "languages": None if wanted.languages is None else sorted(wanted.languages),
        "seen_since": rfc3339(wanted.seen_since_ms),
        "seen_before": rfc3339(wanted.seen_before_ms),
        "gone": wanted.is_gone,
        "text": wanted.text,
        "campaign": wanted.campaign,
    }
    return {name: value for name, value in told.items() if value is not None}
