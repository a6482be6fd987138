"""Updates that Telegram pushes: Peik storing each durably before it says yes, beside servers that store nothing."""

from pathlib import Path

from bench.bare import running_bare
from bench.figures import Figures
from bench.ground import Ground
from bench.hammer import hammered, request
from bench.load import BOT_ID, TOKEN
from bench.loop import run
from bench.server import serving
from bench.updates_stub import updates
from peik.clock import SystemClock
from peik.storage.sqlite.store import SqliteStore

UPDATES = 10_000
CONNECTIONS = 40  # Telegram's own default for a webhook
SECRET = "bench-secret-bench-secret-bench-secret"


def bare_webhooks(ground: Ground) -> Figures:
    """uvicorn with Starlette, and aiogram's own with a handler that does nothing."""
    asked = [request("/webhook", body) for body in updates(1_763_000_000, ground.share(UPDATES))]
    figures: dict[str, float] = {}
    for kind in ("starlette", "aiogram"):
        with running_bare(kind) as url:
            figures[f"{kind}_webhook"] = run(hammered(url, asked, connections=CONNECTIONS))
    return figures


def webhook(ground: Ground) -> Figures:
    bodies = updates(1_763_000_000, ground.share(UPDATES))
    run(_know_the_secret(ground.path))
    settings = {"PEIK_INBOUND": "webhook", "PEIK_PUBLIC_URL": "https://bench.example", "PEIK_BOT_TOKENS": TOKEN}
    shown = [("X-Telegram-Bot-Api-Secret-Token", SECRET)]
    with serving(ground.path, ground.stub, **settings) as (_, url, _):
        pushed = [request(f"/webhook/{BOT_ID}", body, shown) for body in bodies]
        rate = run(hammered(url, pushed, connections=CONNECTIONS))
    assert run(_stored(ground.path)) == len(bodies), "an update is missing"
    return {"webhook": rate}


async def _know_the_secret(folder: Path) -> None:
    """Peik makes one at the first use and keeps it; this one is there already, and known."""
    store = SqliteStore(folder / "peik.db", clock=SystemClock())
    await store.open()
    await store.secret(f"webhook:{BOT_ID}", SECRET)
    await store.close()


async def _stored(folder: Path) -> int:
    store = SqliteStore(folder / "peik.db", clock=SystemClock())
    await store.open()
    try:
        state = await store.inbox.inbox(BOT_ID)
        assert state is not None
        (consumer,) = await store.inbox.consumers(BOT_ID)
        return len(await store.inbox.arrivals_after(consumer.id, 0, limit=1_000_000, bytes_max=1 << 30))
    finally:
        await store.close()
