"""Which troubles go on, and what is to be told of them: it begins, it still goes on, it is over. It only remembers and decides.

Times are those of the wall, so that a restart can go on with them; a clock that is set back only puts something off.
"""

import contextlib
import enum
import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Sequence

import msgspec

from peik.alerts.rules import AlertRule, AlertWords, Noticed, RulePlace
from peik.clock import Clock
from peik.core import events
from peik.core.documents import KEY_CHARS_MAX, DocumentStore, Filing
from peik.core.token import without_tokens
from peik.errors import Conflict
from peik.monitoring.values import Ongoing

# One matter that is worth an alert: what is known of it, how it is filed, and what is told of it.


TEXT_CHARS_MAX = 1500  # of what happened; the words of a foreign error can be long, and Telegram takes 4096


class MatterKind(enum.StrEnum):
    BEGAN = "began"
    AGAIN = "again"
    OVER = "over"
    TEST = "test"


class KeptMatter(msgspec.Struct, frozen=True, kw_only=True):
    """A matter that was told, as it is filed."""

    rule: str
    apart: dict[str, str]
    bot_id: int
    machine: str
    since_ms: int
    last_ms: int
    count: int
    told: int
    told_ms: int
    text: str
    said: str = ""  # the same in the language of alerts, if that is not English
    owed: str | None = None  # a kind: the last word on it may not have reached everybody
    node: str = ""  # which tells it


