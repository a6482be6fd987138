"""REST: recurring work. Made and changed by one PUT; when it is due, what became of due times; pausing it, running it now."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from peik.core.units import rfc3339
from peik.errors import BadInput, NotFound
from peik.schedules.model import (
    NAME_PATTERN,
    PLACES,
    BroadcastWork,
    JobWork,
    LetterWork,
    MissedRuns,
    OverlapPolicy,
    Schedule,
    ScheduleEdit,
    ScheduleRun,
    ScheduleRunState,
    ScheduleState,
    Terms,
)
from peik.web.access import Caller
from peik.web.openapi import LIMIT_DEFAULT
from peik.web.operations import Id, Moment, Told, operation
from peik.web.parse import BOT, LIMIT, WORD_CURSOR, Time, id_of, instant_ms, word_like

if TYPE_CHECKING:
    from peik.schedules.service import ScheduleService

NEXT_SHOWN = 5
_NAME = word_like(NAME_PATTERN)
ScheduleInPath = Annotated[str, _NAME]
_CRON = "Minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly, @yearly."
_PLACES = f"In texts of its params these are filled in when it is due: {', '.join(f'%{{{name}}}' for name in PLACES)}."


class SchedulesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bot_id: Annotated[int | None, BOT.saying("Of this bot.")] = None
    cursor: Annotated[str | None, WORD_CURSOR] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class ScheduleRunsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cursor: Annotated[str | None, WORD_CURSOR] = None
    limit: Annotated[int, LIMIT] = LIMIT_DEFAULT


class ScheduleBody(msgspec.Struct, forbid_unknown_fields=True):
    """`PUT /v1/schedules/{name}`: all of it, as it is to be from now on. One of `letter`, `broadcast` and `job`."""

    cron: Annotated[str, msgspec.Meta(description=_CRON)]
    tz: Annotated[str, msgspec.Meta(description="A time zone of the IANA's, such as Asia/Tehran.")] = "UTC"
    title: str | None = None
    bot_id: int | str | None = None
    letter: Annotated[LetterWork, msgspec.Meta(description=_PLACES)] | None = None
    broadcast: Annotated[BroadcastWork, msgspec.Meta(description=_PLACES)] | None = None
    job: Annotated[JobWork, msgspec.Meta(description=_PLACES)] | None = None
    missed: MissedRuns = MissedRuns.ONCE
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    starts_at: Time = None
    ends_at: Time = None
    runs_max: int | None = None

    def terms(self, caller: Caller) -> Terms:
        """As the service takes them. Raises BadInput, Forbidden."""
        if self.job is not None:
            caller.must_serve_all()
            if self.bot_id is not None:
                raise BadInput(
                    code="bad_schedule", detail="A job belongs to no bot: leave bot_id out, or name one in notice."
                )
            bot_id: int | None = None
        else:
            bot_id = caller.bot_id_of(id_of(self.bot_id, "bot_id"))
        return Terms(
            cron=self.cron,
            tz=self.tz,
            title=self.title,
            bot_id=bot_id or 0,
            letter=self.letter,
            broadcast=self.broadcast,
            job=self.job,
            missed=self.missed,
            overlap=self.overlap,
            starts_at_ms=instant_ms(self.starts_at, "starts_at"),
            ends_at_ms=instant_ms(self.ends_at, "ends_at"),
            runs_max=self.runs_max,
        )


class TermsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    cron: str
    tz: str
    title: str | None
    bot_id: Id | None
    letter: LetterWork | None
    broadcast: BroadcastWork | None
    job: JobWork | None
    missed: MissedRuns
    overlap: OverlapPolicy
    starts_at: Moment | None
    ends_at: Moment | None
    runs_max: int | None

    @classmethod
    def of(cls, terms: Terms) -> "TermsAnswer":
        return cls(
            cron=terms.cron,
            tz=terms.tz,
            title=terms.title,
            bot_id=str(terms.bot_id) if terms.bot_id else None,
            letter=terms.letter,
            broadcast=terms.broadcast,
            job=terms.job,
            missed=terms.missed,
            overlap=terms.overlap,
            starts_at=rfc3339(terms.starts_at_ms),
            ends_at=rfc3339(terms.ends_at_ms),
            runs_max=terms.runs_max,
        )


class ScheduleAnswer(TermsAnswer, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
    state: ScheduleState
    revision: Annotated[int, msgspec.Meta(description="Rises with every change.")]
    next: Annotated[
        list[Moment], msgspec.Meta(description="The due times that come, five at most; none: it has ended.")
    ]
    runs: Annotated[int, msgspec.Meta(description="Due times that were run, without those that somebody asked for.")]
    last_due_at: Moment | None
    last_state: ScheduleRunState | None
    created_by: str | None
    created_at: Moment
    changed_by: str | None
    changed_at: Moment

    @classmethod
    def whole(cls, one: Schedule, due_ms: list[int]) -> "ScheduleAnswer":
        return cls(
            **msgspec.structs.asdict(TermsAnswer.of(one.terms)),
            name=one.name,
            state=one.state,
            revision=one.revision,
            next=[rfc3339(at_ms) for at_ms in due_ms],
            runs=one.fired,
            last_due_at=rfc3339(one.last_due_ms),
            last_state=one.last_state,
            created_by=one.created_by,
            created_at=rfc3339(one.created_at_ms),
            changed_by=one.changed_by,
            changed_at=rfc3339(one.changed_at_ms),
        )


class SchedulesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    schedules: list[ScheduleAnswer]
    next_cursor: str | None


class ScheduleRunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a due time; of missed ones, of several together."""

    due_at: Moment
    state: ScheduleRunState
    at: Annotated[Moment, msgspec.Meta(description="When it was dealt with.")]
    letter_id: Id | None
    broadcast_id: Id | None
    job_id: Id | None
    reason: str | None
    is_late: Annotated[bool, msgspec.Meta(description="It made up for a due time at which Peik was not there.")]
    by: Annotated[str | None, msgspec.Meta(description="Who asked for it; null: it was due.")]
    count: Annotated[int, msgspec.Meta(description="How many due times were missed, up to this one.")]
    is_least: Annotated[bool, msgspec.Meta(description="There were more than were counted.")]
    first_due_at: Moment | None

    @classmethod
    def of(cls, run: ScheduleRun) -> "ScheduleRunAnswer":
        return cls(
            due_at=rfc3339(run.due_at_ms),
            state=run.state,
            at=rfc3339(run.at_ms),
            letter_id=run.made if run.kind == "letter" else None,
            broadcast_id=run.made if run.kind == "broadcast" else None,
            job_id=run.made if run.kind == "job" else None,
            reason=run.reason,
            is_late=run.is_late,
            by=run.by,
            count=run.count,
            is_least=run.is_least,
            first_due_at=rfc3339(run.first_ms),
        )


class ScheduleRunsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    runs: list[ScheduleRunAnswer]
    next_cursor: str | None


class ScheduleEditAnswer(TermsAnswer, frozen=True, kw_only=True):
    """How it was before a change."""

    revision: int
    until: Moment
    by: Annotated[str | None, msgspec.Meta(description="Who changed it then.")]

    @classmethod
    def before(cls, edit: ScheduleEdit) -> "ScheduleEditAnswer":
        terms = msgspec.structs.asdict(TermsAnswer.of(edit.terms))
        return cls(**terms, revision=edit.revision, until=rfc3339(edit.until_ms), by=edit.by)


class ScheduleEditsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    edits: list[ScheduleEditAnswer]


class SchedulePreviewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    next: Annotated[list[Moment], msgspec.Meta(description="The due times that come, five at most.")]
    params: Annotated[
        msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"}, description="Of the first one, filled.")
    ]


_step = partial(operation, "POST", tag="schedules", scope="send", problems=(404, 409, 422, 503))
_MORNING = {
    "cron": "30 9 * * 1-5",
    "tz": "Asia/Tehran",
    "letter": {"params": {"chat_id": 123456789, "text": "Good morning. It is %{date}."}},
}


class ScheduleApi:
    """A schedule of a letter or a broadcast is its bot's; one of a job is for keys without bot_ids."""

    def __init__(self, schedules: "ScheduleService") -> None:
        self._schedules = schedules

    @operation(
        "PUT",
        "/v1/schedules/{name}",
        name="putSchedule",
        tag="schedules",
        scope="send",
        answers={200: ScheduleAnswer, 201: ScheduleAnswer},
        problems=(404, 409, 413, 422, 503),
        example=_MORNING,
        body_bytes_max=256 * 1024,
    )
    async def put(self, caller: Caller, name: ScheduleInPath, body: ScheduleBody) -> Told[ScheduleAnswer]:
        """Make a schedule, or change it to this. How it was before is kept."""
        terms = body.terms(caller)
        await self._must_be_his(caller, name)
        saved, is_new = await self._schedules.put(name, terms, by=_who(caller))
        return Told(self._shown(saved), 201 if is_new else 200)

    @operation(
        "POST",
        "/v1/schedules/preview",
        name="previewSchedule",
        tag="schedules",
        scope="read",
        problems=(404, 413, 422, 503),
        example=_MORNING,
        body_bytes_max=256 * 1024,
    )
    async def preview(self, caller: Caller, body: ScheduleBody) -> SchedulePreviewAnswer:
        """When it would be due, and what the first time would send. Nothing is kept."""
        found = self._schedules.preview("preview", body.terms(caller))
        due_ms = self._schedules.upcoming(found, NEXT_SHOWN)
        first = self._schedules.as_due(found, due_ms[0])
        return SchedulePreviewAnswer(
            next=[rfc3339(at_ms) for at_ms in due_ms], params=msgspec.Raw(msgspec.json.encode(first.params))
        )

    @operation("GET", "/v1/schedules", name="listSchedules", tag="schedules", scope="read", problems=(422, 503))
    async def list_schedules(self, caller: Caller, query: SchedulesQuery) -> SchedulesAnswer:
        """Schedules by their names."""
        bot_ids = caller.key.bot_ids
        if query.bot_id is not None:
            caller.must_serve(query.bot_id)
            bot_ids = frozenset({query.bot_id})
        found, cursor = await self._schedules.find(bot_ids=bot_ids, after=query.cursor, limit=query.limit)
        return SchedulesAnswer(schedules=[self._shown(one) for one in found], next_cursor=cursor)

    @operation(
        "GET", "/v1/schedules/{name}", name="getSchedule", tag="schedules", scope="read", problems=(404, 422, 503)
    )
    async def get(self, caller: Caller, name: ScheduleInPath) -> ScheduleAnswer:
        """One schedule, and when it is due next."""
        return self._shown(await self._seen(caller, name))

    @operation(
        "GET",
        "/v1/schedules/{name}/runs",
        name="listScheduleRuns",
        tag="schedules",
        scope="read",
        problems=(404, 422, 503),
    )
    async def runs(self, caller: Caller, name: ScheduleInPath, query: ScheduleRunsQuery) -> ScheduleRunsAnswer:
        """What became of its due times, the newest first: of the last 200."""
        await self._seen(caller, name)
        found = await self._schedules.runs(name, before=query.cursor, limit=query.limit)
        cursor = f"{found[-1].due_at_ms:013d}" if len(found) == query.limit else None
        return ScheduleRunsAnswer(runs=[ScheduleRunAnswer.of(one) for one in found], next_cursor=cursor)

    @operation(
        "GET",
        "/v1/schedules/{name}/edits",
        name="listScheduleEdits",
        tag="schedules",
        scope="read",
        problems=(404, 422, 503),
    )
    async def edits(self, caller: Caller, name: ScheduleInPath) -> ScheduleEditsAnswer:
        """How it was before each change, the newest first."""
        await self._seen(caller, name)
        return ScheduleEditsAnswer(edits=[ScheduleEditAnswer.before(one) for one in await self._schedules.edits(name)])

    @_step("/v1/schedules/{name}/pause", name="pauseSchedule")
    async def pause(self, caller: Caller, name: ScheduleInPath) -> ScheduleAnswer:
        """Make nothing until it is resumed."""
        await self._seen(caller, name)
        return self._shown(await self._schedules.pause(name))

    @_step("/v1/schedules/{name}/resume", name="resumeSchedule")
    async def resume(self, caller: Caller, name: ScheduleInPath) -> ScheduleAnswer:
        """Go on with the next due time. What was due meanwhile is left out."""
        await self._seen(caller, name)
        return self._shown(await self._schedules.resume(name))

    @_step("/v1/schedules/{name}/run", name="runSchedule")
    async def run(self, caller: Caller, name: ScheduleInPath) -> ScheduleRunAnswer:
        """Run it once, now, besides its due times."""
        await self._seen(caller, name)
        return ScheduleRunAnswer.of(await self._schedules.run_now(name, by=_who(caller)))

    @operation(
        "DELETE",
        "/v1/schedules/{name}",
        name="deleteSchedule",
        tag="schedules",
        scope="send",
        problems=(404, 422, 503),
    )
    async def delete(self, caller: Caller, name: ScheduleInPath) -> None:
        """Delete a schedule, and what is known of its runs. What it has made stays."""
        await self._seen(caller, name)
        await self._schedules.delete(name)

    async def _seen(self, caller: Caller, name: str) -> Schedule:
        """Raises NotFound for another bot's, in the words for one that is not there."""
        found = await self._schedules.get(name)
        if not is_his(caller, found):
            raise NotFound(code="unknown_schedule", detail=f"There is no schedule {name!r} here (any more).")
        return found

    async def _must_be_his(self, caller: Caller, name: str) -> None:
        """Names are taken whoever has them. Raises Forbidden for another bot's."""
        try:
            found = await self._schedules.get(name)
        except NotFound:
            return
        if not is_his(caller, found):
            caller.must_serve(found.terms.bot_id)

    def _shown(self, one: Schedule) -> ScheduleAnswer:
        return ScheduleAnswer.whole(one, self._schedules.upcoming(one, NEXT_SHOWN))


def is_his(caller: Caller, one: Schedule) -> bool:
    return caller.key.bot_ids is None or caller.key.serves(one.terms.bot_id)


def _who(caller: Caller) -> str | None:
    return caller.key.name if caller.has_key else None
