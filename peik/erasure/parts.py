"""What is removed of a person, part by part: letters, arrivals, jobs, documents, contacts, the archive of accounts, logs."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import get_type_hints

import msgspec

from peik.archive.store import Archive, LogFilter, SessionFilter
from peik.clock import Clock
from peik.core.arrival import FORGOTTEN_LANE, Span, spans_of
from peik.core.documents import DocumentStore, Filing, StoredDocument
from peik.core.letter import State
from peik.erasure.model import ErasedCounts, ErasedPerson, Found, hollow, names, reworded, scrubbed
from peik.erasure.store import Blank, Forgetting, LoggedLine
from peik.errors import Conflict, NotFound
from peik.inbox.store import ArrivalFilter, ArrivalView, InboxStore
from peik.jobs.model import JobFilter, JobRecord
from peik.jobs.store import JobStore
from peik.outbox.store import LetterFilter, LetterView, LoggedMessage, MessageLogTable, Store

ARCHIVE_PAGE = 200


class ArchivePart:
    """The port `ErasurePart`."""

    def __init__(self, archive: Callable[[], Awaitable[Archive]]) -> None:
        """Raises StoreUnavailable if the archive does not answer."""
        self._archive = archive

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        archive = await self._archive()
        ask = archive.count_person if is_dry else archive.forget_person
        gone = await ask(person.user_id)
        return {
            **{f"archive_{kind}": ErasedCounts(removed=count) for kind, count in gone.items()},
            "archive_sessions": await _sessions(archive, person, is_dry=is_dry),
            "archive_logs": await _logs(archive, person, is_dry=is_dry),
        }


async def _sessions(archive: Archive, person: ErasedPerson, *, is_dry: bool) -> ErasedCounts:
    """What callers noted of accounts. An account of the person's own is theirs to have removed: it is signed in on purpose."""
    found, after = ErasedCounts(), None
    while page := await archive.sessions(SessionFilter(), after=after, limit=ARCHIVE_PAGE):
        after = page[-1].session_id
        for session in page:
            if not names(person, session.metadata):
                continue
            try:
                if not is_dry:
                    left = msgspec.structs.replace(session, metadata=scrubbed(person, session.metadata))
                    await archive.save_session(left)
                found += ErasedCounts(blanked=1)
            except (Conflict, NotFound):
                found += ErasedCounts(left=1)
    return found


async def _logs(archive: Archive, person: ErasedPerson, *, is_dry: bool) -> ErasedCounts:
    found = ErasedCounts()
    for word in sorted(person.words):
        cursor = None
        while True:
            page, cursor = await archive.logs(LogFilter(text=word), cursor=cursor, limit=ARCHIVE_PAGE)
            theirs = [line for line in page if names(person, line.event, line.fields)]
            found += ErasedCounts(removed=len(theirs) if is_dry or not theirs else await archive.drop_logs(theirs))
            if cursor is None:
                break
    return found


# Updates of a person that is forgotten. An arrival keeps its place, so that every reader's cursor stays right; its
# content goes.
#
# What the person wrote or did, in private or in a group, is emptied, and nobody is handed it any more. Where somebody
# else's update names them (a reply that quotes them, a join that somebody else brought about), only they are taken
# out of it.


ARRIVALS_PAGE = 200
_OPEN = (State.WAITING, State.DELAYED)


class ArrivalsPart:
    """The port `ErasurePart`."""

    def __init__(self, inbox: InboxStore, forgetting: Forgetting, *, clock: Clock) -> None:
        self._inbox = inbox
        self._forgetting = forgetting
        self._clock = clock

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        blanked, before = 0, None
        while True:
            page = await self._inbox.find_arrivals(
                ArrivalFilter(bot_id=person.bot_id), before=before, limit=ARRIVALS_PAGE
            )
            theirs = [view for view in page if _is_theirs(person, view)]
            named = [view for view in page if not _is_theirs(person, view) and _is_named(person, view)]
            if not is_dry and (theirs or named):
                await self._end(theirs)
                blanks = [_blank(person, view, is_theirs=True) for view in theirs]
                blanks += [_blank(person, view, is_theirs=False) for view in named]
                blanked += await self._forgetting.blank_arrivals(blanks, person=person)
            elif is_dry:
                blanked += len(theirs) + len(named)
            if len(page) < ARRIVALS_PAGE:
                return {"arrivals": ErasedCounts(blanked=blanked)}
            before = page[-1].arrival.id

    async def _end(self, views: Sequence[ArrivalView]) -> None:
        """They are over for everybody who has not had them yet: there is nothing left in them to deliver."""
        open_for: dict[tuple[int, str], list[int]] = defaultdict(list)
        for view in views:
            for one in view.deliveries:
                if one.state in _OPEN:
                    open_for[view.arrival.bot_id, one.consumer].append(view.arrival.number)
        if not open_for:
            return
        ids = {(one.bot_id, one.name): one.id for one in await self._inbox.consumers()}
        for whose, numbers in open_for.items():
            if whose in ids:
                over: Sequence[Span] = spans_of(sorted(numbers))
                await self._inbox.settle_arrivals(ids[whose], over=over, at_ms=self._clock.wall_ms())


