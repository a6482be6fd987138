"""After a change of PEIK_SECRET_KEY: everything sealed with an older key is sealed with the first one."""

import msgspec

from peik.archive_ports import Session, SessionFilter
from peik.errors import Unavailable
from peik.sessions.registry import Registry
from peik.sessions.signing_in import half_context, proxy_context, secret_context
from peik.sessions.vault import Vault


class Resealed(msgspec.Struct, frozen=True, kw_only=True):
    renewed: int = 0
    lost: tuple[str, ...] = ()  # sessions that no key of ours opens: they have to sign in again


async def reseal(registry: Registry, vault: Vault) -> Resealed:
    """May be repeated, and interrupted. When nothing is lost the older keys are not needed any more."""
    renewed = 0
    lost = []
    for session in await registry.all(SessionFilter()):
        try:
            before = session.version
            after = await registry.change(session.session_id, lambda old: _renewed(old, vault))
            renewed += after.version != before
        except Unavailable as problem:
            if problem.code not in ("wrong_secret_key", "broken_seal"):
                raise
            lost.append(session.session_id)
    return Resealed(renewed=renewed, lost=tuple(lost))


def _renewed(session: Session, vault: Vault) -> Session:
    secret, proxy = session.secret, session.proxy
    if secret is not None:
        context = secret_context(session.session_id)
        try:
            secret = vault.renewed(secret, context=context) or secret
        except Unavailable as problem:
            if problem.code != "broken_seal":
                raise
            # Not the key of an account, but of a sign-in that is under way.
            secret = vault.renewed(secret, context=half_context(session.session_id)) or secret
    if proxy is not None:
        proxy = vault.renewed(proxy, context=proxy_context(session.session_id)) or proxy
    return msgspec.structs.replace(session, secret=secret, proxy=proxy)
