"""The store on a Redis or Valkey server: any number of nodes, each with one writer that commits in groups."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from peik.admin.model import Key, Scope
from peik.clock import Clock
from peik.core.letter import Chat, Draft, LaneKey, Letter
from peik.core.lifecycle import EXPIRED, Move, Settlement, Try
from peik.errors import StoreUnavailable
from peik.outbox.store import (
    AcceptedLetter,
    BotRecord,
    Cause,
    ChatRecord,
    Counted,
    Express,
    FoundInFlight,
    Hook,
    HookContent,
    HookDeferred,
    HooksDue,
    LaneView,
    LetterFilter,
    LetterPage,
    LetterView,
    LoggedMessage,
    Marked,
    Retention,
    SentMessage,
    StoreListener,
    Sweep,
    Tally,
)
from peik.secrets.seals import PLAIN, Seals, place_of_key, place_of_secret
from peik.storage import rules
from peik.storage.executor import Finished
from peik.storage.moving import ends
from peik.storage.news import LANE_COUNTED_MAX, NodeNews, node_name
from peik.storage.redis import letters as outbox
from peik.storage.redis import letters as remembering
from peik.storage.redis import search
from peik.storage.redis.client import RedisClient
from peik.storage.redis.commits import Commits, DocumentWay, RedisNews
from peik.storage.redis.documents import RedisContacts, RedisDocuments
from peik.storage.redis.erasure import RedisForgetting, RedisSealed
from peik.storage.redis.inbox import RedisInbox
from peik.storage.redis.jobs import RedisJobs
from peik.storage.redis.nodes import RedisFiles, RedisNodes
from peik.storage.redis.records import chat_key, encode, lane_key, letter_numbered, stub_of
from peik.storage.redis.writer import CommitDone, RedisWriter
from peik.storage.rules import line_of, revised_line
from peik.storage.sqlite.rows import STATE_OF_PHASE

# A Redis store from open to close: its connections, its writer and its bell. Nothing here knows letters.


KEYS_MAX = 1000  # they are all kept in memory, and read whole when one changes
LEASE_S = 10.0  # a dead node's bots wait so long; a living one may be out of reach for so long


class OpenRedis:
    """What `RedisStore` stands on. Any number of processes may open one prefix of one server; each is a node once it beats."""

    inbox: RedisInbox  # these from `open` on
    nodes: RedisNodes
    files: RedisFiles
    jobs: RedisJobs
    documents: RedisDocuments
    contacts: RedisContacts
    forgetting: RedisForgetting

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        lease_s: float = LEASE_S,
        address: str | None = None,
        on_blobs_freed: Callable[[Sequence[str]], None] = lambda blobs: None,
        seals: Seals = PLAIN,
    ) -> None:
        self.seals = seals  # what it seals with
        self._clock = clock
        self._lease_s = lease_s
        self._address = address
        self._on_blobs_freed = on_blobs_freed
        self._listener: StoreListener | None = None
        self._url = url
        self._client = RedisClient(url)

    def listen(self, listener: StoreListener) -> None:
        self._listener = listener

    # ---- opening and closing ----

    async def open(self) -> None:
        """Raises StartError with what to do if the server cannot be used."""
        await self._client.open()
        try:
            await self._client.ask(ends.check_redis(self._client.redis, self._client.prefix))
        except BaseException:
            await self._client.close()
            raise
        node = node_name()
        self._writer = RedisWriter(self._client, node=node)
        self._bell = RedisNews(self._client, node=node)
        self._commits = Commits(
            self._writer, self._bell, listener=lambda: self._listener, on_blobs_freed=self._on_blobs_freed
        )
        self._write = self._commits.write
        self.inbox = RedisInbox(self._client, self._commits, clock=self._clock, seals=self.seals)
        self.files = RedisFiles(self._client)
        self.nodes = RedisNodes(
            self._client,
            self._commits,
            self._bell,
            node=node,
            lease_s=self._lease_s,
            address=self._address,
        )
        self.jobs = RedisJobs(self._url, self._bell, node=node)
        self._document_way = DocumentWay(self._url, self._bell, node=node)
        self.documents = RedisDocuments(self._document_way)
        self.contacts = RedisContacts(self._document_way)
        self.forgetting = RedisForgetting(self._client, self._commits, contacts=self.contacts, jobs=self.jobs)
        try:
            await self.jobs.open()
            await self._document_way.open()
            await self._bell.open()
        except BaseException:
            await self.abandon()
            raise

    async def close(self) -> None:
        """Waits for what is being written, and gives leases and locks back. Safe to kill instead: nothing acknowledged is
        lost, and the leases run out."""
        try:
            await self._writer.drained()
            await self.jobs.drained()
            await self._document_way.drained()
            with contextlib.suppress(StoreUnavailable):
                await self.nodes.leave()
            await self._bell.close(is_told=True)
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Everything of this process ends, as if it had been killed."""
        await self._bell.close(is_told=False)
        await self.jobs.abandon()
        await self._document_way.abandon()
        await self._writer.abandon()
        await self._client.close()

    def trouble(self) -> StoreUnavailable | None:
        """Why nothing can be stored now, as far as the last commit tells."""
        return self._writer.trouble

    @property
    def sealed(self) -> RedisSealed:
        """What is secret here, as it is stored."""
        return RedisSealed(self._client, self._commits)


