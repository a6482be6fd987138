"""Tells the people who run Peik what they should know: letters to their chats, and Apprise where Telegram may be what is down.

What is worth an alert stands in one table, `peik.alerts.rules`. An alert never blocks or fails the stream of events: it is
dropped before that, and counted. It is filed that something is told before it is, and again when everybody has heard it: after a
crash in between another process tells it, by Apprise perhaps twice, in a chat once.
"""

import asyncio
import contextlib
import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from peik.alerts.matters import AlertDocuments, AlertMessage, KeptMatter, Matter, MatterKind, Matters, SentAlert
from peik.alerts.rules import RULES, AlertRule, AlertWords, ErrorSeen, Noticed
from peik.alerts.ways import QUEUE_MAX, AlertText, AlertWay, ChatWay, Note, Send, Ways
from peik.clock import Clock
from peik.core import events
from peik.core.letter import State
from peik.core.token import without_tokens
from peik.errors import Conflict, StoreUnavailable, described
from peik.jobs import events as job_events
from peik.monitoring.values import Ongoing
from peik.wakeup import Wakeup

# Which errors are new, and which come more and more often: by a fingerprint that leaves out numbers, ids and quoted
# words.
#
# What was seen is filed now and then, so that a restart does not make old errors new. A look that a crash lost costs
# one alert.


HOUR_MS = 3_600_000
HOURS = 24
KNOWN_MS = 7 * 24 * HOUR_MS
KNOWN_MAX = 500
RISING_MIN = 10  # within an hour
RISING_TIMES = 3  # as often as in the mean hour of the day before
ERROR_CHARS_MAX = 500

_NOISE = re.compile(r"'[^']*'|\"[^\"]*\"|0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|\d+")


class KnownError(msgspec.Struct, kw_only=True):
    """One error: when it was last seen, and how often in which hour."""

    last_ms: int
    hours: dict[int, int] = {}


_decode = msgspec.json.Decoder(dict[str, KnownError]).decode


class Errors:
    kinds: tuple[type[events.Event], ...] = (
        events.Surprise,
        events.ArrivalSettled,
        job_events.JobRan,
    )  # that tell of errors

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, KnownError] = {}
        self.is_changed = False

    def hear(self, event: events.Event) -> ErrorSeen | None:
        """What an event says of errors, if that is worth an alert."""
        match event:
            case events.Surprise(where=where, error=error):
                return self._see(where, error, event.bot_id)
            case events.ArrivalSettled(state=State.FAILED, consumer=consumer, reason=str(reason)):
                return self._see(f"consumer {consumer}", reason, event.bot_id)
            case job_events.JobRan(state=State.FAILED, kind=kind, reason=str(reason)):
                return self._see(f"jobs of the kind {kind}", reason, 0)
        return None

    def _see(self, where: str, error: str, bot_id: int) -> ErrorSeen | None:
        now = self._clock.wall_ms()
        fingerprint = fingerprint_of(where, error)
        known = self._known.get(fingerprint)
        is_new = known is None or now - known.last_ms > KNOWN_MS
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                del self._known[min(self._known, key=lambda name: self._known[name].last_ms)]
            known = self._known[fingerprint] = KnownError(last_ms=now, hours={})
        hour = now // HOUR_MS
        known.last_ms = now
        known.hours[hour] = known.hours.get(hour, 0) + 1
        known.hours = {one: count for one, count in known.hours.items() if hour - HOURS <= one <= hour}
        self.is_changed = True
        before = sum(count for one, count in known.hours.items() if one < hour) / HOURS
        is_rising = known.hours[hour] >= RISING_MIN and known.hours[hour] >= RISING_TIMES * before
        if not is_new and not is_rising:
            return None
        return ErrorSeen(
            bot_id=bot_id,
            fingerprint=fingerprint,
            where=where,
            error=without_tokens(error)[:ERROR_CHARS_MAX],
            in_hour=known.hours[hour],
            is_rising=is_rising and not is_new,
        )

    def as_document(self) -> str:
        self.is_changed = False
        return msgspec.json.encode(self._known).decode()

    def take_up(self, body: str) -> None:
        """What this node, or another, has seen. Raises msgspec.DecodeError."""
        merged: defaultdict[str, list[KnownError]] = defaultdict(list)
        for seen in (self._known, _decode(body)):
            for fingerprint, known in seen.items():
                merged[fingerprint].append(known)
        newest = sorted(merged.items(), key=lambda item: max(one.last_ms for one in item[1]), reverse=True)[:KNOWN_MAX]
        self._known = {
            fingerprint: KnownError(
                last_ms=max(one.last_ms for one in ones),
                hours={hour: max(one.hours.get(hour, 0) for one in ones) for one in ones for hour in one.hours},
            )
            for fingerprint, ones in newest
        }


