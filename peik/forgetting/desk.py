"""Forgets people: everything that doors may ask of it, and the engine that ends what was begun.

An act is a few passes over all places until one finds nothing; what is in use just now (a letter in flight, a job that runs) is
left and looked for again. On a running Peik a last look comes a while later, for what was in somebody's hands meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from peik.bell import Bell
from peik.clock import Clock
from peik.core.forgetting import Found, Person, added, is_clean, is_over
from peik.errors import BadInput, NotFound, Unavailable, described
from peik.events import Events, StoreFailed, Surprise
from peik.forgetting.acts import Act, Acts
from peik.forgetting_ports import Forgetting, Part

PASSES_MAX = 5
LOOK_S = 30.0  # for what was left
IDLE_S = 3600.0  # for what another process began and did not end
LAST_LOOK_S = (
    600.0  # so long somebody may have had something of the person's in hand: a try of a letter, a handler, a batch
)
KEEP_MS = 90 * 86_400_000
USER_ID_MAX = 2**52
_NAME_CHARS_MAX = 64


class Held(msgspec.Struct, frozen=True, kw_only=True):
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
    backups: tuple[Held, ...] = ()

    @property
    def count(self) -> int:
        return sum(gone.removed + gone.blanked for gone in self.found.values())


class People(msgspec.Struct, frozen=True, kw_only=True):
    """Who is who, by the links of the caller's own users."""

    names_of: Callable[[int], Awaitable[frozenset[str]]]
    chat_of: Callable[[str], Awaitable[int | None]]


class Forgetter:
    def __init__(
        self,
        *,
        acts: Acts,
        of_bots: Sequence[Part],
        of_all: dict[str, Part],
        people: People,
        store: Forgetting,
        backups: Callable[[], Awaitable[list[Held]]],
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
        self._bell = Bell()
        self._task: asyncio.Task[None] | None = None

    def join(self, name: str, part: Part) -> None:
        """Somebody else who keeps something of people."""
        self._of_all = {name: part, **self._of_all}

    # ---- what doors ask ----

    async def person(self, *, user_id: int | None, name: str | None = None, bot_id: int | None = None) -> Person:
        """Whoever is meant. Raises BadInput, NotFound."""
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
        return Person(user_id=user_id, names=names, bot_id=bot_id)

    async def look(self, person: Person) -> Report:
        """What is here of somebody, and would go. Changes nothing."""
        found = await self._pass(person, is_dry=True)
        mark = await self._acts.mark_of(person.user_id)
        return Report(id=None, mark=mark, is_over=False, found=found, backups=await self._held())

    async def forget(self, person: Person, *, who: str) -> Report:
        """What was done. If it breaks off, by a crash or because a store does not answer, a running Peik goes on with it."""
        act = await self._acts.begin(person, who=who, at_ms=self._clock.wall_ms())
        async with self._one_at_a_time:
            act, left, notes = await self._work(act)
        self._bell.ring()
        found = {place: msgspec.structs.replace(gone, left=left[place].left) for place, gone in act.found.items()}
        return Report(
            id=act.id, mark=act.mark, is_over=act.is_over, found=found, notes=tuple(notes), backups=await self._held()
        )

    async def _held(self) -> tuple[Held, ...]:
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

    async def _pass(self, person: Person, *, is_dry: bool) -> Found:
        parts = [*self._of_bots, *(self._of_all.values() if person.bot_id is None else ())]
        return added([await part.forget(person, is_dry=is_dry) for part in parts])
