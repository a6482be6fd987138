"""Pages: long jobs. What runs, what waits and when, what failed and why; the hosts they talk to, and the disk they need."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.core.letter import State
from peik.errors import NotFound
from peik.jobs.api import JobAnswer, JobsQuery
from peik.jobs.model import JobFilter, JobRecord, kind_rate
from peik.jobs.service import JobTurn
from peik.web.dashboard.board import Board, Page, Visitor, must_see_all
from peik.web.dashboard.fields import PAGE, Fields
from peik.web.parse import parse_id, read_query

_FILTERS = ("kind", "user", "state", "since")
RUNNING_MAX = 50  # shown above the list
PLACES_MAX = 20  # each is a question of its own to the store, and a page that is open asks again and again


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    job: JobRecord
    turn: JobTurn | None = None


class JobPages:
    """Jobs belong to no bot, even if one tells of them: all of this is for those who see every bot."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._jobs = board.peik.jobs.service
        self._hosts = board.peik.jobs.hosts
        self._hands = board.peik.jobs.workers

    def table(self) -> tuple[Page, ...]:
        one, kind = "/admin/jobs/{job_id}", "/admin/jobs/kinds/{kind}"
        return (
            ("GET", "/admin/jobs", self.show_all, Role.VIEWER, ""),
            ("GET", "/admin/jobs/hosts", self.show_hosts, Role.VIEWER, ""),
            ("GET", kind, self.show_kind, Role.VIEWER, ""),
            ("POST", f"{kind}/pause", self.pause_kind, Role.OPERATOR, "jobs.kinds.pause"),
            ("POST", f"{kind}/resume", self.resume_kind, Role.OPERATOR, "jobs.kinds.resume"),
            ("POST", f"{kind}/rate", self.set_kind_rate, Role.OPERATOR, "jobs.kinds.rate"),
            ("GET", one, self.show, Role.VIEWER, ""),
            ("POST", f"{one}/cancel", self.cancel, Role.OPERATOR, "jobs.cancel"),
            ("POST", f"{one}/retry", self.retry, Role.OPERATOR, "jobs.retry"),
        )

    # ---- looking ----

    async def show_all(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        fields = Fields.asked(request)
        given = {name: text for name in _FILTERS if (text := fields.text(name)) is not None}
        if "since" in given:
            given["since"] = fields.instant("since") or ""
        before = fields.id("cursor")
        found = await self._jobs.find(read_query(JobsQuery, given).wanted(), before=before, limit=PAGE)
        is_plain = not given and before is None
        running = await self._jobs.find(JobFilter(state=State.ACTIVE), limit=RUNNING_MAX) if is_plain else []
        return self._board.page(
            request,
            visitor,
            "jobs.html",
            rows=await self._rows(found),
            running=running,
            kinds=await self._jobs.kinds(),
            asked=given,
            states=tuple(State),
            url=fields.address("/admin/jobs", *_FILTERS),
            cursor=str(found[-1].id) if len(found) == PAGE else None,
        )

    async def show(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        job = await self._jobs.get(_id(request))
        row = await self._row(job)
        return self._board.page(request, visitor, "job.html", job=job, turn=row.turn, view=_plain(JobAnswer.of(job)))

    async def show_hosts(self, request: Request, visitor: Visitor) -> Response:
        """Of the node that answers: each has its own."""
        must_see_all(visitor)
        has_work = bool(self._hands.kinds.by_name)
        return self._board.page(
            request,
            visitor,
            "jobs_hosts.html",
            hosts=self._hosts.all(),
            kinds=list(self._hands.kinds.by_name.values()),
            folders=self._hands.folders.view() if has_work else None,
            node=self._board.peik.store.nodes.node,
        )

    async def show_kind(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        kind = request.path_params["kind"]
        for one in await self._jobs.kinds():
            if one.kind == kind:
                return self._board.page(request, visitor, "job_kind.html", one=one)
        raise NotFound(code="unknown_kind", detail="No job of this kind is here, and nobody here does any.")

    async def _rows(self, jobs: list[JobRecord]) -> list[JobRow]:
        waiting = [job.id for job in jobs if job.state is State.WAITING]
        asked = frozenset(waiting[-PLACES_MAX:])  # the oldest: those that go next
        return [await self._row(job) if job.id in asked else JobRow(job=job) for job in jobs]

    async def _row(self, job: JobRecord) -> JobRow:
        return JobRow(job=job, turn=await self._jobs.place(job.id) if job.state is State.WAITING else None)

    # ---- changing ----

    async def cancel(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        job = await self._jobs.cancel(_id(request), reason=f"{visitor.name} cancelled it.")
        said = "jobs_cancelled" if job.state.is_final else "jobs_cancelling"
        return self._board.back(request, visitor, f"/admin/jobs/{job.id}", said=said, id=job.id)

    async def retry(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        job = await self._jobs.retry(_id(request))
        return self._board.back(request, visitor, f"/admin/jobs/{job.id}", said="jobs_retried", id=job.id)

    async def pause_kind(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        why = (await Fields.sent(request)).text("why")
        await self._jobs.pause_kind(request.path_params["kind"], by=visitor.name, why=why)
        return self._back(request, visitor, "jobs_kind_paused")

    async def resume_kind(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        await self._jobs.resume_kind(request.path_params["kind"], by=visitor.name)
        return self._back(request, visitor, "jobs_kind_resumed")

    async def set_kind_rate(self, request: Request, visitor: Visitor) -> Response:
        """Nothing given: no bound."""
        must_see_all(visitor)
        rate = kind_rate((await Fields.sent(request)).figures("rate") or "off")
        await self._jobs.set_kind_rate(request.path_params["kind"], rate, by=visitor.name)
        self._board.note(request, target=request.path_params["kind"], detail=str(rate or "off"))
        if rate is None:
            return self._back(request, visitor, "jobs_kind_unrated")
        return self._back(request, visitor, "jobs_kind_rated", rate=rate)

    def _back(self, request: Request, visitor: Visitor, said: str, **words: Any) -> Response:
        kind = request.path_params["kind"]
        return self._board.back(request, visitor, f"/admin/jobs/kinds/{kind}", said=said, kind=kind, **words)


def _id(request: Request) -> int:
    return parse_id(request.path_params["job_id"], "job_id")


def _plain(answer: JobAnswer) -> dict[str, object]:
    """With JSON that a page can walk through."""
    return dict(msgspec.json.decode(msgspec.json.encode(answer)))
