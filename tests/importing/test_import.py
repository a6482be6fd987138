"""`peik import` on real files: what waits is brought once, in order, and the file stays as it was."""

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import BOT, TOKEN, Shell, served, telegram
from tests.patience import PATIENCE_S


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, BOT_TOKEN=TOKEN)


def make(file: Path, sql: str, *tables: tuple[str, Sequence[Sequence[Any]]]) -> str:
    """Its digest."""
    base = sqlite3.connect(file)
    base.executescript(sql)
    for table, rows in tables:
        base.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    base.commit()
    base.close()
    return hashlib.sha256(file.read_bytes()).hexdigest()


BOT_DB = """
CREATE TABLE pending_messages (id INTEGER PRIMARY KEY, chat_id INT, text TEXT, status TEXT, attempts INT, created_at TEXT);
CREATE TABLE users (user_id INTEGER PRIMARY KEY, username TEXT, first_name TEXT, language TEXT, is_blocked INT, created_at INT);
CREATE TABLE bot_state (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY, chat_id INT, text TEXT);
"""
PENDING = [
    (1, 5, "one", "pending", 0, "2026-11-01 10:00:00"),
    (2, 5, "sent before", "sent", 1, "2026-11-01 10:00:00"),
    (3, 6, "other", "pending", 0, "2026-11-02 10:00:00"),
    (4, None, "to nobody", "pending", 0, None),
    (
        5,
        7,
        "x" * 5000,
        "pending",
        0,
        "2026-11-02 10:00:00",
    ),  # Telegram takes 4096: Peik refuses it, and its neighbours go on
    (6, 5, "two", "pending", 2, "2026-11-03 10:00:00"),
    (7, 5, "on its way", "sending", 1, "2026-11-03 10:00:00"),
    (8, 5, "parked", "parked", 0, "2026-11-03 10:00:00"),
]
USERS = [(5, "sara", "Sara", "fa", 0, 1700000000), (6, None, "Ali", "ru", 1, 1700000001)]


def make_bot_db(folder: Path, last_update_id: int = 727334708) -> str:
    state = [("last_update_id", str(last_update_id)), ("theme", "dark")]
    said = [(1, 5, "a log is no queue")]
    tables = (("pending_messages", PENDING), ("users", USERS), ("bot_state", state), ("messages", said))
    return make(folder / "bot.db", BOT_DB, *tables)


def texts(shell: Shell, chat: int) -> list[str]:
    """Of the letters to a chat, the oldest first."""
    found = shell.asked("letters", "--chat", str(chat))["letters"]
    return [letter["params"]["text"] for letter in reversed(found)]


def test_a_bots_file_is_looked_at_then_brought_and_the_second_time_nothing_is_new(shell: Shell) -> None:
    before = make_bot_db(shell.folder)
    plan = shell.asked("import", "bot.db", "--dry-run")
    assert [(one["table"], one["kind"], one["rows"], one["ready"]) for one in plan["tables"]] == [
        ("pending_messages", "letters", 8, 4),
        ("users", "people", 2, 2),
    ]
    assert plan["tables"][0]["left"] == {"sent": 1, "in doubt": 1, "unknown": 1}
    assert plan["tables"][0]["unknown_words"] == {"parked": 1}
    assert (plan["last_update_id"], plan["not_brought"]) == (727334708, [plan["not_brought"][0]])
    assert plan["not_brought"][0].startswith("messages: nothing that Peik knows")
    assert not (shell.folder / "peik.db").exists()
    asked = shell.peik("import", "bot.db")
    assert asked.code == 2
    assert "Say --yes" in asked.err
    assert "the first goes to 5: one" in asked.err

    done = shell.peik("import", "bot.db", "--yes", "--json")
    assert done.code == 1  # two rows stayed behind, and are told
    letters, users = done.document["tables"]
    assert (letters["brought"], letters["known"], letters["errors"]) == (3, 0, 2)
    assert [row.split(":")[0] for row in letters["error_rows"]] == [
        "pending_messages, row 4",
        "pending_messages, row 5",
    ]
    assert "4096" in letters["error_rows"][1]
    assert (users["brought"], users["known"], users["errors"]) == (2, 0, 0)

    again = shell.peik("import", "bot.db", "--yes", "--json").document["tables"]
    assert [(one["brought"], one["known"]) for one in again] == [(0, 3), (0, 2)]
    assert texts(shell, 5) == ["one", "two"]
    assert texts(shell, 6) == ["other"]
    assert shell.asked("stats")["waiting"] == 3
    assert hashlib.sha256((shell.folder / "bot.db").read_bytes()).hexdigest() == before
    assert sorted(path.name for path in shell.folder.iterdir()) == ["bot.db", "peik.db"]


