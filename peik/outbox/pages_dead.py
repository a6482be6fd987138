"""What ended badly, by its cause: dead letters, arrivals that a consumer gave up, jobs that failed. Again, or away with it."""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from peik.admin.model import Role
from peik.core.letter import State, cause_of
from peik.errors import Conflict, NotFound
from peik.inbox.pages import DeliveryLine, history_of
from peik.inbox.store import ArrivalDelivery, ArrivalFilter, ArrivalView
from peik.jobs.model import JobFilter, JobRecord
from peik.outbox.store import Cause, LetterFilter
from peik.web.dashboard.board import Board, Page, Visitor, must_see_all
from peik.web.dashboard.fields import Fields, asked, bot_seen, bots_seen
from peik.web.parse import parse_id

CAUSES_MAX = 50
LOOKED_AT = 200  # of the newest dead arrivals of a consumer, and of the newest failed jobs
CONSUMERS_MAX = 20


class DeadArrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals that one consumer gave up for the same reason."""

    bot_id: int
    consumer: str
    reason: str
    ids: tuple[int, ...]  # the newest first
    newest_at_ms: int
    types: tuple[str, ...]
    lines: list[DeliveryLine]  # the history of the newest


class DeadJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one kind that failed for the same reason."""

    kind: str
    reason: str
    ids: tuple[int, ...]
    newest_at_ms: int
    lines: list["DeadJobLine"]


class DeadJobLine(msgspec.Struct, frozen=True, kw_only=True):
    at: int
    end: str
    run: int
    reason: str | None = None
    node: str | None = None
    trace: str | None = None


_decode_runs = msgspec.json.Decoder(list[DeadJobLine]).decode


