"""How accounts are put together. What they need beyond the core install is loaded only if the settings ask for accounts."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from peik.accounts.events import SessionNotice
from peik.app.context import Context
from peik.archive.store import Archive, ArchiveRetention, Session
from peik.archive.wiring import archive_of
from peik.clock import Clock, SystemClock
from peik.core.address import AddressReach, read_address
from peik.core.events import Events
from peik.core.nodes import CHORES
from peik.errors import BadInput, Conflict, Problem, StartError, to_install
from peik.outbox.store import Poster
from peik.outbox.wiring import LeaseRights, LetterAccounts, Outbox
from peik.settings.config import Config
from peik.settings.values import StoreKind
from peik.storage.open import store_of

if TYPE_CHECKING:
    from peik.accounts.budget import Budget
    from peik.accounts.client import ClientFactory
    from peik.accounts.crew import Crew
    from peik.accounts.feeds import Feeds
    from peik.accounts.media import MediaFolder
    from peik.accounts.registry import Registry
    from peik.accounts.runner import SessionTools
    from peik.accounts.service import AccountService, Chore
    from peik.accounts.telethon.client import TelegramServer
    from peik.secrets.vault import Vault

MakeArchive = Callable[[Config], Archive]
MakeClients = Callable[[Config, Clock], "ClientFactory"]
MakeBudget = Callable[[Clock], "Budget"]


class Kit(msgspec.Struct, frozen=True, kw_only=True):
    """What accounts need that takes a while to be made, or may be missing."""

    archive: Archive
    vault: "Vault"
    clients: "ClientFactory | None"  # None: there is no application at Telegram
    notice: str | None = None  # what the owner of this installation has to be told
    make_budget: MakeBudget | None = None


def archive_named(config: Config) -> Archive:
    """The archive of the settings, not open yet. Where Redis is the store, sessions are cached there."""
    cache = config.store if config.store_kind is StoreKind.REDIS else None
    archive = archive_of(config.archive, store=config.store, cache=cache)
    media = _media_of(config)
    if media is None:
        return archive
    from peik.accounts.media import FiledArchive

    return cast(Archive, FiledArchive(archive, media))


def _media_of(config: Config) -> "MediaFolder | None":
    if config.sessions_media is None:
        return None
    from peik.accounts.media import MediaFolder

    return MediaFolder(
        config.sessions_media.absolute(),
        size_max=config.sessions_media_max,
        kinds=frozenset(config.sessions_media_kinds),
    )


async def kit_of(
    config: Config,
    *,
    clock: Clock,
    make_clients: MakeClients | None = None,
    make_archive: MakeArchive | None = None,
    make_budget: MakeBudget | None = None,
) -> Kit | None:
    """None: nothing in the settings asks for accounts. Raises StartError."""
    if not config.has_sessions and make_clients is None:
        return None
    if (config.telegram_api_id is None) != (config.telegram_api_hash is None):
        raise StartError("TELEGRAM_API_ID and TELEGRAM_API_HASH go together: set both, from my.telegram.org.")
    try:
        from peik.secrets.vault import takes_long, vault_of
    except ImportError as error:
        raise missing(error) from None
    make_vault = partial(vault_of, config.secret_keys, config.beside(".secret"), allows_plain=config.secrets_plain)
    vault, notice = await asyncio.to_thread(make_vault) if takes_long(config.secret_keys) else make_vault()
    clients: ClientFactory | None = None
    if make_clients is not None:
        clients = make_clients(config, clock)
    elif config.telegram_api_id is not None:
        clients = _telethon(config, clock)
    archive = (make_archive or archive_named)(config)
    return Kit(archive=archive, vault=vault, clients=clients, notice=notice, make_budget=make_budget)


def _telethon(config: Config, clock: Clock) -> "ClientFactory":
    try:
        from peik.accounts.telethon.client import TelethonClients
    except ImportError as error:
        raise missing(error) from None
    assert config.telegram_api_id is not None, "looked at before"
    try:
        return TelethonClients(
            api_id=config.telegram_api_id,
            api_hash=config.telegram_api_hash or "",
            clock=clock,
            sessions_dir=config.sessions_dir,
            server=_server_of(config),
            proxy=config.sessions_proxy,
        )
    except BadInput as error:
        setting = "PEIK_SESSIONS_PROXY" if error.code == "malformed_proxy" else "PEIK_SESSIONS_SERVER"
        raise StartError(f"{setting}: {error.detail}") from None


def _server_of(config: Config) -> "TelegramServer | None":
    """Raises StartError."""
    from peik.accounts.telethon.client import TelegramServer

    named = config.sessions_server
    if named is None:
        return None
    try:
        key = None if named.key is None else named.key.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise StartError(f"PEIK_SESSIONS_SERVER: the key in {named.key} cannot be read: {error}") from None
    return TelegramServer(address=named.address, port=named.port, dc_id=named.dc_id, public_key=key)


def missing(error: ImportError) -> StartError:
    return StartError(f"Accounts need a package that is not installed ({error.name}): {to_install('sessions')}.")


def sessions_of(context: Context, outbox: Outbox, kit: Kit, poster: Poster) -> "AccountService":
    """Raises StartError."""
    from peik.accounts.crew import Crew
    from peik.accounts.feeds import Feeds
    from peik.accounts.registry import Registry
    from peik.accounts.service import AccountService
    from peik.accounts.session_files import Importing
    from peik.accounts.sign_in import SignInSteps

    config, clock, events = context.config, context.clock, context.events
    if kit.notice is not None:
        events.tell(SessionNotice(words=kit.notice))
    registry = Registry(kit.archive, clock)
    feeds = Feeds(kit.archive, clock, events)
    accounts = LetterAccounts(outbox.service)
    crew: Crew | None = None
    signing_in: SignInSteps | None = None
    importing: Importing | None = None
    if kit.clients is not None:
        tools = tools_of(kit, config, registry, clock=clock, events=events, chance=context.chance)
        crew = Crew(tools, context.store.nodes, LeaseRights(outbox.service, outbox.leases, accounts))
        turn = tools.budget.connect_turn
        signing_in = SignInSteps(
            registry,
            kit.vault,
            kit.clients,
            clock,
            on_signed_in=partial(_enlisted, accounts, crew),
            connect_turn=turn,
        )
        importing = Importing(registry, kit.vault, kit.clients, sessions_dir=config.sessions_dir, connect_turn=turn)
    sessions = AccountService(
        archive=kit.archive,
        registry=registry,
        signing_in=signing_in,
        importing=importing,
        crew=crew,
        accounts=accounts,
        feeds=feeds,
        vault=kit.vault,
        clock=clock,
        events=events,
        chores=_chores(context, outbox, kit, poster, registry=registry, feeds=feeds),
    )
    outbox.leases.when_beaten(sessions.beaten)
    return sessions


def tools_of(
    kit: Kit, config: Config, registry: "Registry", *, clock: Clock, events: Events, chance: random.Random
) -> "SessionTools":
    from peik.accounts.budget import Budget
    from peik.accounts.runner import SessionTools

    assert kit.clients is not None, "there is an application at Telegram"
    return SessionTools(
        registry=registry,
        book=kit.archive,
        vault=kit.vault,
        clients=kit.clients,
        budget=(kit.make_budget or Budget)(clock),
        clock=clock,
        events=events,
        chance=chance,
        media=_media_of(config),
    )


async def _enlisted(accounts: LetterAccounts, crew: "Crew", session: Session) -> None:
    """Who signs in and sends at once shall not hear that there is no such account. If it fails, the crew does it."""
    with suppress(Problem):
        await accounts.add(session.user_id or 0, session.username)
    crew.ring()


def _chores(
    context: Context, outbox: Outbox, kit: Kit, poster: Poster, *, registry: "Registry", feeds: "Feeds"
) -> "list[Chore]":
    """What is done beside it all."""
    from peik.accounts.feeds import FeedPush
    from peik.accounts.letters import LetterLinks
    from peik.accounts.upkeep import ArchiveUpkeep, ArchiveWatch, Renewal
    from peik.monitoring.archived_log import ArchivedLog

    config, clock, events, archive = context.config, context.clock, context.events, kit.archive
    service, leases = outbox.service, outbox.leases
    chores: list[Chore] = [
        ArchiveUpkeep(
            archive=archive,
            registry=registry,
            accounts=LetterAccounts(service),
            retention=retention_of(config),
            keep_sessions_s=config.keep_sessions,
            is_ours=lambda: leases.is_live(CHORES),
            clock=context.settled,
            events=events,
        ),
        ArchiveWatch(archive=archive, clock=clock, events=events),
        LetterLinks(
            archive=archive, registry=registry, letters=service, is_ours=leases.holds, clock=clock, events=events
        ),
    ]
    if config.sessions_webhook is not None:
        try:
            url = read_address(config.sessions_webhook, reach=AddressReach.private(config.hooks_allow_private))
        except BadInput as error:
            raise StartError(f"PEIK_SESSIONS_WEBHOOK: {error.detail}") from None
        chores.append(
            FeedPush(
                url=url,
                archive=archive,
                feeds=feeds,
                poster=poster,
                secret=outbox.hooks.own_secret,
                may_push=lambda: leases.is_live(CHORES),
                clock=clock,
                events=events,
            )
        )
    if config.secret_key_old is not None:
        chores.append(Renewal(registry, kit.vault, events))
    if config.log_in_archive:
        chores.append(
            ArchivedLog(
                archive=archive, node=context.store.nodes.node, level=config.log_level, clock=clock, events=events
            )
        )
    return chores


def retention_of(config: Config) -> ArchiveRetention:
    def ms(seconds: float | None) -> int | None:
        return None if seconds is None else int(seconds * 1000)

    return ArchiveRetention(
        messages_ms=ms(config.keep_messages),
        events_ms=ms(config.keep_events),
        feed_ms=ms(config.keep_feed),
        logs_ms=ms(config.keep_logs),
    )


# The service of accounts without a node: for commands that work on the archive itself.


if TYPE_CHECKING:
    from peik.accounts.service import AccountService


@asynccontextmanager
async def service_alone(
    config: Config,
    *,
    clock: Clock | None = None,
    make_clients: MakeClients | None = None,
    make_archive: MakeArchive | None = None,
    on_notice: Callable[[str], None] = lambda words: None,
) -> "AsyncIterator[AccountService]":
    """The service of accounts without a node, open: it reads, writes, signs in and takes in files, and runs no session. Nodes on
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
        service = _alone(config, kit, clock)
    except ImportError as error:
        raise missing(error) from None
    await service.open()
    try:
        yield service
    finally:
        await service.end()
        await service.close()


