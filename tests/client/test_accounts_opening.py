"""Accounts of `Peik.open`: its settings, session files, and an archive that is not there."""

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from peik import BadInput, Conflict, Peik, StartError, Unavailable
from peik.clock import SystemClock
from peik.testing.accounts import Accounts
from tests.accounts.test_importing import session_file
from tests.client.account_ways import counted, entered, opened, signed_in, some
from tests.web.accounts import KEY, NOWHERE, until

ALI, SARA = "+998900000001", "+998900000002"


def test_the_library_itself_needs_nothing_of_telethon() -> None:
    program = (
        "import sys; from peik import Peik, AccountSession, FeedLine; Peik.open('sqlite:///x.db');"
        "Peik.connect('http://h', key='k'); import peik.client.remote;"
        "print([name for name in sys.modules if name.partition('.')[0] in ('telethon', 'cryptography', 'starlette')])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_opened_with_an_archive_only_it_is_read_and_nobody_signs_in(tmp_path: Path) -> None:
    async def main() -> None:
        store, archive = f"sqlite:///{tmp_path}/peik.db", f"sqlite:///{tmp_path}/other.db"
        async with Peik.open(store, api_root=NOWHERE, archive=archive, secret_key="a long enough passphrase") as peik:
            await peik.create_session("a", session_id="s1")
            with pytest.raises(Conflict) as raised:
                await peik.send_code("s1", ALI)
            assert raised.value.code == "no_application"
        assert (tmp_path / "other.db").exists()
        with pytest.raises(StartError, match="TELEGRAM_API_HASH"):
            async with Peik.open(store, api_root=NOWHERE, api_id=5):
                pass
        folder = tmp_path / "files"
        async with Peik.open(
            store, api_root=NOWHERE, archive=archive, api_id=5, api_hash="h", sessions_dir=folder
        ) as peik:
            with pytest.raises(BadInput) as refused:
                await peik.create_session("a", file="missing")
            assert refused.value.code == "unusable_file"
            assert [one.session_id for one in await peik.get_all_active_sessions()] == ["s1"]

    asyncio.run(main())


def test_session_files_are_taken_in_with_a_report_for_each(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    key = os.urandom(256)
    session_file(folder, "ali", key)
    session_file(folder, "copy", key)
    (folder / "notes.session").write_text("nothing")

    async def main() -> None:
        async with entered("open", tmp_path) as (peik, _):
            reports = {one.file: one async for one in peik.import_sessions(folder, agent_id="old")}
            assert {name: one.verdict for name, one in reports.items()} == {
                "ali.session": "imported",
                "copy.session": "duplicate",
                "notes.session": "not_a_session",
            }
            (session,) = await peik.get_sessions_by_agent("old")
            assert reports["ali.session"].session_id == session.session_id
        async with Peik.connect("http://127.0.0.1:9", key=KEY) as peik:
            with pytest.raises(BadInput) as raised:
                peik.import_sessions([folder / "ali.session"], agent_id="old")
            assert raised.value.code == "import_needs_open"

    asyncio.run(main())


def test_an_archive_that_cannot_be_opened_stops_no_bot_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "archive.db").write_text("This is no database, and long enough to be seen as none. " * 50)
        telegram = Accounts(SystemClock(), seed=1)
        async with opened(tmp_path, telegram, archive=f"sqlite:///{tmp_path}/archive.db") as peik:
            with pytest.raises(Unavailable) as raised:
                await peik.create_session("a")
            assert raised.value.code == "archive_away"
            assert "PEIK_ARCHIVE" in raised.value.detail
            assert (await peik.get_queue_stats()).waiting == 0
            (tmp_path / "archive.db").unlink()

            async def back() -> bool:
                with contextlib.suppress(Unavailable):
                    return (await peik.create_session("a")).agent_id == "a"
                return False

            await until(back)

    asyncio.run(main())


def test_a_session_lives_on_in_the_next_who_opens_and_so_does_a_readers_place(tmp_path: Path) -> None:
    async def main() -> None:
        telegram = Accounts(SystemClock(), seed=1)
        ali, sara = telegram.register(ALI), telegram.register(SARA)
        chat = telegram.private(ali, sara)
        async with opened(tmp_path, telegram) as peik:
            await signed_in(peik, telegram, ali, "s1")
            telegram.say(chat, sara, "first")
            async with contextlib.aclosing(peik.listen(kinds=["message"], reader="r")) as lines:
                async for line in lines:
                    assert line.message is not None
                    assert line.message.text == "first"
                    closing = asyncio.ensure_future(peik.close())  # the line is done with while Peik ends
                    await asyncio.sleep(0)
            await closing
        telegram.say(chat, sara, "while nobody was there")
        async with opened(tmp_path, telegram) as peik:
            await counted(peik, 2)
            async with contextlib.aclosing(peik.listen(kinds=["message"], reader="r")) as lines:
                heard = [line.message.text for line in await some(lines, 1)]
            assert heard == ["while nobody was there"]

    asyncio.run(main())
