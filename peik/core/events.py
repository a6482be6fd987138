"""Everything that can be observed of Peik, as values. Logs, metrics, alerts and waiters only listen."""

from collections.abc import Callable, Sequence

import msgspec

from peik.core.arrival import Arrival
from peik.core.letter import Chat, State
from peik.core.lifecycle import Move
from peik.core.outcome import Outcome


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all events. `bot_id` 0 means all of Peik."""

    bot_id: int = 0


class Accepted(Event, frozen=True, kw_only=True):
    count: int
    traced: tuple[tuple[int, str], ...] = ()  # those that answer something: letter and trace


class Settled(Event, frozen=True, kw_only=True, gc=False):
    """A letter's settlement is stored. `state` is final or not; `reason` says why it is not delivered yet, or never."""

    letter_id: int
    method: str
    chat: Chat
    move: Move
    state: State
    reason: str | None = None
    uncertain_tries: int = 0
    merged_into: int | None = None
    outcome: Outcome | None = None  # of the try that led to it; None: there was none
    took_s: float | None = None  # that try, from when it left until its answer
    waited_s: float | None = None  # from when it was accepted until this try was over; None: nobody here saw it come
    trace: str | None = None  # what the letter answers
    message_ids: tuple[int, ...] = ()  # what Telegram calls it; only told of letters with a trace


class Answered(Event, frozen=True, kw_only=True):
    """An answer that cannot wait in a queue (to a button, a query) went straight through to Telegram."""

    method: str
    trace: str
    is_taken: bool


class Held(Event, frozen=True, kw_only=True):
    """Telegram asked to wait: this chat, or the whole bot if `chat` is None."""

    chat: Chat | None
    wait_s: float


class ChatMoved(Event, frozen=True, kw_only=True):
    chat: Chat
    to_chat_id: int


class ChatShut(Event, frozen=True, kw_only=True):
    """The chat cannot be reached any more; its letters fail with this reason."""

    chat: Chat
    reason: str


class BotPaused(Event, frozen=True, kw_only=True):
    reason: str


class BotResumed(Event, frozen=True, kw_only=True):
    pass


class RouteOpened(Event, frozen=True, kw_only=True):
    """The route's breaker opened: nothing is tried by it until a probe comes back."""

    route: str
    why: str


class RouteClosed(Event, frozen=True, kw_only=True):
    route: str
    after_s: float


class RouteChosen(Event, frozen=True, kw_only=True):
    """Letters go by this route from now on. None: every route is open, and letters wait."""

    route: str | None


class StoreFailed(Event, frozen=True, kw_only=True):
    what: str
    why: str


class ClockJumped(Event, frozen=True, kw_only=True):
    """The clock of this machine was set forward. Until it has held for `settles_s`, nothing is destroyed by age."""

    ahead_s: float
    settles_s: float


class ClockSettled(Event, frozen=True, kw_only=True):
    """The new time has held for long enough, or the clock is back."""


class SecretsNotice(Event, frozen=True, kw_only=True):
    """Secrets in the store were sealed, or could not be; or something is left to do."""

    words: str


class StoreWeak(Event, frozen=True, kw_only=True):
    """A setting of the store breaks the promise that what was accepted outlives a power cut."""

    what: str


class DoorsWeak(Event, frozen=True, kw_only=True):
    """Something about the doors invites strangers: a key that can be guessed, a certificate that cannot be used."""

    what: str


class CertificateRenewed(Event, frozen=True, kw_only=True):
    """New connections get another certificate from now on."""


class ServerReplaced(Event, frozen=True, kw_only=True):
    """Another process serves in the place of this one, which ends as soon as it has answered what it was asked."""

    version: str  # of that one


class ServerTakenOver(Event, frozen=True, kw_only=True):
    """This process serves in the place of another one."""

    process: int
    version: str  # of that one


