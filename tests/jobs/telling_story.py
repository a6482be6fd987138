"""Jobs that tell people how they go: a whole Peik with kinds of jobs, a simulated Telegram, and virtual time."""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from peik.app.lifetime import running
from peik.core import events
from peik.core.letter import State
from peik.inbox.texts import load_texts
from peik.jobs.model import JobRecord as Record
from peik.jobs.model import JobRequest
from peik.jobs.status_message import StatusMessages
from peik.jobs.store import JobKind, JobKinds, KindTerms
from peik.jobs.wiring import JobLetters
from peik.outbox.store import LetterFilter, LetterView
from peik.storage.executor import InlineExecutor
from peik.testing import Delivery, Options, Telegram
from peik.testing.virtual import SimCarrier, VirtualClock, run_virtual
from tests.outbox.story import BOT, TOKEN, Stage

ANN = 501
TEXTS = load_texts(None)


class JobStage(Stage):
    """A stage whose Peik does jobs."""

    def __init__(self, clock: VirtualClock, folder: Path, telegram: Telegram, settings: dict[str, str]) -> None:
        super().__init__(clock, folder, telegram, settings)
        self.kinds = JobKinds()

    def kind(
        self, name: str, work: Callable[..., Any], *, concurrency: int = 4, per_user: int = 9, **terms: Any
    ) -> None:
        terms_of_kind = KindTerms(concurrency=concurrency, per_user=per_user)
        self.kinds.add(JobKind(name=name, work=work, terms=terms_of_kind, **terms))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        told = events.Events()
        told.listen(self.told.extend)
        self.carrier = SimCarrier(self.telegram)
        async with running(
            self.config(),
            events=told,
            clock=self.clock,
            carrier=self.carrier,
            chance=random.Random(1),
            executor=lambda name: InlineExecutor(),
            is_alone=True,
            job_kinds=self.kinds,
        ) as self.peik:
            await asyncio.sleep(0.5)  # what is found at its start is found by now
            yield

    async def queue(self, kind: str = "work", *, notice: Mapping[str, Any] | None = None, **terms: Any) -> int:
        """A job that is told of in Ann's chat, unless the notice says otherwise."""
        whole = {"bot_id": BOT, "chat_id": ANN, **(notice or {})}
        (queued,) = await self.peik.jobs.service.queue([JobRequest(kind=kind, notice=whole, **terms)])
        return queued.job_id

    async def done(self, job_id: int) -> Record:
        """The job once it has ended and all letters are out."""
        job = await self.peik.jobs.service.wait(job_id, 86_400.0)
        assert job.state.is_final, job.state
        await asyncio.sleep(10.0)
        await self.quiet()
        return job

    def said(self, chat_id: int = ANN) -> list[Delivery]:
        """Messages and edits of them, in the order of time."""
        both = [*self.telegram.sent.of_chat(chat_id), *self.telegram.applied.of_chat(chat_id)]
        return sorted(both, key=lambda one: one.at)

    def edits(self, chat_id: int = ANN) -> list[Delivery]:
        return self.telegram.applied.where(chat_id=chat_id, method="editMessageText")

    def sends(self, chat_id: int = ANN) -> list[str]:
        return self.telegram.sent.texts(chat_id)

    def now(self, chat_id: int = ANN) -> str | None:
        """What the first message of the chat shows now; None: it was deleted."""
        first = self.telegram.sent.of_chat(chat_id)[0]
        message = self.telegram.message(BOT, chat_id, first.message_id)
        return None if message is None else str(message["text"])

    async def letters(self) -> list[LetterView]:
        return await self.peik.outbox.service.find(LetterFilter(), before=None, limit=1000)

    async def dead(self) -> list[LetterView]:
        return [one for one in await self.letters() if one.state is State.FAILED]

    # ---- a teller that somebody else works for ----

    def service_letters(self) -> JobLetters:
        return JobLetters(self.peik.outbox.service, self.peik.spool, size_bytes_max=10_000_000)

    @asynccontextmanager
    async def teller(self, letters: Any = None, **terms: Any) -> AsyncIterator[StatusMessages]:
        """One more life that tells, on the same store; what it does in the end is nothing."""
        telling = StatusMessages(
            store=self.peik.store.jobs,
            letters=letters or self.service_letters(),
            kinds=self.kinds,
            texts=TEXTS,
            clock=self.clock,
            events=self.peik.events,
            **terms,
        )
        async with asyncio.TaskGroup() as group:
            telling.start(group)
            try:
                yield telling
            finally:
                await telling.stop(0.0)


def play(
    story: Callable[[JobStage], Coroutine[Any, Any, None]], *, options: Options | None = None, **settings: str
) -> None:
    """Peik is still closed: the story adds kinds, and opens it."""

    async def main(clock: VirtualClock) -> None:
        with tempfile.TemporaryDirectory(prefix="peik-jobs-") as folder:
            telegram = Telegram(now=clock.wall_s, chance=random.Random(7), options=options)
            telegram.bot(TOKEN)
            await story(JobStage(clock, Path(folder), telegram, settings))

    run_virtual(main)
