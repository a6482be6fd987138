"""Everything that callers may ask of the inbox. Rules that all of them share are here."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from peik.clock import Clock
from peik.core.address import AddressReach, read_address
from peik.core.arrival import DEFAULT_CONSUMER, WIRE_ID_MAX, Arrival, ConsumerProgress, expires_at_ms, number_near
from peik.core.events import Arrived, Events, HandedOn
from peik.core.letter import State
from peik.errors import BadInput, Conflict, NotFound
from peik.inbox.delivery import AsTold, as_they_came
from peik.inbox.handed import LIKELY_S, AnswerJudge, Handed
from peik.inbox.outages import NoOutages, OutagePort
from peik.inbox.readers import HangsUp, NoRunners, Readers, Runners, Stream, Waiting, types_of
from peik.inbox.store import (
    STATES,
    ArrivalDelivery,
    ArrivalFilter,
    ArrivalView,
    Consumer,
    ConsumerKind,
    InboxState,
    InboxStore,
    InboxTally,
    check_name,
)

REPLAY_PAGE = 500
DEAD_PAGE = 500
SEEN_MAX = 10_000
CONSUMERS_MAX = 100
CONNECTIONS_LIMIT = 100  # as at Telegram
SECRET_CHARS_MAX = 256
_CURSOR = re.compile(r"([0-9]{1,18})-([0-9]{1,18})", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass over everything that Telegram has kept brought in."""

    bot_id: int
    found: int
    stored: int
    duplicates: int
    expired: int | None  # None: the ids do not allow to know
    took_s: float


class InboxView(msgspec.Struct, frozen=True, kw_only=True):
    """How a bot's inbox stands. `state` is None before its source was ever open."""

    bot_id: int
    state: InboxState | None
    tallies: tuple[InboxTally, ...]
    expires_at_ms: int | None = None  # when the oldest update that may wait at Telegram is lost


_NOT_INSIDE = (
    "Updates go there only for bots that were added here by their token (PEIK_BOT_TOKENS, `peik bots add` "
    "or POST /v1/bots), or with PEIK_PUSHES_ALLOW_PRIVATE=on."
)


async def anywhere(bot_id: int) -> AddressReach:
    """Of one that pushes nothing itself."""
    return AddressReach.ANYWHERE


def never(bot_id: int) -> float:
    """Of one whose pollers are believed what they confirm."""
    return 0.0


