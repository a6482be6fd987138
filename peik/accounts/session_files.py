"""Taking in session files of Telethon 1 that exist already: each is looked at, told of, and registered once.

A file is opened read-only and never changed. Which version of Telethon wrote it does not matter, as long as it holds a data
centre and a key.
"""

import asyncio
import base64
import binascii
import enum
import hashlib
import ipaddress
import os
import sqlite3
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec
from telethon.crypto import AuthKey
from telethon.sessions import StringSession

from peik.accounts.client import ClientError, ClientFactory, Me, Trouble
from peik.accounts.registry import Registry, secret_context
from peik.accounts.telethon.client import session_path, way_of
from peik.archive.store import Session, SessionFilter, SessionState
from peik.errors import BadInput, Conflict, Problem, Unavailable
from peik.secrets.vault import Vault

_KEY_BYTES = 256
_KEY_MARK = "key"  # in the metadata: which key it is, without telling anything of it


class FileVerdict(enum.StrEnum):
    IMPORTED = "imported"
    WOULD_IMPORT = "would_import"  # it would be (only with a dry run)
    DUPLICATE = "duplicate"  # its key is registered already, or came in an earlier file
    NOT_A_SESSION = "not_a_session"
    EMPTY = "empty"  # a session in which nobody ever signed in
    SIGNED_OUT = "signed_out"  # Telegram does not take it (only with check)
    UNCHECKED = "unchecked"  # Telegram could not be asked (only with check): nothing was registered
    FAILED = "failed"


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file."""

    file: str
    verdict: FileVerdict
    detail: str = ""
    session_id: str | None = None
    user_id: int | None = None


class FoundSession(msgspec.Struct, frozen=True, kw_only=True):
    """A key that lies in a file."""

    dc_id: int
    address: str
    port: int
    key: bytes

    def __repr__(self) -> str:
        return f"Found(dc {self.dc_id})"

    @property
    def mark(self) -> str:
        return hashlib.sha256(b"peik session key" + self.key).hexdigest()[:24]

    @property
    def secret(self) -> str:
        session = StringSession()
        session.set_dc(self.dc_id, self.address, self.port)
        session.auth_key = AuthKey(self.key)
        return str(session.save())


class Unusable(Exception):
    def __init__(self, verdict: FileVerdict, detail: str) -> None:
        super().__init__(detail)
        self.verdict = verdict
        self.detail = detail


class Importing:
    def __init__(
        self,
        registry: Registry,
        vault: Vault,
        clients: ClientFactory,
        *,
        sessions_dir: Path | None = None,
        connect_turn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`connect_turn` returns when one more account may connect: hundreds of files come at once."""
        self._connect_turn = connect_turn
        self._registry = registry
        self._vault = vault
        self.clients = clients
        self._sessions_dir = sessions_dir

    def path_of(self, file: str) -> Path:
        return session_path(file, self._sessions_dir)

    def must_have(self, file: str) -> None:
        """Raises BadInput if there is no such file in PEIK_SESSIONS_DIR that somebody signed in with."""
        path = session_path(file, self._sessions_dir)
        try:
            read_session_file(path)
        except Unusable as no:
            raise BadInput(code="unusable_file", detail=f"{path.name}: {no.detail}") from None

    async def take_string(
        self, text: str, *, agent_id: str, passphrase: str | None = None, check: bool = False
    ) -> Session:
        """A session from its string: of Telethon 1, or as another Peik sealed it. Raises BadInput, and Conflict if its key, or
        with `check` the account's phone, is registered already."""
        secret = text.strip()
        if secret.startswith(SEALED):
            secret = await asyncio.to_thread(unsealed, secret, passphrase)
        if not secret:
            raise BadInput(code="malformed_session", detail="The string of the session is empty.")
        self.clients(session_id="import", agent_id=agent_id, secret=secret, file=None, proxy=None)  # raises BadInput
        mark = _mark_of_secret(secret)
        known = await self._known_marks()
        if mark in known:
            raise Conflict(code="session_known", detail=f"Session {known[mark]} has the same key.")
        try:
            me = await self._checked(secret, agent_id) if check else None
        except Unusable as no:
            raise BadInput(code=str(no.verdict), detail=no.detail) from None
        return await self._register(
            {_KEY_MARK: mark, "imported": "string"}, me, agent_id, kept=lambda _: (secret, None)
        )

    def check_proxy(self, proxy: str | None) -> None:
        """Raises BadInput for an address that cannot be one."""
        way_of(proxy)

    async def run(
        self,
        paths: Sequence[Path],
        *,
        agent_id: str,
        check: bool = False,
        keep_files: bool = False,
        is_dry: bool = False,
    ) -> AsyncIterator[Looked]:
        """One report per file, as it comes. `check` asks Telegram about each before it is registered. `keep_files`: the
        session runs from a copy of its file in PEIK_SESSIONS_DIR; else from a sealed string, and the file is not needed.
        `is_dry` registers and copies nothing."""
        known = await self._known_marks()
        for path in paths:
            try:
                found = await asyncio.to_thread(read_session_file, path)
                if found.mark in known:
                    raise Unusable(FileVerdict.DUPLICATE, f"Session {known[found.mark]} has the same key.")
                me = await self._checked(found.secret, agent_id) if check else None
                if is_dry:
                    known[found.mark] = f"of {path.name}"
                    yield Looked(
                        file=path.name, verdict=FileVerdict.WOULD_IMPORT, user_id=me.user_id if me is not None else None
                    )
                    continue
                told = {_KEY_MARK: found.mark, "imported": path.name}
                session = await self._register(
                    told, me, agent_id, kept=self._keeping(path, found, keep_file=keep_files)
                )
            except Unusable as no:
                yield Looked(file=path.name, verdict=no.verdict, detail=no.detail)
            except Problem as problem:
                yield Looked(file=path.name, verdict=FileVerdict.FAILED, detail=problem.detail)
            except OSError as error:
                yield Looked(
                    file=path.name, verdict=FileVerdict.FAILED, detail=error.strerror or "It cannot be copied."
                )
            else:
                known[found.mark] = session.session_id
                yield Looked(
                    file=path.name, verdict=FileVerdict.IMPORTED, session_id=session.session_id, user_id=session.user_id
                )

    async def _known_marks(self) -> dict[str, str]:
        """Which keys are registered: by the mark that an import leaves, or by the sealed key itself."""
        known: dict[str, str] = {}
        for session in await self._registry.all(SessionFilter()):
            mark = msgspec.json.decode(session.metadata).get(_KEY_MARK)
            if not isinstance(mark, str):
                mark = self._mark_of(session)
            if mark is not None:
                known[mark] = session.session_id
        return known

    def _mark_of(self, session: Session) -> str | None:
        if session.secret is None:
            return None
        with suppress(Problem):  # half signed in, or sealed with a key that is gone
            return _mark_of_secret(self._vault.open(session.secret, context=secret_context(session.session_id)))
        return None

    async def _checked(self, secret: str, agent_id: str) -> Me:
        client = self.clients(session_id="import", agent_id=agent_id, secret=secret, file=None, proxy=None)
        if self._connect_turn is not None:
            await self._connect_turn()
        try:
            me = await client.connect()
        except ClientError as error:
            verdict = FileVerdict.SIGNED_OUT if error.trouble is Trouble.REVOKED else FileVerdict.UNCHECKED
            raise Unusable(verdict, error.words) from None
        finally:
            with suppress(ClientError):
                await client.disconnect()
        if me is None:
            raise Unusable(FileVerdict.SIGNED_OUT, "Telegram does not know this session any more.")
        return me

    def _keeping(
        self, path: Path, found: FoundSession, *, keep_file: bool
    ) -> Callable[[str], tuple[str | None, str | None]]:
        return lambda session_id: (None, self._copied(path, session_id)) if keep_file else (found.secret, None)

    async def _register(
        self,
        told: Mapping[str, object],
        me: Me | None,
        agent_id: str,
        *,
        kept: Callable[[str], tuple[str | None, str | None]],
    ) -> Session:
        """`kept`: the key, or the file that it lies in, given the session's id."""
        session = await self._registry.create_session(
            agent_id, phone=me.phone if me is not None else None, metadata=told
        )
        try:
            plain, file = await asyncio.to_thread(kept, session.session_id)
            secret = None if plain is None else self._vault.seal(plain, context=secret_context(session.session_id))
            return await self._registry.change(
                session.session_id,
                lambda old: msgspec.structs.replace(
                    old,
                    state=SessionState.ACTIVE,
                    secret=secret,
                    file=file,
                    user_id=me.user_id if me is not None else None,
                    username=me.username if me is not None else None,
                ),
            )
        except BaseException:
            await self._registry.delete_session(session.session_id)
            raise

    def _copied(self, path: Path, session_id: str) -> str:
        target = session_path(session_id, self._sessions_dir)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.touch(mode=0o600, exist_ok=False)
        with closing(_opened(path)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)  # whole, even if some program is writing to it
        return target.name


