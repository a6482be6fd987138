"""The inbox: taking over what waits at Telegram, beside bare loops that store nothing, and reading pages of what is kept."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec

from bench.figures import Figures
from bench.ground import Ground
from bench.load import BOT_ID, TOKEN
from bench.loop import run
from bench.updates_stub import FIRST_ID, UPDATES, running_updates_stub, updates
from peik.app.lifetime import running
from peik.clock import SystemClock
from peik.core.arrival import UPDATE_TYPES, read_update
from peik.core.events import Event, Events, InboxRecovered
from peik.core.token import Token
from peik.outbox.store import BotRecord
from peik.settings.config import load
from peik.storage.sqlite.store import SqliteStore
from peik.telegram.client import BotApiCarrier
from peik.telegram.port import Request

PATIENCE_S = 300.0
NEAREST_S = 0.01  # to its data centre and back, for a server that stands beside it
STORED = 100_000
PAGE = 100
READS = 50


def recover(ground: Ground) -> Figures:
    """10,000 updates, 100 a page: two bare loops and Peik against the same stub, one after another.

    Once as far away as Telegram is at its nearest, and once with no distance at all, where every page costs Peik a commit
    and the bare loop nothing: a poll confirms the page before it, so that the commit cannot be done meanwhile.
    """
    figures: dict[str, float] = {}
    many = ground.share(UPDATES)
    for suffix, delay_s in (("", NEAREST_S), ("_at_once", 0.0)):
        with running_updates_stub(int(time.time()) - 3600, many=many, delay_s=delay_s) as root:
            figures |= {
                f"bare_aiohttp_poll{suffix}": many / run(_bare_aiohttp(root, many)),
                f"bare_carrier_poll{suffix}": many / run(_bare_carrier(root, many)),
                f"recover{suffix}": many / run(_recover(ground.path / f"recover{suffix}", root, many)),
            }
    return figures


async def _bare_aiohttp(root: str, many: int) -> float:
    """What people write: ask, read the JSON, ask for what follows the last id."""
    url = f"{root}/bot{TOKEN}/getUpdates"
    found, offset = 0, 0
    async with aiohttp.ClientSession() as session:
        began = time.monotonic()
        while True:
            asked = {"limit": PAGE, "timeout": 0, "allowed_updates": UPDATE_TYPES} | (
                {"offset": offset} if offset else {}
            )
            async with session.post(url, json=asked) as answer:
                page = (await answer.json())["result"]
            if not page:
                break
            found += len(page)
            offset = page[-1]["update_id"] + 1
        taken_s = time.monotonic() - began
    assert found == many
    return taken_s


async def _bare_carrier(root: str, many: int) -> float:
    """The same with Peik's own HTTP client and JSON decoder: what storing costs, and nothing else."""
    carrier = BotApiCarrier(root, connections_max=4)
    found, offset = 0, 0
    began = time.monotonic()
    while True:
        asked = {"limit": PAGE, "timeout": 0, "allowed_updates": UPDATE_TYPES} | ({"offset": offset} if offset else {})
        reply = await carrier.carry(
            Request(token=Token(TOKEN), method="getUpdates", params=msgspec.json.encode(asked), timeout_s=30.0)
        )
        page = msgspec.json.decode(reply.body)["result"]
        if not page:
            break
        found += len(page)
        offset = page[-1]["update_id"] + 1
    taken_s = time.monotonic() - began
    await carrier.close()
    assert found == many
    return taken_s


async def _recover(folder: Path, root: str, many: int) -> float:
    recovered: asyncio.Future[InboxRecovered] = asyncio.get_running_loop().create_future()

    def listen(told: Sequence[Event]) -> None:
        for event in told:
            if isinstance(event, InboxRecovered) and not recovered.done():
                recovered.set_result(event)

    events = Events()
    events.listen(listen)
    flags = {"store": f"sqlite:///{folder}/peik.db", "api_root": root, "bot_tokens": TOKEN}
    async with running(load(flags, environment={}, folder=folder), events=events) as peik:
        event = await asyncio.wait_for(recovered, PATIENCE_S)
        state = await peik.store.inbox.inbox(BOT_ID)
        assert state is not None
        assert (event.stored, state.last_update_id) == (many, FIRST_ID + many - 1)
        return event.took_s


def read_page(ground: Ground) -> Figures:
    """The next page of a consumer that is at the end of what is stored, with 100 and with 100,000 arrivals kept."""
    return run(_read_pages(ground.path, ground.share(STORED) // PAGE * PAGE))


async def _read_pages(folder: Path, stored: int) -> Figures:
    store = SqliteStore(folder / "peik.db", clock=SystemClock())
    await store.open()
    await store.save_bot(BotRecord(bot_id=BOT_ID, token=Token(TOKEN)))
    await store.inbox.open_inbox(BOT_ID, server="bench", at_ms=1)
    consumer = await store.inbox.ensure_consumer(BOT_ID, "default", at_ms=1)
    template = [msgspec.json.decode(one) for one in updates(1_763_000_000, PAGE)]
    figures: dict[str, float] = {}
    for first in range(0, stored, PAGE):
        page = [read_update(msgspec.json.encode(one | {"update_id": 1 + first + n})) for n, one in enumerate(template)]
        await store.inbox.take_in(BOT_ID, page, at_ms=1, last_update_id=first + PAGE)
        if first + PAGE in (PAGE, stored):
            label = "page_small_ms" if first == 0 else "page_large_ms"
            figures[label] = await _page_ms(store, consumer.id, first)
    await store.close()
    return figures


async def _page_ms(store: SqliteStore, consumer_id: int, after: int) -> float:
    taken: list[float] = []
    for _ in range(READS):
        began = time.monotonic()
        page = await store.inbox.arrivals_after(consumer_id, after, limit=PAGE)
        taken.append(time.monotonic() - began)
        assert len(page) == PAGE
    return sorted(taken)[READS // 2] * 1000
