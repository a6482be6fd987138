"""Many lives at once, in processes of their own."""

import gc
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context

import msgspec

from simulation.drawing import Kind
from simulation.play import Life, play

CHUNK = 10  # seeds in one piece of work
AHEAD = 3  # pieces in hand for each process
PIECES_PER_PROCESS = 50  # then it makes room for a fresh one
PIECE_S_MAX = 600.0  # a life takes about a second; in one that takes so long, time stands still


def lives(seeds: Sequence[int], deeds: int, jobs: int, *, kind: Kind | None = None) -> Iterator[Life]:
    """Every life, as it ends; each of the seed's own kind if none is named. Logs only of those that went wrong: they are long.
    Raises TimeoutError with the seeds in question if one does not end."""
    chunks = (list(seeds[start : start + CHUNK]) for start in range(0, len(seeds), CHUNK))
    # Fresh processes by a fresh pool: Python's own way, max_tasks_per_child, forgets at times to start one (gh-115634).
    while batch := list(islice(chunks, jobs * PIECES_PER_PROCESS)):
        yield from _played(batch, deeds, jobs, kind)


def _played(batch: list[list[int]], deeds: int, jobs: int, kind: Kind | None) -> Iterator[Life]:
    chunks = iter(batch)
    with ProcessPoolExecutor(jobs, mp_context=get_context("forkserver")) as pool:
        running: dict[Future[list[Life]], list[int]] = {}
        while True:
            for chunk in islice(chunks, jobs * AHEAD - len(running)):
                running[pool.submit(_chunk, chunk, deeds, kind)] = chunk
            if not running:
                return
            ended, _ = wait(running, timeout=PIECE_S_MAX, return_when=FIRST_COMPLETED)
            if not ended:
                _end(pool)
                hanging = ", ".join(f"{chunk[0]}-{chunk[-1]}" for chunk in running.values())
                raise TimeoutError(f"No life has ended for {PIECE_S_MAX:g} s. One of these seeds hangs: {hanging}.")
            for future in ended:
                del running[future]
                yield from future.result()


def _end(pool: ProcessPoolExecutor) -> None:
    """Without a wait for what hangs: leaving the pool would wait for ever."""
    for process in list(pool._processes.values()):  # noqa: SLF001  it gets a public way in Python 3.14
        process.kill()


def _chunk(seeds: Sequence[int], deeds: int, kind: Kind | None) -> list[Life]:
    gc.freeze()  # every life ends with a collection, which need not look at what the process itself is made of
    played = [play(seed, deeds=deeds, kind=kind) for seed in seeds]
    return [life if life.wrong else msgspec.structs.replace(life, log=[], story=[]) for life in played]