def fingerprint_of(where: str, error: str) -> str:
    """The same for errors that differ in numbers, ids and quoted words only."""
    first = error.strip().partition("\n")[0]
    return hashlib.sha256(_NOISE.sub("#", f"{where}|{first}").encode()).hexdigest()[:16]


__all__ = ["QUEUE_MAX", "RULES", "AlertService"]

FILE_S = 5.0  # for the store to answer: an alert that it does not is told all the same
RETRY_S = 10.0
TEST_S = 40.0
ERRORS_S = 60.0  # so often, at most, it is filed which errors were seen
LEFT_MS = 3 * 24 * 3_600_000  # what is told is told again within a day; older documents belong to nobody


class TestLine(msgspec.Struct, frozen=True, kw_only=True):
    way: str
    is_done: bool
    why: str | None


class AlertService:
    """A listener. Without anybody to tell it still knows what goes on, and keeps what it would have told."""

    def __init__(
        self,
        *,
        chats: Sequence[str],
        clock: Clock,
        send: Send,
        rules: "Sequence[AlertRule[events.Event]] | None" = None,
        is_served: Callable[[int], bool] = lambda bot_id: True,
        more_ways: Sequence[AlertWay] = (),
        documents: AlertDocuments | None = None,
        machine: str = "",
        off: Collection[str] = (),
        has_chores: Callable[[], bool] = lambda: True,
        living: Callable[[], Awaitable[Collection[str]]] | None = None,
        words: AlertWords | None = None,
    ) -> None:
        """`living`: the nodes of the store, by name. None: one process holds it, and does the chores."""
        self._living = living
        self._clock = clock
        self._documents = documents
        self._has_chores = has_chores
        self.matters = Matters(
            clock=clock,
            rules=RULES if rules is None else rules,
            is_served=is_served,
            has_chores=has_chores,
            machine=machine,
            off=off,
            words=words,
        )
        self._errors = Errors(clock)
        chat_ways = [ChatWay(chat, place=place, send=send) for place, chat in enumerate(chats)]
        self._ways = Ways([*chat_ways, *more_ways])
        self._late: deque[AlertMessage] = deque(maxlen=QUEUE_MAX)  # told while the store failed, and not filed
        self._heard: deque[tuple[Matter, MatterKind]] = deque(
            maxlen=QUEUE_MAX
        )  # everybody has heard it, and that is not filed
        self._is_loaded = False
        self._is_first = True
        self._errors_at = clock.mono()
        self._tests = 0
        self._bell = Wakeup()

    @property
    def kinds(self) -> tuple[type[events.Event], ...]:
        """The events that may be worth an alert. Letters that go as they should are none of them, and there are thousands of
        these a second."""
        return (*self.matters.kinds, *Errors.kinds)

    def __call__(self, told: Sequence[events.Event]) -> None:
        for event in told:
            is_new = self.matters.hear(event)
            seen = self._errors.hear(event)
            if seen is not None:
                is_new = self.matters.hear(seen) or is_new
            if is_new:
                self._bell.ring()

    def notice(self, found: Sequence[Noticed]) -> None:
        """What a look found. What later looks do not find any more is over."""
        self(found)

    def look_again(self) -> None:
        """Other nodes may have told, or left, something."""
        self._is_loaded = False
        self._bell.ring()

    def ongoing(self) -> list[Ongoing]:
        """What is worth an alert and is not over, as far as this node knows; the newest first."""
        return self.matters.ongoing()

    async def last(self) -> list[SentAlert]:
        """What was told last, by all nodes, the newest first. Raises StoreUnavailable."""
        return [] if self._documents is None else await self._documents.last()

    async def test(self) -> list[TestLine]:
        """Send one alert by every way, now."""
        self._tests += 1
        key = f"alert:test:{self._clock.wall_ms()}:{self._tests}"
        text = self.matters.words.test

        async def by(way: AlertWay) -> TestLine:
            try:
                async with asyncio.timeout(TEST_S):
                    why = await way.test(text, key)
            except TimeoutError:
                why = f"It did not answer within {TEST_S:.0f} s."
            return TestLine(way=way.name, is_done=why is None, why=why)

        return list(await asyncio.gather(*(by(way) for way in self._ways.all)))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._ways.start(group)
            while True:
                try:
                    await self._turn()
                except Exception as error:  # noqa: BLE001  whatever it is, Peik goes on, and alerts do
                    self([events.Surprise(where="alerts", error=described(error))])
                    await asyncio.sleep(RETRY_S)
                await self._bell.wait(self._until())

    async def _turn(self) -> None:
        await self._load()
        await self._file()  # first what could not be filed before: documents are in the order of what happened
        for telling in self.matters.due():
            try:
                await self._tell(telling)
            except Exception as error:  # noqa: BLE001  people are told all the same, and of the others too
                self([events.Surprise(where="alerts", error=described(error))])
                self._put(telling)
        await self._file()

    def _until(self) -> float | None:
        waits = [self.matters.next_s()]
        if self._documents is not None and (self._late or self._heard or not self._is_loaded):
            waits.append(RETRY_S)
        if self._documents is not None and self._errors.is_changed:
            waits.append(max(0.0, self._errors_at - self._clock.mono()))
        first = min((wait for wait in waits if wait is not None), default=None)
        return None if first is None else self._clock.mono() + first

    # ---- telling ----

    async def _tell(self, telling: AlertMessage) -> None:
        if self._documents is not None:
            try:
                async with asyncio.timeout(FILE_S):
                    await self._documents.claim(telling, self._kept(telling))
            except Conflict:
                if not await self._is_ours_still(telling):
                    telling.matter.owed = None
                    return
            except (StoreUnavailable, TimeoutError):
                self._late.append(telling)
        self._put(telling)

    def _put(self, telling: AlertMessage) -> None:
        if not telling.text:
            return

        def on_done() -> None:
            telling.matter.owed = None
            if self._documents is not None:
                self._heard.append((telling.matter, telling.kind))
                self._bell.ring()

        self._ways.put(Note(AlertText(key=telling.key, kind=telling.kind, text=telling.text), on_done=on_done))

    def _kept(self, telling: AlertMessage) -> KeptMatter | None:
        """None: its document goes."""
        is_gone = telling.kind is MatterKind.OVER and not telling.text
        return None if is_gone else self.matters.kept(telling.matter)

    async def _is_ours_still(self, telling: AlertMessage) -> bool:
        """Somebody else was at the same matter. Whether it is to be told all the same."""
        assert self._documents is not None
        matter = telling.matter
        try:
            async with asyncio.timeout(FILE_S):
                kept, version = await self._documents.one(matter.key)
                if telling.kind is MatterKind.OVER and (kept is None or kept.owed == MatterKind.OVER):
                    return False  # it was told, or is being told
                is_quiet = kept is not None and telling.at_ms - kept.told_ms < matter.rule.repeat_s * 1000
                matter.version = version
                if (
                    is_quiet
                    and kept is not None
                    and kept.owed != MatterKind.OVER
                    and telling.kind is not MatterKind.OVER
                ):
                    matter.told = max(matter.told, kept.told)
                    matter.told_ms = kept.told_ms
                    return False
                await self._documents.claim(telling, self._kept(telling))
        except Conflict:
            return False
        except (StoreUnavailable, TimeoutError):
            self._late.append(telling)
        return True

    # ---- documents ----

    async def _load(self) -> None:
        if self._documents is None or self._is_loaded:
            return
        self._is_loaded = True  # at once: who asks for another look meanwhile gets one
        try:
            async with asyncio.timeout(FILE_S):
                found = await self._documents.all()
                self._know_errors(await self._documents.errors())
                for _, kept, version in found:
                    self.matters.take_up(kept, version, is_start=self._is_first)
                await self._take_over(found)
        except (StoreUnavailable, TimeoutError):
            self._is_loaded = False
        else:
            self._is_first = False

    def _know_errors(self, seen: str) -> None:
        with contextlib.suppress(msgspec.DecodeError):  # of a version that is not known here
            self._errors.take_up(seen)

    async def _take_over(self, found: Sequence[tuple[str, KeptMatter, int]]) -> None:
        """Tell what the dead wanted to tell, and tidy up what nobody has told for days. Raises StoreUnavailable."""
        assert self._documents is not None
        is_dead = await self._dead() if any(kept.owed for _, kept, _ in found) else None
        for key, kept, version in found:
            if kept.owed is not None and is_dead is not None and is_dead(kept.node):
                telling = self.matters.owed(kept, version)
                if telling is not None and await self._documents.adopt(telling.matter, kept):
                    self._put(telling)
            elif self._clock.wall_ms() - kept.told_ms > LEFT_MS and self._has_chores():
                await self._documents.remove(key, version)

    async def _dead(self) -> Callable[[str], bool]:
        """Which processes cannot tell any more what they wanted to. Raises StoreUnavailable."""
        assert self._documents is not None
        own, is_first = self._documents.node, self._is_first
        if self._living is None:
            is_alone = self._has_chores()
            # In a container the process before this one may have had the same name.
            return lambda node: is_alone and (is_first or node != own)
        living = await self._living()
        return lambda node: node not in living and node != own

    async def _file(self) -> None:
        """What could not be filed before, and who has heard of what."""
        if self._documents is None:
            return
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(FILE_S):
                while self._late:
                    with contextlib.suppress(Conflict):
                        await self._documents.claim(self._late[0], self._kept(self._late[0]))
                    self._late.popleft()
                while self._heard:
                    matter, kind = self._heard[0]
                    await self._documents.note(matter, None if kind is MatterKind.OVER else self.matters.kept(matter))
                    self._heard.popleft()
                if self._errors.is_changed and self._clock.mono() >= self._errors_at:
                    self._errors_at = self._clock.mono() + ERRORS_S
                    await self._documents.keep_errors(self._errors.as_document())
