"""Accounts as senders of letters: who may run them, and the way that their letters go."""

import asyncio
import random
from collections.abc import Callable, Sequence

from peik.archive_ports import Session
from peik.clock import Clock
from peik.desk import Desk
from peik.engine.leases import Leases
from peik.engine.route import Route
from peik.engine.routes import Routes
from peik.errors import NotFound
from peik.events import Event, Events
from peik.node_ports import CHORES
from peik.ports import BotRecord
from peik.session_events import SessionUp
from peik.sessions.ports import Line
from peik.sessions.sending import AccountCarrier
from peik.settings_values import RouteKind


class LeaseRights:
    """The port `Rights`: a session runs where its account's letters are sent from. One whose account is not known yet belongs
    to the node with the chores, which also enlists accounts."""

    def __init__(self, desk: Desk, leases: Leases, accounts: "LetterAccounts") -> None:
        self._desk = desk
        self._leases = leases
        self._accounts = accounts

    def may_run(self, session: Session) -> bool:
        if session.user_id is None or self._desk.known(session.user_id) is None:
            return self._leases.holds(CHORES)
        return self._leases.holds(session.user_id)

    async def enlist(self, sessions: Sequence[Session]) -> None:
        if not self._leases.holds(CHORES):
            return
        for session in sessions:
            if session.user_id is not None:
                await self._accounts.add(session.user_id, session.username)


class LetterAccounts:
    """The port `Accounts` of the sessions' desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def add(self, user_id: int, username: str | None) -> None:
        known = self._desk.known(user_id)
        if known is None or (known.token.is_account and username not in (None, known.username)):
            await self._desk.save_account(user_id, username)

    async def remove(self, user_id: int) -> None:
        known = self._desk.known(user_id)
        if known is not None and known.token.is_account:
            try:
                await self._desk.remove_bot(user_id)
            except NotFound:
                return  # another node was quicker


class AccountWays:
    """The way of each account's letters: its own connection, with a breaker of its own. One that is away holds up no other."""

    def __init__(
        self,
        line_of: Callable[[int], Line | None],
        *,
        clock: Clock,
        chance: random.Random,
        events: Events,
        trial_s: float,
    ) -> None:
        self._carrier = AccountCarrier(line_of)
        self._clock = clock
        self._chance = chance
        self._trial_s = trial_s
        self._unheard = Events()  # what becomes of an account's connection is told by its session
        self._ways: dict[int, Routes] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        events.listen(self._listen, SessionUp)

    def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def of(self, bot: BotRecord) -> Routes:
        if bot.bot_id not in self._ways:
            way = Route(
                f"account {bot.bot_id}",
                self._carrier,
                kind=RouteKind.DIRECT,
                clock=self._clock,
                chance=self._chance,
                events=self._unheard,
                probe_token=lambda: bot.token,
                trial_s=self._trial_s,
                is_watched=False,
            )
            routes = self._ways[bot.bot_id] = Routes([way], clock=self._clock, events=self._unheard)
            if self._group is not None:
                self._tasks[bot.bot_id] = self._group.create_task(routes.run())
        return self._ways[bot.bot_id]

    def add(self, bot: BotRecord) -> None:
        """See `peik.building_outbox.Hand`."""

    def remove(self, bot_id: int) -> None:
        self._ways.pop(bot_id, None)
        task = self._tasks.pop(bot_id, None)
        if task is not None:
            task.cancel()

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def close(self) -> None:
        await self._carrier.close()

    def _listen(self, told: Sequence[Event]) -> None:
        for event in told:
            if isinstance(event, SessionUp) and (routes := self._ways.get(event.bot_id)) is not None:
                routes.probe_now()
