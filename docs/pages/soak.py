"""What the last soak saw."""

import json
from collections.abc import Iterator
from typing import Any

from docs.pages.markdown import REFERENCE, figure, table

SOAK = REFERENCE / "soak.json"


def soak_parts() -> Iterator[str]:
    """Of the last run of `make soak`, which wrote down what it saw and drew the plots beside it."""
    document: dict[str, Any] = json.loads(SOAK.read_text(encoding="utf-8"))
    about = document["about"]
    yield (
        f"[`make soak MINUTES={about['minutes']:g}`](../load.md#the-soak) on {about['made_on']}: {about['bots']} bots with "
        f"Telegram's limits on, {about['lanes']} lanes, {about['people']} people. A `kill -9` every {about['kill_every_s']:g} s "
        f"in the first half; then one long life. {about['machine']}, with everything on it."
    )
    broken = document["broken"]
    is_known = any(life["memory"]["verdict"] != "too short to say" for life in document["lives"])
    grown = "nothing grew" if is_known else "no life was long enough to say whether anything grew"
    yield f"No promise was broken, and {grown}." if not broken else f"Broken: {'; '.join(broken)}."
    yield "## Lives of the server"
    rows = [
        (str(life["life"]), f"{life['seconds']} s", *(f"{life[what]['words']}" for what in ("memory", "handles")))
        for life in document["lives"]
    ]
    yield table(("life", "lasted", "memory", "open handles"), rows)
    for name in ("memory", "handles", "letters", "waiting"):
        yield f"![{name}](soak-{name}.svg)"
    yield "## Everything that was counted"
    yield table(("what", "figure"), [(name, figure(value)) for name, value in document["figures"].items()])
