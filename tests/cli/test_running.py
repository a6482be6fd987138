"""The commands against a running Peik and a simulated Telegram, as a user types them."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.cli.shell import BOT, CTRL_C, ESCAPE, TOKEN, Shell, Telegram, served, telegram

Place = tuple[Shell, Telegram]

INTERRUPTED = Path(__file__).with_name("interrupted.py")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One server for this file: every story has chats of its own. The key is found beside the database."""
    folder = tmp_path_factory.mktemp("running")
    with telegram(Shell(folder)) as sim, served(Shell(folder), sim.url, BOT_TOKEN=TOKEN) as url:
        sim.post("bots", token=TOKEN)
        yield Shell(folder, PEIK_URL=url), sim


def test_a_letter_from_send_to_its_history(place: Place) -> None:
    shell, sim = place
    ran = shell.peik("send", "4105", "hello [bold]there[/bold]", "--wait", "200s")
    assert ran.code == 0
    match = re.fullmatch(r"Letter (\d+) is delivered as message \d+\.\n", ran.out)
    assert match, ran
    assert [one["text"] for one in sim.sent_to(4105)] == ["hello [bold]there[/bold]"]
    page = shell.peik("status", match[1]).out
    assert re.search(r"^state +completed$", page, re.MULTILINE)
    assert re.search(r"^says +hello \[bold\]there\[/bold\]$", page, re.MULTILINE)
    assert re.search(r"^20\d\d-\d\d-\d\d [\d:]+ \(.*\) +delivered$", page, re.MULTILINE)
    (listed,) = shell.asked("letters", "--chat", "4105", "--since", "1h")["letters"]
    assert (listed["id"], listed["state"]) == (match[1], "completed")


def test_what_is_sent_is_what_was_asked_for(place: Place) -> None:
    shell, sim = place
    picture = shell.folder / "گربه.jpg"
    picture.write_bytes(b"not really a picture" * 10_000)
    letter = shell.asked("send", "-10017", "a cat", "--file", f"photo={picture}", "--wait", "200s")
    assert (letter["method"], letter["chat_id"], letter["state"]) == ("sendPhoto", "-10017", "completed")
    (delivery,) = sim.sent_to(-10017)
    assert delivery["method"] == "sendPhoto"
    options = ("--method", "sendLocation", "--param", "latitude=35.7", "--params", '{"longitude": 51.4}')
    letter = shell.asked("send", "6", *options, "--priority", "-1", "--wait", "200s")
    assert letter["params"] == {"chat_id": 6, "latitude": "35.7", "longitude": 51.4}
    assert (letter["priority"], letter["state"]) == (-1, "completed")
    terms = ("--idempotency-key", "once", "--send-at", "10m", "--expires-at", "1h", "--on-uncertain", "hold")
    first = shell.asked("send", "6", "-", *terms, stdin="from a pipe\n")
    assert first["state"] == "delayed"
    held = shell.asked("status", first["id"])
    assert (held["params"]["text"], held["on_uncertain"]) == ("from a pipe\n", "hold")
    assert "scheduled" in held["why"]
    assert shell.peik("send", "6", "something else", *terms).code == 4  # the same key for another letter
    assert shell.peik("cancel", first["id"]).out == f"Letter {first['id']} is cancelled.\n"
    assert shell.peik("cancel", first["id"], "--json").problem["code"] == "already_ended"


