"""What the simulated Telegram's ledger and the store say in the end, held against what was accepted and done."""

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from proofs.nodes.callers import Callers, Waiters
from proofs.nodes.cluster import Cluster
from proofs.nodes.deeds import Deed
from tests.processes.programs import Sim

IN_FLIGHT_S = 0.25  # what a killed node had sent is at Telegram by then
PAGE = 1000
AROUND_S = 2.0
LIMITED_MAX = 0.001  # of all requests


class Sent(msgspec.Struct, frozen=True):
    at: float
    bot_id: int
    chat_id: int
    text: str


class Letter(msgspec.Struct, frozen=True):
    text: str
    state: str
    uncertain_tries: int


async def ledger(sim: Sim) -> list[Sent]:
    """Everything that chats have got, in order."""
    found: list[Sent] = []
    after = 0
    while page := (await sim.get("sent", after=after, limit=20_000))["deliveries"]:
        found += [Sent(one["at"], one["bot_id"], one["chat_id"], one["text"]) for one in page]
        after = page[-1]["number"]
    return found


async def letters(cluster: Cluster) -> dict[str, Letter]:
    """Every letter in the store by its id, as one node tells it."""
    found: dict[str, Letter] = {}
    node = cluster.healthy()[0]
    cursor: str | None = ""
    while cursor is not None:
        page = await node.get(f"/v1/letters?limit={PAGE}{f'&cursor={cursor}' if cursor else ''}")
        for one in page["letters"]:
            found[one["id"]] = Letter(one["params"]["text"], one["state"], one["uncertain_tries"])
        cursor = page["next_cursor"]
    return found


class Verdict(msgspec.Struct, kw_only=True):
    figures: dict[str, Any]
    broken: list[str]


