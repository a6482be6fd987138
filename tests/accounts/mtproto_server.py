"""MTProto on loopback: the small Telegram of `tl_server` behind real sockets, with the exchange of keys, encryption, salts and
several data centres, so that a TelegramClient meets it as it meets Telegram. By the real clock."""

import asyncio
import contextlib
import gzip
import hashlib
import os
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa as keys
from telethon import functions, types
from telethon.crypto import AES, AESModeCTR, AuthKey
from telethon.errors import RPCError
from telethon.extensions import BinaryReader
from telethon.helpers import generate_key_data_from_nonce
from telethon.network.connection.tcpfull import FullPacketCodec
from telethon.network.connection.tcpintermediate import RandomizedIntermediatePacketCodec
from telethon.network.mtprotostate import MTProtoState
from telethon.tl.core import GzipPacked, MessageContainer
from telethon.tl.tlobject import TLObject

from peik.accounts.telethon.errors import name_of
from tests.accounts.tl_server import _PRIME, TlTelegram, _written

_P, _Q = 1_229_739_323, 1_402_015_859
_G = 3
HOME = 4  # where the account lives
NOT_FOUND = -404


class LoopbackTelegram(TlTelegram):
    """Two data centres; the account belongs to the second one, and the first one says so."""

    def __init__(self, private: keys.RSAPrivateKey | None = None, *, home: int = HOME) -> None:
        super().__init__()
        self._private = private or keys.generate_private_key(public_exponent=65537, key_size=2048)
        self.home = home
        self.ports: dict[int, int] = {}
        self.proxy_port = 0
        self.proxy_secret = bytes(range(16))
        self.keys: dict[int, dict[int, bytes]] = {2: {}, home: {}}  # by data centre and id of the key
        self.lines: set[_Line] = set()
        self.opened = 0  # connections that were ever made
        self.by_proxy = 0
        self.files_at: int | None = None  # the data centre where all files are, whatever their messages say
        self.tells_late = False  # of the other data centre: only when the code is given
        self.imported: set[bytes] = set()  # keys that are the account's by an exported authorization
        self.asking: _Line | None = None  # whose request is answered just now

    @property
    def public_key(self) -> str:
        form = serialization.PublicFormat.PKCS1
        return self._private.public_key().public_bytes(serialization.Encoding.PEM, form).decode()

    @property
    def fingerprint(self) -> int:
        numbers = self._private.public_key().public_numbers()
        parts = [number.to_bytes((number.bit_length() + 7) // 8, "big") for number in (numbers.n, numbers.e)]
        digest = hashlib.sha1(b"".join(TLObject.serialize_bytes(part) for part in parts)).digest()
        return int(struct.unpack("<q", digest[-8:])[0])

    def opened_by(self, encrypted: bytes) -> bytes:
        numbers = self._private.private_numbers()
        plain = pow(int.from_bytes(encrypted, "big"), numbers.d, numbers.public_numbers.n)
        return plain.to_bytes(255, "big")

    def push(self, update: Any) -> None:
        for line in self.lines:
            if line.dc == self.home and line.key in self.signed_in:
                line.tell(types.Updates([update], [self.sara()], self.chats(), self.at, 0))

    def answer_at(self, dc: int, request: Any, key: bytes) -> Any:
        """Of a data centre where the account does not live: nothing but the way to the other one."""
        name = type(request).__name__.removesuffix("Request")
        if self.tells_late and dc != self.home and name == "SignIn":
            return f"USER_MIGRATE_{self.home}"
        if dc != self.home and name in ("SendCode", "SignIn") and not self.tells_late:
            return f"PHONE_MIGRATE_{self.home}"
        if dc != self.home and name == "ExportLoginToken" and self.token_is_scanned:
            return types.auth.LoginTokenMigrateTo(self.home, b"token")
        if name == "GetFile" and self.files_at not in (None, dc):
            return f"FILE_MIGRATE_{self.files_at}"
        if key in self.imported and name == "GetFile":
            return self.on_GetFile(request)
        if name == "ImportAuthorization":
            assert (request.id, request.bytes) == (self.me_id, b"exported"), "nobody exported this"
            self.imported.add(key)
            return types.auth.Authorization(user=self.me())
        return self.answer(request, key)

    def on_ExportAuthorization(self, request: Any) -> Any:  # noqa: N802
        return types.auth.ExportedAuthorization(self.me_id, b"exported")

    def on_GetConfig(self, request: Any) -> Any:  # noqa: N802  as in the class above
        config = super().on_GetConfig(request)
        config.dc_options = [types.DcOption(dc, "127.0.0.1", port) for dc, port in self.ports.items()]
        config.this_dc = self.home
        return config

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        servers = []
        for dc in self.keys:
            server = await asyncio.start_server(
                lambda reader, writer, dc=dc: self._serve(dc, reader, writer), "127.0.0.1", self.ports.get(dc, 0)
            )
            self.ports[dc] = server.sockets[0].getsockname()[1]
            servers.append(server)
        proxy = await asyncio.start_server(self._serve_proxy, "127.0.0.1", 0)
        self.proxy_port = proxy.sockets[0].getsockname()[1]
        servers.append(proxy)
        try:
            yield
        finally:
            for server in servers:
                server.close()
            for line in list(self.lines):
                line.close()

    async def _serve(self, dc: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _Line(self, dc, reader, writer, FullPacketCodec(None)).run()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _serve_proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An MTProto proxy: the secret opens the line, and the data centre stands in its first bytes."""
        head = await reader.readexactly(64)
        back = head[55:7:-1]
        into = AESModeCTR(hashlib.sha256(head[8:40] + self.proxy_secret).digest(), head[40:56])
        out = AESModeCTR(hashlib.sha256(back[:32] + self.proxy_secret).digest(), back[32:48])
        plain = into.encrypt(head)
        if plain[56:60] != b"\xdd\xdd\xdd\xdd":
            writer.close()  # of another secret
            return
        self.by_proxy += 1
        dc = abs(int.from_bytes(plain[60:62], "little", signed=True))
        await _Line(
            self, dc, _Opened(reader, into), _Sealed(writer, out), RandomizedIntermediatePacketCodec(None)
        ).run()


class _Opened:
    def __init__(self, reader: asyncio.StreamReader, cipher: Any) -> None:
        self._reader = reader
        self._cipher = cipher

    async def readexactly(self, count: int) -> bytes:
        return bytes(self._cipher.encrypt(await self._reader.readexactly(count)))


class _Sealed:
    def __init__(self, writer: asyncio.StreamWriter, cipher: Any) -> None:
        self._writer = writer
        self._cipher = cipher

    def write(self, data: bytes) -> None:
        self._writer.write(self._cipher.encrypt(data))

    def close(self) -> None:
        self._writer.close()


class _Line:
    """One connection."""

    def __init__(self, telegram: LoopbackTelegram, dc: int, reader: Any, writer: Any, codec: Any) -> None:
        self.telegram = telegram
        self.dc = dc
        self._reader = reader
        self._writer = writer
        self._codec = codec
        self.key = b""
        self.number = telegram.opened
        self._session_id = 0
        self._salt = 77
        self._last_id = 0
        self._nonces: tuple[int, int, int] = (0, 0, 0)
        self._secret = 0

    def close(self) -> None:
        self._writer.close()

    async def run(self) -> None:
        self.telegram.lines.add(self)
        self.telegram.opened += 1
        try:
            while True:
                await self._take(await self._codec.read_packet(self._reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.telegram.lines.discard(self)
            with contextlib.suppress(Exception):
                self._writer.close()

    async def _take(self, packet: bytes) -> None:
        (key_id,) = struct.unpack("<Q", packet[:8])
        if key_id == 0:
            self._plain(BinaryReader(packet[20:]).tgread_object())
            return
        key = self.telegram.keys[self.dc].get(key_id)
        if key is None:
            self._writer.write(self._codec.encode_packet(struct.pack("<i", NOT_FOUND)))
            return
        self.key = key
        aes_key, aes_iv = MTProtoState._calc_key(key, packet[8:24], True)
        plain = AES.decrypt_ige(packet[24:], aes_key, aes_iv)
        salt, self._session_id, message_id, number, length = struct.unpack("<qqqii", plain[:32])
        if salt != self._salt:
            self._send(types.BadServerSalt(message_id, number, 48, self._salt))
            return
        self._handle(message_id, BinaryReader(plain[32 : 32 + length]).tgread_object())

    # ---- the exchange of keys ----

    def _plain(self, asked: Any) -> None:
        telegram = self.telegram
        match asked:
            case functions.ReqPqMultiRequest():
                server_nonce = int.from_bytes(os.urandom(16), "little", signed=True)
                self._nonces = (asked.nonce, server_nonce, 0)
                product = (_P * _Q).to_bytes(8, "big")
                self._send_plain(types.ResPQ(asked.nonce, server_nonce, product, [telegram.fingerprint]))
            case functions.ReqDHParamsRequest():
                inner = BinaryReader(telegram.opened_by(asked.encrypted_data)[20:]).tgread_object()
                nonce, server_nonce, _ = self._nonces
                self._nonces = (nonce, server_nonce, inner.new_nonce)
                self._secret = int.from_bytes(os.urandom(256), "big")
                public = pow(_G, self._secret, int.from_bytes(_PRIME, "big")).to_bytes(256, "big")
                data = bytes(types.ServerDHInnerData(nonce, server_nonce, _G, _PRIME, public, int(time.time())))
                whole = hashlib.sha1(data).digest() + data
                whole += os.urandom(-len(whole) % 16)
                answer = AES.encrypt_ige(whole, *generate_key_data_from_nonce(server_nonce, inner.new_nonce))
                self._send_plain(types.ServerDHParamsOk(nonce, server_nonce, answer))
            case functions.SetClientDHParamsRequest():
                nonce, server_nonce, new_nonce = self._nonces
                plain = AES.decrypt_ige(asked.encrypted_data, *generate_key_data_from_nonce(server_nonce, new_nonce))
                theirs = int.from_bytes(BinaryReader(plain[20:]).tgread_object().g_b, "big")
                shared = pow(theirs, self._secret, int.from_bytes(_PRIME, "big")).to_bytes(256, "big")
                key = AuthKey(shared)
                telegram.keys[self.dc][key.key_id] = shared
                self._send_plain(types.DhGenOk(nonce, server_nonce, key.calc_new_nonce_hash(new_nonce, 1)))

    def _send_plain(self, answer: Any) -> None:
        body = bytes(answer)
        self._write(struct.pack("<qqi", 0, self._next_id(), len(body)) + body)

    # ---- what is asked ----

    def _handle(self, message_id: int, asked: Any) -> None:
        if isinstance(asked, MessageContainer):
            for one in asked.messages:
                self._handle(one.msg_id, one.obj)
            return
        if isinstance(asked, GzipPacked):
            data = asked.data
            asked = BinaryReader(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).tgread_object()
        if isinstance(asked, functions.PingRequest | functions.PingDelayDisconnectRequest):
            self._send(types.Pong(message_id, asked.ping_id))
            return
        while hasattr(asked, "query"):
            asked = asked.query
        if not type(asked).__name__.endswith("Request"):
            return  # acknowledgements
        self.telegram.asking = self
        try:
            answer = self.telegram.answer_at(self.dc, asked, self.key)
            if isinstance(answer, str):
                self._refuse(message_id, 303 if "_MIGRATE_" in answer else 400, answer)
                return
            body = _written(answer)
        except RPCError as error:
            name = name_of(error)
            for figure in ("seconds", "new_dc"):
                if hasattr(error, figure):
                    name = f"{name}_{getattr(error, figure)}"
            self._refuse(message_id, abs(error.code or 400), name)
            return
        self._send_bytes(struct.pack("<Iq", 0xF35C6D01, message_id) + body)

    def _refuse(self, message_id: int, code: int, name: str) -> None:
        error = struct.pack("<Ii", 0x2144CA19, code) + TLObject.serialize_bytes(name)
        self._send_bytes(struct.pack("<Iq", 0xF35C6D01, message_id) + error)

    def tell(self, update: Any) -> None:
        self._send(update)

    def _send(self, answer: Any) -> None:
        self._send_bytes(bytes(answer))

    def _send_bytes(self, body: bytes) -> None:
        data = struct.pack("<qqqii", self._salt, self._session_id, self._next_id(), 1, len(body)) + body
        data += os.urandom(-(len(data) + 12) % 16 + 12)
        message_key = hashlib.sha256(self.key[96:128] + data).digest()[8:24]
        aes_key, aes_iv = MTProtoState._calc_key(self.key, message_key, False)
        key_id = struct.pack("<Q", AuthKey(self.key).key_id)
        self._write(key_id + message_key + AES.encrypt_ige(data, aes_key, aes_iv))

    def _write(self, packet: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(self._codec.encode_packet(packet))

    def _next_id(self) -> int:
        self._last_id = max(self._last_id + 4, int(time.time() * 2**32) // 4 * 4 + 1)
        return self._last_id