def test_dead_letters_are_listed_sent_again_and_cleared(place: Place) -> None:
    shell, sim = place
    sim.post("block", bot=int(BOT), user=77)
    ran = shell.peik("send", "77", "are you there?", "--wait", "200s")
    assert ran.code == 6
    assert "is failed: Forbidden: bot was blocked by the user" in ran.out
    listed = shell.peik("dead", "list", "--chat", "77").out
    assert re.search(r"are you there\? +Forbidden: bot was blocked by the user$", listed, re.MULTILINE)
    asked = shell.peik("dead", "retry", "--chat", "77")  # nobody is there to be asked
    assert asked.code == 2
    assert "Send 1 dead letter again? Say --yes" in asked.err
    sim.post("unblock", bot=int(BOT), user=77)
    assert shell.peik("chats", "open", "77").code == 0
    assert shell.asked("dead", "retry", "--chat", "77", "--error", "blocked", "--yes") == {"retried": 1}
    sim.post("block", bot=int(BOT), user=78)
    letter = shell.peik("send", "78", "and you?", "--wait", "200s", "--json")
    assert (letter.code, letter.document["state"]) == (6, "failed")
    number = letter.document["id"]
    assert "blocked by the user" in shell.peik("dead", "show", number).out
    assert shell.asked("dead", "retry", number)["id"] == number
    assert shell.peik("dead", "retry", number, "--all").code == 2


def test_somebody_decides_about_an_uncertain_letter(place: Place) -> None:
    shell, sim = place
    sim.post("faults", kind="lose_after", chat=15, count=2)
    ids = []
    for _ in range(2):
        ran = shell.peik("send", "15", "pay once", "--on-uncertain", "hold", "--wait", "200s", "--json")
        assert (ran.code, ran.document["failed_reason"]) == (6, "uncertain")
        ids.append(ran.document["id"])
    assert shell.peik("resolve", ids[0]).code == 2
    assert shell.asked("resolve", ids[0], "--arrived")["state"] == "completed"
    assert shell.asked("resolve", ids[1], "--not-arrived")["state"] in ("waiting", "active", "completed")
    assert shell.peik("resolve", ids[0], "--arrived").code == 4


def test_a_chat_that_is_held_keeps_its_letters(place: Place) -> None:
    shell, _ = place
    assert shell.peik("chats", "hold", "-10018", "--for", "1h").code == 0
    ran = shell.peik("send", "-10018", "later", "--wait", "100ms")
    assert ran.code == 7
    assert re.match(r"Letter \d+ is still waiting\. .*60 min are left\.", ran.out)
    (lane,) = shell.asked("lanes", "--chat", "-10018")["lanes"]
    assert (lane["chat_id"], lane["waiting"]) == ("-10018", 1)
    assert re.search(r"^-10018 +1 +\d+ +.*60 min are left\.$", shell.peik("lanes").out, re.MULTILINE)
    assert "held, goes on in 60 min" in shell.peik("chats", "list").out
    assert shell.peik("chats", "open", "-10018").out == "Letters go to -10018 again.\n"


def test_bots_are_added_changed_and_removed_and_their_tokens_never_shown(place: Place) -> None:
    shell, _ = place
    ran = shell.peik("bots", "add", "7000002:AAsecond")
    assert ran.code == 2
    assert "AAsecond" not in ran.out + ran.err
    assert "@BotFather" in ran.err
    assert shell.peik("bots", "add", "-", stdin="7000002:AAsecond\n").out == "Bot 7000002 is served.\n"
    ran = shell.peik("send", "5", "whose?", "--json")
    assert (ran.code, ran.problem["code"]) == (2, "which_bot")
    assert "--bot ID. `peik bots list`" in ran.problem["detail"]
    assert "--bot ID. `peik bots list`" in shell.peik("lanes").err
    assert shell.asked("bots", "pause", "7000002")["paused"]
    assert re.search(r"^7000002 .* paused by hand$", shell.peik("bots", "list").out, re.MULTILINE)
    assert shell.asked("bots", "resume", "7000002")["paused"] is None
    assert shell.peik("bots", "inbound", "7000002", "polling").out == "Updates of bot 7000002: polling.\n"
    assert shell.asked("bots", "inbound", "7000002", "off")["inbound"] == "off"
    assert shell.peik("bots", "inbound", "7000002", "both", "--json").problem["code"] == "bad_inbound"
    (shell.folder / "token").write_text("7000002:AAthird\n", encoding="utf-8")
    assert shell.peik("bots", "token", "7000002", "--token-file", "token").code == 0
    shell.peik("bots", "limits", "7000002", "--group-per-min", "10")
    limits = shell.asked("bots", "limits", "7000002", "--bulk-per-s", "5")["limits"]
    assert (limits["group_per_min"], limits["bulk_per_s"]) == (10, 5)  # what was set before stays
    assert shell.peik("bots", "limits", "7000002", "--bulk-per-s", "0", "--json").problem["code"] == "bad_limits"
    assert shell.peik("bots", "remove", "7000002").code == 2  # nobody is there to be asked
    assert shell.asked("bots", "remove", "7000002", "--yes") == {"bot_id": "7000002", "removed": True}


