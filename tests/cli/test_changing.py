"""Letters that wait are changed and taken back by command, and what dead ones died of is shown."""

from pathlib import Path

from tests.cli.shell import TOKEN, Shell


def test_letters_are_changed_and_taken_back_on_the_store_itself(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.peik("bots", "add", "-", stdin=TOKEN + "\n")
    for chat in ("5", "5", "6"):
        shell.asked("send", chat, "hello")
    changed = shell.asked("change", "1", "--priority", "2", "--send-at", "2099-01-01T00:00:00Z")
    assert (changed["priority"], changed["state"]) == (2, "delayed")
    assert shell.asked("change", "1", "--send-at", "now")["state"] == "waiting"
    assert shell.peik("change", "1").code != 0
    assert shell.peik("cancel").code == 2
    assert shell.peik("cancel", "1", "--chat", "5").code == 2
    assert shell.asked("cancel", "--chat", "5", "--yes") == {"cancelled": 2}
    assert shell.peik("cancel", "--chat", "5").out == "There are no such letters to take back.\n"
    assert shell.asked("cancel", "3")["state"] == "cancelled"
    assert shell.asked("dead", "causes") == {"causes": []}
    assert shell.peik("dead", "causes").out == "There are no dead letters.\n"
