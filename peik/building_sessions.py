"""How accounts are put together. What they need beyond the core install is loaded only if the settings ask for accounts."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from peik.archive.choosing import archive_of
from peik.archive_ports import Archive, ArchiveRetention, Session
from peik.building_accounts import LeaseRights, LetterAccounts
from peik.building_ground import Ground
from peik.building_outbox import Outbox
from peik.clock import Clock
from peik.config import Config
from peik.core.address import Reach, read_address
from peik.errors import BadInput, Problem, StartError
from peik.events import Events
from peik.hook_ports import Poster
from peik.node_ports import CHORES
from peik.session_events import SessionNotice
from peik.settings_values import StoreKind

if TYPE_CHECKING:
    from peik.sessions.client import ClientFactory
    from peik.sessions.crew import Crew
    from peik.sessions.desk import SessionsDesk
    from peik.sessions.following import Feeds
    from peik.sessions.opened import Chore
    from peik.sessions.registry import Registry
    from peik.sessions.running import Tools
    from peik.vault import Vault

MakeArchive = Callable[[Config], Archive]
MakeClients = Callable[[Config, Clock], "ClientFactory"]


class Kit(msgspec.Struct, frozen=True, kw_only=True):
    """What accounts need that takes a while to be made, or may be missing."""

    archive: Archive
    vault: "Vault"
    clients: "ClientFactory | None"  # None: there is no application at Telegram
    notice: str | None = None  # what the owner of this installation has to be told


def archive_named(config: Config) -> Archive:
    """The archive of the settings, not open yet. Where Redis is the store, sessions are cached there."""
    cache = config.store if config.store_kind is StoreKind.REDIS else None
    return archive_of(config.archive, store=config.store, cache=cache)


async def kit_of(
    config: Config,
    *,
    clock: Clock,
    make_clients: MakeClients | None = None,
    make_archive: MakeArchive | None = None,
) -> Kit | None:
    """None: nothing in the settings asks for accounts. Raises StartError."""
    if not config.has_sessions and make_clients is None:
        return None
    if (config.telegram_api_id is None) != (config.telegram_api_hash is None):
        raise StartError("TELEGRAM_API_ID and TELEGRAM_API_HASH go together: set both, from my.telegram.org.")
    try:
        from peik.vault import takes_long, vault_of
    except ImportError as error:
        raise missing(error) from None
    make_vault = partial(vault_of, config.secret_keys, config.beside(".secret"), allows_plain=config.secrets_plain)
    vault, notice = await asyncio.to_thread(make_vault) if takes_long(config.secret_keys) else make_vault()
    clients: ClientFactory | None = None
    if make_clients is not None:
        clients = make_clients(config, clock)
    elif config.telegram_api_id is not None:
        clients = _telethon(config, clock)
    return Kit(archive=(make_archive or archive_named)(config), vault=vault, clients=clients, notice=notice)


def _telethon(config: Config, clock: Clock) -> "ClientFactory":
    try:
        from peik.sessions.telethon_client import TelethonClients
    except ImportError as error:
        raise missing(error) from None
    assert config.telegram_api_id is not None, "looked at before"
    return TelethonClients(
        api_id=config.telegram_api_id,
        api_hash=config.telegram_api_hash or "",
        clock=clock,
        sessions_dir=config.sessions_dir,
    )


def missing(error: ImportError) -> StartError:
    return StartError(f"Accounts need a package that is not installed ({error.name}): pip install 'peik[sessions]'.")


def sessions_of(ground: Ground, outbox: Outbox, kit: Kit, poster: Poster) -> "SessionsDesk":
    """Raises StartError."""
    from peik.sessions.crew import Crew
    from peik.sessions.desk import SessionsDesk
    from peik.sessions.following import Feeds
    from peik.sessions.importing import Importing
    from peik.sessions.registry import Registry
    from peik.sessions.signing_in import SigningIn

    config, clock, events = ground.config, ground.clock, ground.events
    if kit.notice is not None:
        events.tell(SessionNotice(words=kit.notice))
    registry = Registry(kit.archive, clock)
    feeds = Feeds(kit.archive, clock, events)
    accounts = LetterAccounts(outbox.desk)
    crew: Crew | None = None
    signing_in: SigningIn | None = None
    if kit.clients is not None:
        tools = tools_of(kit, kit.clients, registry, clock=clock, events=events, chance=ground.chance)
        crew = Crew(tools, ground.store.nodes, LeaseRights(outbox.desk, outbox.leases, accounts))
        signing_in = SigningIn(registry, kit.vault, kit.clients, clock, on_signed_in=partial(_enlisted, accounts, crew))
    sessions = SessionsDesk(
        archive=kit.archive,
        registry=registry,
        signing_in=signing_in,
        importing=None
        if kit.clients is None
        else Importing(registry, kit.vault, kit.clients, sessions_dir=config.sessions_dir),
        crew=crew,
        accounts=accounts,
        feeds=feeds,
        vault=kit.vault,
        clock=clock,
        events=events,
        chores=_chores(ground, outbox, kit, poster, registry=registry, feeds=feeds),
    )
    outbox.leases.when_beaten(sessions.beaten)
    return sessions


def tools_of(
    kit: Kit, clients: "ClientFactory", registry: "Registry", *, clock: Clock, events: Events, chance: random.Random
) -> "Tools":
    from peik.sessions.budget import Budget
    from peik.sessions.running import Tools

    return Tools(
        registry=registry,
        book=kit.archive,
        vault=kit.vault,
        clients=clients,
        budget=Budget(clock),
        clock=clock,
        events=events,
        chance=chance,
    )


async def _enlisted(accounts: LetterAccounts, crew: "Crew", session: Session) -> None:
    """Who signs in and sends at once shall not hear that there is no such account. If it fails, the crew does it."""
    with suppress(Problem):
        await accounts.add(session.user_id or 0, session.username)
    crew.ring()


def _chores(
    ground: Ground, outbox: Outbox, kit: Kit, poster: Poster, *, registry: "Registry", feeds: "Feeds"
) -> "list[Chore]":
    """What is done beside it all."""
    from peik.ops.archived_log import ArchivedLog
    from peik.sessions.lettering import Lettering
    from peik.sessions.pushing import Pushing
    from peik.sessions.resealing import Renewal
    from peik.sessions.upkeep import ArchiveWatch, Upkeep

    config, clock, events, archive = ground.config, ground.clock, ground.events, kit.archive
    desk, leases = outbox.desk, outbox.leases
    chores: list[Chore] = [
        Upkeep(
            archive=archive,
            registry=registry,
            accounts=LetterAccounts(desk),
            retention=retention_of(config),
            keep_sessions_s=config.keep_sessions,
            is_ours=lambda: leases.is_live(CHORES),
            clock=ground.settled,
            events=events,
        ),
        ArchiveWatch(archive=archive, clock=clock, events=events),
        Lettering(archive=archive, registry=registry, letters=desk, is_ours=leases.holds, clock=clock, events=events),
    ]
    if config.sessions_webhook is not None:
        try:
            url = read_address(config.sessions_webhook, reach=Reach.private(config.hooks_allow_private))
        except BadInput as error:
            raise StartError(f"PEIK_SESSIONS_WEBHOOK: {error.detail}") from None
        chores.append(
            Pushing(
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
                archive=archive, node=ground.store.nodes.node, level=config.log_level, clock=clock, events=events
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
