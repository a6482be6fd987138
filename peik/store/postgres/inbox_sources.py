"""What sources and their watchers ask of the PostgreSQL store: where an inbox stands, outages, what MTProto clients saw."""

from collections.abc import Sequence

from peik.core.arrival import DEFAULT_CONSUMER
from peik.core.spans import spans_of
from peik.inbox_ports import InboxState, Outage
from peik.store.inbox_rows import outage_from_row, state_from_row
from peik.store.postgres import inbox_consumers
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session

_SQL = load("inbox.sql")


async def state(session: Session, bot_id: int) -> InboxState | None:
    row = await session.row(_SQL["inbox"], bot=bot_id)
    return None if row is None else state_from_row(tuple(row))


async def open_inbox(session: Session, bot_id: int, server: str, at_ms: int) -> tuple[InboxState, InboxState]:
    await inbox_consumers.check_bot(session, bot_id)
    await session.rows(_SQL["lock_inboxes"], bots=[bot_id])
    before = await state(session, bot_id) or InboxState(bot_id=bot_id)
    await session.run(_SQL["open_inbox"], bot=bot_id, server=server, at=at_ms)
    await inbox_consumers.ensure(session, bot_id, DEFAULT_CONSUMER, at_ms)
    now = await state(session, bot_id)
    assert now is not None
    return before, now


async def note_seen(session: Session, bot_id: int, at_ms: int) -> None:
    await session.run(_SQL["note_seen"], bot=bot_id, at=at_ms)


async def open_outage(session: Session, bot_id: int, *, began_at_ms: int, ended_at_ms: int, last: int) -> Outage:
    ((outage_id,),) = await session.returned(
        _SQL["open_outage"], bot=bot_id, began_at=began_at_ms, ended_at=ended_at_ms, last=last
    )
    await session.run(_SQL["forget_outages"], bot=bot_id)
    return Outage(id=outage_id, bot_id=bot_id, began_at_ms=began_at_ms, ended_at_ms=ended_at_ms, last_number=last)


async def outages(session: Session, bot_id: int, *, is_open: bool) -> list[Outage]:
    rows = await session.rows(_SQL["open_outages" if is_open else "outages"], bot=bot_id)
    return [outage_from_row(tuple(row)) for row in rows]


async def settle_outage(session: Session, outage_id: int, at_ms: int) -> None:
    await session.run(_SQL["settle_outage"], outage=outage_id, at=at_ms)


async def note_handled(session: Session, bot_id: int, messages: Sequence[tuple[int, int]], at_ms: int) -> int:
    """How many of these messages were here and open. Under the inbox's lock: what comes in meanwhile finds the note."""
    noted = list(dict.fromkeys(messages))
    if not noted:
        return 0
    await session.rows(_SQL["lock_inboxes"], bots=[bot_id])
    chats, ids = zip(*noted, strict=True)
    await session.run(_SQL["note_handled"], bot=bot_id, chats=chats, messages=ids, at=at_ms)
    default = await inbox_consumers.consumer(session, bot_id, DEFAULT_CONSUMER)
    if default is None:
        return 0
    first = await session.number(_SQL["first_open"], bot=bot_id, watermark=default.progress.watermark)
    if not first:
        return 0
    found = await session.rows(_SQL["handled_here"], bot=bot_id, chats=chats, messages=ids, at=at_ms, first=first)
    open_ones = [number for (number,) in found if not default.progress.is_over(number)]
    await inbox_consumers.settle(session, default.id, over=spans_of(open_ones), deferred=(), dead=(), at_ms=at_ms)
    return len(open_ones)
