"""The message log as people read it: letters that are here and lines of those that are gone, in one list.

It only reads. What it holds is written by the store when a letter goes.
"""

import msgspec

from peik.core.letter import Chat
from peik.errors import BadInput
from peik.outbox.store import LetterFilter, LetterView, LoggedMessage, Store

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
