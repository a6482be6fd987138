"""The message log as people read it: letters that are here and lines of those that are gone, in one list; and its copy in a
database with SQL, where the store has none.

Lines are written by the store when a letter goes. The copy follows the store and is never asked by Peik.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from peik.clock import Clock
from peik.core.events import Accepted, Event, Events, Settled, StoreFailed, Surprise
from peik.core.letter import Chat
from peik.errors import BadInput, StoreUnavailable, described
from peik.outbox.store import LetterFilter, LetterView, LoggedMessage, MessageLogTable, Store
from peik.wakeup import Wakeup

LOOKED_MAX = 10_000  # lines of letters that are gone, for one page
READ_AT_ONCE = 1000
Place = tuple[int, int]


class MessageLogPage(msgspec.Struct, frozen=True, kw_only=True):
    """The newest first. `cursor` None: the end was reached. `is_cut`: so many were looked at that the page ends before it is
    full."""

    messages: list[LoggedMessage]
    cursor: str | None
    is_cut: bool = False


class MessageLog:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(self, wanted: LetterFilter, *, cursor: str | None, limit: int) -> MessageLogPage:
        """Raises BadInput for a cursor that is none of ours."""
        before, below = _read(cursor)
        # Letters first: one that goes meanwhile is in both, and told once.
        page = await self._store.page(wanted, before=before, limit=limit)
        here = [logged_of(view) for view in page.letters]
        gone, looked_to = await self._gone(wanted, below, limit)
        floor = max(_end(here, page.cursor is not None), (0, 0) if looked_to is None else looked_to)
        every = {one.id: one for one in (*gone, *here)}
        told = sorted((one for one in every.values() if one.place >= floor), key=lambda one: one.place, reverse=True)
        told = told[:limit]
        shown = {one.id for one in told}
        is_whole = len(every) == len(shown)
        if is_whole and page.cursor is None and looked_to is None:
            return MessageLogPage(messages=told, cursor=None)
        before = min((one.id for one in here if one.id in shown), default=before)
        if page.cursor is not None and all(one.id in shown for one in here):
            before = page.cursor
        below = told[-1].place if told else below
        if looked_to is not None and all(one.id in shown for one in gone):
            below = looked_to if below is None else min(below, looked_to)
        return MessageLogPage(messages=told, cursor=_written(before, below), is_cut=len(told) < limit)

    async def _gone(
        self, wanted: LetterFilter, below: Place | None, limit: int
    ) -> tuple[list[LoggedMessage], Place | None]:
        """Lines of letters that are gone, and where the look ended if there may be more."""
        found: list[LoggedMessage] = []
        for _ in range(LOOKED_MAX // READ_AT_ONCE):
            lines = await self._store.logged(below=below, limit=READ_AT_ONCE)
            for line in lines:
                below = line.place
                if wanted.since_ms is not None and line.created_at_ms < wanted.since_ms:
                    return found, None
                if is_wanted(line, wanted):
                    found.append(line)
                    if len(found) == limit:
                        return found, below
            if len(lines) < READ_AT_ONCE:
                return found, None
        return found, below


def _end(here: list[LoggedMessage], has_more: bool) -> Place:
    """Down to where all letters are known."""
    if not has_more:
        return (0, 0)
    return min((one.place for one in here), default=(2**63, 0))


def logged_of(view: LetterView) -> LoggedMessage:
    return LoggedMessage(
        id=view.id,
        bot_id=view.bot_id,
        chat=view.chat,
        user_id=view.user_id,
        message_type=view.message_type,
        method=view.method,
        state=view.state,
        attempts_made=max(view.attempts_made, 0),
        error=view.failed_reason,
        message_id=_message_id(view.result),
        text=text_in(view.params),
        created_at_ms=view.created_at_ms,
        finished_at_ms=view.settled_at_ms if view.state.is_final else None,
        is_here=True,
    )


class _Said(msgspec.Struct):
    text: object = None
    caption: object = None


class _Sent(msgspec.Struct):
    message_id: int | None = None


_decode_said = msgspec.json.Decoder(_Said).decode
_decode_sent = msgspec.json.Decoder(_Sent | list[_Sent] | bool | None).decode


def text_in(params: str) -> str | None:
    """What a call says: its text, or its caption."""
    try:
        said = _decode_said(params)
    except (msgspec.DecodeError, RecursionError):
        return None
    found = said.text if said.text is not None else said.caption
    return found if isinstance(found, str) else None


def _message_id(result: str | None) -> int | None:
    """Of the first message, if there are several."""
    try:
        sent = None if result is None else _decode_sent(result)
    except (msgspec.DecodeError, RecursionError):
        return None
    first = (sent[0] if sent else None) if isinstance(sent, list) else sent
    return first.message_id if isinstance(first, _Sent) else None


def is_wanted(line: LoggedMessage, wanted: LetterFilter) -> bool:
    same: tuple[tuple[Chat | None, Chat | None], ...] = (
        (wanted.state, line.state),
        (wanted.bot_id, line.bot_id),
        (wanted.chat, line.chat),
        (wanted.user_id, line.user_id),
        (wanted.message_type, line.message_type),
        (wanted.method, line.method),
    )
    return (
        all(asked is None or asked == has for asked, has in same)
        and (wanted.bot_ids is None or line.bot_id in wanted.bot_ids)
        and (wanted.since_ms is None or line.created_at_ms >= wanted.since_ms)
        and (wanted.until_ms is None or line.created_at_ms <= wanted.until_ms)
        and (wanted.text is None or wanted.text.lower() in (line.text or "").lower())
        and (wanted.error is None or wanted.error.lower() in (line.error or "").lower())
    )


def _written(before: int | None, below: Place | None) -> str:
    return ".".join("" if one is None else str(one) for one in (before, *(below or (None, None))))


def _read(cursor: str | None) -> tuple[int | None, Place | None]:
    if cursor is None:
        return None, None
    parts = cursor.split(".")
    if len(parts) != 3 or not all(part.isascii() and (part.isdigit() or not part) and len(part) < 20 for part in parts):
        raise BadInput(code="bad_cursor", detail="cursor is the next_cursor of the page before.")
    before, at_ms, letter_id = (int(part) if part else None for part in parts)
    return before, None if at_ms is None or letter_id is None else (at_ms, letter_id)


# ---- the copy ----

COPIED_AT_ONCE = 500
CHANGED_MAX = 100_000  # more than that are found among those that had not ended
GATHER_S = 0.2  # more may come, for one commit
LOOK_S = 2.0  # what other nodes accepted is seen so soon
UNENDED_S = 60.0
CLEAN_S = 3600.0
RETRY_S = 5.0


class MessageLogCopy:
    """Writes each letter's line when it is accepted and when it ends. What a node that died has not written, the one with the
    chores finds: letters above the last that all have lines, and lines that say of no end."""

    def __init__(
        self,
        store: Store,
        table: MessageLogTable,
        *,
        is_chief: Callable[[], bool],
        keep_ms: int,
        clock: Clock,
        events: Events,
    ) -> None:
        self._store = store
        self._table = table
        self._log = MessageLog(store)
        self._is_chief = is_chief
        self._keep_ms = keep_ms
        self._clock = clock
        self._events = events
        self._bell = Wakeup()
        self._changed: set[int] = set()
        self._due = {"unended": 0.0, "clean": 0.0}
        self._is_failing = False
        events.listen(self._listen, Accepted, Settled)

    async def open(self) -> None:
        """Raises StartError."""
        await self._table.open()

    async def run(self) -> None:
        while True:
            await self._tried()
            loop = asyncio.get_running_loop()
            await self._bell.wait(until=loop.time() + (RETRY_S if self._is_failing else LOOK_S))
            await asyncio.sleep(GATHER_S)

    async def close(self) -> None:
        """With the ends of the last letters."""
        await self._tried()
        await self._table.close()

    async def _tried(self) -> None:
        try:
            await self.copy()
        except StoreUnavailable as error:
            self._fail(StoreFailed(what="the message log in its own database", why=error.detail))
        except Exception as error:  # noqa: BLE001  a copy must not end the node that sends
            self._fail(Surprise(where="the message log in its own database", error=described(error)))
        else:
            self._is_failing = False

    def _fail(self, event: Event) -> None:
        if not self._is_failing:
            self._events.tell(event)
        self._is_failing = True

    async def copy(self) -> None:
        """All that is to be written now."""
        if self._is_chief():
            await self._copy_new()
        await self._copy_changed()
        if self._is_chief() and self._is_due("unended", UNENDED_S):
            await self._copy_unended()
        if self._is_chief() and self._is_due("clean", CLEAN_S):
            await self._table.clean(before_ms=self._clock.wall_ms() - self._keep_ms)

    def _is_due(self, what: str, every_s: float) -> bool:
        if self._clock.mono() < self._due[what]:
            return False
        self._due[what] = self._clock.mono() + every_s
        return True

    async def _copy_new(self) -> None:
        """From the newest down to what is there. Only then the newest counts: who dies in the middle begins again."""
        newest, had, cursor = 0, await self._table.copied_to(), None
        looked = await self._store.page(LetterFilter(), before=None, limit=1)
        if had and (not looked.letters or looked.letters[0].id <= had):
            return
        while True:
            seen_ms = self._clock.wall_ms()
            page = await self._log.page(LetterFilter(), cursor=cursor, limit=COPIED_AT_ONCE)
            new = [one for one in page.messages if one.id > had]
            await self._table.put(new, seen_ms=seen_ms)
            newest, cursor = max([newest, *(one.id for one in new)]), page.cursor
            if cursor is None or (page.messages and not new):
                break
        if newest > had:
            await self._table.save_copied_to(newest)

    async def _copy_changed(self) -> None:
        while self._changed:
            ids = sorted(self._changed)[:COPIED_AT_ONCE]
            seen_ms = self._clock.wall_ms()
            await self._table.put([logged_of(one) for one in await self._store.letters(ids)], seen_ms=seen_ms)
            self._changed.difference_update(ids)  # after the commit: else they would be forgotten by a failure

    async def _copy_unended(self) -> None:
        after = 0
        while places := await self._table.unended(after=after, limit=COPIED_AT_ONCE):
            after = places[-1][1]
            seen_ms = self._clock.wall_ms()
            here = [logged_of(one) for one in await self._store.letters([letter_id for _, letter_id in places])]
            known = {one.id for one in here}
            for at_ms, letter_id in places:
                if letter_id not in known:  # gone since: its line says how it ended
                    here += [
                        one
                        for one in await self._store.logged(below=(at_ms, letter_id + 1), limit=1)
                        if one.id == letter_id
                    ]
            await self._table.put(here, seen_ms=seen_ms)

    def _listen(self, told: Sequence[Event]) -> None:
        for event in told:
            if isinstance(event, Settled) and len(self._changed) < CHANGED_MAX:
                self._changed.add(event.letter_id)
        self._bell.ring()
