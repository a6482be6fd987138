"""The parts of the library that are about broadcasts and recurring work: `peik.broadcasts` and `peik.schedules`, the same on a
Peik in this process and on one far away."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec

from peik.broadcasts.api import (
    AudienceBody,
    BroadcastApi,
    BroadcastsQuery,
    PreviewBody,
    RecipientsQuery,
    StartBody,
    contacts_body,
)
from peik.broadcasts.audience import text_of
from peik.broadcasts.model import Canary, RecipientState, read_recipient_state
from peik.client.calls import When, instant_ms
from peik.core.call import chat_key
from peik.core.documents import ContactFilter
from peik.core.letter import OnUncertain
from peik.core.quiet import Quiet
from peik.core.units import rfc3339
from peik.errors import BadInput
from peik.schedules.api import ScheduleApi, ScheduleBody, ScheduleRunsQuery, SchedulesQuery
from peik.schedules.model import BroadcastWork, JobWork, LetterWork, MissedRuns, OverlapPolicy

if TYPE_CHECKING:
    from peik.client.transport import Transport

CREATE_S = 120.0  # a list may be long
PAGE = 200


class BroadcastCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Recipients, by where they stand."""

    pending: int = 0
    queued: int = 0
    delivered: int = 0
    failed: int = 0
    blocked: int = 0
    suppressed: int = 0
    cancelled: int = 0
    recalled: int = 0


class BroadcastInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A broadcast as it stands. `steps` is what can be asked of it now."""

    id: str
    bot_id: str
    method: str
    state: str
    name: str | None = None
    reason: str | None = None
    steps: tuple[str, ...] = ()
    total: int = 0
    counts: BroadcastCounts = BroadcastCounts()
    unrecalled: int = 0
    progress: float = 0.0
    eta_s: float | None = None
    created_at: datetime.datetime | None = None
    start_at: datetime.datetime | None = None
    started_at: datetime.datetime | None = None
    quiet_until: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None

    @property
    def is_over(self) -> bool:
        return self.state in ("completed", "cancelled", "recalled")


class BroadcastEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What it would take, or what is left of it."""

    recipients: int
    suppressed: int
    messages: int
    is_least: bool = False  # of a long list: suppressed are at least this many, recipients at most
    per_s: float | None = None
    duration_s: float = 0.0
    done_at: datetime.datetime | None = None
    stars: float = 0.0
    stars_most: float = 0.0
    stars_max: float | None = None


class RecipientInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger."""

    number: str
    chat_id: str
    state: str
    letter_id: str | None = None
    message_ids: tuple[str, ...] = ()
    error: str | None = None
    values: dict[str, str] | None = None
    uncertain_tries: int = 0
    queued_at: datetime.datetime | None = None
    ended_at: datetime.datetime | None = None


class _Page(msgspec.Struct):
    broadcasts: list[BroadcastInfo]


class _Ledger(msgspec.Struct):
    recipients: list[RecipientInfo]
    next_cursor: str | None = None


class _Preview(msgspec.Struct):
    letter_id: str


class Broadcasts:
    """One call to many chats. See docs/broadcasts.md. A broadcast is named by its id, or by what was answered for it."""

    def __init__(self, transport: "Callable[[], Transport]") -> None:
        self._transport = transport

    async def create(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        chat_ids: Iterable[int | str] | None = None,
        csv: str | bytes | None = None,
        contacts: ContactFilter | None = None,
        bot_id: int | None = None,
        name: str | None = None,
        start: bool = False,
        send_at: When | None = None,
        canary: Canary | None = None,
        quiet: Quiet | None = None,
        stars_max: float | None = None,
        on_uncertain: OnUncertain | str | None = None,
        idempotency_key: str | None = None,
    ) -> BroadcastInfo:
        """Make one, durably: for a list of chats, the rows of a CSV with a column chat_id, or known chats. `params` has no
        chat_id; other columns fill {placeholders} in text and caption. With `start` it begins at once, with `send_at` then."""
        chats = None if chat_ids is None else list(chat_ids)  # in the caller's thread
        given = {
            "method": method,
            "params": _plain(params),
            "audience": await asyncio.to_thread(_audience, chats, csv, contacts),  # a million rows take a while
            "bot_id": bot_id,
            "name": name,
            "start": start,
            "send_at": rfc3339(instant_ms(send_at, "send_at")),
            "canary": canary,
            "quiet": quiet,
            "paid": None if stars_max is None else {"stars_max": stars_max},
            "on_uncertain": None if on_uncertain is None else _on_uncertain(on_uncertain),
            "idempotency_key": idempotency_key,
        }
        body = {name: value for name, value in given.items() if value is not None}
        return await self._transport().ask(BroadcastApi.create, into=BroadcastInfo, body=body, timeout_s=CREATE_S)

    async def get(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """As it stands."""
        return await self._asked(BroadcastApi.get, broadcast)

    async def find(self, *, bot_id: int | None = None) -> AsyncIterator[BroadcastInfo]:
        """All of them, the newest first, read page by page."""
        before: str | None = None
        while True:
            query = BroadcastsQuery(bot_id=bot_id, cursor=before, limit=PAGE)
            page = await self._transport().ask(BroadcastApi.list_broadcasts, into=_Page, query=query)
            for one in page.broadcasts:
                yield one
            if not page.broadcasts:
                return
            before = page.broadcasts[-1].id

    async def start(
        self, broadcast: BroadcastInfo | str, *, send_at: When | None = None, recipients: int | None = None
    ) -> BroadcastInfo:
        """Begin, now or then; with `recipients` only if about so many will get it. Raises Conflict, also if it has begun."""
        body = StartBody(send_at=rfc3339(instant_ms(send_at, "send_at")), recipients=recipients)
        return await self._asked(BroadcastApi.start, broadcast, body=body)

    async def pause(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """Halt. What waits is taken back; what is in flight ends."""
        return await self._asked(BroadcastApi.pause, broadcast)

    async def resume(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """Go on, also after it stopped itself."""
        return await self._asked(BroadcastApi.resume, broadcast)

    async def cancel(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """End it: nobody else gets it."""
        return await self._asked(BroadcastApi.cancel, broadcast)

    async def recall(self, broadcast: BroadcastInfo | str) -> BroadcastInfo:
        """End it, and delete what was sent. Telegram deletes only what is younger than 48 hours."""
        return await self._asked(BroadcastApi.recall, broadcast)

    async def estimate(self, broadcast: BroadcastInfo | str) -> BroadcastEstimate:
        """How many would get it, how long it takes, what it may cost. Nothing is sent."""
        transport, broadcast_id = self._transport(), _id(broadcast)
        return await transport.ask(BroadcastApi.estimate, into=BroadcastEstimate, broadcast_id=broadcast_id)

    async def preview(
        self, broadcast: BroadcastInfo | str, chat_id: int | str, *, like: int | str | None = None
    ) -> str:
        """Send it to one chat, ahead of other letters, with the values of the recipient `like`, or of the first. The letter's
        id."""
        transport, broadcast_id = self._transport(), _id(broadcast)
        body = PreviewBody(chat_id=chat_key(str(chat_id)), like=None if like is None else chat_key(str(like)))
        sent = await transport.ask(BroadcastApi.preview, into=_Preview, broadcast_id=broadcast_id, body=body)
        return sent.letter_id

    async def ledger(
        self, broadcast: BroadcastInfo | str, *, state: RecipientState | str | None = None
    ) -> AsyncIterator[RecipientInfo]:
        """Its recipients in their order, read page by page: `async for line in peik.broadcasts.ledger(id, state="failed")`."""
        wanted = None if state is None else read_recipient_state(state)
        broadcast_id, query = _id(broadcast), RecipientsQuery(state=wanted, limit=str(PAGE))
        while True:
            page = await self._transport().ask(
                BroadcastApi.recipients, into=_Ledger, broadcast_id=broadcast_id, query=query
            )
            for line in page.recipients:
                yield line
            if page.next_cursor is None:
                return
            query = msgspec.structs.replace(query, cursor=page.next_cursor)

    async def delete(self, broadcast: BroadcastInfo | str) -> None:
        """Forget one that was never begun, or that is over, with its ledger."""
        await self._transport().ask(BroadcastApi.delete, into=NoneType, broadcast_id=_id(broadcast))

    async def _asked(
        self, handler: Callable[..., Awaitable[object]], broadcast: BroadcastInfo | str, **given: Any
    ) -> BroadcastInfo:
        return await self._transport().ask(handler, into=BroadcastInfo, broadcast_id=_id(broadcast), **given)


def _id(broadcast: BroadcastInfo | str) -> str:
    name = broadcast.id if isinstance(broadcast, BroadcastInfo) else broadcast
    if not (name.isascii() and name.isdigit()):
        raise BadInput(code="bad_broadcast_id", detail="A broadcast is named by the digits of its id.")
    return name


def _plain(params: Mapping[str, Any]) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(dict(params)))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(code="bad_params", detail=f"params cannot be written as JSON: {error}.") from None


def _audience(chat_ids: list[int | str] | None, csv: str | bytes | None, contacts: ContactFilter | None) -> msgspec.Raw:
    if sum(one is not None for one in (chat_ids, csv, contacts)) != 1:
        raise BadInput(code="bad_audience", detail="Say to whom: one of chat_ids, csv and contacts.")
    body = AudienceBody(
        chat_ids=None if chat_ids is None else [str(chat) for chat in chat_ids],
        csv=None if csv is None else text_of(csv.encode() if isinstance(csv, str) else csv),
        contacts=None if contacts is None else contacts_body(contacts),
    )
    return msgspec.Raw(msgspec.json.encode(body))


def _on_uncertain(text: str) -> OnUncertain:
    try:
        return OnUncertain(text)
    except ValueError:
        raise BadInput(code="bad_on_uncertain", detail='on_uncertain is "resend" or "hold".') from None


# ---- recurring work ----


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands. `next` is when it is due next, five times at most."""

    name: str
    cron: str
    tz: str
    state: str
    title: str | None = None
    bot_id: str | None = None
    letter: LetterWork | None = None
    broadcast: BroadcastWork | None = None
    job: JobWork | None = None
    missed: str = "once"
    overlap: str = "skip"
    starts_at: datetime.datetime | None = None
    ends_at: datetime.datetime | None = None
    runs_max: int | None = None
    revision: int = 1
    next: tuple[datetime.datetime, ...] = ()
    runs: int = 0
    last_due_at: datetime.datetime | None = None
    last_state: str | None = None
    created_at: datetime.datetime | None = None
    created_by: str | None = None
    changed_at: datetime.datetime | None = None
    changed_by: str | None = None


class ScheduleRunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a due time; of missed ones, of `count` together."""

    due_at: datetime.datetime
    state: str
    at: datetime.datetime
    letter_id: str | None = None
    broadcast_id: str | None = None
    job_id: str | None = None
    reason: str | None = None  # of one that was refused, or passed over
    is_late: bool = False
    by: str | None = None
    count: int = 1
    is_least: bool = False
    first_due_at: datetime.datetime | None = None


class _SchedulePage(msgspec.Struct):
    schedules: list[ScheduleInfo]
    next_cursor: str | None = None


class _ScheduleRuns(msgspec.Struct):
    runs: list[ScheduleRunInfo]
    next_cursor: str | None = None


class _Upcoming(msgspec.Struct):
    next: tuple[datetime.datetime, ...]


class Schedules:
    """Letters, broadcasts and jobs by cron. See docs/schedules.md. A schedule is named by its name, or by what was answered for
    it."""

    def __init__(self, transport: "Callable[[], Transport]") -> None:
        self._transport = transport

    async def put(
        self,
        name: str,
        cron: str,
        *,
        tz: str = "UTC",
        letter: LetterWork | None = None,
        broadcast: BroadcastWork | None = None,
        job: JobWork | None = None,
        bot_id: int | None = None,
        title: str | None = None,
        missed: MissedRuns | str = MissedRuns.ONCE,
        overlap: OverlapPolicy | str = OverlapPolicy.SKIP,
        starts_at: When | None = None,
        ends_at: When | None = None,
        runs_max: int | None = None,
    ) -> ScheduleInfo:
        """Make it, or change it to this, durably: a program may do so whenever it starts. In texts of the params %{date} and
        others are filled in."""
        body = _schedule_body(
            cron,
            tz,
            letter=letter,
            broadcast=broadcast,
            job=job,
            bot_id=bot_id,
            title=title,
            missed=missed,
            overlap=overlap,
            starts_at=rfc3339(instant_ms(starts_at, "starts_at")),
            ends_at=rfc3339(instant_ms(ends_at, "ends_at")),
            runs_max=runs_max,
        )
        return await self._transport().ask(ScheduleApi.put, into=ScheduleInfo, name=name, body=body)

    async def upcoming(
        self,
        cron: str,
        *,
        tz: str = "UTC",
        letter: LetterWork | None = None,
        broadcast: BroadcastWork | None = None,
        job: JobWork | None = None,
        bot_id: int | None = None,
    ) -> tuple[datetime.datetime, ...]:
        """When it would be due, five times at most. Nothing is kept."""
        body = ScheduleBody(cron=cron, tz=tz, letter=letter, broadcast=broadcast, job=job, bot_id=bot_id)
        return (await self._transport().ask(ScheduleApi.preview, into=_Upcoming, body=body)).next

    async def get(self, schedule: ScheduleInfo | str) -> ScheduleInfo:
        """As it stands."""
        return await self._asked(ScheduleApi.get, schedule)

    async def find(self, *, bot_id: int | None = None) -> AsyncIterator[ScheduleInfo]:
        """All of them by their names, read page by page."""
        cursor: str | None = None
        while True:
            query = SchedulesQuery(bot_id=bot_id, cursor=cursor, limit=PAGE)
            page = await self._transport().ask(ScheduleApi.list_schedules, into=_SchedulePage, query=query)
            for one in page.schedules:
                yield one
            cursor = page.next_cursor
            if cursor is None:
                return

    async def pause(self, schedule: ScheduleInfo | str) -> ScheduleInfo:
        """Make nothing until it is resumed."""
        return await self._asked(ScheduleApi.pause, schedule)

    async def resume(self, schedule: ScheduleInfo | str) -> ScheduleInfo:
        """Go on with the next due time. What was due meanwhile is left out."""
        return await self._asked(ScheduleApi.resume, schedule)

    async def run_now(self, schedule: ScheduleInfo | str) -> ScheduleRunInfo:
        """Run it once, besides its due times."""
        return await self._transport().ask(ScheduleApi.run, into=ScheduleRunInfo, name=_name(schedule))

    async def runs(self, schedule: ScheduleInfo | str) -> AsyncIterator[ScheduleRunInfo]:
        """What became of its due times, the newest first, read page by page."""
        cursor: str | None = None
        while True:
            query = ScheduleRunsQuery(cursor=cursor, limit=PAGE)
            page = await self._transport().ask(ScheduleApi.runs, into=_ScheduleRuns, name=_name(schedule), query=query)
            for one in page.runs:
                yield one
            cursor = page.next_cursor
            if cursor is None:
                return

    async def delete(self, schedule: ScheduleInfo | str) -> None:
        """Delete it, and what is known of its runs. What it has made stays."""
        await self._transport().ask(ScheduleApi.delete, into=NoneType, name=_name(schedule))

    async def _asked(self, handler: Callable[..., Awaitable[object]], schedule: ScheduleInfo | str) -> ScheduleInfo:
        return await self._transport().ask(handler, into=ScheduleInfo, name=_name(schedule))


def _name(schedule: ScheduleInfo | str) -> str:
    return schedule.name if isinstance(schedule, ScheduleInfo) else schedule


def _schedule_body(cron: str, tz: str, **given: Any) -> ScheduleBody:
    """Raises BadInput for words that are none of the two policies."""
    for name, kind in (("missed", MissedRuns), ("overlap", OverlapPolicy)):
        try:
            given[name] = kind(given[name])
        except ValueError:
            raise BadInput(code=f"bad_{name}", detail=f"{name} is one of {', '.join(kind)}.") from None
    return ScheduleBody(cron=cron, tz=tz, **given)
