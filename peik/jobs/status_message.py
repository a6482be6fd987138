"""Tells people in their chat how their jobs go: one message per job, edited at leisure, by letters of the outbox. Its words
are in `inbox/notices.toml`, with all that chats are told.

The message is sent under a key of the job, with a text that depends on the notice alone. So anyone who sends it, on whichever
node and in whichever life, gets the same letter; all that follows are edits of it, which do no harm when they are repeated. How
a job ended is told under a key of that end, and then kept with the job; what a crash left untold is found by `recover`.
"""

import asyncio
import enum
import hashlib
import heapq
from collections import Counter
from typing import Any

import msgspec

from peik.clock import Clock
from peik.core.events import Events, Surprise
from peik.core.letter import State
from peik.core.notice import NoticeWords, Texts
from peik.errors import BadInput, Conflict, Problem, Unavailable, described
from peik.jobs.job import JobLettersPort
from peik.jobs.model import (
    Ahead,
    JobFilter,
    JobNotice,
    JobRecord,
    OnDone,
    StatusTold,
    end_text,
    first_text,
    later_text,
    read_notice,
    read_told,
    under_trace_of,
    waiting_text,
    working_text,
    written,
)
from peik.jobs.model import JobRecord as Record
from peik.jobs.store import JobKinds, JobsStanding, JobStore
from peik.wakeup import Wakeup

# What is known of one job that is told of, and what its message should say now.


PACE_S = 3.0  # between two edits of a message
GROUP_PACE_S = 15.0  # Telegram takes twenty messages a minute to a group, edits among them, and not for jobs alone
FIRST_PACE_S = 1.0  # between the message and its first edit


class JobStage(enum.Enum):
    WAITING = "waiting"  # in its line
    LATER = "later"  # put off, or not before some time
    WORKING = "working"
    OVER = "over"


_STAGES = {State.WAITING: JobStage.WAITING, State.DELAYED: JobStage.LATER, State.ACTIVE: JobStage.WORKING}


class StatusStory:
    """One job's message. `job` is the newest that we heard."""

    def __init__(self, job: JobRecord, notice: JobNotice, words: NoticeWords) -> None:
        self.notice = notice
        self.words = words
        self.told: StatusTold = read_told(job.notice_state)
        self.kept = job.notice_state  # as the store has it
        self.said: str | None = None  # the text that it has now, if we know
        self.said_at = float("-inf")
        self.is_first = False  # nothing was said but the first text
        self.last_letter = self.told.letter
        self.edits = 0
        self.progress: float | None = None
        self.progress_text: str | None = None
        self.ahead: Ahead | None = None
        self.look_at: float | None = None  # when we look what is to be said
        self.looked_at = float("-inf")
        self.is_busy = False
        self.hear(job)

    def hear(self, job: JobRecord) -> None:
        """How the job stands now."""
        self.job = job
        self.stage = _STAGES.get(job.state, JobStage.OVER)
        self.progress, self.progress_text, self.ahead = job.progress, job.progress_text, None
        known = read_told(job.notice_state)
        if self.told.letter is None and known.letter is not None:
            self.told = known
            self.last_letter = known.letter

    @property
    def may_be_said_at(self) -> float:
        if self.is_first:
            return self.said_at + FIRST_PACE_S
        is_private = isinstance(self.notice.chat_id, int) and self.notice.chat_id > 0
        return self.said_at + (PACE_S if is_private else GROUP_PACE_S)

    @property
    def is_idle(self) -> bool:
        """Anyone who begins it, or wants it once more, brings it back; until then there is nothing to say."""
        match self.stage:
            case JobStage.WAITING:
                return self.ahead is None
            case JobStage.LATER:
                return True
            case JobStage.WORKING:
                return False
            case JobStage.OVER:
                return self.told.is_gone or self.is_told

    @property
    def is_told(self) -> bool:
        """Its end is, and nothing more is to come."""
        return self.stage is JobStage.OVER and self.told.over == self.job.ended_at_ms

    @property
    def is_to_be_deleted(self) -> bool:
        return self.job.state is State.COMPLETED and self.notice.on_done is OnDone.DELETE

    def text(self, *, at_ms: int) -> str | None:
        """What the message should say; None: nothing else than it says."""
        if self.stage is JobStage.OVER:
            return end_text(self.notice, self.words, self.job)
        if not self.notice.has_progress:
            return None
        match self.stage:
            case JobStage.WAITING:
                return None if self.ahead is None else waiting_text(self.notice, self.words, self.ahead)
            case JobStage.LATER:
                return later_text(self.notice, self.words, ((self.job.due_at_ms or at_ms) - at_ms) / 1000)
            case JobStage.WORKING:
                return working_text(self.notice, self.words, progress=self.progress, text=self.progress_text)