_MOVED_AT_ONCE = 5_000  # letters that change their lane in one call of the server


class RedisStore(OpenRedis):
    """See `peik.outbox.store.Store`."""

    marks_at_once = False

    # ---- letters in ----

    async def accept(
        self, drafts: Sequence[Draft], *, at_ms: int, express: Express | None = None
    ) -> list[AcceptedLetter]:
        assert express is None, "a commit whose answer is lost may be made"
        if not drafts:
            return []
        return await self._commits.accept(drafts, at_ms)

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
        bot_id = settlements[0].bot_id if settlements else marks[0].bot_id if marks else 0

        def build(among: list[bytes]) -> list[object]:
            return ["advance", str(bot_id), str(epoch), *outbox.steps(settlements, marks), at_ms]

        def news(telling: NodeNews) -> None:
            telling.ended(bot_id, [one.letter_id for one in settlements if one.state.is_final])

        def finish(ended: Finished[CommitDone]) -> None:
            if ended.error is not None:
                done(Marked(error=ended.error))
                return
            answer = ended.value()
            self._commits.spread(answer.effects, news)
            is_all = len(answer.value) == len(marks)
            done(Marked(taken=None if is_all else frozenset(int(one) for one in answer.value)))

        self._commits.step(build, finish, weight=len(settlements) + len(marks))

    async def left_in_flight(self, bot_id: int, *, epoch: int) -> list[Letter]:
        rows = await self._write("adopt", str(bot_id), str(epoch))
        return sorted((letter_numbered(row) for row in rows), key=lambda letter: letter.id)

    async def sweep(self, bot_id: int, rank: int, after: LaneKey | None, *, lanes: int, letters: int) -> Sweep:
        return await outbox.sweep(self._client, bot_id, rank, after, lanes=lanes, letters=letters)

    async def fronts(self, bot_id: int, keys: Sequence[LaneKey], *, letters: int) -> dict[LaneKey, FoundInFlight]:
        return await outbox.fronts(self._client, bot_id, keys, letters=letters)

    async def recent_tries(self, bot_id: int, *, since_ms: int) -> list[SentMessage]:
        return await outbox.recent_tries(self._client, bot_id, since_ms)

    async def park(self, letter: Letter) -> None:
        await self._write("park", str(letter.id), None if letter.awaits is None else str(letter.awaits))

    async def readdress(self, bot_id: int, old: Chat, new: int) -> None:
        def news(telling: NodeNews, moved: int) -> None:
            telling.chats.add(bot_id)
            if moved:
                telling.lanes.add(bot_id)

        # One call moves this many; the rest of a very long lane follows at once.
        moved = _MOVED_AT_ONCE
        while moved == _MOVED_AT_ONCE:
            moved = await self._write("readdress", str(bot_id), chat_key(old), chat_key(new), _MOVED_AT_ONCE, news=news)

    async def file_id(self, bot_id: int, digest: str, kind: str) -> str | None:
        return await remembering.file_id(self._client, bot_id, f"{digest} {kind}")

    async def keep_file_id(self, bot_id: int, digest: str, kind: str, file_id: str | None, *, at_ms: int) -> None:
        await self._write("keep_file_id", str(bot_id), f"{digest} {kind}", file_id)

    # ---- time's ----

    async def join_due(self, *, at_ms: int, limit: int) -> tuple[int, int | None]:
        def tell(answer: Any) -> None:
            self._commits.offer([letter_numbered(row) for row in answer[0]])

        def news(telling: NodeNews, answer: Any) -> None:
            outbox.tell_joined(telling, answer[0])

        joined, next_at = await self._write("join_due", at_ms, limit, tell=tell, news=news)
        return len(joined), next_at or None

    async def expire(self, *, at_ms: int, limit: int) -> tuple[list[LetterView], int | None]:
        line = msgspec.json.encode(Try(at=at_ms, outcome=str(Move.EXPIRE), words=EXPIRED)).decode()

        def tell(answer: Any) -> None:
            self._commits.withdraw([outbox.stub_of_view(view) for view in outbox.ended_views(answer[0], at_ms)])

        def news(telling: NodeNews, answer: Any) -> None:
            for view in outbox.ended_views(answer[0], at_ms):
                telling.ended(view.bot_id, [view.id])
                telling.lanes.add(view.bot_id)

        ended, next_at = await self._write("expire", at_ms, limit, EXPIRED, line, tell=tell, news=news)
        return outbox.ended_views(ended, at_ms), next_at or None

    async def clean(self, retention: Retention, *, at_ms: int, limit: int) -> tuple[int, list[str]]:
        before = (at_ms - retention.completed_ms, at_ms - retention.dead_ms, at_ms - retention.log_ms)
        gone, blobs = await self._write("clean", *before, at_ms, limit)
        return gone, [blob.decode() for blob in blobs]

    # ---- people's ----

    async def find(self, wanted: LetterFilter, *, before: int | None, limit: int) -> list[LetterView]:
        return await rules.find(self.page, wanted, before=before, limit=limit)

    async def page(self, wanted: LetterFilter, *, before: int | None, limit: int) -> LetterPage:
        return await search.page(self._client, wanted, before=before, limit=limit, at_ms=self._clock.wall_ms())

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        return await search.views(self._client, sorted(set(letter_ids)), self._clock.wall_ms())

    async def logged(self, *, below: tuple[int, int] | None, limit: int) -> list[LoggedMessage]:
        return await search.logged(self._client, below or rules.ABOVE_ALL, limit)

    async def count(self, wanted: LetterFilter, *, most: int) -> Counted:
        return await search.count(self._client, wanted, most=most, at_ms=self._clock.wall_ms())

    async def causes(self, *, bot_ids: frozenset[int] | None, since_ms: int | None, limit: int) -> list[Cause]:
        at_ms = self._clock.wall_ms()
        return await search.causes(self._client, bot_ids=bot_ids, since_ms=since_ms, limit=limit, at_ms=at_ms)

    async def oldest_waiting(self) -> dict[int, int]:
        return await search.oldest_waiting(self._client)

    async def cancel_all(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> list[LetterView]:
        ids = [str(one.id) for one in await rules.find_open(self.page, wanted, limit=limit)]

        def tell(rows: Any) -> None:
            self._commits.withdraw([outbox.stub_of_view(view) for view in outbox.ended_views(rows, at_ms)])

        def news(telling: NodeNews, rows: Any) -> None:
            for view in outbox.ended_views(rows, at_ms):
                telling.ended(view.bot_id, [view.id])
                telling.lanes.add(view.bot_id)

        return outbox.ended_views(await self._write("cancel_many", ids, at_ms, tell=tell, news=news), at_ms)

    async def change(self, letter_id: int, *, rank: int | None, due_at_ms: int | None, at_ms: int) -> None:
        record = await outbox.rank_changed(self._client, letter_id, rank)
        line = line_of(rank=rank, due_at_ms=due_at_ms, at_ms=at_ms)
        about = (str(letter_id), False if due_at_ms is None else due_at_ms, at_ms, line)

        def news(telling: NodeNews, answer: Any) -> None:
            telling.lanes.add(stub_of(answer[1]).bot_id)
            telling.due(due_at_ms or None)

        def tell(answer: Any) -> None:
            self._commits.tell_changed(outbox.change_of(answer))

        arguments = about if record is not None else (False, *about)
        await self._write("change", *arguments, record=record, tell=tell, news=news)

    async def revise(self, letter_id: int, *, params: str, seen: int, at_ms: int) -> None:
        record = await outbox.params_changed(self._client, letter_id, params)

        def news(telling: NodeNews, answer: Any) -> None:
            telling.lanes.add(stub_of(answer[1]).bot_id)

        def tell(answer: Any) -> None:
            self._commits.tell_changed(outbox.change_of(answer))

        about = (str(letter_id), seen, revised_line(at_ms))
        await self._write("revise", *about, record=record, tell=tell, news=news)

    async def cancel(self, letter_id: int, *, at_ms: int, is_untried: bool = False) -> None:
        def news(telling: NodeNews, row: Any) -> None:
            bot_id = stub_of(row).bot_id
            telling.ended(bot_id, [letter_id])
            telling.lanes.add(bot_id)

        self._commits.withdraw([stub_of(await self._write("cancel", str(letter_id), at_ms, is_untried, news=news))])

    async def retry(self, letter_id: int, *, at_ms: int) -> None:
        rows = await self._write("retry", str(letter_id), at_ms, outbox.retried(at_ms), news=outbox.tell_joined)
        self._commits.offer([letter_numbered(row) for row in rows])

    async def resolve(self, letter_id: int, *, arrived: bool, at_ms: int) -> None:
        line = outbox.resolved(at_ms) if arrived else outbox.retried(at_ms)

        def news(telling: NodeNews, answer: Any) -> None:
            bot_id = int(answer[0])
            if arrived:
                telling.ended(bot_id, [letter_id])
            else:
                telling.lanes.add(bot_id)

        _, rows = await self._write("resolve", str(letter_id), at_ms, arrived, line, news=news)
        self._commits.offer([letter_numbered(row) for row in rows])

    async def retry_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int:
        ids = await search.find_dead(self._client, wanted, limit=limit, at_ms=at_ms)
        dead = [str(one) for one in ids]
        rows = await self._write("retry_dead", dead, outbox.retried(at_ms), news=outbox.tell_joined)
        self._commits.offer([letter_numbered(row) for row in rows])
        return len(rows)

    async def clear_dead(self, wanted: LetterFilter, *, at_ms: int, limit: int) -> int:
        ids = await search.find_dead(self._client, wanted, limit=limit, at_ms=at_ms)
        cleared: int = await self._write("clear_dead", [str(one) for one in ids])
        return cleared

    async def lanes(self, bot_id: int, chat: Chat | None, *, limit: int) -> list[LaneView]:
        return await outbox.lanes(self._client, bot_id, chat, limit=limit, most=LANE_COUNTED_MAX)

    async def head_of(self, bot_id: int, lane: LaneKey) -> int | None:
        (head,) = await self._client.read(["head_of", str(bot_id), lane_key(lane)])
        return None if head is None else int(head)

    async def letter(self, letter_id: int) -> LetterView | None:
        return next(iter(await search.views(self._client, [letter_id], self._clock.wall_ms())), None)

    async def tallies(self, *, at_ms: int) -> dict[int, Tally]:
        return await outbox.tallies(self._client, at_ms)

    async def ended_by_minute(self, *, since_ms: int, until_ms: int) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for minute in range(
            since_ms // 60_000, (until_ms - 1) // 60_000 + 1
        ):  # one at a time: others want to be heard between
            first, end = max(since_ms, minute * 60_000), min(until_ms, (minute + 1) * 60_000)
            ((delivered, failed),) = await self._client.read(["ended", first, end])
            if delivered or failed:
                found[minute] = (delivered, failed)
        return found

    # ---- bots and chats ----

    async def bots(self) -> list[BotRecord]:
        return await remembering.bots(self._client, self.seals)

    async def save_bot(self, record: BotRecord) -> None:
        await self._write("save_bot", str(record.bot_id), remembering.bot_row(record, self.seals), news=_of_records)

    async def remove_bot(self, bot_id: int) -> None:
        """Its inbox goes with it: arrivals, read or not, consumers, outages, known chats. Letters that still wait keep the bot
        here."""

        def news(telling: NodeNews, _: object) -> None:
            telling.records()
            telling.consumers()

        await self._write("remove_bot", str(bot_id), news=news)
        await self.inbox.drop_gone()

    async def chats(self, bot_id: int) -> list[ChatRecord]:
        return await remembering.chats(self._client, bot_id)

    async def known_chats(self, bot_id: int, *, after: Chat | None, limit: int) -> list[ChatRecord]:
        return await remembering.known_chats(self._client, bot_id, after, limit)

    async def shut_chat(self, bot_id: int, chat: Chat, reason: str | None, *, at_ms: int) -> None:
        await self._write("shut_chat", str(bot_id), chat_key(chat), reason, at_ms, news=partial(_of_chats, bot_id))

    async def hold(self, bot_id: int, chat: Chat | None, until_ms: int) -> None:
        news = partial(_of_chats, bot_id)
        if chat is None:
            await self._write("hold_bot", str(bot_id), until_ms, news=news)
        else:
            await self._write("hold_chat", str(bot_id), chat_key(chat), until_ms, news=news)

    async def bot_held_until(self, bot_id: int) -> int:
        return await remembering.held_until(self._client, bot_id)

    async def blobs(self) -> set[str]:
        return await remembering.blobs(self._client)

    # ---- keys and webhooks: see `KeyStore` and `HookStore` ----

    async def keys(self) -> tuple[int, list[Key]]:
        ((number, rows),) = await self._client.read(["keys"])
        return int(number or 0), sorted((_key(*row) for row in rows), key=lambda key: key.id)

    async def keys_generation(self) -> int:
        found: bytes | None = await self._client.ask(self._client.redis.get(self._client.prefix + "keys_generation"))
        return int(found or 0)

    async def add_key(self, key: Key, *, webhook_secret: str | None) -> Key:
        record = _record_of(key, self.seals.maybe_seal(webhook_secret, place=place_of_key(key.digest)))
        key_id: int = await self._write("add_key", KEYS_MAX, record=record, news=_of_records)
        return msgspec.structs.replace(key, id=key_id)

    async def revoke_key(self, key_id: int, *, at_ms: int) -> bool:
        return bool(await self._write("revoke_key", str(key_id), news=_of_records))

    async def note_key_use(self, used: Mapping[int, int]) -> None:
        await self._write("note_key_use", [[str(key_id), at_ms] for key_id, at_ms in used.items()])

    async def secret(self, name: str, candidate: str) -> str:
        place = place_of_secret(name)
        kept: bytes = await self._write("secret", name, self.seals.seal(candidate, place=place))
        return self.seals.open(kept.decode(), place=place)

    async def hooks_due(self, *, at_ms: int, after: str, endpoints: int, each: int) -> HooksDue:
        ((rows, last, next_at),) = await self._client.read(["hooks_due", at_ms, after, endpoints, each])
        return HooksDue(
            hooks=[_hook(self.seals, *row) for row in rows],
            last=None if last is None else last.decode(),
            next_at_ms=None if next_at is None else int(next_at),
        )

    async def hook_content(self, hook: Hook) -> HookContent:
        body: bytes | None = await self._client.ask(
            self._client.redis.hget(self._client.prefix + "hook_bodies", str(hook.id))
        )
        letter = None if body is not None else await self.letter(hook.letter_id)
        return HookContent(body=None if body is None else body.decode(), letter=letter)

    async def settle_hooks(self, over: Sequence[int], deferred: Sequence[HookDeferred]) -> None:
        rows = [[str(one.hook_id), one.due_at_ms, one.tries, one.body] for one in deferred]
        await self._write("settle_hooks", [str(one) for one in over], rows)


def _of_records(telling: NodeNews, _: object) -> None:
    telling.records()


def _of_chats(bot_id: int, telling: NodeNews, _: object) -> None:
    telling.chats.add(bot_id)


# Keys of the API and webhooks that wait to be told, read as values.


class _KeyRecord(msgspec.Struct, frozen=True):
    digest: str  # in hexadecimal
    name: str
    scopes: tuple[Scope, ...]
    bot_ids: frozenset[int] | None
    created_at_ms: int
    expires_at_ms: int | None
    webhook_url: str | None
    webhook_secret: str | None


_decode_key = msgspec.msgpack.Decoder(_KeyRecord).decode


def _record_of(key: Key, webhook_secret: str | None) -> bytes:
    return encode(
        _KeyRecord(
            digest=key.digest.hex(),
            name=key.name,
            scopes=key.scopes,
            bot_ids=key.bot_ids,
            created_at_ms=key.created_at_ms,
            expires_at_ms=key.expires_at_ms,
            webhook_url=key.webhook_url,
            webhook_secret=webhook_secret,
        )
    )


def _key(key_id: bytes, record: bytes, used_at: bytes | None) -> Key:
    one = _decode_key(record)
    return Key(
        id=int(key_id),
        name=one.name,
        digest=bytes.fromhex(one.digest),
        scopes=one.scopes,
        bot_ids=one.bot_ids,
        created_at_ms=one.created_at_ms,
        expires_at_ms=one.expires_at_ms,
        last_used_at_ms=None if used_at is None else int(used_at),
        webhook_url=one.webhook_url,
    )


class _HookRecord(msgspec.Struct, frozen=True):
    """See `hook` in moving.lua, where it is written."""

    e: str  # endpoint
    k: int | str  # a key, or an address
    letter: str
    p: int  # phase
    at: int
    t: int  # tries


_decode_hook = msgspec.msgpack.Decoder(_HookRecord).decode


def _hook(seals: Seals, hook_id: bytes, record: bytes, key: bytes | None) -> Hook:
    one = _decode_hook(record)
    whose = None if key is None else _decode_key(key)
    return Hook(
        id=int(hook_id),
        endpoint=one.e,
        url=str(one.k) if whose is None else whose.webhook_url or "",
        secret=None if whose is None else _secret(whose, seals),
        letter_id=int(one.letter),
        state=STATE_OF_PHASE[one.p],
        at_ms=one.at,
        tries=one.t,
    )


def _secret(key: _KeyRecord, seals: Seals) -> str | None:
    return seals.maybe_open(key.webhook_secret, place=place_of_key(bytes.fromhex(key.digest)))