# A session as one line of text, to be taken in elsewhere: sealed with a passphrase, or open.


SEALED = "peik1."
PASSPHRASE_CHARS_MIN = 12
_SALT_BYTES = 16
_EXPORT = "peik session export"


def sealed_export(secret: str, passphrase: str) -> str:
    """Takes a tenth of a second: call it off the event loop. Raises BadInput for a passphrase that can be guessed."""
    if len(passphrase) < PASSPHRASE_CHARS_MIN:
        raise BadInput(
            code="short_passphrase",
            detail=f"A passphrase has at least {PASSPHRASE_CHARS_MIN} characters, better a sentence.",
        )
    salt = os.urandom(_SALT_BYTES)
    sealed = _passphrase_vault(passphrase, salt).seal(secret, context=_EXPORT)
    return SEALED + base64.urlsafe_b64encode(salt + sealed).decode().rstrip("=")


def unsealed(text: str, passphrase: str | None) -> str:
    """Raises BadInput."""
    if not passphrase:
        raise BadInput(
            code="no_passphrase", detail="This session is sealed: give the passphrase that it was exported with."
        )
    body = text.removeprefix(SEALED)
    try:
        raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        return _passphrase_vault(passphrase, raw[:_SALT_BYTES]).open(raw[_SALT_BYTES:], context=_EXPORT)
    except (binascii.Error, ValueError):
        raise BadInput(code="malformed_session", detail="This is no session that a Peik exported.") from None
    except Unavailable:
        raise BadInput(
            code="wrong_passphrase", detail="This passphrase does not open the session, or a part of it is missing."
        ) from None


