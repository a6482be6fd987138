"""What a soak found, for the docs: a JSON file of figures and, beside it, the plots. docs/generate.py makes a page of them."""

import json
from pathlib import Path
from typing import Any

from peik.load.report import plot, this_machine
from proofs.soak.judge import Found
from proofs.soak.plan import Plan


def keep(path: Path, plan: Plan, found: Found, *, made_on: str) -> None:
    machine = this_machine("sqlite")
    about: dict[str, Any] = {
        "made_on": made_on,
        "minutes": round(plan.for_s / 60, 1),
        "bots": plan.bots,
        "lanes": plan.bots * plan.lanes,
        "people": plan.bots * plan.people,
        "kill_every_s": plan.kill_every_s,
        "machine": f"{machine.system}, {machine.cores} cores, Python {machine.python}",
    }
    document = {"about": about, "figures": found.figures, "lives": found.lives, "broken": found.broken}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, drawn in drawings(found).items():
        path.with_name(f"{path.stem}-{name}.svg").write_text(drawn + "\n", encoding="utf-8")


def drawings(found: Found) -> dict[str, str]:
    """By name. A life is a line of its own, so that a plot shows each death."""
    marks = found.marks
    lines = {
        kind: {
            name.removeprefix(f"{kind} of "): points for name, points in found.series.items() if name.startswith(kind)
        }
        for kind in ("memory", "handles")
    }
    return {
        "memory": plot("Memory of the server, life by life", lines["memory"], unit="MiB", marks=marks),
        "handles": plot("Open handles of the server, life by life", lines["handles"], unit="handles", marks=marks),
        "letters": plot(
            "Letters delivered, a second", {"delivered": found.series["delivered"]}, unit="per s", marks=marks
        ),
        "waiting": plot("Letters that wait", {"waiting": found.series["waiting"]}, unit="letters", marks=marks),
    }
