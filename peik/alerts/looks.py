"""What a look at the overview and at the machine finds worth an alert. Each function decides, and asks nobody."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from peik.alerts.rules import Noticed
from peik.monitoring.values import ConsumerLine, Histogram, OverviewView

# The machine that this node runs on: how much of its disks is free, and how much of its memory is in use.


_UNLIMITED = 1 << 60  # cgroup v1 says so with a number next to 2**63


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    total: int
    free: int  # for us: some is kept for root

    @property
    def free_percent(self) -> float:
        return 100.0 * self.free / self.total if self.total else 100.0


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    of: str  # the container, or the machine
    total: int
    used: int

    @property
    def used_percent(self) -> float:
        return 100.0 * self.used / self.total


def disks_of(paths: Iterable[Path]) -> list[Disk]:
    """Each disk once, by the first folder that lies on it. A folder that is not there yet is where its parent is."""
    found: dict[int, Disk] = {}
    for path in paths:
        there = next((one for one in (path, *path.parents) if one.exists()), None)
        if there is None:
            continue
        try:
            device, told = there.stat().st_dev, os.statvfs(there)
        except OSError:
            continue  # it went meanwhile, or may not be looked at
        found.setdefault(
            device, Disk(path=str(path), total=told.f_blocks * told.f_frsize, free=told.f_bavail * told.f_frsize)
        )
    return list(found.values())


def memory_of(root: Path = Path("/")) -> Memory | None:
    """Of the container if it has a limit, else of the machine. None: it cannot be known here."""
    machine = _machine(root)
    container = _cgroup_2(root) or _cgroup_1(root)
    if container is not None and (machine is None or container.total < machine.total):
        return container
    return machine


def _machine(root: Path) -> Memory | None:
    text = _text(root / "proc/meminfo")
    if text is None:
        return None
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        figure = rest.split()[:1]
        if figure and figure[0].isdecimal():
            sizes[name] = int(figure[0]) * 1024
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    return None if not total or available is None else Memory(of="the machine", total=total, used=total - available)


def _cgroup_2(root: Path) -> Memory | None:
    """The narrowest limit on the way from this process's group to the root, whose files are all that a container sees."""
    line = next((one for one in (_text(root / "proc/self/cgroup") or "").splitlines() if one.startswith("0::")), "0::/")
    top = root / "sys/fs/cgroup"
    own = top / line.removeprefix("0::").lstrip("/")
    found = []
    for folder in (own, *own.parents):
        limit, used = _figure(folder / "memory.max"), _figure(folder / "memory.current")
        if limit and used is not None:
            used -= _stat(folder / "memory.stat", "inactive_file")
            found.append(Memory(of="the container", total=limit, used=max(0, used)))
        if folder == top:
            break
    return max(found, key=lambda one: one.used_percent, default=None)


def _cgroup_1(root: Path) -> Memory | None:
    folder = root / "sys/fs/cgroup/memory"
    limit, used = _figure(folder / "memory.limit_in_bytes"), _figure(folder / "memory.usage_in_bytes")
    if not limit or used is None or limit >= _UNLIMITED:
        return None
    used -= _stat(folder / "memory.stat", "total_inactive_file")
    return Memory(of="the container", total=limit, used=max(0, used))


def _stat(path: Path, name: str) -> int:
    """What the kernel would give back at once is not in use."""
    for line in (_text(path) or "").splitlines():
        key, _, figure = line.partition(" ")
        if key == name and figure.isdecimal():
            return int(figure)
    return 0


def _figure(path: Path) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None


RATE_MINUTES = 10
RATE_MIN = 20  # letters that ended: of fewer, a share says nothing
READING_MS = 3_600_000  # a consumer that was not seen for longer is not slow, it is away
LATE_S = 5.0  # a process that wakes so late answers nobody in time
BACKUP_LATE = 1.5  # times the usual: one may be under way


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """From when on it is worth an alert. The settings PEIK_ALERT_… are these."""

    disk_percent: float = 10.0
    memory_percent: float = 80.0
    slow_s: float = 30.0
    dead: int = 50
    wait_s: float = 600.0
    failures_percent: float = 20.0


def disks(found: Sequence[Disk], most: Thresholds) -> Iterator[Noticed]:
    for disk in found:
        if disk.free_percent < most.disk_percent:
            words = f"{disk.free_percent:.1f} % of the disk under {disk.path} is free ({_size(disk.free)} of {_size(disk.total)})"
            yield Noticed(rule="disk", subject=disk.path, words=words)


def memory(found: Memory | None, most: Thresholds) -> Iterator[Noticed]:
    if found is not None and found.used_percent > most.memory_percent:
        words = f"{found.used_percent:.0f} % of the memory of {found.of} is in use ({_size(found.used)} of {_size(found.total)})"
        yield Noticed(rule="memory", subject=found.of, words=words)


def late(late_s: float, node: str) -> Iterator[Noticed]:
    if late_s > LATE_S:
        words = f"node {node} was busy for {late_s:.0f} s and answered nobody in that time"
        yield Noticed(rule="slow", subject=f"node {node}", words=words)


