"""The store on a PostgreSQL server: many nodes accept, one writer with group commit in each, and each bot is one node's."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from peik.core.key import Key
from peik.core.letter import Chat, Draft, LaneKey, Letter
from peik.core.lifecycle import Settlement
from peik.hook_ports import Hook, HookContent, HookDeferred, HooksDue
from peik.ports import (
    Accepted,
    BotRecord,
    Cause,
    ChatRecord,
    Counted,
    Express,
    Found,
    LaneView,
    LetterFilter,
    LetterPage,
    LetterView,
    Marked,
    Retention,
    Sent,
    Stub,
    Sweep,
    Tally,
)
from peik.postgres_failures import translate
from peik.seals import place_of_key, place_of_secret
from peik.store import paging
from peik.store.commit import Slot
from peik.store.executor import Ended
from peik.store.listened import LANE_COUNTED_MAX, answer, fail
from peik.store.postgres import bots, changing, hooks, keys, looking, people, reading, upkeep
from peik.store.postgres.commit import Batch
from peik.store.postgres.opened import OpenedStore
from peik.store.postgres.queries import load
from peik.store.postgres.session import Session
from peik.store.postgres.writer import Operation

T = TypeVar("T")
_SQL = load("letters.sql")


class PostgresStore(OpenedStore):
    """See `peik.ports.Store`."""

    marks_at_once = False

    # ---- letters in ----

    async def accept(self, drafts: Sequence[Draft], *, at_ms: int, express: Express | None = None) -> list[Accepted]:
        assert express is None, "a commit whose answer is lost may be made"
        future: asyncio.Future[list[Accepted]] = asyncio.get_running_loop().create_future()

        async def prepare(batch: Batch) -> Callable[[], tuple[list[Slot | Accepted], list[Slot], Batch]]:
            answers = await batch.add_drafts(drafts, at_ms)
            together = batch.slots
            return lambda: (answers, together, batch)

        def done(ended: Ended[tuple[list[Slot | Accepted], list[Slot], Batch]]) -> None:
            if ended.error is not None:
                fail(future, translate(ended.error))
                return
            answers, together, batch = ended.value()
            answer(future, [one.accepted if isinstance(one, Slot) else one for one in answers])
            # Most letters come one by one, and each telling has its price: who is first tells of all that were written with it.
            fresh = together.copy()
            together.clear()
            self._offer(fresh)
            self._tell(batch)

        keyed = [(one.bot_id, one.idempotency_key) for one in drafts if one.idempotency_key is not None]
        bots = {one.bot_id for one in drafts}
        self._writer.submit(Operation(prepare, done, weight=len(drafts), tallies=bots, keys=keyed))
        return await future

    # ---- the sender's ----

    def advance(
        self,
        settlements: Sequence[Settlement],
        marks: Sequence[Letter],
        *,
        epoch: int,
        at_ms: int,
        done: Callable[[Marked], None],
    ) -> None:
        async def prepare(batch: Batch) -> Callable[[], Batch]:
            batch.add_step(settlements, marks, epoch=epoch, at_ms=at_ms)
            return lambda: batch

        def finish(ended: Ended[Batch]) -> None:
            if ended.error is not None:
                done(Marked(error=translate(ended.error)))
                return
            batch = ended.value()
            self._tell(batch)
            done(Marked(taken=batch.marks_taken))

        bots = {one.bot_id for one in settlements} | {one.bot_id for one in marks}
        self._writer.submit(Operation(prepare, finish, weight=len(settlements) + len(marks), tallies=bots))

    async def left_in_flight(self, bot_id: int, *, epoch: int) -> list[Letter]:
        return await self._write(lambda batch: reading.adopt_marks(batch.session, bot_id, epoch), tallies=[bot_id])

    async def sweep(self, bot_id: int, rank: int, after: LaneKey | None, *, lanes: int, letters: int) -> Sweep:
        return await self._read(lambda one: reading.sweep(one, bot_id, rank, after, lanes=lanes, letters=letters))

    async def fronts(self, bot_id: int, keys: Sequence[LaneKey], *, letters: int) -> dict[LaneKey, Found]:
        return await self._read(lambda one: reading.fronts(one, bot_id, keys, letters=letters))

    async def recent_tries(self, bot_id: int, *, since_ms: int) -> list[Sent]:
        return await self._read(lambda one: reading.recent_tries(one, bot_id, since_ms))

    async def park(self, letter: Letter) -> None:
        await self._write(lambda batch: upkeep.park(batch, letter), tallies=[letter.bot_id])

    async def readdress(self, bot_id: int, old: Chat, new: int) -> None:
        await self._write(lambda batch: bots.readdress(batch, bot_id, old, new), tallies=[bot_id])

    async def file_id(self, bot_id: int, digest: str, kind: str) -> str | None:
        return await self._read(lambda one: one.text(_SQL["file_id"], bot=bot_id, digest=digest, kind=kind))

    async def keep_file_id(self, bot_id: int, digest: str, kind: str, file_id: str | None, *, at_ms: int) -> None:
        name = "forget_file_id" if file_id is None else "keep_file_id"
        bound = {"bot": bot_id, "digest": digest, "kind": kind, "file_id": file_id, "at": at_ms}
        await self._write(lambda batch: batch.session.run(_SQL[name], **bound))

    # ---- time's ----

    async def join_due(self, *, at_ms: int, limit: int) -> tuple[int, int | None]:
        def tell(answer: tuple[list[Letter], int | None]) -> None:
            if answer[0] and self._listener is not None:
                self._listener.on_accepted(answer[0])

        joined, next_at = await self._write(lambda batch: upkeep.join_due(batch, at_ms, limit), tell)
        return len(joined), next_at

    async def expire(self, *, at_ms: int, limit: int) -> tuple[list[LetterView], int | None]:
        def tell(answer: tuple[list[LetterView], int | None]) -> None:
            stubs = [Stub(letter_id=one.id, bot_id=one.bot_id, lane=(one.chat, one.thread)) for one in answer[0]]
            if stubs and self._listener is not None:
                self._listener.on_removed(stubs)

        return await self._write(lambda batch: upkeep.expire(batch, at_ms, limit), tell)

    async def clean(self, retention: Retention, *, at_ms: int, limit: int) -> tuple[int, list[str]]:
        return await self._write(lambda batch: upkeep.clean(batch, retention, at_ms, limit))

    # ---- people's ----

    async def find(self, wanted: LetterFilter, *, before: int | None, limit: int) -> list[LetterView]:
        return await paging.find(self.page, wanted, before=before, limit=limit)

    async def page(self, wanted: LetterFilter, *, before: int | None, limit: int) -> LetterPage:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda one: looking.page(one, wanted, before=before, limit=limit, at_ms=at_ms))

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        at_ms = self._clock.wall_ms()
        return await self._read(lambda one: looking.views(one, letter_ids, at_ms))

    async def count(self, wanted: LetterFilter, *, most: int) -> Counted:
        at_ms = self._clock.wall_ms()
        return await self._look(lambda one: looking.count(one, wanted, most=most, at_ms=at_ms))

    async def causes(self, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int) -> list[Cause]:
        return await self._read(lambda one: looking.causes(one, bot_ids=bot_ids, since_ms=since_ms, limit=limit))

    async def oldest_waiting(self) -> dict[int, int]:
        return await self._read(looking.oldest_waiting)

    async def cancel_all(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> list[LetterView]:
        ids = [one.id for one in await paging.find_open(self.page, wanted, limit=limit)]
        return await self._write(lambda batch: changing.cancel_many(batch, ids, at_ms), self._withdraw)

    async def change(self, letter_id: int, *, rank: int | None, due_at_ms: int | None, at_ms: int) -> None:
        await self._write(
            lambda batch: changing.change(batch, letter_id, rank=rank, due_at_ms=due_at_ms, at_ms=at_ms),
            self._tell_changed,
        )

    async def cancel(self, letter_id: int, *, at_ms: int) -> None:
        stub = await self._write(lambda batch: people.cancel(batch, letter_id, at_ms))
        if self._listener is not None:
            self._listener.on_removed([stub])

    async def retry(self, letter_id: int, *, at_ms: int) -> None:
        self._rejoin(await self._write(lambda batch: people.retry(batch, letter_id, at_ms)))

    async def resolve(self, letter_id: int, *, arrived: bool, at_ms: int) -> None:
        self._rejoin(await self._write(lambda batch: people.resolve(batch, letter_id, at_ms, arrived=arrived)))

    async def retry_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int:
        letters = await self._write(lambda batch: people.retry_dead(batch, wanted, at_ms, limit))
        self._rejoin(letters)
        return len(letters)

    async def clear_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int:
        return await self._write(lambda batch: people.clear_dead(batch, wanted, at_ms, limit))

    async def lanes(self, bot_id: int, chat: Chat | None, *, limit: int) -> list[LaneView]:
        return await self._read(lambda one: people.lanes(one, bot_id, chat, limit=limit, most=LANE_COUNTED_MAX))

    async def head_of(self, bot_id: int, lane: LaneKey) -> int | None:
        return await self._read(lambda one: people.head_of(one, bot_id, lane))

    async def known_chats(self, bot_id: int, *, after: Chat | None, limit: int) -> list[ChatRecord]:
        return await self._read(lambda one: people.known_chats(one, bot_id, after, limit))

    async def letter(self, letter_id: int) -> LetterView | None:
        at_ms = self._clock.wall_ms()
        return await self._read(lambda one: reading.view(one, letter_id, at_ms))

    async def tallies(self, *, at_ms: int) -> dict[int, Tally]:
        return await self._read(lambda one: reading.tallies(one, at_ms))

    async def ended_by_minute(self, *, since_ms: int, until_ms: int) -> dict[int, tuple[int, int]]:
        return await self._read(lambda one: reading.ended_by_minute(one, since_ms, until_ms))

    # ---- bots and chats ----

    async def bots(self) -> list[BotRecord]:
        return await self._read(lambda one: reading.bots(one, self.seals))

    async def save_bot(self, record: BotRecord) -> None:
        await self._write(lambda batch: bots.save(batch, record, self.seals))

    async def remove_bot(self, bot_id: int) -> None:
        """Its inbox goes with it: arrivals, read or not, consumers, outages, known chats. Letters that still wait keep the bot
        here."""
        await self._write(lambda batch: bots.remove(batch, bot_id), tallies=[bot_id], inboxes=[bot_id])

    async def chats(self, bot_id: int) -> list[ChatRecord]:
        return await self._read(lambda one: reading.known(one, bot_id))

    async def shut_chat(self, bot_id: int, chat: Chat, reason: str | None, *, at_ms: int) -> None:
        await self._write(lambda batch: bots.shut_chat(batch, bot_id, chat, reason, at_ms=at_ms))

    async def hold(self, bot_id: int, chat: Chat | None, until_ms: int) -> None:
        await self._write(lambda batch: bots.hold(batch, bot_id, chat, until_ms))

    async def bot_held_until(self, bot_id: int) -> int:
        return await self._read(lambda one: one.number(_SQL["bot_held_until"], bot=bot_id))

    async def blobs(self) -> set[str]:
        return await self._read(reading.blobs)

    # ---- keys and webhooks: see `KeyStore` and `HookStore` ----

    async def keys(self) -> tuple[int, list[Key]]:
        return await self._look(keys.read)

    async def keys_generation(self) -> int:
        return await self._read(keys.generation)

    async def add_key(self, key: Key, *, webhook_secret: str | None) -> Key:
        sealed = self.seals.maybe_seal(webhook_secret, place=place_of_key(key.digest))
        return await self._change_key(lambda one: keys.add(one, key, sealed))

    async def revoke_key(self, key_id: int, *, at_ms: int) -> bool:
        return await self._change_key(lambda one: keys.revoke(one, key_id, at_ms))

    async def _change_key(self, work: Callable[[Session], Awaitable[T]]) -> T:
        async def told(batch: Batch) -> T:
            batch.telling.records()
            return await work(batch.session)

        return await self._write(told)

    async def note_key_use(self, used: Mapping[int, int]) -> None:
        await self._write(lambda batch: keys.note_use(batch.session, used))

    async def secret(self, name: str, candidate: str) -> str:
        place = place_of_secret(name)
        sealed = self.seals.seal(candidate, place=place)
        return self.seals.open(await self._write(lambda batch: keys.secret(batch.session, name, sealed)), place=place)

    async def hooks_due(self, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
        return await self._look(
            lambda one: hooks.due(one, self.seals, at_ms=at_ms, after=after, endpoints=endpoints, each=each)
        )

    async def hook_content(self, hook: Hook) -> HookContent:
        return await self._look(lambda one: hooks.content(one, hook))

    async def settle_hooks(self, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
        await self._write(lambda batch: hooks.settle(batch.session, over, deferred))
