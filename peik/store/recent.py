"""What the last minute's sends were, for senders that begin: asked of the SQLite store by a thousand of them at once.

Finding one bot's means to look through everybody's. So whoever has asked by the time of a reading is answered by it, and what an
answer tells is never older than its question.
"""

from collections import defaultdict, deque
from collections.abc import Sequence

import apsw
import msgspec

from peik.ports import Sent
from peik.store.statements import load

_SQL = load("sqlite.sql")


class Question:
    """One bot's; `tries` once it is answered."""

    __slots__ = ("bot_id", "since_ms", "tries")

    def __init__(self, bot_id: int, since_ms: int) -> None:
        self.bot_id = bot_id
        self.since_ms = since_ms
        self.tries: list[Sent] | None = None


class RecentTries:
    """The questions that wait. They are put in by the event loop and taken out by the reader's thread."""

    def __init__(self) -> None:
        self._waiting: deque[Question] = deque()

    def ask(self, bot_id: int, since_ms: int) -> Question:
        question = Question(bot_id, since_ms)
        self._waiting.append(question)
        return question

    def answer(self, connection: apsw.Connection, question: Question) -> list[Sent]:
        """On the reader's thread. A reading that failed is made again for each who was to be answered by it."""
        if question.tries is None:
            together = {question}
            while self._waiting:  # nobody else takes from it
                together.add(self._waiting.popleft())
            _read(connection, list(together))
        assert question.tries is not None
        return question.tries


def _read(connection: apsw.Connection, questions: Sequence[Question]) -> None:
    bound = {
        "bots": msgspec.json.encode([one.bot_id for one in questions]).decode(),
        "since": min(one.since_ms for one in questions),
    }
    found: defaultdict[int, list[Sent]] = defaultdict(list)
    for bot_id, chat, weight, at_ms in connection.execute(_SQL["recent_tries"], bound):
        found[bot_id].append(Sent(chat=chat, weight=weight, at_ms=at_ms))
    for one in questions:
        one.tries = [sent for sent in found[one.bot_id] if sent.at_ms >= one.since_ms]
