"""The machine that this node runs on: how much of its disks is free, and how much of its memory is in use."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

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
