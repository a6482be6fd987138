"""What was asked of Peik, and what became of it at Telegram. Every letter's text begins with its name, so that it is known."""

import contextvars
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec

from peik.core.arrival import Update, read_update
from peik.testing.updates import UpdateEvent

NAME = re.compile(r"L\d+")


class Promise(msgspec.Struct, kw_only=True):
    """One letter as its sender and Telegram know it."""

    name: str
    bot_id: int
    chat: int
    thread: int = 0
    priority: int | None = 0  # None: the gateway judges it, and whatever it says they keep their order among each other
    method: str = "sendMessage"
    target: "Promise | None" = None  # the letter whose message it changes
    answers: int | None = None  # the message that a bot's program answers with it
    is_at_most_once: bool = False
    is_hooked: bool = False  # somebody wants to hear how it ended
    key: str | None = None
    send_at_ms: int | None = None
    expires_at_ms: int | None = None

    asked_at: int = 0  # instants are steps of the world: what is before what
    acked_at: int | None = None
    letter_id: int | None = None
    is_retried: bool = False  # a person sent it again, or took it back: it has left its place in the order

    tries: int = 0  # requests that left a process
    unheard: int = 0  # tries of whose end no process has heard
    doubts: int = 0  # tries that ended without a verdict, as far as the process could know
    refusals: int = 0
    last_status: int | None = None
    not_before: float = 0.0  # after a try that ended in doubt it waits
    heard: int = 0  # how often that was told
    deliveries: list[int] = msgspec.field(default_factory=list)  # the steps at which it took effect

    @property
    def lane(self) -> tuple[int, int, int, int | None]:
        return (self.bot_id, self.chat, self.thread, self.priority)

    @property
    def keeps_order(self) -> bool:
        """Not one that was scheduled, or waits for the letter that it refers to, or was sent again: they have another place."""
        return self.send_at_ms is None and self.target is None and not self.is_retried


class Promises:
    def __init__(self) -> None:
        self.by_name: dict[str, Promise] = {}
        self.by_lane: dict[tuple[int, int, int, int | None], list[Promise]] = {}

    def add(self, promise: Promise) -> None:
        self.by_name[promise.name] = promise
        self.by_lane.setdefault(promise.lane, []).append(promise)

    def __iter__(self) -> Iterator[Promise]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def of_text(self, text: str) -> Promise | None:
        found = NAME.match(text)
        return None if found is None else self.by_name.get(found[0])


# Looks into the store's file from outside, with a connection of its own, and sees what is committed at this very
# moment.


SCHEMA = 4  # the version at which all tables are there


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A letter as the store has it. `phase`: 0 in its lane, 1 apart, 2 completed, 3 failed, 4 cancelled."""

    id: int
    phase: int
    is_marked: bool
    epoch: int | None = None  # under which it is marked
    uncertain_tries: int
    attempts_made: int
    failed_reason: str | None
    merged_into: int | None = None
    text: str


_LETTERS = """
SELECT l.id, l.phase, m.letter_id IS NOT NULL, l.uncertain_tries, l.attempts_made, l.failed_reason, l.params, l.merged_into,
    m.epoch
FROM letters AS l LEFT JOIN marks AS m ON m.letter_id = l.id
"""


_HOLDS = """
SELECT bot_id, chat, held_until FROM chats WHERE held_until IS NOT NULL
UNION ALL SELECT bot_id, NULL, held_until FROM bot_holds
"""


class Witness:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None

    def close(self) -> None:
        """Before the power is cut: a file that is open keeps its place in memory."""
        if self._connection is not None:
            self._connection.close(True)  # noqa: FBT003
            self._connection = None

    def look(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Nobody's look: what is opened for it belongs to no process, whoever's code is just running."""
        return contextvars.Context().run(self._look, sql, values)

    def _look(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if self._connection is None:
            if not self._path.exists():
                return []
            # By the same SQLite as Peik's: two of them in one process do not see each other's locks. For reading only: one
            # that may write would put the log into the file when it is closed, and leave a power cut nothing to lose.
            self._connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            if self._connection.execute("PRAGMA user_version").get < SCHEMA:
                return []  # a process died before it had made all tables, so nothing can have been promised
            return list(self._connection.execute(sql, values))
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            return []  # it died in the very first commit, and the next who writes undoes that

    def letter(self, letter_id: int) -> Row | None:
        rows = self._letters("WHERE l.id = ?", letter_id)
        return rows[0] if rows else None

    def named(self, bot_id: int, chat: int, name: str) -> Row | None:
        """The letter whose text begins with this name."""
        found = self._letters("WHERE l.bot_id = ? AND l.params LIKE ?", bot_id, f'%"{name} %')
        return found[-1] if found else None

    def letters(self) -> list[Row]:
        return self._letters("")

    def _letters(self, where: str, *values: Any) -> list[Row]:
        return [
            Row(
                id=row[0],
                phase=row[1],
                is_marked=bool(row[2]),
                uncertain_tries=row[3],
                attempts_made=row[4],
                failed_reason=row[5],
                merged_into=row[7],
                epoch=row[8],
                text=_text_of(row[6]),
            )
            for row in self.look(f"{_LETTERS} {where} ORDER BY l.id", *values)
        ]

    def known_ids(self) -> set[int]:
        return {row[0] for row in self.look("SELECT id FROM letters")}

    def holds(self) -> list[tuple[int, int | str | None, int]]:
        """(bot, chat, until when by the wall clock); None as chat: the whole bot."""
        return [(row[0], row[1], row[2]) for row in self.look(_HOLDS)]

    def held_until(self, bot_id: int, chat: object) -> int:
        """By the wall clock, in ms; None as chat: the whole bot. 0: never."""
        if chat is None:
            rows = self.look("SELECT held_until FROM bot_holds WHERE bot_id = ?", bot_id)
        else:
            rows = self.look("SELECT held_until FROM chats WHERE bot_id = ? AND chat = ?", bot_id, chat)
        return int(rows[0][0] or 0) if rows else 0

    def numbers_of(self, bot_id: int, update: Update) -> list[int]:
        """Under which numbers an update is stored; replays do not count."""
        sql = "SELECT number FROM arrivals WHERE bot_id = ? AND lane = ? AND digest = ? AND replay_of IS NULL"
        return [row[0] for row in self.look(sql, bot_id, update.lane, update.digest)]

    def has(self, bot_id: int, event: UpdateEvent) -> bool:
        return bool(self.numbers_of(bot_id, read_update(event.body)))


def _text_of(params: str) -> str:
    decoded = msgspec.json.decode(params)
    return str(decoded.get("text") or decoded.get("caption") or "")
