"""After a change of PEIK_SECRET_KEY: everything sealed with an older key is sealed with the first one."""

from typing import Protocol

import msgspec

from peik.accounts.events import SessionNotice
from peik.accounts.registry import Registry, half_context, proxy_context, secret_context
from peik.archive.store import Session, SessionFilter
from peik.core.events import Events
from peik.errors import Unavailable
from peik.secrets.vault import Vault


class Resealed(msgspec.Struct, frozen=True, kw_only=True):
    renewed: int = 0
    lost: tuple[str, ...] = ()  # sessions that no key of ours opens: they have to sign in again


async def reseal(registry: Registry, vault: Vault) -> Resealed:
    """May be repeated, and interrupted. When nothing is lost the older keys are not needed any more."""
    return await _changed(registry, vault.renewed)


async def unseal(registry: Registry, vault: Vault) -> Resealed:
    """Store every account's key as plain text, for whoever takes PEIK_SECRET_KEY away. May be repeated, and interrupted."""
    plain = Vault([], allows_plain=True)

    def opened(sealed: bytes, *, context: str) -> bytes | None:
        after = plain.seal(vault.open(sealed, context=context), context=context)
        return after if after != sealed else None

    return await _changed(registry, opened)


class Renewal:
    """A chore: at a start with PEIK_SECRET_KEY_OLD everything is sealed anew, once."""

    def __init__(self, registry: Registry, vault: Vault, events: Events) -> None:
        self._registry = registry
        self._vault = vault
        self._events = events

    async def run(self) -> None:
        done = await reseal(self._registry, self._vault)
        if done.renewed:
            self._events.tell(SessionNotice(words=f"Keys of accounts: {done.renewed} sealed anew with the new key."))
        if done.lost:
            lost = ", ".join(done.lost)
            self._events.tell(
                SessionNotice(words=f"No key of ours opens these accounts; they have to sign in again: {lost}.")
            )


class _Renew(Protocol):
    def __call__(self, sealed: bytes, *, context: str) -> bytes | None:
        """What is to be stored instead; None: it stays."""


async def _changed(registry: Registry, renew: _Renew) -> Resealed:
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


def _renewed(session: Session, renew: _Renew) -> Session:
    secret, proxy = session.secret, session.proxy
    if secret is not None:
        context = secret_context(session.session_id)
        try:
            secret = renew(secret, context=context) or secret
        except Unavailable as problem:
            if problem.code != "broken_seal":
                raise
            # Not the key of an account, but of a sign-in that is under way.
            secret = renew(secret, context=half_context(session.session_id)) or secret
    if proxy is not None:
        proxy = renew(proxy, context=proxy_context(session.session_id)) or proxy
    return msgspec.structs.replace(session, secret=secret, proxy=proxy)
