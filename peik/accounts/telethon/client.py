"""One account over MTProto, by Telethon: the port `AccountClient`.

Nothing sleeps in here because Telegram said so: a flood wait is told. Nothing that was not taken is counted as seen.
"""

import asyncio
import contextlib
import datetime
import re
import sqlite3
import struct
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
from telethon import functions, types, utils
from telethon._updates.session import Entity, EntityType
from telethon.crypto import rsa
from telethon.errors import InviteRequestSentError, RPCError, SrpIdInvalidError, UserAlreadyParticipantError
from telethon.network import ConnectionTcpMTProxyRandomizedIntermediate
from telethon.password import compute_check
from telethon.sessions import SQLiteSession, StringSession

from peik.accounts.client import (
    AccessOf,
    AccountClient,
    ClientError,
    CodeSent,
    Dialog,
    DialogPage,
    Listener,
    Me,
    MemberPage,
    PhoneContact,
    Qr,
    Trouble,
)
from peik.accounts.telethon.errors import Impossible, client_error, name_of, translated
from peik.accounts.telethon.objects import Deleted, FilePlace, TelethonReader, file_place, member_of
from peik.accounts.telethon.sends import HISTORY_MAX, TelethonSends, messages_by_id
from peik.accounts.telethon.updates import UpdateIntake, WatchedTelegram, check_telethon, read_place
from peik.archive.store import Message
from peik.clock import Clock
from peik.core.outcome import NetworkFault, Reply
from peik.errors import BadInput, described
from peik.telegram.port import Request

# What a TelegramClient is made of: the session it signs in with, the way it goes, and the device it says to be.


ENTITIES_MAX = 20_000  # people and chats whose access hashes are remembered; others are looked up again