class DeadPages:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._service = board.peik.outbox.service
        self._inbox = board.peik.inbox.service
        self._jobs = board.peik.jobs.service

    def table(self) -> tuple[Page, ...]:
        return (
            ("GET", "/admin/dead", self.show_letters, Role.VIEWER, "dead.letters"),
            ("POST", "/admin/dead/retry", self.retry_letters, Role.OPERATOR, "dead.retry"),
            ("POST", "/admin/dead/clear", self.clear_letters, Role.OPERATOR, "dead.clear"),
            ("GET", "/admin/dead/arrivals", self.show_arrivals, Role.VIEWER, "dead.arrivals"),
            ("POST", "/admin/dead/arrivals/retry", self.retry_arrivals, Role.OPERATOR, "dead.arrivals.retry"),
            ("POST", "/admin/dead/arrivals/clear", self.clear_arrivals, Role.OPERATOR, "dead.arrivals.clear"),
            ("GET", "/admin/dead/jobs", self.show_jobs, Role.VIEWER, "dead.jobs"),
            ("POST", "/admin/dead/jobs/retry", self.retry_jobs, Role.OPERATOR, "dead.jobs.retry"),
        )

    # ---- letters ----

    async def show_letters(self, request: Request, visitor: Visitor) -> Response:
        told = asked(request.query_params, ("bot_id",))
        bot_ids = visitor.bot_ids
        if "bot_id" in told:
            bot_ids = frozenset({bot_seen(self._service, visitor, told["bot_id"]).bot_id})
        causes: list[Cause] = await self._service.causes(bot_ids=bot_ids, limit=CAUSES_MAX)
        tallies = await self._service.tallies()
        return self._board.page(
            request,
            visitor,
            "dead.html",
            causes=causes,
            told=told,
            bots=bots_seen(self._service, visitor),
            total=sum(
                tally.failed
                for bot_id, tally in tallies.items()
                if visitor.key.serves(bot_id) and (bot_ids is None or bot_id in bot_ids)
            ),
            has_jobs=visitor.bot_ids is None,
            may_act=visitor.may(Role.OPERATOR),
        )

    async def retry_letters(self, request: Request, visitor: Visitor) -> Response:
        wanted = await self._cause(request, visitor)
        count = await self._service.retry_dead(wanted)
        self._board.note(request, target=wanted.cause, detail=f"{count} letters")
        return self._board.back(request, visitor, "/admin/dead", said="letters_all_retried", count=count)

    async def clear_letters(self, request: Request, visitor: Visitor) -> Response:
        wanted = await self._cause(request, visitor)
        count = await self._service.clear_dead(wanted)
        self._board.note(request, target=wanted.cause, detail=f"{count} letters")
        return self._board.back(request, visitor, "/admin/dead", said="letters_all_cleared", count=count)

    async def _cause(self, request: Request, visitor: Visitor) -> LetterFilter:
        """The group of a letter, as it stood when it was looked at."""
        fields = await Fields.sent(request)
        letter = await self._service.letter(parse_id(fields.need("newest"), "newest"))
        visitor.caller.must_see(letter)
        if letter.state is not State.FAILED:
            raise _gone()
        wanted = LetterFilter(
            cause=cause_of(letter.failed_reason),
            bot_id=fields.id("bot_id"),
            until_ms=parse_id(fields.need("seen"), "seen"),
        )
        return visitor.caller.narrow(wanted)

    # ---- arrivals ----

    async def show_arrivals(self, request: Request, visitor: Visitor) -> Response:
        return self._board.page(
            request,
            visitor,
            "dead_arrivals.html",
            groups=await self._dead_arrivals(visitor),
            looked_at=LOOKED_AT,
            has_jobs=visitor.bot_ids is None,
            may_act=visitor.may(Role.OPERATOR),
        )

    async def _dead_arrivals(self, visitor: Visitor) -> list[DeadArrivals]:
        """The newest ones, consumer by consumer."""
        tallies = [one for one in await self._inbox.tallies() if one.failed and visitor.key.serves(one.consumer.bot_id)]
        tallies.sort(key=lambda one: -one.failed)
        groups: list[DeadArrivals] = []
        for tally in tallies[:CONSUMERS_MAX]:
            consumer = tally.consumer
            for reason, dead in (await self._given_up(consumer.bot_id, consumer.name)).items():
                groups.append(_arrivals_of(consumer.bot_id, consumer.name, reason, dead))
        return sorted(groups, key=lambda group: -group.newest_at_ms)

    async def _given_up(self, bot_id: int, consumer: str) -> dict[str, list[tuple[ArrivalView, ArrivalDelivery]]]:
        wanted = ArrivalFilter(bot_id=bot_id, consumer=consumer, state=State.FAILED)
        groups: dict[str, list[tuple[ArrivalView, ArrivalDelivery]]] = {}
        for view in await self._inbox.arrivals(wanted, before=None, limit=LOOKED_AT):
            for delivery in view.deliveries:
                if delivery.consumer == consumer and delivery.state is State.FAILED:
                    groups.setdefault(cause_of(delivery.failed_reason), []).append((view, delivery))
        return groups

    async def retry_arrivals(self, request: Request, visitor: Visitor) -> Response:
        count, group = 0, await self._group(request, visitor)
        for view, delivery in group:
            try:
                await self._inbox.retry(view.arrival.id, delivery.consumer)
            except (Conflict, NotFound):
                continue  # somebody else was faster
            count += 1
        self._board.note(request, target=group[0][1].failed_reason, detail=f"{count} arrivals")
        return self._board.back(request, visitor, "/admin/dead/arrivals", said="dead_arrivals_retried", count=count)

    async def clear_arrivals(self, request: Request, visitor: Visitor) -> Response:
        count, group = 0, await self._group(request, visitor)
        for view, delivery in group:
            number = view.arrival.number
            count += await self._inbox.clear_dead(
                ArrivalFilter(
                    bot_id=view.arrival.bot_id, consumer=delivery.consumer, first_number=number, last_number=number
                )
            )
        self._board.note(request, target=group[0][1].failed_reason, detail=f"{count} arrivals")
        return self._board.back(request, visitor, "/admin/dead/arrivals", said="dead_arrivals_cleared", count=count)

    async def _group(self, request: Request, visitor: Visitor) -> Sequence[tuple[ArrivalView, ArrivalDelivery]]:
        """Those that died of the same as one of them, and were there when it was looked at."""
        fields = await Fields.sent(request)
        bot = bot_seen(self._service, visitor, fields.need("bot_id"))
        newest = parse_id(fields.need("newest"), "newest")
        for group in (await self._given_up(bot.bot_id, fields.need("consumer"))).values():
            if any(view.arrival.id == newest for view, _ in group):
                return [(view, delivery) for view, delivery in group if view.arrival.id <= newest]
        raise _gone()

    # ---- jobs ----

    async def show_jobs(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        return self._board.page(
            request,
            visitor,
            "dead_jobs.html",
            groups=_jobs_of(await self._failed_jobs()),
            looked_at=LOOKED_AT,
            has_jobs=True,
            may_act=visitor.may(Role.OPERATOR),
        )

    async def _failed_jobs(self) -> list[JobRecord]:
        return await self._jobs.find(JobFilter(state=State.FAILED), limit=LOOKED_AT)

    async def retry_jobs(self, request: Request, visitor: Visitor) -> Response:
        must_see_all(visitor)
        newest = parse_id((await Fields.sent(request)).need("newest"), "newest")
        for group in _jobs_of(await self._failed_jobs()):
            if newest in group.ids:
                count = await self._run_again([job_id for job_id in group.ids if job_id <= newest])
                self._board.note(request, target=f"{group.kind}: {group.reason}", detail=f"{count} jobs")
                return self._board.back(request, visitor, "/admin/dead/jobs", said="dead_jobs_retried", count=count)
        raise _gone()

    async def _run_again(self, job_ids: Sequence[int]) -> int:
        count = 0
        for job_id in job_ids:
            try:
                await self._jobs.retry(job_id)
            except (Conflict, NotFound):
                continue
            count += 1
        return count


def _gone() -> Conflict:
    return Conflict(code="not_dead_now", detail="This is not as it was when you looked at it. Look again, and decide.")


def _arrivals_of(
    bot_id: int, consumer: str, reason: str, dead: Sequence[tuple[ArrivalView, ArrivalDelivery]]
) -> DeadArrivals:
    newest, delivery = dead[0]
    return DeadArrivals(
        bot_id=bot_id,
        consumer=consumer,
        reason=reason,
        ids=tuple(view.arrival.id for view, _ in dead),
        newest_at_ms=delivery.settled_at_ms or newest.arrival.received_at_ms,
        types=tuple(sorted({view.arrival.type for view, _ in dead})),
        lines=history_of(delivery),
    )


def _jobs_of(jobs: Sequence[JobRecord]) -> list[DeadJobs]:
    groups: dict[tuple[str, str], list[JobRecord]] = {}
    for job in jobs:
        groups.setdefault((job.kind, cause_of(job.failed_reason)), []).append(job)
    return [
        DeadJobs(
            kind=kind,
            reason=reason,
            ids=tuple(job.id for job in group),
            newest_at_ms=group[0].ended_at_ms or group[0].created_at_ms,
            lines=_decode_runs(group[0].history),
        )
        for (kind, reason), group in groups.items()
    ]