class ProcessEnded(Event, frozen=True, kw_only=True):
    """One of several processes of `peik serve` has ended, and nobody asked it to. Another one is started in its place."""

    place: int
    process: int  # 0: it could not be started
    how: str
    again_s: float


class ProcessesReplaced(Event, frozen=True, kw_only=True):
    """The processes of `peik serve` were replaced, one after the other. Fewer than all: one did not come up, the rest stays."""

    replaced: int
    processes: int


class StoreUpgraded(Event, frozen=True, kw_only=True):
    """The schema of the store is brought up to date by this start; told before it is done."""

    words: str


class StoreRecovered(Event, frozen=True, kw_only=True):
    pass


class Recovered(Event, frozen=True, kw_only=True):
    """What a dead owner had in flight was found and settled as uncertain."""

    count: int


class HookTold(Event, frozen=True, kw_only=True):
    """A webhook has heard how a letter ended."""

    letter_id: int
    endpoint: str
    tries: int


class HookFailed(Event, frozen=True, kw_only=True):
    """A webhook did not take a message; it is tried again after `wait_s`."""

    letter_id: int
    endpoint: str
    why: str
    wait_s: float


class HookDropped(Event, frozen=True, kw_only=True):
    """A webhook is not told of this letter any more: it said so, or did not answer for three days."""

    letter_id: int
    endpoint: str
    tries: int
    why: str


# ---- the inbox ----


class Arrived(Event, frozen=True, kw_only=True):
    """Updates are stored. `last_number` is the bot's newest; readers look from where they stand."""

    stored: int
    duplicates: int
    last_number: int


class InboxRecovered(Event, frozen=True, kw_only=True):
    """The first pass after a start is over: everything that Telegram had kept is here."""

    found: int
    stored: int
    duplicates: int
    expired: int | None  # None: the ids do not allow to know
    took_s: float
    away_s: float | None  # None: the first start


class UpdatesExpired(Event, frozen=True, kw_only=True):
    """Telegram threw updates away before we came for them."""

    count: int


class NumberingReset(Event, frozen=True, kw_only=True):
    """Telegram starts this bot's update ids over: after a silent week, or on another server. Nothing is lost by it."""

    expected_id: int
    first_id: int
    epoch: int


class Intruder(Event, frozen=True, kw_only=True):
    """Somebody else uses this token: another poller, a foreign webhook, updates that were taken by another hand."""

    kind: str  # poller, webhook or gap
    detail: str


class SourceFailed(Event, frozen=True, kw_only=True):
    """Updates cannot be had just now; it is tried again after `wait_s`. Told once until it works again."""

    source: str  # polling or webhook
    why: str
    wait_s: float


class SourceBack(Event, frozen=True, kw_only=True):
    source: str
    away_s: float


class WebhookSet(Event, frozen=True, kw_only=True):
    """Telegram now pushes this bot's updates to us."""


class InboxNearExpiry(Event, frozen=True, kw_only=True):
    """Nobody could fetch updates for long; so much is left of the time until Telegram drops the oldest."""

    percent_left: int
    expires_at_ms: int


class OfflineTooLong(Event, frozen=True, kw_only=True):
    """Peik was away for longer than Telegram keeps updates."""

    away_s: float
    expired: int | None  # None: the ids do not allow to know


class HandedOn(Event, frozen=True, kw_only=True):
    """Arrivals are on their way to a consumer. It may get them once more if it does not acknowledge them."""

    consumer: str
    arrivals: tuple[Arrival, ...]


class HandedAgain(Event, frozen=True, kw_only=True):
    """A poller ended with these in hand and nothing showed that they were dealt with: the next one is handed them again."""

    consumer: str
    count: int
    first_number: int
    deaths: int  # in a row


class ArrivalSettled(Event, frozen=True, kw_only=True):
    """A consumer is done with an arrival: handled (`completed`), or given up (`failed`)."""

    consumer: str
    arrival_id: int
    number: int
    kind: str  # the type of the update
    state: State
    tries: int
    reason: str | None = None


