"""How contacts, links and notifications are put together: what they need of the outbox comes in as small pieces."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec

from peik.app.context import Context
from peik.clock import Clock, zone_of
from peik.contacts.engine import ContactCollector
from peik.core.letter import LetterCall, Priority
from peik.core.outcome import Delivered
from peik.core.token import Token
from peik.errors import Conflict, Problem, StartError, StoreUnavailable
from peik.notifications.links import Links, Redeeming
from peik.notifications.model import LetterTerms, Parcel
from peik.notifications.queue import NotificationDispatch, Packing, Releasing
from peik.notifications.service import Checking, NotificationService, NotificationTerms
from peik.notifications.templates import Templates, load_outreach
from peik.notifications.upkeep import Cleaning
from peik.outbox.courier import ask_me
from peik.outbox.service import OutboxService
from peik.outbox.store import LetterFilter, LetterView
from peik.outbox.wiring import Outbox
from peik.settings.config import Config
from peik.telegram.routes import Routes

ASK_S = 5.0  # for getMe: who wants a link waits for it
NAMES_LOOK_S = 5.0  # so soon after a bot was added it has its name
NAME_AGAIN_S = 600.0  # one that Telegram did not tell
NAMES_FIRST_S = 60.0  # after a start: most bots ask getMe themselves by then, and a start has other things to do
NAME_FRESH_S = 86_400.0
KEYS_MS = (
    40 * 3600 * 1000
)  # keys of letters are kept for 48 hours: anyone who comes later looks for the letters themselves
FOUND_MAX = 1000


class Notifications(msgspec.Struct, frozen=True, kw_only=True):
    """The service; who sees every chat, bot by bot; and who lets go what waited, under the lease of the chores."""

    service: NotificationService
    contacts: ContactCollector
    releases: Releasing


def terms_of(config: Config) -> NotificationTerms:
    if config.notify_quiet is not None:
        try:
            zone_of(config.notify_quiet.tz)
        except Problem as problem:
            raise StartError(f"PEIK_NOTIFY_QUIET: {problem.detail}") from None
    return NotificationTerms(
        rate_max=round(config.notify_rate * 3600),
        quiet=config.notify_quiet,
        keep_ms=int(config.keep_completed * 1000),
    )


def notifications_of(context: Context, outbox: Outbox, terms: NotificationTerms | None = None) -> Notifications:
    """`terms`: by default as the settings say. Raises StartError."""
    terms = terms or terms_of(context.config)
    store, clock, events = context.store, context.clock, context.events
    documents, service, leases = store.documents, outbox.service, outbox.leases
    letters = OutreachLetters(service, clock)
    bots = OutreachBots(service, outbox.routes)
    templates = Templates(documents)
    packing = Packing(documents, rate_max=terms.rate_max, quiet=terms.quiet)
    handing = NotificationDispatch(documents, letters)
    releasing = Releasing(
        documents=documents,
        packing=packing,
        handing=handing,
        cleaning=Cleaning(documents, clock=context.settled, keep_ms=terms.keep_ms),
        clock=clock,
        events=events,
    )
    notifications = NotificationService(
        documents=documents,
        letters=letters,
        links=Links(documents=documents, bots=bots, clock=clock, events=events),
        templates=templates,
        checking=Checking(documents=documents, bots=bots, templates=templates, quiet=terms.quiet),
        packing=packing,
        handing=handing,
        releasing=releasing,
        clock=clock,
        events=events,
    )
    redeeming = Redeeming(
        documents=documents, letters=letters, templates=templates, texts=load_outreach(), events=events
    )
    contacts = ContactCollector(
        store=store.inbox,
        contacts=store.contacts,
        events=events,
        served=lambda: [bot.bot_id for bot in service.bots() if leases.holds(bot.bot_id) and not bot.token.is_account],
        witnesses=[redeeming.see],
    )
    return Notifications(service=notifications, contacts=contacts, releases=releasing)


class OutreachLetters:
    """The port `NotificationLettersPort`, through the outbox."""

    def __init__(self, service: OutboxService, clock: Clock) -> None:
        self._service = service
        self._clock = clock

    async def accept(self, parcels: Sequence[Parcel]) -> list[list[int]]:
        ids: dict[str, list[int]] = {}
        for parcel in parcels:
            if self._clock.wall_ms() - parcel.packed_at_ms > KEYS_MS and (found := await self._found(parcel)):
                ids[parcel.id] = found
        calls = [(parcel, call) for parcel in parcels if parcel.id not in ids for call in _calls(parcel)]
        if calls:
            for (parcel, _), accepted in zip(
                calls, await self._service.accept([call for _, call in calls]), strict=True
            ):
                ids.setdefault(parcel.id, []).append(accepted.letter_id)
        return [ids[parcel.id] for parcel in parcels]

    async def _found(self, parcel: Parcel) -> list[int]:
        """What was accepted of a parcel that nobody finished for two days."""
        wanted = LetterFilter(bot_id=parcel.bot_id, message_type=parcel.type, since_ms=parcel.packed_at_ms)
        found = await self._service.find(wanted, before=None, limit=FOUND_MAX)
        own = f'"notification_id":"{parcel.id}"'
        return sorted(view.id for view in found if own in (view.metadata or ""))

    async def answer(self, bot_id: int, chat_id: int, text: str, *, idempotency_key: str) -> None:
        params = msgspec.json.encode({"chat_id": chat_id, "text": text})
        await self._service.accept(
            [
                LetterCall(
                    bot_id=bot_id,
                    method="sendMessage",
                    params=params,
                    priority=Priority.HIGH,
                    idempotency_key=idempotency_key,
                    metadata=b'{"message_type":"link"}',
                )
            ]
        )

    async def letters(self, letter_ids: Sequence[int]) -> list[LetterView]:
        return await self._service.letters(letter_ids)


def _calls(parcel: Parcel) -> list[LetterCall]:
    """All of one parcel come from one commit, so that either all or none of them are there."""
    terms = parcel.terms or LetterTerms()
    return [
        LetterCall(
            bot_id=parcel.bot_id,
            method=call.method,
            params=msgspec.json.encode(call.params),
            priority=parcel.priority,
            attempts=terms.attempts,
            backoff_ms=terms.backoff_ms,
            backoff=terms.backoff,
            timeout_ms=terms.timeout_ms,
            expires_at_ms=parcel.expires_at_ms,
            idempotency_key=f"peik-notice:{parcel.id}:{index}",
            metadata=msgspec.json.encode(parcel.metadata),
            hook=parcel.hook,
        )
        for index, call in enumerate(parcel.calls)
    ]


class OutreachBots:
    """The port `Bots` of notifications."""

    def __init__(self, service: OutboxService, routes: Routes) -> None:
        self._service = service
        self._routes = routes

    def named(self, bot_id: int | None) -> int:
        return self._service.bot(bot_id).bot_id

    def are_several(self) -> bool:
        return sum(not bot.token.is_account for bot in self._service.bots()) > 1

    def receiving(self, bot_id: int | None) -> int:
        bot = self._service.bot(bot_id)
        if bot.inbound == "off":
            detail = f"Nobody would see the code: set inbound of bot {bot.bot_id} to polling or webhook first."
            raise Conflict(code="inbound_off", detail=detail)
        return bot.bot_id

    async def username(self, bot_id: int) -> str | None:
        bot = self._service.bot(bot_id)
        if bot.username is not None:
            return bot.username
        await ask_me(self._service, self._routes, bot, timeout_s=ASK_S)
        return self._service.bot(bot_id).username


class BotNames:
    """Asks Telegram what each bot is called: soon after it was added, and once a day, for its owner can rename it. One node does
    it for all."""

    def __init__(self, service: OutboxService, routes: Routes, clock: Clock, *, is_meant: Callable[[], bool]) -> None:
        self._service = service
        self._routes = routes
        self._clock = clock
        self._is_meant = is_meant
        self._due: dict[Token, float] = {}  # a new token may be of a bot with a new name

    async def run(self) -> None:
        """Until cancelled."""
        task = asyncio.current_task()
        assert task is not None
        began = self._clock.mono() + NAMES_FIRST_S
        self._due = {bot.token: began for bot in self._service.bots()}
        while not task.cancelling():  # asked: a library can swallow a cancellation on Python 3.11
            await self.look()
            await asyncio.sleep(NAMES_LOOK_S)

    async def look(self) -> None:
        """Ask for those whose time it is, one after the other."""
        bots = {bot.token: bot for bot in self._service.bots() if not bot.token.is_account and bot.paused is None}
        self._due = {token: at for token, at in self._due.items() if token in bots}
        for token, bot in bots.items():
            now = self._clock.mono()
            # One that was added with its name, as the gateway adds them, has just been asked for.
            due = self._due.setdefault(token, now if bot.me is None else now + NAME_FRESH_S)
            if self._is_meant() and now >= due:
                is_known = False
                with contextlib.suppress(StoreUnavailable):
                    outcome = await ask_me(self._service, self._routes, bot, timeout_s=ASK_S)
                    is_known = isinstance(outcome, Delivered)
                self._due[token] = now + (NAME_FRESH_S if is_known else NAME_AGAIN_S)
