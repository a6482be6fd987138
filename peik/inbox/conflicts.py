"""Somebody else uses a bot's token: what to say, how often, and what is done about a webhook that is not wanted.

Nothing here loops hot, however stubborn the other one is.
"""

import asyncio
import random

from peik.clock import Clock
from peik.core.outcome import Delivered
from peik.errors import Conflict
from peik.events import Events, Intruder
from peik.inbox.asking import Way, WebhookInfo, ask, read_info, webhook_url, words_of
from peik.inbox.contact import Contact
from peik.ports import BotRecord

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
        way: Way,
        contact: Contact,
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
