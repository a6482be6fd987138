"""What callers ask of recurring work, and who does it when it is due: each due time once, whatever crashes in between."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from peik.broadcasts.audience import Audience, ContactAudience, listed
from peik.broadcasts.model import Canary
from peik.broadcasts.service import BroadcastRequest, BroadcastService, drafted
from peik.clock import Clock, zone_of
from peik.core.call import chat_key
from peik.core.documents import AFTER_ALL_ASCII, ContactFilter, DocumentStore, Filing, StoredDocument
from peik.core.events import Events
from peik.core.letter import LetterCall
from peik.erasure.model import ErasedCounts, ErasedPerson, Found, names, reworded, scrubbed
from peik.errors import BadInput, Conflict, NotFound, Problem, Unavailable
from peik.jobs.model import JobRequest
from peik.jobs.service import JobService
from peik.jobs.service import drafted as drafted_job
from peik.outbox.service import OutboxService
from peik.schedules.model import (
    COLLECTION,
    DUE_COLLECTION,
    EDITS,
    EXPIRES_S_MAX,
    LIST_MAX,
    NAME_PATTERN,
    RUNS,
    TITLE_CHARS_MAX,
    WITHIN_DAYS_MAX,
    BroadcastWork,
    Firing,
    JobWork,
    LetterWork,
    Schedule,
    ScheduleEdit,
    ScheduleRan,
    ScheduleRun,
    ScheduleRunState,
    ScheduleState,
    Terms,
    checked_cron,
    due_key,
    filled_terms,
    following,
    instant_key,
    key_of,
    upcoming,
    with_params,
)

TRIES_MAX = 20  # against others who change the same schedule
PAGE_MAX = 1000
TERMS_BYTES_MAX = 100 * 1024  # as it is and as it is about to be made stand in one document
CHAT_TYPES = frozenset({"private", "group", "supergroup", "channel"})
_DAY_MS = 86_400_000

T = TypeVar("T", Schedule, ScheduleRun, ScheduleEdit)
_encode = msgspec.json.Encoder().encode


def read(document: StoredDocument, kind: type[T]) -> T:
    return msgspec.json.decode(document.body, type=kind)


def _written(record: Schedule | ScheduleRun | ScheduleEdit) -> str:
    return _encode(record).decode()


# ---- what is kept ----


class ScheduleBook:
    """The documents of schedules. When each must be looked at next is filed in the same commit as the schedule itself."""

    def __init__(self, documents: DocumentStore) -> None:
        self.documents = documents

    async def find(self, name: str) -> tuple[Schedule, int] | None:
        """With its version."""
        document = await self.documents.document(COLLECTION, name)
        return None if document is None else (read(document, Schedule), document.version)

    async def get(self, name: str) -> tuple[Schedule, int]:
        """Raises NotFound."""
        found = await self.find(name) if re.fullmatch(NAME_PATTERN, name) else None
        if found is None:
            raise NotFound(code="unknown_schedule", detail=f"There is no schedule {name[:64]!r} here (any more).")
        return found

    async def add(self, schedule: Schedule) -> None:
        """Raises Conflict if there is one of this name."""
        await self._clear(schedule.name)  # what a crash left of one that was deleted
        await self.documents.file(
            [
                Filing(collection=COLLECTION, key=schedule.name, body=_written(schedule), version=0),
                *_due(None, schedule),
            ]
        )

    async def write(self, old: Schedule, new: Schedule, version: int, more: Sequence[Filing] = ()) -> None:
        """Raises Conflict if it is not as it was."""
        changed = Filing(collection=COLLECTION, key=old.name, body=_written(new), version=version)
        await self.documents.file([changed, *_due(old, new), *more])

    async def change(
        self,
        name: str,
        change: Callable[[Schedule], Schedule],
        more: Callable[[Schedule], Sequence[Filing]] = lambda _: (),
    ) -> Schedule:
        """What `change` makes of it, which is asked again if somebody else was faster. Raises NotFound."""
        for _ in range(TRIES_MAX):
            old, version = await self.get(name)
            new = change(old)
            try:
                await self.write(old, new, version, more(old))
            except Conflict:
                continue
            return new
        raise Unavailable(code="busy", detail=f"Schedule {name} is changed by many at once. Ask again.")

    async def remove(self, name: str) -> None:
        """Raises NotFound."""
        for _ in range(TRIES_MAX):
            old, version = await self.get(name)
            gone = Filing(collection=COLLECTION, key=name, body=None, version=version)
            try:
                await self.documents.file([gone, *_due(old, None)])
            except Conflict:
                continue
            await self._clear(name)
            return
        raise Unavailable(code="busy", detail=f"Schedule {name} is changed by many at once. Ask again.")

    async def _clear(self, name: str) -> None:
        for collection in (RUNS + name, EDITS + name):
            while await self.documents.clear_collection(collection, limit=PAGE_MAX) >= PAGE_MAX:
                pass

    async def due(self, until_ms: int, *, limit: int) -> list[str]:
        """The names of those that must be looked at by then."""
        until = instant_key(until_ms + 1)
        found = await self.documents.documents(DUE_COLLECTION, until=until, limit=limit)
        return [document.key.partition("/")[2] for document in found]

    async def next_due_ms(self, after_ms: int) -> int | None:
        after = instant_key(after_ms) + AFTER_ALL_ASCII
        found = await self.documents.documents(DUE_COLLECTION, after=after, limit=1)
        return int(found[0].key.partition("/")[0]) if found else None

    async def run(self, name: str, due_at_ms: int) -> ScheduleRun | None:
        document = await self.documents.document(RUNS + name, instant_key(due_at_ms))
        return None if document is None else read(document, ScheduleRun)

    async def newest(self, collection: str, kind: type[T], *, before: str | None, limit: int) -> list[T]:
        found = await self.documents.documents(collection, after=before, limit=limit, is_backwards=True)
        return [read(document, kind) for document in found]

    async def sweep(self) -> None:
        """Of each schedule the newest runs and edits stay; what a crash left of a deleted one goes."""
        for prefix in (RUNS, EDITS):
            for collection in await self.documents.collections(prefix):
                if await self.find(collection.removeprefix(prefix)) is None:
                    await self._clear(collection.removeprefix(prefix))
                    continue
                kept = await self.documents.documents(collection, limit=KEPT, is_backwards=True)
                if len(kept) == KEPT:
                    await self.documents.clear_collection(collection, until=kept[-1].key, limit=PAGE_MAX)


KEPT = 200  # runs, and edits, of each schedule


def _due(old: Schedule | None, new: Schedule | None) -> list[Filing]:
    before = None if old is None else due_key(old)
    after = None if new is None else due_key(new)
    if before == after:
        return []
    keys = [(key, body) for key, body in ((before, None), (after, "1")) if key is not None]
    return [Filing(collection=DUE_COLLECTION, key=key, body=body) for key, body in keys]


def run_filing(name: str, run: ScheduleRun, version: int | None = None) -> Filing:
    key = instant_key(run.due_at_ms)
    return Filing(collection=RUNS + name, key=key, body=_written(run), version=version)


# ---- what a due time makes ----


class Maker:
    """Makes a letter, a broadcast or a job of a due time: the same one, however often it is asked under one key."""

    def __init__(self, *, letters: OutboxService, broadcasts: BroadcastService, jobs: JobService, clock: Clock) -> None:
        self._letters = letters
        self._broadcasts = broadcasts
        self._jobs = jobs
        self._clock = clock

    def bot_id(self, asked: int | None) -> int:
        """That bot, or the only one. Raises NotFound, BadInput."""
        return self._letters.bot(asked).bot_id

    def check(self, terms: Terms, due_ms: int) -> None:
        """Whether it could be made. Raises BadInput, NotFound."""
        if terms.letter is not None:
            self._letters.check(_letter(terms, terms.letter, due_ms, key=None))
        elif terms.broadcast is not None:
            request = _broadcast(terms, terms.broadcast, due_ms, key=None, by=None)
            drafted(request, bot_id=terms.bot_id, number=0, at_ms=self._clock.wall_ms())
        elif terms.job is not None:
            drafted_job(_job(terms.job, key=None), None, at_ms=self._clock.wall_ms())

    async def make(self, schedule: Schedule, firing: Firing) -> str:
        """Its id. Durable when this returns. Raises Problem."""
        terms, due_ms, key = firing.terms, firing.due_at_ms, key_of(schedule, firing.due_at_ms)
        if terms.letter is not None:
            call = _letter(terms, terms.letter, due_ms, key=key)
            return str((await self._letters.accept([call]))[0].letter_id)
        if terms.broadcast is not None:
            request = _broadcast(terms, terms.broadcast, due_ms, key=key, by=firing.by or schedule.created_by)
            return (await self._broadcasts.create(request)).id
        assert terms.job is not None
        return str((await self._jobs.queue_one(_job(terms.job, key=key))).job_id)

    async def goes_on(self, schedule: Schedule) -> bool:
        """Whether the broadcast or the job that was made last is not over."""
        terms, made = schedule.terms, schedule.made
        if made is None or not made.isdigit():
            return False
        try:
            if terms.broadcast is not None:
                return not (await self._broadcasts.get(made)).phase.is_final
            return terms.job is not None and not (await self._jobs.get(int(made))).state.is_final
        except NotFound:
            return False


def _letter(terms: Terms, work: LetterWork, due_ms: int, *, key: str | None) -> LetterCall:
    return LetterCall(
        bot_id=terms.bot_id,
        method=work.method,
        params=_encode(work.params),
        priority=work.priority,
        attempts=work.attempts,
        on_uncertain=work.on_uncertain,
        expires_at_ms=None if work.expires_in_s is None else due_ms + work.expires_in_s * 1000,
        metadata=None if work.metadata is None else _encode(work.metadata),
        idempotency_key=key,
    )


def _broadcast(terms: Terms, work: BroadcastWork, due_ms: int, *, key: str | None, by: str | None) -> BroadcastRequest:
    return BroadcastRequest(
        method=work.method,
        params=work.params,
        audience=_audience(work, due_ms),
        bot_id=terms.bot_id,
        name=terms.title,
        canary=None if work.canary_percent is None else Canary(percent=work.canary_percent),
        quiet=work.quiet,
        on_uncertain=work.on_uncertain,
        start=True,
        key=key,
        created_by=by,
    )


def _audience(work: BroadcastWork, due_ms: int) -> Audience:
    wanted = (work.types, work.languages, work.campaign, work.seen_within_days)
    if work.chat_ids is not None:
        if any(one is not None for one in wanted):
            raise BadInput(code="bad_audience", detail="Name chats, or say which known chats, not both.")
        return listed(work.chat_ids)
    if work.types is not None and not CHAT_TYPES.issuperset(work.types):
        raise BadInput(code="bad_audience", detail=f"types are of {', '.join(sorted(CHAT_TYPES))}.")
    days = work.seen_within_days
    return ContactAudience(
        wanted=ContactFilter(
            types=None if work.types is None else frozenset(work.types),
            languages=None if work.languages is None else frozenset(one.lower() for one in work.languages),
            campaign=work.campaign,
            seen_since_ms=None if days is None else due_ms - days * _DAY_MS,
            is_gone=False,
        )
    )


def _job(work: JobWork, *, key: str | None) -> JobRequest:
    return JobRequest(
        kind=work.kind,
        params=work.params,
        user=work.user,
        priority=work.priority,
        attempts=work.attempts,
        timeout_s=None if work.timeout_ms is None else work.timeout_ms / 1000,
        metadata=work.metadata,
        notice=work.notice,
        key=key,
    )


# ---- one due time ----


class Fire:
    """Makes what a schedule has in hand, and stores what became of it. A service that was asked to run one now and an engine may
    both be at it: the key makes one thing of two, and the first to store it ends it."""

    def __init__(self, book: ScheduleBook, maker: Maker, *, clock: Clock, events: Events) -> None:
        self._book = book
        self._maker = maker
        self._clock = clock
        self._events = events

    async def finish(self, name: str) -> ScheduleRun | None:
        """None: nothing is in hand. Raises Unavailable; then it is in hand still."""
        found = await self._book.find(name)
        if found is None or found[0].firing is None:
            return None
        schedule, firing = found[0], found[0].firing
        made: str | None = None
        state, reason = ScheduleRunState.DONE, None
        try:
            made = await self._maker.make(schedule, firing)
        except Unavailable:
            raise
        except Problem as problem:
            state, reason = ScheduleRunState.REFUSED, problem.detail
        run = ScheduleRun(
            due_at_ms=firing.due_at_ms,
            state=state,
            at_ms=self._clock.wall_ms(),
            kind=firing.terms.kind,
            made=made,
            reason=reason,
            is_late=firing.is_late,
            by=firing.by,
        )
        is_ours = await self._settle(name, firing, run)
        if is_ours:
            self._events.tell(
                ScheduleRan(
                    bot_id=firing.terms.bot_id,
                    schedule=name,
                    due_at_ms=firing.due_at_ms,
                    state=state,
                    made=made,
                    reason=reason,
                )
            )
        return run

    async def _settle(self, name: str, firing: Firing, run: ScheduleRun) -> bool:
        is_ours = False

        def settled(old: Schedule) -> Schedule:
            nonlocal is_ours
            is_ours = old.firing is not None and old.firing.due_at_ms == firing.due_at_ms
            if not is_ours:
                return old
            made = old.made if run.made is None else run.made
            return replace(old, firing=None, made=made, last_due_ms=run.due_at_ms, last_state=run.state)

        try:
            await self._book.change(name, settled, lambda _: [run_filing(name, run)] if is_ours else [])
        except NotFound:
            return False  # it was deleted meanwhile
        return is_ours


# ---- the service ----


class ScheduleService:
    def __init__(
        self,
        book: ScheduleBook,
        maker: Maker,
        *,
        clock: Clock,
        events: Events,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """`look` wakes the engine, if it is in this process."""
        self._book = book
        self._maker = maker
        self._fire = Fire(book, maker, clock=clock, events=events)
        self._clock = clock
        self._look = look

    async def put(self, name: str, terms: Terms, *, by: str | None, must_be_new: bool = False) -> tuple[Schedule, bool]:
        """Make it, or change it to this; and whether it is new. How it was before is kept. Raises BadInput, NotFound (a bot),
        Conflict."""
        if re.fullmatch(NAME_PATTERN, name) is None:
            raise BadInput(
                code="bad_name", detail="A schedule is named by 1 to 64 letters, digits and . _ - only.", field="name"
            )
        found = await self._book.find(name)
        if found is not None and must_be_new:
            raise Conflict(
                code="schedule_exists", detail=f"There is a schedule {name} already: edit it, or take another name."
            )
        terms = self.checked(name, terms)
        if found is None:
            made = self._begun(name, terms, by=by)
            await self._book.add(made)
            self._look()
            return made, True
        changed = await self._book.change(
            name,
            lambda old: self._edited(old, terms, by=by),
            lambda old: [] if old.terms == terms else [edit_filing(old, by=by, at_ms=self._clock.wall_ms())],
        )
        self._look()
        return changed, False

    def checked(self, name: str, terms: Terms) -> Terms:
        """As it is kept. Raises BadInput, NotFound."""
        if sum(one is not None for one in (terms.letter, terms.broadcast, terms.job)) != 1:
            raise BadInput(code="bad_schedule", detail="A schedule has one of letter, broadcast and job.")
        _check_terms(terms)
        terms = replace(terms, cron=checked_cron(terms.cron))
        terms = replace(terms, bot_id=0 if terms.job is not None else self._maker.bot_id(terms.bot_id or None))
        if len(_encode(terms)) > TERMS_BYTES_MAX:
            raise BadInput(code="schedule_too_large", detail=f"A schedule has at most {TERMS_BYTES_MAX >> 10} KB.")
        preview = self._begun(name, terms, by=None)
        if preview.next_at_ms is None:
            raise BadInput(
                code="never_due",
                detail="It would never be due: look at cron, and at when it begins and ends.",
                field="cron",
            )
        self._maker.check(self.as_due(preview, preview.next_at_ms), preview.next_at_ms)
        return terms

    def as_due(self, schedule: Schedule, due_ms: int) -> Terms:
        """What a due time would make, with its date in it. Raises BadInput."""
        return filled_terms(schedule, zone_of(schedule.terms.tz), due_ms)

    def upcoming(self, schedule: Schedule, count: int) -> list[int]:
        return upcoming(schedule, zone_of(schedule.terms.tz), count=count)

    def preview(self, name: str, terms: Terms) -> Schedule:
        """As it would be, were it saved now. Raises BadInput, NotFound."""
        return self._begun(name, self.checked(name, terms), by=None)

    def _begun(self, name: str, terms: Terms, *, by: str | None) -> Schedule:
        now_ms = self._clock.wall_ms()
        made = Schedule(
            name=name,
            terms=terms,
            created_at_ms=now_ms,
            created_by=by,
            changed_at_ms=now_ms,
            changed_by=by,
            decided_ms=now_ms,
        )
        return following(made, zone_of(terms.tz))

    def _edited(self, old: Schedule, terms: Terms, *, by: str | None) -> Schedule:
        if old.terms == terms:
            return old
        now_ms = self._clock.wall_ms()
        before = old.terms
        has_other_times = (terms.cron, terms.tz, terms.starts_at_ms) != (before.cron, before.tz, before.starts_at_ms)
        is_begun_anew = has_other_times or old.state is ScheduleState.ENDED
        new = replace(
            old,
            terms=terms,
            revision=old.revision + 1,
            changed_at_ms=now_ms,
            changed_by=by,
            decided_ms=max(now_ms, old.decided_ms) if is_begun_anew else old.decided_ms,
            made=old.made if terms.kind == before.kind else None,
        )
        return following(new, zone_of(terms.tz))

    # ---- looking ----

    async def get(self, name: str) -> Schedule:
        """Raises NotFound."""
        return (await self._book.get(name))[0]

    async def find(
        self, *, bot_ids: frozenset[int] | None = None, after: str | None = None, limit: int = 100
    ) -> tuple[list[Schedule], str | None]:
        """By their names; of these bots, or of all, jobs among them. And where to go on."""
        _check_limit(limit)
        found: list[Schedule] = []
        while True:
            page = await self._book.documents.documents(COLLECTION, after=after, limit=limit)
            for document in page:
                after, one = document.key, read(document, Schedule)
                if bot_ids is None or one.terms.bot_id in bot_ids:
                    found.append(one)
                if len(found) == limit:
                    return found, after
            if len(page) < limit:
                return found, None

    async def runs(self, name: str, *, before: str | None = None, limit: int = 50) -> list[ScheduleRun]:
        """The newest first. Raises NotFound."""
        _check_limit(limit)
        await self._book.get(name)
        return await self._book.newest(RUNS + name, ScheduleRun, before=before, limit=limit)

    async def edits(self, name: str, *, limit: int = 50) -> list[ScheduleEdit]:
        """How it was before, the newest first. Raises NotFound."""
        _check_limit(limit)
        await self._book.get(name)
        return await self._book.newest(EDITS + name, ScheduleEdit, before=None, limit=limit)

    # ---- changing ----

    async def pause(self, name: str) -> Schedule:
        """Nothing is made until somebody resumes it. Raises NotFound, Conflict."""

        def paused(old: Schedule) -> Schedule:
            if old.state is ScheduleState.ENDED:
                raise Conflict(
                    code="schedule_ended", detail=f"Schedule {name} has ended: nothing of it is due any more."
                )
            return replace(old, state=ScheduleState.PAUSED)

        return await self._book.change(name, paused)

    async def resume(self, name: str) -> Schedule:
        """Go on with the next due time. What was due meanwhile was not missed: somebody wanted it so. Raises NotFound,
        Conflict."""

        def resumed(old: Schedule) -> Schedule:
            if old.state is ScheduleState.ENDED:
                raise Conflict(code="schedule_ended", detail=f"Schedule {name} has ended: edit it to begin it again.")
            if old.state is ScheduleState.ACTIVE:
                return old
            decided_ms = max(old.decided_ms, self._clock.wall_ms())
            return following(replace(old, state=ScheduleState.ACTIVE, decided_ms=decided_ms), zone_of(old.terms.tz))

        changed = await self._book.change(name, resumed)
        self._look()
        return changed

    async def run_now(self, name: str, *, by: str | None) -> ScheduleRun:
        """Once, besides its due times; also of one that is paused or has ended. Raises NotFound, Conflict, BadInput."""
        due_ms = self._clock.wall_ms()
        schedule, version = await self._book.get(name)
        if schedule.firing is not None:
            raise Conflict(code="schedule_busy", detail=f"Schedule {name} is being run just now. Ask again.")
        firing = Firing(due_at_ms=due_ms, terms=self.as_due(schedule, due_ms), by=by or "somebody")
        begun = ScheduleRun(
            due_at_ms=due_ms, state=ScheduleRunState.FIRING, at_ms=due_ms, kind=schedule.terms.kind, by=firing.by
        )
        try:
            await self._book.write(
                schedule, replace(schedule, firing=firing), version, [run_filing(name, begun, version=0)]
            )
        except Conflict:
            raise Conflict(
                code="schedule_busy", detail=f"Schedule {name} is being changed just now. Ask again."
            ) from None
        try:
            run = await self._fire.finish(name)
        except Unavailable:
            self._look()  # it is in hand, and is made as soon as that is possible
            return begun
        return run or await self._book.run(name, due_ms) or begun

    async def delete(self, name: str) -> None:
        """What it has made stays. Raises NotFound."""
        await self._book.remove(name)


def edit_filing(old: Schedule, *, by: str | None, at_ms: int) -> Filing:
    edit = ScheduleEdit(revision=old.revision, terms=old.terms, until_ms=at_ms, by=by)
    return Filing(collection=EDITS + old.name, key=f"{old.revision:09d}", body=_written(edit))


def _check_terms(terms: Terms) -> None:
    """Raises BadInput."""
    zone_of(terms.tz)
    bounds: tuple[tuple[str, int | None, int], ...] = (
        ("runs_max", terms.runs_max, 1_000_000),
        ("expires_in_s", None if terms.letter is None else terms.letter.expires_in_s, EXPIRES_S_MAX),
        ("seen_within_days", None if terms.broadcast is None else terms.broadcast.seen_within_days, WITHIN_DAYS_MAX),
    )
    for name, value, most in bounds:
        if value is not None and not 1 <= value <= most:
            raise BadInput(code=f"bad_{name}", detail=f"{name} is a number from 1 to {most}.", field=name)
    if terms.title is not None and not 0 < len(terms.title) <= TITLE_CHARS_MAX:
        raise BadInput(code="bad_title", detail=f"title has 1 to {TITLE_CHARS_MAX} characters.", field="title")
    if terms.broadcast is not None and len(terms.broadcast.chat_ids or ()) > LIST_MAX:
        raise BadInput(
            code="too_many_recipients",
            detail=f"A schedule names at most {LIST_MAX} chats. Write to known chats instead.",
        )
    starts_ms, ends_ms = terms.starts_at_ms, terms.ends_at_ms
    if starts_ms is not None and ends_ms is not None and starts_ms >= ends_ms:
        raise BadInput(code="bad_ends_at", detail="ends_at is not after starts_at.", field="ends_at")


def _check_limit(limit: int) -> None:
    if not 0 < limit <= PAGE_MAX:
        raise BadInput(code="bad_limit", detail=f"limit must be between 1 and {PAGE_MAX}.")


# ---- schedules of a person who is forgotten ----


class SchedulesPart:
    """The port `ErasurePart`. What is for them alone goes whole; out of a list, and out of words, only they go."""

    def __init__(self, documents: DocumentStore) -> None:
        self._book = ScheduleBook(documents)

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        found, after = ErasedCounts(), None
        while page := await self._book.documents.documents(COLLECTION, after=after, limit=PAGE_MAX):
            after = page[-1].key
            for document in page:
                found += await self._one(person, read(document, Schedule), document.version, is_dry=is_dry)
        for prefix in (RUNS, EDITS):
            for collection in await self._book.documents.collections(prefix):
                found += await self._lines(person, collection, is_dry=is_dry)
        return {"schedules": found}

    async def _one(self, person: ErasedPerson, one: Schedule, version: int, *, is_dry: bool) -> ErasedCounts:
        left = _left_of(person, one)
        if left == one:
            return ErasedCounts()
        if left is None:
            if not is_dry:
                await self._book.remove(one.name)
            return ErasedCounts(removed=1)
        try:
            if not is_dry:
                await self._book.write(one, left, version)
        except Conflict:  # somebody changed it just now: the next look sees
            return ErasedCounts(left=1)
        return ErasedCounts(blanked=1)

    async def _lines(self, person: ErasedPerson, collection: str, *, is_dry: bool) -> ErasedCounts:
        """Runs, and how it was before: of these nothing is made any more, so that the text alone counts."""
        found, after = ErasedCounts(), None
        while page := await self._book.documents.documents(collection, after=after, limit=PAGE_MAX):
            after = page[-1].key
            named = [document for document in page if names(person, document.body)]
            if named and not is_dry:
                await self._book.documents.file(
                    [Filing(collection=collection, key=document.key, body=None) for document in named]
                )
            found += ErasedCounts(removed=len(named))
        return found


def _left_of(person: ErasedPerson, one: Schedule) -> Schedule | None:
    """What stays of it. None: nothing."""
    terms = None if names(person, one.name) else _terms_left(person, one.terms)
    firing = one.firing
    if firing is not None:
        made = _terms_left(person, firing.terms)
        firing = None if made is None else replace(firing, terms=made)
    if terms is None:
        return None
    left = replace(one, terms=terms, firing=firing)
    return msgspec.json.decode(reworded(person, _written(left)), type=Schedule)


def _terms_left(person: ErasedPerson, terms: Terms) -> Terms | None:
    letter, broadcast, job = terms.letter, terms.broadcast, terms.job
    if letter is not None and _is_chat(person, letter.params.get("chat_id")):
        return None
    if job is not None and (person.is_called(job.user) or _is_chat(person, (job.notice or {}).get("chat_id"))):
        return None
    if broadcast is not None and broadcast.chat_ids is not None:
        others = [chat for chat in broadcast.chat_ids if not _is_chat(person, chat)]
        if not others:
            return None
        terms = replace(terms, broadcast=replace(broadcast, chat_ids=others))
    text = _encode(terms.params).decode()
    return with_params(terms, msgspec.json.decode(scrubbed(person, text))) if names(person, text) else terms


def _is_chat(person: ErasedPerson, given: object) -> bool:
    if not isinstance(given, int | str):
        return False
    try:
        return person.is_chat(chat_key(given))
    except BadInput:
        return False
