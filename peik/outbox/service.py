"""Everything that callers may ask of the outbox. Rules that REST, gateway, library and commands share are here."""

import asyncio
import hashlib
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import msgspec

from peik.clock import Clock
from peik.core.address import AddressReach, read_address
from peik.core.call import opened, read_call
from peik.core.documents import DocumentStore, Filing
from peik.core.events import Accepted as AcceptedEvent
from peik.core.events import Event, Events, Settled
from peik.core.letter import (
    UNASKED_RANK,
    Backoff,
    Chat,
    Draft,
    Enclosed,
    LetterCall,
    OnUncertain,
    Priority,
    State,
)
from peik.core.lifecycle import Move
from peik.core.methods import MethodClass
from peik.core.pace import ACCOUNT_LIMITS, PaceLimits
from peik.core.provisional import may_any_name_one, may_name_one
from peik.core.token import Token
from peik.core.trace import current_trace
from peik.errors import BadInput, InDoubt, NotFound, TooLarge
from peik.outbox.message_log import MessageLog
from peik.outbox.provisional import ProvisionalIds
from peik.outbox.store import (
    AcceptedLetter,
    BotRecord,
    Cause,
    ChatRecord,
    Counted,
    Express,
    LaneView,
    LetterFilter,
    LetterPage,
    LetterView,
    Store,
    Tally,
)

if TYPE_CHECKING:
    from peik.settings.config import Config

BATCH_LETTERS_MAX = 100_000
METADATA_BYTES_MAX = 8 * 1024
ATTEMPTS_MAX = 100
BACKOFF_MS_LIMIT = 24 * 3600 * 1000
TIMEOUT_MS_LIMIT = 3600 * 1000
KEY_CHARS_MAX = 255
DEAD_PAGE = 1000
CLEARED = "it failed, and was cleared away since"
COUNTED_MAX = 10_000  # people want to know "many", not to wait for the exact number
LIMIT_MAX = 100_000
INBOUND = ("polling", "webhook", "off")
MISSED = ("process", "notify", "both", "drop")
GUESTS = "guests"
GUEST_FRESH_S = 60.0
GUESTS_KNOWN_MAX = 10_000


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    attempts: int = 5
    counts_uncertain: bool = False  # whoever runs Peik has set `attempts`
    backoff_ms: int = 2000
    hooks_may_be_private: bool = False
    may_be_pushed: bool = True  # Telegram can reach us, so that updates may come by webhook

    @classmethod
    def of(cls, config: "Config", *, may_be_pushed: bool) -> "Defaults":
        return cls(
            attempts=config.attempts or cls().attempts,
            counts_uncertain=config.attempts is not None,
            backoff_ms=config.backoff_ms,
            hooks_may_be_private=config.hooks_allow_private,
            may_be_pushed=may_be_pushed,
        )


class Engine(Protocol):
    """What the service needs of the courier."""

    def chat_of(self, bot_id: int, chat: Chat) -> Chat: ...

    def express(self, draft: Draft) -> Express | None: ...

    def add(self, bot: BotRecord) -> None: ...

    def remove(self, bot_id: int) -> None: ...

    def why(self, view: LetterView, head: int | None) -> str | None: ...

    def watch(self, bot_id: int, letter_id: int, tell: Callable[[bytes], None] | None) -> None: ...

    def open_chat(self, bot_id: int, chat: Chat) -> None: ...

    def hold_chat(self, bot_id: int, chat: Chat, until_ms: int) -> None: ...


RemoveBlobs = Callable[[Iterable[str]], None]  # from the spool


async def keep_files(files: Iterable[Awaitable[Enclosed]], remove: RemoveBlobs) -> tuple[Enclosed, ...]:
    """The files of a call, one after the other into the spool. Leaves none of them behind if one cannot be kept."""
    kept: list[Enclosed] = []
    try:
        for one in files:
            kept.append(await one)  # noqa: PERF401  those before a failure are removed
    except BaseException:
        _remove(kept, remove)
        raise
    return tuple(kept)


class Guests:
    """Bots that came by themselves, through a gateway that is open: nobody who runs Peik has added them. Such a bot is marked
    before it is known, so that none can be without its mark. Whoever adds it by its token makes it the owner's."""

    def __init__(self, documents: DocumentStore, clock: Clock) -> None:
        self._documents = documents
        self._clock = clock
        self._known: dict[int, tuple[float, bool]] = {}

    async def has(self, bot_id: int) -> bool:
        """As it is, or was within the last minute. Raises StoreUnavailable."""
        at, is_guest = self._known.get(bot_id, (float("-inf"), True))
        if self._clock.mono() - at < GUEST_FRESH_S:
            return is_guest
        is_guest = await self._documents.document(GUESTS, str(bot_id)) is not None
        self._know(bot_id, is_guest=is_guest)
        return is_guest

    async def add(self, bot_id: int) -> None:
        await self._documents.file([Filing(collection=GUESTS, key=str(bot_id), body="{}")])
        self._know(bot_id, is_guest=True)

    async def remove(self, bot_id: int) -> None:
        await self._documents.file([Filing(collection=GUESTS, key=str(bot_id), body=None)])
        self._know(bot_id, is_guest=False)

    def _know(self, bot_id: int, *, is_guest: bool) -> None:
        if len(self._known) >= GUESTS_KNOWN_MAX:
            self._known.clear()
        self._known[bot_id] = (self._clock.mono(), is_guest)


