"""In the copy: the new event has a line of the log, and the rule a row of the reference. `test_toys.py` raises it."""

from pathlib import Path

import structlog

from peik.core.events import ToyBroke
from peik.monitoring.log import EventLog

ROOT = Path(__file__).parents[3]


def test_it_is_logged_and_documented() -> None:
    with structlog.testing.capture_logs() as lines:
        EventLog(level="info", log=structlog.get_logger("toys"))([ToyBroke(left=2)])
    assert [(line["event"], line["left"]) for line in lines] == [("! toy broke", 2)]
    assert "toy-broken" in (ROOT / "docs/reference/alerts.md").read_text(encoding="utf-8")
