"""What bot libraries were seen to do, in the last run of tests/clients."""

import json
from collections.abc import Sequence
from typing import Any

from docs.pages.markdown import table

_ROUTE_WORDS = {
    "peik": (
        "## Through Peik",
        (
            "The API root is a Peik that has never heard of the bots. *Telegram dark*: gone for five seconds while people write; "
            "*Peik killed*: `kill -9`, and started again. Afterwards everybody who wrote had an answer."
        ),
    ),
    "direct": (
        "## Straight at Telegram",
        "The same programs with the simulated Telegram as their API root.",
    ),
}


def compatibility_page(recorded: str) -> str:
    """docs/compatibility.md, of what a run of tests/clients wrote down."""
    found: dict[str, Any] = json.loads(recorded)
    parts = [
        "*Written by `make compatibility` from a run of the tests. Do not edit this page.*",
        "# Bot libraries",
        (
            "Each row is a real bot, written as its library's own guide teaches. *yes*: seen in that run, with long polling and "
            "with a webhook. Calls without an answer are repeated; most libraries do that for polls only, and the program shows "
            "how the rest is done."
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
