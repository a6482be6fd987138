"""Tells the people who run Peik what they should know, as letters to their chats. It listens to events and to nothing else.

What is worth an alert stands in one table, `RULES`. An alert never blocks or fails the stream of events: it is dropped
before that, and counted.
"""

import asyncio
import datetime
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from peik import events, session_events
from peik.bell import Bell
from peik.clock import Clock
from peik.core.letter import State
from peik.errors import Problem, Unavailable

QUEUE_MAX = 100  # alerts that wait to be accepted
REMEMBERED_MAX = 1000  # fingerprints
RETRY_S = 10.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
FLOOD_S = 600.0  # shorter waits are everyday life of an account

Send = Callable[[str, str, str], Awaitable[None]]
E = TypeVar("E", bound=events.Event)


class Rule(msgspec.Struct, Generic[E], frozen=True, kw_only=True):
    """When an event is an alert. Events of one fingerprint are one matter, told at most every `repeat_s`."""

    event: type[E]
    text: Callable[[E, int], str]  # of the newest event, and how many there were since the last alert
    repeat_s: float
    apart_by: tuple[str, ...] = ("bot_id",)  # fields: events that differ in one of them are different matters
    is_meant: Callable[[E], bool] = lambda event: True
    is_counted: bool = False  # what came within `repeat_s` is told when that is over; else it is not told at all
    after_s: float = 0.0  # only if it lasts so long
    ends: type[events.Event] | None = None  # what ends the matter before that

    def fingerprint(self, event: events.Event) -> str:
        return ":".join([self.event.__name__, *(str(getattr(event, name)) for name in self.apart_by)])


class _Matter:
    """What happened under one fingerprint."""

    __slots__ = ("count", "newest", "rule", "told_at", "wait_until")

    def __init__(self, rule: Rule[events.Event]) -> None:
        self.rule = rule
        self.count = 0
        self.newest: events.Event | None = None
        self.told_at = float("-inf")
        self.wait_until: float | None = None


class Alerts:
    """A listener with a queue. Without chats it does nothing."""

    def __init__(
        self,
        *,
        chats: Sequence[str],
        clock: Clock,
        send: Send,
        rules: "Sequence[Rule[events.Event]] | None" = None,
    ) -> None:
        self._chats = tuple(chats)
        self._clock = clock
        self._send = send
        self._rules = RULES if rules is None else rules
        self._watched = {kind for rule in self._rules for kind in (rule.event, rule.ends)}
        self._matters: dict[str, _Matter] = {}
        self._queue: deque[str] = deque()
        self._dropped = 0
        self._told = 0
        self._bell = Bell()

    def __call__(self, told: Sequence[events.Event]) -> None:
        if self._chats:
            for event in told:
                if type(event) in self._watched:
                    self._hear(event)

    async def run(self) -> None:
        """Until cancelled. What cannot be accepted now is tried again; what can never be is left."""
        while self._chats:
            self._look()
            while self._queue:
                await self._tell(self._queue.popleft())
            await self._bell.wait(self._next_at())

    # ---- what happened ----

    def _hear(self, event: events.Event) -> None:
        for rule in self._rules:
            if type(event) is rule.ends:
                self._forget(rule.fingerprint(event))
            elif type(event) is rule.event and rule.is_meant(event):
                self._note(rule.fingerprint(event), rule, event)

    def _forget(self, fingerprint: str) -> None:
        """What has not been told yet is over, and need not be."""
        matter = self._matters.get(fingerprint)
        if matter is not None:
            matter.count, matter.newest, matter.wait_until = 0, None, None

    def _note(self, fingerprint: str, rule: "Rule[events.Event]", event: events.Event) -> None:
        now = self._clock.mono()
        matter = self._matters.get(fingerprint)
        if matter is None:
            if len(self._matters) >= REMEMBERED_MAX:
                del self._matters[next(iter(self._matters))]
            matter = self._matters[fingerprint] = _Matter(rule)
        is_quiet = now - matter.told_at < rule.repeat_s
        if is_quiet and not rule.is_counted:
            return
        matter.count += 1
        matter.newest = event
        if matter.wait_until is None:
            matter.wait_until = matter.told_at + rule.repeat_s if is_quiet else now + rule.after_s
        self._bell.ring()

    # ---- what is told ----

    def _next_at(self) -> float | None:
        return min((one.wait_until for one in self._matters.values() if one.wait_until is not None), default=None)

    def _look(self) -> None:
        now = self._clock.mono()
        for matter in self._matters.values():
            if matter.wait_until is None or matter.wait_until > now or matter.newest is None:
                continue
            self._put(f"Peik: {matter.rule.text(matter.newest, matter.count)}")
            matter.count, matter.newest, matter.wait_until, matter.told_at = 0, None, None, now

    def _put(self, text: str) -> None:
        if len(self._queue) >= QUEUE_MAX:
            self._dropped += 1
            return
        if self._dropped:
            text += f"\n({self._dropped} more alerts could not be sent before this one; the log has them.)"
            self._dropped = 0
        self._queue.append(text)

    async def _tell(self, text: str) -> None:
        self._told += 1  # two alerts of one moment are two letters
        key = f"alert:{self._clock.wall_ms()}:{self._told}"
        for place, chat in enumerate(self._chats):
            is_accepted = False
            while not is_accepted:
                try:
                    await self._send(chat, text, f"{key}:{place}")
                except Unavailable:
                    await asyncio.sleep(RETRY_S)
                    continue
                except Problem:
                    pass  # a chat that is none, or no bot yet: the log has the event itself
                is_accepted = True