def test_options_say_what_a_file_does_not(shell: Shell) -> None:
    mail = [("a", "5", "first", "parked", 1), ("b", "5", "second", "ready", 2), ("c", "6", "third", "gone", 3)]
    make(
        shell.folder / "old.db",
        "CREATE TABLE mail (no TEXT PRIMARY KEY, peer TEXT, words TEXT, stage TEXT, at INTEGER)",
        ("mail", mail),
    )
    nothing = shell.peik("import", "old.db", "--dry-run")
    assert nothing.code == 2
    assert "--table mail" in nothing.err
    roles = [part for role in ("chat=peer", "text=words", "status=stage", "id=no") for part in ("--map", role)]
    wanted = ("import", "old.db", "--table", "mail", *roles, "--pending", "parked", "--pending", "ready", "--yes")
    (done,) = shell.asked(*wanted)["tables"]
    assert (done["brought"], done["left"]) == (2, {"unknown": 1})
    assert texts(shell, 5) == ["first", "second"]
    # The key is made of name, table and the row's own id: so another name is another letter.
    assert shell.asked(*wanted)["tables"][0]["brought"] == 0
    assert shell.asked(*wanted, "--name", "elsewhere")["tables"][0]["brought"] == 2
    for wrong, words in (
        (("--table", "male"), "There are: mail"),
        (("--map", "colour=peer"), "no role of a column"),
        (("--only", "everything"), "is none of"),
        (("--table", "mail", "--map", "chat=nobody"), "has no column nobody"),
    ):
        ran = shell.peik("import", "old.db", "--yes", *wrong)
        assert ran.code == 2
        assert words in ran.err.replace("\n", " ").replace("│", " ")
    assert shell.peik("import", "absent.db").code == 2
    assert "`peik migrate`" in shell.peik("import", "peik.db").err


