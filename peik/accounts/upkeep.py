"""What happens to the archive because time passes: what is too old goes. And how it is, for those who have to know."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from peik.accounts.events import ArchiveAway, ArchiveBack, SessionNotice
from peik.accounts.registry import (
    AccountPort,
    Registry,
    half_context,
    proxy_context,
    remove_old_sessions,
    secret_context,
)
from peik.archive.store import Archive, ArchiveRetention, Session, SessionFilter
from peik.clock import Clock
from peik.core.events import Events, StoreFailed
from peik.errors import StoreUnavailable, Unavailable
from peik.secrets.vault import Vault

PAGE = 1000
PAUSE_S = 0.05  # between two pages: what sessions see comes first
FIRST_S = 60.0  # readers that were away find their places before old ones go
CLEAN_S = 3600.0
LOOK_S = 60.0  # whether the chores are this node's now, or whether what failed works again
WATCH_S = 5.0
DAY_S = 86_400.0
PROBE = "@upkeep"  # a reader of nothing


class ArchiveUpkeep:
    """Hourly, on the node with the chores."""

    def __init__(
        self,
        *,
        archive: Archive,
        registry: Registry,
        accounts: AccountPort,
        retention: ArchiveRetention,
        keep_sessions_s: float | None,
        is_ours: Callable[[], bool],
        clock: Clock,
        events: Events,
    ) -> None:
        self._archive = archive
        self._registry = registry
        self._accounts = accounts
        self._retention = retention
        self._keep_sessions_s = keep_sessions_s
        self._is_ours = is_ours
        self._clock = clock
        self._events = events
        self._failing: set[str] = set()  # told of, until it works again

    async def run(self) -> None:
        due: dict[str, float] = {}
        tasks = {"the archive's upkeep": self._clean, "the upkeep of sessions": self._remove_sessions}
        await asyncio.sleep(FIRST_S)
        while True:
            for what, work in tasks.items():
                if self._is_ours() and self._clock.mono() >= due.get(what, 0.0) and await self._surely(what, work):
                    due[what] = self._clock.mono() + CLEAN_S
            await asyncio.sleep(LOOK_S)

    async def _surely(self, what: str, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except StoreUnavailable as error:
            if what not in self._failing:
                self._failing.add(what)
                self._events.tell(StoreFailed(what=what, why=error.detail))
            return False
        self._failing.discard(what)
        return True

    async def _clean(self) -> None:
        """In small commits. Fewer than a page in all: no kind of them had as many."""
        gone = PAGE
        while gone >= PAGE and self._is_ours():
            gone = await self._archive.clean(self._retention, at_ms=self._clock.wall_ms(), limit=PAGE)
            await asyncio.sleep(PAUSE_S)

    async def _remove_sessions(self) -> None:
        if self._keep_sessions_s is not None:
            days = self._keep_sessions_s / DAY_S
            await remove_old_sessions(self._registry, self._accounts, days, at_ms=self._clock.wall_ms())


class ArchiveWatch:
    """Tells when an archive that was open cannot be used any more, and when it can again. On each node."""

    def __init__(self, *, archive: Archive, clock: Clock, events: Events) -> None:
        self._archive = archive
        self._clock = clock
        self._events = events

    async def run(self) -> None:
        is_away = False
        while True:
            await asyncio.sleep(WATCH_S)
            why = self._archive.trouble()
            if why is not None:
                why = await self._tried()  # what was known may be long over, if nobody wrote since
            if why is not None and not is_away:
                self._events.tell(ArchiveAway(why=why))
            if why is None and is_away:
                self._events.tell(ArchiveBack())
            is_away = why is not None

    async def _tried(self) -> str | None:
        """By a write: a full disk can be read."""
        try:
            await self._archive.save_places(PROBE, {PROBE: 1}, at_ms=self._clock.wall_ms())
        except StoreUnavailable as error:
            return error.detail
        return None


# After a change of PEIK_SECRET_KEY: everything sealed with an older key is sealed with the first one.


class Resealed(msgspec.Struct, frozen=True, kw_only=True):
    renewed: int = 0
    lost: tuple[str, ...] = ()  # sessions that no key of ours opens: they have to sign in again


async def reseal(registry: Registry, vault: Vault) -> Resealed:
    """May be repeated, and interrupted. When nothing is lost the older keys are not needed any more."""
    return await _changed(registry, lambda sealed, context: vault.renewed(sealed, context=context))


async def unseal(registry: Registry, vault: Vault) -> Resealed:
    """Store every account's key as plain text, for whoever takes PEIK_SECRET_KEY away. May be repeated, and interrupted."""
    plain = Vault([], allows_plain=True)

    def opened(sealed: bytes, context: str) -> bytes | None:
        after = plain.seal(vault.open(sealed, context=context), context=context)
        return after if after != sealed else None

    return await _changed(registry, opened)


class Renewal:
    """A chore: at a start with PEIK_SECRET_KEY_OLD everything is sealed again, once."""

    def __init__(self, registry: Registry, vault: Vault, events: Events) -> None:
        self._registry = registry
        self._vault = vault
        self._events = events

    async def run(self) -> None:
        done = await reseal(self._registry, self._vault)
        if done.renewed:
            self._events.tell(SessionNotice(words=f"Keys of accounts: {done.renewed} sealed again with the new key."))
        if done.lost:
            lost = ", ".join(done.lost)
            self._events.tell(
                SessionNotice(words=f"No key of ours opens these accounts; they have to sign in again: {lost}.")
            )


async def _changed(registry: Registry, renew: Callable[[bytes, str], bytes | None]) -> Resealed:
    renewed = 0
    lost = []
    for session in await registry.all(SessionFilter()):
        try:
            before = session.version
            after = await registry.change(session.session_id, lambda old: _renewed(old, renew))
            renewed += after.version != before
        except Unavailable as problem:
            if problem.code not in ("wrong_secret_key", "broken_seal"):
                raise
            lost.append(session.session_id)
    return Resealed(renewed=renewed, lost=tuple(lost))


def _renewed(session: Session, renew: Callable[[bytes, str], bytes | None]) -> Session:
    secret, proxy = session.secret, session.proxy
    if secret is not None:
        context = secret_context(session.session_id)
        try:
            secret = renew(secret, context) or secret
        except Unavailable as problem:
            if problem.code != "broken_seal":
                raise
            # Not the key of an account, but of a sign-in that is under way.
            secret = renew(secret, half_context(session.session_id)) or secret
    if proxy is not None:
        proxy = renew(proxy, proxy_context(session.session_id)) or proxy
    return msgspec.structs.replace(session, secret=secret, proxy=proxy)
