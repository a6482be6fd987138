"""`python -m bench.cost`: what a letter and an update cost Peik and its store, from which `peik doctor --for 1M/day` plans.

`peik serve` in a process of its own, its store, and a Telegram that says yes. Letters come over REST, one a request, updates as
pushes of a webhook, and both leave again at once: letters for Telegram, updates for the bot's own address. Eight callers ask one
after the other, so that few share a commit, however busy the machine is; CPU seconds are counted, and no time.
Four runs of each store, short and long ones of both, make the model: a straight line by size. Further runs, which the model has
not seen, are put beside it. Servers are durable: fsync on, appendfsync always.
"""

import argparse
import asyncio
import contextlib
import os
import platform
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from bench.figures import Spread
from bench.hammer import hammered, request
from bench.load import BOT_ID, TOKEN
from bench.loop import run
from bench.nodes import cpu_s, written
from bench.server import serving
from bench.stub import Stub, running_stub
from peik.clock import SystemClock
from peik.monitoring.cost import Cost, Line, StoreCosts
from peik.settings.config import load
from peik.settings.values import StoreKind
from peik.storage.open import store_of
from proofs.nodes.databases import Database, database

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "reference" / "cost.json"
FITTED = ROOT / "peik" / "monitoring" / "costs.json"
CALLERS = 8
COUNT = 3000
CHATS = 400
SECRET = "bench-secret-bench-secret-bench-secret"
PATIENCE_S = 120.0
LOOK_S = 0.1
QUIET_S = 1.0  # after a start, and before the figures of the end are read
NAMES = ("node_us", "server_us", "log_bytes", "kept_bytes")
# Texts are made of these: what repeats itself would be pressed together by a store, and nobody's letters do.
_WORDS = [
    "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 10)))
    for chance in [random.Random(31)]
    for _ in range(5000)
]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One run: so many letters and updates of these sizes, by so many callers of each process of Peik."""

    letters: int = 0
    updates: int = 0
    letter_text: int = 0
    update_text: int = 0
    chats: int = CHATS
    nodes: int = 1
    callers: int = CALLERS

    @property
    def words(self) -> str:
        parts = []
        if self.letters:
            parts.append(f"letters of {self.letter_text} bytes of text")
        if self.updates:
            share = f"{self.updates / self.letters:g} " if self.letters else ""
            parts.append(f"{share}updates of {self.update_text}")
        processes = "one process" if self.nodes == 1 else f"{self.nodes} processes"
        return f"{' and '.join(parts)}, {self.chats:,} chats, {processes}, {self.callers} callers of each"


# The model is made of these …
FIT = (
    Point(letters=COUNT, letter_text=200),
    Point(letters=COUNT, letter_text=2000),
    Point(updates=COUNT, update_text=200),
    Point(updates=COUNT, update_text=2000),
)
# … and not of these.
_MIXED = Point(letters=COUNT, letter_text=800, updates=COUNT // 4, update_text=500, chats=4000)
_TWO = Point(letters=COUNT, letter_text=400, chats=1000, nodes=2)
CHECKS = {StoreKind.SQLITE: (_MIXED,), StoreKind.POSTGRES: (_MIXED, _TWO), StoreKind.REDIS: (_MIXED, _TWO)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description="What a letter and an update cost.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", nargs="+", type=StoreKind, default=list(StoreKind))
    parser.add_argument("--write", action="store_true", help=f"keep it in {KEPT.relative_to(ROOT)}, and the fit of it")
    asked = parser.parse_args()
    document = {
        "command": f"python -m bench.cost --rounds {asked.rounds}",
        "machine": _machine(),
        "rounds": asked.rounds,
        "load_average": [],
        "stores": {},
    }
    with running_stub() as stub:
        for kind in asked.store:
            found: dict[Point, list[dict[str, float]]] = {}
            for _ in range(asked.rounds):
                for point in (*FIT, *CHECKS[kind]):
                    found.setdefault(point, []).append(measure(kind, point, stub))
                    print(
                        kind, point.words, {name: round(value) for name, value in found[point][-1].items()}, flush=True
                    )
            document["stores"][kind] = {
                "fit": [_shown(point, found[point]) for point in FIT],
                "checks": [_shown(point, found[point]) for point in CHECKS[kind]],
            }
    document["load_average"] = [round(one, 1) for one in os.getloadavg()]
    if asked.write:
        KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
        FITTED.write_bytes(msgspec.json.format(msgspec.json.encode(fitted(document)), indent=1) + b"\n")
    return 0


def fitted(document: dict[str, Any]) -> dict[str, StoreCosts]:
    """By store, lines through the short and the long one of each."""
    return {
        kind: StoreCosts(letter=_cost(one["fit"][:2]), update=_cost(one["fit"][2:]))
        for kind, one in document["stores"].items()
    }


def _cost(points: Sequence[dict[str, Any]]) -> Cost:
    short, long = points

    def line(name: str) -> Line:
        (low, at_low), (high, at_high) = (
            (one["figures"][name]["median"], one["figures"]["size"]["median"]) for one in (short, long)
        )
        per_kb = max(0.0, (high - low) / (at_high - at_low) * 1000)
        return Line(round(max(0.0, low - per_kb * at_low / 1000), 1), round(per_kb, 1))

    return Cost(**{name: line(name) for name in NAMES})


def _shown(point: Point, found: Sequence[dict[str, float]]) -> dict[str, Any]:
    spreads = {name: Spread.of([one[name] for one in found]) for name in found[0]}
    figures = {name: {"median": one.median, "min": one.least, "max": one.most} for name, one in spreads.items()}
    return {"point": point, "words": point.words, "figures": figures}


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}"


# ---- one run ----


def measure(kind: StoreKind, point: Point, stub: Stub) -> dict[str, float]:
    """Of each letter, or of each update if there are only those; a mixed run divides by its letters."""
    letters, updates = point.letters, point.updates
    with tempfile.TemporaryDirectory(prefix="peik-bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        store, server = _store(kind, folder, stack)
        run(_know_the_secret(store, folder))
        nodes = []
        for number in range(point.nodes):
            home = folder / f"node-{number}"
            home.mkdir()
            nodes.append(stack.enter_context(serving(home, stub.root, PEIK_STORE=store, **_SETTINGS)))
        _push_to(nodes[0][1], nodes[0][2], stub)
        time.sleep(QUIET_S)
        before, posts = _state(nodes, server, folder), stub.posts()
        run(_play(point, nodes))
        _wait_for(lambda: stub.posts() - posts >= letters + updates)
        time.sleep(QUIET_S)
        assert stub.posts() - posts == letters + updates, "something went twice"
        after = _state(nodes, server, folder)
    each = letters or updates
    size = len(_params(point, 0)) if letters else len(_update(point, 0))
    figures = {what: (after[what] - before[what]) / each for what in NAMES}
    return figures | {"size": float(size), "update_size": float(len(_update(point, 0)))}


_SETTINGS = {
    "PEIK_PACE": "off",
    "PEIK_INBOUND": "webhook",
    "PEIK_PUBLIC_URL": "https://bench.example",
    "PEIK_PUSHES_ALLOW_PRIVATE": "on",
    "PEIK_BOT_TOKENS": TOKEN,
}


def _store(kind: StoreKind, folder: Path, stack: contextlib.ExitStack) -> tuple[str, Database | None]:
    if kind is StoreKind.SQLITE:
        return f"sqlite:///{folder}/peik.db", None
    server = database("postgres" if kind is StoreKind.POSTGRES else "redis", folder)
    stack.callback(server.remove)
    server.start()
    return server.store, server


async def _know_the_secret(address: str, folder: Path) -> None:
    """Peik makes one at the first use and keeps it; this one is there already, and known."""
    store = store_of(load({"store": address}, environment={}, folder=folder), clock=SystemClock())
    await store.open()
    await store.secret(f"webhook:{BOT_ID}", SECRET)
    await store.close()


def _push_to(url: str, key: str, stub: Stub) -> None:
    body = msgspec.json.encode({"url": f"{stub.root}/bot"}).decode()
    head = ["-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json"]
    subprocess.run(
        ["curl", "-sfS", "-X", "PUT", f"{url}/v1/consumers/{BOT_ID}/default", *head, "-d", body],
        check=True,
        capture_output=True,
    )


async def _play(point: Point, nodes: Sequence[tuple[Any, str, str]]) -> None:
    work = []
    for place, (_, url, key) in enumerate(nodes):
        own = [("Authorization", f"Bearer {key}")]
        numbers = range(place, point.letters, len(nodes))
        if asked := [request("/v1/letters", _letter(point, number), own) for number in numbers]:
            work.append(hammered(url, asked, connections=point.callers, status=202))
        shown = [("X-Telegram-Bot-Api-Secret-Token", SECRET)]
        numbers = range(place, point.updates, len(nodes))
        if pushed := [request(f"/webhook/{BOT_ID}", _update(point, number), shown) for number in numbers]:
            work.append(hammered(url, pushed, connections=point.callers))
    await asyncio.gather(*work)


def _letter(point: Point, number: int) -> bytes:
    return msgspec.json.encode({"method": "sendMessage", "params": msgspec.Raw(_params(point, number))})


def _params(point: Point, number: int) -> bytes:
    return msgspec.json.encode({"chat_id": 1_000_000 + number % point.chats, "text": _text(number, point.letter_text)})


def _update(point: Point, number: int) -> bytes:
    user = {"id": 1_000_000 + number % point.chats, "first_name": "Reader", "language_code": "fa"}
    message = {
        "message_id": number + 1,
        "from": {**user, "is_bot": False},
        "chat": {"id": user["id"], "first_name": "Reader", "type": "private"},
        "date": int(time.time()),
        "text": _text(number, point.update_text),
    }
    return msgspec.json.encode({"update_id": 400_000_000 + number, "message": message})


def _text(number: int, size: int) -> str:
    return f"{number:08d} {' '.join(random.Random(number).choices(_WORDS, k=size // 4))}"[:size]


def _state(nodes: Sequence[tuple[Any, str, str]], server: Database | None, folder: Path) -> dict[str, float]:
    pids = [process.pid for process, _, _ in nodes]
    if server is not None:
        told = written(server)
        return {
            "node_us": cpu_s(pids) * 1e6,
            "server_us": cpu_s([server.pid]) * 1e6,
            "log_bytes": told["log bytes"],
            "kept_bytes": told["bytes kept"],
        }
    return {
        "node_us": cpu_s(pids) * 1e6,
        "server_us": 0.0,
        "log_bytes": float(psutil.Process(pids[0]).io_counters().write_bytes),
        "kept_bytes": _pages(folder / "peik.db"),
    }


def _pages(path: Path) -> float:
    """What the database takes, with what is in its log only by now."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        sizes = [
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        ]
    return float((sizes[0] - sizes[1]) * sizes[2])


def _wait_for(is_so: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "too slow"
        time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