# ---- the table ----


def _bot(event: events.Event) -> str:
    return f"bot {event.bot_id}"


def _long(seconds: float) -> str:
    return f"{seconds / HOUR_S:.0f} hours" if seconds >= 1.5 * HOUR_S else f"{max(seconds / 60, 1):.0f} minutes"


def _at(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _offline(event: events.OfflineTooLong, _: int) -> str:
    lost = {None: "How many it dropped cannot be known", 0: "By the update ids none was dropped"}.get(
        event.expired, f"It dropped {event.expired}"
    )
    return (
        f"{_bot(event)} was offline for {_long(event.away_s)}. Telegram keeps updates for 24 hours only, so messages from "
        f"before that may be lost. {lost}. Ask users who waited to write again."
    )


def _near_expiry(event: events.InboxNearExpiry, _: int) -> str:
    return (
        f"{_bot(event)} could not fetch updates for long. {event.percent_left} % is left of the time that Telegram keeps "
        f"them; the oldest is lost at {_at(event.expires_at_ms)}. Look at the network, the routes and the log of Peik."
    )


def _expired(event: events.UpdatesExpired, _: int) -> str:
    return f"{_bot(event)}: Telegram dropped {event.count} updates before Peik could fetch them. They cannot be had any more."


_INTRUDERS = {
    "poller": "Another program polls with this bot's token and takes updates away. Stop it, or change the token.",
    "webhook": "Somebody set another webhook for this bot. Take it away there, or change the token with @BotFather.",
    "gap": "Updates are missing that Telegram had not dropped: another program took them. Find it, or change the token.",
}


def _intruder(event: events.Intruder, _: int) -> str:
    return f"{_bot(event)}: {_INTRUDERS.get(event.kind, 'Somebody else uses its token.')} ({event.detail})"


def _consumer_expired(event: events.ConsumerExpired, _: int) -> str:
    return (
        f"{_bot(event)}: consumer {event.consumer} was not used for long and is forgotten. Nothing is kept for it any more; "
        "when it comes back it begins with the oldest update that is still here."
    )


def _near_end(event: events.UnreadNearEnd, _: int) -> str:
    return (
        f"{_bot(event)}: consumer {event.consumer} has not read updates since {_at(event.oldest_at_ms)}. From "
        f"{_at(event.ends_at_ms)} on they are dropped. Start it, or raise PEIK_KEEP_UNREAD."
    )


def _dropped(event: events.UnreadDropped, _: int) -> str:
    return f"{_bot(event)}: {event.count} updates that nobody had read were too old and are gone (PEIK_KEEP_UNREAD)."


def _source_failed(event: events.SourceFailed, _: int) -> str:
    return (
        f"{_bot(event)} has had no updates by {event.source} for 5 minutes: {event.why}. Nothing is lost for 24 hours; "
        "Peik goes on trying. Look at the network and the routes."
    )


def _dead_arrival(event: events.ArrivalSettled, count: int) -> str:
    many = "1 update" if count == 1 else f"{count} updates"
    return (
        f"{_bot(event)}: {many} could not be handled by {event.consumer} and became dead arrivals; the last one is "
        f"{event.arrival_id} ({event.kind}): {event.reason}. Read them, mend the cause, and retry them: see inbox.md."
    )


def _paused(event: events.BotPaused, _: int) -> str:
    return f"{_bot(event)} is paused, and its letters wait: {event.reason}"


def _account(
    event: "session_events.SessionRevoked | session_events.SessionUnfit | session_events.SessionFlooded",
) -> str:
    return f"session {event.session_id}" + (f" (account {event.bot_id})" if event.bot_id else "")


def _revoked(event: session_events.SessionRevoked, _: int) -> str:
    return (
        f"Telegram ended {_account(event)}: {event.why}. Its letters wait, and nothing of it is archived. Sign in again: "
        "see sessions.md. Telegram does not replay all that happens until then."
    )


def _unfit(event: session_events.SessionUnfit, _: int) -> str:
    return f"{_account(event)} cannot run until somebody mends it: {event.why}"


def _flooded(event: session_events.SessionFlooded, _: int) -> str:
    return (
        f"Telegram lets {_account(event)} wait for {_long(event.wait_s)}. Its letters wait so long. Send less with it: "
        "accounts that write like machines are banned."
    )


def _archive_away(event: session_events.ArchiveAway, _: int) -> str:
    return (
        f"the archive has not answered for a minute: {event.why}. Accounts wait for it; bots go on. Telegram keeps what "
        "accounts miss, but not for ever. Look at its server, its disk and PEIK_ARCHIVE."
    )


def _push_failed(event: session_events.PushFailed, _: int) -> str:
    return (
        f"the webhook of accounts at {event.endpoint} has taken nothing for 5 minutes: {event.why}. Peik goes on trying; "
        "what waits is kept for PEIK_KEEP_FEED."
    )


def _rule(rule: Rule[E]) -> "Rule[events.Event]":
    """Each row is typed by its own event; the table is of events."""
    return rule  # type: ignore[return-value]


RULES: "tuple[Rule[events.Event], ...]" = (
    _rule(Rule(event=events.OfflineTooLong, text=_offline, repeat_s=HOUR_S)),
    _rule(Rule(event=events.InboxNearExpiry, text=_near_expiry, repeat_s=DAY_S, apart_by=("bot_id", "percent_left"))),
    _rule(Rule(event=events.UpdatesExpired, text=_expired, repeat_s=60.0)),
    _rule(Rule(event=events.Intruder, text=_intruder, repeat_s=HOUR_S, apart_by=("bot_id", "kind"))),
    _rule(Rule(event=events.ConsumerExpired, text=_consumer_expired, repeat_s=HOUR_S, apart_by=("bot_id", "consumer"))),
    _rule(Rule(event=events.UnreadNearEnd, text=_near_end, repeat_s=DAY_S, apart_by=("bot_id", "consumer"))),
    _rule(Rule(event=events.UnreadDropped, text=_dropped, repeat_s=DAY_S)),
    _rule(Rule(event=events.SourceFailed, text=_source_failed, repeat_s=HOUR_S, after_s=300.0, ends=events.SourceBack)),
    _rule(
        Rule(
            event=events.ArrivalSettled,
            text=_dead_arrival,
            repeat_s=600.0,
            apart_by=("bot_id", "consumer"),
            is_meant=lambda event: event.state is State.FAILED,
            is_counted=True,
        )
    ),
    _rule(Rule(event=events.BotPaused, text=_paused, repeat_s=HOUR_S)),
    _rule(Rule(event=session_events.SessionRevoked, text=_revoked, repeat_s=HOUR_S, apart_by=("session_id",))),
    _rule(Rule(event=session_events.SessionUnfit, text=_unfit, repeat_s=DAY_S, apart_by=("session_id",))),
    _rule(
        Rule(
            event=session_events.SessionFlooded,
            text=_flooded,
            repeat_s=HOUR_S,
            apart_by=("session_id",),
            is_meant=lambda event: event.wait_s > FLOOD_S,
        )
    ),
    _rule(
        Rule(
            event=session_events.ArchiveAway,
            text=_archive_away,
            repeat_s=HOUR_S,
            apart_by=(),
            after_s=60.0,
            ends=session_events.ArchiveBack,
        )
    ),
    _rule(
        Rule(
            event=session_events.PushFailed,
            text=_push_failed,
            repeat_s=HOUR_S,
            apart_by=(),
            after_s=300.0,
            ends=session_events.PushBack,
        )
    ),
)
