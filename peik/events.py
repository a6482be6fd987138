"""Everything that can be observed of Peik, as values. Logs, metrics, alerts and waiters only listen."""

from collections.abc import Callable, Sequence

import msgspec

from peik.core.letter import Chat, State
from peik.core.lifecycle import Move


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all events. `bot_id` 0 means all of Peik."""

    bot_id: int = 0


class Accepted(Event, frozen=True, kw_only=True):
    count: int


class Settled(Event, frozen=True, kw_only=True):
    """A letter's settlement is stored. `state` is final or not; `reason` says why it is not delivered yet, or never."""

    letter_id: int
    method: str
    chat: Chat
    move: Move
    state: State
    reason: str | None = None
    uncertain_tries: int = 0
    merged_into: int | None = None


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


class Surprise(Event, frozen=True, kw_only=True):
    """Something that the code did not foresee; the work goes on elsewhere."""

    where: str
    error: str


Listener = Callable[[Sequence[Event]], None]


class Events:
    """Hands events to those who listen, in order. A listener must be quick and must not raise."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def tell(self, *events: Event) -> None:
        self.tell_all(events)

    def tell_all(self, events: Sequence[Event]) -> None:
        for listener in self._listeners:
            listener(events)
