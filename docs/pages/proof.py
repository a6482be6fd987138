"""The seeded world and the mutants: what their last long runs saw."""

import json
from collections.abc import Iterator
from typing import Any

from docs.pages.markdown import DOCS, code, table

WORLD = DOCS / "world.json"
MUTANTS = DOCS / "mutants.json"
_SHOWN = (
    "letters",
    "accepted",
    "delivered",
    "repeats",
    "updates",
    "updates handed on",
    "updates handed on again",
    "requests",
)


def proof_parts() -> Iterator[str]:
    """Of the last long run of the world, and of the mutants; both wrote down what they saw."""
    world: dict[str, Any] = json.loads(WORLD.read_text(encoding="utf-8"))
    yield "## Lives"
    yield (
        f"`make world SEEDS={world['seeds']}`: {world['seeds']:,} [lives](../world.md) of {world['deeds']} actions each, "
        f"{world['wrong']} with a broken invariant."
    )
    if world["replayed"]:
        yield (
            f"Seeds {', '.join(map(str, world['replayed']))} were called wrong in that run by mistakes of the judge itself; "
            "played again after its correction they are right."
        )
    counts = world["counts"]
    yield table(tuple(_SHOWN), [tuple(f"{counts[name]:,}" for name in _SHOWN)])
    yield table(("hurt by", "times"), [(name, f"{counts[name]:,}") for name in counts if name not in _SHOWN])
    yield "## Mutants"
    mutants: list[dict[str, Any]] = json.loads(MUTANTS.read_text(encoding="utf-8"))
    by_world = sum(one["caught_by"] == "world" for one in mutants)
    yield (
        f"`make mutants` plants {len(mutants)} bugs, one at a time, in a copy of the source. All are caught: {by_world} by a "
        f"seeded life, {len(mutants) - by_world} by the suites."
    )
    yield table(
        ("mutant", "the promise it breaks", "caught by"),
        [(code(one["name"]), one["promise"], _catcher(one)) for one in mutants],
    )


def _catcher(mutant: dict[str, Any]) -> str:
    if mutant["caught_by"] == "world":
        return str(mutant["where"])
    return code(mutant["where"].removeprefix("tests/"))
