"""Forgets people: everything that doors may ask of it, and the engine that ends what was begun.

An act is a few passes over all places until one finds nothing; what is in use just now (a letter in flight, a job that runs) is
left and looked for again. On a running Peik a last look comes a while later, for what was in somebody's hands meanwhile."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from peik.clock import Clock
from peik.core.documents import DocumentStore, Filing, StoredDocument
from peik.core.events import Events, StoreFailed, Surprise
from peik.erasure.model import ErasedCounts, ErasedPerson, Found, added, is_clean, is_over
from peik.erasure.parts import COLLECTION
from peik.erasure.store import ErasurePart, Forgetting
from peik.errors import BadInput, Conflict, NotFound, Unavailable, described
from peik.wakeup import Wakeup

# Acts of forgetting, on document. An act is filed before its work begins, so that the next process can end it; once
# it is over it says what was done and no longer to whom.


PAGE = 500
SECRET = "forgetting"  # noqa: S105  under this name the store keeps what the marks of persons are made with
_MARK_CHARS = 24


class Act(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # rises with time
    mark: str  # of the person: the same one has the same, and nobody can tell who it is without the store's own secret
    who: str  # asked for it
    begun_at_ms: int
    user_id: int | None = None  # None: it is over, and nobody knows any more
    names: tuple[str, ...] = ()
    bot_id: int | None = None
    ended_at_ms: int | None = None
    looks_at_ms: int = 0  # not again before
    found: dict[str, ErasedCounts] = {}

    @property
    def is_over(self) -> bool:
        return self.ended_at_ms is not None

    @property
    def person(self) -> ErasedPerson:
        assert self.user_id is not None, "it is over"
        return ErasedPerson(user_id=self.user_id, names=frozenset(self.names), bot_id=self.bot_id)


class Acts:
    def __init__(self, documents: DocumentStore, *, secret: Callable[[str, str], Awaitable[str]]) -> None:
        """`secret`: what the store keeps under a name, or keeps from now on."""
        self._documents = documents
        self._secret = secret

    async def mark_of(self, user_id: int) -> str:
        key = await self._secret(SECRET, secrets.token_hex(32))
        return hmac.new(key.encode(), str(user_id).encode(), hashlib.sha256).hexdigest()[:_MARK_CHARS]

    async def begin(self, person: ErasedPerson, *, who: str, at_ms: int) -> Act:
        """Durable from here on. An act about the same person that is still open is gone on with."""
        for act in await self.open():
            if (act.user_id, act.bot_id) == (person.user_id, person.bot_id):
                known = msgspec.structs.replace(act, names=tuple(sorted({*act.names, *person.names})), looks_at_ms=0)
                await self._file(known, version=None)
                return known
        act = Act(
            id=f"{at_ms:014d}-{secrets.token_hex(4)}",
            mark=await self.mark_of(person.user_id),
            who=who,
            begun_at_ms=at_ms,
            user_id=person.user_id,
            names=tuple(sorted(person.names)),
            bot_id=person.bot_id,
        )
        await self._file(act, version=0)
        return act

    async def go_on(self, act: Act, found: Found, *, looks_at_ms: int) -> Act:
        known = msgspec.structs.replace(act, found=added([act.found, _done(found)]), looks_at_ms=looks_at_ms)
        await self._file(known, version=None)
        return known

    async def end(self, act: Act, found: Found, *, at_ms: int) -> Act:
        """From here on nobody knows whom it was about."""
        over = msgspec.structs.replace(
            act, found=added([act.found, _done(found)]), user_id=None, names=(), ended_at_ms=at_ms
        )
        await self._file(over, version=None)
        return over

    async def open(self) -> list[Act]:
        return [act for act in await self.all() if not act.is_over]

    async def all(self) -> list[Act]:
        """The oldest first."""
        found: list[Act] = []
        after: str | None = None
        while page := await self._documents.documents(COLLECTION, after=after, limit=PAGE):
            after = page[-1].key
            found += [_read(document) for document in page]
        return found

    async def sweep(self, *, before_ms: int) -> None:
        """Acts that were over before then are of no use to anybody."""
        old = [act for act in await self.all() if act.ended_at_ms is not None and act.ended_at_ms < before_ms]
        if old:
            await self._documents.file([Filing(collection=COLLECTION, key=act.id, body=None) for act in old])

    async def _file(self, act: Act, *, version: int | None) -> None:
        body = msgspec.json.encode(act).decode()
        try:
            await self._documents.file([Filing(collection=COLLECTION, key=act.id, body=body, version=version)])
        except Conflict:
            raise AssertionError(f"two acts have the id {act.id}") from None


def _done(found: Found) -> Found:
    """What is left is counted when it goes."""
    return {place: msgspec.structs.replace(gone, left=0) for place, gone in found.items()}


def _read(document: StoredDocument) -> Act:
    return msgspec.json.decode(document.body, type=Act)


PASSES_MAX = 5
LOOK_S = 30.0  # for what was left
IDLE_S = 3600.0  # for what another process began and did not end
LAST_LOOK_S = (
    600.0  # so long somebody may have had something of the person's in hand: a try of a letter, a handler, a batch
)
KEEP_MS = 90 * 86_400_000
USER_ID_MAX = 2**52
_NAME_CHARS_MAX = 64


class StillHeld(msgspec.Struct, frozen=True, kw_only=True):
    """A backup from before, which still holds what was removed. It is never changed."""

    path: str
    made_at_ms: int
    goes_at_ms: int | None  # when rotation takes it, if backups are made by the clock; None: when somebody removes it


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`id` None: it was only looked at. `is_over` False: something is left, or the last look is to come."""

    id: str | None
    mark: str
    is_over: bool
    found: Found
    notes: tuple[str, ...] = ()
    backups: tuple[StillHeld, ...] = ()

    @property
    def count(self) -> int:
        return sum(gone.removed + gone.blanked for gone in self.found.values())