class ArrivalDeferred(Event, frozen=True, kw_only=True):
    """Handing an arrival on failed; it is tried again after `wait_s`."""

    consumer: str
    arrival_id: int
    number: int
    reason: str
    tries: int
    wait_s: float


class ConsumerAway(Event, frozen=True, kw_only=True):
    """A consumer cannot be reached; what comes for it is kept."""

    consumer: str
    why: str


class ConsumerBack(Event, frozen=True, kw_only=True):
    consumer: str
    away_s: float


class ConsumerWaits(Event, frozen=True, kw_only=True):
    """Another process has the handlers of this consumer. Those here begin when it ends."""

    consumer: str


class AnswerIgnored(Event, frozen=True, kw_only=True):
    """The answer to a push held a call that cannot be one. The update itself counts as taken."""

    consumer: str
    arrival_id: int
    why: str


class ConsumerExpired(Event, frozen=True, kw_only=True):
    """A consumer that nobody used for long is forgotten; arrivals are not kept for it any more."""

    consumer: str


class UnreadNearEnd(Event, frozen=True, kw_only=True):
    """The oldest arrival that a consumer has not read will soon be too old to be kept."""

    consumer: str
    oldest_at_ms: int
    ends_at_ms: int


class UnreadDropped(Event, frozen=True, kw_only=True):
    """Arrivals that somebody had not read went because they were too old."""

    count: int


class UserLimited(Event, frozen=True, kw_only=True):
    """A user writes more than the set limit; what is too much is handed on later."""

    consumer: str
    user_id: int


class OutageSettled(Event, frozen=True, kw_only=True):
    """What waited through an outage is dealt with by the bot's policy."""

    policy: str
    away_s: float
    missed: int
    handed: int
    told: int = 0  # of those that were not handed on: their senders hear of it
    notices: int


class LeasesTaken(Event, frozen=True, kw_only=True):
    """This node acts for more bots from now on. (The store's chores count as one.)"""

    taken: int
    held: int


class LeasesLetGo(Event, frozen=True, kw_only=True):
    """Other nodes may act for these bots now; nothing of them was in flight here any more."""

    let_go: int
    held: int


class LeasesLost(Event, frozen=True, kw_only=True):
    """This node could not keep these leases alive, and another has taken them. What was in flight is uncertain there."""

    lost: int
    held: int


class Surprise(Event, frozen=True, kw_only=True):
    """Something that the code did not foresee; the work goes on elsewhere."""

    where: str
    error: str


Listener = Callable[[Sequence[Event]], None]


class Events:
    """Hands events to those who listen, in order. A listener must be quick and must not raise."""

    def __init__(self) -> None:
        self._listeners: list[tuple[Listener, tuple[type[Event], ...]]] = []
        # Who hears, by the kinds that are told together, or the one that is told alone: a few dozen.
        self._hearing: dict[frozenset[type[Event]] | type[Event], tuple[Listener, ...]] = {}

    def listen(self, listener: Listener, *kinds: type[Event]) -> None:
        """Hear all events; or, if kinds are given, only what is told with one of these among it."""
        self._listeners.append((listener, kinds or (Event,)))
        self._hearing.clear()

    def tell(self, *events: Event) -> None:
        self.tell_all(events)

    def tell_all(self, events: Sequence[Event]) -> None:
        # Most of those who listen want one or two kinds of sixty, and letters are told tens of thousands of times a second.
        told: frozenset[type[Event]] | type[Event] = (
            type(events[0]) if len(events) == 1 else frozenset(map(type, events))
        )
        hearing = self._hearing.get(told)
        if hearing is None:
            hearing = self._hearing[told] = self._who_hears(events)
        for listener in hearing:
            listener(events)

    def _who_hears(self, events: Sequence[Event]) -> tuple[Listener, ...]:
        return tuple(
            listener for listener, kinds in self._listeners if any(isinstance(event, kinds) for event in events)
        )
