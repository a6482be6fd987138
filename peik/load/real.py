"""A little load on the real Telegram: few letters, to one chat that is yours, by REST. What arrived is what Peik was told."""

import asyncio
import time

import msgspec

from peik.load.count import LoadCounts
from peik.load.place import LoadClient, decoded
from peik.load.plan import HANDLES, MEMORY, Latencies, trend
from peik.load.report import Result, broken_by, kinds_of, notes_on, this_machine
from peik.load.run import watched

PER_S, PER_S_MAX = 0.2, 0.5  # Telegram allows about one a second in a chat, and people read there
LETTERS_MAX = 600
WAIT_S = 20
PATIENCE_S = 300.0
TEXT = "peik load: letter {number} of {total}"


class _Receipt(msgspec.Struct):
    id: str


class _Letter(msgspec.Struct):
    state: str
    uncertain_tries: int


class RealFates:
    def __init__(self) -> None:
        self.states: list[str] = []
        self.uncertain_tries = 0
        self.accepting, self.delivering = Latencies(), Latencies()
        self.refusals: dict[str, int] = {}


async def run_real(url: str, *, key: str, chat: int | str, bot_id: int | None, per_s: float, for_s: float) -> Result:
    peik = LoadClient(url, key=key)
    total = min(LETTERS_MAX, max(1, round(per_s * for_s)))
    fates = RealFates()
    try:
        async with watched(peik, None) as watch, asyncio.TaskGroup() as group:
            began = time.monotonic()
            for number in range(total):
                due_s = number / per_s
                await asyncio.sleep(max(0.0, began + due_s - time.monotonic()))
                params = {"chat_id": chat, "text": TEXT.format(number=number + 1, total=total)}
                letter: dict[str, object] = {"method": "sendMessage", "params": params}
                if bot_id is not None:
                    letter["bot_id"] = str(bot_id)
                group.create_task(_follow(peik, letter, fates, began=began, due_s=due_s))
    finally:
        await peik.close()
    return _result(fates, watch.memory, watch.handles, total=total, per_s=per_s)


async def _follow(peik: LoadClient, letter: dict[str, object], fates: RealFates, *, began: float, due_s: float) -> None:
    reply = await peik.ask("POST", "/v1/letters", letter)
    if reply.status != 202:
        why = str(reply.fault or reply.status)
        fates.refusals[why] = fates.refusals.get(why, 0) + 1
        fates.states.append("unknown" if reply.fault is not None and reply.left else "refused")
        return
    fates.accepting.add(due_s=due_s, done_s=time.monotonic() - began)
    letter_id = msgspec.json.decode(reply.body, type=_Receipt).id
    found = _Letter(state="waiting", uncertain_tries=0)
    deadline = time.monotonic() + PATIENCE_S
    while found.state not in ("completed", "failed", "cancelled") and time.monotonic() < deadline:
        reply = await peik.ask("GET", f"/v1/letters/{letter_id}?wait={WAIT_S}s", timeout_s=WAIT_S + 30.0)
        if reply.status == 404:
            found = _Letter(state="lost", uncertain_tries=0)
            break
        found = decoded(reply, _Letter, "Peik")
    if found.state == "completed":
        fates.delivering.add(due_s=due_s, done_s=time.monotonic() - began)
    fates.states.append(found.state)
    fates.uncertain_tries += found.uncertain_tries


def _result(
    fates: RealFates, memory: list[tuple[float, float]], handles: list[tuple[float, float]], *, total: int, per_s: float
) -> Result:
    states, refused, unknown = fates.states, fates.states.count("refused"), fates.states.count("unknown")
    delivered, failed = states.count("completed"), states.count("failed") + states.count("cancelled")
    lost = states.count("lost")
    counts = LoadCounts(
        letters=total,
        accepted=total - refused - unknown,
        refused=refused,
        unknown=unknown,
        delivered=delivered,
        waiting=total - refused - unknown - delivered - failed - lost,
        failed=failed,
        lost=lost,
        doubled=0,
        uncertain_tries=fates.uncertain_tries,
        doubled_by_habit=0,
        updates=0,
        updates_lost=0,
        updates_doubled=0,
    )
    trends = trend(memory, MEMORY), trend(handles, HANDLES)
    unseen = (
        "What really arrived is not to be seen from here: delivered is what Telegram told Peik, and of what came twice only "
        f"the tries that may have caused it are known: {fates.uncertain_tries}."
    )
    return Result(
        machine=this_machine("of the running Peik"),
        seconds=total / per_s,
        letters_per_s=per_s,
        updates_per_s=0.0,
        bots=1,
        chats=1,
        delivered_per_s=delivered / (total / per_s),
        kinds=kinds_of((("REST request → accepted", fates.accepting), ("letter → delivered", fates.delivering))),
        counts=counts,
        refusals=fates.refusals,
        late=None,
        memory=trends[0],
        handles=trends[1],
        sizes_before={},
        sizes_after={},
        backlog_max=0,
        broken=broken_by(counts, (("memory", trends[0]), ("open handles", trends[1]))),
        notes=[*notes_on(None, counts), unseen],
        series={
            "accept, ms": [(at, 1000 * took) for at, took in fates.accepting],
            "delivered, ms": [(at, 1000 * took) for at, took in fates.delivering],
            "memory, MiB": [(at, value / 2**20) for at, value in memory],
        },
    )
