"""How sources ask Telegram: one call for one bot, judged. It never repeats one."""

import asyncio
import random
from urllib.parse import urlsplit

import msgspec

from peik.clock import Clock
from peik.core.arrival import crossed, expires_at_ms, mended, percent_left
from peik.core.events import Events, InboxNearExpiry, Intruder, SourceBack, SourceFailed
from peik.core.outcome import Delivered, Limited, Moved, Outcome, Refused, Reply, Uncertain, Unsent, judge
from peik.core.token import Token
from peik.errors import Conflict
from peik.outbox.store import BotRecord
from peik.telegram.port import Request
from peik.telegram.routes import Routes

CALL_TIMEOUT_S = 20.0


class WebhookInfo(msgspec.Struct, frozen=True):
    """What Telegram says of a bot's webhook, as far as it matters to us. `url` is empty if there is none."""

    url: str = ""
    pending_update_count: int = 0
    last_error_date: int = 0
    last_error_message: str = ""

    @property
    def host(self) -> str:
        """All of the address that may be shown: the rest can hold a secret."""
        try:
            return urlsplit(self.url if "://" in self.url else f"https://{self.url}").hostname or "?"
        except ValueError:
            return "?"

    def leads_to(self, bot_id: int) -> bool:
        """Whether it looks like one that a Peik has set, wherever that one can be reached."""
        return self.url.endswith(PUSH_PATH.format(bot_id))


PUSH_PATH = "/webhook/{}"
_decode_info = msgspec.json.Decoder(WebhookInfo).decode


def read_info(result: bytes) -> WebhookInfo | None:
    try:
        return _decode_info(result)
    except msgspec.DecodeError:
        return None


def webhook_url(public_url: str | None, bot_id: int) -> str | None:
    """Where Telegram is to push a bot's updates. None: nobody said where we can be reached."""
    return None if public_url is None else public_url + PUSH_PATH.format(bot_id)


async def ask(
    way: Routes, token: Token, method: str, params: bytes = b"{}", *, timeout_s: float = CALL_TIMEOUT_S
) -> Outcome:
    reply = await way.carry(Request(token=token, method=method, params=params, timeout_s=timeout_s))
    outcome = judge(reply, method=method)
    if isinstance(outcome, Uncertain) and reply.status == 200:
        # Telegram said yes in a way that cannot be read. If only its characters are broken, it is read all the same.
        whole = mended(reply.body)
        if whole is not None:
            return judge(Reply(status=200, body=whole), method=method)
    return outcome


def words_of(outcome: Outcome) -> str:
    """Why it did not work, for people."""
    match outcome:
        case Refused(words=words, advice=advice):
            return f"{words}. {advice}"
        case Unsent(why=why) | Uncertain(why=why):
            return why
        case Limited(retry_after_s=wait_s):
            return f"Telegram asked to wait {wait_s:g} s"
        case Delivered() | Moved():
            return "an answer that means nothing here"


# Whether a source is in touch with Telegram. It tells when contact is lost, how long updates still keep, and when it
# is back; it never tries anything itself.


TELL_AFTER = 2  # failures in a row: that one poll's connection is cut is everyday life


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a bot's updates come in, for people. `expires_at_ms`: when the oldest one that may wait at Telegram is lost."""

    source: str  # polling, webhook or off
    is_well: bool
    why: str | None = None  # it is not well
    seen_at_ms: int | None = None
    expires_at_ms: int | None = None


class SourceHealth:
    def __init__(self, bot_id: int, source: str, *, clock: Clock, events: Events) -> None:
        self._bot_id = bot_id
        self._source = source
        self._clock = clock
        self._events = events
        self.seen_at_ms: int | None = None
        self._made_at: float | None = None  # by this process
        self.failures = 0  # in a row
        self._is_met = False
        self._why: str | None = None
        self._lost_at = 0.0
        self._is_told = False
        self._percent = 100  # left when last looked

    @property
    def is_well(self) -> bool:
        return self.failures == 0

    @property
    def lasts(self) -> bool:
        """Whether there is contact, and not just nothing against it: at a start nobody has answered yet."""
        return self._is_met and self.is_well

    @property
    def why(self) -> str | None:
        return self._why

    def status(self) -> SourceStatus:
        return SourceStatus(
            source=self._source,
            is_well=self.is_well,
            why=self._why,
            seen_at_ms=self.seen_at_ms,
            expires_at_ms=None if self.seen_at_ms is None else expires_at_ms(self.seen_at_ms),
        )

    def begin(self, seen_at_ms: int | None) -> None:
        """The last contact that is known of, by whichever process."""
        self.seen_at_ms = seen_at_ms

    def away_ms(self) -> int | None:
        """How long ago the last contact was. None: never. A clock that is set makes no absence longer than it was."""
        if self.seen_at_ms is None:
            return None
        if self._made_at is not None:
            return int((self._clock.steady() - self._made_at) * 1000)
        return max(0, self._clock.wall_ms() - self.seen_at_ms)

    def made(self) -> None:
        if self._is_told:
            away_s = self._clock.mono() - self._lost_at
            self._events.tell(SourceBack(bot_id=self._bot_id, source=self._source, away_s=away_s))
        self.seen_at_ms = self._clock.wall_ms()
        self._made_at = self._clock.steady()
        self._is_met = True
        self.failures = 0
        self._why = None
        self._is_told = False
        self._percent = 100

    def lost(self, why: str, *, wait_s: float, is_certain: bool = False) -> None:
        """A try failed, and the next one is made after `wait_s`. `is_certain`: it will fail again, unless somebody acts."""
        if not self.failures:
            self._lost_at = self._clock.mono()
        self.failures += 1
        self._why = why
        if not self._is_told and (is_certain or self.failures >= TELL_AFTER):
            self._is_told = True
            self._events.tell(SourceFailed(bot_id=self._bot_id, source=self._source, why=why, wait_s=wait_s))
        self._look()

    def _look(self) -> None:
        if self.seen_at_ms is None:
            return
        away_ms = self.away_ms() or 0
        left = percent_left(contact_at_ms=self.seen_at_ms, now_ms=self.seen_at_ms + away_ms)
        if crossed(before=self._percent, now=left) is not None:
            self._events.tell(
                InboxNearExpiry(bot_id=self._bot_id, percent_left=left, expires_at_ms=expires_at_ms(self.seen_at_ms))
            )
        self._percent = min(self._percent, left)


