"""The seeded world and the mutants: what their last long runs saw."""

import json
from collections.abc import Iterator
from typing import Any

from docs.pages.markdown import DOCS, code, one_line, table
from simulation.deeds import DEEDS

WORLD = DOCS / "world.json"
MUTANTS = DOCS / "mutants.json"


def proof_parts() -> Iterator[str]:
    """Of the last long run of the world, and of the mutants; both wrote down what they saw."""
    world: dict[str, Any] = json.loads(WORLD.read_text(encoding="utf-8"))
    yield "What this is about: [the proof](../world.md)."
    yield "## The last long run"
    yield (
        f"`make world SEEDS={world['seeds']}`: {world['seeds']:,} lives of {world['deeds']} deeds each, "
        f"{world['wrong']} with a broken invariant."
    )
    if world["replayed"]:
        yield (
            f"Seeds {', '.join(map(str, world['replayed']))} were called wrong in that run by mistakes of the judge itself: it "
            "did not know of a clock that was set, or of a person who had sent dead letters again. Since those were mended, "
            "they were played again, and nothing is wrong with them."
        )
    rows = [(name, f"{count:,}", f"{count / world['seeds']:.1f}") for name, count in world["counts"].items()]
    yield table(("what", "in all", "in each life"), rows)
    yield "## What can happen"
    weights = sum(weight for weight, _ in DEEDS)
    yield table(
        ("deed", "of all", "what it is"),
        [
            (code(deed.__name__), f"{weight / weights:.0%}", (deed.__doc__ or "").strip().partition("\n")[0])
            for weight, deed in DEEDS
        ],
    )
    yield "## Mutants"
    mutants: list[dict[str, Any]] = json.loads(MUTANTS.read_text(encoding="utf-8"))
    by_world = sum(one["caught_by"] == "world" for one in mutants)
    yield (
        f"`make mutants` plants {len(mutants)} bugs, one at a time, in a copy of the source. All are caught: {by_world} by the "
        f"world, {len(mutants) - by_world} by the suites."
    )
    yield table(
        ("mutant", "the promise it breaks", "caught by"),
        [(code(one["name"]), one["promise"], _catcher(one)) for one in mutants],
    )


def _catcher(mutant: dict[str, Any]) -> str:
    if mutant["caught_by"] == "world":
        return f"{mutant['where']}: {one_line(mutant['words'])}"
    return code(mutant["where"].removeprefix("tests/"))
