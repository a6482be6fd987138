"""Signing in over a real TelegramClient: by code, by password, by QR; and what the client is made of."""

import sqlite3
from pathlib import Path

import pytest
from telethon import types
from telethon.sessions import SQLiteSession, StringSession

from peik.accounts.client import AccountClient, ClientError, Trouble
from peik.accounts.registry import Registry
from peik.accounts.sign_in import SignInSteps
from peik.accounts.telethon.client import TelethonClients, proxy_of
from peik.archive.store import SessionState
from peik.errors import BadInput
from peik.secrets.vault import Vault
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.memory_archive import MemoryBook
from tests.accounts.tl_server import CODE, ME, PASSWORD, PHONE, TlTelegram, any_key


def client_of(
    server: TlTelegram,
    clock: VirtualClock,
    *,
    secret: str | None = None,
    file: str | None = None,
    folder: Path | None = None,
) -> AccountClient:
    clients = TelethonClients(api_id=1, api_hash="h", clock=clock, sessions_dir=folder, prepare=server.prepare)
    return clients(session_id="s", agent_id="a", secret=secret, file=file, proxy=None)


def test_by_code_then_again_by_the_secret() -> None:
    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        client = client_of(server, clock)
        assert await client.connect() is None
        sent = await client.send_code(PHONE)
        assert (sent.way, sent.length, sent.timeout_s, sent.code_hash) == ("app", 5, 60, "hash")
        half_made = client.secret()
        await client.disconnect()

        # Peik was restarted between the code and its answer: the key is the same.
        client = client_of(server, clock, secret=half_made)
        assert await client.connect() is None
        with pytest.raises(ClientError) as caught:
            await client.sign_in(PHONE, "00000", sent.code_hash)
        assert caught.value.trouble is Trouble.BAD_CODE
        me = await client.sign_in(PHONE, CODE, sent.code_hash)
        assert (me.user_id, me.phone, me.username, me.first_name) == (ME, PHONE, "ali", "Ali")
        assert client.secret() == half_made
        await client.disconnect()

        again = client_of(server, clock, secret=half_made)
        assert await again.connect() == me
        await again.log_out()
        assert not again.is_connected
        gone = client_of(server, clock, secret=half_made)
        assert await gone.connect() is None
        await gone.disconnect()

    run_virtual(story)


def test_a_phone_of_another_data_centre_takes_the_session_there() -> None:
    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        client = client_of(server, clock)
        await client.connect()
        before = client.secret()
        server.next("SendCode", "PHONE_MIGRATE_4")
        sent = await client.send_code(PHONE)
        assert client.secret() != before
        assert StringSession(client.secret()).dc_id == 4
        assert (await client.sign_in(PHONE, CODE, sent.code_hash)).user_id == ME
        await client.disconnect()

    run_virtual(story)


def test_a_qr_code_scanned_by_an_account_of_another_data_centre() -> None:
    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        client = client_of(server, clock)
        await client.connect()
        await client.qr()
        server.token_is_scanned = True
        server.next("ExportLoginToken", types.auth.LoginTokenMigrateTo(4, b"token"))
        me = await client.qr_scanned(timeout_s=20)
        assert me is not None
        assert StringSession(client.secret()).dc_id == 4
        await client.disconnect()

    run_virtual(story)


def test_a_code_by_sms_is_asked_for_when_telegram_sent_it_to_the_app() -> None:
    async def story(clock: VirtualClock) -> None:
        client = client_of(TlTelegram(), clock)
        await client.connect()
        sent = await client.send_code(PHONE, by_sms=True)
        assert (sent.way, sent.code_hash) == ("sms", "hash2")
        await client.disconnect()

    run_virtual(story)


def test_an_account_with_a_password_asks_for_it() -> None:
    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        server.has_password = True
        client = client_of(server, clock)
        await client.connect()
        with pytest.raises(ClientError) as caught:
            await client.sign_in(PHONE, CODE, "hash")
        assert caught.value.trouble is Trouble.PASSWORD_NEEDED
        with pytest.raises(ClientError) as caught:
            await client.give_password("wrong")
        assert caught.value.trouble is Trouble.BAD_PASSWORD
        assert (await client.give_password(PASSWORD)).user_id == ME
        await client.disconnect()

    run_virtual(story)


def test_a_password_is_given_step_by_step_to_a_server_that_answers_a_half_signed_key_nothing_else() -> None:
    """Each step connects anew. A half-signed key hears 401 SESSION_PASSWORD_NEEDED whatever it asks for, also who it is."""

    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        server.has_password = True
        registry = Registry(MemoryBook(), clock)
        clients = TelethonClients(api_id=1, api_hash="h", clock=clock, prepare=server.prepare)
        signing = SignInSteps(registry, Vault([b"k" * 32]), clients, clock)
        session_id = (await registry.create_session("agent", phone=PHONE)).session_id
        await signing.begin(session_id)
        session = await signing.give_code(session_id, CODE)
        assert session.state is SessionState.PASSWORD_NEEDED
        for _ in range(3):
            with pytest.raises(BadInput) as caught:
                await signing.give_password(session_id, "wrong")
            assert (caught.value.code, caught.value.detail) == ("bad_password", "The password is wrong.")
        session = await signing.give_password(session_id, PASSWORD)
        assert (session.state, session.user_id) == (SessionState.ACTIVE, ME)
        assert len(server.signed_in) == 1

    run_virtual(story)


