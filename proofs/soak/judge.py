"""What came of it: the promises, letter by letter, and whether the server grew within its lives and over them."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from peik.load.plan import HANDLES, MEMORY, Sample, Trend, TrendRule, TrendVerdict, after_warm_up, theil_sen, trend
from proofs.nodes.judge import PAGE, Letter, Sent, ledger
from proofs.soak.traffic import Lane, Traffic
from proofs.soak.trouble import Life, Trouble
from tests.processes.programs import Server, Sim

LIVES_MIN = 6  # with fewer no slope is certain


class Found(msgspec.Struct, kw_only=True):
    figures: dict[str, Any]
    lives: list[dict[str, Any]]
    broken: list[str]
    series: dict[str, list[Sample]]
    marks: list[tuple[float, str]]


async def judge(server: Server, sim: Sim, traffic: Traffic, trouble: Trouble) -> Found:
    sent, stored, counters = await ledger(sim), await letters(server), await sim.get("counters")
    figures = promises(sent, stored, traffic.lanes)
    figures |= {
        "updates written": len(traffic.written),
        "updates lost": sum(not traffic.got[text] for text in traffic.written),
        "updates handed on again": sum(count - 1 for count in traffic.got.values()),
        "answers of bots": traffic.by_door["answer"],
    }
    surprises = [line for line in server.output if "surprise" in line or "Traceback" in line]
    requests = sum(counters["answers"].values())
    figures |= {f"letters by {door}": count for door, count in sorted(traffic.by_door.items()) if door != "answer"}
    figures |= {
        "asked again under the same key": traffic.asked_again,
        "requests at Telegram": requests,
        "answered 429 by Telegram's limits": counters["limited"],
        "surprises in logs": len(surprises),
        **{f"trouble: {kind}": count for kind, count in sorted(trouble.done.items())},
        **{f"faults that struck: {kind}": count for kind, count in sorted(counters["faults"].items())},
    }
    must_be_none = ("lost", "not completed", "accepted twice", "lanes out of order", "repeats without an uncertain try",
                    "updates lost", "surprises in logs")  # fmt: skip
    broken = [f"{name}: {figures[name]}" for name in must_be_none if figures[name]] + surprises[:5]
    lives, grown = of_lives(trouble.lives)
    return Found(
        figures=figures, lives=lives, broken=broken + grown, series=_series(sent, trouble), marks=trouble.marks
    )


def promises(sent: Sequence[Sent], stored: Sequence[Letter], lanes: dict[Lane, list[str]]) -> dict[str, Any]:
    arrived = Counter(one.text for one in sent)
    first: dict[Lane, dict[str, None]] = defaultdict(dict)
    for one in sent:
        first[one.bot_id, one.chat_id].setdefault(one.text)
    tries: Counter[str] = Counter()
    for letter in stored:
        tries[letter.text] += letter.uncertain_tries
    acknowledged = [text for texts in lanes.values() for text in texts]
    return {
        "accepted": len(acknowledged),
        "delivered": sum(text in arrived for text in acknowledged),
        "lost": sum(text not in arrived for text in acknowledged),
        "not completed": sum(letter.state != "completed" for letter in stored),
        "accepted twice": len(stored) - len({letter.text for letter in stored}),
        "lanes": len(lanes),
        "lanes out of order": sum(list(first[lane]) != texts for lane, texts in lanes.items()),
        "uncertain tries": sum(tries.values()),
        "arrived twice": sum(count - 1 for count in arrived.values()),
        "repeats without an uncertain try": sum(count - 1 > tries[text] for text, count in arrived.items()),
    }


async def letters(server: Server) -> list[Letter]:
    """Every letter in the store."""
    found: list[Letter] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await server.get(f"/v1/letters?limit={PAGE}{f'&cursor={cursor}' if cursor else ''}")
        found += [Letter(one["params"]["text"], one["state"], one["uncertain_tries"]) for one in page["letters"]]
        cursor = page["next_cursor"]
    return found


# ---- growth ----


def of_lives(lives: Sequence[Life]) -> tuple[list[dict[str, Any]], list[str]]:
    """Each life as it was, and what grew: within one, or from one to the next at the same age."""
    rows: list[dict[str, Any]] = []
    broken = []
    for number, life in enumerate(lives, start=1):
        memory, handles = trend(life.memory, MEMORY), trend(life.handles, HANDLES)
        rows.append({"life": number, "seconds": round(life.seconds), "memory": _row(memory), "handles": _row(handles)})
        for name, found in (("memory", memory), ("handles", handles)):
            if found.verdict is TrendVerdict.LEAK:
                broken.append(f"{name} grew in life {number}: {found.words}")
    for name, rule, samples in (
        ("memory", MEMORY, [life.memory for life in lives]),
        ("handles", HANDLES, [life.handles for life in lives]),
    ):
        if is_growing_over(samples, rule):
            broken.append(f"{name} grew from life to life")
    return rows, broken


def is_growing_over(lives: Sequence[Sequence[Sample]], rule: TrendRule) -> bool:
    """Whether later processes are larger at the same age. With fewer than six there is nothing to say."""
    whole = [samples for samples in lives if samples]
    if len(whole) < LIVES_MIN:
        return False
    shortest_s = min(samples[-1][0] for samples in whole)
    levels = []
    for samples in whole:
        # The first sample is always among them: a life may have been too short for a second.
        same_age = [*samples[:1], *(one for one in samples[1:] if one[0] <= shortest_s)]
        levels.append(statistics.median(value for _, value in after_warm_up(same_age, rule.warm_share)))
    slope, low, _ = theil_sen([(float(number), level) for number, level in enumerate(levels)])
    allowed = max(rule.allowed, rule.allowed_share * statistics.median(levels))
    return low > 0 and slope * (len(levels) - 1) > allowed


def _row(found: Trend) -> dict[str, Any]:
    return {"verdict": str(found.verdict), "words": found.words, "highest": round(found.highest, 1)}


# ---- plots ----


def _series(sent: Sequence[Sent], trouble: Trouble) -> dict[str, list[Sample]]:
    began_at = sent[0].at if sent else 0.0
    width_s = max(1.0, trouble.now_s / 150)
    counts = Counter(int((one.at - began_at) // width_s) for one in sent)
    delivered = [((n + 0.5) * width_s, counts[n] / width_s) for n in range(max(counts, default=-1) + 1)]
    found: dict[str, list[Sample]] = {"delivered": delivered, "waiting": _thin(trouble.waiting)}
    for number, life in enumerate(trouble.lives, start=1):
        found[f"memory of life {number}"] = [(life.began_s + age, value / 2**20) for age, value in _thin(life.memory)]
        found[f"handles of life {number}"] = [(life.began_s + age, value) for age, value in _thin(life.handles)]
    return found


def _thin(samples: Sequence[Sample]) -> list[Sample]:
    step = max(1, len(samples) // 150)
    return list(samples[::step])