class OutboxService:
    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        clock: Clock,
        events: Events,
        defaults: Defaults,
        expect: Callable[[int], None],
        guests: Guests,
        provisional: ProvisionalIds,
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._events = events
        self._defaults = defaults
        self._expect = expect
        self.guests = guests
        self.provisional = provisional
        self.log = MessageLog(store)
        self._bots: dict[int, BotRecord] = {}
        self._waiters: dict[int, list[asyncio.Future[None]]] = defaultdict(list)
        self._is_hurried = False
        self._changes: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()  # of bots: see `_changing`
        events.listen(self._listen, Settled)

    def open(self, bots: Sequence[BotRecord]) -> None:
        self._bots = {bot.bot_id: bot for bot in bots}

    def take_up(self, bots: Sequence[BotRecord]) -> None:
        """Another process wrote to the store: take up what it did to bots."""
        now = {bot.bot_id: bot for bot in bots}
        for bot_id in self._bots.keys() - now.keys():
            self._engine.remove(bot_id)
        for bot_id, bot in now.items():
            if self._bots.get(bot_id) != bot:
                self._engine.add(bot)
        self._bots = now

    def ask_again(self, letter_ids: Collection[int] | None = None) -> None:
        """Let those who wait for these letters, or for any, look whether they have ended: another process may know."""
        for letter_id in self._waiters.keys() if letter_ids is None else self._waiters.keys() & set(letter_ids):
            for ended in self._waiters[letter_id]:
                if not ended.done():
                    ended.set_result(None)

    def end_waits(self) -> None:
        """Whoever waits for a letter is told how it stands, from now on: Peik is about to close. The letter stays accepted."""
        self._is_hurried = True
        self.ask_again()

    # ---- letters ----

    async def accept(self, calls: Sequence[LetterCall]) -> list[AcceptedLetter]:
        """Make calls durable, all or none. When this returns, each will be delivered or its failure will be seen."""
        if not calls:
            raise BadInput(code="empty_batch", detail="There is no letter in the batch.")
        if len(calls) > BATCH_LETTERS_MAX:
            raise TooLarge(
                code="batch_too_large", detail=f"A batch holds at most {BATCH_LETTERS_MAX} letters; send several."
            )
        is_naming = may_any_name_one([call.params for call in calls])  # rare, and cheap to see
        if is_naming:
            known = await self._with_real_ids(calls)
            if isinstance(known, AcceptedLetter):
                return [known]
            calls = known
        at_ms = self._clock.wall_ms()
        drafts = self._drafts(calls, at_ms)
        referring = [draft for draft in drafts if draft.awaits is not None]
        if referring:
            await self._check_references(referring)
        is_single = len(drafts) == 1 and self._store.marks_at_once
        express = self._engine.express(drafts[0]) if is_single else None
        accepted = await self._store.accept(drafts, at_ms=at_ms, express=express)
        if is_naming and referring:
            await self._note_waiting(calls, drafts, accepted)
        self._events.tell(AcceptedEvent(count=len(accepted), traced=_traced(drafts, accepted)))
        for draft in drafts:
            if draft.send_at_ms is not None:
                self._expect(draft.send_at_ms)
            if draft.expires_at_ms is not None:
                self._expect(draft.expires_at_ms)
        return accepted

    def check(self, call: LetterCall) -> None:
        """Whether it could be accepted as it is. Raises BadInput, and NotFound for a bot that is not there."""
        self._draft(call, self._clock.wall_ms(), bot_id=self.bot(call.bot_id).bot_id, here=None)

    async def _with_real_ids(self, calls: Sequence[LetterCall]) -> list[LetterCall] | AcceptedLetter:
        """Calls that name provisional ids, as letters can wait for them. One by itself may be done at once; of a batch, which is
        accepted as a whole, each becomes a letter."""
        known: list[LetterCall] = []
        cancel = self._cancel_untried if len(calls) == 1 else None
        for call in calls:
            if not may_name_one(call.params):
                known.append(call)
                continue
            bot_id = self.bot(call.bot_id).bot_id
            found = await self.provisional.apply(call, bot_id, cancel=cancel)
            if isinstance(found, AcceptedLetter):
                return found
            known.append(found)
        return known

    async def _note_waiting(
        self, calls: Sequence[LetterCall], drafts: Sequence[Draft], accepted: Sequence[AcceptedLetter]
    ) -> None:
        for call, draft, one in zip(calls, drafts, accepted, strict=True):
            if draft.awaits is not None and not one.is_repeat:
                await self.provisional.accepted(call, draft.bot_id, one.letter_id)

    async def _cancel_untried(self, letter_id: int) -> LetterView:
        """Take back a letter of which no try can have arrived. Raises Conflict if one may have."""
        await self._store.cancel(letter_id, at_ms=self._clock.wall_ms(), is_untried=True)
        view = await self.letter(letter_id)
        self._events.tell(_settled(view, Move.CANCEL))
        return view

    async def accept_with_files(
        self, enclosed: tuple[Enclosed, ...], call: Callable[[tuple[Enclosed, ...]], LetterCall], *, remove: RemoveBlobs
    ) -> AcceptedLetter:
        """Make a call with files of the spool durable. They are removed only if no letter can be there to need them."""
        try:
            (accepted,) = await self.accept([call(enclosed)])
        except InDoubt:
            raise  # it may be accepted all the same; if not, the files are swept away
        except Exception:  # and not when cancelled or interrupted, for the same reason
            _remove(enclosed, remove)
            raise
        if accepted.is_repeat or accepted.did is not None:
            _remove(enclosed, remove)
        return accepted

    def _drafts(self, calls: Sequence[LetterCall], at_ms: int) -> list[Draft]:
        drafts: list[Draft] = []
        here, asked = current_trace(), calls[0].bot_id
        try:
            bot_id = self.bot(asked).bot_id
            for call in calls:
                if call.bot_id != asked:  # seldom: most batches are one bot's
                    asked = call.bot_id
                    bot_id = self.bot(asked).bot_id
                drafts.append(self._draft(call, at_ms, bot_id=bot_id, here=here))
        except BadInput as problem:
            if len(calls) == 1:
                raise
            raise BadInput(code=problem.code, detail=f"Letter {len(drafts)} of the batch: {problem.detail}") from None
        return drafts

    def _draft(self, call: LetterCall, at_ms: int, *, bot_id: int, here: str | None) -> Draft:
        """`here`: the trace of what the caller is at, for a call that names none."""
        reading = read_call(call.method, call.params)
        rank = _RANK.get(call.priority)
        if rank is None:
            raise _bad_priority()
        if call.is_judged and rank == _BULK_RANK:
            rank = UNASKED_RANK
        chat, defaults = self._engine.chat_of(bot_id, reading.chat), self._defaults
        draft = Draft(
            bot_id=bot_id,
            method=reading.method,
            params=call.params.decode(),
            chat=chat,
            thread=reading.thread,
            weight=reading.weight,
            rank=rank,
            attempts=defaults.attempts,
            backoff_ms=defaults.backoff_ms,
        )
        trace = call.trace or here
        is_plain = reading.kind is _SEND and reading.awaits is None and reading.target is None and chat == reading.chat
        # Nearly all, and a field that is named costs: see `letter_of_draft`.
        if not is_plain or trace is not None or call.is_judged or defaults.counts_uncertain:
            draft = msgspec.structs.replace(
                draft,
                on_uncertain=OnUncertain.HOLD if reading.kind.is_at_most_once else OnUncertain.RESEND,
                counts_uncertain=defaults.counts_uncertain,
                awaits=reading.awaits,
                target=reading.target,
                # A number that Telegram gave to the chat later; a name stays right as it is.
                is_moved=chat != reading.chat and isinstance(reading.chat, int),
                trace=trace,
                is_judged=call.is_judged,
            )
        return draft if _has_usual_terms(call) else self._with_terms(draft, call, at_ms)

    def _with_terms(self, plain: Draft, call: LetterCall, at_ms: int) -> Draft:
        _check_terms(call, at_ms)
        labels = _labels(call.metadata)
        return msgspec.structs.replace(
            plain,
            attempts=plain.attempts if call.attempts is None else call.attempts,
            counts_uncertain=plain.counts_uncertain or call.attempts is not None,
            backoff_ms=plain.backoff_ms if call.backoff_ms is None else call.backoff_ms,
            backoff=call.backoff,
            timeout_ms=call.timeout_ms or 0,
            on_uncertain=call.on_uncertain or plain.on_uncertain,
            send_at_ms=call.send_at_ms,
            expires_at_ms=call.expires_at_ms,
            enclosed=call.enclosed,
            idempotency_key=call.idempotency_key,
            digest="" if call.idempotency_key is None else _digest(call, plain.method),
            metadata=None if call.metadata is None else call.metadata.decode(),
            user_id=labels.get("user_id"),
            message_type=labels.get("message_type"),
            hook=self._hook(call.hook),
            is_too_late=_is_too_late(call, at_ms),
        )

    def _hook(self, hook: int | str | None) -> int | str | None:
        if not isinstance(hook, str):
            return hook
        return read_address(hook, reach=AddressReach.private(self._defaults.hooks_may_be_private))

    async def _check_references(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts:
            assert draft.awaits is not None
            other = await self._store.letter(draft.awaits)
            if other is None or other.bot_id != draft.bot_id:
                raise BadInput(
                    code="unknown_reference", detail=f"There is no letter {draft.awaits} of this bot to refer to."
                )

    async def letter(self, letter_id: int) -> LetterView:
        view = await self._store.letter(letter_id)
        if view is None:
            raise NotFound(code="unknown_letter", detail=f"There is no letter {letter_id} here (any more).")
        return view

    async def wait(self, letter_id: int, timeout_s: float) -> LetterView:
        """The letter once it has ended, or as it stands when the time is over. A merged one ends as the newer one does."""
        deadline = self._clock.mono() + timeout_s
        while True:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[letter_id].append(ended)
            try:
                view = await self.letter(letter_id)
                if view.state.is_final or self._is_hurried or self._clock.mono() >= deadline:
                    return view
                async with asyncio.timeout_at(deadline):
                    await ended
            except TimeoutError:
                continue  # once more, to show how it stands now
            finally:
                self._forget(letter_id, ended)

    async def outcome(
        self, accepted: AcceptedLetter, call: LetterCall, timeout_s: float, *, may_mend: bool = False
    ) -> LetterView:
        """What became of a call, as `wait` gives it. The key of a repeat outlives its letter: one that was cleared away since is
        shown as far as it is known, which is how it ended.

        `may_mend`: a refusal that the caller can mend ends the letter while he waits, as in `answer`."""
        bot_id = self.bot(call.bot_id).bot_id
        if may_mend:
            self._engine.watch(bot_id, accepted.letter_id, lambda _: None)
        try:
            return await self.wait(accepted.letter_id, timeout_s)
        except NotFound:
            if not accepted.is_repeat:
                raise
        finally:
            if may_mend:
                self._engine.watch(bot_id, accepted.letter_id, None)
        return self._cleared(accepted, call)

    def _cleared(self, accepted: AcceptedLetter, call: LetterCall) -> LetterView:
        at_ms = self._clock.wall_ms()
        draft = self._draft(call, at_ms, bot_id=self.bot(call.bot_id).bot_id, here=current_trace())
        return LetterView(
            id=accepted.letter_id,
            bot_id=draft.bot_id,
            method=draft.method,
            params=draft.params,
            chat=draft.chat,
            thread=draft.thread,
            state=accepted.state,
            rank=draft.rank,
            attempts=draft.attempts,
            attempts_made=0,
            uncertain_tries=0,
            failed_reason=CLEARED if accepted.state is State.FAILED else None,
            result=None,
            history=None,
            merged_into=None,
            metadata=draft.metadata,
            user_id=draft.user_id,
            message_type=draft.message_type,
            on_uncertain=draft.on_uncertain,
            created_at_ms=at_ms,  # it is not known any more; that it was accepted is said now
            due_at_ms=None,
            expires_at_ms=draft.expires_at_ms,
            marked_at_ms=None,
            settled_at_ms=None,
        )

    async def answer(self, bot_id: int, letter_id: int, timeout_s: float) -> bytes | LetterView:
        """Telegram's result to a letter that was accepted a moment ago, as soon as it comes; or the letter as `wait` gives
        it, if there is no such result in time.

        The result may be told before it is stored. A crash in between leaves the letter uncertain, as it would without
        this; whoever waits knows more then than the store, and nothing that was promised is broken.
        """
        deadline = self._clock.mono() + (0.0 if self._is_hurried else timeout_s)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        told: list[bytes] = []

        def tell(result: bytes) -> None:
            if result != b"null" and not ended.done():  # else there is nothing to show, and the letter says why
                told.append(result)
                ended.set_result(None)

        self._waiters[letter_id].append(ended)
        self._engine.watch(bot_id, letter_id, tell)
        try:
            async with asyncio.timeout_at(deadline):
                await ended
        except TimeoutError:
            pass
        finally:
            self._engine.watch(bot_id, letter_id, None)
            self._forget(letter_id, ended)
        return told[0] if told else await self.wait(letter_id, max(0.0, deadline - self._clock.mono()))

    def _forget(self, letter_id: int, ended: asyncio.Future[None]) -> None:
        waiting = self._waiters[letter_id]
        waiting.remove(ended)
        if not waiting:
            del self._waiters[letter_id]

    def _listen(self, events: Sequence[Event]) -> None:
        if not self._waiters:
            return
        for event in events:
            if isinstance(event, Settled) and event.state.is_final:
                for ended in self._waiters.get(event.letter_id, ()):
                    if not ended.done():
                        ended.set_result(None)

    async def find(self, wanted: LetterFilter, *, before: int | None, limit: int) -> list[LetterView]:
        """Letters by a filter, the newest first. However many have to be looked at: see `page` for people who wait."""
        return await self._store.find(wanted, before=before, limit=limit)

    async def page(self, wanted: LetterFilter, *, before: int | None, limit: int) -> LetterPage:
        """The same with a bound on the work: a page may be cut before it is full, and says where to go on."""
        return await self._store.page(wanted, before=before, limit=limit)

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        """Those of these letters that are here, in the order of their ids."""
        return await self._store.letters(letter_ids)

    async def count(self, wanted: LetterFilter, *, most: int = COUNTED_MAX) -> Counted:
        """How many letters a filter finds, counted up to a bound."""
        return await self._store.count(wanted, most=most)

    async def count_open(self, wanted: LetterFilter, *, most: int = COUNTED_MAX) -> Counted:
        """How many letters of a filter could be taken back."""
        total, is_least = 0, False
        for state in (State.WAITING, State.DELAYED):
            if _may_be_open(wanted) and wanted.state in (None, state):
                counted = await self._store.count(msgspec.structs.replace(wanted, state=state), most=most)
                total, is_least = total + counted.letters, is_least or counted.is_least
        return Counted(letters=total, is_least=is_least)

    async def causes(
        self, *, bot_ids: frozenset[int] | None = None, since_ms: int | None = None, limit: int = 50
    ) -> list[Cause]:
        """Why letters died, among the newest dead ones, the most frequent cause first."""
        return await self._store.causes(bot_ids=bot_ids, since_ms=since_ms, limit=limit)

    async def oldest_waiting(self) -> Mapping[int, int]:
        """Per bot when the oldest letter of its lanes was accepted."""
        return await self._store.oldest_waiting()

    async def change(self, letter_id: int, *, priority: int | None = None, send_at_ms: int | None = None) -> LetterView:
        """Give a letter that waits another priority, another time (NOW: at once, also if it backs off), or both. Raises
        Conflict if it is in flight or has ended."""
        rank = None if priority is None else _RANK.get(priority)
        if rank is None and priority is not None:
            raise _bad_priority()
        at_ms = self._clock.wall_ms()
        if rank is None and send_at_ms is None:
            raise BadInput(code="nothing_to_change", detail="Say what to change: priority, send_at, or both.")
        expires_at_ms = (await self.letter(letter_id)).expires_at_ms
        if send_at_ms is not None and expires_at_ms is not None and send_at_ms >= expires_at_ms:
            raise BadInput(code="expires_before_sent", detail="expires_at is before send_at: it could never be sent.")
        await self._store.change(letter_id, rank=rank, due_at_ms=send_at_ms, at_ms=at_ms)
        if send_at_ms is not None and send_at_ms > at_ms:
            self._expect(send_at_ms)
        return await self.letter(letter_id)

    async def cancel(self, letter_id: int) -> LetterView:
        """Take a letter back. Raises Conflict if it is in flight or has ended."""
        await self._store.cancel(letter_id, at_ms=self._clock.wall_ms())
        view = await self.letter(letter_id)
        self._events.tell(_settled(view, Move.CANCEL))
        return view

    async def cancel_all(self, wanted: LetterFilter) -> int:
        """Take back all letters of a filter that wait or are delayed, as far as they were here when this was asked; how many.
        What is in flight goes out."""
        at_ms = self._clock.wall_ms()
        until_ms = at_ms if wanted.until_ms is None else min(at_ms, wanted.until_ms)
        done = 0
        while _may_be_open(wanted):
            here = msgspec.structs.replace(wanted, until_ms=until_ms)
            page = await self._store.cancel_all(here, at_ms=self._clock.wall_ms(), limit=DEAD_PAGE)
            if not page:
                break
            self._events.tell_all([_settled(view, Move.CANCEL) for view in page])
            done += len(page)
        return done

    async def retry(self, letter_id: int) -> LetterView:
        """Send a dead letter again, at the end of its lane."""
        await self._store.retry(letter_id, at_ms=self._clock.wall_ms())
        return await self.letter(letter_id)

    async def resolve(self, letter_id: int, *, arrived: bool) -> LetterView:
        """Say what became of an uncertain letter: it had arrived, or it is to be sent again."""
        await self._store.resolve(letter_id, arrived=arrived, at_ms=self._clock.wall_ms())
        view = await self.letter(letter_id)
        if arrived:
            self._events.tell(_settled(view, Move.RESOLVE))
        return view

    async def retry_dead(self, wanted: LetterFilter) -> int:
        """Send all dead letters of a filter again; how many. In pages, so that nobody waits behind a big commit."""
        return await self._in_pages(self._store.retry_dead, wanted)

    async def clear_dead(self, wanted: LetterFilter) -> int:
        """Clear away all dead letters of a filter; how many. A line of each stays in the message log."""
        return await self._in_pages(self._store.clear_dead, wanted)

    async def _in_pages(self, act: Callable[..., Awaitable[int]], wanted: LetterFilter) -> int:
        at_ms = self._clock.wall_ms()
        done = 0
        while True:
            page = await act(wanted, at_ms=at_ms, limit=DEAD_PAGE)
            done += page
            if page < DEAD_PAGE:
                return done

    async def tallies(self) -> Mapping[int, Tally]:
        return await self._store.tallies(at_ms=self._clock.wall_ms())

    # ---- lanes and chats ----

    async def why(self, view: LetterView) -> str | None:
        """Why a letter is still waiting, as a sentence; None if it has ended."""
        if view.state.is_final:
            return None
        head = await self._store.head_of(view.bot_id, (view.chat, view.thread))
        return self._engine.why(view, head)

    async def lanes(self, bot_id: int, chat: Chat | None, *, limit: int) -> list[tuple[LaneView, str | None]]:
        """Lanes that have letters, each with the reason why its head waits."""
        self.bot(bot_id)
        told = []
        for lane in await self._store.lanes(bot_id, chat, limit=limit):
            head = await self._store.letter(lane.head)
            told.append((lane, None if head is None else self._engine.why(head, lane.head)))
        return told

    async def chats(self, bot_id: int, *, after: Chat | None, limit: int) -> list[ChatRecord]:
        """Chats of which something is known that matters to sending."""
        self.bot(bot_id)
        return await self._store.known_chats(bot_id, after=after, limit=limit)

    async def open_chat(self, bot_id: int, chat: Chat) -> None:
        """A chat that could not be reached may be tried again."""
        self.bot(bot_id)
        await self._store.shut_chat(bot_id, chat, None, at_ms=self._clock.wall_ms())
        self._engine.open_chat(bot_id, chat)

    async def hold_chat(self, bot_id: int, chat: Chat, until_ms: int) -> None:
        """Send nothing to a chat until then; an instant in the past lets it go on at once."""
        self.bot(bot_id)
        await self._store.hold(bot_id, chat, until_ms)
        self._engine.hold_chat(bot_id, chat, until_ms)

    # ---- bots ----

    def bots(self) -> list[BotRecord]:
        return list(self._bots.values())

    def known(self, bot_id: int) -> BotRecord | None:
        """The bot of this id, if there is one. For those who ask thousands of times a second."""
        return self._bots.get(bot_id)

    def bot(self, bot_id: int | None) -> BotRecord:
        """The bot of this id, or the only one there is."""
        known = self._bots.get(bot_id) if bot_id is not None else None
        if known is not None:
            return known
        if bot_id is None:
            if len(self._bots) == 1:  # nearly always, and asked for every letter
                (only,) = self._bots.values()
                if not only.token.is_account:
                    return only
            bots = [bot for bot in self._bots.values() if not bot.token.is_account]  # who means an account says so
            if len(bots) == 1:
                return bots[0]
            if not bots:
                raise NotFound(
                    code="no_bot", detail="No bot is known yet. Add one by its token: `peik bots add` or POST /v1/bots."
                )
            raise BadInput(code="which_bot", detail="There are several bots: say which with bot_id.")
        raise NotFound(
            code="unknown_bot",
            detail=f"Bot {bot_id} is not known here. Add it by its token: `peik bots add` or POST /v1/bots.",
        )

    async def receive_for(self, bot_id: int) -> None:
        """Somebody wants a bot's updates: one that was only sent for until now is polled. A webhook stays what it is."""
        bot = self.bot(bot_id)
        if bot.inbound == "off" and not bot.token.is_account:
            await self.change_bot(bot_id, inbound="polling")

    def _changing(self, bot_id: int) -> asyncio.Lock:
        """Held while a bot's record is read, changed and saved as a whole. Each bot has its own: a thousand that are paused at
        once share a commit, and do not wait for one each."""
        return self._changes.setdefault(bot_id, asyncio.Lock())

    async def note_me(self, bot_id: int, me: str, username: str | None) -> None:
        """Keep what Telegram says of a bot, for the time when it cannot be asked."""
        known = self._bots.get(bot_id)
        if known is None or known.me == me:
            return
        async with self._changing(bot_id):
            # As it is stored: another process may have changed it a moment ago, and nobody asked for this.
            stored = next((bot for bot in await self._store.bots() if bot.bot_id == bot_id), None)
            if stored is not None:
                record = msgspec.structs.replace(stored, me=me, username=username)
                await self._store.save_bot(record)
                self._bots[bot_id] = record

    async def save_bot(self, token: Token, *, inbound: str = "off") -> tuple[BotRecord, bool]:
        """Add a bot, or give a known one its new token. The record, and whether it is new. It is the owner's from now on."""
        self._check_inbound(inbound)
        async with self._changing(token.bot_id):
            saved = await self._save_bot(token, inbound)
            await self.guests.remove(token.bot_id)
            return saved

    async def admit(self, token: Token) -> None:
        """Take a bot that came by itself, and that Telegram knows."""
        async with self._changing(token.bot_id):
            if token.bot_id not in self._bots:
                await self.guests.add(token.bot_id)  # first: if Peik dies in between, nobody is there to be marked
                await self._save_bot(token, "off")

    async def _save_bot(self, token: Token, inbound: str) -> tuple[BotRecord, bool]:
        known = self._bots.get(token.bot_id)
        if known is not None and known.token.is_account:
            raise BadInput(
                code="is_account",
                detail=f"{token.bot_id} is an account of a person, which has no token: mind the number.",
            )
        if known is None:
            record = BotRecord(bot_id=token.bot_id, token=token, inbound=inbound, created_at_ms=self._clock.wall_ms())
        else:
            record = msgspec.structs.replace(known, token=token, inbound=inbound, paused=None)
        await self._keep(record)
        return record, known is None

    async def save_account(self, user_id: int, username: str | None) -> BotRecord:
        """Letters may go out as this account of a person. What its owner set before stays."""
        async with self._changing(user_id):
            known = self._bots.get(user_id)
            if known is None:
                record = BotRecord(
                    bot_id=user_id,
                    token=Token.of_account(user_id),
                    username=username,
                    limits=ACCOUNT_LIMITS,
                    created_at_ms=self._clock.wall_ms(),
                )
            else:
                record = msgspec.structs.replace(known, username=username or known.username)
            if record != known:
                await self._keep(record)
            return record

    async def change_bot(
        self,
        bot_id: int,
        *,
        token: Token | None = None,
        paused: str | msgspec.UnsetType | None = msgspec.UNSET,
        limits: PaceLimits | Mapping[str, float] | msgspec.UnsetType | None = msgspec.UNSET,
        inbound: str | None = None,
        missed: str | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> BotRecord:
        """Pause, resume, rotate the token, set limits: all, some by name, or None for the usual ones. What is not given stays."""
        async with self._changing(bot_id):
            record = self._changed(self.bot(bot_id), token, paused, limits, inbound, missed)
            await self._keep(record)
            return record

    def _changed(
        self,
        record: BotRecord,
        token: Token | None,
        paused: str | msgspec.UnsetType | None,
        limits: PaceLimits | Mapping[str, float] | msgspec.UnsetType | None,
        inbound: str | None,
        missed: str | msgspec.UnsetType | None,
    ) -> BotRecord:
        if record.token.is_account and (token is not None or inbound is not None or missed is not msgspec.UNSET):
            raise BadInput(
                code="is_account",
                detail="This is an account of a person: it has no token, and what it sees goes into the archive.",
            )
        if token is not None:
            if token.bot_id != record.bot_id:
                detail = f"That token belongs to bot {token.bot_id}, not to {record.bot_id}."
                raise BadInput(code="other_bot", detail=detail)
            record = msgspec.structs.replace(record, token=token, paused=None)
        if inbound is not None:
            self._check_inbound(inbound)
            record = msgspec.structs.replace(record, inbound=inbound)
        if missed is not msgspec.UNSET:
            _check_missed(missed)
            record = msgspec.structs.replace(record, missed=missed)
        if paused is not msgspec.UNSET:
            record = msgspec.structs.replace(record, paused=paused)
        if limits is not msgspec.UNSET:
            record = msgspec.structs.replace(record, limits=_changed_limits(record, limits))
        return record

    def _check_inbound(self, inbound: str) -> None:
        if inbound not in INBOUND:
            raise BadInput(code="bad_inbound", detail=f"inbound is one of {', '.join(INBOUND)}.")
        if inbound == "webhook" and not self._defaults.may_be_pushed:
            raise BadInput(
                code="no_public_url",
                detail="For a webhook Telegram must know where to find this Peik: set PEIK_PUBLIC_URL, or use polling.",
            )

    async def _keep(self, record: BotRecord) -> None:
        await self._store.save_bot(record)
        self._bots[record.bot_id] = record
        self._engine.add(record)

    async def remove_bot(self, bot_id: int) -> None:
        """Forget a bot. Raises Conflict while it has letters to send."""
        self.bot(bot_id)
        await self._store.remove_bot(bot_id)
        self._bots.pop(bot_id, None)  # another process may have done the same
        self._engine.remove(bot_id)


_RANK = {int(priority): priority.rank for priority in Priority}
_BULK_RANK = Priority.BULK.rank
_SEND = MethodClass.SEND


def _remove(enclosed: Iterable[Enclosed], remove: RemoveBlobs) -> None:
    gone = [one.blob for one in enclosed]
    if gone:
        remove(gone)


def _bad_priority() -> BadInput:
    return BadInput(code="bad_priority", detail=f"priority is one of {', '.join(map(str, sorted(_RANK)))}.")


def _traced(drafts: Sequence[Draft], accepted: Sequence[AcceptedLetter]) -> tuple[tuple[int, str], ...]:
    # In two steps: most letters answer nothing, and then there is nothing to pair.
    if not [draft for draft in drafts if draft.trace is not None]:
        return ()
    return tuple(
        (one.letter_id, draft.trace)
        for draft, one in zip(drafts, accepted, strict=True)
        if draft.trace is not None and not one.is_repeat
    )


def _may_be_open(wanted: LetterFilter) -> bool:
    return wanted.state in (None, State.WAITING, State.DELAYED)


def _has_usual_terms(call: LetterCall) -> bool:
    """Most calls: nothing but a method, parameters and perhaps a priority."""
    return (
        call.attempts is None
        and call.backoff_ms is None
        and call.timeout_ms is None
        and call.send_at_ms is None
        and call.expires_at_ms is None
        and call.on_uncertain is None
        and call.idempotency_key is None
        and call.metadata is None
        and not call.enclosed
        and call.hook is None
        and call.backoff is Backoff.EXPONENTIAL
    )


def _changed_limits(record: BotRecord, limits: PaceLimits | Mapping[str, float] | None) -> PaceLimits | None:
    if limits is None:
        return ACCOUNT_LIMITS if record.token.is_account else None
    if not isinstance(limits, PaceLimits):
        limits = msgspec.structs.replace(record.limits or record.usual_limits, **limits)
    figures = msgspec.structs.asdict(limits)
    if any(not 0 < figures[name] <= LIMIT_MAX for name in figures if name != "is_on"):
        raise BadInput(code="bad_limits", detail=f"Every limit is above 0 and at most {LIMIT_MAX}.")
    return limits


def _check_missed(missed: str | None) -> None:
    if missed is not None and missed not in MISSED:
        raise BadInput(code="bad_missed", detail=f"missed is one of {', '.join(MISSED)}, or null for the setting.")


def _settled(view: LetterView, move: Move) -> Settled:
    return Settled(
        bot_id=view.bot_id,
        letter_id=view.id,
        method=view.method,
        chat=view.chat,
        move=move,
        state=view.state,
        reason=view.failed_reason,
        uncertain_tries=view.uncertain_tries,
        trace=view.trace,
    )


def _is_too_late(call: LetterCall, at_ms: int) -> bool:
    """Under a key the store decides: whoever asks again after an answer was lost must hear what became of the first."""
    return call.expires_at_ms is not None and call.expires_at_ms <= at_ms


def check_tries(attempts: int | None, backoff_ms: int | None, timeout_ms: int | None) -> None:
    bounds: tuple[tuple[str, int | None, int, int], ...] = (
        ("attempts", attempts, 1, ATTEMPTS_MAX),
        ("backoff_ms", backoff_ms, 0, BACKOFF_MS_LIMIT),
        ("timeout_ms", timeout_ms, 1, TIMEOUT_MS_LIMIT),
    )
    for name, value, least, most in bounds:
        if value is not None and not least <= value <= most:
            raise BadInput(code=f"bad_{name}", detail=f"{name} must be between {least} and {most}.")


def _check_terms(call: LetterCall, at_ms: int) -> None:
    check_tries(call.attempts, call.backoff_ms, call.timeout_ms)
    if _is_too_late(call, at_ms) and call.idempotency_key is None:
        raise BadInput(code="already_expired", detail="expires_at is in the past.")
    if call.send_at_ms is not None and call.expires_at_ms is not None and call.send_at_ms >= call.expires_at_ms:
        raise BadInput(code="expires_before_sent", detail="expires_at is before send_at: it could never be sent.")
    if call.idempotency_key is not None and not 0 < len(call.idempotency_key) <= KEY_CHARS_MAX:
        raise BadInput(code="bad_idempotency_key", detail=f"An idempotency key has 1 to {KEY_CHARS_MAX} characters.")


def _labels(metadata: bytes | None) -> dict[str, str]:
    """The two fields of the metadata that letters can be found by, also as JavaScript writes them."""
    if metadata is None:
        return {}
    if len(metadata) > METADATA_BYTES_MAX:
        raise BadInput(code="metadata_too_large", detail=f"Metadata holds at most {METADATA_BYTES_MAX} bytes of JSON.")
    try:
        fields = msgspec.json.decode(metadata, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadInput(code="bad_metadata", detail="metadata must be a JSON object.") from None
    return {
        name: str(fields[key])
        for name, key in (
            ("user_id", "userId"),
            ("user_id", "user_id"),
            ("message_type", "messageType"),
            ("message_type", "message_type"),
        )
        if fields.get(key) is not None
    }


def _written(value: object) -> object:
    """A parameter as a form would carry it, which is how Telegram reads it: a number and its text are one."""
    value = opened(value)
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def _digest(call: LetterCall, method: str) -> str:
    """Equal for the same call, whatever the order and the encoding of its parameters."""
    given = msgspec.json.decode(call.params, type=dict[str, object])
    params = msgspec.json.encode({name: _written(value) for name, value in given.items()}, order="sorted").decode()
    files = []
    for one in call.enclosed:
        # Libraries name an attached file anew for every request (aiogram, python-telegram-bot): its content is what counts.
        attached = rf'attach://{re.escape(one.field)}(?=["\\])'
        params, uses = re.subn(attached, f"attach://{one.digest}", params)
        files.append(one.digest if uses else f"{one.field}={one.digest}")
    whole = "\0".join((method, params, ";".join(sorted(files))))
    # SHA-256, since PostgreSQL has it as well: a key holds for every caller, the outbox in SQL among them.
    return hashlib.sha256(whole.encode()).hexdigest()[:32]
