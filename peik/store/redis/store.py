"""The store on a Redis or Valkey server: one writer with group commit, any number of nodes, one owner who may send."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from peik.clock import Clock
from peik.core.key import Key
from peik.core.letter import Chat, Draft, LaneKey, Letter
from peik.core.lifecycle import EXPIRED, Move, Settlement, Try
from peik.errors import StartError, StoreUnavailable
from peik.ports import (
    Accepted,
    BotRecord,
    ChatRecord,
    Found,
    Hook,
    HookContent,
    HookDeferred,
    HooksDue,
    LaneView,
    LetterFilter,
    LetterView,
    Marked,
    Retention,
    Sent,
    StoreListener,
    Stub,
    Sweep,
    Tally,
)
from peik.store.executor import Ended
from peik.store.redis import finding, keys, remembering
from peik.store.redis import letters as outbox
from peik.store.redis.client import Client
from peik.store.redis.durability import weaknesses
from peik.store.redis.inbox import RedisInbox
from peik.store.redis.lease import LEASE_S, Lease
from peik.store.redis.neighbours import Neighbours
from peik.store.redis.records import chat_key, lane_key, letter_numbered, stub_of
from peik.store.redis.writer import Done, Effects, Operation, Writer

T = TypeVar("T")

LANE_COUNTED_MAX = 10_000  # people want to know "many"; the same bound as the other stores'
_MOVED_AT_ONCE = 5_000  # letters that change their lane in one call of the server


class RedisStore:
    """See `peik.ports.Store`. Several nodes may open one prefix of one server; only one of them as owner."""

    inbox: RedisInbox  # from `open` on

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        is_owner: bool = True,
        lease_s: float = LEASE_S,
        on_blobs_freed: Callable[[Sequence[str]], None] = lambda blobs: None,
    ) -> None:
        self._clock = clock
        self._wants_lease = is_owner
        self._lease_s = lease_s
        self._on_blobs_freed = on_blobs_freed
        self._listener: StoreListener | None = None
        self._client = Client(url)
        self.node = secrets.token_hex(8)

    def listen(self, listener: StoreListener) -> None:
        self._listener = listener

    # ---- opening and closing ----

    async def open(self) -> None:
        """Raises StartError with what to do if the server cannot be used, or somebody else is the owner."""
        await self._client.open()
        self._writer = Writer(self._client, node=self.node)
        self._lease = Lease(self._write, node=self.node, lease_s=self._lease_s)
        self._neighbours = Neighbours(self._client.redis, channel=self._client.prefix + "writes", node=self.node)
        self.inbox = RedisInbox(self._client, write=self._write, submit=self._submit, clock=self._clock)
        try:
            await self._neighbours.open()
            if self._wants_lease and not await self._lease.claim():
                raise StartError(
                    f"Another Peik already sends for the bots of {self._client.shown}. "
                    f"Stop it (if it died, wait {self._lease_s:.0f} s), or give this one another ?prefix= in PEIK_STORE."
                )
        except StoreUnavailable as error:
            await self._abandon()
            raise StartError(f"Cannot use {self._client.shown}: {error.detail}") from error
        except BaseException:
            await self._abandon()
            raise

    async def close(self) -> None:
        """Waits for what is being written. Safe to kill instead: nothing acknowledged is lost."""
        try:
            await self._writer.drained()
            await self._lease.give_up()
        finally:
            await self._abandon()

    async def _abandon(self) -> None:
        """Everything of this process ends; the lease, if it was not given up, runs out by itself."""
        await self._lease.abandon()
        await self._neighbours.close()
        await self._writer.abandon()
        await self._client.close()

    # ---- several nodes on one server ----

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    @property
    def is_owner(self) -> bool:
        """Whether this node may send for the bots of this server."""
        return self._lease.is_held

    async def claim(self) -> bool:
        """Become the owner unless another node is. Whether this one is now; the right ends when it is not renewed."""
        return await self._lease.claim()

    async def has_foreign_writes(self) -> bool:
        """Whether another node has written since this was last asked."""
        return self._neighbours.has_written()

    def trouble(self) -> StoreUnavailable | None:
        """Why nothing can be stored now, as far as the last commit tells."""
        return self._writer.trouble

    async def durability(self) -> list[str]:
        """What of this server's settings breaks Peik's promise, each with what to set instead."""
        return await self._client.ask(weaknesses(self._client.redis))

    # ---- the two ways in ----

    async def _write(
        self,
        name: str,
        *arguments: object,
        records: Sequence[bytes] = (),
        tell: Callable[[Any], None] = lambda value: None,
    ) -> Any:
        """Run an operation in the next commit; its answer, once that is durable. `tell` hears it before the caller does.

        The first argument is the ARGV index of the first record, where there are any.
        """

        def build(among: list[bytes]) -> list[object]:
            place = (_argument(among, records[0]),) if records else ()
            return [name, *place, *arguments]

        return await self._submit(build, lambda done: done.value, tell=lambda done: tell(done.value))

    async def _submit(
        self,
        build: Callable[[list[bytes]], list[object]],
        read: Callable[[Done], T],
        *,
        weight: int = 1,
        tell: Callable[[Done], None] = lambda done: None,
    ) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def finish(ended: Ended[Done]) -> None:
            if ended.error is not None:
                if not future.done():  # nobody may be waiting any more
                    future.set_exception(ended.error)
                return
            done = ended.value()
            if not future.done():  # the one who waits wakes only after the listeners have been told
                future.set_result(read(done))
            tell(done)
            self._tell(done.effects)

        self._writer.submit(Operation(build, finish, weight=weight))
        return await future

    def _tell(self, effects: Effects) -> None:
        """Let the engines know what an operation changed in their lanes."""
        if self._listener is not None:
            if effects.superseded:
                self._listener.on_removed(effects.superseded)
            if effects.joined:
                self._listener.on_joined(effects.joined)
        if effects.blobs_freed:
            self._on_blobs_freed(effects.blobs_freed)

    def _offer(self, fresh: Sequence[Letter]) -> None:
        if fresh and self._listener is not None:
            self._listener.on_accepted(fresh)

    def _withdraw(self, stubs: Sequence[Stub]) -> None:
        if stubs and self._listener is not None:
            self._listener.on_removed(stubs)

    # ---- letters in ----

    async def accept(self, drafts: Sequence[Draft], *, at_ms: int) -> list[Accepted]:
        if not drafts:
            return []

        def build(among: list[bytes]) -> list[object]:
            return ["accept", [outbox.draft_row(draft, at_ms, among) for draft in drafts], at_ms]

        def tell(done: Done) -> None:
            self._offer(outbox.fresh(drafts, done))

        return await self._submit(build, outbox.accepted, weight=len(drafts), tell=tell)

    # ---- the sender's ----

    def advance(
        self,
        settlements: Sequence[Settlement],
        marks: Sequence[Letter],
        *,
        at_ms: int,
        done: Callable[[Marked], None],
    ) -> None:
        def build(among: list[bytes]) -> list[object]:
            steps = outbox.steps(settlements, marks)
            return ["advance", *steps, at_ms, str(self._lease.epoch), self._lease.text]

        def finish(ended: Ended[Done]) -> None:
            if ended.error is not None:
                done(Marked(error=ended.error))
                return
            answer = ended.value()
            self._tell(answer.effects)
            is_all = len(answer.value) == len(marks)
            done(Marked(taken=None if is_all else frozenset(int(one) for one in answer.value)))

        self._writer.submit(Operation(build, finish, weight=len(settlements) + len(marks)))

    async def left_in_flight(self, bot_id: int) -> list[Letter]:
        rows = await self._write("adopt", str(bot_id), str(self._lease.epoch))
        return sorted((letter_numbered(row) for row in rows), key=lambda letter: letter.id)

    async def sweep(self, bot_id: int, rank: int, after: LaneKey | None, *, lanes: int, letters: int) -> Sweep:
        return await outbox.sweep(self._client, bot_id, rank, after, lanes=lanes, letters=letters)

    async def fronts(self, bot_id: int, keys: Sequence[LaneKey], *, letters: int) -> dict[LaneKey, Found]:
        return await outbox.fronts(self._client, bot_id, keys, letters=letters)

    async def recent_tries(self, bot_id: int, *, since_ms: int) -> list[Sent]:
        return await outbox.recent_tries(self._client, bot_id, since_ms)

    async def park(self, letter: Letter) -> None:
        await self._write("park", str(letter.id))

    async def readdress(self, bot_id: int, old: Chat, new: int) -> None:
        # One call moves so many; the rest of a very long lane follows at once.
        while (
            await self._write("readdress", str(bot_id), chat_key(old), chat_key(new), _MOVED_AT_ONCE) == _MOVED_AT_ONCE
        ):
            pass

    async def file_id(self, bot_id: int, digest: str, kind: str) -> str | None:
        return await remembering.file_id(self._client, bot_id, f"{digest} {kind}")

    async def keep_file_id(self, bot_id: int, digest: str, kind: str, file_id: str | None, *, at_ms: int) -> None:
        await self._write("keep_file_id", str(bot_id), f"{digest} {kind}", file_id)

    # ---- time's ----

    async def join_due(self, *, at_ms: int, limit: int) -> tuple[int, int | None]:
        def tell(answer: Any) -> None:
            self._offer([letter_numbered(row) for row in answer[0]])

        joined, next_at = await self._write("join_due", at_ms, limit, tell=tell)
        return len(joined), next_at or None

    async def expire(self, *, at_ms: int, limit: int) -> tuple[list[LetterView], int | None]:
        line = msgspec.json.encode(Try(at=at_ms, outcome=str(Move.EXPIRE), words=EXPIRED)).decode()

        def tell(answer: Any) -> None:
            self._withdraw([outbox.stub_of_view(view) for view in outbox.ended_views(answer[0], at_ms)])

        ended, next_at = await self._write("expire", at_ms, limit, EXPIRED, line, tell=tell)
        return outbox.ended_views(ended, at_ms), next_at or None

    async def clean(self, retention: Retention, *, at_ms: int, limit: int) -> tuple[int, list[str]]:
        before = (at_ms - retention.completed_ms, at_ms - retention.dead_ms, at_ms - retention.log_ms)
        gone, blobs = await self._write("clean", *before, at_ms, limit)
        return gone, [blob.decode() for blob in blobs]

    # ---- people's ----

    async def find(self, wanted: LetterFilter, *, before: int | None, limit: int) -> list[LetterView]:
        return await finding.find(self._client, wanted, before=before, limit=limit, at_ms=self._clock.wall_ms())

    async def cancel(self, letter_id: int, *, at_ms: int) -> None:
        self._withdraw([stub_of(await self._write("cancel", str(letter_id), at_ms))])

    async def retry(self, letter_id: int, *, at_ms: int) -> None:
        rows = await self._write("retry", str(letter_id), at_ms, outbox.retried(at_ms))
        self._offer([letter_numbered(row) for row in rows])

    async def resolve(self, letter_id: int, *, arrived: bool, at_ms: int) -> None:
        line = outbox.resolved(at_ms) if arrived else outbox.retried(at_ms)
        rows = await self._write("resolve", str(letter_id), at_ms, arrived, line)
        self._offer([letter_numbered(row) for row in rows])

    async def retry_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int:
        ids = await finding.find_dead(self._client, wanted, limit=limit, at_ms=at_ms)
        rows = await self._write("retry_dead", [str(one) for one in ids], outbox.retried(at_ms))
        self._offer([letter_numbered(row) for row in rows])
        return len(rows)

    async def clear_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int:
        ids = await finding.find_dead(self._client, wanted, limit=limit, at_ms=at_ms)
        cleared: int = await self._write("clear_dead", [str(one) for one in ids])
        return cleared

    async def lanes(self, bot_id: int, chat: Chat | None, *, limit: int) -> list[LaneView]:
        return await outbox.lanes(self._client, bot_id, chat, limit=limit, most=LANE_COUNTED_MAX)

    async def head_of(self, bot_id: int, lane: LaneKey) -> int | None:
        (head,) = await self._client.read(["head_of", str(bot_id), lane_key(lane)])
        return None if head is None else int(head)

    async def letter(self, letter_id: int) -> LetterView | None:
        return next(iter(await finding.views(self._client, [letter_id], self._clock.wall_ms())), None)

    async def tallies(self, *, at_ms: int) -> dict[int, Tally]:
        return await outbox.tallies(self._client, at_ms)

    # ---- bots and chats ----

    async def bots(self) -> list[BotRecord]:
        return await remembering.bots(self._client)

    async def save_bot(self, record: BotRecord) -> None:
        await self._write("save_bot", str(record.bot_id), remembering.bot_row(record))

    async def remove_bot(self, bot_id: int) -> None:
        """Its inbox goes with it: arrivals, read or not, consumers, outages. Letters that still wait keep the bot here."""
        await self._write("remove_bot", str(bot_id))
        await self.inbox.drop_gone()

    async def chats(self, bot_id: int) -> list[ChatRecord]:
        return await remembering.chats(self._client, bot_id)

    async def known_chats(self, bot_id: int, *, after: Chat | None, limit: int) -> list[ChatRecord]:
        return await remembering.known_chats(self._client, bot_id, after, limit)

    async def shut_chat(self, bot_id: int, chat: Chat, reason: str | None, *, at_ms: int) -> None:
        await self._write("shut_chat", str(bot_id), chat_key(chat), reason, at_ms)

    async def hold(self, bot_id: int, chat: Chat | None, until_ms: int) -> None:
        if chat is None:
            await self._write("hold_bot", str(bot_id), until_ms)
        else:
            await self._write("hold_chat", str(bot_id), chat_key(chat), until_ms)

    async def bot_held_until(self, bot_id: int) -> int:
        return await remembering.held_until(self._client, bot_id)

    async def blobs(self) -> set[str]:
        return await remembering.blobs(self._client)

    # ---- keys and webhooks: see `KeyStore` and `HookStore` ----

    async def keys(self) -> tuple[int, list[Key]]:
        return await keys.read(self._client)

    async def keys_generation(self) -> int:
        return await keys.generation(self._client)

    async def add_key(self, key: Key, *, webhook_secret: str | None) -> Key:
        record = keys.record_of(key, webhook_secret)
        key_id: int = await self._write("add_key", keys.KEYS_MAX, records=[record])
        return msgspec.structs.replace(key, id=key_id)

    async def revoke_key(self, key_id: int, *, at_ms: int) -> bool:
        return bool(await self._write("revoke_key", str(key_id)))

    async def note_key_use(self, used: Mapping[int, int]) -> None:
        await self._write("note_key_use", [[str(key_id), at_ms] for key_id, at_ms in used.items()])

    async def secret(self, name: str, candidate: str) -> str:
        kept: bytes = await self._write("secret", name, candidate)
        return kept.decode()

    async def hooks_due(self, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
        return await keys.hooks_due(self._client, at_ms=at_ms, after=after, endpoints=endpoints, each=each)

    async def hook_content(self, hook: Hook) -> HookContent:
        body = await keys.hook_body(self._client, hook)
        letter = None if body is not None else await self.letter(hook.letter_id)
        return HookContent(body=body, letter=letter)

    async def settle_hooks(self, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
        rows = [[str(one.hook_id), one.due_at_ms, one.tries, one.body] for one in deferred]
        await self._write("settle_hooks", [str(one) for one in over], rows)


def _argument(among: list[bytes], record: bytes) -> int:
    """Put a record among those of the commit; its place in ARGV, which begins with the operations."""
    among.append(record)
    return len(among) + 1
