"""Session files of Telethon that exist already: the good, the twice there, and the ones that are something else."""

import os
import sqlite3
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from telethon.crypto import AuthKey
from telethon.sessions import SQLiteSession, StringSession

from peik.accounts.budget import Budget
from peik.accounts.registry import Registry, secret_context
from peik.accounts.session_files import (
    FileVerdict,
    FoundSession,
    Importing,
    Looked,
    read_session_file,
    sealed_export,
    session_files,
)
from peik.accounts.telethon.client import TelethonClients
from peik.archive.store import SessionState
from peik.errors import BadInput, Problem
from peik.secrets.vault import Vault
from peik.testing.accounts import Accounts
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.memory_archive import MemoryBook
from tests.accounts.tl_server import ME, TlTelegram


def session_file(folder: Path, name: str, key: bytes | None) -> Path:
    session = SQLiteSession(str(folder / name))
    session.set_dc(2, "149.154.167.51", 443)
    if key is not None:
        session.auth_key = AuthKey(key)
    session.save()
    session.close()
    return folder / f"{name}.session"


class Stage:
    def __init__(self, clock: VirtualClock, folder: Path) -> None:
        self.book = MemoryBook()
        self.registry = Registry(self.book, clock)
        self.vault = Vault([b"k" * 32])
        self.server = TlTelegram()
        clients = TelethonClients(api_id=1, api_hash="h", clock=clock, prepare=self.server.prepare)
        self.kept = folder / "kept"
        self.importing = Importing(
            self.registry, self.vault, clients, sessions_dir=self.kept, connect_turn=Budget(clock).connect_turn
        )

    async def run(self, *paths: Path, check: bool = False, keep_files: bool = False) -> list[Looked]:
        run = self.importing.run(paths, agent_id="old", check=check, keep_files=keep_files)
        return [one async for one in run]


