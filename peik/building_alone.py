"""The desk of accounts without a node: for commands that work on the archive itself."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from peik.archive_ports import Session
from peik.building_sessions import Kit, MakeArchive, MakeClients, kit_of, missing, tools_of
from peik.clock import Clock, SystemClock
from peik.config import Config
from peik.errors import Conflict
from peik.events import Events
from peik.settings_values import StoreKind
from peik.store.choosing import store_of

if TYPE_CHECKING:
    from peik.sessions.desk import SessionsDesk


@asynccontextmanager
async def desk_alone(
    config: Config,
    *,
    clock: Clock | None = None,
    make_clients: MakeClients | None = None,
    make_archive: MakeArchive | None = None,
    on_notice: Callable[[str], None] = lambda words: None,
) -> "AsyncIterator[SessionsDesk]":
    """The desk of accounts without a node, open: it reads, writes, signs in and takes in files, and runs no session. Nodes on
    the same archive see what it did at their next look. `on_notice` hears what the owner of this installation has to be told.
    Raises StartError, and Conflict if nothing asks for accounts."""
    clock = clock or SystemClock()
    kit = await kit_of(config, clock=clock, make_clients=make_clients, make_archive=make_archive)
    if kit is None:
        raise Conflict(
            code="no_sessions",
            detail="Nothing in the settings asks for accounts: set TELEGRAM_API_ID and TELEGRAM_API_HASH from "
            "my.telegram.org, or PEIK_ARCHIVE.",
        )
    if kit.notice is not None:
        on_notice(kit.notice)
    try:
        desk = _alone(config, kit, clock)
    except ImportError as error:
        raise missing(error) from None
    await desk.open()
    try:
        yield desk
    finally:
        await desk.end()
        await desk.close()


def _alone(config: Config, kit: Kit, clock: Clock) -> "SessionsDesk":
    from peik.sessions.crew import Crew
    from peik.sessions.desk import SessionsDesk
    from peik.sessions.following import Feeds
    from peik.sessions.importing import Importing
    from peik.sessions.registry import Registry
    from peik.sessions.signing_in import SigningIn

    events = Events()
    registry = Registry(kit.archive, clock)
    parts: tuple[SigningIn, Importing, Crew] | None = None
    if kit.clients is not None:
        tools = tools_of(kit, kit.clients, registry, clock=clock, events=events, chance=random.Random())
        parts = (
            SigningIn(registry, kit.vault, kit.clients, clock),
            Importing(registry, kit.vault, kit.clients, sessions_dir=config.sessions_dir),
            Crew(tools, _NoRights(), _NoRights()),  # it never runs: it knows what "start" and "stop" write
        )
    return SessionsDesk(
        archive=kit.archive,
        registry=registry,
        signing_in=parts and parts[0],
        importing=parts and parts[1],
        crew=parts and parts[2],
        accounts=_StoredAccounts(config, clock),
        feeds=Feeds(kit.archive, clock, events),
        vault=kit.vault,
        clock=clock,
        events=events,
    )


class _NoRights:
    """The ports `Locks` and `Rights` of a process that is no node."""

    lease_s: float | None = None

    async def take_lock(self, name: str) -> bool:
        return False

    async def drop_lock(self, name: str) -> None: ...

    def may_run(self, session: Session) -> bool:
        return False

    async def enlist(self, sessions: Sequence[Session]) -> None: ...


class _StoredAccounts:
    """The port `Accounts` of the sessions' desk, where no desk of letters is open."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock

    async def add(self, user_id: int, username: str | None) -> None:
        """The node with the chores does it."""

    async def remove(self, user_id: int) -> None:
        if self._config.store_kind is StoreKind.SQLITE and not self._config.sqlite_path.absolute().exists():
            return  # nobody ever sent a letter here
        store = store_of(self._config, clock=self._clock)
        await store.open()
        try:
            if any(bot.bot_id == user_id and bot.token.is_account for bot in await store.bots()):
                await store.remove_bot(user_id)
        finally:
            await store.close()