def test_a_key_reaches_as_far_as_it_was_made_for(place: Place) -> None:
    shell, _ = place
    made = shell.asked("keys", "create", "reporting", "--scope", "read", "--expires", "30d")
    ran = shell.peik("stats", "--json", PEIK_KEY=made["key"])
    assert ran.code == 0
    assert shell.peik("send", "5", "no", PEIK_KEY=made["key"]).code == 4
    assert re.search(rf"^ *{made['id']} +reporting +read +all ", shell.peik("keys", "list").out, re.MULTILINE)
    assert shell.peik("keys", "remove", made["id"], "--yes").code == 0
    (shell.folder / "old.key").write_text(made["key"], encoding="utf-8")
    ran = shell.peik("stats", "--key-file", "old.key")
    assert ran.code == 4
    assert "--key-file" in ran.err


def test_a_route_that_is_dead_is_down_and_not_open(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.peik("bots", "add", "-", stdin=TOKEN)
    shell.asked("send", "5", "waits")
    with served(shell, "http://127.0.0.1:1") as url:
        shell.environment["PEIK_URL"] = url
        while (route := shell.asked("routes")["routes"][0])["state"] != "open":
            pass  # until it has been tried
        assert route["why"]
        assert re.search(r"direct +down +", shell.peik("routes", COLUMNS="200").out)


def test_routes_and_stats(place: Place) -> None:
    shell, _ = place
    (route,) = shell.asked("routes")["routes"]
    assert (route["name"], route["in_use"]) == ("direct", True)
    assert re.search(r"^→ +direct +up +", shell.peik("routes").out, re.MULTILINE)
    counted = shell.asked("stats")
    assert counted["bots"][BOT]["completed"] == counted["completed"]
    header, _, row, *_ = shell.peik("stats").out.splitlines()
    assert header.split() == ["bot", "waiting", "delayed", "active", "completed", "failed", "cancelled"]
    assert row.split()[0] == BOT


def test_problems_have_their_exit_codes(place: Place) -> None:
    shell, _ = place
    ran = shell.peik("status", "999999", "--json")
    assert (ran.code, ran.out, ran.problem["status"], ran.problem["code"]) == (3, "", 404, "unknown_letter")
    place = shell.environment["PEIK_URL"]
    assert shell.peik("status", "999999").err == f"peik: There is no letter 999999 here (any more). (asked: {place})\n"
    assert shell.peik("status", "999999", "--json").problem["asked"] == place
    ran = shell.peik("stats", "--url", "http://127.0.0.1:1", "--json")
    assert (ran.code, ran.problem["code"]) == (5, "unreachable")
    ran = shell.peik("letters", "--stat", "failed", "--json")
    assert (ran.code, ran.problem["code"]) == (2, "wrong_usage")
    assert "--state" in ran.problem["detail"]
    assert shell.peik("send", "5", "x", "--send-at", "noon").code == 2
    assert shell.peik("send", "5", "\udcff").code == 2
    assert shell.peik("send", "5", "--file", "photo=missing.jpg").code == 2
    assert shell.peik("stats", "--watch", "--json").code == 2


# ---- in a terminal ----

# A colour, a change of direction, a new line and our own markup.
HOSTILE = "سلام \x1b[31mقرمز\x1b[0m \u202eوارونه، این یک پیام بلند است\nخط دوم با [bold]نشان[/bold]"  # noqa: RUF001


def test_words_of_strangers_stay_in_their_cell(place: Place) -> None:
    shell, sim = place
    sim.post("block", bot=int(BOT), user=79)
    assert shell.peik("send", "79", HOSTILE, "--wait", "200s").code == 6
    code, shown = shell.in_terminal("dead", "list", "--chat", "79", columns=90)
    assert code == 0
    assert "\x1b[31m" not in shown
    lines = [ESCAPE.sub("", line).rstrip("\r") for line in shown.splitlines()]
    head, rule, row = lines[:3]
    assert {cell_len(line) for line in (head, rule)} == {90}
    assert all(cell_len(line) <= 90 for line in lines)
    assert not any(unicodedata.category(letter) == "Cc" for letter in row)
    # The foreign words begin an isolate, which ends before the next cell: and that stands under its heading.
    before, isolate, foreign = row.partition("\u2068")
    assert isolate
    assert cell_len(before) == cell_len(head[: head.index("says")])
    assert foreign.index("\u2069") < foreign.index("Forbidden")
    assert cell_len(row[: row.index("Forbidden")]) == cell_len(head[: head.index("reason")])


def test_a_dangerous_command_asks_and_takes_no_for_an_answer(place: Place) -> None:
    shell, sim = place
    sim.post("block", bot=int(BOT), user=80)
    assert shell.peik("send", "80", "x", "--wait", "200s").code == 6
    question = "Clear 1 dead letter away for good? [y/N]:"
    code, shown = shell.in_terminal("dead", "clear", "--chat", "80", when=question, then=b"n\n")
    assert (code, "Nothing was changed." in shown) == (1, True)
    code, shown = shell.in_terminal("dead", "clear", "--chat", "80", when=question, then=b"y\n")
    assert (code, "1 dead letter cleared away." in shown) == (0, True)
    assert shell.peik("dead", "list", "--chat", "80").out == "There are no dead letters.\n"


def test_a_token_is_asked_for_and_not_echoed(place: Place) -> None:
    shell, _ = place
    # The space is written once the terminal has stopped to echo; what is typed before that is thrown away.
    code, shown = shell.in_terminal("bots", "add", when="Token of the bot: ", then=TOKEN.encode() + b"\n")
    assert code == 0
    assert f"Bot {BOT} is served." in shown
    assert "AAtest" not in shown


def test_watching_and_waiting_end_with_ctrl_c(place: Place) -> None:
    shell, _ = place
    code, shown = shell.in_terminal("stats", "--watch", when="completed", then=CTRL_C)
    assert code == 130
    assert "Traceback" not in shown
    words = "waiting for Telegram's answer"
    code, shown = shell.in_terminal("send", "5", "x", "--send-at", "1h", "--wait", "1h", when=words, then=CTRL_C)
    assert code == 130
    assert "Traceback" not in shown


def test_watching_ends_with_ctrl_c_whatever_line_it_is_at(place: Place) -> None:
    shell, _ = place
    code, shown = shell.in_terminal("1", "30", "stats", "--watch", program=(str(INTERRUPTED),))
    assert code == 0
    assert shown.splitlines()[-1] == "codes {130: 30} hang at []", shown[-2000:]


def test_the_file_can_be_used_beside_its_owner(place: Place) -> None:
    shell, sim = place
    letter = shell.asked("send", "16", "by the back door", "--store", "sqlite:///peik.db", "--wait", "200s")
    assert letter["state"] == "completed"
    assert [one["text"] for one in sim.sent_to(16)] == ["by the back door"]
    ran = shell.peik("chats", "hold", "16", "--for", "1h", "--store", "sqlite:///peik.db")
    assert ran.code == 4
    assert "--url" in ran.err