def _alone(config: Config, kit: Kit, clock: Clock) -> "AccountService":
    from peik.accounts.crew import Crew
    from peik.accounts.feeds import Feeds
    from peik.accounts.registry import Registry
    from peik.accounts.service import AccountService
    from peik.accounts.session_files import Importing
    from peik.accounts.sign_in import SignInSteps

    events = Events()
    registry = Registry(kit.archive, clock)
    parts: tuple[SignInSteps, Importing, Crew] | None = None
    if kit.clients is not None:
        tools = tools_of(kit, config, registry, clock=clock, events=events, chance=random.Random())
        parts = (
            SignInSteps(registry, kit.vault, kit.clients, clock, connect_turn=tools.budget.connect_turn),
            Importing(
                registry,
                kit.vault,
                kit.clients,
                sessions_dir=config.sessions_dir,
                connect_turn=tools.budget.connect_turn,
            ),
            Crew(tools, _NoRights(), _NoRights()),  # it never runs: it knows what "start" and "stop" write
        )
    return AccountService(
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
    """The ports `SessionLocks` and `Rights` of a process that is no node."""

    lease_s: float | None = None

    async def take_lock(self, name: str) -> bool:
        return False

    async def drop_lock(self, name: str) -> None: ...

    def may_run(self, session: Session) -> bool:
        return False

    async def enlist(self, sessions: Sequence[Session]) -> None: ...


class _StoredAccounts:
    """The port `Accounts` of the sessions' service, where no outbox is open."""

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
