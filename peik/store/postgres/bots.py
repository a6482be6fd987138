"""Bots and their chats in the next commit: saved, removed, shut, held, moved."""

import msgspec

from peik.core.letter import Chat
from peik.errors import Conflict
from peik.ports import BotRecord
from peik.seals import Seals, place_of_bot
from peik.store.postgres import chats, contacts, inbox_upkeep
from peik.store.postgres.commit import Batch
from peik.store.postgres.queries import load

_SQL = load("letters.sql")


async def save(batch: Batch, record: BotRecord, seals: Seals) -> None:
    limits = None if record.limits is None else msgspec.json.encode(record.limits).decode()
    row = (
        record.bot_id,
        seals.seal(record.token.reveal(), place=place_of_bot(record.bot_id)),
        record.username,
        record.inbound,
        record.paused,
        limits,
        record.missed,
        record.me,
        record.created_at_ms,
    )
    await batch.session.run(_SQL["save_bot"], *row)
    await batch.session.run(_SQL["save_tally"], bot=record.bot_id)
    batch.telling.records()


async def remove(batch: Batch, bot_id: int) -> None:
    """Raises Conflict while letters wait."""
    waiting = await batch.session.number(_SQL["waiting_of_bot"], bot=bot_id)
    if waiting:
        raise Conflict(
            code="letters_waiting",
            detail=f"Bot {bot_id} still has {waiting} letters to send. Let them go out, or cancel them first.",
        )
    await batch.session.run(_SQL["remove_bot"], bot=bot_id)
    await inbox_upkeep.forget_bot(batch.session, bot_id)
    await contacts.forget_bot(batch.session, bot_id)
    batch.telling.records()
    batch.telling.consumers()


async def readdress(batch: Batch, bot_id: int, old: Chat, new: int) -> None:
    for name in ("keep_alias", "flatten_aliases", "readdress"):
        await batch.session.run(_SQL[name], bot=bot_id, old=chats.encode(old), new=new)
    batch.telling.chats(bot_id)
    batch.telling.lanes(bot_id)


async def shut_chat(batch: Batch, bot_id: int, chat: Chat, reason: str | None, *, at_ms: int) -> None:
    """`reason` None: it is open again."""
    shut_at = None if reason is None else at_ms
    await batch.session.run(
        _SQL["shut_chat"], bot=bot_id, chat=chats.encode(chat), reason=chats.clean(reason), at=shut_at
    )
    batch.telling.chats(bot_id)


async def hold(batch: Batch, bot_id: int, chat: Chat | None, until_ms: int) -> None:
    """`chat` None: the whole bot."""
    if chat is None:
        await batch.session.run(_SQL["hold_bot"], bot=bot_id, until=until_ms)
    else:
        await batch.session.run(_SQL["hold_chat"], bot=bot_id, chat=chats.encode(chat), until=until_ms)
    batch.telling.chats(bot_id)
