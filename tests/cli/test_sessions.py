"""`peik sessions`: accounts are registered, run, read and forgotten, through a running Peik or on the archive itself."""

import asyncio
import re
import sqlite3
from pathlib import Path

import pytest

from tests.archive.places import HAS_SERVERS, MongoPlace, PostgresPlace
from tests.cli.served_accounts import Place, play_place
from tests.cli.shell import CTRL_C, Shell
from tests.web.accounts import until

PHONE = "+998900000001"
APPLICATION = {"TELEGRAM_API_ID": "1", "TELEGRAM_API_HASH": "abc"}


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """Nobody runs here: commands work on the archive itself."""
    return Shell(tmp_path, **APPLICATION)


def session_file(path: Path, key: bytes | None) -> Path:
    """As Telethon 1 writes it."""
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE sessions (dc_id integer primary key, server_address text, port integer, auth_key blob)")
    if key is not None:
        base.execute("INSERT INTO sessions VALUES (2, '149.154.167.51', 443, ?)", (key,))
    base.commit()
    base.close()
    return path


# ---- through a running Peik ----


def test_an_account_runs_stops_and_is_signed_out_through_a_running_peik(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        ali = place.telegram.register(PHONE, first_name="Ali", username="ali")
        session = await place.house.signed_in(ali, agent_id="shop")
        (listed,) = (await place.asked("sessions", "list", "--agent", "shop", "--state", "active"))["sessions"]
        assert (listed["session_id"], listed["user_id"], listed["is_connected"]) == (session, str(ali.user_id), True)
        shown = (await place.peik("sessions", "list")).out
        assert re.search(rf"^{session} +shop +\{PHONE} +@ali +active +ok ", shown, re.MULTILINE), shown
        assert (await place.peik("sessions", "stop", session)).out == f"Session {session} is paused.\n"
        assert (await place.asked("sessions", "show", session))["state"] == "paused"
        assert (await place.asked("sessions", "start", session))["state"] == "active"
        await place.house.connected(session)
        assert (await place.peik("sessions", "restart", session)).code == 0
        await place.house.connected(session)
        asked = await place.peik("sessions", "log-out", session)
        assert (asked.code, "Say --yes" in asked.err) == (2, True)
        assert (await place.asked("sessions", "log-out", session, "--yes"))["state"] == "revoked"
        assert (await place.peik("sessions", "restart", session)).code == 4
        assert (await place.asked("sessions", "delete", session, "--yes")) == {"session_id": session, "removed": True}
        assert (await place.peik("sessions", "show", session, "--json")).problem["code"] == "no_such_session"

    play_place(tmp_path, story)


def test_a_crawl_is_shown_until_it_is_done(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        ali = place.telegram.register(PHONE, first_name="Ali")
        friend = place.telegram.register("+998900000002", first_name="Vali")
        chat = place.telegram.private(ali, friend)
        for number in range(130):
            place.telegram.say(chat, friend, f"salom {number}")
        session = await place.house.signed_in(ali)
        chat_id = str(friend.user_id)
        ran = await place.peik("sessions", "crawl", session, chat_id)
        assert (ran.code, ran.out) == (0, f"Chat {chat_id}: 130 messages read; all of it is here.\n")
        assert await place.asked("messages", "count", "--chat", chat_id) == {"count": 130}
        (known,) = (await place.asked("sessions", "chats", session))["chats"]
        assert (known["chat_id"], known["crawl"]["state"]) == (chat_id, "whole")
        assert re.search(
            rf"^ *{chat_id} +\d+ +whole +130 ", (await place.peik("sessions", "chats", session)).out, re.MULTILINE
        )
        await place.asked("sessions", "stop", session)
        other = await place.peik("sessions", "crawl", session, "-100500", "--until", "30d")
        assert (other.code, "begins when session" in other.err) == (0, True)
        assert (await place.asked("sessions", "crawl", session, "-100500", "--stop"))["crawl"]["state"] == "stopped"

    play_place(tmp_path, story)


def test_ctrl_c_leaves_a_crawl_to_peik(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        ali = place.telegram.register(PHONE)
        friend = place.telegram.register("+998900000002")
        chat = place.telegram.private(ali, friend)
        for number in range(150):
            place.telegram.say(chat, friend, f"salom {number}")
        session = await place.house.signed_in(ali)
        place.telegram.flood("history", 3600, times=1)
        interrupt = [("going on", CTRL_C.decode)]
        code, shown = await place.talk("sessions", "crawl", session, str(friend.user_id), steps=interrupt)
        assert code == 130
        assert "It goes on in Peik" in shown
        (known,) = (await place.asked("sessions", "chats", session))["chats"]
        assert known["crawl"]["state"] == "running"

    play_place(tmp_path, story)


def test_files_are_taken_in_beside_a_running_peik_which_runs_them(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        session_file(tmp_path / "one.session", bytes(range(256)))
        beside = Shell(tmp_path, **APPLICATION)
        taken = await asyncio.to_thread(beside.asked, "sessions", "import", "one.session", "--agent", "a")
        session = taken["files"][0]["session_id"]
        assert (await place.peik("sessions", "start", session)).code == 0  # it can open the key, and looks at once

        async def is_tried() -> bool:
            return (await place.house.get(f"/v1/sessions/{session}"))["state"] == "revoked"

        await until(is_tried)  # the simulated Telegram does not know this key
        far = await place.peik("sessions", "import", "one.session", "--agent", "a", "--url", place.house.url)
        assert (far.code, "--url" in far.err) == (2, True)

    play_place(tmp_path, story)


def test_an_account_that_is_forgotten_without_a_running_peik_sends_no_letters_either(tmp_path: Path) -> None:
    ids: list[str] = []

    async def story(place: Place) -> None:
        ids.append(await place.house.signed_in(place.telegram.register(PHONE)))

        async def is_enlisted() -> bool:
            return bool((await place.house.get("/v1/bots"))["bots"])

        await until(is_enlisted)

    play_place(tmp_path, story)
    alone = Shell(tmp_path, **APPLICATION)
    (bot,) = alone.asked("bots", "list")["bots"]
    letter = alone.asked("send", "5", "salom", "--bot", bot["bot_id"])
    assert alone.peik("sessions", "delete", ids[0], "--yes", "--json").problem["code"] == "letters_waiting"
    alone.asked("cancel", letter["id"])
    assert alone.peik("sessions", "delete", ids[0], "--yes").code == 0
    assert alone.asked("bots", "list")["bots"] == []
    assert alone.asked("sessions", "list")["sessions"] == []


# ---- on the archive itself ----


@pytest.mark.skipif(not HAS_SERVERS, reason="needs servers")
@pytest.mark.parametrize("kind", [PostgresPlace, MongoPlace])
def test_the_archive_may_be_on_a_server(tmp_path: Path, kind: type[PostgresPlace | MongoPlace]) -> None:
    shell = Shell(tmp_path, **APPLICATION, PEIK_ARCHIVE=kind(tmp_path).url, PEIK_SECRET_KEY="a long passphrase of ours")
    made = shell.asked("sessions", "create", "--agent", "shop", "--id", "mine")
    assert shell.asked("sessions", "list")["sessions"] == [made]
    crawl = shell.peik("sessions", "crawl", "mine", "-100500", "--json")
    assert (crawl.code, crawl.document["crawl"]["state"]) == (0, "running")
    assert shell.peik("messages", "export", "all.jsonl").out == "0 messages exported to all.jsonl.\n"
    assert not list(tmp_path.glob("peik.db*"))


def test_nothing_is_made_where_nobody_asked_for_accounts(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    ran = shell.peik("sessions", "list", "--json")
    assert (ran.code, ran.problem["code"]) == (4, "no_sessions")
    assert "TELEGRAM_API_ID" in ran.problem["detail"]
    ran = Shell(tmp_path, **APPLICATION).peik("messages", "list", "--json")
    assert (ran.code, ran.problem["code"]) == (5, "unreachable")
    assert not list(tmp_path.iterdir())


def test_accounts_are_registered_changed_and_forgotten_without_a_running_peik(alone: Shell) -> None:
    made = alone.peik(
        "sessions", "create", "--agent", "shop", "--phone", "+998 90 000-00-01", "--meta", "city=Samarqand"
    )
    match = re.fullmatch(r"Session (\w+) is registered\.\n", made.out)
    assert match, made
    assert "Back it up" in made.err
    session = match[1]
    shown = alone.asked("sessions", "show", session)
    assert (shown["phone"], shown["metadata"], shown["state"]) == (PHONE, {"city": "Samarqand"}, "new")
    assert alone.peik("sessions", "create", "--agent", "shop", "--phone", PHONE).code == 4
    changed = alone.asked("sessions", "set", session, "--meta", "vip=yes", "--unset", "city")
    assert changed["metadata"] == {"vip": "yes"}
    assert not alone.asked("sessions", "deactivate", session)["is_active"]
    assert alone.asked("sessions", "list", "--active")["sessions"] == []
    assert alone.asked("sessions", "activate", session)["is_active"]
    (found,) = alone.asked("sessions", "list", "--phone", PHONE)["sessions"]
    assert found["session_id"] == session
    assert alone.peik("sessions", "start", session, "--json").problem["code"] == "not_signed_in"
    for deed in (("restart",), ("log-out", "--yes")):
        ran = alone.peik("sessions", deed[0], session, *deed[1:], "--json")
        assert (ran.code, ran.problem["code"]) == (5, "not_running")
    assert alone.asked("sessions", "cleanup", "--days", "0", "--yes") == {"removed": 0}
    assert alone.asked("sessions", "reseal") == {"renewed": 0, "lost": []}
    assert alone.peik("sessions", "delete", session, "--yes").out == f"Session {session} is forgotten.\n"
    assert alone.peik("sessions", "show", session).code == 3
    assert alone.peik("sessions", "set", session).code == 2


def test_a_proxy_with_a_password_is_never_an_argument(alone: Shell) -> None:
    ran = alone.peik("sessions", "create", "--agent", "a", "--proxy", "socks5://me:hush-hush@127.0.0.1:1080")
    assert ran.code == 2
    assert "hush-hush" not in ran.out + ran.err
    made = alone.asked("sessions", "create", "--agent", "a", "--proxy", "-", stdin="socks5://me:hush@127.0.0.1:1080\n")
    assert made["has_proxy"]
    assert not alone.asked("sessions", "set", made["session_id"], "--no-proxy")["has_proxy"]
    plain = alone.asked("sessions", "set", made["session_id"], "--proxy", "socks5://127.0.0.1:1080")
    assert plain["has_proxy"]


def test_keys_that_nothing_opens_are_named_when_they_are_sealed_anew(alone: Shell, tmp_path: Path) -> None:
    session_file(tmp_path / "one.session", bytes(range(256)))
    (taken,) = alone.asked("sessions", "import", "one.session", "--agent", "a")["files"]
    (kept,) = tmp_path.glob("*.secret")
    kept.unlink()
    ran = alone.peik("sessions", "reseal", "--json", PEIK_SECRET_KEY="another passphrase, long enough to be one")
    assert (ran.code, ran.document) == (1, {"renewed": 0, "lost": [taken["session_id"]]})


def test_files_are_taken_in_once_and_each_has_its_verdict(alone: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    session_file(folder / "a.session", b"\x01" * 256)
    session_file(folder / "b.session", b"\x02" * 256)
    (folder / "notes.txt").write_text("no session", encoding="utf-8")
    session_file(folder / "copy.session", b"\x01" * 256)
    dry = alone.peik("sessions", "import", str(folder), "--agent", "shop", "--dry-run", "--json")
    assert (dry.code, dry.document["counts"]) == (0, {"would_import": 2, "duplicate": 1})
    assert dry.document["files"][2]["detail"] == "Session of a.session has the same key."
    assert alone.asked("sessions", "list")["sessions"] == []
    (folder / "copy.session").unlink()
    ran = alone.peik("sessions", "import", str(folder), "--agent", "shop")
    assert (ran.code, ran.err.splitlines()[-1]) == (0, "2 imported.")
    session_file(folder / "c.session", None)
    (folder / "d.session").write_bytes(b"nothing of the kind")
    ran = alone.peik("sessions", "import", str(folder), str(folder / "gone.session"), "--agent", "shop", "--json")
    assert ran.code == 1
    assert [(one["file"], one["verdict"]) for one in ran.document["files"]] == [
        ("a.session", "duplicate"),
        ("b.session", "duplicate"),
        ("c.session", "empty"),
        ("d.session", "not_a_session"),
        ("gone.session", "not_a_session"),
    ]
    assert ran.document["counts"] == {"duplicate": 2, "empty": 1, "not_a_session": 2}
    listed = alone.asked("sessions", "list", "--agent", "shop")["sessions"]
    assert [(one["state"], one["runs_from"]) for one in listed] == [("active", "key")] * 2
    again = ("sessions", "import", str(folder / "a.session"), "--agent", "b", "--archive", "sqlite:///other")
    kept = alone.peik(*again, "--keep-files", PEIK_SESSIONS_DIR="running")
    assert kept.code == 0, kept
    assert [path.suffix for path in (tmp_path / "running").iterdir()] == [".session"]
    assert alone.peik("sessions", "import", str(tmp_path / "running" / ".."), "--agent", "x").code == 2


def test_importing_is_shown_in_a_terminal(alone: Shell, tmp_path: Path) -> None:
    session_file(tmp_path / "one.session", bytes(range(256)))
    code, shown = alone.in_terminal("sessions", "import", "one.session", "--agent", "shop", columns=120)
    assert code == 0
    assert re.search(r"one\.session +\x1b\[32mimported", shown), shown
