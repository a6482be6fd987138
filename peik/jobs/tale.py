"""What is known of one job that is told of, and what its message should say now."""

import enum

from peik.core.job import Job
from peik.core.job_notice import (
    Ahead,
    JobNotice,
    OnDone,
    Told,
    end_text,
    later_text,
    read_told,
    waiting_text,
    working_text,
)
from peik.core.letter import State
from peik.core.notice import Words

PACE_S = 3.0  # between two edits of a message
GROUP_PACE_S = 15.0  # Telegram takes twenty messages a minute to a group, edits among them, and not for jobs alone
FIRST_PACE_S = 1.0  # between the message and its first edit


class Stage(enum.Enum):
    WAITING = "waiting"  # in its line
    LATER = "later"  # put off, or not before some time
    WORKING = "working"
    OVER = "over"


_STAGES = {State.WAITING: Stage.WAITING, State.DELAYED: Stage.LATER, State.ACTIVE: Stage.WORKING}


class Tale:
    """One job's message. `job` is the newest that we heard."""

    def __init__(self, job: Job, notice: JobNotice, words: Words) -> None:
        self.notice = notice
        self.words = words
        self.told: Told = read_told(job.notice_state)
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

    def hear(self, job: Job) -> None:
        """How the job stands now."""
        self.job = job
        self.stage = _STAGES.get(job.state, Stage.OVER)
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
        """Whoever begins it, or wants it once more, brings it back; until then there is nothing to say."""
        match self.stage:
            case Stage.WAITING:
                return self.ahead is None
            case Stage.LATER:
                return True
            case Stage.WORKING:
                return False
            case Stage.OVER:
                return self.told.is_gone or self.is_told

    @property
    def is_told(self) -> bool:
        """Its end is, and nothing more is to come."""
        return self.stage is Stage.OVER and self.told.over == self.job.ended_at_ms

    @property
    def is_to_be_deleted(self) -> bool:
        return self.job.state is State.COMPLETED and self.notice.on_done is OnDone.DELETE

    def text(self, *, at_ms: int) -> str | None:
        """What the message should say; None: nothing else than it says."""
        if self.stage is Stage.OVER:
            return end_text(self.notice, self.words, self.job)
        if not self.notice.has_progress:
            return None
        match self.stage:
            case Stage.WAITING:
                return None if self.ahead is None else waiting_text(self.notice, self.words, self.ahead)
            case Stage.LATER:
                return later_text(self.notice, self.words, ((self.job.due_at_ms or at_ms) - at_ms) / 1000)
            case Stage.WORKING:
                return working_text(self.notice, self.words, progress=self.progress, text=self.progress_text)
