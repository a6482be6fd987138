"""How long people wait for each page of the dashboard when there are a million letters: `python -m bench.pages`.

A store is made once (see `bench.town`), the real `peik serve` is started on it as a process of its own, somebody signs in over
HTTP, and every page is asked for, round by round. Of a download the first bytes count. `--file` keeps the store for another time;
`--store` measures one that is there already, such as a PostgreSQL that `peik migrate` has filled.
"""

import argparse
import asyncio
import os
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp
import msgspec
from rich.console import Console
from rich.table import Table

from bench import town
from bench.figures import Spread
from bench.loop import run
from bench.pages_asked import Asked, all_asked, unasked
from bench.server import serving

RESULTS = Path(__file__).parent / "results"
GOAL_MS = 300.0
ROUNDS = 7
LETTERS = 1_000_000
_CSRF = re.compile(r'name="csrf"[^>]*value="([^"]+)"')
_CLOSED = "http://127.0.0.1:9"  # nothing is sent, since all bots are paused


def main() -> int:
    options = _options()
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peik-pages-", dir=os.environ.get("TMPDIR") or RESULTS) as folder:
        path = options.file or Path(folder) / "peik.db"
        store = options.store or f"sqlite:///{path.absolute()}"
        if not options.store and not path.exists():
            began = time.monotonic()
            town.build(path, letters=options.letters)
            print(f"{options.letters} letters in {time.monotonic() - began:.0f} s", file=sys.stderr)
        settings = {"PEIK_STORE": store, "PEIK_BOT_TOKENS": ""}
        with serving(Path(folder), _CLOSED, **settings) as (_, url, key):
            taken = run(_measure(url, key, rounds=options.rounds, letters=options.letters, only=options.only))
    spreads = {name: Spread.of(values) for name, values in taken.items()}
    _show(spreads)
    result = {"store": store.partition(":")[0], "letters": options.letters, "rounds": options.rounds}
    result |= {"load_average": os.getloadavg(), "cores": os.cpu_count(), "ms": spreads}
    (RESULTS / "pages.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    return 1 if any(spread.median > GOAL_MS for spread in spreads.values()) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.pages", description="Every page of the dashboard, with a million letters."
    )
    parser.add_argument("--letters", type=int, default=LETTERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--file", type=Path, help="An SQLite file that is kept, and used again if it is there.")
    parser.add_argument("--store", help="A store that was filled from such a file, by its URL.")
    parser.add_argument("--only", help="Pages whose names hold this.")
    return parser.parse_args()


async def _measure(url: str, key: str, *, rounds: int, letters: int, only: str | None) -> Mapping[str, Sequence[float]]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        await sign_in(session, url, key)
        pages = [one for one in await all_asked(session, url, letters) if only is None or only in one.name]
        missing = await unasked(pages) if only is None else ()
        if missing:
            raise RuntimeError(f"nobody asks for {', '.join(missing)}: add them to bench/pages_asked.py")
        taken: dict[str, list[float]] = defaultdict(list)
        for number in range(rounds + 1):
            for one in pages:
                took_ms = await _ask(session, url, key, one)
                if number:  # the first round warms: templates are read, statements are prepared
                    taken[one.name].append(took_ms)
        return taken


async def sign_in(session: aiohttp.ClientSession, url: str, key: str) -> None:
    """As somebody at a browser does it. Raises RuntimeError."""
    async with session.get(f"{url}/admin/sign-in") as answer:
        csrf = _CSRF.search(await answer.text())
    fields = {"csrf": csrf[1] if csrf else "", "key": key, "next": "/admin"}
    async with session.post(f"{url}/admin/sign-in", data=fields, allow_redirects=False) as answer:
        if answer.status != 303:
            raise RuntimeError(f"could not sign in: {answer.status}")


async def _ask(session: aiohttp.ClientSession, url: str, key: str, one: Asked) -> float:
    headers = {"Authorization": f"Bearer {key}"} if not one.path.startswith("/admin") else {}
    began = time.perf_counter()
    async with asyncio.timeout(60), session.get(url + one.path, headers=headers, allow_redirects=False) as answer:
        if one.is_stream:
            await answer.content.readany()
            took_s = time.perf_counter() - began
            answer.close()
        else:
            body = await answer.read()
            took_s = time.perf_counter() - began
        if answer.status != one.status:
            words = "" if one.is_stream else body.decode(errors="replace")[:2000]
            raise RuntimeError(f"{one.path} was answered with {answer.status}: {words}")
    return took_s * 1000


def _show(spreads: Mapping[str, Spread]) -> None:
    table = Table("page", box=None)
    for name in ("median ms", "best", "worst"):
        table.add_column(name, justify="right")
    for name, spread in sorted(spreads.items(), key=lambda item: -item[1].median):
        style = "bold red" if spread.median > GOAL_MS else ""
        figures = [f"{value:.1f}" for value in (spread.median, spread.least, spread.most)]
        table.add_row(name, *figures, style=style)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    middle = statistics.median(spread.median for spread in spreads.values())
    console.print(f"{len(spreads)} pages, the middle one {middle:.1f} ms", style="dim")


if __name__ == "__main__":
    sys.exit(main())
