"""Alerts by Apprise, for real: its library, a thread, and a server of this machine that takes them."""

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from peik.alerts.matters import MatterKind
from peik.alerts.service import AlertService
from peik.alerts.ways import HANGING_MAX, AlertText, AppriseWay, ways_of
from peik.clock import SystemClock
from peik.core.events import BotPaused
from peik.errors import StartError
from tests import wanting

# Apprise's plugins load what Python will not have any more; that is theirs to mend.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
wanting.imported("apprise", "pip install 'peik[alerts]'")
SAID = AlertText(key="k", kind=MatterKind.BEGAN, text="the disk is full")


class Pager:
    """Takes what is posted; or, so many times, does not."""

    def __init__(self) -> None:
        self.taken: list[dict[str, str]] = []
        self.failures = 0
        self.came = threading.Event()
        pager = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                is_failing, pager.failures = pager.failures > 0, pager.failures - 1
                if not is_failing:
                    pager.taken.append(body)
                    pager.came.set()
                self.send_response(500 if is_failing else 200)
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self.server.server_port}/pager"


@pytest.fixture
def pager() -> Iterator[Pager]:
    made = Pager()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_an_alert_reaches_the_pager(pager: Pager) -> None:
    async def nobody(chat: str, text: str, key: str) -> None:
        raise AssertionError("there is no chat")

    async def story() -> None:
        alerts = AlertService(chats=(), clock=SystemClock(), send=nobody, more_ways=ways_of([pager.url]))
        running = asyncio.create_task(alerts.run())
        alerts([BotPaused(bot_id=5, reason="Unauthorized")])
        await asyncio.to_thread(pager.came.wait, 60)
        (line,) = await alerts.test()
        assert (line.way, line.is_done, line.why) == ("json://…", True, None)
        running.cancel()

    asyncio.run(story())
    first, second = pager.taken
    assert first["message"].startswith("Peik: bot 5 is paused")
    assert (first["title"], first["type"], second["type"]) == ("Peik", "failure", "info")


def test_what_is_not_taken_is_tried_again_with_what_has_come_since(pager: Pager) -> None:
    async def story() -> None:
        (way,) = ways_of([pager.url])
        assert isinstance(way, AppriseWay)
        patient = AppriseWay(way.name, way._notify, waits_s=(0.0, 0.0, 0.0))
        pager.failures = 2
        assert await patient.tell([SAID, AlertText(key="l", kind=MatterKind.OVER, text="there is room")]) == 2
        pager.failures = 3
        assert await patient.tell([SAID]) == 1  # given up
        pager.failures = 1
        assert await patient.test("hello", "t") == "It was not taken there."

    asyncio.run(story())
    (taken,) = pager.taken
    assert (taken["title"], taken["message"]) == ("Peik: 2 alerts", "the disk is full\n\nthere is room")


def test_a_call_that_hangs_or_breaks_holds_up_nobody() -> None:
    go_on = threading.Event()

    def hangs(title: str, body: str, kind: MatterKind) -> bool:
        go_on.wait(60)
        return True

    def breaks(title: str, body: str, kind: MatterKind) -> bool:
        raise ValueError("a secret is in here")

    async def story() -> None:
        way = AppriseWay("pager", hangs, call_s=0.01)
        for _ in range(HANGING_MAX):
            assert "did not answer" in (await way.test("x", "k") or "")
        assert await way.test("x", "k") == "The calls before did not come back."
        go_on.set()
        while way._hanging:  # noqa: ASYNC110  there is nobody to ask
            await asyncio.sleep(0.01)
        assert await AppriseWay("pager", breaks).test("x", "k") == "ValueError"

    asyncio.run(story())


def test_an_address_that_is_none_is_told_of_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StartError, match="address 2 is none that Apprise knows") as error:
        ways_of(["json://127.0.0.1/x", "nonsense://secret-token"])
    assert "secret-token" not in str(error.value)
    assert "secret-token" not in caplog.text
    assert ways_of([]) == []