def test_a_question_that_changed_before_its_answer_came_is_asked_once_more() -> None:
    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        server.has_password = True
        client = client_of(server, clock)
        await client.connect()
        with pytest.raises(ClientError):
            await client.sign_in(PHONE, CODE, "hash")
        server.next("CheckPassword", "SRP_ID_INVALID")
        assert (await client.give_password(PASSWORD)).user_id == ME
        await client.disconnect()

    run_virtual(story)


def test_by_qr_with_telegrams_word_that_it_was_scanned() -> None:
    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        client = client_of(server, clock)
        await client.connect()
        qr = await client.qr()
        assert qr.url == "tg://login?token=dG9rZW4"
        assert await client.qr_scanned(timeout_s=12) is None
        server.token_is_scanned = True
        server.senders[-1].receive(types.UpdateShort(types.UpdateLoginToken(), server.at))
        before = clock.mono()
        me = await client.qr_scanned(timeout_s=60)
        assert me is not None
        assert me.user_id == ME
        assert clock.mono() - before < 5
        await client.disconnect()

    run_virtual(story)


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        ("PHONE_NUMBER_BANNED", Trouble.PHONE_BANNED),
        ("FLOOD_WAIT_600", Trouble.FLOOD),
        ("API_ID_INVALID", Trouble.BAD_KEYS),
    ],
)
def test_what_telegram_says_to_a_phone_is_told(name: str, trouble: Trouble) -> None:
    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        client = client_of(server, clock)
        await client.connect()
        server.next("SendCode", name)
        before = clock.mono()
        with pytest.raises(ClientError) as caught:
            await client.send_code(PHONE)
        assert caught.value.trouble is trouble
        assert clock.mono() == before, "a flood is told, not slept through"
        await client.disconnect()

    run_virtual(story)


def test_a_banned_account_is_told_at_connect_and_a_dead_network_too() -> None:
    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        server.next("GetUsers", "USER_DEACTIVATED_BAN")
        with pytest.raises(ClientError) as caught:
            await client_of(server, clock).connect()
        assert caught.value.trouble is Trouble.REVOKED
        server.is_down = True
        with pytest.raises(ClientError) as caught:
            await client_of(server, clock).connect()
        assert caught.value.trouble is Trouble.OFFLINE

    run_virtual(story)


def test_a_session_in_a_file_runs_from_that_file(tmp_path: Path) -> None:
    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        key = any_key()
        server.signed_in.add(key.key)
        made = SQLiteSession(str(tmp_path / "ali"))
        made.set_dc(2, "149.154.167.51", 443)
        made.auth_key = key
        made.save()
        made.close()
        client = client_of(server, clock, file="ali", folder=tmp_path)
        me = await client.connect()
        assert me is not None
        assert StringSession(client.secret()).auth_key.key == key.key
        await client.disconnect()

    run_virtual(story)


@pytest.mark.parametrize("file", ["../ali", "/etc/passwd", "no/such", ".hidden", "missing", ""])
def test_a_file_that_is_none_of_ours_is_refused(file: str, tmp_path: Path) -> None:
    async def story(clock: VirtualClock) -> None:
        with pytest.raises(BadInput):
            client_of(TlTelegram(), clock, file=file, folder=tmp_path)

    run_virtual(story)
    assert not list(tmp_path.iterdir())


def test_a_string_or_a_file_that_is_broken_is_refused_without_being_shown(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "other.session").executescript("CREATE TABLE version (version INTEGER);").close()
    (tmp_path / "text.session").write_text("not a database at all, but long enough to be looked at" * 20)

    async def story(clock: VirtualClock) -> None:
        for secret in ("1nonsense", "2BVtsOK", "x"):
            with pytest.raises(BadInput) as caught:
                client_of(TlTelegram(), clock, secret=secret)
            assert "nonsense" not in str(caught.value)
        for file in ("other", "text"):
            with pytest.raises(BadInput):
                client_of(TlTelegram(), clock, file=file, folder=tmp_path)

    run_virtual(story)


def test_proxies() -> None:
    assert proxy_of(None) is None
    assert proxy_of("socks5://u:p%40@h:9") == {
        "proxy_type": "socks5", "addr": "h", "port": 9, "username": "u", "password": "p@", "rdns": True,
    }  # fmt: skip
    assert (proxy_of("http://h") or {})["port"] == 8080
    for url in ("ftp://h", "socks5://", "h:1080", "http://h:99999"):
        with pytest.raises(BadInput):
            proxy_of(url)