TALES_MAX = 10_000  # kept in mind; of more, the oldest are told nothing new until something happens
SPEAKING_MAX = 32  # letters handed in at once
REFRESH_S = 30.0  # between two looks at a job's place in its line
PLACES_PER_S = (
    4  # such looks, over all jobs: each may be an edit, and a bot may send some thirty messages a second in all
)
EDITS_PER_S = 8  # of jobs that run, over all of them
LOOK_S = 1.0  # between two looks at one job's progress: some tell of every kilobyte
SLACK_S = 0.001  # a timer may ring a hair too early
RETRY_S = 5.0  # while letters cannot be accepted
RECOVERED_MAX = 2000  # jobs of each state that are looked at after a start
RECOVERED_S = 7 * 86_400.0
PAGE = 200


class StatusMessages:
    """A `Teller`. Its methods only note what happened; one loop speaks."""

    def __init__(
        self,
        *,
        store: JobStore,
        letters: JobLettersPort,
        kinds: JobKinds,
        texts: Texts,
        clock: Clock,
        events: Events,
        tales_max: int = TALES_MAX,
    ) -> None:
        self._store = store
        self._letters = letters
        self._kinds = kinds
        self._texts = texts
        self._clock = clock
        self._events = events
        self._tales_max = tales_max
        self._bell = Wakeup()
        self._tales: dict[int, StatusStory] = {}
        self._looks: list[
            tuple[float, int]
        ] = []  # a heap of (when, job); what does not fit its tale any more is passed over
        self._stages: Counter[JobStage] = Counter()
        self._speakers: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self._left = asyncio.Event()  # a tale ended

    # ---- what happened ----

    def progressed(self, job: Record, progress: float | None, text: str | None) -> None:
        tale = self._tales.get(job.id)
        if tale is None or tale.stage is not JobStage.WORKING or tale.job.run != job.run:
            return  # work that was given up may still speak
        tale.progress, tale.progress_text = progress, text
        if tale.notice.has_progress and not tale.told.is_gone:
            self._look(tale, max(self._may_be_said_at(tale), tale.looked_at + LOOK_S, self._clock.mono()))

    def changed(self, job: Record) -> None:
        notice = read_notice(job.notice)
        if notice is None:
            return
        tale = self._tales.get(job.id)
        if tale is None:
            self._make_room()
            tale = self._tales[job.id] = StatusStory(job, notice, self._texts.words(notice.language))
        else:
            self._stages[tale.stage] -= 1
            tale.hear(job)
        self._stages[tale.stage] += 1
        self._look(tale, self._clock.mono())

    def _make_room(self) -> None:
        if len(self._tales) < self._tales_max:
            return
        oldest = next((one for one in self._tales.values() if one.stage is not JobStage.OVER and not one.is_busy), None)
        if oldest is not None:
            self._drop(oldest)

    def _drop(self, tale: StatusStory) -> None:
        if self._tales.pop(tale.job.id, None) is not None:
            self._stages[tale.stage] -= 1
            self._left.set()

    # ---- running ----

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._loop = group.create_task(self._run(), name="jobs: telling")

    async def recover(self) -> None:
        """What an earlier life left untold: ends, and places in lines. Waits for a store that is away."""
        while True:
            try:
                return await self._recover()
            except Unavailable:
                await asyncio.sleep(RETRY_S)

    async def _recover(self) -> None:
        since_ms = self._clock.wall_ms() - int(RECOVERED_S * 1000)
        for state in (State.WAITING, State.COMPLETED, State.FAILED, State.CANCELLED):
            before: int | None = None
            for _ in range(RECOVERED_MAX // PAGE):
                wanted = JobFilter(state=state, since_ms=since_ms)
                found = await self._store.jobs(wanted, before=before, limit=PAGE)
                for job in found:
                    if job.id not in self._tales and job.notice is not None and _is_untold(job):
                        self.changed(job)
                if len(found) < PAGE:
                    break
                before = found[-1].id

    async def stop(self, grace_s: float) -> None:
        """What ended is told, if that is possible within the grace. What is not is told by the next life."""
        deadline = self._clock.mono() + grace_s
        while any(tale.stage is JobStage.OVER for tale in self._tales.values()) and self._clock.mono() < deadline:
            self._left.clear()
            left = asyncio.ensure_future(self._left.wait())
            await asyncio.wait([left], timeout=deadline - self._clock.mono())
            left.cancel()
        for task in [*self._speakers, *([] if self._loop is None else [self._loop])]:
            task.cancel()

    async def _run(self) -> None:
        while True:
            now = self._clock.mono() + SLACK_S
            while self._looks and self._looks[0][0] <= now and len(self._speakers) < SPEAKING_MAX:
                self._begin(*heapq.heappop(self._looks))
            is_full = len(self._speakers) >= SPEAKING_MAX
            await self._bell.wait(self._looks[0][0] if self._looks and not is_full else None)

    def _look(self, tale: StatusStory, at: float) -> None:
        if tale.look_at is not None and tale.look_at <= at:
            return
        tale.look_at = at
        heapq.heappush(self._looks, (at, tale.job.id))
        if self._looks[0] == (at, tale.job.id):
            self._bell.ring()

    def _begin(self, at: float, job_id: int) -> None:
        tale = self._tales.get(job_id)
        if tale is None or tale.look_at != at or tale.is_busy:
            return
        tale.look_at = None
        tale.is_busy = True
        task = self._group.create_task(self._speak(tale), name=f"telling of job {job_id}")
        self._speakers.add(task)
        task.add_done_callback(self._rest)

    def _rest(self, task: asyncio.Task[None]) -> None:
        self._speakers.discard(task)
        self._bell.ring()

    async def _speak(self, tale: StatusStory) -> None:
        """Nothing that fails here may reach the work, or other tales."""
        again_s: float | None = None
        try:
            again_s = await self._told(tale)
        except Unavailable:
            again_s = RETRY_S
        except _MessageForgotten:
            again_s = 0.0
        except Problem:  # the chat, the bot or the message is none that letters can go to: there is nobody to tell
            tale.told = msgspec.structs.replace(tale.told, is_gone=True)
            again_s = 0.0
        except Exception as error:  # noqa: BLE001  told of, and left
            where = f"telling of job {tale.job.id}"
            self._events.tell(Surprise(bot_id=tale.notice.bot_id, where=where, error=described(error)))
            self._drop(tale)
        finally:
            tale.is_busy = False
        if self._tales.get(tale.job.id) is tale:
            self._go_on(tale, again_s)

    def _go_on(self, tale: StatusStory, again_s: float | None) -> None:
        if tale.look_at is not None:  # something happened while we spoke
            heapq.heappush(self._looks, (tale.look_at, tale.job.id))
        elif again_s is not None:
            self._look(tale, self._clock.mono() + again_s)
        elif tale.is_idle:
            self._drop(tale)

    # ---- speaking ----

    async def _told(self, tale: StatusStory) -> float | None:
        """Say what is to be said now. When to look again (s); None: when something happens."""
        tale.looked_at = self._clock.mono()
        await self._keep(tale)
        if tale.told.is_gone or tale.is_told:
            return None
        if tale.stage is JobStage.OVER:
            return await self._tell_end(tale)
        if await self._send_first(tale):
            return self._may_be_said_at(tale) - self._clock.mono() if tale.notice.has_progress else None
        if not tale.notice.has_progress:
            return None
        again_s: float | None = None
        if tale.stage is JobStage.WAITING:
            await self._see_place(tale)
            again_s = None if tale.ahead is None else max(REFRESH_S, self._stages[JobStage.WAITING] / PLACES_PER_S)
        text = tale.text(at_ms=self._clock.wall_ms())
        if text is None or text == tale.said:
            return again_s
        return await self._tell_on(tale, text, again_s)

    def _may_be_said_at(self, tale: StatusStory) -> float:
        crowd_s = self._stages[JobStage.WORKING] / EDITS_PER_S if tale.stage is JobStage.WORKING else 0.0
        return max(tale.may_be_said_at, tale.said_at + crowd_s)

    async def _tell_on(self, tale: StatusStory, text: str, again_s: float | None) -> float | None:
        job = tale.job
        left_s = self._may_be_said_at(tale) - self._clock.mono()
        if left_s > SLACK_S:
            return left_s
        if not await self._is_out(tale):
            return PACE_S  # Telegram is away, or slow: what is true then is told then
        if tale.told.is_gone or tale.job is not job:
            return 0.0
        tale.edits += 1
        await self._edit(tale, text, key=f"job:{job.id}:{job.run}:{tale.edits}:{_digest(text)}")
        return again_s

    async def _tell_end(self, tale: StatusStory) -> float | None:
        job = tale.job
        text = tale.text(at_ms=self._clock.wall_ms())
        key = f"job:{job.id}:end:{job.ended_at_ms}"
        if text is not None or tale.is_to_be_deleted:
            await self._send_first(tale)
            await self._is_out(tale)
            if tale.told.is_gone:
                return 0.0
            if text is not None:
                await self._edit(tale, text, key=key)
            else:
                await self._accept(tale, "deleteMessage", _message(tale), key=key)
        tale.told = msgspec.structs.replace(tale.told, over=job.ended_at_ms)
        await self._keep(tale)
        return None

    async def _send_first(self, tale: StatusStory) -> bool:
        """The message itself, if it was not sent. Whether it was sent now."""
        if tale.told.letter is not None:
            return False
        notice, job = tale.notice, tale.job
        text = first_text(notice, tale.words)
        params = {**_place(tale), "text": text, **_PLAIN}
        if notice.reply_to is not None:
            params["reply_parameters"] = {"message_id": notice.reply_to, "allow_sending_without_reply": True}
        key = f"job:{job.id}:notice"
        try:
            letter = await self._accept(tale, "sendMessage", params, key=key)
        except Conflict:
            # It was sent in other words, by a life or a node that has another file of texts. Which letter it was may be kept.
            known = await self._store.job(job.id)
            found = StatusTold() if known is None else read_told(known.notice_state)
            if found.letter is not None:
                tale.told, tale.last_letter = found, found.letter
                return False
            letter = await self._accept(tale, "sendMessage", params, key=f"{key}:{_digest(text)}")
        tale.told = StatusTold(letter=letter)
        tale.said, tale.said_at, tale.is_first = text, self._clock.mono(), True
        await self._keep(tale)
        return True

    async def _edit(self, tale: StatusStory, text: str, *, key: str) -> None:
        try:
            await self._accept(tale, "editMessageText", {**_message(tale), "text": text, **_PLAIN}, key=key)
        except Conflict:
            return  # it was said in other words already: see above
        tale.said, tale.said_at, tale.is_first = text, self._clock.mono(), False

    async def _accept(self, tale: StatusStory, method: str, params: dict[str, Any], *, key: str) -> int:
        try:
            with under_trace_of(tale.job):
                letter = await self._letters.accept(
                    tale.notice.bot_id or None, method, msgspec.json.encode(params), files={}, idempotency_key=key
                )
        except BadInput as error:
            if error.code != "unknown_reference":
                raise
            # Letters are kept for some days, and jobs may be put off for months: then the message is sent again.
            tale.told, tale.last_letter, tale.said = StatusTold(), None, None
            raise _MessageForgotten from None
        tale.last_letter = letter
        return letter

    async def _is_out(self, tale: StatusStory) -> bool:
        """Whether what was said last has reached Telegram. If it never will, the message or its chat is gone."""
        state = None if tale.last_letter is None else await self._letters.state(tale.last_letter)
        if state in (State.FAILED, State.CANCELLED):
            tale.told = msgspec.structs.replace(tale.told, is_gone=True)
            await self._keep(tale)
        return state is None or state.is_final

    async def _see_place(self, tale: StatusStory) -> None:
        standing = await self._store.standing(tale.job.id)
        if tale.stage is not JobStage.WAITING:
            return
        kind = self._kinds.by_name.get(tale.job.kind)
        tale.ahead = None if standing is None else _ahead(standing, None if kind is None else kind.terms.concurrency)

    async def _keep(self, tale: StatusStory) -> None:
        """What was told, with the job."""
        state = written(tale.told)
        if state != tale.kept and tale.told != StatusTold():
            await self._store.note(tale.job.id, state)
            tale.kept = state


class _MessageForgotten(Exception):
    """The letter that was the message is not here any more."""


# Nothing in it is markup, and a link in a label shows no page.
_PLAIN: dict[str, Any] = {"link_preview_options": {"is_disabled": True}}


def _place(tale: StatusStory) -> dict[str, Any]:
    """Edits name the thread, too (Telegram does not mind): so they stand in one lane with what the job itself sends."""
    notice = tale.notice
    thread = {} if notice.thread_id is None else {"message_thread_id": notice.thread_id}
    return {"chat_id": notice.chat_id, **thread}


def _message(tale: StatusStory) -> dict[str, Any]:
    return {**_place(tale), "message_id": {"letter": str(tale.told.letter)}}


def _ahead(standing: JobsStanding, concurrency: int | None) -> Ahead:
    if concurrency is None:
        return Ahead(count=standing.ahead)
    if standing.ahead < concurrency - standing.running:
        return Ahead(count=0)
    mean_ms = standing.mean_run_ms
    return Ahead(
        count=standing.ahead, wait_s=None if mean_ms is None else standing.ahead / concurrency * mean_ms / 1000
    )


def _is_untold(job: Record) -> bool:
    told = read_told(job.notice_state)
    return not told.is_gone and (not job.state.is_final or told.over != job.ended_at_ms)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
