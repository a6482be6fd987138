"""People, chats and what happened in them, numbered as Telegram numbers it.

Private chats and basic groups share one order of updates per account, and each account has ids of its own for the same
message. Channels and supergroups have an order and ids of their own, the same for all.
"""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

CHANNEL_BASE = -1_000_000_000_000


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a message, as it lies in one box."""

    chat_id: int
    message_id: int
    number: int  # of the message in all the world: the same in every box
    sender_id: int
    at_ms: int
    text: str
    kind: str = "text"
    edited_at_ms: int = 0
    reply_to: int | None = None
    grouped_id: int | None = None


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: int | None  # None: of a private chat or a basic group
    message_ids: tuple[int, ...]


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: int | None
    event_type: str
    payload: str


Event = Post | Removed | Happened


class Box:
    """One order of updates, and the messages in it as they are now."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.forgotten = 0  # so many of the first cannot be replayed any more
        self.posts: dict[int, Post] = {}
        self._last_id = 0

    @property
    def pts(self) -> int:
        return len(self.log)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def put(self, event: Event) -> None:
        self.log.append(event)
        match event:
            case Post():
                self.posts[event.message_id] = event
            case Removed():
                for message_id in event.message_ids:
                    self.posts.pop(message_id, None)

    def since(self, pts: int) -> list[Event] | None:
        """What happened after this place; None: that cannot be told any more."""
        return None if pts < self.forgotten else self.log[pts:]


@dataclass(eq=False)
class Person:
    """An account at Telegram."""

    user_id: int
    phone: str
    first_name: str
    username: str | None
    password: str | None
    is_banned: bool = False
    box: Box = field(default_factory=Box)
    chats: dict[int, "Chat"] = field(default_factory=dict)  # by id, as this person sees them
    joined: dict[int, int] = field(default_factory=dict)  # where a channel was when this person came in
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)  # random id → chat and message id, here

    def __repr__(self) -> str:
        return f"Person({self.user_id}, {self.first_name})"


Kind = Literal["private", "group", "supergroup", "channel"]


@dataclass(eq=False)
class Chat:
    """A conversation. `chat_id` is as the Bot API writes it; a private chat has no one id, as each sees the other."""

    kind: Kind
    chat_id: int
    title: str
    members: list[Person]
    box: Box | None = None  # of a channel or a supergroup
    writers: set[int] | None = None  # who may write; None: every member

    def id_for(self, person: Person) -> int:
        if self.kind != "private":
            return self.chat_id
        other = next((one for one in self.members if one is not person), person)
        return other.user_id

    def title_for(self, person: Person) -> str:
        if self.kind != "private":
            return self.title
        return next((one for one in self.members if one is not person), person).first_name

    def box_of(self, person: Person) -> Box:
        return person.box if self.box is None else self.box

    def boxes(self) -> list[tuple[Person | None, Box]]:
        """Every box in which a message of this chat lies, once."""
        if self.box is not None:
            return [(None, self.box)]
        return [(person, person.box) for person in dict.fromkeys(self.members)]

    def may_write(self, person: Person) -> bool:
        return person in self.members and (self.writers is None or person.user_id in self.writers)