def slow_doors(lately: Mapping[str, Histogram], node: str, most: Thresholds) -> Iterator[Noticed]:
    for door, took in sorted(lately.items()):
        slowest_s = took.percentile(95)
        if slowest_s is not None and slowest_s > most.slow_s:
            words = f"node {node} answers slowly: a twentieth of the requests at the {door} door take more than {most.slow_s:g} s"
            yield Noticed(rule="slow", subject=f"node {node} {door}", words=words)


def dead_letters(view: OverviewView, most: Thresholds) -> Iterator[Noticed]:
    if view.letters.failed > most.dead:
        worst = max(view.bots, key=lambda bot: bot.letters.failed, default=None)
        whose = "" if worst is None else f", {worst.letters.failed} of them of bot {worst.bot_id}"
        yield Noticed(rule="dead-letters", subject="all", words=f"there are {view.letters.failed} dead letters{whose}")


def failures(view: OverviewView, most: Thresholds) -> Iterator[Noticed]:
    points = view.last_hour[-RATE_MINUTES:]
    failed, ended = sum(one.failed for one in points), sum(one.failed + one.delivered for one in points)
    if ended >= RATE_MIN and 100 * failed > most.failures_percent * ended:
        words = f"{failed} of the {ended} letters that ended within {RATE_MINUTES} minutes failed"
        yield Noticed(rule="failures", subject="all", words=words)


def delays(view: OverviewView, most: Thresholds) -> Iterator[Noticed]:
    measured = view.now.end_to_end
    if measured is not None and measured.p95_s > most.wait_s:
        words = (
            f"of what was delivered just now, a twentieth had waited for more than {measured.p95_s / 60:.0f} minutes"
        )
        yield Noticed(rule="delays", subject="all", words=words)


def slow_calls(view: OverviewView, most: Thresholds) -> Iterator[Noticed]:
    measured = view.now.tries
    if measured is not None and measured.p95_s > most.slow_s:
        words = f"Telegram answers slowly: a twentieth of the calls take more than {measured.p95_s:.0f} s"
        yield Noticed(rule="slow", subject="telegram", words=words)


def slow_consumers(view: OverviewView, most: Thresholds) -> Iterator[Noticed]:
    for line in view.inbox:
        for one in line.consumers:
            waited_s = _waited_s(view, one)
            if waited_s > most.slow_s:
                words = (
                    f"bot {line.bot_id}: consumer {one.name} does not keep up: its oldest update has waited for "
                    f"{waited_s:.0f} s, and {one.open} wait"
                )
                yield Noticed(rule="slow", subject=f"{line.bot_id} {one.name}", words=words)


def jobs_stuck(view: OverviewView) -> Iterator[Noticed]:
    for kind, tally in view.jobs.items():
        if tally.waiting and not tally.active:
            words = f"{tally.waiting} jobs of the kind {kind} wait, and none of it runs"
            yield Noticed(rule="jobs-stuck", subject=kind, words=words)


def stuck(view: OverviewView, unchanged_s: dict[int, float], most: Thresholds, *, calm_s: float) -> Iterator[Noticed]:
    """`unchanged_s`: for how long the oldest letter of a bot has been the same. One after the other may be old by itself:
    they were to be sent later."""
    for bot in view.bots:
        if bot.oldest_waiting_ms is None or bot.paused is not None or unchanged_s.get(bot.bot_id, 0.0) < calm_s:
            continue
        waited_s = (view.at_ms - bot.oldest_waiting_ms) / 1000
        if waited_s > most.wait_s:
            words = (
                f"the oldest letter of bot {bot.bot_id} has waited for {waited_s / 60:.0f} minutes; "
                f"{bot.letters.waiting + bot.letters.active} wait"
            )
            yield Noticed(rule="stuck", subject=str(bot.bot_id), words=words)


def backup(last_ms: int | None, *, every_s: float, started_ms: int, now_ms: int) -> Iterator[Noticed]:
    """A backup may take its time, and be late. Of one that was never made, the start of this process counts."""
    age_s = (now_ms - (started_ms if last_ms is None else last_ms)) / 1000
    if age_s > BACKUP_LATE * every_s:
        when = (
            "there is no good backup yet"
            if last_ms is None
            else f"the last good backup is {age_s / 3600:.0f} hours old"
        )
        yield Noticed(
            rule="backup", subject="all", words=f"{when}; there should be one every {every_s / 3600:.3g} hours"
        )


def weak(found: Sequence[str]) -> Iterator[Noticed]:
    for what in found:
        words = f"a setting of the store breaks the promise that what was accepted outlives a power cut: {what}"
        yield Noticed(rule="store-weak", subject=what, words=words)


def _waited_s(view: OverviewView, one: ConsumerLine) -> float:
    """Of a consumer that reads. Of one that does not, others tell (`consumer-away`, `unread`)."""
    is_seen = one.seen_at_ms is not None and view.at_ms - one.seen_at_ms < READING_MS
    is_reading = one.kind in ("push", "handler") or (one.kind != "none" and is_seen)
    if one.oldest_open_at_ms is None or not is_reading:
        return 0.0
    return (view.at_ms - one.oldest_open_at_ms) / 1000


def _size(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
