"""Plays the life of one seed: deeds, then calm, then the verdict. The same seed gives the same log, to the byte."""

import asyncio
import hashlib
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from peik.testing.virtual import Standstill, VirtualClock
from simulation.drawing import Kind, drawn, kind_of
from simulation.judge import draft_verdict
from simulation.judge import verdict as arrivals_verdict
from simulation.processes import WorldLoop, bring_to_an_end, run_world
from simulation.server_world import ServerWorld
from simulation.world import World

DEEDS = 30
LOOK_S = 5.0


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """How a seed went. `deeds` are the places of those that were done."""

    seed: int
    kind: Kind = Kind.FILE
    wrong: list[str]
    deeds: list[int]
    story: list[str]  # the deeds, by name and time
    log: list[str]
    counts: dict[str, int]
    digest: str


def play(
    seed: int,
    *,
    deeds: int = DEEDS,
    only: Collection[int] | None = None,
    folder: Path | None = None,
    kind: Kind | None = None,
) -> Life:
    """One life, of the seed's own kind if none is named. With `only`, just the deeds at these places are done; the others'
    chance is not touched by that."""
    kind = kind or kind_of(seed)
    place = Path(tempfile.mkdtemp(prefix="peik-world-", dir=folder or _fast_folder()))
    told: list[World] = []
    try:
        return run_world(lambda loop, clock: _live(loop, clock, place, seed, deeds, only, told, kind))
    except Standstill as error:
        life = _life(told[0], [*told[0].judge.wrong, str(error)])
        told.clear()
        bring_to_an_end()
        return life
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _fast_folder() -> Path | None:
    """The simulated disk decides what is durable; the real one below it need not be slow."""
    memory = Path("/dev/shm")  # noqa: S108
    return memory if memory.is_dir() else None


async def _live(
    loop: WorldLoop,
    clock: VirtualClock,
    folder: Path,
    seed: int,
    deeds: int,
    only: Collection[int] | None,
    told: list[World],
    kind: Kind,
) -> Life:
    world = (ServerWorld if kind is Kind.SERVER else World)(loop, clock, folder, seed)
    told.append(world)
    with world.running():
        try:
            await world.start()
            for number in range(deeds):
                if only is not None and number not in only:
                    continue
                deed, chance = drawn(seed, number, kind)
                world.deeds.append(number)
                world.story.append(f"{clock.mono():12.3f} {number:3d} {deed.__name__}")
                world.note(f"* {deed.__name__}")
                await deed(world, chance)
                world.look()
                if world.judge.wrong:
                    break
            if not world.judge.wrong:
                await _come_to_rest(world)
            if not world.judge.wrong:
                _judge(world)
        except Exception as error:  # noqa: BLE001  the world itself is wrong, and says so
            world.judge.note("".join(traceback.format_exception(error)))
    told.clear()
    return _life(world, world.judge.wrong)


def _life(world: World, wrong: list[str]) -> Life:
    return Life(
        seed=world.seed,
        kind=Kind.SERVER if isinstance(world, ServerWorld) else Kind.FILE,
        wrong=list(wrong),
        deeds=list(world.deeds),
        story=list(world.story),
        log=list(world.log),
        counts=_counts(world),
        digest=hashlib.sha256("\n".join(world.log).encode()).hexdigest(),
    )


async def _come_to_rest(world: World) -> None:
    """All faults are over. Whatever is still owed ends within a bounded time."""
    world.note("* calm")
    world.calm()
    await asyncio.sleep(LOOK_S)
    await world.mend()
    # What was scheduled by a clock that was ahead waits until the clock is there again.
    calm_s = world.calm_s + (world.jump_s_max if world.judge.has_jumped else 0.0)
    until = world.clock.mono() + calm_s
    while left := list(world.owed()):
        if world.judge.wrong:
            return
        if world.clock.mono() > until:
            world.judge.note(f"not at rest after {calm_s / 3600:g} calm hours: {'; '.join(left[:5])}")
            return
        await asyncio.sleep(LOOK_S)
    for node in world.nodes:
        await node.stop()


def _judge(world: World) -> None:
    world.look()
    world.judge.wrong += world.judge.verdict(deaths=world.deaths)
    for draft in world.drafts:
        dialog = world.telegram.bot(draft.bot_id).dialogs.get(draft.chat)
        world.judge.wrong += draft_verdict(draft, world.witness, {} if dialog is None else dialog.messages)
    handed_all = world.settings["missed"] == "process"
    for program in world.programs:
        queue = world.queues[program.bot_id]
        world.judge.wrong += arrivals_verdict(queue, world.witness, program, handed_all=handed_all)


def _counts(world: World) -> dict[str, int]:
    counts: Counter[str] = Counter({name: count for name, count in world.counts.items() if name[0].islower()})
    counts["letters"] = len(world.promises)
    counts["accepted"] = sum(one.acked_at is not None for one in world.promises)
    counts["delivered"] = sum(bool(one.deliveries) for one in world.promises)
    counts["repeats"] = world.judge.repeats
    counts["requests"] = world.tally.requests
    counts["lost requests"] = world.tally.lost_requests + world.telegram.counters.lost_before
    counts["lost replies"] = world.tally.lost_answers + world.telegram.counters.lost_after
    counts["refused connections"] = world.tally.refused
    counts["updates"] = sum(len(queue.all) for queue in world.queues.values())
    counts["updates handed on"] = sum(len(one.handed) for one in world.programs)
    counts["updates handed on again"] = sum(sum(one.handed.values()) - len(one.handed) for one in world.programs)
    counts["lost writes"] = world.disk.lost_writes + world.disk.torn_writes
    return dict(counts)


# Finds a shorter story that still goes wrong: leaves out deeds as long as something stays wrong without them.


RUNS_MAX = 150


def shrunk(life: Life, *, replay: Callable[[int, Sequence[int]], Life] | None = None, runs_max: int = RUNS_MAX) -> Life:
    """The shortest life of the same seed that was found. Halves first, then quarters, down to single deeds."""
    again = replay or (lambda seed, only: play(seed, only=only, kind=life.kind))
    best = life
    runs = 0
    size = max(1, len(best.deeds) // 2)
    while size:
        is_shorter = False
        for start in range(0, len(best.deeds), size):
            if runs >= runs_max:
                return best
            kept = best.deeds[:start] + best.deeds[start + size :]
            if len(kept) == len(best.deeds):
                continue
            runs += 1
            shorter = again(life.seed, kept)
            if shorter.wrong:
                best = shorter
                is_shorter = True
                break  # the places have moved: begin anew at this size
        if not is_shorter:
            size //= 2
    return best
