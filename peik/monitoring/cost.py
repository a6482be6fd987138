"""What a letter and an update cost, as measured, and what so many of them a day need: nodes, cores, disk, network. Pure.

The figures are in `costs.json`, fitted by `python -m bench.cost` to what it measured; docs/planning.md shows them beside points
that were measured and not used for the fit.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from peik.monitoring.doctor import LETTERS, LOG_BYTES, PEAK
from peik.settings.values import StoreKind

DAY_S = 86_400
BUSIEST = PEAK * DAY_S  # the busiest minute beside the average one
UPDATES_PER_LETTER = 1 / LETTERS
LETTER_BYTES, UPDATE_BYTES = 250, 500  # of the parameters of a call, and of an update, as JSON
UTILIZATION = 0.6  # of a core; above it, whatever waits begins to pile up
# Where one server ends. Nobody has run these here: they are what such machines usually have.
POSTGRES_CORES = 16
POSTGRES_LOG_BYTES_PER_S = 200e6
REDIS_CORES = 1  # its commands run on one thread
REDIS_MEMORY_BYTES = 64e9
MONTH_DAYS = 30
BOT_PER_S = 30  # what Telegram lets one bot send
BLOAT = 1.3  # rows that are dead and not yet used again, and files that are not shrunk
WIRE_BYTES = 1_400  # heads and answers of one letter or update on its way in and out, beside its own bytes
WIRE_TIMES = 4  # those travel so often: to Peik, to the store, back from it, on to Telegram or the bot

_VOLUME = re.compile(r"(\d+(?:\.\d+)?)([kKMB]?)/(day|d|month|s)")
_TIMES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}


class Line(msgspec.Struct, frozen=True):
    """What each takes whatever its size, and what each thousand bytes of it take besides."""

    each: float
    per_kb: float

    def at(self, size_bytes: float) -> float:
        return self.each + self.per_kb * size_bytes / 1000


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Of a letter from its acceptance over HTTP until its end is stored, or of an update until its bot has it."""

    node_us: Line
    server_us: Line
    log_bytes: Line  # written to the store's log; of SQLite all that is written
    kept_bytes: Line  # for as long as it is kept


class StoreCosts(msgspec.Struct, frozen=True, kw_only=True):
    letter: Cost
    update: Cost

    def of(self, name: str, *, letter_bytes: float, update_bytes: float, updates: float) -> float:
        """One letter and so many updates."""
        letter, update = getattr(self.letter, name), getattr(self.update, name)
        return float(letter.at(letter_bytes) + updates * update.at(update_bytes))


@cache
def costs() -> Mapping[StoreKind, StoreCosts]:
    text = (files("peik.monitoring") / "costs.json").read_bytes()
    return msgspec.json.decode(text, type=dict[StoreKind, StoreCosts])


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Letters, on average and in the busiest minute."""

    text: str
    letters_per_day: float
    peak_per_s: float

    @property
    def average_per_s(self) -> float:
        return self.letters_per_day / DAY_S


class StoreDays(msgspec.Struct, frozen=True, kw_only=True):
    """For how long the settings keep letters, arrivals and lines of the message log."""

    letters: float = 7
    arrivals: float = 7
    log: float = 90


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of store needs for a demand."""

    store: StoreKind
    is_possible: bool
    clusters: int  # each with bots of its own
    nodes: int  # processes of Peik, over all clusters; each keeps one core busy
    node_cores: float  # in the busiest minute
    server_cores: float
    log_bytes_per_s: float
    written_bytes_per_day: float
    kept_bytes: float  # once everything is as old as it gets
    network_bits_per_s: float
    most_per_s: float  # letters of one cluster in the busiest minute, by what ends first
    ends_with: str


def read_demand(text: str) -> Demand | None:
    """None: it is no number of letters. `/s` is a rate that stays the same all day; a month has 30 days."""
    match = _VOLUME.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        return None
    number = float(match[1]) * _TIMES[match[2]]
    if match[3] == "s":
        return Demand(text=text.strip(), letters_per_day=number * DAY_S, peak_per_s=number)
    number /= MONTH_DAYS if match[3] == "month" else 1
    return Demand(text=text.strip(), letters_per_day=number, peak_per_s=number * PEAK)


def bots_needed(demand: Demand) -> int:
    """Telegram's limit is what many meet first."""
    return math.ceil(demand.peak_per_s / BOT_PER_S)


def plans(demand: Demand, days: StoreDays | None = None) -> list[Plan]:
    return [_plan(demand, store, days or StoreDays()) for store in costs()]  # those that were measured


def advised(found: Sequence[Plan]) -> Plan:
    """The first that needs one cluster only; else PostgreSQL, which keeps on disks what Redis keeps in memory."""
    one = next((plan for plan in found if plan.is_possible and plan.clusters == 1), None)
    return one or next(plan for plan in found if plan.store is StoreKind.POSTGRES)


