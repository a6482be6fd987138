"""Letters on their way into a SQLite file: one caller's drafts in the next commit, and who hears of them after it."""

import asyncio
from collections.abc import Callable, Sequence

from peik.core.letter import Draft
from peik.ports import Accepted, Express
from peik.store.commit import Batch, Slot
from peik.store.database import translate
from peik.store.executor import Ended
from peik.store.listened import answer, fail

Stored = tuple[list[Slot | Accepted], Batch]


class Accepting:
    """An operation of the writer. `answered` is given what became of the drafts, once they are durable."""

    __slots__ = ("_at_ms", "_drafts", "_express", "_stored", "_tell", "answered", "weight")

    def __init__(
        self,
        drafts: Sequence[Draft],
        at_ms: int,
        express: Express | None,
        tell: Callable[[Batch, Sequence[Slot]], None],
    ) -> None:
        """`tell` hears of each commit, and of the letters in it that go to their lanes."""
        self._drafts = drafts
        self._at_ms = at_ms
        self._express = express
        self._tell = tell
        self.weight = len(drafts)
        self.answered: asyncio.Future[list[Accepted]] = asyncio.get_running_loop().create_future()

    def prepare(self, batch: Batch) -> Callable[[], Stored]:
        epoch = 0 if self._express is None else self._express.epoch
        self._stored = (batch.add_drafts(self._drafts, self._at_ms, epoch=epoch), batch)
        return self._read

    def _read(self) -> Stored:
        return self._stored

    def done(self, ended: Ended[Stored]) -> None:
        if ended.error is not None:
            fail(self.answered, translate(ended.error))
            if self._express is not None:
                self._express.failed()
            return
        answers, batch = ended.value()
        answer(self.answered, [one.accepted if isinstance(one, Slot) else one for one in answers])
        told: Sequence[Slot] = ()
        if self._express is None:
            told = _untold(answers)
        else:
            (slot,) = [one for one in answers if isinstance(one, Slot)]
            self._express.stored(slot.letter, is_marked=batch.has_marked(slot))
        self._tell(batch, told)


def _untold(answers: list[Slot | Accepted]) -> Sequence[Slot]:
    """The letters of the commit that nobody was told of, up to the next express: these, and those of callers after this one."""
    for one in answers:
        if isinstance(one, Slot) and one.run:
            run = one.run[:]
            one.run.clear()
            return run
    return ()
