"""Updates of a person that is forgotten. An arrival keeps its place, so that every reader's cursor stays right; its content goes.

What the person wrote or did, in private or in a group, is emptied, and nobody is handed it any more. Where somebody else's update
names them (a reply that quotes them, a join that somebody else brought about), only they are taken out of it."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence

from peik.clock import Clock
from peik.core.arrival import FORGOTTEN_LANE
from peik.core.forgetting import Found, Gone, Person, hollow, names, scrubbed
from peik.core.letter import State
from peik.core.spans import Span, spans_of
from peik.forgetting_ports import Blank, Forgetting
from peik.inbox_ports import ArrivalFilter, ArrivalView, InboxStore

PAGE = 200
_OPEN = (State.WAITING, State.DELAYED)


class ArrivalsPart:
    """The port `Part`."""

    def __init__(self, inbox: InboxStore, forgetting: Forgetting, *, clock: Clock) -> None:
        self._inbox = inbox
        self._forgetting = forgetting
        self._clock = clock

    async def forget(self, person: Person, *, is_dry: bool) -> Found:
        blanked, before = 0, None
        while True:
            page = await self._inbox.find_arrivals(ArrivalFilter(bot_id=person.bot_id), before=before, limit=PAGE)
            theirs = [view for view in page if _is_theirs(person, view)]
            named = [view for view in page if not _is_theirs(person, view) and _is_named(person, view)]
            if not is_dry and (theirs or named):
                await self._end(theirs)
                blanks = [_blank(person, view, is_theirs=True) for view in theirs]
                blanks += [_blank(person, view, is_theirs=False) for view in named]
                blanked += await self._forgetting.blank_arrivals(blanks, person=person)
            elif is_dry:
                blanked += len(theirs) + len(named)
            if len(page) < PAGE:
                return {"arrivals": Gone(blanked=blanked)}
            before = page[-1].arrival.id

    async def _end(self, views: Sequence[ArrivalView]) -> None:
        """They are over for everybody who has not had them yet: there is nothing left in them to hand on."""
        open_for: dict[tuple[int, str], list[int]] = defaultdict(list)
        for view in views:
            for one in view.deliveries:
                if one.state in _OPEN:
                    open_for[view.arrival.bot_id, one.consumer].append(view.arrival.number)
        if not open_for:
            return
        ids = {(one.bot_id, one.name): one.id for one in await self._inbox.consumers()}
        for whose, numbers in open_for.items():
            if whose in ids:
                over: Sequence[Span] = spans_of(sorted(numbers))
                await self._inbox.settle_arrivals(ids[whose], over=over, at_ms=self._clock.wall_ms())


def _is_theirs(person: Person, view: ArrivalView) -> bool:
    arrival = view.arrival
    return arrival.lane != FORGOTTEN_LANE and (arrival.user_id == person.user_id or person.is_chat(arrival.lane))


def _is_named(person: Person, view: ArrivalView) -> bool:
    told = [text for one in view.deliveries for text in (one.failed_reason, one.history)]
    return names(person, view.arrival.payload, *told)


def _blank(person: Person, view: ArrivalView, *, is_theirs: bool) -> Blank:
    payload = view.arrival.payload
    left = hollow(person, payload) if is_theirs else scrubbed(person, payload)
    return Blank(arrival_id=view.arrival.id, payload=left, is_theirs=is_theirs)


class TracesPart:
    """What bots know of the private chat with a person: the port `Part`.

    Nothing is kept that would hold Peik back from writing to them again: a list of those who must not be written to would be a
    record of them. Whoever blocked the bot is protected by Telegram, which refuses each letter, and the first refusal shuts the
    chat again."""

    def __init__(
        self, forgetting: Forgetting, *, bots: Callable[[], Iterable[int]], reread: Callable[[int], Awaitable[None]]
    ) -> None:
        """`reread`: whoever sends for a bot here looks anew what is known of its chats."""
        self._forgetting = forgetting
        self._bots = bots
        self._reread = reread

    async def forget(self, person: Person, *, is_dry: bool) -> Found:
        ask = self._forgetting.traces if is_dry else self._forgetting.drop_traces
        found = {"contacts": Gone(), "chats": Gone(), "handled": Gone()}
        for bot_id in self._bots():
            if person.bot_id in (None, bot_id):
                gone = await ask(bot_id, person.user_id)
                found["contacts"] += Gone(removed=gone.contacts)
                found["chats"] += Gone(removed=gone.chats)
                found["handled"] += Gone(removed=gone.handled)
                if gone.chats and not is_dry:
                    await self._reread(bot_id)
        return found
