"""Every rule of the alerts."""

from typing import Any

from docs.pages.markdown import table
from peik.alerts.rules import RULES, AlertRule, Noticed


def alerts_parts() -> list[str]:
    rows = [
        (f"[`{rule.name}`](../runbook.md#{rule.name})", rule.means, _span(rule.repeat_s), _over(rule), rule.todo)
        for rule in RULES
    ]
    return [
        (
            "Every rule, from the table that Peik itself goes by. Each is told once, told again while it goes on, and told when "
            "it is over. `PEIK_ALERTS_OFF` silences a rule by its name. [Alerts](../alerts.md) says where they go; the "
            "[runbook](../runbook.md) has a section for each."
        ),
        table(("rule", "told when", "again after", "over", "what to do"), rows),
    ]


def _over(rule: AlertRule[Any]) -> str:
    if rule.is_moment:
        return "it happens, and is not told as over"
    if rule.event is Noticed:
        return "not found for a minute"
    return "when it is well again" if rule.lasts_s is None else f"not heard of for {_span(rule.lasts_s)}"


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds / size
            return f"{count:.0f} {unit}" + ("" if count == 1 else "s")
    return f"{seconds:.0f} s"
