"""What bot libraries were seen to do, in the last run of tests/clients."""

import json
from collections.abc import Sequence
from typing import Any

from docs.pages.markdown import table

_ROUTE_WORDS = {
    "peik": (
        "## Through Peik",
        (
            "The bots' API root is a Peik that has never heard of them; behind it is the simulated Telegram. In *Telegram dark* "
            "that is gone for five seconds while people write; in *Peik killed* Peik dies by `kill -9` and is started again. "
            "Afterwards everybody who wrote had an answer."
        ),
    ),
    "direct": (
        "## Straight at Telegram",
        "The same programs with the simulated Telegram as their API root: the measure for the table above.",
    ),
}


def compatibility_page(recorded: str) -> str:
    """docs/compatibility.md, of what a run of tests/clients wrote down."""
    found: dict[str, Any] = json.loads(recorded)
    parts = [
        "*Written by `make compatibility` from a run of the tests. Do not edit this page.*",
        "# Bot libraries",
        (
            "Each row is a real bot, written as its library's own guide teaches, and run in Peik's test suite with that version "
            "of the library. Only the API root differs between the tables. *yes* means: seen in that run, both with long polling "
            "and with a webhook. A call that gets no answer at all is made again by each bot; most libraries do that for their "
            "polls only, and the program shows how the rest is done."
        ),
    ]
    routes = next(iter(found.values()))["routes"]
    for route in sorted(routes, key=list(_ROUTE_WORDS).index):
        deeds = list(routes[route])
        rows = [
            (
                f"[{name}](../tests/clients/bots/{one['program']})",
                one["version"],
                *(_seen(one["routes"][route][deed]) for deed in deeds),
            )
            for name, one in found.items()
        ]
        parts += [*_ROUTE_WORDS[route], table(("library", "version", *deeds), rows)]
    return "\n\n".join(parts) + "\n"


def _seen(modes: Sequence[str]) -> str:
    return {0: "no", 1: f"only {'/'.join(modes)}", 2: "yes"}[len(modes)]
