"""How fast a bot and each of its chats may go. Starts at Telegram's figures, learns from 429, recovers. Pure; time comes in.

Two budgets per bot: Telegram's 30 a second is about bulk, while replies to people are not capped that way
(docs/telegram.md, Flood limits). So letters of high priority spend a wider budget of their own, and what they spend is
taken from bulk as well, down to a tenth of it.

Edits are no sends: in a group they have a minute of their own, and in a private chat they are free until a 429 teaches otherwise.
Both spend the bot's budgets; only those in groups wait for them.
"""

from collections import deque

import msgspec

from peik.core.catalogue import Scope
from peik.core.letter import Chat


class PaceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Telegram's figures as we start with them; settable per bot."""

    is_on: bool = True
    bulk_per_s: float = 30.0
    interactive_per_s: float = 120.0
    interactive_per_s_max: float = 1000.0
    private_per_s: float = 1.0
    private_burst: int = 3  # "short bursts are tolerated"
    group_per_min: int = 20


NO_LIMITS = PaceLimits(is_on=False)

# Telegram tells no figures for accounts and bans those that behave like machines (waits of 23 minutes and of hours
# were seen: docs/telegram.md, Too many requests). So an account writes as a quick person does: bulk at 20 a minute, answers at
# one a second and never faster, half of a bot's pace in groups.
ACCOUNT_LIMITS = PaceLimits(
    bulk_per_s=1 / 3,
    interactive_per_s=1.0,
    interactive_per_s_max=1.0,
    private_per_s=1.0,
    private_burst=2,
    group_per_min=10,
)

GROUP_WINDOW_S = 60.0
SLOWDOWN = 0.7  # what a 429 leaves of a rate
GROWTH = 0.05  # messages a second that each message at the full rate earns: at 120 a second, 6 more after a second
RECOVERY_S = 120.0  # after so long without a 429 a halved rate is whole again
BLAME_WINDOW_S = 5.0  # a second chat refused this soon after the first points at the bot
SKEW = 1.02  # our clock and network are not Telegram's: stay a little under every figure
BULK_WINDOW_S = 1.0
LEAVES_AHEAD_S = 0.05  # commits take now less and now more: so much earlier a letter may leave than its turn
INTERACTIVE_BURST_S = 0.25  # so much of a second's answers may go at once
BULK_TURN = 10  # however busy people keep the bot, bulk goes at a tenth of its rate: no priority starves
EDIT_SLOW_MIN = 0.2  # edits further apart than this are no reason for a 429
CHATS_REMEMBERED_MAX = 20_000
_NEVER = float("-inf")


class _Rate:
    """A rate that a 429 lowers. It grows back to its start as time passes, and beyond it only by being used in full."""

    __slots__ = ("_ceiling", "_floor", "_known", "_known_at", "start")

    def __init__(self, start: float, *, ceiling: float | None = None) -> None:
        self.start = start
        self._ceiling = ceiling if ceiling is not None else start
        self._floor = start / 30
        self._known = start
        self._known_at = 0.0

    def at(self, now: float) -> float:
        if self._known >= self.start:
            return self._known
        return min(self.start, self._known + self.start * (now - self._known_at) / RECOVERY_S)

    def changed(self, start: float, *, ceiling: float | None = None, now: float) -> "_Rate":
        """Another figure by hand. What a 429 left of the old one is left of the new one as well."""
        new = _Rate(start, ceiling=ceiling)
        known = self.at(now)
        new._known = min(new._ceiling, known if start == self.start else start * min(1.0, known / self.start))
        new._known_at = now
        return new

    def lower(self, now: float) -> None:
        self._known = max(self._floor, self.at(now) * SLOWDOWN)
        self._known_at = now

    def used_in_full(self, now: float) -> None:
        """One more message went at the full rate and Telegram has not objected."""
        self._known = min(self._ceiling, self.at(now) + GROWTH)
        self._known_at = now


class _Bucket:
    """A leaky bucket kept as one instant: when it will be empty. Holds `burst` messages beyond the steady flow."""

    __slots__ = ("empty_at",)

    def __init__(self, empty_at: float) -> None:
        self.empty_at = empty_at

    def ready_at(self, *, interval_s: float, burst: int) -> float:
        return self.empty_at - interval_s * (burst - 1)

    def spend(self, now: float, *, interval_s: float, weight: int) -> None:
        self.empty_at = max(self.empty_at, now) + interval_s * weight