def _is_theirs(person: ErasedPerson, view: ArrivalView) -> bool:
    arrival = view.arrival
    return arrival.lane != FORGOTTEN_LANE and (arrival.user_id == person.user_id or person.is_chat(arrival.lane))


def _is_named(person: ErasedPerson, view: ArrivalView) -> bool:
    told = [text for one in view.deliveries for text in (one.failed_reason, one.history)]
    return names(person, view.arrival.payload, *told)


def _blank(person: ErasedPerson, view: ArrivalView, *, is_theirs: bool) -> Blank:
    payload = view.arrival.payload
    left = hollow(person, payload) if is_theirs else scrubbed(person, payload)
    return Blank(arrival_id=view.arrival.id, payload=left, is_theirs=is_theirs)


class TracesPart:
    """What bots know of the private chat with a person: the port `ErasurePart`.

    Nothing is kept that would hold Peik back from writing to them again: a list of those who must not be written to would be a
    record of them. Whoever blocked the bot is protected by Telegram, which refuses each letter, and the first refusal shuts the
    chat again."""

    def __init__(
        self, forgetting: Forgetting, *, bots: Callable[[], Iterable[int]], reread: Callable[[int], Awaitable[None]]
    ) -> None:
        """`reread`: anyone who sends for a bot here looks again what is known of its chats."""
        self._forgetting = forgetting
        self._bots = bots
        self._reread = reread

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        ask = self._forgetting.traces if is_dry else self._forgetting.drop_traces
        found = {"contacts": ErasedCounts(), "chats": ErasedCounts(), "handled": ErasedCounts()}
        for bot_id in self._bots():
            if person.bot_id in (None, bot_id):
                gone = await ask(bot_id, person.user_id)
                found["contacts"] += ErasedCounts(removed=gone.contacts)
                found["chats"] += ErasedCounts(removed=gone.chats)
                found["handled"] += ErasedCounts(removed=gone.handled)
                if gone.chats and not is_dry:
                    await self._reread(bot_id)
        return found


# The gateway's cache of files. Whose they are cannot be told, so that all of them go, and are fetched again.


class FileCachePart:
    """The port `ErasurePart`. It counts nothing: most of what goes is somebody else's."""

    def __init__(self, clear: Callable[[], None]) -> None:
        self._clear = clear

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        if not is_dry:
            self._clear()
        return {"file_cache": ErasedCounts()}


# Jobs of a person that is forgotten: theirs, and those that name them. Their folders go with their runs, as always.


JOBS_PAGE = 200
REASON = "Whoever asked for it is forgotten."


class JobsPart:
    """The port `ErasurePart`."""

    def __init__(self, jobs: JobStore, forgetting: Forgetting, *, clock: Clock) -> None:
        self._jobs = jobs
        self._forgetting = forgetting
        self._clock = clock

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        found, before = ErasedCounts(), None
        while True:
            page = await self._jobs.jobs(JobFilter(), before=before, limit=JOBS_PAGE)
            meant = [job for job in page if person.is_called(job.user) or _names(person, job)]
            ended = [job.id for job in meant if await self._is_over(person, job, is_dry=is_dry)]
            removed = len(ended) if is_dry or not ended else await self._forgetting.drop_jobs(ended)
            found += ErasedCounts(removed=removed, left=len(meant) - removed)
            if len(page) < JOBS_PAGE:
                break
            before = page[-1].id
        days = await self._forgetting.drop_job_days(sorted(person.words), is_dry=is_dry)
        return {"jobs": found, "job_days": ErasedCounts(removed=days)}

    async def _is_over(self, person: ErasedPerson, job: JobRecord, *, is_dry: bool) -> bool:
        if job.state.is_final:
            return True
        if not person.is_called(job.user):
            return False  # somebody else waits for it
        if is_dry:
            return job.state is not State.ACTIVE
        try:
            # Not by the service, which would tell the person about it.
            return (await self._jobs.cancel(job.id, reason=REASON, at_ms=self._clock.wall_ms())).state.is_final
        except Conflict:
            return True  # it ended a moment ago
        except NotFound:
            return False


