"""The desk of accounts from open to close: its archive, its chores, and its crew as leases come and go."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from peik.archive_ports import Archive, Tallied
from peik.clock import Clock
from peik.errors import Conflict, StartError, StoreUnavailable, Unavailable, described
from peik.events import Events, Surprise
from peik.session_events import ArchiveAway, ArchiveBack
from peik.sessions.cleaning import Accounts
from peik.sessions.crew import Crew
from peik.sessions.following import Feeds
from peik.sessions.importing import Importing
from peik.sessions.ports import Line
from peik.sessions.registry import Registry
from peik.sessions.signing_in import SigningIn
from peik.vault import Vault

OPEN_RETRY_S = 2.0
OPEN_RETRY_S_MAX = 60.0
RESTART_S = 1.0


class Chore(Protocol):
    """Something that is done beside it all, on one node or on each."""

    async def run(self) -> None:
        """Until cancelled."""


class OpenedDesk:
    """What `SessionsDesk` stands on. Before the archive has opened, everything raises Unavailable: bots need no archive, and do
    not wait for one."""

    def __init__(
        self,
        *,
        archive: Archive,
        registry: Registry,
        signing_in: SigningIn | None,
        importing: Importing | None,
        crew: Crew | None,
        accounts: Accounts,
        feeds: Feeds,
        vault: Vault,
        clock: Clock,
        events: Events,
        chores: Sequence[Chore] = (),
    ) -> None:
        """Without `signing_in`, `importing` and `crew` there is no application at Telegram: the archive can be read, and no
        session runs."""
        self._archive = archive
        self._registry = registry
        self._signing_in = signing_in
        self._importing = importing
        self._crew = crew
        self._accounts = accounts
        self._feeds = feeds
        self._vault = vault
        self._clock = clock
        self._events = events
        self._chores = chores
        self._away: str | None = "The archive is not open yet."
        self._tasks: list[asyncio.Task[None]] = []
        self._is_opened = False

    # ---- from open to close ----

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Open the archive, as soon as it can be, and run."""
        self._tasks.append(group.create_task(self._run(group)))

    async def open(self) -> None:
        """Only to read and write; no session runs. Raises StartError."""
        await self._archive.open()
        self._opened()

    async def _run(self, group: asyncio.TaskGroup) -> None:
        pause_s = OPEN_RETRY_S
        while not self._is_opened:
            try:
                await self._archive.open()
                self._opened()
                self._events.tell(ArchiveBack())
            except (StartError, StoreUnavailable) as error:
                self._away = str(error)
                self._events.tell(ArchiveAway(why=self._away))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, OPEN_RETRY_S_MAX)
        runs = [*self._chores, *([self._crew] if self._crew is not None else [])]
        self._tasks.extend(group.create_task(self._surely(one)) for one in runs)

    async def _surely(self, chore: Chore) -> None:
        while True:
            try:
                await chore.run()
                return
            except Exception as error:  # noqa: BLE001  one chore's surprise ends nothing else
                self._events.tell(Surprise(where=f"sessions, {type(chore).__name__}", error=described(error)))
                await asyncio.sleep(RESTART_S)

    def _opened(self) -> None:
        self._is_opened = True
        self._away = None

    async def end(self) -> None:
        """Every session is disconnected when this returns, and its lock given back."""
        self._feeds.end()
        if self._signing_in is not None:
            await self._signing_in.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()

    async def close(self) -> None:
        if self._is_opened:
            await self._archive.close()

    def end_streams(self) -> None:
        """Streams would keep their connections open for all of the grace."""
        self._feeds.end()

    # ---- leases come and go, see peik.node ----

    def look(self) -> None:
        """A session or a lease came, changed or went."""
        if self._crew is not None:
            self._crew.ring()

    async def let_go(self, user_id: int | None) -> None:
        if self._crew is not None:
            await self._crew.let_go(user_id)

    def drop(self, user_id: int | None) -> None:
        if self._crew is not None:
            self._crew.drop(user_id)

    def line_of(self, user_id: int) -> Line | None:
        """The connection that an account's letters go out by."""
        return None if self._crew is None else self._crew.line_of(user_id)

    def beaten(self, began: float) -> None:
        if self._crew is not None:
            self._crew.beaten(began)

    # ---- how it stands ----

    def trouble(self) -> str | None:
        """Why the archive cannot be used now, as far as is known."""
        return self._away or self._archive.trouble()

    def running(self) -> list[str]:
        """The sessions that run on this node."""
        return [] if self._crew is None else self._crew.running()

    async def tally(self, agent_id: str | None = None) -> Tallied:
        return await self._ready().tally(agent_id)

    # ---- what the rest of the desk needs ----

    def _ready(self) -> Archive:
        if self._away is not None:
            raise Unavailable(code="archive_away", detail=self._away)
        return self._archive

    def _signer(self) -> SigningIn:
        self._ready()
        if self._signing_in is None:
            raise _no_application()
        return self._signing_in

    def _must_be_able(self) -> Importing:
        self._ready()
        if self._importing is None:
            raise _no_application()
        return self._importing

    def _running(self) -> Crew:
        self._ready()
        if self._crew is None:
            raise _no_application()
        return self._crew


def _no_application() -> Conflict:
    return Conflict(
        code="no_application",
        detail="Peik has no application at Telegram: set TELEGRAM_API_ID and TELEGRAM_API_HASH from my.telegram.org.",
    )
