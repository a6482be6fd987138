"""What a look at the overview and at the machine finds worth an alert. Each function decides, and asks nobody."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from peik.core.histogram import Histogram
from peik.ops.alert_machine import Disk, Memory
from peik.ops.alert_rule import Noticed
from peik.ops.overview_values import ConsumerLine, OverviewView

RATE_MINUTES = 10
RATE_MIN = 20  # letters that ended: of fewer, a share says nothing
READING_MS = 3_600_000  # a consumer that was not seen for longer is not slow, it is away
LATE_S = 5.0  # a process that wakes so late answers nobody in time


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
    if age_s > 1.5 * every_s:
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
