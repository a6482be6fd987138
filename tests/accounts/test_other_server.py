"""Accounts on another server than Telegram's, over real sockets: by PEIK_SESSIONS_SERVER, its own key, two data centres, and an
MTProto proxy."""

import asyncio
import functools
import gc
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest
from telethon import types
from telethon.crypto import AuthKey
from telethon.sessions import StringSession

from peik.accounts.client import ClientError, Trouble
from peik.accounts.telethon.client import TelegramServer, TelethonClients, way_of
from peik.accounts.wiring import _telethon
from peik.clock import SystemClock
from peik.errors import BadInput, StartError
from peik.settings.config import load
from tests.accounts.listening import Notebook, until
from tests.accounts.mtproto_server import HOME, LoopbackTelegram
from tests.accounts.tl_server import CODE, ME, PASSWORD, PHONE, SARA

WITHIN_S = 60.0


def live(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Over real sockets, by the real clock. Telethon leaves connections behind that it has given up."""

    @functools.wraps(story)
    def test(*args: Any, **more: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            asyncio.run(story(*args, **more))
            gc.collect()

    return test


def clients_of(telegram: LoopbackTelegram, **more: Any) -> TelethonClients:
    server = TelegramServer(address="127.0.0.1", port=telegram.ports[2], dc_id=2, public_key=telegram.public_key)
    return TelethonClients(api_id=1, api_hash="h", clock=SystemClock(), server=server, **more)


def client_of(clients: Any, secret: str | None = None, *, proxy: str | None = None) -> Any:
    return clients(session_id="s", agent_id="a", secret=secret, file=None, proxy=proxy)


@live
async def test_an_account_signs_in_with_its_password_at_its_own_data_centre_and_sees_and_sends() -> None:
    telegram = LoopbackTelegram()
    telegram.has_password = True
    async with telegram.running(), asyncio.timeout(WITHIN_S):
        client = client_of(clients_of(telegram))
        assert await client.connect() is None
        sent = await client.send_code(PHONE)
        half = client.secret()
        assert StringSession(half).dc_id == HOME, "PHONE_MIGRATE took it there"
        with pytest.raises(ClientError) as caught:
            await client.sign_in(PHONE, CODE, sent.code_hash)
        assert caught.value.trouble is Trouble.PASSWORD_NEEDED
        await client.disconnect()

        client = client_of(clients_of(telegram), half)
        assert await client.connect() is None, "half signed in is nobody yet"
        with pytest.raises(ClientError) as caught:
            await client.give_password("wrong")
        assert caught.value.trouble is Trouble.BAD_PASSWORD
        assert (await client.give_password(PASSWORD)).user_id == ME

        notebook = Notebook()
        await client.listen(notebook, None)
        await until(lambda: notebook.state is not None)
        telegram.private("hello over a socket")
        await until(lambda: notebook.texts == ["hello over a socket"])
        await client.disconnect()
        telegram.private("while away")
        again, notebook_again = client_of(clients_of(telegram), half), Notebook()
        assert (await again.connect()).user_id == ME
        await again.listen(notebook_again, notebook.state)
        await until(lambda: "while away" in notebook_again.texts)

        telegram.next("GetContacts", "FLOOD_WAIT_30")
        with pytest.raises(ClientError) as caught:
            await again.contacts()
        assert (caught.value.trouble, caught.value.wait_s) == (Trouble.FLOOD, 30)
        telegram.end_keys("SESSION_REVOKED")
        for line in list(telegram.lines):
            line.close()
        await until(lambda: notebook_again.lost, within_s=WITHIN_S)
        assert [one.trouble for one in notebook_again.lost] == [Trouble.REVOKED]


@live
async def test_a_qr_code_takes_the_session_to_the_other_data_centre() -> None:
    telegram = LoopbackTelegram()
    async with telegram.running(), asyncio.timeout(WITHIN_S):
        client = client_of(clients_of(telegram))
        await client.connect()
        await client.qr()
        telegram.token_is_scanned = True
        me = await client.qr_scanned(timeout_s=0.5)
        assert me.user_id == ME
        assert StringSession(client.secret()).dc_id == HOME
        await client.disconnect()


@live
async def test_a_file_comes_from_another_data_centre_and_after_its_reference_has_expired() -> None:
    """Where the message says that it is (dc 2), and where FILE_MIGRATE says."""
    telegram = LoopbackTelegram()
    async with telegram.running(), asyncio.timeout(WITHIN_S):
        client = client_of(clients_of(telegram))
        await client.connect()
        sent = await client.send_code(PHONE)
        await client.sign_in(PHONE, CODE, sent.code_hash)
        notebook = Notebook()
        await client.listen(notebook, None)
        await until(lambda: notebook.state is not None)
        whole = bytes(range(256)) * 5000
        told = [
            telegram.private(f"at {dc}", media=telegram.document(whole, dc=dc), from_id=types.PeerUser(SARA))
            for dc in (HOME, 2)
        ]
        await until(lambda: len(notebook.messages) == 2)
        telegram.files_at = 2
        for message, seen in zip(told, notebook.messages, strict=True):
            got = bytearray()

            async def take(chunk: bytes, got: bytearray = got) -> bool:
                got.extend(chunk)
                telegram.reference += b"+" if len(got) == len(chunk) else b""  # after the first piece
                return True

            media = msgspec.json.decode(seen.media)
            assert (media["id"], media["size"]) == (str(message.media.document.id), len(whole))
            assert await client.download(SARA, None, seen.message_id, file_id=media["id"], offset=0, take=take)
            assert bytes(got) == whole
        assert telegram.imported
        assert not await client.download(SARA, None, 999, file_id="1", offset=0, take=take), "the message is gone"
        await client.disconnect()


@live
async def test_who_is_sent_to_the_other_data_centre_with_the_code_signs_in_there() -> None:
    telegram = LoopbackTelegram()
    telegram.tells_late = True
    async with telegram.running(), asyncio.timeout(WITHIN_S):
        client = client_of(clients_of(telegram))
        await client.connect()
        sent = await client.send_code(PHONE)
        assert StringSession(client.secret()).dc_id == 2
        assert (await client.sign_in(PHONE, CODE, sent.code_hash)).user_id == ME
        assert StringSession(client.secret()).dc_id == HOME, "USER_MIGRATE took it there"
        await client.disconnect()


@pytest.mark.gate
@live
async def test_by_an_mtproto_proxy() -> None:
    telegram = LoopbackTelegram()
    async with telegram.running(), asyncio.timeout(WITHIN_S):
        secret = telegram.proxy_secret.hex()
        for proxy in (f"mtproxy://dd{secret}@127.0.0.1:{telegram.proxy_port}", None):
            shared = f"tg://proxy?server=127.0.0.1&port={telegram.proxy_port}&secret={secret}"
            client = client_of(clients_of(telegram, proxy=shared), proxy=proxy)
            before = telegram.by_proxy
            assert await client.connect() is None
            sent = await client.send_code(PHONE)
            assert (await client.sign_in(PHONE, CODE, sent.code_hash)).user_id == ME
            assert telegram.by_proxy > before
            await client.disconnect()
        assert telegram.opened == telegram.by_proxy, "nothing went past it"
        wrong = client_of(clients_of(telegram), proxy=f"mtproxy://{'00' * 16}@127.0.0.1:{telegram.proxy_port}")
        with pytest.raises(ClientError) as caught:
            await wrong.connect()
        assert caught.value.trouble is Trouble.OFFLINE


@live
async def test_a_key_that_the_server_does_not_know_and_a_server_that_cannot_prove_itself() -> None:
    telegram, other = LoopbackTelegram(), LoopbackTelegram()
    async with telegram.running(), asyncio.timeout(WITHIN_S):
        foreign = StringSession()
        foreign.set_dc(2, "127.0.0.1", telegram.ports[2])
        foreign.auth_key = AuthKey(b"f" * 256)
        with pytest.raises(ClientError) as caught:
            await client_of(clients_of(telegram), foreign.save()).connect()
        assert caught.value.trouble is Trouble.REVOKED
        async with other.running():
            server = TelegramServer(address="127.0.0.1", port=other.ports[2], dc_id=2)
            unproved = TelethonClients(api_id=1, api_hash="h", clock=SystemClock(), server=server)
            with pytest.raises(ClientError) as caught:
                await client_of(unproved).connect()
            assert caught.value.trouble is Trouble.OFFLINE


@live
async def test_by_the_settings(tmp_path: Path) -> None:
    telegram = LoopbackTelegram()
    key = tmp_path / "server.pem"
    key.write_text(telegram.public_key)
    async with telegram.running(), asyncio.timeout(WITHIN_S):
        flags = {
            "telegram_api_id": "1",
            "telegram_api_hash": "h",
            "sessions_server": f"mtproto://127.0.0.1:{telegram.ports[2]}?dc=2&key={key}",
        }
        config = load(flags, environment={}, folder=tmp_path)
        client = client_of(_telethon(config, SystemClock()))
        assert await client.connect() is None
        assert StringSession(client.secret()).server_address == "127.0.0.1"
        await client.disconnect()
    key.write_text("no key")
    with pytest.raises(StartError, match="PEIK_SESSIONS_SERVER"):
        _telethon(config, SystemClock())
    for wrong in ("127.0.0.1:443", "mtproto://host:443", "mtproto://127.0.0.1", "mtproto://127.0.0.1:443?dc=x"):
        with pytest.raises(StartError):
            load(flags | {"sessions_server": wrong}, environment={}, folder=tmp_path)
    with pytest.raises(StartError, match="PEIK_SESSIONS_PROXY"):
        _telethon(
            load({**flags, "sessions_server": None, "sessions_proxy": "ftp://x"}, environment={}, folder=tmp_path),
            SystemClock(),
        )


@pytest.mark.parametrize(
    "proxy",
    [
        "mtproxy://127.0.0.1:443",
        "mtproxy://abc@127.0.0.1:443",
        "mtproxy://" + "ee" * 17 + "@127.0.0.1:443",
        "tg://proxy?server=h&port=x&secret=" + "00" * 16,
        "https://t.me/proxy?server=h&secret=" + "00" * 16,
    ],
)
def test_proxies_that_cannot_be_used_are_refused(proxy: str) -> None:
    with pytest.raises(BadInput) as caught:
        way_of(proxy)
    assert caught.value.code == "malformed_proxy"


def test_a_session_at_an_address_of_ipv6_stays_there() -> None:
    session = StringSession()
    session.set_dc(4, "2001:67c:4e8:f004::a", 443)
    session.auth_key = AuthKey(b"k" * 256)
    made: list[Any] = []
    clients = TelethonClients(api_id=1, api_hash="h", clock=SystemClock(), prepare=made.append)

    async def story() -> None:
        client = client_of(clients, session.save())
        client._make()
        assert made[0]._use_ipv6 is True, "Telethon would move it to its second data centre, where its key is unknown"

    asyncio.run(story())
    assert SARA