async def judge(sim: Sim, cluster: Cluster, callers: Callers, waiters: Waiters, deeds: Sequence[Deed]) -> Verdict:
    sent = await ledger(sim)
    stored = await letters(cluster)
    counters = await sim.get("counters")
    surprises = [line for node in cluster.nodes for line in node.output if "surprise" in line or "Traceback" in line]
    figures: dict[str, Any] = (
        _promises(sent, stored, callers)
        | _limits(sent, counters)
        | {"surprises in logs": len(surprises)}
        | _repeats(sent, deeds)
        | _service(sent, deeds)
        | _waiting(sent, waiters)
        | {
            "leases taken": sum(node.told("+ acts for more bots", "taken") for node in cluster.nodes),
            "leases let go": sum(node.told("# left bots to other nodes", "let_go") for node in cluster.nodes),
            "leases lost": sum(
                node.told("! another node has taken bots from this one", "lost") for node in cluster.nodes
            ),
            "requests of callers": callers.requests,
            "asked again with the same key": callers.repeated,
        }
    )
    must_be_none = (
        "lost", "accepted and not in the store", "accepted twice", "not completed", "lanes out of order",
        "repeats without an uncertain try", "refused by a node", "surprises in logs",
    )  # fmt: skip
    broken = [name for name in must_be_none if figures[name]]
    if figures.get("crash loop: bots unserved, median", 0) > -(-len(cluster.bots) // len(cluster.nodes)):
        broken.append("a node in a crash loop kept others from serving")
    if figures["answered 429"] > LIMITED_MAX * figures["requests at Telegram"]:
        broken.append("answered 429")
    return Verdict(figures=figures, broken=broken + surprises[:5] + callers.refused[:5])


def _promises(sent: Sequence[Sent], stored: dict[str, Letter], callers: Callers) -> dict[str, Any]:
    arrived = Counter(one.text for one in sent)
    tries: Counter[str] = Counter()
    for letter in stored.values():
        tries[letter.text] += letter.uncertain_tries
    first: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
    for one in sent:
        first[one.bot_id, one.chat_id].setdefault(one.text)
    return {
        "accepted": len(callers.accepted),
        "letters in the store": len(stored),
        "delivered": len(arrived),
        "lost": sum(not arrived[letter.text] for letter in stored.values()),
        "accepted and not in the store": sum(letter_id not in stored for letter_id in callers.accepted.values()),
        "accepted twice": len(stored) - len({letter.text for letter in stored.values()}),
        "not completed": sum(letter.state != "completed" for letter in stored.values()),
        "lanes out of order": sum(list(first[lane]) != texts for lane, texts in callers.lanes.items()),
        "uncertain tries": sum(tries.values()),
        "arrived twice": sum(count - 1 for count in arrived.values()),
        "repeats without an uncertain try": sum(count - 1 > tries[text] for text, count in arrived.items()),
        "refused by a node": len(callers.refused),
    }


def _repeats(sent: Sequence[Sent], deeds: Sequence[Deed]) -> dict[str, Any]:
    """By what was done last to the node of the bot before a letter arrived once more."""
    seen: set[str] = set()
    blamed: Counter[str] = Counter()
    for one in sent:
        if one.text in seen:
            before = [deed.kind for deed in deeds if deed.at < one.at and one.bot_id in deed.bots]
            blamed[before[-1] if before else "nothing"] += 1
        seen.add(one.text)
    return {f"arrived twice, after: {kind}": count for kind, count in blamed.items()}


def _limits(sent: Sequence[Sent], counters: dict[str, Any]) -> dict[str, Any]:
    """429s, and the densest moments as Telegram saw them."""
    bots: dict[Any, list[float]] = defaultdict(list)
    chats: dict[Any, list[float]] = defaultdict(list)
    for one in sent:
        bots[one.bot_id].append(one.at)
        chats[one.bot_id, one.chat_id].append(one.at)
    return {
        "requests at Telegram": sum(counters["answers"].values()),
        "answered 429": counters["limited"],
        "most of one bot in a second": most_within(bots.values(), 1.0),
        "most of one bot in ten seconds": most_within(bots.values(), 10.0),
        "most to one chat in ten seconds": most_within(chats.values(), 10.0),
    }


def most_within(lines: Iterable[Sequence[float]], window_s: float) -> int:
    most = 0
    for times in lines:
        first = 0
        for last, at in enumerate(times):
            while times[first] <= at - window_s:
                first += 1
            most = max(most, last - first + 1)
    return most


def _service(sent: Sequence[Sent], deeds: Sequence[Deed]) -> dict[str, Any]:
    """How long the bots of a node were not served after what was done to it."""
    times: dict[int, list[float]] = defaultdict(list)
    for one in sent:
        times[one.bot_id].append(one.at)
    gaps: dict[str, list[float]] = defaultdict(list)
    beside: list[float] = []
    for deed in deeds:
        for bot in deed.bots:
            if deed.kind in ("drain", "stop"):
                gaps[deed.kind].append(_longest_gap(times[bot], deed))
            else:
                after = [at for at in times[bot] if at > deed.at + IN_FLIGHT_S]
                gaps[deed.kind].append(after[0] - deed.at if after else float("inf"))
        if deed.kind in ("drain", "stop"):
            beside += [_longest_gap(times[bot], deed) for bot in times if bot not in deed.bots]
    figures: dict[str, Any] = {}
    for kind, found in gaps.items():
        figures[f"{kind}: leases moved"] = len(found)
        figures[f"{kind}: seconds unserved, median"] = round(statistics.median(found), 2)
        figures[f"{kind}: seconds unserved, worst"] = round(max(found), 2)
    if beside:
        figures["bots of other nodes during drain and stop: seconds unserved, median"] = round(
            statistics.median(beside), 2
        )
        figures["bots of other nodes during drain and stop: seconds unserved, worst"] = round(max(beside), 2)
    for deed in deeds:
        if deed.unserved:
            figures[f"{deed.kind}: bots unserved, median"] = statistics.median(deed.unserved)
            figures[f"{deed.kind}: bots unserved, worst"] = max(deed.unserved)
        if not deed.bots and deed.kind.startswith("database"):
            after = [one.at for one in sent if one.at > deed.ended_at]
            figures.setdefault(f"{deed.kind}: seconds away", []).append(round(deed.ended_at - deed.at, 2))
            figures.setdefault(f"{deed.kind}: seconds until the next delivery", []).append(
                round(after[0] - deed.at, 2) if after else None
            )
    return figures


def _longest_gap(times: Sequence[float], deed: Deed) -> float:
    first, last = deed.at - AROUND_S, deed.ended_at + AROUND_S
    near = [first, *(at for at in times if first < at < last), last]
    return max(after - before for before, after in itertools.pairwise(near))


def _waiting(sent: Sequence[Sent], waiters: Waiters) -> dict[str, Any]:
    """From a delivery by one node until the answer of another, which a caller waited for."""
    delivered: dict[str, float] = {}  # the last one: a node that dies before it can settle leaves it to the next
    for one in sent:
        if one.at <= waiters.answered.get(one.text, 0.0):
            delivered[one.text] = one.at
    taken = [(waiters.answered[text] - at) * 1000 for text, at in delivered.items()]
    if not taken:
        return {"waiters answered": 0}
    return {
        "waiters answered": len(taken),
        "waiters: ms after the delivery elsewhere, median": round(statistics.median(taken), 1),
        "waiters: ms after the delivery elsewhere, 99 of 100": round(statistics.quantiles(taken, n=100)[98], 1),
        "waiters whose node was killed": waiters.unanswered,
    }