# Whatever somebody may have written about a person: every text of a job but those that Peik and its programs choose.
_JOB_TEXTS = tuple(
    field
    for field, hint in get_type_hints(JobRecord).items()
    if hint in (str, str | None) and field not in ("kind", "user", "node")
)


def _names(person: ErasedPerson, job: JobRecord) -> bool:
    texts = (getattr(job, field) for field in _JOB_TEXTS)
    return names(person, *texts)


# Letters to a person that is forgotten, and those that name them. Ended ones go; what waits is taken back first.


LETTERS_PAGE = 500
DROPPED_AT_ONCE = 200
BROADCAST = (
    "broadcast:"  # what the type of such a letter begins with; its user_id is the number of a line, and nobody's name
)
FRESH_MS = 60_000  # so long a broadcast may need to write down what became of a letter of its own


class LettersPart:
    """The port `ErasurePart`."""

    def __init__(
        self,
        store: Store,
        forgetting: Forgetting,
        *,
        clock: Clock,
        cancel: Callable[[int], Awaitable[object]],
        cancel_all: Callable[[LetterFilter], Awaitable[int]],
    ) -> None:
        """`cancel` and `cancel_all` tell everybody who waits for such a letter, as they do for anybody."""
        self._store = store
        self._forgetting = forgetting
        self._clock = clock
        self._cancel = cancel
        self._cancel_all = cancel_all

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        if not is_dry:
            for chat in (person.user_id, f"user:{person.user_id}"):
                await self._cancel_all(LetterFilter(bot_id=person.bot_id, chat=chat))
        return {
            "letters": await self._letters(person, is_dry=is_dry),
            "message_log": await self._logged(person, is_dry=is_dry),
            "idempotency_keys": await self._keys(person, is_dry=is_dry),
        }

    async def _letters(self, person: ErasedPerson, *, is_dry: bool) -> ErasedCounts:
        found, ended, cursor = ErasedCounts(), list[int](), None
        while True:
            page = await self._store.page(LetterFilter(bot_id=person.bot_id), before=cursor, limit=LETTERS_PAGE)
            for view in page.letters:
                match await self._judged(person, view, is_dry=is_dry):
                    case True:
                        ended.append(view.id)
                    case False:
                        found += ErasedCounts(left=1)
            cursor = page.cursor
            if is_dry:
                found, ended = found + ErasedCounts(removed=len(ended)), []
            elif ended and (len(ended) >= DROPPED_AT_ONCE or cursor is None):
                found, ended = found + await self._drop(ended), []
            if cursor is None:
                return found

    async def _judged(self, person: ErasedPerson, view: LetterView, *, is_dry: bool) -> bool | None:
        """Whether it can go now; None: it is no matter of this person's."""
        is_theirs = is_about(person, view)
        if not is_theirs and not _names_person(person, view):
            return None
        if view.state.is_final:
            return not self._is_fresh(view)
        if not is_theirs or view.state not in _OPEN:
            return False  # somebody else's, which still has to be sent; or one in flight
        if not is_dry:
            try:
                await self._cancel(view.id)
            except (Conflict, NotFound):
                return False  # it left a moment ago
        return True

    def _is_fresh(self, view: LetterView) -> bool:
        at_ms = view.settled_at_ms or 0
        return is_broadcast(view) and self._clock.wall_ms() - at_ms < FRESH_MS

    async def _drop(self, ids: list[int]) -> ErasedCounts:
        gone = 0
        for start in range(0, len(ids), DROPPED_AT_ONCE):
            gone += await self._forgetting.drop_letters(ids[start : start + DROPPED_AT_ONCE])
        return ErasedCounts(removed=gone, left=len(ids) - gone)

    async def _logged(self, person: ErasedPerson, *, is_dry: bool) -> ErasedCounts:
        gone, cursor = 0, None
        while True:
            page, cursor = await self._forgetting.logged(cursor, LETTERS_PAGE)
            theirs = [line.id for line in page if _is_of(person, line)]
            gone += len(theirs) if is_dry or not theirs else await self._forgetting.drop_logged(theirs)
            if cursor is None:
                return ErasedCounts(removed=gone)

    async def _keys(self, person: ErasedPerson, *, is_dry: bool) -> ErasedCounts:
        """Those of letters went with them. A key may also name somebody whose letter went before."""
        gone, cursor = 0, None
        while True:
            page, cursor = await self._forgetting.kept_keys(cursor, LETTERS_PAGE)
            theirs = [one for one in page if person.bot_id in (None, one.bot_id) and names(person, one.key)]
            gone += len(theirs) if is_dry or not theirs else await self._forgetting.drop_keys(theirs)
            if cursor is None:
                return ErasedCounts(removed=gone)


