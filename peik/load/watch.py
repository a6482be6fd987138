"""Looks at the server while it works: its memory, its open handles, what waits in it."""

import asyncio
import os
import time
from pathlib import Path

import msgspec

from peik.load.client import Client
from peik.load.slope import Sample

LOOK_S = 1.0
HAS_PROC = Path("/proc/self/statm").exists()
ASK_METRICS_S = 5.0  # of a Peik whose process is not ours to look at


class Stats(msgspec.Struct):
    waiting: int = 0
    active: int = 0
    delayed: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def unfinished(self) -> int:
        return self.waiting + self.active + self.delayed


class Watch:
    """Moments are seconds since `began_at`. A look that fails leaves a gap; whether Peik answers is the drive's to say."""

    def __init__(self, peik: Client, pid: int | None) -> None:
        """`pid` is that of a process of this machine; without one, Peik's own metrics are asked."""
        self._peik = peik
        self._pid = pid
        self._began_at = time.time()
        self.memory: list[Sample] = []
        self.handles: list[Sample] = []
        self.backlog: list[Sample] = []

    async def run(self) -> None:
        asked_at_s = -ASK_METRICS_S
        while True:
            now_s = time.time() - self._began_at
            if self._pid is not None and HAS_PROC:
                self._note(now_s, process_look(self._pid))
            elif now_s - asked_at_s >= ASK_METRICS_S:
                asked_at_s = now_s
                self._note(now_s, await self._metrics())
            stats = await stats_of(self._peik)
            if stats is not None:
                self.backlog.append((now_s, float(stats.unfinished)))
            await asyncio.sleep(LOOK_S)

    def _note(self, now_s: float, found: tuple[int, int] | None) -> None:
        if found is not None:
            self.memory.append((now_s, float(found[0])))
            self.handles.append((now_s, float(found[1])))

    async def _metrics(self) -> tuple[int, int] | None:
        reply = await self._peik.ask("GET", "/metrics")
        if reply.status != 200:
            return None
        lines = dict(line.rsplit(" ", 1) for line in reply.body.decode().splitlines() if line.startswith("process_"))
        try:
            return int(float(lines["process_resident_memory_bytes"])), int(float(lines["process_open_fds"]))
        except (KeyError, ValueError):  # not every system tells
            return None


def process_look(pid: int) -> tuple[int, int] | None:
    """Resident bytes and open handles of a process of this machine. None: it has ended, or is not ours."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  only counted
    except (OSError, IndexError):
        return None


async def stats_of(peik: Client) -> Stats | None:
    """None: it does not answer just now."""
    reply = await peik.ask("GET", "/v1/stats")
    return msgspec.json.decode(reply.body, type=Stats) if reply.status == 200 else None
