"""The life of a letter, from the table of its moves."""

from docs.pages.markdown import code, table
from peik.core.letter import State
from peik.core.lifecycle import MOVES


def states_parts() -> list[str]:
    drawn = ["stateDiagram-v2", "    [*] --> waiting: accept", "    [*] --> delayed: accept, send_at"]
    for move, sources, target, _ in MOVES:
        drawn += [f"    {source} --> {target}: {move}" for source in sources]
    drawn += [f"    {state} --> [*]" for state in State if state.is_final]
    rows = [(f"**{move}**", ", ".join(map(code, sources)), code(target), when) for move, sources, target, when in MOVES]
    return [
        (
            "A letter is always in one of six states, the same at every door. Every change between them is one of the moves "
            "below, and a change that is not here cannot be made. `completed` and `cancelled` are for good; a `failed` letter "
            "is a dead letter, kept with its whole history until somebody retries it, resolves it or clears it."
        ),
        "```mermaid\n" + "\n".join(drawn) + "\n```",
        table(("move", "from", "to", "when"), rows),
    ]
