"""`peik alerts`, as a user types it: what goes on, what was told, and a test of every way."""

import http.server
import json
import threading
from pathlib import Path

from tests.cli.shell import TOKEN, Shell, served, telegram


class _Pager(http.server.BaseHTTPRequestHandler):
    taken: list[str] = []  # noqa: RUF012  of the one server of this test

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["message"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


def test_alerts_are_listed_and_tested(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    ran = shell.peik("alerts", "--json", "--store", "sqlite:///peik.db")
    assert ran.problem["code"] == "no_store"
    assert shell.peik("bots", "add", "-", stdin=TOKEN + "\n").code == 0
    assert shell.peik("alerts", "--json").problem["code"] == "not_running"
    pager = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pager)
    thread = threading.Thread(target=pager.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    limits = {"PEIK_ALERT_DISK": "0%", "PEIK_ALERT_MEMORY": "100%"}
    urls = f"json://127.0.0.1:{pager.server_port}/x"
    try:
        with telegram(shell) as sim:
            with served(shell, sim.url, **limits) as url:
                asks = Shell(shell.folder, PEIK_URL=url)
                ran = asks.peik("alerts", "test")
                assert (ran.code, "There is nobody to tell" in ran.out) == (1, True)
                assert "Nothing is wrong." in asks.peik("alerts").out
            with served(shell, sim.url, PEIK_ADMIN_CHATS="40100106", PEIK_ALERT_URLS=urls, **limits) as url:
                asks = Shell(shell.folder, PEIK_URL=url)
                ways = asks.asked("alerts", "test")["ways"]
                assert [(one["way"], one["is_done"]) for one in ways] == [("chat 40100106", True), ("json://…", True)]
                assert asks.asked("alerts", "list") == {"ongoing": [], "last": []}
    finally:
        pager.shutdown()
        thread.join()
        pager.server_close()
    assert _Pager.taken == ["Peik: this is a test. Whoever reads it would hear of alerts."]
    ran = shell.peik("serve", PEIK_PORT="0", PEIK_ALERT_URLS="nonsense://secret")
    assert ran.code != 0
    assert "PEIK_ALERT_URLS: address 1 is none that Apprise knows" in ran.err
    assert "secret" not in ran.err
