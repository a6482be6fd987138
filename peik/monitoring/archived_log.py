"""Peik's log, kept in the archive as well: a second log of the same events, whose lines are written in batches.

Anyone who logs is never held up and never failed: what cannot be kept is dropped, counted and told of later.
"""

import asyncio
import contextlib
import logging
from collections import deque

import msgspec
import structlog

from peik.accounts.events import LogDropped
from peik.archive.store import Archive, LogLine
from peik.clock import Clock
from peik.core.events import Events, StoreFailed, Surprise
from peik.core.token import without_secrets
from peik.errors import StoreUnavailable, described
from peik.monitoring.log import EventLog
from peik.wakeup import Wakeup

QUEUE_MAX = 10_000
BATCH_LINES = 500
BATCH_S = 1.0
RETRY_S = 5.0
LAST_S = 5.0  # for the last lines, when Peik ends
VALUE_CHARS_MAX = 2000


class ArchivedLog:
    """The port `Chore`. It listens from the moment it is made; `run` writes."""

    def __init__(self, *, archive: Archive, node: str, level: str, clock: Clock, events: Events) -> None:
        self._archive = archive
        self._node = node
        self._clock = clock
        self._events = events
        self._bell = Wakeup()
        self._lines: deque[LogLine] = deque()
        self._dropped = 0
        self._is_failing = False
        log: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
            None,
            processors=[structlog.processors.add_log_level, self._keep],
            wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        )
        events.listen(EventLog(level=level, log=log, clock=clock))

    async def run(self) -> None:
        try:
            while True:
                await self._bell.wait()
                await asyncio.sleep(BATCH_S)  # more may come, for one commit
                if not await self._write():
                    await asyncio.sleep(RETRY_S)
                    self._bell.ring()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._write()

    # ---- from anyone who logs ----

    def _keep(self, logger: object, method: str, said: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """As the last processor: nothing is shown by this log."""
        if len(self._lines) >= QUEUE_MAX:
            self._dropped += 1
            raise structlog.DropEvent
        fields = {name: _plain(value) for name, value in said.items()}
        level, event = str(fields.pop("level", method)), str(fields.pop("event", ""))
        session_id, bot_id = fields.pop("session", None), fields.pop("bot", None)
        self._lines.append(
            LogLine(
                at_ms=self._clock.wall_ms(),
                level=level,
                event=event,
                node=self._node,
                session_id=None if session_id is None else str(session_id),
                bot_id=bot_id if isinstance(bot_id, int) and bot_id else None,
                fields=msgspec.json.encode(fields).decode(),
            )
        )
        self._bell.ring()
        raise structlog.DropEvent

    # ---- to the archive ----

    async def _write(self) -> bool:
        """All that waits; whether it was kept. What is told here is a line of the next batch, and is told once until it
        works again: the log of the log has an end."""
        while self._lines:
            batch = [self._lines[index] for index in range(min(len(self._lines), BATCH_LINES))]
            try:
                await self._archive.keep_logs(batch)
            except StoreUnavailable as error:
                self._fail(StoreFailed(what="the log in the archive", why=error.detail))
                return False
            except Exception as error:  # noqa: BLE001  lines that no archive takes must not stop those behind them
                self._dropped += len(batch)
                self._fail(Surprise(where="the log in the archive", error=described(error)))
            else:
                self._is_failing = False
            for _ in batch:
                self._lines.popleft()
        if self._dropped and not self._is_failing:
            dropped, self._dropped = self._dropped, 0
            self._events.tell(LogDropped(count=dropped))
        return True

    def _fail(self, told: StoreFailed | Surprise) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._events.tell(told)


def _plain(value: object) -> int | float | str | None:
    """What JSON and every database can hold, of a bounded length, without a secret."""
    if value is None or isinstance(value, int | float):
        return value
    text = without_secrets(str(value))  # events hold none by themselves; the words of a foreign error might
    return text[:VALUE_CHARS_MAX].encode("utf-8", "replace").decode()
