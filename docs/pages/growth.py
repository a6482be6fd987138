"""How cost grows: what the last run of `make bench-growth` saw."""

import json
from collections.abc import Iterator
from typing import Any

from docs.pages.markdown import REFERENCE, short, table

GROWTH = REFERENCE / "growth.json"


def growth_parts() -> Iterator[str]:
    """Of the last run of `make bench-growth`."""
    yield "## How cost grows"
    if not GROWTH.is_file():
        yield "No run of `make bench-growth` is kept yet."
        return
    run: dict[str, Any] = json.loads(GROWTH.read_text(encoding="utf-8"))
    rows = []
    for axis, lines in run["axes"].items():
        for line in lines.values():
            growth = line["growth"]
            points = " · ".join(f"{n:,.0f}: {short(cost)}" for n, cost in line["points"])
            exponent = f"{growth['exponent']:.2f} ± {growth['error']:.2f}"
            verdict = line.get("each") or ("yes" if growth["is_log"] else "**no**")
            rows.append(
                (axis, f"{line['title']}, {line['unit']}", points, exponent, f"{growth['log_exponent']:.2f}", verdict)
            )
    yield table(("against", "what", "at the points", "exponent", "log n has", "no faster than log n"), rows)
    for axis, points in run.get("left_out", {}).items():
        yield f"Left out for want of time: {axis} {', '.join(f'{n:,}' for n in points)}."
    for axis in run["axes"]:
        yield f"![Cost against {axis}](growth_{axis}.svg)"