# Somebody else uses a bot's token: what to say, how often, and what is done about a webhook that is not wanted.
#
# Nothing here loops hot, however stubborn the other one is.


TELL_S = 600.0  # as long as it lasts, it is said so often
WAIT_S_MAX = 5.0
WEBHOOK_S = 60.0  # a foreign webhook is removed, or replaced, at most so often


class Intruders:
    """Tells of intruders, each at most every ten minutes."""

    def __init__(self, bot_id: int, *, clock: Clock, events: Events) -> None:
        self._bot_id = bot_id
        self._clock = clock
        self._events = events
        self._last: tuple[str, str] | None = None
        self._told_at = 0.0

    def tell(self, kind: str, detail: str) -> None:
        now = self._clock.mono()
        if self._last != (kind, detail) or now - self._told_at >= TELL_S:
            self._last, self._told_at = (kind, detail), now
            self._events.tell(Intruder(bot_id=self._bot_id, kind=kind, detail=detail))


class Conflicts:
    """A poller's 409s. `is_visitor`: it changes nothing and says what is in its way."""

    def __init__(
        self,
        bot: BotRecord,
        *,
        way: Routes,
        contact: SourceHealth,
        clock: Clock,
        events: Events,
        chance: random.Random,
        public_url: str | None,
        is_visitor: bool,
    ) -> None:
        self._token = bot.token
        self._own_url = webhook_url(public_url, bot.bot_id)
        self._way = way
        self._contact = contact
        self._clock = clock
        self._chance = chance
        self._is_visitor = is_visitor
        self._intruders = Intruders(bot.bot_id, clock=clock, events=events)
        self._in_a_row = 0
        self._removed_at = float("-inf")

    def over(self) -> None:
        """A poll was answered."""
        self._in_a_row = 0

    async def heed(self, words: str) -> None:
        """Do what can be done about a 409, and return when it is time to poll again. A visitor gets Conflict."""
        wait_s = min(WAIT_S_MAX, (1 << min(self._in_a_row, 3)) * (1.0 + self._chance.random() / 4))
        self._in_a_row += 1
        if "webhook" in words.lower():
            await self._remove_webhook(wait_s)
            return
        if self._is_visitor:
            raise Conflict(
                code="polled_elsewhere", detail="Another program polls with this token. Stop it, then recover."
            )
        # The newest caller wins, and only a poll that found nothing is thrown out: Telegram had nothing for us until
        # now. What comes from now on belongs to whoever asks first, so we ask again soon.
        self._contact.made()
        self._intruders.tell("poller", "If that is your own bot, let it use Peik's address; else stop it.")
        await asyncio.sleep(wait_s)

    async def _remove_webhook(self, wait_s: float) -> None:
        """Polls are refused while a webhook is set: ours from before, or somebody's."""
        outcome = await ask(self._way, self._token, "getWebhookInfo")
        info = read_info(outcome.result) if isinstance(outcome, Delivered) else None
        if info is None or not info.url:
            why = words_of(outcome) if info is None else "a webhook was there for a moment"
            self._contact.lost(why, wait_s=wait_s)
            await asyncio.sleep(wait_s)
            return
        if info.url != self._own_url:
            await self._heed_foreign(info)
        self._removed_at = self._clock.mono()
        # Never with drop_pending_updates: what waits there is what we come for.
        removed = await ask(self._way, self._token, "deleteWebhook")
        if not isinstance(removed, Delivered):
            self._contact.lost(words_of(removed), wait_s=wait_s)
            await asyncio.sleep(wait_s)

    async def _heed_foreign(self, info: WebhookInfo) -> None:
        if self._is_visitor:
            detail = f"Telegram pushes this bot's updates to {info.host}. Remove that webhook, then recover."
            raise Conflict(code="pushed_elsewhere", detail=detail)
        self._intruders.tell("webhook", info.host)
        wait_s = self._removed_at + WEBHOOK_S - self._clock.mono()
        if wait_s > 0:
            self._contact.lost(f"a webhook leads to {info.host}", wait_s=wait_s)
            await asyncio.sleep(wait_s)
