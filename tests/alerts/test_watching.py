"""Looks at the overview and the machine: each finds what it is for, and nothing else."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from peik.alerts.looks import Disk, Memory, Thresholds, disks_of, memory_of
from peik.alerts.rules import BY_NAME, Noticed
from peik.alerts.service import AlertService
from peik.alerts.watch import GLOBAL, Watching
from peik.errors import StoreUnavailable
from peik.jobs.store import JobTally
from peik.monitoring.counts import Answering
from peik.monitoring.values import BotLine, ConsumerLine, InboxLine, OverviewView, Percentiles, Point
from peik.outbox.store import Tally
from tests.alerts.alerting import Ear, House, play_alerts

FINE = Disk(path="/var", total=100, free=50)
FULL = Disk(path="/var", total=100, free=9)
GB = 1024**3


def quiet(at_ms: int) -> OverviewView:
    point = Point(at_ms=at_ms, seconds=60)
    return OverviewView(
        at_ms=at_ms, node="a", letters=Tally(), oldest_waiting_ms=None, bots=(), now=point, hour=point, day=point,
        last_hour=(point,) * 60, last_day=(), routes=(), hosts=(), inbox=(), alerts=(), nodes=(), jobs={}, sessions=None,
        missing=(),
    )  # fmt: skip


class Place:
    """What there is to see."""

    def __init__(self, house: House, alerts: AlertService) -> None:
        self.house = house
        self.changes: dict[str, object] = {}
        self.disks: Sequence[Disk] = (FINE,)
        self.memory: Memory | None = None
        self.has_chores = True
        self.backup_ms: int | None = None
        self.is_down = False
        self.answering = Answering()
        self.watching = Watching(
            alerts=alerts,
            overview=self.overview,
            machine=lambda: (self.disks, self.memory),
            clock=house.clock,
            node="a",
            has_chores=lambda: self.has_chores,
            is_shared=False,
            thresholds=Thresholds(),
            answering=self.answering,
            backup_every_s=7200.0,
            last_backup_ms=self.last_backup_ms,
        )

    async def overview(self) -> OverviewView:
        return replace(quiet(self.house.clock.wall_ms()), **self.changes)

    async def last_backup_ms(self) -> int | None:
        if self.is_down:
            raise StoreUnavailable(code="store_failed", detail="It is down.")
        return self.backup_ms

    def bot(self, **tally: int) -> BotLine:
        return BotLine(bot_id=5, username=None, is_account=False, paused=None, letters=Tally(**tally))


def watch(tmp_path: Path, story: object) -> None:
    async def play(house: House) -> None:
        async with house.node() as (alerts, ear):
            place = Place(house, alerts)
            running = asyncio.create_task(place.watching.run())
            await story(place, alerts, ear)  # type: ignore[operator]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    play_alerts(play, tmp_path)


async def told(ear: Ear, alerts: AlertService, name: str, within_s: float) -> str:
    """It begins, once; it is shown; the text."""
    await asyncio.sleep(within_s + 30)
    assert ear.kinds == ["began"], ear.said
    assert [one.name for one in alerts.ongoing()] == [name]
    text = ear.said.pop().text
    assert f"docs/runbook.md#{name}." in text
    return text


async def over(ear: Ear, alerts: AlertService) -> None:
    await asyncio.sleep(100)
    assert ear.kinds == ["over"], ear.said
    assert alerts.ongoing() == []
    ear.said.clear()


def test_a_quiet_peik_is_no_alert(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        place.backup_ms = place.house.clock.wall_ms()
        await asyncio.sleep(7200)
        assert (ear.said, alerts.ongoing()) == ([], [])

    watch(tmp_path, story)


def test_a_full_disk_is_told_again_every_hour_until_there_is_room(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        place.disks = (FULL,)
        assert "9.0 % of the disk under /var is free" in await told(ear, alerts, "disk", 0)
        await asyncio.sleep(3600)
        assert ear.kinds == ["again"]
        ear.said.clear()
        place.disks = (FINE,)
        await over(ear, alerts)

    watch(tmp_path, story)


def test_memory_is_an_alert_only_when_it_stays_in_use(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        place.memory = Memory(of="the container", total=GB, used=GB * 9 // 10)
        await asyncio.sleep(40)
        place.memory = None
        await asyncio.sleep(120)
        assert ear.said == []
        place.memory = Memory(of="the container", total=GB, used=GB * 9 // 10)
        assert "90 % of the memory of the container is in use" in await told(ear, alerts, "memory", 60)
        place.memory = None
        await over(ear, alerts)

    watch(tmp_path, story)


def test_more_than_fifty_dead_letters(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        place.changes = {"letters": Tally(failed=50)}
        await asyncio.sleep(60)
        assert ear.said == []
        place.changes = {"letters": Tally(failed=51), "bots": (place.bot(failed=51),)}
        assert "there are 51 dead letters, 51 of them of bot 5" in await told(ear, alerts, "dead-letters", 0)
        place.changes["missing"] = ("letters",)
        place.changes["letters"] = Tally()
        await asyncio.sleep(600)
        assert ear.said == []  # what is not known is as it was
        place.changes = {}
        await over(ear, alerts)

    watch(tmp_path, story)


def test_a_letter_that_stays_the_oldest_is_stuck_and_old_ones_that_go_are_not(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        for _ in range(40):
            old_ms = place.house.clock.wall_ms() - 3_600_000
            place.changes = {"bots": (replace(place.bot(waiting=1), oldest_waiting_ms=old_ms),)}
            await asyncio.sleep(15)
        assert ear.said == []
        assert "of bot 5 has waited for 6" in await told(ear, alerts, "stuck", 60)
        place.changes = {"bots": (replace(place.bot(waiting=1), oldest_waiting_ms=old_ms, paused="Unauthorized"),)}
        await over(ear, alerts)

    watch(tmp_path, story)


def test_a_high_share_of_failures(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        few = Point(at_ms=0, seconds=60, delivered=1, failed=1)
        place.changes = {"last_hour": (few,)}
        await asyncio.sleep(60)
        place.changes = {"last_hour": (Point(at_ms=0, seconds=60, delivered=80, failed=20),)}
        await asyncio.sleep(60)
        assert ear.said == []
        place.changes = {"last_hour": (Point(at_ms=0, seconds=60, delivered=79, failed=21),)}
        assert "21 of the 100 letters" in await told(ear, alerts, "failures", 0)
        place.changes = {}
        await over(ear, alerts)

    watch(tmp_path, story)


def slow(seconds: float) -> Percentiles:
    return Percentiles(p50_s=0.1, p95_s=seconds, p99_s=seconds)


def test_delivery_that_takes_too_long(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        place.changes = {"now": Point(at_ms=0, seconds=60, end_to_end=slow(900))}
        assert "more than 15 minutes" in await told(ear, alerts, "delays", 300)
        place.changes = {}
        await over(ear, alerts)

    watch(tmp_path, story)


def test_telegram_that_answers_slowly(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        place.changes = {"now": Point(at_ms=0, seconds=60, tries=slow(31))}
        assert "take more than 31 s" in await told(ear, alerts, "slow", 60)
        place.changes = {}
        await over(ear, alerts)

    watch(tmp_path, story)


def test_handlers_that_do_not_keep_up_and_consumers_that_do_not_read(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        now = place.house.clock.wall_ms()
        line = ConsumerLine(
            name="default", kind="none", handed=0, open=3, delayed=0, failed=0, oldest_open_at_ms=now, seen_at_ms=None
        )
        inbox = InboxLine(
            bot_id=5,
            source="polling",
            seen_at_ms=now,
            received_at_ms=now,
            expires_at_ms=None,
            expired=0,
            consumers=(line,),
        )
        place.changes = {"inbox": (inbox,)}
        await asyncio.sleep(600)
        assert ear.said == []  # nobody wants them
        place.changes = {"inbox": (replace(inbox, consumers=(replace(line, kind="handler"),)),)}
        assert "bot 5: consumer default does not keep up" in await told(ear, alerts, "slow", 60)
        place.changes = {}
        await over(ear, alerts)

    watch(tmp_path, story)


def test_jobs_that_nobody_does(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        place.changes = {"jobs": {"film": JobTally(waiting=4)}}
        await asyncio.sleep(500)
        place.changes = {"jobs": {"film": JobTally(waiting=4, active=1)}}
        await asyncio.sleep(200)
        assert ear.said == []
        place.changes = {"jobs": {"film": JobTally(waiting=4)}}
        assert "4 jobs of the kind film wait, and none of it runs" in await told(ear, alerts, "jobs-stuck", 600)
        place.changes = {}
        await over(ear, alerts)

    watch(tmp_path, story)


def test_a_backup_that_is_too_old(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        place.backup_ms = place.house.clock.wall_ms()
        await asyncio.sleep(1.4 * 7200)
        assert ear.said == []
        assert "the last good backup is 3 hours old" in await told(ear, alerts, "backup", 0.1 * 7200 + 400)
        place.is_down = True
        await asyncio.sleep(1000)
        assert ear.said == []
        place.is_down, place.backup_ms = False, place.house.clock.wall_ms()
        await asyncio.sleep(300)
        await over(ear, alerts)

    watch(tmp_path, story)


def test_a_node_that_lets_the_chores_go_says_nothing_of_them_any_more(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        place.changes = {"letters": Tally(failed=51)}
        await told(ear, alerts, "dead-letters", 0)
        place.has_chores = False
        await asyncio.sleep(600)
        assert (ear.said, alerts.ongoing()) == ([], [])

    watch(tmp_path, story)


def test_a_door_that_answers_slowly_for_a_minute_and_not_one_slow_answer(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        for _ in range(50):
            place.answering.add(("rest", "letters"), 0.01)
        place.answering.add(("gateway", "send"), 45.0)
        await asyncio.sleep(300)
        assert ear.said == []

        async def go_on() -> None:
            while True:
                place.answering.add(("rest", "letters"), 0.01)
                place.answering.add(("gateway", "send"), 45.0)
                await asyncio.sleep(10)

        going = asyncio.create_task(go_on())
        text = await told(ear, alerts, "slow", 60)
        assert "a twentieth of the requests at the gateway door take more than 30 s" in text
        going.cancel()
        await asyncio.sleep(60)  # of which the looks still know
        await over(ear, alerts)

    watch(tmp_path, story)


def test_a_process_that_wakes_late_is_slow(tmp_path: Path) -> None:
    async def story(place: Place, alerts: AlertService, ear: Ear) -> None:
        for _ in range(6):
            await place.watching.look(late_s=6.0)
            await asyncio.sleep(15)
        assert "node a was busy for 6 s" in ear.said[0].text

    watch(tmp_path, story)


def test_every_rule_of_looks_is_in_the_table_and_of_all_or_of_one_machine() -> None:
    seen = {rule.name for rule in BY_NAME.values() if rule.event is Noticed}
    local = {rule.name for rule in BY_NAME.values() if rule.event is Noticed and rule.is_local}
    assert seen == {*GLOBAL} | local


# ---- the machine ----


def test_the_disks_of_folders_are_each_seen_once(tmp_path: Path) -> None:
    (one,) = disks_of([tmp_path / "not" / "there", tmp_path])
    assert one.path == str(tmp_path / "not" / "there")
    assert 0 <= one.free_percent <= 100


def machine(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:       8000 kB\nMemFree: 10 kB\nMemAvailable:   2000 kB\n"


def test_memory_is_of_the_machine_where_nothing_limits_it(tmp_path: Path) -> None:
    assert memory_of(tmp_path) is None
    root = machine(tmp_path, proc__meminfo=MEMINFO, sys__fs__cgroup__memory_dot_max="max\n")
    found = memory_of(root)
    assert found is not None
    assert (found.of, found.used_percent) == ("the machine", 75.0)


def test_memory_is_of_the_container_that_limits_it_without_what_can_be_given_back(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        proc__meminfo=MEMINFO,
        proc__self__cgroup="0::/system.slice/peik.service\n",
        sys__fs__cgroup__memory_dot_max="4096000\n",
        sys__fs__cgroup__memory_dot_current="3096000\n",
        sys__fs__cgroup__memory_dot_stat="anon 1\ninactive_file 1048000\n",
    )
    found = memory_of(root)
    assert found == Memory(of="the container", total=4096000, used=2048000)
    own = "sys__fs__cgroup__system.slice__peik.service__memory_dot_"
    machine(root, **{f"{own}max": "1000\n", f"{own}current": "900\n"})
    assert memory_of(root) == Memory(of="the container", total=1000, used=900)


def test_memory_of_an_older_container(tmp_path: Path) -> None:
    files = {"limit_in_bytes": "1000", "usage_in_bytes": "700", "stat": "total_inactive_file 200"}
    named = {f"sys__fs__cgroup__memory__memory_dot_{name}": text for name, text in files.items()}
    root = machine(tmp_path, proc__meminfo=MEMINFO, **named)
    assert memory_of(root) == Memory(of="the container", total=1000, used=500)
    machine(root, sys__fs__cgroup__memory__memory_dot_limit_in_bytes=str(2**63 - 4096))
    found = memory_of(root)
    assert found is not None
    assert found.of == "the machine"
