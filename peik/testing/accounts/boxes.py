"""People, chats and what happened in them, numbered as Telegram numbers it.

Private chats and basic groups share one order of updates per account, and each account has ids of its own for the same
message. Channels and supergroups have an order and ids of their own, the same for all.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from peik.accounts.client import ClientError, CodeSent, Qr, Trouble
from peik.clock import Clock

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
    file_id: str | None = None


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
        self.forgotten = 0  # this many of the first cannot be replayed any more
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
    contacts: dict[int, str] = field(default_factory=dict)  # people that this one has a name for, by id
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


# Keys, codes and QR tokens: who may sign in as whom, how often it may be tried, and what ends it.


if TYPE_CHECKING:
    from peik.testing.accounts.client import SimClient

CODE_S = 300.0
CODE_TRIES_MAX = 5
CODES_A_DAY_MAX = 5
PASSWORD_TRIES_MAX = 5
QR_S = 30.0
_DAY_S = 86400.0


@dataclass(eq=False)
class SessionKey:
    """An authorization key: what a session string holds."""

    secret: str
    person: Person | None = None
    awaits_password: Person | None = None
    ended: str | None = None  # why it is worth nothing
    client: "SimClient | None" = None  # who is connected with it
    password_tries: int = 0


@dataclass(eq=False)
class _Code:
    key: SessionKey
    phone: str
    code: str
    expires_at: float
    tries: int = 0


@dataclass(eq=False)
class _Token:
    key: SessionKey
    expires_at: float


@dataclass(eq=False)
class _Asked:
    times: list[float] = field(default_factory=list)


class Keys:
    def __init__(self, clock: Clock, chance: random.Random, person_of: Callable[[str], Person | None]) -> None:
        self._clock = clock
        self._chance = chance
        self._person_of = person_of
        self._keys: dict[str, SessionKey] = {}
        self._codes: dict[str, _Code] = {}  # by hash
        self._newest: dict[str, _Code] = {}  # by phone: what lies in the person's app
        self._asked: dict[str, _Asked] = {}
        self._tokens: dict[str, _Token] = {}

    def new(self) -> SessionKey:
        key = SessionKey(secret=f"sim-{self._chance.getrandbits(96):024x}")
        self._keys[key.secret] = key
        return key

    def find(self, secret: str) -> SessionKey:
        """A key that nobody knows is a key that nobody is signed in with."""
        return self._keys.setdefault(secret, SessionKey(secret=secret))

    def of(self, person: Person) -> list[SessionKey]:
        return [key for key in self._keys.values() if key.person is person]

    # By code.

    def send_code(self, key: SessionKey, phone: str, *, by_sms: bool) -> CodeSent:
        now = self._clock.mono()
        person = self._person_of(phone)
        if person is not None and person.is_banned:
            raise ClientError(Trouble.PHONE_BANNED, "Telegram has banned this phone number.")
        asked = self._asked.setdefault(phone, _Asked())
        asked.times = [at for at in asked.times if now - at < _DAY_S]
        if len(asked.times) >= CODES_A_DAY_MAX:
            wait_s = asked.times[0] + _DAY_S - now
            raise ClientError(Trouble.FLOOD, f"Telegram asks to wait {wait_s:.0f} s (FLOOD_WAIT).", wait_s=wait_s)
        asked.times.append(now)
        code = _Code(key=key, phone=phone, code=f"{self._chance.randrange(100_000):05}", expires_at=now + CODE_S)
        code_hash = f"{self._chance.getrandbits(64):016x}"
        self._codes[code_hash] = self._newest[phone] = code
        return CodeSent(code_hash=code_hash, way="sms" if by_sms else "app", length=5, timeout_s=60.0)

    def code_of(self, phone: str) -> str:
        """What the person reads in the app."""
        return self._newest[phone].code

    def sign_in(self, key: SessionKey, *, phone: str, code: str, code_hash: str) -> Person:
        sent = self._codes.get(code_hash)
        is_valid = sent is not None and sent.key is key and sent.phone == phone and sent.tries < CODE_TRIES_MAX
        if sent is None or not is_valid or self._clock.mono() >= sent.expires_at:
            raise ClientError(Trouble.CODE_EXPIRED, "The code is too old; ask for another.")
        if code != sent.code:
            sent.tries += 1
            raise ClientError(Trouble.BAD_CODE, "The code is wrong.")
        person = self._person_of(phone)
        if person is None:
            raise ClientError(Trouble.NOT_REGISTERED, "This number has no Telegram account.")
        del self._codes[code_hash]
        return self._welcome(key, person)

    def give_password(self, key: SessionKey, password: str) -> Person:
        person = key.awaits_password
        if person is None:
            raise ClientError(Trouble.REFUSED, "Telegram refused it: no code was given before.")
        if key.password_tries >= PASSWORD_TRIES_MAX:
            raise ClientError(Trouble.FLOOD, "Telegram asks to wait 3600 s (PHONE_PASSWORD_FLOOD).", wait_s=3600.0)
        if password != person.password:
            key.password_tries += 1
            raise ClientError(Trouble.BAD_PASSWORD, "The password is wrong.")
        key.person, key.awaits_password = person, None
        return person

    def _welcome(self, key: SessionKey, person: Person) -> Person:
        if person.password is not None:
            key.awaits_password = person
            raise ClientError(Trouble.PASSWORD_NEEDED, "This account has a password (two-step verification).")
        key.person = person
        return person

    # By QR.

    def qr(self, key: SessionKey) -> Qr:
        url = f"tg://login?token={self._chance.getrandbits(96):024x}"
        self._tokens[url] = _Token(key=key, expires_at=self._clock.mono() + QR_S)
        return Qr(url=url, expires_at_ms=self._clock.wall_ms() + int(QR_S * 1000))

    def scan(self, url: str, person: Person) -> SessionKey:
        """The person's phone looks at the picture. Raises ValueError if it is over."""
        token = self._tokens.pop(url, None)
        if token is None or self._clock.mono() >= token.expires_at:
            raise ValueError("AUTH_TOKEN_EXPIRED")
        if person.password is None:
            token.key.person = person
        else:
            token.key.awaits_password = person
        return token.key