class _ChatPace:
    __slots__ = (
        "bucket",
        "edit_bucket",
        "edit_slow",
        "edit_slow_at",
        "edits",
        "held_until",
        "recent",
        "slow",
        "slow_at",
    )

    def __init__(self, now: float, *, is_group: bool) -> None:
        self.bucket = _Bucket(now)
        self.recent: deque[float] | None = deque() if is_group else None  # one entry per message of the last minute
        self.held_until = _NEVER
        self.slow = 1.0
        self.slow_at = _NEVER
        self.edits: deque[float] | None = deque() if is_group else None  # a group's edits of the last minute
        self.edit_bucket = _Bucket(now)
        self.edit_slow = 0.0  # seconds between edits, as a 429 has taught; 0: they are free
        self.edit_slow_at = _NEVER

    def is_idle(self, now: float) -> bool:
        is_quiet = self.bucket.empty_at < now and self.edit_bucket.empty_at < now
        is_untaught = self.slow == 1.0 and self.edit_slow == 0.0
        return self.held_until < now and is_quiet and not self.recent and not self.edits and is_untaught

    def joined(self, other: "_ChatPace") -> "_ChatPace":
        """One chat was known under two names: what either of them spent and owes counts."""
        self.bucket.empty_at = max(self.bucket.empty_at, other.bucket.empty_at)
        self.held_until = max(self.held_until, other.held_until)
        self.slow, self.slow_at = max((self.slow, self.slow_at), (other.slow, other.slow_at))
        if self.recent is not None and other.recent is not None:
            self.recent = deque(sorted([*self.recent, *other.recent]))
        if self.edits is not None and other.edits is not None:
            self.edits = deque(sorted([*self.edits, *other.edits]))
        self.edit_bucket.empty_at = max(self.edit_bucket.empty_at, other.edit_bucket.empty_at)
        taught = (other.edit_slow, other.edit_slow_at)
        self.edit_slow, self.edit_slow_at = max((self.edit_slow, self.edit_slow_at), taught)
        return self


def is_group(chat: Chat) -> bool:
    """Groups and channels have negative ids; public ones are also known by name."""
    return chat < 0 if isinstance(chat, int) else chat.startswith("@")


def has_chat_pace(chat: Chat) -> bool:
    return isinstance(chat, int) or chat.startswith("@")


