"""`/metrics` and `/v1/overview` over a real server: they say what is so, to those who may know it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as families
from starlette.applications import Starlette

from peik.app.rest import OPERATIONS
from peik.app.runtime import Runtime
from peik.core import events
from peik.errors import Problem
from peik.monitoring.api import OverviewApi
from peik.monitoring.metrics import METRICS, MetricKind, MetricsApi
from peik.web import responses
from peik.web.access import Access
from peik.web.routes import routes_of
from tests.monitoring.seeing import seen
from tests.web.accounts import KEY, House, _served, house, until

CHAT = 987654321
TOKEN = "7000001:AAtest"


class Watched:
    """A Peik that is watched: its metrics behind a key, and the same open, on a socket of their own."""

    def __init__(self, house: House, url: str, open_url: str) -> None:
        self.house = house
        self.runtime = house.runtime
        self.url = url
        self.open_url = open_url

    async def get(self, path: str, *, key: str | None = KEY, url: str = "", **headers: str) -> tuple[int, str, str]:
        given = headers | self.house.headers(key)
        async with self.house.http.get(f"{url or self.url}{path}", headers=given) as response:
            return response.status, await response.text(), response.headers["content-type"]

    async def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        status, text, _ = await self.get("/metrics")
        assert status == 200
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families(text)
            for sample in family.samples
        }

    async def value(self, name: str, **labels: str) -> float | None:
        return (await self.samples()).get((name, tuple(sorted(labels.items()))))

    async def until(self, name: str, value: float, **labels: str) -> None:
        """Until a metric is so. What is counted is there at once, what the store tells within a second or so."""

        async def look() -> bool:
            return await self.value(name, **labels) == value

        await until(look)


def _app(runtime: Runtime, *, is_open: bool) -> Starlette:
    figures, overview, _ = seen(runtime)
    access = Access(KEY, find=runtime.keyring.find, wall_ms=runtime.clock.wall_ms)
    metrics = MetricsApi(overview, figures, is_open=is_open, store="sqlite", temp_bytes=lambda: 12345)
    app = Starlette()
    app.add_exception_handler(Problem, responses.on_problem)
    for verb, path, endpoint, operation_id, _ in (
        *routes_of(metrics, access),
        *routes_of(OverviewApi(overview, figures.breakdown), access),
    ):
        assert operation_id in OPERATIONS
        app.add_route(path, endpoint, methods=[verb])
    return app


def watch(folder: Path, story: Callable[[Watched], Coroutine[Any, Any, None]], **settings: str) -> None:
    @asynccontextmanager
    async def watched() -> AsyncIterator[Watched]:
        async with (
            house(folder, has_accounts=False, **settings) as built,
            _served(_app(built.runtime, is_open=False)) as url,
            _served(_app(built.runtime, is_open=True)) as open_url,
        ):
            yield Watched(built, url, open_url)

    async def main() -> None:
        async with watched() as one:
            await story(one)

    asyncio.run(main())


def test_every_metric_of_the_table_can_be_parsed_and_nothing_else_is_there(tmp_path: Path) -> None:
    async def story(peik: Watched) -> None:
        status, text, media_type = await peik.get("/metrics")
        assert status == 200
        assert media_type.startswith("text/plain")
        found = {family.name: family for family in families(text)}
        own = {metric.name: metric for metric in METRICS}
        assert {name for name in found if not name.startswith("process_")} == set(own)
        for name, metric in own.items():
            assert found[name].type == str(metric.kind)
            assert found[name].documentation == metric.help.replace("\n", " ")
            labels = {label for sample in found[name].samples for label in sample.labels} - {"le"}
            assert labels <= set(metric.labels)
        assert "process_resident_memory_bytes" in found

    watch(tmp_path, story)


def test_openmetrics_is_spoken_to_who_asks_for_it(tmp_path: Path) -> None:
    async def story(peik: Watched) -> None:
        status, text, media_type = await peik.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert status == 200
        assert media_type.startswith("application/openmetrics-text")
        assert "peik_build" in {family.name.removesuffix("_info") for family in open_families(text)}

    watch(tmp_path, story)


def test_they_need_a_key_that_may_read_everything(tmp_path: Path) -> None:
    async def story(peik: Watched) -> None:
        made = await peik.house.post("/v1/keys", {"name": "prometheus", "scopes": ["read"]})
        await peik.house.post("/v1/bots", {"token": TOKEN})
        narrow = await peik.house.post("/v1/keys", {"name": "one", "scopes": ["read"], "bot_ids": ["7000001"]})
        assert (await peik.get("/metrics", key=made["key"]))[0] == 200
        assert (await peik.get("/metrics", key=None))[0] == 401
        assert (await peik.get("/metrics", key=narrow["key"]))[0] == 403
        status, text, _ = await peik.get("/v1/overview", key=narrow["key"])
        assert status == 200
        assert [bot["bot_id"] for bot in json.loads(text)["bots"]] == ["7000001"]
        assert (await peik.get("/v1/overview", key=None))[0] == 401

    watch(tmp_path, story)


def test_open_ones_need_none_and_the_overview_still_does(tmp_path: Path) -> None:
    async def story(peik: Watched) -> None:
        assert (await peik.get("/metrics", key=None, url=peik.open_url))[0] == 200
        assert (await peik.get("/v1/overview", key=None, url=peik.open_url))[0] == 401

    watch(tmp_path, story)


def test_they_count_what_happens_and_name_no_chat(tmp_path: Path) -> None:
    async def story(peik: Watched) -> None:
        await peik.house.post("/v1/bots", {"token": TOKEN})
        for _ in range(3):
            await peik.house.post(
                "/v1/letters", {"method": "sendMessage", "params": {"chat_id": CHAT, "text": "hello"}}
            )
        await peik.until("peik_letters_accepted_total", 3)
        tell = peik.runtime.events.tell
        tell(events.Arrived(bot_id=7000001, stored=4, duplicates=1, last_number=4))
        tell(events.Held(bot_id=7000001, chat=CHAT, wait_s=3.5), events.Held(bot_id=7000001, chat=None, wait_s=2.0))
        tell(events.Intruder(bot_id=7000001, kind="poller", detail="409"))
        assert await peik.value("peik_updates_received_total", bot="7000001") == 4
        assert await peik.value("peik_flood_wait_seconds_total", scope="chat") == 3.5
        assert await peik.value("peik_flood_waits_total", scope="bot") == 1
        assert await peik.value("peik_poll_conflicts_total", bot="7000001", kind="poller") == 1
        assert await peik.value("peik_temp_bytes") == 12345
        await peik.until("peik_outbox_letters", 3, bot="7000001", state="waiting")  # nobody is at the other end
        assert (await peik.value("peik_outbox_oldest_seconds", bot="7000001") or 0) > 0
        await peik.until("peik_breaker_state", 1, kind="route", target="direct")
        await peik.until(
            "peik_alerts", 1
        )  # somebody else with our token; that there is no way is told after half a minute
        _, text, _ = await peik.get("/metrics")
        assert str(CHAT) not in text
        assert "AAtest" not in text

    watch(tmp_path, story)


def test_a_histogram_adds_up(tmp_path: Path) -> None:
    async def story(peik: Watched) -> None:
        samples = await peik.samples()
        buckets = [
            (float(dict(labels)["le"]), value)
            for (name, labels), value in samples.items()
            if name == "peik_end_to_end_seconds_bucket"
        ]
        assert buckets == sorted(buckets)
        assert buckets[-1] == (float("inf"), samples["peik_end_to_end_seconds_count", ()])

    watch(tmp_path, story)


def test_the_overview_is_shown_as_all_of_rest_is(tmp_path: Path) -> None:
    async def story(peik: Watched) -> None:
        await peik.house.post("/v1/bots", {"token": TOKEN})
        _, text, _ = await peik.get("/v1/overview")
        shown = json.loads(text)
        assert shown["missing"] == []
        assert shown["at"].endswith("Z")
        assert not [name for name in _names(shown) if name.endswith("_ms")]
        assert [route["state"] for route in shown["routes"]] in (["closed"], ["open"])
        assert len(shown["last_hour"]) == 60

    watch(tmp_path, story)


def _names(shown: object) -> list[str]:
    match shown:
        case dict():
            return [*shown, *(name for one in shown.values() for name in _names(one))]
        case list():
            return [name for one in shown for name in _names(one)]
    return []


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_named_as_prometheus_wants_it(metric: Any) -> None:
    assert metric.name.startswith("peik_")
    assert not metric.name.endswith("_total")
    assert not {"chat", "chat_id", "user", "user_id"} & set(metric.labels)
    assert metric.help.endswith(".")
    assert (metric.histograms is not None) is (metric.kind is MetricKind.HISTOGRAM)