_FILE = re.compile(r"[A-Za-z0-9+@_-][A-Za-z0-9+@._-]{0,120}")
_MTPROXIES = ("mtproxy://", "tg://proxy?", "https://t.me/proxy?")
_MTPROXY_SECRET = re.compile("(dd)?[0-9a-f]{32}")
_PROXIES = {"socks5": "socks5", "socks5h": "socks5", "socks4": "socks4", "http": "http"}
_PORTS = {"socks5": 1080, "socks4": 1080, "http": 8080}


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What Telegram shows in its list of devices. It never follows the machine, the kernel or our version: a session whose
    device changes looks stolen."""

    model: str = "Peik"
    system: str = "Linux"
    app: str = "1.0"
    language: str = "en"

    def options(self) -> dict[str, str]:
        return {
            "device_model": self.model,
            "system_version": self.system,
            "app_version": self.app,
            "lang_code": self.language,
            "system_lang_code": self.language,
        }


def session_of(secret: str | None, file: str | None, folder: Path | None) -> Callable[[], Any]:
    """How to open the session. Raises BadInput, now or when it is opened."""
    if file is not None:
        path = session_path(file, folder)
        return lambda: _open_file(path)
    return lambda: _open_string(secret)


def session_path(file: str, folder: Path | None) -> Path:
    """Where a session file lies: in the folder, never elsewhere."""
    if folder is None:
        raise BadInput(code="no_sessions_dir", detail="This session is kept in a file: set PEIK_SESSIONS_DIR.")
    if not _FILE.fullmatch(file):
        raise BadInput(
            code="malformed_session_file", detail="A session file is named by letters, digits and . _ - + @ only."
        )
    name = file if file.endswith(".session") else f"{file}.session"
    return folder / name


def _open_string(secret: str | None) -> Any:
    try:
        session = StringSession(secret or None)
    except (ValueError, struct.error):
        # Not "from error": what it quotes could be part of the key.
        raise BadInput(code="malformed_session", detail="This is not a session string of Telethon 1.") from None
    session._entities = _Rows()  # noqa: SLF001  a set there: it grows with everybody ever seen
    return session


class _Rows(dict[Any, tuple[Any, ...]]):
    """What Telethon knows of people and chats, the latest seen, in place of a set of rows that only grows."""

    def __ior__(self, rows: Iterable[tuple[Any, ...]]) -> Self:  # type: ignore[override, misc]
        for row in rows:
            self.pop(row[0], None)
            self[row[0]] = row
        while len(self) > ENTITIES_MAX:
            del self[next(iter(self.keys()))]
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())


def _open_file(path: Path) -> Any:
    if not path.is_file():
        raise BadInput(code="no_session_file", detail=f"There is no session file {path.name} in PEIK_SESSIONS_DIR.")
    with contextlib.suppress(sqlite3.Error, ValueError, TypeError):
        return SQLiteSession(str(path))
    raise BadInput(code="malformed_session_file", detail=f"{path.name} is not a session file of Telethon 1.")


def proxy_of(url: str | None) -> dict[str, Any] | None:
    """A proxy as Telethon takes it. Raises BadInput: Telethon would go without a proxy that it cannot use."""
    if url is None:
        return None
    try:
        parts = urllib.parse.urlsplit(url)
        kind, host, port = _PROXIES.get(parts.scheme), parts.hostname, parts.port
    except ValueError:
        kind = host = port = None
    if kind is None or not host:
        raise BadInput(
            code="malformed_proxy",
            detail="A session's proxy should be like socks5://user:password@host:1080 or http://host:8080.",
        )
    try:
        import python_socks  # noqa: F401  only who uses a proxy needs it
    except ImportError:
        raise BadInput(
            code="no_proxy_support",
            detail="A session needs python-socks to use a proxy: pip install peik[sessions].",
        ) from None
    return {
        "proxy_type": kind,
        "addr": host,
        "port": port or _PORTS[kind],
        "username": urllib.parse.unquote(parts.username) if parts.username else None,
        "password": urllib.parse.unquote(parts.password) if parts.password else None,
        "rdns": True,
    }


def way_of(url: str | None) -> dict[str, Any]:
    """How a TelegramClient is to connect: straight, through a proxy, or through an MTProto proxy. Raises BadInput."""
    if url is None or not url.startswith(_MTPROXIES):
        return {"proxy": proxy_of(url)}
    parts = urllib.parse.urlsplit(url)
    told = {name: values[-1] for name, values in urllib.parse.parse_qs(parts.query).items()}
    is_link = parts.scheme != "mtproxy"  # as Telegram's apps share them
    try:
        host = told.get("server") if is_link else parts.hostname
        port = int(told.get("port", "")) if is_link else parts.port
    except ValueError:
        host = port = None
    secret = (told.get("secret", "") if is_link else urllib.parse.unquote(parts.username or "")).lower()
    if secret.startswith("ee"):
        raise BadInput(
            code="malformed_proxy",
            detail="Telethon cannot use an MTProto proxy that looks like TLS (its secret begins with ee). Use one whose "
            "secret begins with dd, or a SOCKS5 proxy.",
        )
    if not host or port is None or not 0 < port < 65536 or not _MTPROXY_SECRET.fullmatch(secret):
        raise BadInput(
            code="malformed_proxy",
            detail="An MTProto proxy should be like mtproxy://SECRET@host:443 or tg://proxy?server=…&port=…&secret=…, "
            "with a secret of 32 hexadecimal digits, or of dd and 32.",
        )
    return {"proxy": (host, port, secret), "connection": ConnectionTcpMTProxyRandomizedIntermediate}


class TelegramServer(msgspec.Struct, frozen=True, kw_only=True):
    """Another server than Telegram's own: where who is not signed in yet connects to. It says itself where its other data
    centres are."""

    address: str  # of IP: a session string holds no name
    port: int
    dc_id: int
    public_key: str | None = None  # RSA, as PEM; None: one of Telegram's own


# What opens a chat for an account: kept as a few bytes, and read again.


_ACCESS = struct.Struct("<cqq")
_OFFSET = struct.Struct("<qq")  # of a page of chats: the date and the id of the last message before it


def kind_of(dialog: Any) -> str:
    if dialog.is_user:
        return "private"
    if not dialog.is_channel:
        return "group"
    return "supergroup" if dialog.is_group else "channel"


def access_to(peer: Any) -> bytes:
    match peer:
        case types.InputPeerUser():
            return _ACCESS.pack(b"U", peer.user_id, peer.access_hash)
        case types.InputPeerChannel():
            return _ACCESS.pack(b"C", peer.channel_id, peer.access_hash)
        case types.InputPeerChat():
            return _ACCESS.pack(b"G", peer.chat_id, 0)
    return _ACCESS.pack(b"S", 0, 0)  # saved messages


def peer_behind(access: bytes) -> Any:
    try:
        kind, number, access_hash = _ACCESS.unpack(access)
    except struct.error:
        raise ClientError(Trouble.REFUSED, "What is kept to open this chat cannot be read.") from None
    match kind:
        case b"U":
            return types.InputPeerUser(number, access_hash)
        case b"C":
            return types.InputPeerChannel(number, access_hash)
        case b"G":
            return types.InputPeerChat(number)
    return types.InputPeerSelf()


# As Telegram's apps share them, and the public names beside.
_INVITE = re.compile(r"(?:(?:https?://)?(?:t|telegram)\.me/(?:\+|joinchat/)|tg://join\?invite=)([A-Za-z0-9_-]{8,64})/?")
_PUBLIC = re.compile(r"(?:(?:https?://)?(?:t|telegram)\.me/|@)([A-Za-z][A-Za-z0-9_]{3,31})/?")

CONNECT_S = 15.0  # one attempt
DIALOGS_PAGE = 100  # Telegram gives no more at once
PAGES_MAX = 100  # of chats: who has more is followed as far as that
LOOKED_THROUGH_MAX = 10  # pages, for a chat that a letter names and nobody knows
LOOKED_THROUGH_S = 1.0  # between two of them
FILE_CHUNK = 512 * 1024  # Telegram gives no more at once
REFERENCES_MAX = 3  # of one file, one after the other
_OLD_REFERENCE = frozenset(
    {"FILE_REFERENCE_EXPIRED", "FILE_REFERENCE_INVALID", "FILE_REFERENCE_EMPTY", "FILEREF_UPGRADE_NEEDED"}
)
QR_LOOK_S = 25.0  # Telegram tells of a scan; should that get lost we ask before the picture is over

# What a key hears that nobody is signed in with; the last one, while the password of two-step verification is missing:
# Telegram then answers nothing but what signing in needs.
NOBODY = frozenset({"AUTH_KEY_UNREGISTERED", "AUTH_KEY_PERM_EMPTY", "SESSION_PASSWORD_NEEDED"})

_WAYS = {
    types.auth.SentCodeTypeApp: "app",
    types.auth.SentCodeTypeSms: "sms",
    types.auth.SentCodeTypeSmsWord: "sms",
    types.auth.SentCodeTypeSmsPhrase: "sms",
    types.auth.SentCodeTypeFirebaseSms: "sms",
    types.auth.SentCodeTypeCall: "call",
    types.auth.SentCodeTypeFlashCall: "flash_call",
    types.auth.SentCodeTypeMissedCall: "missed_call",
    types.auth.SentCodeTypeEmailCode: "email",
    types.auth.SentCodeTypeSetUpEmailRequired: "email",
    types.auth.SentCodeTypeFragmentSms: "fragment",
}


def trust_key(public_key: str) -> None:
    """Take a server that proves itself by this key for a real one. Raises BadInput."""
    try:
        rsa.add_key(public_key.encode(), old=False)
    except (ValueError, TypeError):
        raise BadInput(
            code="malformed_key", detail="The server's key should be an RSA public key in PEM (PKCS #1)."
        ) from None


class TelethonClients:
    """Makes clients: the port `ClientFactory`. Raises StartError if this Telethon is not one that we know."""

    def __init__(
        self,
        *,
        api_id: int,
        api_hash: str,
        clock: Clock,
        sessions_dir: Path | None = None,
        device: Device | None = None,
        server: TelegramServer | None = None,
        proxy: str | None = None,
        prepare: Callable[[Any], None] | None = None,
    ) -> None:
        """`proxy`: of accounts that have none of their own. Raises BadInput. `prepare` sees each
        TelegramClient before it connects: tests put their own wire into it."""
        check_telethon()
        self._api = (api_id, api_hash)
        self._clock = clock
        self._sessions_dir = sessions_dir
        self._device = device or Device()
        self._server = server
        self._proxy = proxy
        way_of(proxy)  # what is wrong with it is said now
        if server is not None and server.public_key is not None:
            trust_key(server.public_key)
        # Telethon keeps the list of data centres in the class: each server has its own.
        self._kind = type("WatchedTelegram", (WatchedTelegram,), {"_config": None})
        self._prepare = prepare

    def __call__(
        self, *, session_id: str, agent_id: str, secret: str | None, file: str | None, proxy: str | None
    ) -> AccountClient:
        options = {
            **way_of(self._proxy if proxy is None else proxy),
            "timeout": CONNECT_S,
            "connection_retries": 3,  # then `on_lost`: who runs the session tries again, in its own time
            "flood_sleep_threshold": 0,
            "request_retries": 1,  # and the first: a phone may have to go to another data centre
            "raise_last_call_error": True,
            **self._device.options(),
        }
        session = session_of(secret, file, self._sessions_dir)

        def make() -> Any:
            kept, server = session(), self._server
            if server is not None and not kept.auth_key:
                kept.set_dc(server.dc_id, server.address, server.port)
            # A session of the other kind of address Telethon would move to its first data centre, where its key is unknown.
            telegram = self._kind(kept, *self._api, use_ipv6=":" in (kept.server_address or ""), **options)
            if self._prepare is not None:
                self._prepare(telegram)
            return telegram

        session().close()  # what is wrong with it is said now
        reader = TelethonReader(session_id=session_id, agent_id=agent_id, wall_ms=self._clock.wall_ms)
        return TelethonClient(make, self._api, reader, self._clock)


class TelethonClient:
    """The port `AccountClient`. Each connect makes a TelegramClient of its own, with the key of the one before."""

    def __init__(self, make: Callable[[], Any], api: tuple[int, str], reader: TelethonReader, clock: Clock) -> None:
        self._make = make
        self._api_id, self._api_hash = api
        self._reader = reader
        self._clock = clock
        self._telegram: Any = None
        self._secret = ""
        self._intake: UpdateIntake | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closing = False
        self._has_dialogs = False  # all of them were asked for on this connection
        self._pages = 0  # of them
        self._looked_through: bytes | None = None  # up to here, for chats that nobody knew

    async def connect(self) -> Me | None:
        with translated():
            telegram = self._telegram = self._make()
            if self._secret and not isinstance(telegram.session, SQLiteSession):
                _put_key(telegram, self._secret)
            self._is_closing, self._has_dialogs, self._pages, self._looked_through = False, False, 0, None
            try:
                await telegram.connect()
                return self._me()
            except BaseException:
                await telegram.disconnect()
                raise

    async def disconnect(self) -> None:
        self._is_closing = True
        telegram = self._telegram
        if telegram is None or telegram.session is None:
            return
        self._secret = self.secret()
        with translated():
            await telegram.disconnect()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def is_connected(self) -> bool:
        return self._telegram is not None and bool(self._telegram.is_connected())

    def secret(self) -> str:
        session = getattr(self._telegram, "session", None)
        return self._secret if session is None else StringSession.save(session) or self._secret

    # Signing in.

    async def send_code(self, phone: str, *, by_sms: bool = False) -> CodeSent:
        with translated():
            request = functions.auth.SendCodeRequest(phone, self._api_id, self._api_hash, types.CodeSettings())
            sent = await self._telegram(request)
            if by_sms and isinstance(sent, types.auth.SentCode) and _WAYS.get(type(sent.type)) == "app":
                sent = await self._telegram(functions.auth.ResendCodeRequest(phone, sent.phone_code_hash))
        if not isinstance(sent, types.auth.SentCode):
            raise ClientError(
                Trouble.REFUSED, f"Telegram wants something else before it sends a code: {type(sent).__name__}."
            )
        return CodeSent(
            code_hash=sent.phone_code_hash,
            way=_WAYS.get(type(sent.type), "app"),
            length=getattr(sent.type, "length", None),
            timeout_s=sent.timeout,
        )

    async def sign_in(self, phone: str, code: str, code_hash: str) -> Me:
        with translated():
            request = functions.auth.SignInRequest(phone, code_hash, phone_code=code)
            return await self._signed_in(await self._telegram(request))

    async def give_password(self, password: str) -> Me:
        with translated():
            try:
                return await self._signed_in(await self._proven(password))
            except SrpIdInvalidError:  # the question had changed before the answer came
                return await self._signed_in(await self._proven(password))

    async def _proven(self, password: str) -> Any:
        question = await self._telegram(functions.account.GetPasswordRequest())
        # The proof takes the better part of a second to compute.
        answer = await asyncio.to_thread(compute_check, question, password)
        return await self._telegram(functions.auth.CheckPasswordRequest(answer))

    async def qr(self) -> Qr:
        with translated():
            self._telegram.qr_news.clear()
            token = await self._login_token()
        if not isinstance(token, types.auth.LoginToken):
            raise ClientError(Trouble.REFUSED, "This session is signed in already.")
        return Qr(url=_qr_url(token.token), expires_at_ms=int(token.expires.timestamp()) * 1000)

    async def qr_scanned(self, *, timeout_s: float) -> Me | None:
        ends_at = self._clock.mono() + timeout_s
        with translated():
            while True:
                left_s = ends_at - self._clock.mono()
                if left_s > 0:
                    try:
                        async with asyncio.timeout(min(left_s, QR_LOOK_S)):
                            await self._telegram.qr_news.wait()
                    except TimeoutError:
                        pass
                token = await self._login_token()
                if isinstance(token, types.auth.LoginTokenSuccess):
                    return await self._signed_in(token.authorization)
                self._telegram.qr_news.clear()
                if self._clock.mono() >= ends_at:
                    return None

    async def log_out(self) -> None:
        self._is_closing = True
        with translated():
            await self._telegram(functions.auth.LogOutRequest())
        await self.disconnect()
        self._secret = ""

    async def _login_token(self) -> Any:
        request = functions.auth.ExportLoginTokenRequest(self._api_id, self._api_hash, except_ids=[])
        token = await self._telegram(request)
        if isinstance(token, types.auth.LoginTokenMigrateTo):
            await self._telegram._switch_dc(token.dc_id)  # noqa: SLF001  Telethon's own QR login does the same
            token = await self._telegram(functions.auth.ImportLoginTokenRequest(token.token))
        return token

    async def _signed_in(self, authorization: Any) -> Me:
        if not isinstance(authorization, types.auth.Authorization):
            raise ClientError(
                Trouble.NOT_REGISTERED, "This number has no Telegram account. Make one with Telegram's own app."
            )
        await self._telegram._on_login(authorization.user)  # noqa: SLF001
        return self._known(authorization.user)

    def _me(self) -> Me | None:
        try:
            return self._known(self._telegram.who())
        except RPCError as error:
            if name_of(error) in NOBODY:
                return None
            raise

    def _known(self, user: Any) -> Me:
        self._reader.self_id = user.id
        return Me(
            user_id=user.id,
            phone=f"+{user.phone}" if user.phone else None,
            username=user.username,
            first_name=user.first_name or "",
            is_bot=bool(user.bot),
        )

    # Seeing.

    async def listen(self, listener: Listener, state: bytes | None) -> None:
        place = None if state is None else read_place(state)
        if place is None:
            # They say where each channel is now: what is not known cannot be caught up later.
            while not self._has_dialogs:
                await self._look_through()
        intake = self._intake = UpdateIntake(self._reader, listener, self._clock.mono)
        with translated():
            await self._telegram.begin(intake, place)
        self._tasks = [
            asyncio.create_task(self._take(intake), name="session intake"),
            asyncio.create_task(self._watch(listener), name="session watch"),
        ]

    async def _take(self, intake: UpdateIntake) -> None:
        try:
            await intake.run()
        except Exception as error:  # noqa: BLE001  whatever the listener met, nothing may be counted as seen after it
            words = f"What was seen could not be kept, and is asked for again: {described(error)}"
            self._telegram.mark_lost(ClientError(Trouble.OFFLINE, words))
            await self._telegram.disconnect()

    async def _watch(self, listener: Listener) -> None:
        error: BaseException | None = None
        try:
            await self._telegram.disconnected
        except Exception as raised:  # noqa: BLE001  why the connection ended
            error = raised
        if self._is_closing:
            return
        self._is_closing = True
        self._secret = self.secret()
        found = self._telegram.why_lost or error
        await self._telegram.disconnect()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        lost = ClientError(Trouble.OFFLINE, "The connection ended.") if found is None else client_error(found)
        listener.on_lost(lost)

    async def dialogs(self, following: bytes | None = None) -> DialogPage:
        offset = {} if following is None else _offset_in(following)
        with translated():
            await self._telegram.find_place()  # before them: what comes while they are read is caught up later
            found = await self._telegram.get_dialogs(limit=DIALOGS_PAGE, ignore_migrated=True, **offset)
        after = None if len(found) < DIALOGS_PAGE else _offset_behind(found)
        self._pages += 1
        self._has_dialogs = self._has_dialogs or after is None or self._pages >= PAGES_MAX
        return DialogPage(
            dialogs=[
                Dialog(
                    chat_id=utils.get_peer_id(one.dialog.peer),
                    title=one.name or "",
                    kind=kind_of(one),
                    top_message_id=one.dialog.top_message,
                    access=access_to(one.input_entity),
                )
                for one in found
            ],
            following=None if after == following else after,
        )

    async def _look_through(self) -> None:
        """One more page of chats: Telethon knows from then on what opens them."""
        if self._looked_through is not None:
            await asyncio.sleep(LOOKED_THROUGH_S)
        page = await self.dialogs(self._looked_through)
        self._looked_through = page.following
        self._has_dialogs = self._has_dialogs or page.following is None

    async def history(
        self, chat_id: int, access: bytes | None, *, below: int | None, above: int, limit: int
    ) -> list[Message]:
        with translated():
            peer = await self._opened(chat_id, access)
            found: list[Message] = []
            while len(found) < limit:
                page = await self._telegram(
                    functions.messages.GetHistoryRequest(
                        peer=peer,
                        offset_id=below or 0,
                        offset_date=None,
                        add_offset=0,
                        limit=min(HISTORY_MAX, limit - len(found)),
                        max_id=0,
                        min_id=above,
                        hash=0,
                    )
                )
                read = [self._reader.message(one) for one in page.messages]
                found.extend(one for one in read if one is not None and one.message_id > above)
                if not page.messages:
                    break
                below = page.messages[-1].id
            return found

    async def count(self, chat_id: int, access: bytes | None) -> int:
        with translated():
            peer = await self._opened(chat_id, access)
            page = await self._telegram(
                functions.messages.GetHistoryRequest(
                    peer=peer, offset_id=0, offset_date=None, add_offset=0, limit=1, max_id=0, min_id=0, hash=0
                )
            )
        return int(getattr(page, "count", len(page.messages)))

    async def download(
        self,
        chat_id: int,
        access: bytes | None,
        message_id: int,
        *,
        file_id: str,
        offset: int,
        take: Callable[[bytes], Awaitable[bool]],
    ) -> bool:
        with translated():
            peer = await self._opened(chat_id, access)
            for tries in range(REFERENCES_MAX):
                place = await self._file_of(peer, message_id)
                if place is None or str(place.location.id) != file_id:
                    return False
                stream = self._telegram.iter_download(
                    place.location, offset=offset, request_size=FILE_CHUNK, file_size=place.size, dc_id=place.dc_id
                )
                try:
                    async for chunk in stream:
                        offset += len(chunk)
                        if not await take(bytes(chunk)):
                            return False
                    return True
                except RPCError as error:
                    # What the message said of its file holds for a time that Telegram does not tell: it is asked for again.
                    if name_of(error) not in _OLD_REFERENCE or tries == REFERENCES_MAX - 1:
                        raise
                finally:
                    if getattr(stream, "_sender", None) is not None:  # it has begun
                        await stream.close()
        return False

    async def _file_of(self, peer: Any, message_id: int) -> FilePlace | None:
        found = (await self._telegram(messages_by_id(peer, [message_id]))).messages
        return file_place(getattr(found[0], "media", None)) if found else None

    async def members(self, chat_id: int, access: bytes | None, *, offset: int, limit: int) -> MemberPage:
        with translated():
            peer = await self._opened(chat_id, access)
            if isinstance(peer, types.InputPeerChat):  # all at once
                full = await self._telegram(functions.messages.GetFullChatRequest(peer.chat_id))
                listed = getattr(full.full_chat.participants, "participants", None)
                if listed is None:
                    raise ClientError(Trouble.REFUSED, "Telegram does not show the members of this group.")
                users, count, offset = full.users, len(listed), 0
            elif isinstance(peer, types.InputPeerChannel):
                page = await self._telegram(
                    functions.channels.GetParticipantsRequest(
                        utils.get_input_channel(peer), types.ChannelParticipantsSearch(""), offset, limit, hash=0
                    )
                )
                listed, users, count = page.participants, page.users, page.count
            else:
                raise ClientError(Trouble.REFUSED, "This chat is no group and no channel: it has no members.")
        by_id, end = {one.id: one for one in users}, offset + len(listed)
        return MemberPage(
            members=[found for one in listed if (found := member_of(one, by_id)) is not None],
            following=end if listed and end < count else None,
            is_whole=end >= count,
        )

    async def _opened(self, chat_id: int, access: bytes | None) -> Any:
        try:
            return await self._peer(chat_id) if access is None else peer_behind(access)
        except Impossible as error:
            raise ClientError(Trouble.REFUSED, str(error)) from None

    # Asking for the account.

    async def join(self, link: str) -> Dialog:
        with translated():
            chat = await self._joined(link.strip())
            peer = utils.get_input_peer(chat)
            self._telegram._mb_entity_cache.extend([], [chat])  # noqa: SLF001  its difference can be asked for at once
        is_group = isinstance(chat, types.Chat)
        kind = "group" if is_group else "supergroup" if chat.megagroup else "channel"
        newest: list[Message] = []
        with contextlib.suppress(ClientError):  # it is joined, whatever else can be learned of it
            newest = await self.history(utils.get_peer_id(chat), access_to(peer), below=None, above=0, limit=1)
        return Dialog(
            chat_id=utils.get_peer_id(chat),
            title=chat.title,
            kind=kind,
            top_message_id=newest[0].message_id if newest else 0,
            access=access_to(peer),
        )

    async def _joined(self, link: str) -> Any:
        found = _INVITE.fullmatch(link)
        if found is None:
            name = _PUBLIC.fullmatch(link)
            if name is None:
                raise ClientError(Trouble.REFUSED, "A chat is joined by https://t.me/+…, https://t.me/name or @name.")
            resolved = await self._telegram(functions.contacts.ResolveUsernameRequest(name[1]))
            if not resolved.chats:
                raise ClientError(Trouble.REFUSED, "This name belongs to no group or channel.")
            await self._let_in(functions.channels.JoinChannelRequest(utils.get_input_channel(resolved.chats[0])))
            return resolved.chats[0]
        try:
            joined = await self._let_in(functions.messages.ImportChatInviteRequest(found[1]))
        except UserAlreadyParticipantError:
            invite = await self._telegram(functions.messages.CheckChatInviteRequest(found[1]))
            return invite.chat
        return joined.chats[0]

    async def _let_in(self, request: Any) -> Any:
        try:
            return await self._telegram(request)
        except InviteRequestSentError:
            raise ClientError(
                Trouble.REFUSED, "The request to join was sent; an admin of the chat has to let it in."
            ) from None

    async def contacts(self) -> list[PhoneContact]:
        with translated():
            found = await self._telegram(functions.contacts.GetContactsRequest(hash=0))
        return [_contact(one) for one in found.users]

    async def add_contacts(self, wanted: Sequence[PhoneContact]) -> tuple[list[PhoneContact], list[str]]:
        given = [
            types.InputPhoneContact(
                client_id=number, phone=one.phone or "", first_name=one.first_name, last_name=one.last_name
            )
            for number, one in enumerate(wanted)
        ]
        with translated():
            found = await self._telegram(functions.contacts.ImportContactsRequest(given))
        later = [wanted[number].phone or "" for number in found.retry_contacts if number < len(wanted)]
        by_id = {one.id: one for one in found.users}
        return [_contact(by_id[one.user_id]) for one in found.imported if one.user_id in by_id], later

    # Sending.

    async def carry(self, request: Request, *, random_id: int, access_of: AccessOf | None = None) -> Reply:
        if self._telegram is None:
            return Reply(fault=NetworkFault.NOT_TRIED, left=False, detail="the session is not connected")
        opened: list[int] = []

        async def noted(chat_id: int) -> bytes | None:
            access = None if access_of is None else await access_of(chat_id)
            if access is not None:
                opened.append(chat_id)
            return access

        reply = await self._sends(noted).carry(request, random_id=random_id)
        if opened and reply.status == 400 and b"chat not found" in reply.body:
            # What was known opened it for another account, that was signed in here before.
            for chat_id in opened:
                self._telegram._mb_entity_cache.hash_map.pop(chat_id, None)  # noqa: SLF001
            return await self._sends(None).carry(request, random_id=random_id)
        return reply

    def _sends(self, access_of: AccessOf | None) -> TelethonSends:
        return TelethonSends(
            self._telegram,
            partial(self._peer, access_of=access_of),
            is_broadcast=self._is_broadcast,
            on_deleted=self._on_deleted,
        )

    def _on_deleted(self, deleted: Deleted) -> None:
        if self._intake is not None:
            self._intake.put_seen(deleted)

    async def _peer(self, chat: int | str, *, access_of: AccessOf | None = None) -> Any:
        """What Telegram wants to be shown to open a chat. What is known is not asked for. Raises Impossible."""
        with translated():
            if isinstance(chat, int):
                known = self._cached(chat)
                if known is None and access_of is not None and (access := await access_of(chat)) is not None:
                    known = peer_behind(access)
                    if isinstance(known, types.InputPeerUser):
                        user = Entity(EntityType.USER, known.user_id, known.access_hash)
                        self._telegram._mb_entity_cache.put(user)  # noqa: SLF001  for the next letter
                if known is not None:
                    return self._named(known)
            with contextlib.suppress(ValueError, TypeError):
                return self._named(await self._telegram.get_input_entity(chat))
            for _ in range(LOOKED_THROUGH_MAX if isinstance(chat, int) else 0):
                if self._has_dialogs:
                    break
                await self._look_through()
                if isinstance(chat, int) and (known := self._cached(chat)) is not None:
                    return self._named(known)
        raise Impossible("chat not found")

    def _cached(self, chat_id: int) -> Any | None:
        """As Telethon knows it, without a request."""
        number, kind = utils.resolve_id(chat_id)
        entity = self._telegram._mb_entity_cache.get(number)  # noqa: SLF001  get_input_entity would ask Telegram
        if entity is not None:
            return entity._as_input_peer()  # noqa: SLF001
        with contextlib.suppress(ValueError):
            return self._telegram.session.get_input_entity(kind(number))
        return None

    def _named(self, peer: Any) -> Any:
        """The account itself by its id, as in any other chat."""
        if not isinstance(peer, types.InputPeerSelf):
            return peer
        me = self._telegram._mb_entity_cache.get(self._reader.self_id)  # noqa: SLF001  put there at sign-in
        return types.InputPeerUser(me.id, me.hash)

    def _is_broadcast(self, channel_id: int) -> bool:
        entity = self._telegram._mb_entity_cache.get(channel_id)  # noqa: SLF001  no request for a word in an answer
        return entity is not None and bool(entity.is_broadcast)


def _offset_behind(found: Sequence[Any]) -> bytes | None:
    """The place behind the last of these chats that has a message; None: there is none."""
    last = next((one for one in reversed(found) if one.message is not None and one.date is not None), None)
    if last is None:
        return None
    return _OFFSET.pack(int(last.date.timestamp()), last.message.id) + access_to(found[-1].input_entity)


def _offset_in(following: bytes) -> dict[str, Any]:
    at_s, message_id = _OFFSET.unpack(following[: _OFFSET.size])
    return {
        "offset_date": datetime.datetime.fromtimestamp(at_s, datetime.UTC),
        "offset_id": message_id,
        "offset_peer": peer_behind(following[_OFFSET.size :]),
        "ignore_pinned": True,
    }


def _contact(user: Any) -> PhoneContact:
    return PhoneContact(
        phone=f"+{user.phone}" if user.phone else None,
        first_name=user.first_name or "",
        last_name=user.last_name or "",
        user_id=user.id,
        username=user.username,
    )


def _put_key(telegram: Any, secret: str) -> None:
    """Give a new TelegramClient the key that the one before had made."""
    kept = StringSession(secret)
    telegram.session.set_dc(kept.dc_id, kept.server_address, kept.port)
    telegram.session.auth_key = kept.auth_key
    telegram._sender.auth_key.key = kept.auth_key.key  # noqa: SLF001  it took the old one when it was made


def _qr_url(token: bytes) -> str:
    return f"tg://login?token={StringSession.encode(token).rstrip('=')}"