class Pace:
    """One bot's pace. Ask `bot_ready_at` and `chat_ready_at`, then `spend` right before a try."""

    def __init__(self, limits: PaceLimits, *, now: float, has_free_edits: bool = True) -> None:
        self._limits = limits
        self._has_free_edits = has_free_edits  # not an account: what it edits counts as what it sends
        self._bulk_rate = _Rate(limits.bulk_per_s)
        self._interactive_rate = _Rate(limits.interactive_per_s, ceiling=limits.interactive_per_s_max)
        # A start does not know what was sent a moment before it: begin with empty bursts, not with full ones.
        self._bulk = _Bucket(now)
        self._bulk_turn_at = now
        self._bulk_leaves_at = now  # the next one, if all leave as far apart as they are counted
        self._interactive = _Bucket(now)
        self._chats: dict[Chat, _ChatPace] = {}
        self._crowd = CHATS_REMEMBERED_MAX
        self._bot_held_until = _NEVER
        self._suspect: tuple[Chat, float] | None = None

    def change(self, limits: PaceLimits, now: float) -> None:
        """Other figures by hand, from now on. Holds, what was spent and what was learned stay: Telegram does not forget them."""
        if not self._limits.is_on:  # nobody counted: begin with empty bursts, as at a start
            self._bulk.empty_at = self._bulk_turn_at = self._interactive.empty_at = now
        self._bulk_rate = self._bulk_rate.changed(limits.bulk_per_s, now=now)
        ceiling = limits.interactive_per_s_max
        self._interactive_rate = self._interactive_rate.changed(limits.interactive_per_s, ceiling=ceiling, now=now)
        self._limits = limits

    @property
    def is_on(self) -> bool:
        """Whether a try makes others wait. If not, only holds do."""
        return self._limits.is_on

    @property
    def bot_held_until(self) -> float:
        return self._bot_held_until

    def chat_held_until(self, chat: Chat) -> float:
        pace = self._chats.get(chat)
        return _NEVER if pace is None else pace.held_until

    def rates(self, now: float) -> dict[str, float]:
        """The learned figures, for people to see."""
        return {"bulk_per_s": self._bulk_rate.at(now), "interactive_per_s": self._interactive_rate.at(now)}

    def bot_ready_at(self, now: float, *, interactive: bool) -> float:
        """When the bot as a whole may send the next letter of this kind."""
        if not self._limits.is_on:
            return self._bot_held_until
        if interactive:
            rate = self._interactive_rate.at(now)
            free_at = self._interactive.ready_at(interval_s=1 / rate, burst=max(1, int(rate * INTERACTIVE_BURST_S)))
        else:
            free_at = min(self._bulk.empty_at, self._bulk_turn_at)
        return max(free_at, self._bot_held_until)

    def edits_ready_at(self, now: float) -> float:
        """The same for edits in private chats: they count, and no rate holds them back until a 429 has taught one."""
        if not self._limits.is_on:
            return self._bot_held_until
        if not self._has_free_edits:
            return self.bot_ready_at(now, interactive=False)
        if self._interactive_rate.at(now) < self._interactive_rate.start:
            return self.bot_ready_at(now, interactive=True)
        return self._bot_held_until

    def chat_ready_at(self, chat: Chat, now: float, *, weight: int = 1, is_edit: bool = False) -> float:
        """When this chat may get its next letter, of a number of messages. All threads of a chat share its pace."""
        pace = self._chats.get(chat)
        if pace is None:
            return _NEVER
        if not self._limits.is_on:
            return pace.held_until
        if is_edit and self._has_free_edits:
            return max(self._edit_ready_at(pace, now), pace.held_until)
        burst = max(1, self._limits.private_burst - max(weight, 1) + 1)
        ready_at = pace.bucket.ready_at(interval_s=self._chat_interval(pace, now), burst=burst)
        if pace.recent is not None:
            ready_at = max(ready_at, self._group_ready_at(pace, now, weight))
        return max(ready_at, pace.held_until)

    def _edit_ready_at(self, pace: _ChatPace, now: float) -> float:
        slow = self._edit_slowness(pace, now)
        ready_at = pace.edit_bucket.empty_at if slow else _NEVER
        if pace.edits is not None:
            allowed = max(1, int(self._limits.group_per_min / (1 + slow)))
            ready_at = max(ready_at, _minute_ready_at(pace.edits, now, allowed=allowed, weight=1))
        return ready_at

    def _edit_slowness(self, pace: _ChatPace, now: float) -> float:
        """It fades as that of sends does; below a fifth of a second edits are free again."""
        if pace.edit_slow == 0.0:
            return 0.0
        faded = pace.edit_slow * float(0.5 ** ((now - pace.edit_slow_at) / RECOVERY_S))
        if faded < EDIT_SLOW_MIN:
            pace.edit_slow = 0.0
            return 0.0
        return faded

    def spend(self, chat: Chat, now: float, *, weight: int, interactive: bool, is_edit: bool = False) -> None:
        """Count one try, right before it is made. A weight of 0 makes no message and is free."""
        if not self._limits.is_on or weight == 0:
            return
        is_free = is_edit and self._has_free_edits
        self._spend_bulk(now, weight=weight, interactive=interactive or is_free)
        if interactive or is_free:
            debt_at = self._interactive.empty_at
            self._interactive.spend(now, interval_s=1 / self._interactive_rate.at(now), weight=weight)
            if is_free:
                # What is not held back must not hold back answers: it takes their burst from them, and no more.
                self._interactive.empty_at = max(debt_at, min(self._interactive.empty_at, now + INTERACTIVE_BURST_S))
            elif self.bot_ready_at(now, interactive=True) >= now:
                self._interactive_rate.used_in_full(now)
        if not has_chat_pace(chat):
            return
        pace = self._chat(chat, now)
        if is_edit and self._has_free_edits:
            self._spend_edit(pace, now)
            return
        pace.bucket.spend(now, interval_s=self._chat_interval(pace, now), weight=weight)
        if pace.recent is not None:
            pace.recent.extend([now] * weight)

    def _spend_edit(self, pace: _ChatPace, at: float) -> None:
        # Also while they are free: how many there were a moment ago tells whether they explain a 429.
        interval_s = self._edit_slowness(pace, at) or EDIT_SLOW_MIN
        pace.edit_bucket.spend(at, interval_s=interval_s, weight=1)
        if pace.edits is not None:
            pace.edits.append(at)

    def _spend_bulk(self, now: float, *, weight: int, interactive: bool) -> None:
        interval_s = SKEW / self._bulk_rate.at(now)
        debt_at = self._bulk.empty_at
        self._bulk.spend(now, interval_s=interval_s, weight=weight)
        if interactive:
            # Telegram's figure is about a second, so people's letters take away at most the second ahead.
            self._bulk.empty_at = max(debt_at, min(self._bulk.empty_at, now + BULK_WINDOW_S))
        else:
            self._bulk_turn_at = now + BULK_TURN * interval_s * weight

    def leaves_at(self, now: float, *, weight: int, is_edit: bool = False) -> float:
        """When a letter may leave that counts in the bot's rate of bulk and was counted before its mark was stored. Those whose
        marks a slow disk stored in one commit would leave together, and be answered 429."""
        if not self._limits.is_on or weight == 0 or (is_edit and self._has_free_edits):
            return now
        leaves_at = max(now, self._bulk_leaves_at - LEAVES_AHEAD_S)
        self._bulk_leaves_at = max(now, self._bulk_leaves_at) + SKEW / self._bulk_rate.at(now) * weight
        return leaves_at

    def left_late(self, chat: Chat, now: float, *, spent_at: float, weight: int, is_edit: bool = False) -> None:
        """A try that was counted a while ago is made only now (its mark took long to store): it counts as of now."""
        pace = self._chats.get(chat)
        if pace is None or weight == 0 or not self._limits.is_on:
            return
        if is_edit and self._has_free_edits:
            if pace.edits is not None and spent_at in pace.edits:
                pace.edits.remove(spent_at)
            self._spend_edit(pace, now)
            return
        pace.bucket.empty_at = max(pace.bucket.empty_at, now + self._chat_interval(pace, now) * weight)
        if pace.recent is not None:
            for _ in range(min(weight, pace.recent.count(spent_at))):
                pace.recent.remove(spent_at)
            pace.recent.extend([now] * weight)

    def limited(self, chat: Chat, now: float, *, retry_after_s: float, is_edit: bool = False) -> Scope:
        """Learn from a 429 and hold the smallest scope to blame: the chat, or the bot when the chat does not explain it."""
        until = now + retry_after_s
        # What has no chat (the bot's own profile, a user, an inline message) is held alone, too: setMyName alone can be
        # refused for a day.
        pace = self._chat(chat, now)
        is_explained = self._is_busy_editing(pace, now) if is_edit else self._is_busy(pace, now)
        pace.held_until = max(pace.held_until, until)
        if is_edit and self._has_free_edits:
            pace.edit_slow = min(8.0, max(0.5, self._edit_slowness(pace, now)) * 2)
            pace.edit_slow_at = pace.edit_bucket.empty_at = now  # the hold pays for those before it
        else:
            pace.slow = min(8.0, self._slowness(pace, now) * 2)
            pace.slow_at = now
        if is_explained:
            return Scope.CHAT
        suspect = self._suspect
        self._suspect = (chat, now)
        if suspect is None or suspect[0] == chat or now - suspect[1] > BLAME_WINDOW_S:
            return Scope.CHAT
        self._hold_bot(now, until)
        return Scope.BOT

    def hold_chat(self, chat: Chat, now: float, until: float) -> None:
        """Take up a hold that was made before a restart, or by a person."""
        self._chat(chat, now).held_until = until

    def hold_bot(self, until: float) -> None:
        self._bot_held_until = until

    def remember(self, chat: Chat, at: float, *, weight: int, is_edit: bool = False) -> None:
        """Take up what was sent shortly before a restart, so that neither a minute nor a burst is begun twice."""
        if has_chat_pace(chat) and weight and self._limits.is_on:
            pace = self._chat(chat, at)
            if is_edit and self._has_free_edits:
                self._spend_edit(pace, at)
                return
            pace.bucket.spend(at, interval_s=self._chat_interval(pace, at), weight=weight)
            if pace.recent is not None:
                pace.recent.extend([at] * weight)

    def move(self, old: Chat, new: Chat) -> None:
        """A group became a supergroup: its pace goes with it."""
        pace = self._chats.pop(old, None)
        if pace is not None:
            known = self._chats.get(new)
            self._chats[new] = pace if known is None else known.joined(pace)

    def _hold_bot(self, now: float, until: float) -> None:
        # Many answers to one flood arrive together; they are one lesson, not ten.
        if now >= self._bot_held_until:
            self._bulk_rate.lower(now)
            self._interactive_rate.lower(now)
        self._bot_held_until = max(self._bot_held_until, until)

    def _chat(self, chat: Chat, now: float) -> _ChatPace:
        pace = self._chats.get(chat)
        if pace is None:
            if len(self._chats) >= self._crowd:
                self._forget_idle(now)
                # If few are idle, the next look at all of them comes only when they have doubled.
                self._crowd = max(CHATS_REMEMBERED_MAX, 2 * len(self._chats))
            pace = self._chats[chat] = _ChatPace(now, is_group=is_group(chat))
        return pace

    def _forget_idle(self, now: float) -> None:
        for chat, pace in list(self._chats.items()):
            self._trim(pace, now)
            self._slowness(pace, now)
            self._edit_slowness(pace, now)
            if pace.is_idle(now):
                del self._chats[chat]

    def _slowness(self, pace: _ChatPace, now: float) -> float:
        """A learned slowness fades: it halves with every RECOVERY_S, and is forgotten below 1.2."""
        if pace.slow == 1.0:
            return 1.0
        faded = 1.0 + (pace.slow - 1.0) * float(0.5 ** ((now - pace.slow_at) / RECOVERY_S))
        if faded < 1.2:
            pace.slow = 1.0
            return 1.0
        return faded

    def _chat_interval(self, pace: _ChatPace, now: float) -> float:
        return SKEW * self._slowness(pace, now) / self._limits.private_per_s

    def _group_ready_at(self, pace: _ChatPace, now: float, weight: int) -> float:
        assert pace.recent is not None
        allowed = max(1, int(self._limits.group_per_min / self._slowness(pace, now)))
        return _minute_ready_at(pace.recent, now, allowed=allowed, weight=weight)

    def _trim(self, pace: _ChatPace, now: float) -> None:
        if pace.recent is not None:
            _trim_minute(pace.recent, now)
        if pace.edits is not None:
            _trim_minute(pace.edits, now)

    def _is_busy_editing(self, pace: _ChatPace, now: float) -> bool:
        """Whether this chat's own edits explain a 429: nearly its minute's worth, or several a moment ago."""
        self._trim(pace, now)
        if pace.edits is not None and len(pace.edits) >= self._limits.group_per_min * 0.8:
            return True
        return pace.edit_bucket.empty_at > now + 2.5 * EDIT_SLOW_MIN

    def _is_busy(self, pace: _ChatPace, now: float) -> bool:
        """Whether this chat's own traffic explains a 429: nearly its minute's worth, or a burst a moment ago."""
        self._trim(pace, now)
        if pace.recent is not None and len(pace.recent) >= self._limits.group_per_min * 0.8:
            return True
        # The refused message itself is one interval; half of another must be left of those before it.
        return pace.bucket.empty_at > now + 1.5 * self._chat_interval(pace, now)


def _minute_ready_at(minute: deque[float], now: float, *, allowed: int, weight: int) -> float:
    """When a number of messages more fit into a group's minute."""
    _trim_minute(minute, now)
    fits_beside = allowed - min(max(weight, 1), allowed)  # more than a whole minute's worth goes into an empty one
    if len(minute) <= fits_beside:
        return _NEVER
    return minute[-fits_beside - 1] + GROUP_WINDOW_S * SKEW


def _trim_minute(minute: deque[float], now: float) -> None:
    while minute and minute[0] < now - GROUP_WINDOW_S * SKEW:
        minute.popleft()
