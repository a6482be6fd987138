"""The keys of the API: made, listed, revoked, and all of them in memory so that a request costs one look-up.

A change made here counts at once. One made by another process on the same store counts with the next `refresh`, which
follows foreign writes within half a second.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence

import msgspec

from peik.admin.model import Key, Scope, digest_of
from peik.clock import Clock
from peik.core.address import AddressReach, read_address
from peik.core.documents import DocumentStore, Filing
from peik.core.events import Events, StoreFailed
from peik.core.units import UNLIMITED, Rate, parse_rate
from peik.errors import BadInput, NotFound, StoreUnavailable
from peik.outbox.hooks import SECRET_BYTES, secret_of
from peik.outbox.store import KeyStore

NOTE_S = 60.0  # how far behind `last_used_at` may be after a crash: one small commit a minute, however busy
NAME_CHARS_MAX = 100
KEY_PREFIX = "peik_"
RATES = "key_rates"  # a collection of documents: under the digest of a key its own rate, of those few that have one
_RATES_PAGE = 1000


class MadeKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key with its secrets, which are shown now and never again."""

    key: Key
    text: str
    webhook_secret: str | None

    def __repr__(self) -> str:
        return f"Made({self.key!r})"


class Keyring:
    def __init__(
        self, *, store: KeyStore, documents: DocumentStore, clock: Clock, events: Events, hooks_may_be_private: bool
    ) -> None:
        self._store = store
        self._documents = documents
        self._clock = clock
        self._events = events
        self._hooks_may_be_private = hooks_may_be_private
        self._generation = -1
        self._keys: dict[bytes, Key] = {}
        self._used: dict[int, int] = {}
        self._noted: dict[int, int] = {}

    def find(self, digest: bytes) -> Key | None:
        """The key of this digest, noted as used now."""
        key = self._keys.get(digest)
        if key is not None:
            self._used[key.id] = self._clock.wall_ms()
        return key

    def known(self) -> list[Key]:
        """Every key, with its last use as far as this process knows it."""
        return [
            msgspec.structs.replace(key, last_used_at_ms=self._used.get(key.id, key.last_used_at_ms))
            for key in self._keys.values()
        ]

    async def make(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        bot_ids: frozenset[int] | None = None,
        expires_at_ms: int | None = None,
        webhook_url: str | None = None,
        rate: str | None = None,
    ) -> MadeKey:
        """Make a key. It counts when this returns."""
        at_ms = self._clock.wall_ms()
        _check(name, scopes, bot_ids, expires_at_ms, at_ms)
        if webhook_url is not None:
            webhook_url = read_address(webhook_url, reach=AddressReach.private(self._hooks_may_be_private))
        own_rate = _rate(rate)
        text = KEY_PREFIX + secrets.token_urlsafe(32)
        webhook_secret = None if webhook_url is None else secret_of(secrets.token_bytes(SECRET_BYTES))
        key = Key(
            id=0,
            name=name,
            digest=digest_of(text),
            scopes=tuple(dict.fromkeys(scopes)),
            bot_ids=bot_ids,
            created_at_ms=at_ms,
            expires_at_ms=expires_at_ms,
            webhook_url=webhook_url,
            rate=own_rate,
        )
        if own_rate is not None:
            # Before the key: anyone who reads the new key finds its rate. If we die in between, the key was never there.
            await self._documents.file(
                [Filing(collection=RATES, key=key.digest.hex(), body=msgspec.json.encode(own_rate).decode())]
            )
        kept = await self._store.add_key(key, webhook_secret=webhook_secret)
        await self.refresh()
        return MadeKey(key=kept, text=text, webhook_secret=webhook_secret)

    async def revoke(self, key_id: int) -> None:
        """The key opens nothing any more when this returns. Raises NotFound."""
        is_known = await self._store.revoke_key(key_id, at_ms=self._clock.wall_ms())
        limited = [one.digest.hex() for one in self._keys.values() if one.id == key_id and one.rate is not None]
        await self.refresh()
        if limited:
            await self._documents.file([Filing(collection=RATES, key=digest, body=None) for digest in limited])
        if not is_known:
            raise NotFound(code="unknown_key", detail=f"There is no key {key_id} here (any more).")

    async def refresh(self) -> None:
        """Read the keys again if any has changed."""
        if await self._store.keys_generation() == self._generation:
            return
        generation, keys = await self._store.keys()
        rates = await self._rates()
        # Two refreshes may be on their way at once; the older news must not win.
        if generation > self._generation:
            self._generation = generation
            self._keys = {key.digest: _with_rate(key, rates) for key in keys}

    async def _rates(self) -> dict[str, Rate]:
        found: dict[str, Rate] = {}
        after: str | None = None
        while True:
            page = await self._documents.documents(RATES, after=after, limit=_RATES_PAGE)
            found |= {document.key: msgspec.json.decode(document.body, type=Rate) for document in page}
            if len(page) < _RATES_PAGE:
                return found
            after = page[-1].key

    # ---- running ----

    async def run(self) -> None:
        while True:
            await asyncio.sleep(NOTE_S)
            try:
                await self.note()
            except StoreUnavailable as error:
                self._events.tell(StoreFailed(what="the use of keys", why=error.detail))

    async def note(self) -> None:
        """Store when keys were used, if any was since the last time."""
        fresh = {key_id: at for key_id, at in self._used.items() if self._noted.get(key_id) != at}
        if fresh:
            await self._store.note_key_use(fresh)
            self._noted |= fresh


def _with_rate(key: Key, rates: Mapping[str, Rate]) -> Key:
    own = rates.get(key.digest.hex())
    return key if own is None else msgspec.structs.replace(key, rate=own)


def _rate(text: str | None) -> Rate | None:
    try:
        return None if text is None else parse_rate(text) or UNLIMITED
    except ValueError as error:
        raise BadInput(code="bad_rate", detail=f"rate: {error}.") from None


def _check(
    name: str, scopes: Sequence[Scope], bot_ids: frozenset[int] | None, expires_at_ms: int | None, at_ms: int
) -> None:
    if not 0 < len(name.strip()) <= NAME_CHARS_MAX:
        raise BadInput(code="bad_name", detail=f"A key has a name of 1 to {NAME_CHARS_MAX} characters.")
    if not scopes:
        raise BadInput(code="no_scope", detail="Say what the key is for: scopes is a list of read, send, admin.")
    if bot_ids is not None and not bot_ids:
        raise BadInput(code="no_bot_ids", detail="A key without a single bot opens nothing. Leave bot_ids out for all.")
    if expires_at_ms is not None and expires_at_ms <= at_ms:
        raise BadInput(code="already_expired", detail="expires_at is in the past.")