class InboxService:
    def __init__(
        self,
        *,
        store: InboxStore,
        clock: Clock,
        events: Events,
        missed_after_s: float,
        runners: Runners | None = None,
        outages: OutagePort | None = None,
        recover: Callable[[int], Awaitable[Recovery]] | None = None,
        reach_of: Callable[[int], Awaitable[AddressReach]] = anywhere,
        likely_s: float = LIKELY_S,
        redelivery_s: Callable[[int], float] = never,
        consumers_max: int = CONSUMERS_MAX,
        as_told: AsTold = as_they_came,
    ) -> None:
        """`consumers_max`: how many a bot may have besides the default one. What is in a store costs every look at it."""
        self._store = store
        self._clock = clock
        self._events = events
        self._runners = runners or NoRunners()
        self._recover = recover
        self._reach_of = reach_of
        self._as_told = as_told
        self._consumers_max = consumers_max
        self._waiting = Waiting(events=events)
        self.handed = Handed(clock=clock, likely_s=likely_s)
        events.listen(self.handed.listen, HandedOn)
        self.answers = AnswerJudge(clock=clock)
        events.listen(self.answers.listen, HandedOn)
        self._readers = Readers(
            store=store,
            clock=clock,
            waiting=self._waiting,
            runners=self._runners,
            outages=outages or NoOutages(),
            missed_after_s=missed_after_s,
            consumers_max=consumers_max,
            events=events,
            redelivery_s=redelivery_s,
        )
        self._settling: asyncio.Task[None] | None = None
        self._last_id: int | None = None

    def open(self, group: asyncio.TaskGroup) -> None:
        self._settling = group.create_task(self._readers.settle())

    # ---- arrivals ----

    async def arrivals(self, wanted: ArrivalFilter, *, before: int | None, limit: int) -> list[ArrivalView]:
        """Arrivals by a filter, the newest first, each with how it stands with the consumers."""
        _check_state(wanted.state)
        views = await self._store.find_arrivals(wanted, before=before, limit=limit)
        return [self._with_active(view) for view in views]

    async def arrival(self, arrival_id: int) -> ArrivalView:
        view = await self._store.arrival(arrival_id)
        if view is None:
            raise NotFound(code="unknown_arrival", detail=f"There is no arrival {arrival_id} here (any more).")
        (told,) = await self._as_told(view.arrival.bot_id, [view.arrival])
        return self._with_active(msgspec.structs.replace(view, arrival=told))

    def _with_active(self, view: ArrivalView) -> ArrivalView:
        """The store does not know who is at work on what; whoever runs the handlers does."""
        deliveries = tuple(self._delivery(view.arrival, delivery) for delivery in view.deliveries)
        return view if deliveries == view.deliveries else msgspec.structs.replace(view, deliveries=deliveries)

    def _delivery(self, arrival: Arrival, delivery: ArrivalDelivery) -> ArrivalDelivery:
        is_open = delivery.state in (State.WAITING, State.DELAYED)
        if is_open and self._is_in_hand(arrival, delivery.consumer):
            return msgspec.structs.replace(delivery, state=State.ACTIVE)
        return delivery

    def _is_in_hand(self, arrival: Arrival, consumer: str) -> bool:
        hand = self._readers.hand(arrival.bot_id, consumer)
        is_handed = hand is not None and arrival.number in hand.handed(self._clock.mono())
        return is_handed or arrival.number in self._runners.in_hand(arrival.bot_id, consumer)

    async def count(self, wanted: ArrivalFilter) -> int:
        _check_state(wanted.state)
        return await self._store.count_arrivals(wanted)

    async def note_handled(self, bot_id: int, messages: Sequence[tuple[int, int]]) -> int:
        """(chat id, message id) of what a program has handled itself: over for the default consumer, here already or
        not. How many were here."""
        if len(messages) > SEEN_MAX:
            raise BadInput(code="too_many", detail=f"At most {SEEN_MAX} messages at once; send several requests.")
        return await self._store.note_handled(bot_id, messages, at_ms=self._clock.wall_ms()) if messages else 0

    # ---- dead arrivals ----

    async def retry(self, arrival_id: int, consumer: str | None = None) -> ArrivalView:
        """Hand a dead arrival on once more, at the end of its lane, to the consumer that gave it up: the new arrival."""
        view = await self.arrival(arrival_id)
        dead = [
            one.consumer for one in view.deliveries if one.state is State.FAILED and consumer in (None, one.consumer)
        ]
        if not dead:
            raise Conflict(code="not_dead", detail=f"Arrival {arrival_id} is not dead. Replay it to hand it on again.")
        if len(dead) > 1:
            names = ", ".join(dead)
            raise BadInput(code="which_consumer", detail=f"Several consumers gave it up; say which: {names}.")
        number = view.arrival.number
        wanted = ArrivalFilter(
            bot_id=view.arrival.bot_id, consumer=dead[0], first_number=number, last_number=number, state=State.FAILED
        )
        made = await self._store.retry_dead_arrivals(wanted, at_ms=self._clock.wall_ms(), limit=1)
        if not made:
            raise Conflict(code="not_dead", detail=f"Arrival {arrival_id} is not dead any more.")
        await self._tell_new([view.arrival.bot_id])
        return await self.arrival(made[0])

    async def retry_dead(self, wanted: ArrivalFilter) -> int:
        """Hand all dead arrivals of a filter on once more; how many. In pages, so that nobody waits behind them."""
        at_ms = self._clock.wall_ms()
        done = 0
        while True:
            made = await self._store.retry_dead_arrivals(wanted, at_ms=at_ms, limit=DEAD_PAGE)
            done += len(made)
            if made:
                await self._tell_new(await self._bots_of(wanted))
            if len(made) < DEAD_PAGE:
                return done

    async def clear_dead(self, wanted: ArrivalFilter) -> int:
        """Forget that arrivals of a filter were given up; how many. The arrivals stay as long as any others."""
        done = 0
        while True:
            page = await self._store.clear_dead_arrivals(wanted, limit=DEAD_PAGE)
            done += page
            if page < DEAD_PAGE:
                return done

    # ---- replay ----

    async def replay(self, wanted: ArrivalFilter, consumer: str) -> int:
        """Hand arrivals of a filter to one consumer once more, with new numbers; how many."""
        done, cursor = 0, None
        while True:
            count, cursor = await self.replay_page(wanted, consumer, cursor=cursor)
            done += count
            if cursor is None:
                return done

    async def replay_page(
        self, wanted: ArrivalFilter, consumer: str, *, cursor: str | None, limit: int | None = None
    ) -> tuple[int, str | None]:
        """One page of a replay, a commit of its own: how many, and the cursor of the next; None when it is done.

        The cursor knows what was the newest arrival when the replay began, so that replays which are made on the way, by
        this one or another, are not replayed.
        """
        target = await self.consumer(_bot_of(wanted), consumer)
        after, up_to = (0, await self._store.last_arrival_id()) if cursor is None else _places(cursor)
        count, last = await self._store.replay(
            _as_of(wanted, consumer),
            target.id,
            after=after,
            up_to=up_to,
            limit=REPLAY_PAGE if limit is None else limit,
            at_ms=self._clock.wall_ms(),
        )
        if count:
            await self._tell_new([target.bot_id])
        return count, None if last is None else f"{last}-{up_to}"

    async def count_replay(self, wanted: ArrivalFilter, consumer: str) -> int:
        """How many a replay would hand on: the dry run."""
        await self.consumer(_bot_of(wanted), consumer)
        return await self._store.count_arrivals(msgspec.structs.replace(_as_of(wanted, consumer), is_original=True))

    # ---- consumers ----

    async def consumers(self, bot_id: int | None = None) -> list[Consumer]:
        return await self._store.consumers(bot_id)

    async def set_consumer(
        self,
        bot_id: int,
        name: str,
        *,
        url: str | None,
        secret: str | None = None,
        allowed: Sequence[str] | None = None,
        connections_max: int | None = None,
    ) -> Consumer:
        """Push a consumer's arrivals to an address, or with None let it read for itself again. What is not given stays,
        but for a secret: that belongs to the address. Whoever reads for it just now is sent away."""
        check_name(name)
        if connections_max is not None and not 1 <= connections_max <= CONNECTIONS_LIMIT:
            raise BadInput(code="bad_max_connections", detail=f"max_connections is between 1 and {CONNECTIONS_LIMIT}.")
        if secret is not None and _SECRET.fullmatch(secret) is None:
            raise BadInput(
                code="bad_secret", detail=f"A secret has 1 to {SECRET_CHARS_MAX} characters out of A-Z a-z 0-9 _ -."
            )
        if url is not None:
            url = read_address(url, reach=await self._reach_of(bot_id), hint=_NOT_INSIDE)
            if await self._runners.is_handled(bot_id, name):
                raise Conflict(code="handler_active", detail=f"Handlers in a program take the arrivals of {name}.")
        async with self._readers.changing:
            old = await self._store.ensure_consumer(bot_id, name, at_ms=self._clock.wall_ms(), most=self._consumers_max)
            kind = ConsumerKind.PUSH if url is not None else old.kind
            new = msgspec.structs.replace(
                old,
                kind=ConsumerKind.NONE if url is None and old.kind is ConsumerKind.PUSH else kind,
                url=url,
                secret=secret,
                allowed=old.allowed if allowed is None else types_of(allowed),
                connections_max=connections_max or old.connections_max,
            )
            await self._store.save_consumer(new)
        if url is not None:
            self._waiting.dismiss(old.id, _webhook_set())
            await self._readers.let_go(bot_id, name)
        self._runners.look()
        return new

    async def remove_consumer(self, bot_id: int, name: str) -> None:
        """Forget a consumer and how far it was. Arrivals are not kept for it any more."""
        if name == DEFAULT_CONSUMER:
            raise BadInput(code="default_consumer", detail="Every bot has its default consumer. It can be set again.")
        consumer = await self.consumer(bot_id, name)
        await self._store.remove_consumer(consumer.id)
        await self._readers.let_go(bot_id, name)
        self._readers.forget(consumer.id)
        self._waiting.dismiss(consumer.id, _removed(name))
        self._runners.look()

    async def acknowledge(
        self, bot_id: int, name: str, *, up_to: int | None = None, update_id: int | None = None
    ) -> ConsumerProgress:
        """Everything up to a number, or up to an update as a bot got it, is over for a consumer: committed when this
        returns. Numbers that are not there yet cannot be acknowledged."""
        consumer = await self.consumer(bot_id, name)
        if update_id is not None:
            if not 0 <= update_id <= WIRE_ID_MAX:
                raise BadInput(code="bad_update_id", detail="No update was ever handed on under this id.")
            up_to = number_near(update_id, near=consumer.progress.watermark)
        if up_to is None:
            raise BadInput(code="which_number", detail="Say up to which number, or up to which update_id.")
        state = await self._store.inbox(bot_id)
        newest = 0 if state is None else state.last_number
        if up_to > newest:
            raise BadInput(code="bad_number", detail=f"The newest arrival of this bot has the number {newest}.")
        settled = await self._readers.settled(consumer, up_to)
        self._runners.look()
        return settled.progress

    async def consumer(self, bot_id: int, name: str) -> Consumer:
        for consumer in await self._store.consumers(bot_id):
            if consumer.name == name:
                return consumer
        raise NotFound(code="unknown_consumer", detail=f"Bot {bot_id} has no consumer {name}.")

    # ---- reading ----

    async def updates(
        self,
        bot_id: int,
        consumer: str = DEFAULT_CONSUMER,
        *,
        offset: int | None = None,
        limit: int = 100,
        timeout_s: float = 0.0,
        allowed: Sequence[str] | None = None,
        hangs_up: HangsUp | None = None,
    ) -> list[Arrival]:
        """getUpdates, as Telegram answers it. `allowed`: None keeps what was said before, an empty list is the default.

        Raises Conflict "other_poll" when a newer poll parks, "webhook_active" or "handler_active" if the consumer is
        handed its arrivals, "webhook_set" if that begins while it waits.
        """
        check_name(consumer)
        found = await self._readers.updates(
            bot_id, consumer, offset=offset, limit=limit, timeout_s=timeout_s, allowed=allowed, hangs_up=hangs_up
        )
        if found:
            self._events.tell(HandedOn(bot_id=bot_id, consumer=consumer, arrivals=tuple(found)))
        return await self._as_told(bot_id, found)

    def answered(self, bot_id: int, consumer: str, method: str, params: bytes) -> None:
        """A bot that reads as this consumer has made a call: what its pollers have in hand may be dealt with by it."""
        self._readers.answered(bot_id, consumer, method, params)

    async def stream(
        self,
        bot_id: int,
        consumer: str | None,
        *,
        after: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Stream:
        """Arrivals as they come. With a consumer from where it stands, or after `after`, which acknowledges everything
        up to it; without one from now on, or after `after`, and nothing is stored."""
        if consumer is None:
            return await self._tail(bot_id, after=after, types=types)
        check_name(consumer)
        reader = await self._readers.reader(bot_id, consumer, ConsumerKind.STREAM, types)
        if after is not None:
            reader = await self._readers.acknowledge(reader, after)
        return self._stream(reader, after=reader.progress.watermark, is_tail=False, types=None)

    async def _tail(self, bot_id: int, *, after: int | None, types: Sequence[str] | None) -> Stream:
        eyes = await self._store.ensure_consumer(bot_id, DEFAULT_CONSUMER, at_ms=self._clock.wall_ms())
        state = await self._store.inbox(bot_id)
        newest = 0 if state is None else state.last_number
        start = newest if after is None or after > newest else after
        return self._stream(eyes, after=start, is_tail=True, types=frozenset(types) if types else None)

    def _stream(self, consumer: Consumer, *, after: int, is_tail: bool, types: frozenset[str] | None) -> Stream:
        return Stream(
            consumer,
            store=self._store,
            clock=self._clock,
            waiting=self._waiting,
            readers=self._readers,
            as_told=self._as_told,
            after=after,
            is_tail=is_tail,
            types=types,
        )

    # ---- counts, recovery, ends ----

    async def inbox(self, bot_id: int) -> InboxView:
        """How a bot's inbox stands, with the backlog of each consumer."""
        tallies = await self.tallies(bot_id)
        state = await self._store.inbox(bot_id)
        seen_at_ms = None if state is None else state.seen_at_ms
        return InboxView(
            bot_id=bot_id,
            state=state,
            tallies=tuple(tallies),
            expires_at_ms=None if seen_at_ms is None else expires_at_ms(seen_at_ms),
        )

    async def tallies(self, bot_id: int | None = None) -> list[InboxTally]:
        return [await self._with_handed(tally) for tally in await self._store.inbox_tallies(bot_id)]

    async def _with_handed(self, tally: InboxTally) -> InboxTally:
        """What pollers have in hand does not wait: it is neither old nor pending, whenever it is seen to be dealt with."""
        hand = self._readers.hand(tally.consumer.bot_id, tally.consumer.name)
        if hand is None or hand.consumer_id != tally.consumer.id:
            return tally
        now = self._clock.mono()
        is_over = tally.consumer.progress.is_over
        over = sum(1 for number in hand.over if not is_over(number))
        handed = sum(1 for number in hand.handed(now) if not is_over(number))
        tally = msgspec.structs.replace(tally, handed_again=hand.again)
        if not over and not handed:
            return tally
        oldest_ms = tally.oldest_open_at_ms
        if not hand.waits(now):
            waiting = await self._store.arrivals_after(tally.consumer.id, hand.cover.watermark, limit=1)
            oldest_ms = waiting[0].received_at_ms if waiting else None
        return msgspec.structs.replace(
            tally, open=max(0, tally.open - over), handed=handed, oldest_open_at_ms=oldest_ms
        )

    async def recover(self, bot_id: int) -> Recovery:
        """One pass over everything that Telegram has kept for a bot."""
        if self._recover is None:
            raise Conflict(code="no_source", detail="Updates are not fetched by this process.")
        return await self._recover(bot_id)

    async def look(self) -> None:
        """Another process wrote to the store: wake those who wait, if it wrote arrivals."""
        last_id = await self._store.last_arrival_id()
        if last_id != self._last_id:
            self._last_id = last_id
            self._waiting.ring_all()

    def wake(self, bot_ids: Collection[int]) -> None:
        """Updates of these bots came by another node."""
        for bot_id in bot_ids:
            self._waiting.ring(bot_id)

    def end(self) -> None:
        """Polls are answered and streams end at once, from now on: Peik is about to close."""
        self._waiting.end()

    async def close(self) -> None:
        self.end()
        if self._settling is not None:
            self._settling.cancel()
        await self._readers.close()

    async def _tell_new(self, bot_ids: Sequence[int]) -> None:
        """Replays are new arrivals to those who read, though nothing came from Telegram."""
        for bot_id in bot_ids:
            state = await self._store.inbox(bot_id)
            if state is not None:
                self._events.tell(Arrived(bot_id=bot_id, stored=0, duplicates=0, last_number=state.last_number))

    async def _bots_of(self, wanted: ArrivalFilter) -> Sequence[int]:
        if wanted.bot_id is not None:
            return [wanted.bot_id]
        known = {consumer.bot_id for consumer in await self._store.consumers()}
        return sorted(known if wanted.bot_ids is None else known & wanted.bot_ids)


def _check_state(state: State | None) -> None:
    if state is not None and state not in STATES:
        raise BadInput(code="bad_state", detail=f"Arrivals are found by state {', '.join(STATES)}.")


def _bot_of(wanted: ArrivalFilter) -> int:
    if wanted.bot_id is None:
        raise BadInput(code="which_bot", detail="There are several bots: say which with bot_id.")
    return wanted.bot_id


def _as_of(wanted: ArrivalFilter, consumer: str) -> ArrivalFilter:
    """A state is meant as it is with the consumer that gets the replay."""
    _check_state(wanted.state)
    return msgspec.structs.replace(wanted, consumer=consumer)


def _places(cursor: str) -> tuple[int, int]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise BadInput(code="bad_cursor", detail="cursor is the next_cursor of the page before.")
    return int(match[1]), int(match[2])


def _webhook_set() -> Conflict:
    return Conflict(code="webhook_set", detail="The arrivals of this consumer are pushed to a webhook from now on.")


def _removed(name: str) -> Conflict:
    return Conflict(code="consumer_removed", detail=f"The consumer {name} was removed.")
