"""Keeps one bot's webhook at Telegram: sets it, looks after it, sets it again. The updates come in over HTTP."""

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from peik.clock import Clock
from peik.core.arrival import UPDATE_TYPES, Update, is_pushed_anew
from peik.core.events import Events, NumberingReset, StoreFailed, WebhookSet
from peik.core.outcome import Delivered, Limited, Outcome, Refused
from peik.errors import StoreUnavailable
from peik.inbox.intake import Batcher, Intake, Told
from peik.inbox.outages import SOURCE, OutagePort
from peik.inbox.poller import PollTerms
from peik.inbox.source import (
    WEBHOOK_S,
    Intruders,
    SourceHealth,
    SourceStatus,
    WebhookInfo,
    ask,
    read_info,
    webhook_url,
    words_of,
)
from peik.inbox.store import InboxStore
from peik.outbox.store import BotRecord, HookStore
from peik.telegram.routes import Routes
from peik.wakeup import Wakeup

CHECK_S = 60.0
LOOK_S = 40.0  # while all is well; oftener than a message may wait (see NOTE_S of the poller)
CATCH_UP_S = 5.0  # while Telegram still has updates from before the start, look so often
CATCH_UP_S_MAX = 600.0  # after so long it counts as caught up: something may be stuck there for a day
BACKOFF_S_MAX = 15.0
REMOVE_TRIES = 10
CONNECTIONS = 100  # the most that Telegram's cloud allows
STORE_S = 2.0