def test_csv_and_lines_of_json_are_sources_too(shell: Shell) -> None:
    (shell.folder / "outbox.csv").write_bytes(
        b'\xef\xbb\xbfid,chat_id,text\r\n1,5,"one, and\nmore"\r\n2,5,two\r\n3,5,\xff\r\n4,5,a,b,c\r\n'
    )
    (done,) = shell.peik("import", "outbox.csv", "--yes", "--json").document["tables"]
    assert (done["brought"], done["errors"]) == (2, 2)
    assert texts(shell, 5) == ["one, and\nmore", "two"]
    lines = [{"user_id": 8, "first_name": "Lola", "language_code": "uz"}, {"user_id": "me"}, ["no object"]]
    (shell.folder / "users.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (done,) = shell.peik("import", "users.jsonl", "--yes", "--json").document["tables"]
    assert (done["kind"], done["brought"], done["errors"]) == ("people", 1, 2)
    (shell.folder / "notes.pdf").write_bytes(b"%PDF")
    assert shell.peik("import", "notes.pdf").code == 2


def test_a_column_that_only_later_lines_have_is_not_missed(shell: Shell) -> None:
    """Else what was sent before is sent again."""
    lines = [{"chat_id": 5, "text": "waits"}] * 150 + [{"chat_id": 5, "text": "was sent", "sent_at": "2026-01-01"}] * 3
    (shell.folder / "queue.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (done,) = shell.asked("import", "queue.jsonl", "--dry-run")["tables"]
    assert (done["ready"], done["left"]) == (150, {"sent": 3})


def test_rows_of_one_job_are_all_brought_and_those_of_one_id_are_one(shell: Shell) -> None:
    (shell.folder / "outbox.csv").write_text("job_id,chat_id,text\n7,5,one\n7,5,two\n7,5,one\n", encoding="utf-8")
    (done,) = shell.asked("import", "outbox.csv", "--yes")["tables"]
    assert (done["brought"], done["known"], done["errors"]) == (3, 0, 0)
    assert texts(shell, 5) == ["one", "two", "one"]
    (shell.folder / "queue.csv").write_text("id,chat_id,text\n7,6,one\n8,6,two\n7,6,one\n", encoding="utf-8")
    (done,) = shell.asked("import", "queue.csv", "--yes")["tables"]
    assert (done["brought"], done["known"], done["errors"]) == (2, 1, 0)
    assert texts(shell, 6) == ["one", "two"]


def test_only_what_is_asked_for_and_not_too_old(shell: Shell) -> None:
    make_bot_db(shell.folder)
    done = shell.asked("import", "bot.db", "--only", "people", "--yes")
    assert ([one["table"] for one in done["tables"]], done["last_update_id"]) == (["users"], None)
    done = shell.peik(
        "import", "bot.db", "--only", "letters", "--since", "2026-11-03T00:00:00Z", "--yes", "--json"
    ).document
    assert (done["tables"][0]["brought"], done["tables"][0]["left"]["old"]) == (1, 4)
    assert texts(shell, 5) == ["two"]


def test_a_table_without_numbers_of_its_own_is_read_in_the_order_of_its_key(shell: Shell) -> None:
    sql = "CREATE TABLE outbox (id TEXT PRIMARY KEY, chat_id INT, text TEXT, rowid TEXT) WITHOUT ROWID"
    make(shell.folder / "odd.db", sql, ("outbox", [("b", 5, "two", ""), ("a", 5, "one", "")]))
    assert shell.asked("import", "odd.db", "--yes")["tables"][0]["brought"] == 2
    assert texts(shell, 5) == ["one", "two"]


def test_a_file_in_wal_mode_gets_no_files_beside_it_and_one_in_use_is_read_all_the_same(shell: Shell) -> None:
    base = sqlite3.connect(shell.folder / "bot.db")
    base.executescript(
        "PRAGMA journal_mode = WAL; CREATE TABLE outbox (id INTEGER PRIMARY KEY, chat_id INT, text TEXT)"
    )
    base.execute("INSERT INTO outbox VALUES (1, 5, 'one')")
    base.commit()
    assert shell.asked("import", "bot.db", "--dry-run")["tables"][0]["ready"] == 1  # what is in the log counts
    base.close()
    assert shell.asked("import", "bot.db", "--dry-run")["tables"][0]["ready"] == 1
    assert [path.name for path in shell.folder.iterdir()] == ["bot.db"]


def test_of_several_bots_the_one_that_is_meant_has_its_own_place(shell: Shell) -> None:
    sql = "CREATE TABLE bot_state (bot_id TEXT, last_update_id INT)"
    make(shell.folder / "bots.db", sql, ("bot_state", [("5", 1000), (BOT, 105), ("6", 7)]))
    assert shell.asked("import", "bots.db", "--dry-run")["last_update_id"] == 105  # of the token in the settings
    assert shell.asked("import", "bots.db", "--dry-run", "--bot", "6")["last_update_id"] == 7
    nobody = Shell(shell.folder).peik("import", "bots.db", "--dry-run")
    assert nobody.code == 2
    assert "--bot, or --last-update" in nobody.err
    (shell.folder / "broken.db").write_bytes(b"SQLite format 3\x00" + b"x" * 4000)
    broken = shell.peik("import", "broken.db", "--yes")
    assert broken.code == 5
    assert "cannot be read" in broken.err


def test_the_tokens_of_telegram_settings_become_bots_and_are_shown_to_nobody(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    sql = "CREATE TABLE telegram_settings (setting_key TEXT PRIMARY KEY, bot_token TEXT)"
    rows = [("default", "7000001:AAsecret-one"), ("backup", "7000002:AAsecret-two"), ("same", "7000001:AAsecret-one")]
    make(tmp_path / "app.db", sql, ("telegram_settings", [*rows, ("none", "not a token")]))
    looked = shell.peik("import", "app.db", "--dry-run")
    assert "Tokens of bots: 7000001, 7000002. Peik would seal them" in looked.out
    assert "telegram_settings, row 4: what stands there is no bot token." in looked.out
    brought = shell.peik("import", "app.db", "--yes")
    assert brought.code == 0, brought
    assert "Added: bot 7000001." in brought.err
    again = shell.peik("import", "app.db", "--yes", "--json")
    assert again.document["bots"] == ["7000001", "7000002"]
    assert again.document["notes"] == []
    assert [one["bot_id"] for one in shell.peik("bots", "list", "--json").document["bots"]] == ["7000001", "7000002"]
    everything = looked.out + brought.out + brought.err + again.out
    assert "AAsecret" not in everything
    assert "not a token" not in everything


def test_a_running_peik_takes_it_and_goes_on_behind_the_last_update(shell: Shell) -> None:
    with telegram(shell) as sim:
        sim.post("bots", token=TOKEN, username="old_bot")
        for words in ("handled", "handled too", "new"):
            sim.post("write", bot=int(BOT), user=9, text=words)
        last = [one["update_id"] for one in updates(f"{sim.url}/bot{TOKEN}/getUpdates")][1]
        make_bot_db(shell.folder, last)
        # Peik was not there yet: the offset and the people go into its store.
        said = shell.peik("import", "bot.db", "--only", "people", "--only", "offset", "--yes", PEIK_API_ROOT=sim.url)
        assert f"goes on behind update {last}" in said.err
        with served(shell, sim.url) as url:
            running = Shell(shell.folder, PEIK_URL=url)
            sent = running.peik("import", "bot.db", "--yes", "--json").document
            assert [one["brought"] for one in sent["tables"]] == [3, 0]
            assert running.asked("send", "5", "after them", "--wait", "200s")["state"] == "completed"
            assert [one["text"] for one in sim.sent_to(5)] == ["one", "two", "after them"]
            came = updates(f"{url}/bot{TOKEN}/getUpdates?timeout=50")
            assert [one["message"]["text"] for one in came] == ["new"]
            # From here on Peik has a place of its own, and keeps it.
            late = running.asked("import", "bot.db", "--only", "offset", "--last-update", str(last + 7), "--yes")
            assert "goes on from its own place" in late["notes"][0]
            contact = running.asked("import", "bot.db", "--only", "people", "--yes")["tables"][0]
            assert contact["known"] == 2


def updates(url: str) -> list[Any]:
    import urllib.request

    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return list(json.load(answer)["result"])
