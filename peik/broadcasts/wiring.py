"""How broadcasts are put together: what they need of the outbox comes in as a small port."""

from collections.abc import Sequence

import msgspec

from peik.app.context import Context
from peik.broadcasts.engine import Broadcaster
from peik.broadcasts.model import OutgoingBroadcast
from peik.broadcasts.service import BroadcastService
from peik.core.letter import Chat, LetterCall
from peik.core.nodes import CHORES
from peik.core.pace import PaceLimits
from peik.outbox.service import OutboxService
from peik.outbox.store import LetterFilter, LetterView
from peik.outbox.wiring import Outbox
from peik.storage.open import AnyStore


class Broadcasts(msgspec.Struct, frozen=True, kw_only=True):
    service: BroadcastService
    engine: Broadcaster


def broadcasts_of(context: Context, outbox: Outbox) -> Broadcasts:
    config, clock, events, store = context.config, context.clock, context.events, context.store
    letters = BroadcastLetters(outbox.service, store, is_paced=config.pace)
    broadcaster = Broadcaster(
        documents=store.documents,
        contacts=store.contacts,
        letters=letters,
        clock=clock,
        settled=context.settled,
        events=events,
        chance=context.chance,
        is_ours=lambda: outbox.leases.is_live(CHORES),
        keep_ms=int(config.keep_log * 1000),
        is_shared=store.nodes.lease_s is not None,
    )
    service = BroadcastService(
        documents=store.documents,
        contacts=store.contacts,
        letters=letters,
        clock=clock,
        events=events,
        chance=context.chance,
        look=broadcaster.look,
    )
    return Broadcasts(service=service, engine=broadcaster)


class BroadcastLetters:
    """The port `BroadcastLettersPort`, through the outbox."""

    def __init__(self, service: OutboxService, store: AnyStore, *, is_paced: bool) -> None:
        self._service = service
        self._store = store
        self._is_paced = is_paced

    async def accept(self, bot_id: int, letters: Sequence[OutgoingBroadcast]) -> list[int]:
        if self._service.known(bot_id) is None:  # another node may have added it a moment ago
            self._service.take_up(await self._store.bots())
        self._service.bot(bot_id)
        return [one.letter_id for one in await self._service.accept([_call(bot_id, letter) for letter in letters])]

    async def those(self, letter_ids: Sequence[int]) -> dict[int, LetterView]:
        return {view.id: view for view in await self._service.letters(letter_ids)}

    async def labelled(self, bot_id: int, label: str, *, limit: int) -> list[LetterView]:
        wanted = LetterFilter(bot_id=bot_id, message_type=label)
        return await self._service.find(wanted, before=None, limit=limit)

    async def cancel(self, letter_id: int) -> LetterView:
        return await self._service.cancel(letter_id)

    async def shut_chats(self, bot_id: int) -> set[Chat]:
        return {chat.chat for chat in await self._store.chats(bot_id) if chat.shut_at_ms is not None}

    def bot_id(self, asked: int | None) -> int:
        return self._service.bot(asked).bot_id

    def per_s(self, bot_id: int) -> float | None:
        bot = self._service.known(bot_id)
        limits = PaceLimits() if bot is None else bot.limits or bot.usual_limits
        return limits.bulk_per_s if self._is_paced and limits.is_on else None


def _call(bot_id: int, letter: OutgoingBroadcast) -> LetterCall:
    metadata: dict[str, object] = {}
    if letter.label is not None:
        metadata = {"message_type": letter.label, "user_id": str(letter.number), "round": letter.round}
    return LetterCall(
        bot_id=bot_id,
        method=letter.method,
        params=letter.params,
        priority=letter.priority,
        idempotency_key=letter.key,
        send_at_ms=letter.send_at_ms,
        metadata=msgspec.json.encode(metadata) if metadata else None,
        on_uncertain=letter.on_uncertain,
    )