class WebhookKeeper:
    def __init__(
        self,
        bot: BotRecord,
        *,
        way: Routes,
        store: InboxStore,
        outages: OutagePort,
        clock: Clock,
        events: Events,
        chance: random.Random,
        terms: PollTerms,
        secret: Callable[[int], Awaitable[str]],
    ) -> None:
        self._bot = bot
        self._bot_id = bot.bot_id
        self._way = way
        self._store = store
        self._outages = outages
        self._clock = clock
        self._events = events
        self._chance = chance
        self._terms = terms
        self._secret = secret
        self._url = webhook_url(terms.public_url, bot.bot_id)
        self._contact = SourceHealth(bot.bot_id, "webhook", clock=clock, events=events)
        self._intruders = Intruders(bot.bot_id, clock=clock, events=events)
        self._bell = Wakeup()
        self._began_at = clock.mono()
        # By Telegram's clock. Failures from before the first look were not ours; None: there was no look yet.
        self._error_at_s: int | None = None
        self._is_set = False
        self._set_at = float("-inf")
        self._is_behind = True

    # ---- for others ----

    def status(self) -> SourceStatus:
        return self._contact.status()

    def wake(self) -> None:
        """There is a way to Telegram again."""
        self._bell.ring()

    async def close(self) -> None:
        if self._contact.lasts:
            await self._note_seen()

    # ---- running ----

    async def run(self) -> None:
        await self._open()
        while True:
            wait_s = await self._step()
            await self._bell.wait(self._clock.mono() + wait_s)

    async def _open(self) -> None:
        while True:
            try:
                before, _ = await self._store.open_inbox(
                    self._bot_id, server=self._terms.server, at_ms=self._clock.wall_ms()
                )
                break
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(bot_id=self._bot_id, what="updates", why=error.detail))
                await asyncio.sleep(STORE_S)
        self._contact.begin(before.seen_at_ms)
        away_ms = self._contact.away_ms()
        if away_ms is not None and away_ms >= self._terms.missed_after_s * 1000:
            self._outages.expect(self._bot_id, SOURCE, self._clock.wall_ms() - away_ms)
            await self._outages.kept(self._bot_id)

    async def _step(self) -> float:
        """Set the webhook, or look after it; how long to wait until the next step."""
        if self._url is not None and not self._is_set:
            return await self._set(self._url)
        outcome = await ask(self._way, self._bot.token, "getWebhookInfo")
        info = read_info(outcome.result) if isinstance(outcome, Delivered) else None
        if info is None:
            return self._after_trouble(outcome)
        if info.url == self._url:
            return await self._after_look(info)
        if self._url is None:
            # Who has the address may be another process on this store, which takes in what is pushed: a worker has none.
            if info.leads_to(self._bot_id):
                return await self._after_look(info)
            why = "PEIK_PUBLIC_URL is not set, here or in a process that could be pushed to: nobody knows where to push"
            self._contact.lost(why, wait_s=CHECK_S, is_certain=True)
            return CHECK_S
        if info.url:
            self._intruders.tell("webhook", info.host)
        to_wait_s = self._set_at + WEBHOOK_S - self._clock.mono()
        if to_wait_s > 0:  # somebody is stubborn, and we are patient
            self._contact.lost(f"the webhook leads to {info.host if info.url else 'nowhere'}", wait_s=to_wait_s)
            return to_wait_s
        return await self._set(self._url)

    async def _set(self, url: str) -> float:
        try:
            secret = await self._secret(self._bot_id)
        except StoreUnavailable as error:
            self._contact.lost(f"the webhook's secret cannot be kept: {error.detail}", wait_s=STORE_S)
            return STORE_S
        params = {
            "url": url,
            "secret_token": secret,
            "max_connections": CONNECTIONS,
            "allowed_updates": list(dict.fromkeys([*UPDATE_TYPES, *self._terms.update_types])),
        }
        outcome = await ask(self._way, self._bot.token, "setWebhook", msgspec.json.encode(params))
        self._is_set = isinstance(outcome, Delivered)
        if not self._is_set:
            return self._after_trouble(outcome)
        self._set_at = self._clock.mono()
        self._contact.made()
        self._events.tell(WebhookSet(bot_id=self._bot_id))
        return CATCH_UP_S if self._is_behind else LOOK_S

    async def _after_look(self, info: WebhookInfo) -> float:
        """The webhook is ours. Whether pushes arrive is what Telegram says of them."""
        self._catch_up(info.pending_update_count)  # though some fail: one that is never taken is pushed for a day
        known_s, self._error_at_s = self._error_at_s, info.last_error_date
        if known_s is not None and info.last_error_date > known_s:
            self._contact.lost(info.last_error_message or "pushes fail", wait_s=CHECK_S, is_certain=True)
            return CHECK_S
        self._contact.made()
        await self._note_seen()
        return CATCH_UP_S if self._is_behind else LOOK_S

    def _catch_up(self, pending: int) -> None:
        is_late = self._clock.mono() - self._began_at >= CATCH_UP_S_MAX
        if self._is_behind and (pending == 0 or is_late):
            self._is_behind = False
            self._outages.over(self._bot_id, SOURCE)

    def _after_trouble(self, outcome: Outcome) -> float:
        match outcome:
            case Limited(retry_after_s=wait_s):
                self._contact.lost(words_of(outcome), wait_s=wait_s)
            case Refused():
                wait_s = CHECK_S
                self._contact.lost(words_of(outcome), wait_s=wait_s, is_certain=True)
            case _:
                wait_s = self._backoff_s(self._contact.failures)
                self._contact.lost(words_of(outcome), wait_s=wait_s)
        return wait_s

    def _backoff_s(self, failures: int) -> float:
        doubled = min(BACKOFF_S_MAX, float(1 << min(failures, 8)))
        return max(1.0, doubled * (0.75 + self._chance.random() / 4))

    async def _note_seen(self) -> None:
        try:
            await self._store.note_seen(self._bot_id, at_ms=self._clock.wall_ms())
        except StoreUnavailable as error:
            self._events.tell(StoreFailed(bot_id=self._bot_id, what="when updates were last seen", why=error.detail))

    async def remove(self) -> None:
        """Take our webhook away from Telegram, which keeps what is pending. One that is not ours stays."""
        for failures in range(REMOVE_TRIES):
            outcome = await ask(self._way, self._bot.token, "getWebhookInfo")
            info = read_info(outcome.result) if isinstance(outcome, Delivered) else None
            if info is not None:
                if info.url != self._url or not info.url:
                    return
                outcome = await ask(self._way, self._bot.token, "deleteWebhook")
                if isinstance(outcome, Delivered):
                    return
            await self._bell.wait(self._clock.mono() + self._backoff_s(failures))