def _plan(demand: Demand, store: StoreKind, days: StoreDays) -> Plan:
    cost, peak = costs()[store], demand.peak_per_s

    def each(name: str) -> float:
        return cost.of(name, letter_bytes=LETTER_BYTES, update_bytes=UPDATE_BYTES, updates=UPDATES_PER_LETTER)

    kept = demand.letters_per_day * (
        cost.letter.kept_bytes.at(LETTER_BYTES) * days.letters
        + UPDATES_PER_LETTER * cost.update.kept_bytes.at(UPDATE_BYTES) * days.arrivals
        + (0 if store is StoreKind.REDIS else LOG_BYTES * max(0.0, days.log - days.letters))
    )
    kept *= BLOAT
    ends = _ends(store, each, kept_per_letter_s=kept / peak)
    ends_with = min(ends, key=lambda what: ends[what])
    most = ends[ends_with]
    clusters = max(1, math.ceil(peak / most))
    cores = peak * each("node_us") / 1e6
    nodes = 1 if store is StoreKind.SQLITE else clusters * max(1, math.ceil(cores / clusters / UTILIZATION))
    return Plan(
        store=store,
        is_possible=store is not StoreKind.SQLITE or clusters == 1,
        clusters=clusters,
        nodes=nodes,
        node_cores=cores,
        server_cores=peak * each("server_us") / 1e6,
        log_bytes_per_s=peak * each("log_bytes"),
        written_bytes_per_day=demand.letters_per_day * each("log_bytes"),
        kept_bytes=kept,
        network_bits_per_s=8
        * peak
        * (WIRE_TIMES * (LETTER_BYTES + UPDATES_PER_LETTER * UPDATE_BYTES) + WIRE_BYTES * (1 + UPDATES_PER_LETTER)),
        most_per_s=most,
        ends_with=ends_with,
    )


def _ends(store: StoreKind, each: Callable[[str], float], *, kept_per_letter_s: float) -> dict[str, float]:
    """By what ends, how many letters a second one cluster takes until then."""
    match store:
        case StoreKind.SQLITE:
            return {"the one process that may act": UTILIZATION * 1e6 / each("node_us")}
        case StoreKind.POSTGRES:
            return {
                f"{POSTGRES_CORES} cores of the server": POSTGRES_CORES * UTILIZATION * 1e6 / each("server_us"),
                f"{POSTGRES_LOG_BYTES_PER_S / 1e6:.0f} MB/s of its log": POSTGRES_LOG_BYTES_PER_S / each("log_bytes"),
            }
        case StoreKind.REDIS:
            return {
                "the one core of the server": REDIS_CORES * UTILIZATION * 1e6 / each("server_us"),
                f"{REDIS_MEMORY_BYTES / 1e9:.0f} GB of memory": REDIS_MEMORY_BYTES / kept_per_letter_s,
            }


# ---- in words ----


def rows_of(demand: Demand, found: Sequence[Plan]) -> list[tuple[str, list[str]]]:
    """A line for each thing that is needed, with a cell for each plan. What is impossible stays empty."""

    def cells(of: Callable[[Plan], str]) -> list[str]:
        return [of(plan) if plan.is_possible else "" for plan in found]

    return [
        ("letters a second, average and busiest minute", [_pair(demand)] * len(found)),
        ("clusters", [str(plan.clusters) if plan.is_possible else "too much for it" for plan in found]),
        ("processes of Peik", cells(lambda plan: f"{plan.nodes:,}")),
        ("cores that Peik keeps busy", cells(lambda plan: _cores(plan.node_cores))),
        ("cores of servers", cells(lambda plan: _cores(plan.server_cores) if plan.server_cores else "none")),
        ("log written a second", cells(lambda plan: f"{_size(plan.log_bytes_per_s)}/s")),
        ("log written a day", cells(lambda plan: _size(plan.written_bytes_per_day))),
        ("kept, on disk or in Redis's memory", cells(lambda plan: _size(plan.kept_bytes))),
        ("network", cells(lambda plan: f"{_size(plan.network_bits_per_s, 'bit')}/s")),
        ("one cluster ends at, letters a second", [f"{_round(plan.most_per_s)}: {plan.ends_with}" for plan in found]),
    ]


def advice(demand: Demand, best: Plan) -> str:
    bots = bots_needed(demand)
    limit = f"Telegram lets one bot send {BOT_PER_S} messages a second: spread them over {bots:,} bots at least."
    if best.clusters > 1:
        return (
            f"Take {best.clusters} clusters, each with a PostgreSQL, {math.ceil(best.nodes / best.clusters)} processes of "
            f"Peik and its own share of the bots: they need to know nothing of each other. {limit}"
        )
    if best.store is StoreKind.SQLITE:
        one = "One process on SQLite, on one machine, is enough."
        return f"{one} {limit}" if bots > 1 else one
    return (
        f"Take {best.store} with {best.nodes} processes of Peik: peik serve --processes, or several machines. {limit}"
    )


def _pair(demand: Demand) -> str:
    return f"{_round(demand.average_per_s)} · {_round(demand.peak_per_s)}"


def _cores(cores: float) -> str:
    return "below 0.1" if cores < 0.1 else _round(cores)


def _round(number: float) -> str:
    """Two digits that count: more would claim too much."""
    return f"{float(f'{number:.2g}'):,.10g}"


def _size(number: float, unit: str = "B") -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if number < 999.5:
            return f"{_round(number)} {prefix}{unit}"
        number /= 1000
    return f"{_round(number)} P{unit}"