class MessageLogPart:
    """Lines of the message log in a database of its own. The port `ErasurePart`."""

    def __init__(self, make: Callable[[], MessageLogTable]) -> None:
        self._make = make

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        table = self._make()
        await table.open()
        try:
            gone, cursor = 0, None
            while True:
                page, cursor = await table.logged(cursor, LETTERS_PAGE)
                theirs = [line.id for line in page if _is_of(person, line)]
                gone += len(theirs) if is_dry or not theirs else await table.drop_logged(theirs)
                if cursor is None:
                    return {"message_log": ErasedCounts(removed=gone)}
        finally:
            await table.close()


def _is_of(person: ErasedPerson, line: LoggedLine | LoggedMessage) -> bool:
    if person.bot_id not in (None, line.bot_id):
        return False
    return person.is_chat(line.chat) or person.is_called(line.user_id) or names(person, line.error, line.text)


def is_broadcast(view: LetterView) -> bool:
    return view.message_type is not None and view.message_type.startswith(BROADCAST)


def is_about(person: ErasedPerson, view: LetterView) -> bool:
    return person.is_chat(view.chat) or (person.is_called(view.user_id) and not is_broadcast(view))


def _names_person(person: ErasedPerson, view: LetterView) -> bool:
    labels = None if is_broadcast(view) else view.metadata
    return names(person, view.params, view.result, view.history, view.failed_reason, labels)


# Documents that name a person who is forgotten, but for those whose owners forget by themselves: of the audit log,
# alerts, errors. What was done stays on document; whom it was about does not.


DOCUMENTS_PAGE = 500
COLLECTION = "forgetting"  # the acts themselves
# Names and figures of Peik itself, and texts that people wrote for everybody.
NOT_ABOUT_PEOPLE = frozenset(
    {COLLECTION, "admins", "backups", "figures_1h", "figures_5m", "oidc_sign_ins", "sign_ins", "templates"}
)


class DocumentsPart:
    """The port `ErasurePart`."""

    def __init__(self, documents: DocumentStore, *, owned: Sequence[str]) -> None:
        """`owned`: how the names of collections begin that somebody else looks through."""
        self._documents = documents
        self._owned = tuple(owned)

    async def forget(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        found = ErasedCounts()
        for collection in await self._documents.collections(""):
            if collection not in NOT_ABOUT_PEOPLE and not collection.startswith(self._owned):
                found += await self._collection(collection, person, is_dry=is_dry)
        return {"papers": found}

    async def _collection(self, collection: str, person: ErasedPerson, *, is_dry: bool) -> ErasedCounts:
        found, after = ErasedCounts(), None
        while page := await self._documents.documents(collection, after=after, limit=DOCUMENTS_PAGE):
            after = page[-1].key
            for document in page:
                filing = _filing(person, document)
                if filing is None:
                    continue
                try:
                    if not is_dry:
                        await self._documents.file([filing])
                except Conflict:
                    found += ErasedCounts(left=1)  # somebody changed it just now: the next look sees
                else:
                    found += ErasedCounts(removed=1) if filing.body is None else ErasedCounts(blanked=1)
        return found


def _filing(person: ErasedPerson, document: StoredDocument) -> Filing | None:
    """A document that is about the person has them in its key, and goes."""
    if names(person, document.key):
        return Filing(collection=document.collection, key=document.key, body=None, version=document.version)
    left = reworded(person, document.body)
    return (
        None
        if left == document.body
        else Filing(collection=document.collection, key=document.key, body=left, version=document.version)
    )
