"""One matter that is worth an alert: what is known of it, how it is filed, and what is told of it."""

import enum
import hashlib
from collections import deque

import msgspec

from peik import events
from peik.core.token import without_tokens
from peik.ops.alert_rule import Rule

TEXT_CHARS_MAX = 1500  # of what happened; the words of a foreign error can be long, and Telegram takes 4096


class Kind(enum.StrEnum):
    BEGAN = "began"
    AGAIN = "again"
    OVER = "over"
    TEST = "test"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
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
    owed: str | None = None  # a kind: the last word on it may not have reached everybody
    node: str = ""  # which tells it


class Matter:
    """What happened under one fingerprint."""

    __slots__ = (
        "adopted_ms", "apart", "bot_id", "count", "fresh", "key", "last_ms", "machine", "newest", "owed", "recent", "rule",
        "since_ms", "text", "told", "told_ms", "version",
    )  # fmt: skip

    def __init__(
        self, rule: "Rule[events.Event]", key: str, apart: dict[str, str], *, bot_id: int, machine: str, at_ms: int
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
        self.told = 0
        self.told_ms = 0
        self.adopted_ms: int | None = None
        self.version = 0  # of its paper; 0: there is none
        self.owed: Kind | None = None

    def words(self, count: int) -> str:
        if self.newest is not None:  # the words of a foreign error may hold a token
            self.text = without_tokens(self.rule.text(self.newest, count))[:TEXT_CHARS_MAX]
        return self.text

    def has_lasted(self, now_ms: int) -> bool:
        """Whether it is worth an alert by now. Without an end of its own, it lasts as long as it is heard of."""
        until_ms = now_ms if self.rule.lasts_s is None else self.last_ms
        return self.count > 0 and until_ms - self.since_ms >= self.rule.after_s * 1000


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be told now."""

    matter: Matter
    kind: Kind
    text: str
    at_ms: int

    @property
    def key(self) -> str:
        """The same for the same words on the same matter, whoever tells them, before and after a crash."""
        digest = hashlib.sha256(self.matter.key.encode()).hexdigest()[:16]
        return f"alert:{digest}:{self.matter.since_ms}:{self.matter.told}:{self.kind}"