def _passphrase_vault(passphrase: str, salt: bytes) -> Vault:
    key = hashlib.scrypt(passphrase.encode(), salt=salt, n=2**15, r=8, p=1, maxmem=64 * 1024 * 1024, dklen=32)
    return Vault([key])


def _mark_of_secret(secret: str) -> str:
    """Which key it is, without telling anything of it."""
    with suppress(ValueError, struct.error):
        kept = StringSession(secret)
        if kept.auth_key is not None:
            return FoundSession(dc_id=0, address="", port=0, key=kept.auth_key.key).mark
    return hashlib.sha256(b"peik session key" + secret.encode()).hexdigest()[:24]


def session_files(folder: Path) -> list[Path]:
    """Every *.session in a folder, in order. Raises OSError."""
    return sorted(path for path in folder.iterdir() if path.suffix == ".session" and path.is_file())


def read_session_file(path: Path) -> FoundSession:
    """The key in a file of Telethon 1. Raises Unusable."""
    try:
        with closing(_opened(path)) as base:
            columns = {row[1] for row in base.execute("PRAGMA table_info(sessions)")}
            wanted = ("dc_id", "server_address", "port", "auth_key")
            if not columns.issuperset(wanted):
                kind = "a session of Pyrogram" if "test_mode" in columns else "no session of Telethon 1"
                raise Unusable(FileVerdict.NOT_A_SESSION, f"This is {kind}.")
            row = base.execute("SELECT dc_id, server_address, port, auth_key FROM sessions").fetchone()
    except (sqlite3.Error, OSError):
        raise Unusable(FileVerdict.NOT_A_SESSION, "This is no SQLite file that can be read.") from None
    if row is None or not row[3]:
        raise Unusable(FileVerdict.EMPTY, "Nobody ever signed in with it.")
    dc_id, address, port, key = row
    if not (isinstance(key, bytes) and len(key) == _KEY_BYTES and isinstance(dc_id, int) and 0 < dc_id < 10_000):
        raise Unusable(FileVerdict.NOT_A_SESSION, "Its key has not the form of one.")
    try:
        address = ipaddress.ip_address(address).compressed
    except ValueError:
        raise Unusable(FileVerdict.NOT_A_SESSION, "The address of its data centre is none.") from None
    if not (isinstance(port, int) and 0 < port < 65536):
        raise Unusable(FileVerdict.NOT_A_SESSION, "The port of its data centre is none.")
    return FoundSession(dc_id=dc_id, address=address, port=port, key=key)


def _opened(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise FileNotFoundError(path.name)
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=2.0)
