"""Speed: what the last run of `make bench` saw."""

import json
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from docs.pages.markdown import REFERENCE, ROOT, code, one_line, short, table

BENCH = REFERENCE / "bench.json"
BOUNDS = ROOT / "bench" / "bounds.toml"


def bench_parts() -> Iterator[str]:
    """Of the last run of `make bench`, which wrote down what it saw."""
    yield "What this is about, and how it is measured: [performance](../performance.md)."
    if not BENCH.is_file():
        yield "No run of `make bench` is kept yet."
        return
    run: dict[str, Any] = json.loads(BENCH.read_text(encoding="utf-8"))
    yield (
        f"`make bench`: {run['rounds_done']} rounds of {run['letters']:,} letters on {run['cores']} cores, load "
        f"{run['load_before']:.1f} before. Medians, with least to most of the rounds."
    )
    if run["letters"] != 20_000:
        yield "**Counts in the names are those of 20,000 letters; this run had fewer, and is no measure of anything.**"
    yield table(("what", "Peik", "ceiling in the same run", "ratio", "goal", "met"), _bench_rows(run["figures"]))
    yield from missed_goals(run["figures"])
    yield "![Bars of every row](bench.svg)"
    yield "## Peers"
    peers = [
        (
            f"{line['title']}{', less is better' if line['is_most'] else ''}",
            short(line["median"]),
            " · ".join(f"{one['title']}: {short(one['median'])}" for one in line["peers"]),
        )
        for line in run["figures"]
        if line["peers"]
    ]
    yield table(("what", "Peik", "peers, medians"), peers)
    yield table(("peer", "its terms"), [(one["title"], one["terms"]) for one in run["peers"]])
    yield "## Ceilings"
    yield table(("what", "median"), [(one_line(one["title"]), _spread(one)) for one in run["ceilings"]])
    if run["failures"]:
        yield "Gave no figure: " + ", ".join(map(code, run["failures"])) + "."


def _bench_rows(figures: Sequence[dict[str, Any]]) -> Iterator[Sequence[str]]:
    for line in figures:
        ceiling = "" if line["ratio"] is None else f"{line['ceiling_title']}: {short(line['ceiling_median'])}"
        ratio = "" if line["ratio"] is None else f"{line['ratio']:.2f}"
        goals = line["goals"] or [{"words": "", "reached": None}]
        words = "<br>".join(goal["words"] for goal in goals)
        met = "<br>".join({True: "yes", False: "**no**", None: ""}[goal["reached"]] for goal in goals)
        yield (line["title"], _spread(line), ceiling, ratio, words, met)


def missed_goals(figures: Sequence[dict[str, Any]]) -> Iterator[str]:
    bounds = tomllib.loads(BOUNDS.read_text(encoding="utf-8"))
    rows = []
    for line in figures:
        missed = [goal["words"] for goal in line["goals"] if not goal["reached"]]
        if missed:
            known = bounds.get(line["name"], {})
            bound, _, _ = " ".join(known.get("bound", "not said yet").split()).partition(". ")
            rows.append((line["title"], f"{short(line['median'])} {line['unit']}", "<br>".join(missed), bound))
    if rows:
        yield "## Goals that were missed"
        more = "More, and what was tried: [`bench/bounds.toml`](../../bench/bounds.toml)."
        yield f"{table(('what', 'Peik', 'goal', 'what bounds it'), rows)}\n\n{more}"


def _spread(line: dict[str, Any]) -> str:
    return f"{short(line['median'])} {line['unit']} ({short(line['min'])} to {short(line['max'])})"
