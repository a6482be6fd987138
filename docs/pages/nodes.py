"""Several nodes: what the last runs of their proof and of their bench saw."""

import json
from collections.abc import Iterator
from typing import Any

from docs.pages.markdown import REFERENCE, figure, table

NODES = REFERENCE / "nodes_proof.json"

_NODES_SHOWN = (
    "seconds",
    "accepted",
    "letters in the store",
    "lost",
    "accepted twice",
    "lanes out of order",
    "uncertain tries",
    "arrived twice",
    "repeats without an uncertain try",
    "answered 429",
    "most of one bot in a second",
    "most to one chat in ten seconds",
    "kill: leases moved",
    "kill: seconds unserved, median",
    "kill: seconds unserved, worst",
    "freeze: seconds unserved, median",
    "freeze: seconds unserved, worst",
    "drain: seconds unserved, median",
    "stop: seconds unserved, median",
    "bots of other nodes during drain and stop: seconds unserved, median",
    "kill in the storm: seconds unserved, median",
    "kill in the storm: seconds unserved, worst",
    "crash loop: bots unserved, median",
    "crash loop: bots unserved, worst",
    "database restarted: seconds until the next delivery",
    "waiters: ms after the delivery elsewhere, median",
    "leases taken",
    "asked again with the same key",
)


def nodes_parts() -> Iterator[str]:
    """Of the last run of `make nodes-proof` and of `python -m bench.nodes`, which wrote down what they saw."""
    document: dict[str, Any] = json.loads(NODES.read_text(encoding="utf-8"))
    about = document["about"]
    yield "## The proof"
    yield (
        f"`make nodes-proof`: {about['nodes']} [nodes](../nodes.md) with leases of {about['lease_s']} s, real processes and "
        "servers, the simulated Telegram with its limits on. Nodes are killed, frozen, drained and stopped; the database is "
        "restarted, or killed. Two cores shared with everything else: seconds are upper bounds, rates lower ones. "
        "An empty cell was not part of that run."
    )
    runs = [name for name in ("postgres", "postgres_killed", "redis", "redis_killed") if name in document]
    broken = [f"{name}: {words}" for name in runs for words in document[name]["broken"]]
    yield "No promise was broken." if not broken else f"Broken: {'; '.join(broken)}."
    figures = [document[name]["figures"] for name in runs]
    rows = [(name, *(figure(one.get(name)) for one in figures)) for name in _NODES_SHOWN]
    yield table(("what", *(name.replace("_", ", ") for name in runs)), rows)
    yield "## Throughput"
    measured = document["throughput"]
    rounds = "one round" if measured["rounds"] == 1 else f"medians of {measured['rounds']} rounds"
    yield (
        f"`python -m bench.nodes`: {rounds} of {measured['letters']:,} letters on {measured['cores']} shared cores, load "
        f"{measured['load_average_after'][2]:.0f}: the CPU per letter says more than the rates. `accept`: 50 callers over all "
        "nodes together; `crowd`: 50 callers of each node. The same callers over more nodes make smaller commits, so that "
        "each of their letters costs more; far less so where callers grow with the nodes."
    )
    found = measured["figures"]
    shown = []
    for store in ("postgres", "redis"):
        for work in ("accept", "crowd", "batch", "drain"):
            for nodes in (1, 2, 3, 4):
                key = f"{store} {nodes} {work}"
                if f"{key} per s" in found:
                    cells = [
                        found[f"{key} {what}"]["median"] for what in ("per s", "node us", "server us", "log bytes")
                    ]
                    shown.append((f"{store}, {work}, {nodes}", *(f"{cell:,.0f}" for cell in cells)))
    yield table(("store, work, nodes", "letters/s", "µs of nodes", "µs of the server", "bytes of its log"), shown)
