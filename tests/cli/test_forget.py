"""`peik forget` on the store itself, with no Peik running."""

from pathlib import Path

from tests.cli.shell import BOT, TOKEN, Shell

PERSON = "912345678"
TEXT = "saffron-and-rosewater"


def test_a_person_is_forgotten_and_backups_are_named(tmp_path: Path) -> None:
    log = tmp_path / "peik.log"
    shell = Shell(tmp_path, PEIK_LOG_FILE=str(log))
    shell.peik("bots", "add", "-", stdin=TOKEN + "\n")
    shell.peik("send", PERSON, TEXT)
    shell.peik("send", "5", "somebody else's")
    log.write_text(f'{{"event":"-> sent","chat":{PERSON}}}\n', encoding="utf-8")
    made = shell.asked("backup", "create")["path"]
    looked = shell.asked("forget", "--user", PERSON, "--dry-run")
    assert (looked["state"], looked["count"]) == ("dry_run", 2)
    assert TEXT.encode() in (tmp_path / "peik.db").read_bytes() + _log(tmp_path)
    assert shell.peik("forget", "--user", PERSON, stdin="n\n").code != 0
    done = shell.asked("forget", "--user", PERSON, "--yes")
    assert (done["state"], done["count"], done["notes"]) == ("done", 2, [])
    assert [one["path"] for one in done["backups"]] == [made]
    assert TEXT.encode() not in (tmp_path / "peik.db").read_bytes() + _log(tmp_path)
    assert [one["chat_id"] for one in shell.asked("letters")["letters"]] == ["5"]
    assert log.read_text(encoding="utf-8") == '{"event":"-> sent","chat":0}\n'
    shown = shell.peik("forget", "--user", PERSON, "--bot", BOT, "--yes")
    assert "It is done." in shown.out
    assert shell.peik("forget", "--yes").code == 2


def _log(folder: Path) -> bytes:
    wal = folder / "peik.db-wal"
    return wal.read_bytes() if wal.exists() else b""