# Updates that Telegram pushes, one by one and out of order. They are stored by whichever process gets them.


SECRET_BYTES = 32


class _Push:
    __slots__ = ("newest", "update")

    def __init__(self, update: Update, newest: int | None) -> None:
        self.update = update
        self.newest = newest  # the highest id before it


class PushedUpdates:
    def __init__(self, *, store: InboxStore, secret_store: HookStore, intake: Intake, events: Events) -> None:
        self._store = store
        self._secret_store = secret_store
        self._intake = intake
        self._events = events
        self._newest: dict[int, int | None] = {}  # the highest id of each bot's epoch
        self.known_secrets: dict[int, str] = {}
        self._companies: dict[int, Batcher[_Push]] = {}

    async def secret(self, bot_id: int) -> str:
        """What Telegram shows us with every push. Made at the first use, and kept."""
        known = self.known_secrets.get(bot_id)
        if known is None:
            candidate = secrets.token_urlsafe(SECRET_BYTES)  # in the alphabet that Telegram allows
            known = await self._secret_store.secret(f"webhook:{bot_id}", candidate)
            self.known_secrets[bot_id] = known
        return known

    async def take_in(self, bot_id: int, update: Update) -> None:
        """Make it durable. Those that come while others are stored go together. Raises StoreUnavailable."""
        if bot_id not in self._newest:
            newest = await self._newest_stored(bot_id)
            self._newest.setdefault(bot_id, newest)
        push, is_new_epoch = self._placed(bot_id, update)
        await self._company(bot_id).travel(push, begins=is_new_epoch)

    def take_in_at_once(self, bot_id: int, update: Update, told: Told) -> bool:
        """The same for one who is told how it ended. False: what is stored has to be asked first, and nothing was done."""
        if bot_id not in self._newest:
            return False
        push, is_new_epoch = self._placed(bot_id, update)
        self._company(bot_id).join(push, told, begins=is_new_epoch)
        return True

    def _placed(self, bot_id: int, update: Update) -> tuple[_Push, bool]:
        """An update as it goes on its way, and whether an epoch begins with it."""
        before = self._newest[bot_id]
        is_new_epoch = is_pushed_anew(update.update_id, newest=before)
        if before is None or is_new_epoch or update.update_id > before:
            self._newest[bot_id] = update.update_id
        return _Push(update, before), is_new_epoch

    def _company(self, bot_id: int) -> Batcher[_Push]:
        company = self._companies.get(bot_id)
        if company is None:
            company = self._companies[bot_id] = Batcher(partial(self._store_all, bot_id))
        return company

    async def _store_all(self, bot_id: int, pushes: Sequence[_Push], is_new_epoch: bool) -> None:
        # No last id: what a poll may confirm later is only what polls have brought. Here, something older may still
        # wait at Telegram for its next try.
        updates = [push.update for push in pushes]
        try:
            taken = await self._intake.take_in(bot_id, updates, last_update_id=None, is_new_epoch=is_new_epoch)
        except StoreUnavailable:
            self._newest.pop(bot_id, None)  # what is stored is asked anew
            raise
        if is_new_epoch:
            first = pushes[0]
            expected_id, first_id = (first.newest or 0) + 1, first.update.update_id
            self._events.tell(
                NumberingReset(bot_id=bot_id, expected_id=expected_id, first_id=first_id, epoch=taken.epoch)
            )

    def forget(self, bot_id: int) -> None:
        """Another source may bring this bot's updates from now on."""
        self._newest.pop(bot_id, None)

    async def _newest_stored(self, bot_id: int) -> int | None:
        state = await self._store.inbox(bot_id)
        return None if state is None else state.newest_update_id
