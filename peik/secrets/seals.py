"""What is secret in a store is sealed and opened here, and nowhere else. Without a key it stays as it is.

A sealed text says which key it was sealed with and nothing more; it opens only at its own place, so that rows cannot be swapped.
"""

import base64
import binascii
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from peik.errors import StartError, StoreUnavailable, Unavailable, to_install

if TYPE_CHECKING:
    from peik.secrets.vault import Vault

_SEALED = "sealed:"  # no token, no `whsec_…`, no key of ours begins so
_KEY_CHARS = (43, 44)  # of 32 bytes in base64: see `peik.secrets.vault`, which is not there in every installation
_ACCOUNT = ":@account"  # in the place of a token: see `peik.core.token`


# ---- places: what a secret belongs to, the same in every store ----


def place_of_bot(bot_id: int) -> str:
    return f"bot:{bot_id}"


def place_of_key(digest: bytes) -> str:
    """Of the webhook of an API key. By its digest: its number is given only by the commit that stores it."""
    return f"key:{digest.hex()}"


def place_of_consumer(bot_id: int, name: str) -> str:
    return f"consumer:{bot_id}@{name}"


def place_of_secret(name: str) -> str:
    """One of those that Peik made up itself: of its webhooks, its admin key."""
    return f"secret:{name}"


def bot_of(place: str) -> int | None:
    """Whose secret it is, if a bot's."""
    kind, _, rest = place.partition(":")
    match kind:
        case "bot":
            return int(rest)
        case "consumer":
            return int(rest.partition("@")[0])
        case "secret" if rest.startswith("webhook:"):
            return int(rest.partition(":")[2])
        case _:
            return None


# ---- texts ----


def is_sealed(text: str) -> bool:
    return text.startswith(_SEALED)


def is_secret(text: str) -> bool:
    """An account of a person has a mark in the place of a token, which everybody may read."""
    return not text.endswith(_ACCOUNT)


def key_id_of(text: str) -> str:
    """With which key it was sealed."""
    return text.split(":", 2)[1]


class Seals:
    """`make` makes the vault when it is first needed: a passphrase takes a tenth of a second, and most commands need none."""

    def __init__(self, make: "Callable[[], Vault] | None" = None, *, takes_long: bool = False) -> None:
        """Without `make` there is no key: what is plain stays plain, and what is sealed stays shut."""
        self._make = make
        self.takes_long = takes_long  # to make the vault: not on the event loop, then
        self._vault: Vault | None = None
        self._used: str | None = None
        self._is_held = False
        self._making = threading.Lock()

    @property
    def has_key(self) -> bool:
        return self._make is not None

    @property
    def vault(self) -> "Vault":
        """Raises StartError if the key cannot be used. Blocks for a moment at first."""
        assert self._make is not None, "only with a key"
        with self._making:
            if self._vault is None:
                self._vault = self._make()
            return self._vault

    @property
    def key_ids(self) -> list[str]:
        """Of the keys that we can open with, the first of the settings first."""
        return self.vault.key_ids if self.has_key else []

    @property
    def key_in_use(self) -> str:
        """What we seal with."""
        return self._used or self.key_ids[0]

    def use(self, key_id: str) -> None:
        """Seal with this one of our keys from now on: the one of the store, which all of its nodes have."""
        assert key_id in self.key_ids, "who cannot open it was refused"
        self._used = key_id
        self._is_held = False

    def hold(self) -> None:
        """Seal nothing until `use`: there are nodes that could not read it."""
        self._is_held = True

    def seal(self, text: str, *, place: str) -> str:
        if not self.has_key or self._is_held or not is_secret(text) or is_sealed(text):
            return text
        vault = self.vault
        key_id = self.key_in_use
        sealed = vault.seal(text, context=_context(place), key_id=key_id)
        return f"{_SEALED}{key_id}:{base64.urlsafe_b64encode(sealed).decode()}"

    def open(self, text: str, *, place: str) -> str:
        """Raises StoreUnavailable if it is sealed and we have no key for it, or if it does not belong here."""
        if not is_sealed(text):
            return text
        if not self.has_key:
            raise StoreUnavailable(code="no_secret_key", detail=NO_KEY)
        try:
            sealed = base64.b64decode(text.rpartition(":")[2], altchars=b"-_", validate=True)
            return self.vault.open(sealed, context=_context(place))
        except Unavailable as error:
            detail = WRONG_KEY if error.code == "wrong_secret_key" else BROKEN.format(place=place)
            raise StoreUnavailable(code=error.code, detail=detail) from None
        except (binascii.Error, UnicodeDecodeError):
            raise StoreUnavailable(code="broken_seal", detail=BROKEN.format(place=place)) from None

    def maybe_seal(self, text: str | None, *, place: str) -> str | None:
        return None if text is None else self.seal(text, place=place)

    def maybe_open(self, text: str | None, *, place: str) -> str | None:
        return None if text is None else self.open(text, place=place)


NO_KEY = (
    "The secrets in this store are sealed, and PEIK_SECRET_KEY is not set. Set it to the key that they were sealed with. "
    "Nothing was changed."
)
WRONG_KEY = (
    "The secrets in this store were sealed with another key than PEIK_SECRET_KEY. Set it to that one; or, if the key was "
    "changed, set PEIK_SECRET_KEY_OLD to what it was. Nothing was changed."
)
BROKEN = (
    "The sealed secret of {place} was changed, or belongs to another row. Restore a backup; or, if it is the token of a bot, "
    "give it again: peik secrets mend. Nothing was changed."
)
BAD_KEY = frozenset({"no_secret_key", "wrong_secret_key", "broken_seal"})  # codes of what `open` raises
PLAIN = Seals()


def seals_of(setting: str | None) -> Seals:
    """`setting` holds all keys, the first of which seals; None: nothing is sealed."""
    if setting is None:
        return PLAIN

    def make() -> "Vault":
        try:
            from peik.secrets.vault import Vault, keys_of
        except ImportError as error:
            raise StartError(
                f"PEIK_SECRET_KEY needs a package that is not installed ({error.name}): {to_install('secrets')}."
            ) from None
        return Vault(keys_of(setting))

    return Seals(make, takes_long=any(len(part.strip()) not in _KEY_CHARS for part in setting.split(",")))


def _context(place: str) -> str:
    return f"store {place}"  # contexts of accounts never begin so


# ---- what a store does for anyone who seals what is plain, and seals again ----


class KeptSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A text as it lies in the store, sealed or not."""

    place: str
    text: str

    def __repr__(self) -> str:
        return f"Kept({self.place})"


class SealChange(msgspec.Struct, frozen=True, kw_only=True):
    """Of a text that must still be `before`. Among `secret:…` places None stands for one that is not there."""

    place: str
    before: str | None
    after: str | None

    def __repr__(self) -> str:
        return f"Change({self.place})"


class SealStore(Protocol):
    async def kept(self) -> list[KeptSecret]:
        """Every text that may be sealed, as it is stored."""

    async def change(self, changes: Sequence[SealChange]) -> int:
        """In one commit. How many were made: one whose text is not as expected any more is left out."""

    async def is_ours(self) -> bool:
        """False: another process owns the store as a whole, and does all this."""

    async def scrub(self, traces: Sequence[str], *, may_rewrite: bool) -> str | None:
        """Let nothing of texts that were replaced lie about in what the store keeps of the past, as far as it can. None: it is
        so; else a sentence that says what is left. `may_rewrite`: it may take as long as writing everything again."""