class Matter:
    """What happened under one fingerprint."""

    __slots__ = (
        "adopted_ms", "apart", "bot_id", "count", "fresh", "key", "last_ms", "machine", "newest", "owed", "recent", "rule",
        "said", "since_ms", "text", "told", "told_ms", "version",
    )  # fmt: skip

    def __init__(
        self, rule: "AlertRule[events.Event]", key: str, apart: dict[str, str], *, bot_id: int, machine: str, at_ms: int
    ) -> None:
        self.rule = rule
        self.key = key
        self.apart = apart
        self.machine = machine
        self.bot_id = bot_id
        self.since_ms = at_ms
        self.last_ms = at_ms
        self.recent: deque[int] = deque(maxlen=rule.at_least)
        self.count = 0  # 0: not so often that it matters
        self.fresh = 0  # since it was told
        self.newest: events.Event | None = None  # None: it is known from a process before this one
        self.text = ""
        self.said = ""
        self.told = 0
        self.told_ms = 0
        self.adopted_ms: int | None = None
        self.version = 0  # of its document; 0: there is none
        self.owed: MatterKind | None = None

    def words(self, count: int) -> str:
        if self.newest is not None:  # the words of a foreign error may hold a token
            self.text = without_tokens(self.rule.text(self.newest, count))[:TEXT_CHARS_MAX]
        return self.text

    def said_in(self, words: AlertWords, count: int) -> str:
        """For people, in the language of alerts."""
        text = self.words(count)
        if self.newest is not None:
            self.said = without_tokens(words.text(self.rule, self.newest, count))[:TEXT_CHARS_MAX]
        return self.said or text

    def has_lasted(self, now_ms: int) -> bool:
        """Whether it is worth an alert by now. Without an end of its own, it lasts as long as it is heard of."""
        until_ms = now_ms if self.rule.lasts_s is None else self.last_ms
        return self.count > 0 and until_ms - self.since_ms >= self.rule.after_s * 1000


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be told now."""

    matter: Matter
    kind: MatterKind
    text: str
    at_ms: int

    @property
    def key(self) -> str:
        """The same for the same words on the same matter, on any node, before and after a crash."""
        digest = hashlib.sha256(self.matter.key.encode()).hexdigest()[:16]
        return f"alert:{digest}:{self.matter.since_ms}:{self.matter.told}:{self.kind}"


REMEMBERED_MAX = 1000
ADOPTED_MS = 15 * 60_000  # what a process before this one knew, and nobody has heard of since, is over after so long


class Matters:
    """A matter of a bot is here only while this node serves the bot; or does the chores, if it is heard of there."""

    def __init__(
        self,
        *,
        clock: Clock,
        rules: "Sequence[AlertRule[events.Event]]",
        is_served: Callable[[int], bool],
        has_chores: Callable[[], bool],
        machine: str = "",
        off: Collection[str] = (),
        words: AlertWords | None = None,
    ) -> None:
        self.words = words or AlertWords("en")
        self._clock = clock
        self._is_served = is_served
        self._has_chores = has_chores
        self._machine = machine
        self._off = frozenset(off)
        self._rules = {rule.name: rule for rule in rules}
        self._by_event: dict[type[events.Event], list[AlertRule[events.Event]]] = defaultdict(list)
        for rule in rules:
            for kind in {rule.event, rule.ends} - {None}:
                assert kind is not None
                self._by_event[kind].append(rule)
        self.known: dict[str, Matter] = {}
        self._over: list[AlertMessage] = []

    @property
    def kinds(self) -> Collection[type[events.Event]]:
        """What begins a matter, and what ends one."""
        return self._by_event.keys()

    # ---- what happens ----

    def hear(self, event: events.Event) -> bool:
        """Whether there is something to look at."""
        rules = self._by_event.get(type(event))
        if rules is None:
            return False
        is_new = False
        for rule in rules:
            if rule.is_over_by(event):
                self._end(rule, rule.apart(event))
                is_new = True
            elif type(event) is rule.event and rule.is_meant(event):
                self._note(rule, event)
                is_new = True
        return is_new

    def take_up(self, kept: KeptMatter, version: int, *, is_start: bool) -> None:
        """Go on with what another process knew, if that is ours to go on with; of what is known here, learn what was told."""
        rule = self._rules.get(kept.rule)
        if rule is None or kept.owed == MatterKind.OVER:
            return
        key = self._key(rule, kept.apart, kept.machine)
        now = self._clock.wall_ms()
        matter = self.known.get(key)
        if matter is None:
            if not self._is_heir(rule, kept, is_start=is_start):
                return
            matter = self.known[key] = Matter(
                rule, key, kept.apart, bot_id=kept.bot_id, machine=self._machine, at_ms=min(kept.since_ms, now)
            )
            matter.last_ms = min(kept.last_ms, now) if rule.is_moment else now
            matter.count = kept.count
            matter.text, matter.said = kept.text, kept.said
            matter.adopted_ms = now
        elif matter.version >= version:
            return
        matter.since_ms = min(kept.since_ms, matter.since_ms)
        matter.told = max(matter.told, kept.told)
        matter.told_ms = min(max(matter.told_ms, kept.told_ms), now)
        matter.version = version

    def _is_heir(self, rule: "AlertRule[events.Event]", kept: KeptMatter, *, is_start: bool) -> bool:
        """A bot's goes with the bot, or with the chores. A machine's, with the next process there. The rest with the chores,
        when its process is gone: ours before this start, or one that would have told it again by now."""
        has_chores = self._has_chores()
        if rule.is_local:
            # Without the name of a machine there is one, and of its processes the one that holds the store.
            return is_start and kept.machine == self._machine and (has_chores or self._machine != "")
        if kept.bot_id and rule.place is not RulePlace.ANY:
            return has_chores if rule.place is RulePlace.CHORES else self._is_served(kept.bot_id)
        is_left = self._clock.wall_ms() - kept.told_ms > rule.repeat_s * 1000 + ADOPTED_MS
        return has_chores and (is_left or (is_start and kept.machine == self._machine))

    def leave(self, names: Collection[str]) -> None:
        self.known = {key: one for key, one in self.known.items() if one.rule.name not in names}

    def owed(self, kept: KeptMatter, version: int) -> AlertMessage | None:
        """What a process that died wanted to tell, and may have told: with the same words and key. None: it is told here."""
        rule = self._rules.get(kept.rule)
        if rule is None or kept.owed is None:
            return None
        key = self._key(rule, kept.apart, kept.machine)
        matter = self.known.get(key)
        if matter is not None and matter.owed is not None:
            return None
        if matter is None or kept.owed == MatterKind.OVER:
            matter = Matter(rule, key, kept.apart, bot_id=kept.bot_id, machine=kept.machine, at_ms=kept.since_ms)
            matter.text, matter.said, matter.count, matter.told = kept.text, kept.said, kept.count, kept.told
            matter.last_ms, matter.told_ms = kept.last_ms, kept.told_ms
        matter.version = version
        matter.owed = MatterKind(kept.owed)
        return self._telling(matter, matter.owed)

    def _note(self, rule: "AlertRule[events.Event]", event: events.Event) -> None:
        now = self._clock.wall_ms()
        apart = rule.apart(event)
        key = self._key(rule, apart, self._machine)
        known = self.known.get(key)
        if known is None or self._has_faded(known, now):
            known = self._begun(rule, key, apart, event, now)
        known.recent.append(now)
        known.newest, known.last_ms, known.adopted_ms = event, now, None
        has_begun = known.count or (
            len(known.recent) >= rule.at_least and now - known.recent[0] <= rule.within_s * 1000
        )
        if has_begun:
            more = 1 if known.count else rule.at_least
            known.count = 1 if isinstance(event, Noticed) else known.count + more
            known.fresh += more

    def _begun(
        self, rule: "AlertRule[events.Event]", key: str, apart: dict[str, str], event: events.Event, now: int
    ) -> Matter:
        if len(self.known) >= REMEMBERED_MAX:
            del self.known[next(iter(self.known))]
        before = self.known.get(key)
        known = self.known[key] = Matter(rule, key, apart, bot_id=event.bot_id, machine=self._machine, at_ms=now)
        if before is not None:  # not told as over: it has only just faded, and comes again
            known.version = before.version
        return known

    def _end(self, rule: "AlertRule[events.Event]", apart: dict[str, str]) -> None:
        """One end may end several matters; it is told once."""
        ended = [
            one
            for one in self.known.values()
            if one.rule is rule and all(one.apart.get(name) == value for name, value in apart.items())
        ]
        for one in ended:
            del self.known[one.key]
        told = [one for one in ended if one.told]
        for one in told:
            self._over.append(self._telling(one, MatterKind.OVER, is_said=one is told[-1]))

    # ---- what is to be told ----

    def due(self) -> list[AlertMessage]:
        """What is to be told now, each once: the caller tells it. Without words: only its document is to go."""
        now = self._clock.wall_ms()
        self._forget(now)
        tellings, self._over = self._over, []
        for one in self.known.values():
            if one.rule.name not in self._off and self._next_ms(one, now) <= now and one.has_lasted(now):
                kind = MatterKind.AGAIN if one.told else MatterKind.BEGAN
                one.told += 1
                telling = self._telling(one, kind)
                one.told_ms, one.fresh, one.owed = now, 0, kind
                tellings.append(telling)
        return tellings

    def next_s(self) -> float | None:
        """How long until there is something to do, if nothing happens."""
        now = self._clock.wall_ms()
        times = []
        for one in self.known.values():
            if one.count and one.rule.name not in self._off:
                times.append(self._next_ms(one, now))
            times.append(self._fades_ms(one))
        first = min(times, default=float("inf"))
        return None if first == float("inf") else max(0.0, (first - now) / 1000)

    def ongoing(self) -> list[Ongoing]:
        """The newest first."""
        now = self._clock.wall_ms()
        shown = [
            Ongoing(
                name=one.rule.name,
                bot_id=one.bot_id,
                text=one.words(one.count),
                since_ms=one.since_ms,
                last_ms=one.last_ms,
                count=one.count,
            )
            for one in self.known.values()
            if one.has_lasted(now) and not self._has_faded(one, now) and self._is_here(one)
        ]
        return sorted(shown, key=lambda one: one.last_ms, reverse=True)

    def kept(self, one: Matter) -> KeptMatter:
        return KeptMatter(
            rule=one.rule.name,
            apart=one.apart,
            bot_id=one.bot_id,
            machine=one.machine,
            since_ms=one.since_ms,
            last_ms=one.last_ms,
            count=one.count,
            told=one.told,
            told_ms=one.told_ms,
            text=one.text,
            said=one.said,
            owed=one.owed,
        )

    def _telling(self, one: Matter, kind: MatterKind, *, is_said: bool = True) -> AlertMessage:
        now = self._clock.wall_ms()
        where = f" (on {one.machine})" if one.rule.is_local and one.machine else ""
        if kind is MatterKind.OVER:
            one.owed = kind if is_said and not one.rule.is_moment else None
            text = self.words.over(one.said_in(self.words, one.count) + where, now - one.since_ms)
            return AlertMessage(matter=one, kind=kind, text=text if one.owed else "", at_ms=now)
        said = one.said_in(self.words, max(one.fresh, 1)) + where
        if kind is MatterKind.BEGAN or one.rule.is_moment:
            text = self.words.began(said, one.rule)
        else:
            text = self.words.still(said, one.rule, now - one.since_ms)
        return AlertMessage(matter=one, kind=kind, text=text, at_ms=now)

    def _next_ms(self, one: Matter, now: int) -> float:
        """When it is to be told (again), if nothing happens; for ever off: when it was told, and nothing is new."""
        if not one.told:
            is_sure = one.rule.lasts_s is None or one.has_lasted(now)
            return one.since_ms + one.rule.after_s * 1000 if is_sure else float("inf")
        if one.rule.lasts_s is not None and not one.fresh:
            return float("inf")
        return min(one.told_ms, now) + one.rule.repeat_s * 1000

    # ---- what is over ----

    def _forget(self, now: int) -> None:
        for one in list(self.known.values()):
            # The clock was set back: what was heard of in a time that is yet to come would not be over before it.
            one.last_ms, one.since_ms = min(one.last_ms, now), min(one.since_ms, now)
            if one.adopted_ms is not None:
                one.adopted_ms = min(one.adopted_ms, now)
            if not self._is_here(one):
                del self.known[one.key]
            elif self._has_faded(one, now):
                del self.known[one.key]
                if one.told:
                    self._over.append(self._telling(one, MatterKind.OVER))

    def _is_here(self, one: Matter) -> bool:
        """That of a bot goes when another node serves the bot, or nobody any more: what is filed stays for that one. So it is
        with the chores; but of what happened there once nobody else will hear, so that it is told first."""
        if one.bot_id == 0 or one.rule.is_local or one.rule.place is RulePlace.ANY:
            return True
        if one.rule.place is RulePlace.CHORES:
            is_untold = one.newest is not None and not one.told and one.rule.name not in self._off
            return is_untold or self._has_chores()
        return self._is_served(one.bot_id)

    def _has_faded(self, one: Matter, now: int) -> bool:
        return self._fades_ms(one) <= now

    def _fades_ms(self, one: Matter) -> float:
        rule = one.rule
        if rule.lasts_s is not None:
            return one.last_ms + rule.lasts_s * 1000
        if one.adopted_ms is not None and not rule.is_kept:
            return one.adopted_ms + ADOPTED_MS
        return float("inf")

    def _key(self, rule: "AlertRule[events.Event]", apart: dict[str, str], machine: str) -> str:
        """Printable, and short enough for a document."""
        named = f"{rule.name}@{machine}" if rule.is_local else rule.name
        key = ":".join([named, *(apart.get(name, "") for name in rule.apart_by)])
        if len(key) <= KEY_CHARS_MAX and re.fullmatch(r"[!-~]+", key):
            return key
        return f"{rule.name}:{hashlib.sha256(key.encode()).hexdigest()}"


# Alerts on document: what goes on, so that a restart neither repeats nor forgets it, and what was told last, for who
# looks.


COLLECTION = "alerts"
TOLD = "alerts_told"
SEEN = "alerts_errors"
TOLD_MAX = 100
KEPT_MAX = 2000


class SentAlert(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what was told."""

    at_ms: int
    kind: str  # began, again, over or test
    rule: str
    bot_id: int
    node: str
    text: str