def play(folder: Path, story: Callable[[Stage], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        await story(Stage(clock, folder))

    run_virtual(main)


def test_a_file_becomes_a_session_with_a_sealed_string(tmp_path: Path) -> None:
    key = os.urandom(256)
    path = session_file(tmp_path, "ali", key)
    before = path.read_bytes()

    async def story(stage: Stage) -> None:
        [looked] = await stage.run(path)
        assert looked.verdict is FileVerdict.IMPORTED
        assert looked.session_id is not None
        session = stage.book.kept[looked.session_id]
        assert (session.state, session.agent_id, session.file) == (SessionState.ACTIVE, "old", None)
        assert session.secret is not None
        kept = StringSession(stage.vault.open(session.secret, context=secret_context(session.session_id)))
        assert (kept.auth_key.key, kept.dc_id, kept.server_address, kept.port) == (key, 2, "149.154.167.51", 443)

    play(tmp_path, story)
    assert path.read_bytes() == before


def test_a_key_is_registered_once_however_often_it_comes(tmp_path: Path) -> None:
    key = os.urandom(256)
    first, copy = session_file(tmp_path, "a", key), session_file(tmp_path, "b", key)

    async def story(stage: Stage) -> None:
        assert [one.verdict for one in await stage.run(first, copy)] == [FileVerdict.IMPORTED, FileVerdict.DUPLICATE]
        [again] = await stage.run(copy)
        assert again.verdict is FileVerdict.DUPLICATE
        assert next(iter(stage.book.kept)) in again.detail
        # One that was signed in here, and left no mark of an import:
        session_id = next(iter(stage.book.kept))
        await stage.registry.update_session_metadata(session_id, {"key": None})
        assert [one.verdict for one in await stage.run(first)] == [FileVerdict.DUPLICATE]
        assert len(stage.book.kept) == 1

    play(tmp_path, story)


def test_with_check_telegram_is_asked_about_each(tmp_path: Path) -> None:
    good, gone = os.urandom(256), os.urandom(256)
    paths = session_file(tmp_path, "good", good), session_file(tmp_path, "gone", gone)

    async def story(stage: Stage) -> None:
        stage.server.signed_in.add(good)
        looked = await stage.run(*paths, check=True)
        assert [one.verdict for one in looked] == [FileVerdict.IMPORTED, FileVerdict.SIGNED_OUT]
        assert looked[0].user_id == ME
        [session] = stage.book.kept.values()
        assert (session.user_id, session.username, session.phone) == (ME, "ali", "+998901234567")
        stage.server.is_down = True
        [unchecked] = await stage.run(session_file(tmp_path, "other", os.urandom(256)), check=True)
        assert unchecked.verdict is FileVerdict.UNCHECKED
        assert len(stage.book.kept) == 1

    play(tmp_path, story)


def test_files_are_checked_at_the_pace_at_which_accounts_may_connect(tmp_path: Path) -> None:
    keys = [os.urandom(256) for _ in range(20)]
    paths = [session_file(tmp_path, f"f{number}", key) for number, key in enumerate(keys)]

    async def story(stage: Stage) -> None:
        stage.server.signed_in.update(keys)
        await stage.run(*paths, check=True)
        assert len(stage.server.asked("GetUsers")) == 20
        assert stage.server.busiest()["users.getUsers"] <= 3

    play(tmp_path, story)


def test_a_file_can_be_kept_as_a_copy_that_only_its_owner_can_read(tmp_path: Path) -> None:
    key = os.urandom(256)
    path = session_file(tmp_path, "ali", key)

    async def story(stage: Stage) -> None:
        [looked] = await stage.run(path, keep_files=True)
        assert looked.session_id is not None
        session = stage.book.kept[looked.session_id]
        assert session.secret is None
        assert session.file is not None
        copy = stage.kept / session.file
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert read_session_file(copy).key == key

    play(tmp_path, story)


def test_what_is_no_session_is_told_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.session").write_text("hello")
    (tmp_path / "nothing.session").touch()
    pyrogram = sqlite3.connect(tmp_path / "pyrogram.session")
    pyrogram.execute("CREATE TABLE sessions (dc_id, api_id, test_mode, auth_key, date, user_id, is_bot)")
    pyrogram.close()
    strange = sqlite3.connect(tmp_path / "strange.session")
    strange.execute("CREATE TABLE sessions (dc_id, server_address, port, auth_key, takeout_id)")
    strange.execute("INSERT INTO sessions VALUES (2, 'nowhere', 443, ?, NULL)", (os.urandom(256),))
    strange.commit()
    strange.close()
    session_file(tmp_path, "unused", None)
    expected = {
        "text.session": FileVerdict.NOT_A_SESSION,
        "nothing.session": FileVerdict.NOT_A_SESSION,
        "pyrogram.session": FileVerdict.NOT_A_SESSION,
        "strange.session": FileVerdict.NOT_A_SESSION,
        "unused.session": FileVerdict.EMPTY,
        "missing.session": FileVerdict.NOT_A_SESSION,
    }

    async def story(stage: Stage) -> None:
        paths = [*session_files(tmp_path), tmp_path / "missing.session"]
        looked = await stage.run(*paths)
        assert {one.file: one.verdict for one in looked} == expected
        assert any("Pyrogram" in one.detail for one in looked)
        assert not stage.book.kept

    play(tmp_path, story)


def test_an_older_schema_is_read_too(tmp_path: Path) -> None:
    """Telethon 1.0 had neither a takeout id nor a temporary key."""
    old = sqlite3.connect(tmp_path / "old.session")
    old.execute("CREATE TABLE sessions (dc_id INTEGER, server_address TEXT, port INTEGER, auth_key BLOB)")
    key = os.urandom(256)
    old.execute("INSERT INTO sessions VALUES (4, '2001:67c:4e8:f004::a', 443, ?)", (key,))
    old.commit()
    old.close()
    found = read_session_file(tmp_path / "old.session")
    assert (found.dc_id, found.key) == (4, key)
    assert StringSession(found.secret).server_address == "2001:67c:4e8:f004::a"


def test_a_key_is_never_shown() -> None:
    found = FoundSession(dc_id=2, address="149.154.167.51", port=443, key=b"K" * 256)
    assert "K" not in repr(found)


@pytest.mark.parametrize("keep_files", [False, True])
def test_a_phone_that_another_session_has_is_told_and_leaves_nothing(tmp_path: Path, keep_files: bool) -> None:
    key = os.urandom(256)
    path = session_file(tmp_path, "ali", key)

    async def story(stage: Stage) -> None:
        stage.server.signed_in.add(key)
        await stage.registry.create_session("x", phone="+998901234567")
        [looked] = await stage.run(path, check=True, keep_files=keep_files)
        assert looked.verdict is FileVerdict.FAILED
        assert len(stage.book.kept) == 1
        assert not stage.kept.exists()

    play(tmp_path, story)


def test_the_simulated_telegram_can_check_too(tmp_path: Path) -> None:
    path = session_file(tmp_path, "ali", os.urandom(256))

    async def main(clock: VirtualClock) -> None:
        telegram = Accounts(clock)
        sara = telegram.register("+77010000001")
        telegram.keys.find(read_session_file(path).secret).person = sara
        book = MemoryBook()
        importing = Importing(Registry(book, clock), Vault([b"k" * 32]), telegram.clients)
        looked = [one async for one in importing.run([path], agent_id="a", check=True)]
        assert [one.user_id for one in looked] == [sara.user_id]

    run_virtual(main)


def test_a_string_is_taken_in_once_open_or_sealed(tmp_path: Path) -> None:
    key, other = os.urandom(256), os.urandom(256)

    def string(of: bytes) -> str:
        return FoundSession(dc_id=2, address="149.154.167.51", port=443, key=of).secret

    async def story(stage: Stage) -> None:
        stage.server.signed_in.update((key, other))
        session = await stage.importing.take_string(f" {string(key)}\n", agent_id="old", check=True)
        assert (session.state, session.user_id, session.phone) == (SessionState.ACTIVE, ME, "+998901234567")
        assert session.secret is not None
        assert key not in session.secret
        assert stage.vault.open(session.secret, context=secret_context(session.session_id)) == string(key)
        phrase = "a sentence that nobody guesses"
        sealed = sealed_export(string(other), phrase)
        assert sealed != sealed_export(string(other), phrase), "each with a salt of its own"
        assert string(other)[10:40] not in sealed
        for text, given, code in [
            (string(key), None, "session_known"),
            (sealed, None, "no_passphrase"),
            (sealed, "another sentence of some words", "wrong_passphrase"),
            (sealed[:-8], phrase, "wrong_passphrase"),
            ("peik1.!!", phrase, "malformed_session"),
            ("", None, "malformed_session"),
            ("BQFakePyrogramString", None, "malformed_session"),
            (string(os.urandom(256)), None, "signed_out"),
        ]:
            with pytest.raises(Problem) as caught:
                await stage.importing.take_string(text, agent_id="old", passphrase=given, check=True)
            assert caught.value.code == code
            assert not text or text not in caught.value.detail
        taken = await stage.importing.take_string(sealed, agent_id="old", passphrase=phrase)
        assert taken.secret is not None
        assert stage.vault.open(taken.secret, context=secret_context(taken.session_id)) == string(other)
        assert len(stage.book.kept) == 2

    play(tmp_path, story)
    with pytest.raises(BadInput):
        sealed_export("x", "too short")
