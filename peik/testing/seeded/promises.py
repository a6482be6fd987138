"""What was asked of Peik, and what became of it at Telegram. Every letter's text begins with its name, so that it is known."""

import re
from collections.abc import Iterator

import msgspec

NAME = re.compile(r"L\d+")


class Promise(msgspec.Struct, kw_only=True):
    """One letter as its sender and Telegram know it."""

    name: str
    bot_id: int
    chat: int
    thread: int = 0
    priority: int = 0
    method: str = "sendMessage"
    target: "Promise | None" = None  # the letter whose message it changes
    is_at_most_once: bool = False
    is_hooked: bool = False  # somebody wants to hear how it ended
    key: str | None = None
    send_at_ms: int | None = None
    expires_at_ms: int | None = None

    asked_at: int = 0  # instants are steps of the world: what is before what
    acked_at: int | None = None
    letter_id: int | None = None
    is_retried: bool = False  # a person sent it again, or took it back: it has left its place in the order

    tries: int = 0  # requests that left a process
    unheard: int = 0  # tries of whose end no process has heard
    doubts: int = 0  # tries that ended without a verdict, as far as the process could know
    refusals: int = 0
    last_status: int | None = None
    not_before: float = 0.0  # after a try that ended in doubt it waits
    heard: int = 0  # how often that was told
    deliveries: list[int] = msgspec.field(default_factory=list)  # the steps at which it took effect

    @property
    def lane(self) -> tuple[int, int, int, int]:
        return (self.bot_id, self.chat, self.thread, self.priority)

    @property
    def keeps_order(self) -> bool:
        """Not one that was scheduled, or waits for the letter that it refers to, or was sent again: they have another place."""
        return self.send_at_ms is None and self.target is None and not self.is_retried


class Promises:
    def __init__(self) -> None:
        self.by_name: dict[str, Promise] = {}
        self.by_lane: dict[tuple[int, int, int, int], list[Promise]] = {}

    def add(self, promise: Promise) -> None:
        self.by_name[promise.name] = promise
        self.by_lane.setdefault(promise.lane, []).append(promise)

    def __iter__(self) -> Iterator[Promise]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def of_text(self, text: str) -> Promise | None:
        found = NAME.match(text)
        return None if found is None else self.by_name.get(found[0])
