"""What the demo is made in: its bots, its clock, and the house while it is furnished. `furnishing.py` builds the whole."""

from pathlib import Path
from typing import Any

import aiohttp

from peik.app.dashboard import Dashboard
from peik.app.runtime import Runtime
from peik.clock import SystemClock
from peik.testing import SimServer
from peik.testing.accounts import Accounts
from tests.dashboard.visiting import KEY

SHOP, NEWS, ALERTS = 7000001, 7000002, 7000003
BOTS = {SHOP: "shop_bot", NEWS: "news_bot", ALERTS: "alerts_bot"}
HOUR_MS = 3_600_000


class Shifted(SystemClock):
    """A wall clock that is behind, so that a day can have passed; it only ever goes on."""

    behind_ms = 20 * HOUR_MS

    def wall_ms(self) -> int:
        return super().wall_ms() - self.behind_ms

    def set_ago(self, hours: float) -> None:
        self.behind_ms = min(self.behind_ms, round(hours * HOUR_MS))


class Demo:
    """The house while it is furnished, and the addresses of some of its things."""

    def __init__(self, folder: Path, runtime: Runtime, sim: SimServer, accounts: Accounts, clock: Shifted) -> None:
        self.folder = folder
        self.runtime = runtime
        self.sim = sim
        self.accounts = accounts
        self.clock = clock
        self.url = ""
        self.pages: dict[str, str] = {}  # name of a page of one thing -> its path
        self.dashboard: Dashboard

    async def rest(self, verb: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.request(verb, self.url + path, json=body) as response,
        ):
            answer = await response.json(content_type=None)
            assert response.status < 300, (verb, path, answer)
            return answer
