"""Handlers of updates: what a program registers, and an update as a handler sees it."""

import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from peik.client.calls import Letter, SendDefaults
from peik.core.arrival import DEFAULT_CONSUMER, OPTIONAL_TYPES, UPDATE_TYPES, Arrival, wire_id
from peik.errors import BadInput, Conflict

if TYPE_CHECKING:
    from peik.client.peik import Peik

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Update:
    """One update on its way through a handler. It is handed on again if the handler fails, or the process dies."""

    __slots__ = ("_answers", "_arrival", "_data", "_peik", "tries")

    def __init__(self, arrival: Arrival, *, tries: int, peik: "Peik") -> None:
        self._arrival = arrival
        self._peik = peik
        self._answers = 0
        self._data: dict[str, Any] | None = None
        self.tries = tries  # how often it was handled before, and failed

    def __repr__(self) -> str:
        return f"Update({self.update_id}, {self.type}, arrival {self.arrival_id})"

    @property
    def update_id(self) -> int:
        """Peik's own number, rising per bot. Telegram's is kept with the arrival."""
        return wire_id(self._arrival.number)

    @property
    def arrival_id(self) -> str:
        """What it is called at REST and on the command line."""
        return str(self._arrival.id)

    @property
    def bot_id(self) -> int:
        return self._arrival.bot_id

    @property
    def type(self) -> str:
        """Telegram's name of the field that is filled: "message", "callback_query"…"""
        return self._arrival.type

    @property
    def is_replay(self) -> bool:
        """Whether somebody asked for it to be handed on once more."""
        return self._arrival.replay_of is not None

    @property
    def data(self) -> dict[str, Any]:
        """The whole update as Telegram's JSON says it, under Peik's number."""
        if self._data is None:
            self._data = _decode(self._arrival.wire())
        return self._data

    @property
    def body(self) -> dict[str, Any]:
        """What stands under its type: the message, the query, the poll."""
        found = self.data.get(self.type)
        return found if isinstance(found, dict) else {}

    @property
    def chat_id(self) -> int | None:
        """The chat that it belongs to, or the user's private chat; None for polls and the like."""
        return self._arrival.lane if isinstance(self._arrival.lane, int) else None

    @property
    def user_id(self) -> int | None:
        return self._arrival.user_id

    @property
    def text(self) -> str | None:
        """The text, caption, query or data of a button, whichever it has."""
        for name in ("text", "caption", "query", "data"):
            found = self.body.get(name)
            if isinstance(found, str):
                return found
        return None

    async def answer(self, text: str, **more: Unpack[SendDefaults]) -> Letter | None:
        """Send a text to its chat, durably, once: a handler that is run again for the same update sends no second one.

        The first answer to an update is the first answer of every repeat, the second the second. If a repeat would say
        something else, what was said first stands, and None is returned. For 48 hours, as with every idempotency key.
        """
        if self.chat_id is None:
            raise BadInput(code="no_chat", detail=f"An update of type {self.type} belongs to no chat to answer in.")
        self._answers += 1
        more.setdefault("idempotency_key", f"arrival:{self._arrival.id}:{self._answers}")
        more.setdefault("bot_id", self.bot_id)
        try:
            return await self._peik.send_text(self.chat_id, text, **more)
        except Conflict as conflict:
            if conflict.code != "idempotency_key_reused":
                raise
            return None


Handler = Callable[[Update], Awaitable[None]]
AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    handler: Handler
    types: frozenset[str]  # empty: all that Telegram gives if nobody asks
    bot_id: int | None
    consumer: str

    def wants(self, kind: str) -> bool:
        return kind in self.types if self.types else kind not in OPTIONAL_TYPES


class Handlers:
    """What a program has registered, in the order in which it did."""

    def __init__(self, peik: "Peik") -> None:
        self._peik = peik
        self._all: list[Registered] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, handler: Handler, types: Sequence[str], bot_id: int | None, consumer: str | None) -> None:
        """Raises BadInput for what cannot be a handler, or a type that no update can have."""
        call = getattr(handler, "__call__", None)  # noqa: B004  an object may be a handler too
        if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(call):
            raise BadInput(code="bad_handler", detail="A handler is an async function: async def handle(update).")
        unknown = [name for name in types if not name.isidentifier() or name != name.lower()]
        if unknown:
            raise BadInput(code="bad_type", detail=f"{unknown[0]!r} is no type of update; one is callback_query.")
        one = Registered(handler=handler, types=frozenset(types), bot_id=bot_id, consumer=consumer or DEFAULT_CONSUMER)
        self._all.append(one)

    def by_consumer(self, bot_of: Callable[[int | None], int]) -> Mapping[tuple[int, str], list[Registered]]:
        """The handlers of each bot's consumers. `bot_of` says which bot is meant, and raises if that is not clear."""
        found: dict[tuple[int, str], list[Registered]] = defaultdict(list)
        for one in self._all:
            found[bot_of(one.bot_id), one.consumer].append(one)
        return found

    async def handle(self, own: Sequence[Registered], arrival: Arrival, tries: int) -> None:
        """All that want it, one after another. One that fails fails the arrival, and all are run again."""
        update = Update(arrival, tries=tries, peik=self._peik)
        for one in own:
            if one.wants(arrival.type):
                await one.handler(update)


def types_of(own: Sequence[Registered]) -> frozenset[str] | None:
    """What a consumer with these handlers asks for. None: what Telegram gives if nobody asks, tomorrow's types too."""
    named = frozenset[str]().union(*(one.types for one in own))
    if all(one.types for one in own):
        return named
    return frozenset(UPDATE_TYPES) - OPTIONAL_TYPES | named if named & OPTIONAL_TYPES else None
