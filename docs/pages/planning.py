"""What so many letters a day need: the plan of `peik doctor --for 1M/day`, and points that its model was not made of."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs.pages.markdown import REFERENCE, table
from peik.monitoring.cost import (
    BLOAT,
    BUSIEST,
    LETTER_BYTES,
    POSTGRES_CORES,
    POSTGRES_LOG_BYTES_PER_S,
    REDIS_MEMORY_BYTES,
    UPDATE_BYTES,
    UPDATES_PER_LETTER,
    UTILIZATION,
    StoreCosts,
    advice,
    advised,
    costs,
    plans,
    read_demand,
    rows_of,
)
from peik.monitoring.doctor import LOG_BYTES
from peik.settings.values import StoreKind

COST = REFERENCE / "cost.json"
DEMANDS = ("1M/day", "100M/day", "1B/day")
_NAMES = {
    "node_us": "CPU of Peik, µs",
    "server_us": "CPU of the store's server, µs",
    "log_bytes": "written, bytes",
    "kept_bytes": "kept, bytes",
}


def planning_parts() -> Iterator[str]:
    """Of the last `python -m bench.cost --write`, and of the package's own model."""
    run: dict[str, Any] = json.loads(COST.read_text(encoding="utf-8"))
    yield (
        "`peik doctor --for 1M/day` says what so many letters need: which store, how many processes and cores, how much "
        "disk and network. Write `100M/day`, `1B/day`, `30M/month` (30 days), or `200/s` for a rate that stays the same all "
        "day. It looks at nothing; how long things are kept comes from the settings. By new users instead: "
        "[the doctor](doctor.md)."
    )
    yield from _plans()
    yield "## What it stands on"
    yield (
        f"The busiest minute has {BUSIEST:.1f} times the average. To every letter come {UPDATES_PER_LETTER:g} updates; a "
        f"letter has {LETTER_BYTES} bytes of parameters, an update {UPDATE_BYTES}. Letters come one a request over REST, "
        f"updates as webhooks, which go on to the bot's own address. Cores are used to {UTILIZATION:.0%}; what is kept "
        f"takes {BLOAT:g} times its size. Letters and updates are kept for 7 days, and after them a line of the message log "
        f"({LOG_BYTES} bytes, assumed) until 90 are over; not with Redis. "
        f"**Assumed, not measured:** a PostgreSQL ends at {POSTGRES_CORES} cores or "
        f"{POSTGRES_LOG_BYTES_PER_S / 1e6:.0f} MB/s of log, a Redis at one core or {REDIS_MEMORY_BYTES / 1e9:.0f} GB, and "
        "cost stays the same up to there. Nothing above a few thousand letters a second was run. Files, callers that wait "
        "and the dashboard are not counted."
    )
    yield _cost_table(costs())
    yield (
        f"`{run['command']}`, {run['machine']}; load {run['load_average'][0]:.0f}, medians of {run['rounds']} rounds. "
        "Eight callers ask one after the other, so that few share a commit: with more of them each costs less, and SQLite "
        "writes fewer pages for it; with fewer each costs more, and there are cores to spare."
    )
    yield "## Points that the model was not made of"
    yield from _checks(run)


def _plans() -> Iterator[str]:
    demands = [demand for text in DEMANDS if (demand := read_demand(text)) is not None]
    best = [advised(plans(demand)) for demand in demands]
    columns = [rows_of(demand, [plan]) for demand, plan in zip(demands, best, strict=True)]
    rows = [("store", *(str(plan.store) for plan in best))]
    rows += [(lines[0][0], *(cells[0] for _, cells in lines)) for lines in zip(*columns, strict=True)]
    yield table(("", *DEMANDS), rows)
    for demand, plan in zip(demands, best, strict=True):
        yield f"**{demand.text}.** {advice(demand, plan)}"
    yield (
        "**Where one cluster ends, take several**: each has its own PostgreSQL, its own nodes and its own bots. A bot "
        "belongs to one cluster, by the address that its program or webhook uses. Clusters share nothing, so that the "
        "figures add up. No router comes with Peik. Old letters are deleted by rows, not by partitions."
    )


def _cost_table(found: Mapping[StoreKind, StoreCosts]) -> str:
    rows = []
    for store, cost in found.items():
        for what, one, size in (("a letter", cost.letter, LETTER_BYTES), ("an update", cost.update, UPDATE_BYTES)):
            cells = [getattr(one, name) for name in _NAMES]
            rows.append((f"{store}, {what}", *(f"{line.at(size):,.0f} (+{line.per_kb:,.0f} a kB)" for line in cells)))
    return table(("", *_NAMES.values()), rows)


def _checks(run: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for store, found in run["stores"].items():
        for check in found["checks"]:
            point, measured = check["point"], check["figures"]
            updates = point["updates"] / point["letters"]
            cells = []
            for name in _NAMES:
                model = costs()[StoreKind(store)].of(
                    name,
                    letter_bytes=measured["size"]["median"],
                    update_bytes=measured["update_size"]["median"],
                    updates=updates,
                )
                seen = measured[name]["median"]
                cells.append(f"{model:,.0f} · {seen:,.0f}" + (f" ({seen / model - 1:+.0%})" if model else ""))
            rows.append((f"{store}: {check['words']}", *cells))
    yield table(("for each letter, with its updates: model · measured", *_NAMES.values()), rows)
