"""What Peik does with each method."""

from docs.pages.markdown import code, table
from peik.core.methods import TARGETS, MethodClass, known_methods

_TREATMENT = {
    MethodClass.SEND: "Queued. A try that may have arrived is sent again (`on_uncertain: resend`).",
    MethodClass.MONEY: "Queued. Tried at most once unless the caller says otherwise (`on_uncertain: hold`).",
    MethodClass.CREATION: "Queued. Tried at most once unless the caller says otherwise (`on_uncertain: hold`).",
    MethodClass.WRITE: "Queued in the chat's lane, behind what was sent before it. Repeated unless the caller says `hold`.",
    MethodClass.ANSWER: "Straight through: worth nothing when late.",
    MethodClass.SIGNAL: "Straight through, never stored.",
    MethodClass.READ: "Straight through.",
    MethodClass.SESSION: "Peik's own: it answers them itself, from the inbox.",
}


def methods_parts() -> list[str]:
    known = known_methods()
    parts = [
        (
            "What Peik does with a call depends on the class of its method, at every door alike. Names are taken in any case. "
            "A method that is newer than this table is classed by its verb (`send…`, `get…`, `set…` and so on); one with a "
            "verb that Peik does not know goes straight through, so that a new Bot API works on its first day."
        ),
        table(
            ("class", "methods", "what Peik does"),
            [(kind.value, str(list(known.values()).count(kind)), _TREATMENT[kind]) for kind in MethodClass],
        ),
    ]
    for kind in MethodClass:
        names = sorted(name for name, of in known.items() if of is kind)
        parts += [f"## {kind.value.capitalize()}", _TREATMENT[kind], ", ".join(map(code, names))]
    merged = [(code(method), ", ".join(map(code, names))) for method, names in sorted(TARGETS.items())]
    return [
        *parts,
        "## Merged while waiting",
        (
            "A waiting call of these gives way to a newer one of the same method whose target, named by these parameters, is "
            "the same. The older one is `delayed`, with `merged_into`, until the newer ends: then it ends the same way, and "
            "whoever waits for it gets the newer one's result. If the newer is cancelled, or expires before it was sent, the "
            "older returns to its place."
        ),
        table(("method", "target"), merged),
    ]