class PeopleLookup(msgspec.Struct, frozen=True, kw_only=True):
    """Who is who, by the links of the caller's own users."""

    names_of: Callable[[int], Awaitable[frozenset[str]]]
    chat_of: Callable[[str], Awaitable[int | None]]


class Eraser:
    def __init__(
        self,
        *,
        acts: Acts,
        of_bots: Sequence[ErasurePart],
        of_all: dict[str, ErasurePart],
        people: PeopleLookup,
        store: Forgetting,
        backups: Callable[[], Awaitable[list[StillHeld]]],
        is_known_bot: Callable[[int], bool],
        clock: Clock,
        settled: Clock,
        events: Events,
        is_live: bool,
    ) -> None:
        """`of_bots`: what belongs to a bot; `of_all`: the rest, by name, which is left alone if only one bot is to forget. The
        logs come last, since what is done here is told there."""
        self._acts = acts
        self._of_bots = of_bots
        self._of_all = of_all
        self._people = people
        self._store = store
        self._backups = backups
        self._is_known_bot = is_known_bot
        self._clock = clock
        self._settled = settled
        self._events = events
        self._is_live = is_live
        self._one_at_a_time = asyncio.Lock()
        self._bell = Wakeup()
        self._task: asyncio.Task[None] | None = None

    def join(self, name: str, part: ErasurePart) -> None:
        """Somebody else who keeps something of people."""
        self._of_all = {name: part, **self._of_all}

    # ---- what doors ask ----

    async def person(self, *, user_id: int | None, name: str | None = None, bot_id: int | None = None) -> ErasedPerson:
        """Who is meant. Raises BadInput, NotFound."""
        if (user_id is None) is (name is None):
            raise BadInput(code="bad_person", detail="Say who: a Telegram user id, or your own name of a linked user.")
        if name is not None:
            user_id = await self._people.chat_of(name) if 0 < len(name) <= _NAME_CHARS_MAX else None
            if user_id is None:
                raise NotFound(
                    code="unknown_user", detail="No chat is linked to a user of this name. Give the user id."
                )
        assert user_id is not None
        if not 0 < user_id < USER_ID_MAX:
            raise BadInput(code="bad_person", detail="A Telegram user id is a positive number. Groups are not people.")
        if bot_id is not None and not self._is_known_bot(bot_id):
            raise NotFound(code="unknown_bot", detail=f"There is no bot {bot_id} here.")
        names = await self._people.names_of(user_id) | ({name} if name is not None else set())
        return ErasedPerson(user_id=user_id, names=names, bot_id=bot_id)

    async def look(self, person: ErasedPerson) -> Report:
        """What is here of somebody, and would go. Changes nothing."""
        found = await self._pass(person, is_dry=True)
        mark = await self._acts.mark_of(person.user_id)
        return Report(id=None, mark=mark, is_over=False, found=found, backups=await self._held())

    async def forget(self, person: ErasedPerson, *, who: str) -> Report:
        """What was done. If it breaks off, by a crash or because a store does not answer, a running Peik goes on with it."""
        act = await self._acts.begin(person, who=who, at_ms=self._clock.wall_ms())
        async with self._one_at_a_time:
            act, left, notes = await self._work(act)
        self._bell.ring()
        found = {place: msgspec.structs.replace(gone, left=left[place].left) for place, gone in act.found.items()}
        return Report(
            id=act.id, mark=act.mark, is_over=act.is_over, found=found, notes=tuple(notes), backups=await self._held()
        )

    async def _held(self) -> tuple[StillHeld, ...]:
        return tuple(await self._backups())

    # ---- the engine: under the lease of the chores ----

    def start(self, group: asyncio.TaskGroup) -> None:
        self.stop()
        self._task = group.create_task(self._run(), name="forgetting")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            wait_s = LOOK_S
            try:
                wait_s = LOOK_S if await self.go_on() else IDLE_S
            except Unavailable as error:
                self._events.tell(StoreFailed(what="forgetting a person", why=error.detail))
            except Exception as error:  # noqa: BLE001  told of; the act is open, and is tried again
                self._events.tell(Surprise(where="forgetting a person", error=described(error)))
            await self._bell.wait(self._clock.mono() + wait_s)

    async def go_on(self) -> bool:
        """All that was begun and is due. Whether there is more to come."""
        for act in await self._acts.open():
            if act.looks_at_ms <= self._clock.wall_ms():
                async with self._one_at_a_time:
                    await self._work(act)
        await self._acts.sweep(before_ms=self._settled.wall_ms() - KEEP_MS)
        return bool(await self._acts.open())

    # ---- the work ----

    async def _work(self, act: Act) -> tuple[Act, Found, list[str]]:
        """The act as it stands then, what the last pass found, and what people should know."""
        await self._store.overwrite(is_on=True)
        try:
            found = [await self._pass(act.person, is_dry=False)]
            while not is_clean(found[-1]) and is_over(found[-1]) and len(found) < PASSES_MAX:
                found.append(await self._pass(act.person, is_dry=False))
            whole = added(found)
            act = await self._filed(act, whole, is_over=is_over(found[-1]))
        finally:
            await self._store.overwrite(is_on=False)
        notes = [] if is_clean(whole) else await self._store.wipe(is_alone=not self._is_live)
        return act, found[-1], notes

    async def _filed(self, act: Act, found: Found, *, is_over: bool) -> Act:
        """The act as it stands after some passes: over, if there is nothing that could come after them."""
        now_ms = self._clock.wall_ms()
        if not is_over:
            return await self._acts.go_on(act, found, looks_at_ms=now_ms + int(LOOK_S * 1000))
        if self._is_live and (not act.found or not is_clean(found)):
            return await self._acts.go_on(act, found, looks_at_ms=now_ms + int(LAST_LOOK_S * 1000))
        return await self._acts.end(act, found, at_ms=now_ms)

    async def _pass(self, person: ErasedPerson, *, is_dry: bool) -> Found:
        parts = [*self._of_bots, *(self._of_all.values() if person.bot_id is None else ())]
        return added([await part.forget(person, is_dry=is_dry) for part in parts])