_decode_kept = msgspec.json.Decoder(KeptMatter).decode
_decode_told = msgspec.json.Decoder(SentAlert).decode


class AlertDocuments:
    """Every method may raise StoreUnavailable."""

    def __init__(self, documents: DocumentStore, *, node: str) -> None:
        self._documents = documents
        self.node = node
        self._filed = 0

    async def all(self) -> list[tuple[str, KeptMatter, int]]:
        """Every matter that was told and is not over, of all nodes: its key, itself and its version."""
        found = []
        for document in await self._documents.documents(COLLECTION, limit=KEPT_MAX):
            with contextlib.suppress(msgspec.DecodeError):  # of a version that is not known here
                found.append((document.key, _decode_kept(document.body), document.version))
        return found

    async def one(self, key: str) -> tuple[KeptMatter | None, int]:
        """A matter as it is filed, and its version; None and 0: it is not."""
        document = await self._documents.document(COLLECTION, key)
        if document is None:
            return None, 0
        try:
            return _decode_kept(document.body), document.version
        except msgspec.DecodeError:
            return None, document.version

    async def errors(self) -> str:
        """Errors that were seen, by this node and others."""
        document = await self._documents.document(SEEN, "all")
        return "{}" if document is None else document.body

    async def keep_errors(self, body: str) -> None:
        """The last one to file wins: the others have taken up what was there, and file theirs again."""
        await self._documents.file([Filing(collection=SEEN, key="all", body=body)])

    async def claim(self, telling: AlertMessage, kept: KeptMatter | None) -> None:
        """Note that this is told, before it is. Raises Conflict if somebody else was at the same matter."""
        matter = telling.matter
        filings = [self._filing(matter, kept)]
        if telling.text:
            filings.append(self._line(telling))
        await self._documents.file(filings)
        matter.version = 0 if kept is None else matter.version + 1
        await self._trim()

    async def note(self, matter: Matter, kept: KeptMatter | None) -> None:
        """Everybody has heard it. Another node that knows better by now is left alone."""
        if matter.version:
            with contextlib.suppress(Conflict):
                await self._documents.file([self._filing(matter, kept)])
                matter.version = 0 if kept is None else matter.version + 1

    async def remove(self, key: str, version: int) -> None:
        with contextlib.suppress(Conflict):
            await self._documents.file([Filing(collection=COLLECTION, key=key, body=None, version=version)])

    async def last(self) -> list[SentAlert]:
        """What was told last, the newest first."""
        found = []
        for document in await self._documents.documents(TOLD, limit=TOLD_MAX, is_backwards=True):
            with contextlib.suppress(msgspec.DecodeError):
                found.append(_decode_told(document.body))
        return found

    async def adopt(self, matter: Matter, kept: KeptMatter) -> bool:
        """This node tells it now, instead of one that died. False: yet another one does."""
        try:
            await self._documents.file([self._filing(matter, kept)])
        except Conflict:
            matter.owed = None
            return False
        matter.version += 1
        return True

    def _filing(self, matter: Matter, kept: KeptMatter | None) -> Filing:
        body = None
        if kept is not None:
            body = msgspec.json.encode(msgspec.structs.replace(kept, node=self.node)).decode()
        return Filing(collection=COLLECTION, key=matter.key, body=body, version=matter.version)

    def _line(self, telling: AlertMessage) -> Filing:
        self._filed += 1
        node = self.node.encode("ascii", "replace").decode().replace(" ", "_")[:100]
        line = SentAlert(
            at_ms=telling.at_ms,
            kind=telling.kind,
            rule=telling.matter.rule.name,
            bot_id=telling.matter.bot_id,
            node=self.node,
            text=telling.text,
        )
        key = f"{telling.at_ms:015}:{node}:{self._filed:06}"
        return Filing(collection=TOLD, key=key, body=msgspec.json.encode(line).decode())

    async def _trim(self) -> None:
        newest = await self._documents.documents(TOLD, limit=TOLD_MAX + 1, is_backwards=True)
        if len(newest) > TOLD_MAX:
            await self._documents.clear_collection(TOLD, until=newest[-2].key, limit=TOLD_MAX)
