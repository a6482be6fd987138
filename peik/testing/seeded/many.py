"""Many lives at once, in processes of their own."""

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context

import msgspec

from peik.testing.seeded.drawing import Kind
from peik.testing.seeded.play import Life, play

CHUNK = 10  # seeds in one piece of work
AHEAD = 3  # pieces in hand for each process
PIECES_PER_PROCESS = 50  # then it makes room for a fresh one


def lives(seeds: Sequence[int], deeds: int, jobs: int, *, kind: Kind | None = None) -> Iterator[Life]:
    """Every life, as it ends; each of the seed's own kind if none is named. Logs only of those that went wrong: they are long."""
    chunks = (list(seeds[start : start + CHUNK]) for start in range(0, len(seeds), CHUNK))
    context = get_context("forkserver")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=PIECES_PER_PROCESS) as pool:
        running: set[Future[list[Life]]] = set()
        while True:
            running |= {
                pool.submit(_chunk, chunk, deeds, kind) for chunk in islice(chunks, jobs * AHEAD - len(running))
            }
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield from future.result()


def _chunk(seeds: Sequence[int], deeds: int, kind: Kind | None) -> list[Life]:
    gc.freeze()  # every life ends with a collection, which need not look at what the process itself is made of
    played = [play(seed, deeds=deeds, kind=kind) for seed in seeds]
    return [life if life.wrong else msgspec.structs.replace(life, log=[], story=[]) for life in played]
