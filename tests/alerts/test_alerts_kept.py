"""Alerts through restarts, over nodes and without a store: told once, again by an interval, and when it is over."""

import asyncio
from pathlib import Path
from typing import Any

from peik.alerts.matters import COLLECTION, TOLD_MAX
from peik.alerts.rules import Noticed
from peik.broadcasts.model import BroadcastMoved
from peik.core import events
from peik.core.letter import State
from peik.errors import StoreUnavailable
from tests.alerts.alerting import Ear, House, play_alerts

PAUSED = events.BotPaused(bot_id=5, reason="Unauthorized")
FULL = Noticed(rule="disk", subject="/var", words="3 % is free")
DAY_S = 86_400


def test_it_is_told_once_then_by_its_interval_and_when_it_is_over(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node() as (alerts, ear):
            alerts([PAUSED])
            await asyncio.sleep(DAY_S - 1)
            assert ear.kinds == ["began"]
            await asyncio.sleep(2)
            assert ear.kinds == ["began", "again"]
            assert ear.said[1].text.startswith("Peik, still after 24 hours: bot 5 is paused")
            alerts([events.BotResumed(bot_id=5)])
            await asyncio.sleep(1)
            assert ear.kinds == ["began", "again", "over"]
            assert list(house.letters.values()) == [one.text for one in ear.said]
            assert await house.documents.count_documents(COLLECTION) == 0
            assert [(one.kind, one.rule, one.bot_id) for one in await alerts.last()] == [
                ("over", "bot-paused", 5), ("again", "bot-paused", 5), ("began", "bot-paused", 5),
            ]  # fmt: skip

    play_alerts(story, tmp_path)


def test_a_restart_neither_repeats_nor_forgets(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node("a-1") as (alerts, ear):
            alerts([PAUSED])
            await asyncio.sleep(5)
            assert ear.kinds == ["began"]
        async with house.node("a-2") as (alerts, ear):
            await asyncio.sleep(300)  # the bot's next letter tells whether its token is still bad
            assert [one.name for one in alerts.ongoing()] == ["bot-paused"]
            alerts([PAUSED])
            await asyncio.sleep(5)
            assert ear.kinds == []
            alerts([events.BotResumed(bot_id=5)])
            await asyncio.sleep(5)
            assert ear.kinds == ["over"]
            assert len(house.letters) == 2

    play_alerts(story, tmp_path)


def test_what_a_process_before_knew_and_nobody_hears_of_is_over(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node("a-1") as (alerts, ear):
            alerts([events.RouteOpened(route="direct", why="reset")])
            await asyncio.sleep(61)
            assert ear.kinds == ["began"]
        async with house.node("a-2") as (alerts, ear):
            await asyncio.sleep(600)
            assert ear.kinds == []
            await asyncio.sleep(600)
            assert ear.kinds == ["over"]

    play_alerts(story, tmp_path)


def test_what_a_crash_kept_from_being_told_is_told_after_it_and_in_a_chat_once(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        blocked = Ear()
        blocked.is_blocked = True
        async with house.node("a-1", ear=blocked) as (alerts, _):
            alerts([PAUSED])
            await asyncio.sleep(5)
            assert (len(house.letters), blocked.said) == (1, [])
        async with house.node("a-2") as (_, ear):
            await asyncio.sleep(5)
            assert (ear.kinds, len(house.letters)) == (["began"], 1)
        async with house.node("a-3", ear=blocked) as (alerts, _):
            alerts([events.BotResumed(bot_id=5)])
            await asyncio.sleep(1)
            alerts([events.BotResumed(bot_id=5)])
            await asyncio.sleep(5)
            assert len(house.letters) == 2
        async with house.node("a-4") as (alerts, ear):
            await asyncio.sleep(5)
            assert (ear.kinds, alerts.ongoing(), len(house.letters)) == (["over"], [], 2)
            assert await house.documents.count_documents(COLLECTION) == 0

    play_alerts(story, tmp_path)


def test_of_two_nodes_that_know_the_same_one_tells(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node("a") as (alerts, ear), house.node("b") as (others, other):
            alerts([PAUSED])
            others([PAUSED])
            await asyncio.sleep(60)
            assert sorted(ear.kinds + other.kinds) == ["began"]
            others.look_again()
            await asyncio.sleep(1)
            others([events.BotResumed(bot_id=5)])
            await asyncio.sleep(1)
            alerts([events.BotResumed(bot_id=5)])
            await asyncio.sleep(60)
            assert sorted(ear.kinds + other.kinds) == ["began", "over"]

    play_alerts(story, tmp_path)


def test_the_troubles_of_two_machines_are_two(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node("a", machine="a") as (alerts, ear), house.node("b", machine="b") as (others, other):
            alerts.notice([FULL])
            others.notice([FULL])
            await asyncio.sleep(5)
            assert (ear.kinds, other.kinds) == (["began"], ["began"])
            assert "(on a)" in ear.said[0].text
            assert "(on b)" in other.said[0].text

    play_alerts(story, tmp_path)


def test_a_bot_that_another_node_serves_takes_its_troubles_along(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        served = {"a": {5}, "b": set[int]()}
        async with (
            house.node("a", machine="a", is_served=lambda bot: bot in served["a"]) as (alerts, ear),
            house.node("b", machine="b", is_served=lambda bot: bot in served["b"]) as (others, other),
        ):
            alerts([PAUSED])
            await asyncio.sleep(5)
            served["a"], served["b"] = set(), {5}
            others.look_again()
            await asyncio.sleep(5)
            assert (alerts.ongoing(), [one.name for one in others.ongoing()]) == ([], ["bot-paused"])
            others([events.BotResumed(bot_id=5)])
            await asyncio.sleep(5)
            assert (ear.kinds, other.kinds) == (["began"], ["over"])

    play_alerts(story, tmp_path)


def test_another_process_that_does_not_look_ends_nothing(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        dead = Noticed(rule="dead-letters", subject="all", words="there are 51 dead letters")
        async with house.node("a") as (alerts, ear), house.node("b", has_chores=lambda: False) as (others, other):
            for _ in range(240):
                alerts.notice([dead])
                others.look_again()
                await asyncio.sleep(15)
            assert (ear.kinds, other.kinds) == (["began"], [])
            assert others.ongoing() == []
            alerts.matters.leave(["dead-letters"])  # it died; another one looks now
            others.notice([dead])
            await asyncio.sleep(5)
            assert other.kinds == []
            await asyncio.sleep(100)
            assert other.kinds == ["over"]

    play_alerts(story, tmp_path)


class Failing:
    """Documents of a store that is down for a while."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._documents = house.documents

    def __getattr__(self, name: str) -> Any:
        if self._house.is_down:
            raise StoreUnavailable(code="store_failed", detail="It is down.")
        return getattr(self._documents, name)


def test_without_a_store_it_is_told_by_the_other_way_at_once_and_filed_later(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        house.documents = Failing(house)  # type: ignore[assignment]
        async with house.node() as (alerts, ear):
            house.is_down = True
            for _ in range(5):
                alerts([events.StoreFailed(what="a beat", why="It does not answer.")])
                await asyncio.sleep(5)
            assert ear.kinds == ["began"]
            assert house.letters == {}
            house.is_down = False
            await asyncio.sleep(240)
            assert ear.kinds == ["began", "over"]
            assert [one.kind for one in await alerts.last()] == ["over", "began"]
            assert len(house.letters) == 2
            assert await house.documents.count_documents(COLLECTION) == 0

    play_alerts(story, tmp_path)


def test_a_lock_is_told_as_such_and_a_single_failure_not_at_all(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node() as (alerts, ear):
            alerts([events.StoreFailed(what="a step", why="It does not answer.")])
            await asyncio.sleep(10)
            assert ear.kinds == []
            for _ in range(3):
                alerts([events.StoreFailed(what="a step", why="database is locked")])
            await asyncio.sleep(1)
            assert "the database was locked 3 times" in ear.said[0].text
            await asyncio.sleep(700)
            assert ear.kinds == ["began", "over"]

    play_alerts(story, tmp_path)


def test_what_is_silenced_is_shown_and_not_told(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node(off=("disk",)) as (alerts, ear):
            alerts.notice([FULL])
            await asyncio.sleep(5)
            assert ([one.name for one in alerts.ongoing()], ear.said) == (["disk"], [])

    play_alerts(story, tmp_path)


def test_the_last_hundred_are_kept(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node() as (alerts, _):
            for bot_id in range(1, TOLD_MAX + 20):
                alerts([events.UnreadDropped(bot_id=bot_id, count=1)])
                await asyncio.sleep(1)
            last = await alerts.last()
            assert (len(last), last[0].bot_id) == (TOLD_MAX, TOLD_MAX + 19)

    play_alerts(story, tmp_path)


# ---- errors ----


def surprise(number: int) -> events.Surprise:
    return events.Surprise(where=f"job {number}", error=f"KeyError: 'x{number}' at 0x7f{number:06x}")


def test_an_error_is_new_once_whatever_its_numbers_and_a_restart_knows_it(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node("a-1") as (alerts, ear):
            for number in range(3):
                alerts([surprise(number)])
                await asyncio.sleep(100)
            assert ear.kinds == ["began"]
            assert "a new error in job 0: KeyError" in ear.said[0].text
        await asyncio.sleep(3 * DAY_S)
        async with house.node("a-2") as (alerts, ear):
            await asyncio.sleep(5)
            alerts([surprise(7)])
            await asyncio.sleep(5)
            assert ear.kinds == []
            alerts([events.Surprise(where="sender", error="ValueError: no")])
            await asyncio.sleep(5)
            assert ear.kinds == ["began"]

    play_alerts(story, tmp_path)


def test_an_error_that_comes_ten_times_an_hour_rises_and_ends(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        def failed(number: int) -> events.Event:
            return events.ArrivalSettled(
                bot_id=5, consumer="shop", arrival_id=number, number=number, kind="message", state=State.FAILED, tries=5,
                reason=f"KeyError: {number}",
            )  # fmt: skip

        async with house.node(off=("dead-arrivals",)) as (alerts, ear):
            await asyncio.sleep(3600 - house.clock.wall_ms() / 1000 % 3600 + 1)  # the beginning of an hour
            for number in range(12):
                alerts([failed(number)])
                await asyncio.sleep(10)
            texts = [one.text for one in ear.said]
            assert len(texts) == 2
            assert "a new error in consumer shop" in texts[0]
            assert "10 times within an hour, in consumer shop" in texts[1]
            await asyncio.sleep(2 * 3600)
            assert ear.kinds == ["began", "began", "over"]

    play_alerts(story, tmp_path)


def test_what_the_chores_tell_of_goes_with_them_from_node_to_node(tmp_path: Path) -> None:
    stopped = BroadcastMoved(bot_id=5, broadcast_id="b", state="stopped", reason="Too many failed.")
    chores = {"a"}

    async def story(house: House) -> None:
        def of(name: str, *, is_serving: bool) -> dict[str, Any]:
            return {"is_served": lambda bot_id: is_serving, "has_chores": lambda: name in chores, "machine": name}

        async with (
            house.node("a", **of("a", is_serving=False)) as (alerts, ear),
            house.node("b", **of("b", is_serving=False)) as (others, other),
            house.node("c", **of("c", is_serving=True)) as (third, third_ear),
        ):
            alerts([stopped])
            await asyncio.sleep(60)
            assert ear.kinds == ["began"]
            chores.clear()
            chores.add("b")
            for one in (alerts, others, third):
                one.look_again()
            await asyncio.sleep(60)
            assert [[one.name for one in each.ongoing()] for each in (alerts, others, third)] == [
                [], ["broadcast-stopped"], [],
            ]  # fmt: skip
            others([BroadcastMoved(bot_id=5, broadcast_id="b", state="running", reason=None)])
            await asyncio.sleep(60)
            assert (ear.kinds, other.kinds, third_ear.kinds) == (["began"], ["over"], [])

    play_alerts(story, tmp_path)


def test_chores_that_are_lost_before_an_alert_is_told_do_not_take_it_with_them(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node("a", is_served=lambda bot_id: False, has_chores=lambda: False) as (alerts, ear):
            alerts([events.UnreadDropped(bot_id=5, count=3)])
            await asyncio.sleep(60)
            assert (ear.kinds, alerts.ongoing()) == (["began"], [])

    play_alerts(story, tmp_path)


# ---- the teller dies ----


class Nodes:
    """Who lives."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    async def __call__(self) -> set[str]:
        return self.names


def test_what_a_node_that_died_had_to_tell_another_one_tells_once(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        blocked = Ear()
        blocked.is_blocked = True
        living = Nodes("a", "b", "c")
        async with (
            house.node("b", machine="b", living=living) as (second, ear),
            house.node("c", machine="c", living=living) as (third, other),
        ):
            async with house.node("a", machine="a", ear=blocked, living=living) as (alerts, _):
                alerts([PAUSED])
                alerts.notice([FULL])
                await asyncio.sleep(5)
                for one in (second, third):
                    one.look_again()
                await asyncio.sleep(20)
                assert (len(house.letters), ear.kinds, other.kinds) == (2, [], []), "it lives, and is still at it"
            living.names.discard("a")
            for _ in range(3):
                for one in (second, third):
                    one.look_again()
                await asyncio.sleep(15)
            texts = sorted(one.text for one in ear.said + other.said)
            assert len(texts) == 2
            assert "(on a)" in texts[0]
            assert "bot 5 is paused" in texts[1]
            assert len(house.letters) == 2, "in the chat it was told before"

    play_alerts(story, tmp_path)


def test_an_end_that_two_nodes_hear_at_once_is_told_by_one(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node("a") as (alerts, ear), house.node("b") as (others, other):
            alerts([PAUSED])
            await asyncio.sleep(60)
            others([PAUSED])
            others.look_again()
            await asyncio.sleep(60)
            alerts([events.BotResumed(bot_id=5)])
            others([events.BotResumed(bot_id=5)])
            await asyncio.sleep(60)
            assert sorted(ear.kinds + other.kinds) == ["began", "over"]
            assert len(house.letters) == 2
            assert await house.documents.count_documents(COLLECTION) == 0

    play_alerts(story, tmp_path)


def test_a_clock_that_is_set_back_a_year_lets_what_is_over_end(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node() as (alerts, ear):
            alerts.notice([FULL])
            await asyncio.sleep(5)
            house.clock.wall_offset_s = -365 * DAY_S
            alerts.notice([FULL])
            house.clock.wall_offset_s = 365 * DAY_S
            alerts([PAUSED])
            alerts.notice([FULL])
            await asyncio.sleep(5)
            house.clock.wall_offset_s = 0
            alerts.look_again()
            await asyncio.sleep(300)
            assert [one.name for one in alerts.ongoing()] == ["bot-paused"]
            assert ear.kinds.count("over") == 1

    play_alerts(story, tmp_path)


def test_documents_that_break_in_a_way_that_nobody_foresaw_keep_nobody_from_being_told(tmp_path: Path) -> None:
    class Broken:
        def __init__(self, documents: Any) -> None:
            self._documents = documents

        async def file(self, filings: Any) -> None:
            raise ZeroDivisionError("nobody foresaw this")

        def __getattr__(self, name: str) -> Any:
            return getattr(self._documents, name)

    async def story(house: House) -> None:
        house.documents = Broken(house.documents)
        async with house.node() as (alerts, ear):
            alerts([PAUSED, events.UnreadDropped(bot_id=6, count=3)])
            await asyncio.sleep(60)
            texts = [one.text for one in ear.said]
            assert sum("bot 5 is paused" in text for text in texts) == 1
            assert sum("3 updates that nobody had read" in text for text in texts) == 1
            assert sum("ZeroDivisionError" in text for text in texts) == 1

    play_alerts(story, tmp_path)


def test_documents_that_cannot_be_read_at_a_start_are_read_later_and_nothing_is_told_twice(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        async with house.node("a-1") as (alerts, ear):
            alerts([PAUSED])
            await asyncio.sleep(5)
            assert ear.kinds == ["began"]
        house.documents = Failing(house)  # type: ignore[assignment]
        house.is_down = True
        async with house.node("a-2") as (alerts, ear):
            await asyncio.sleep(5)
            house.is_down = False
            await asyncio.sleep(60)
            assert [one.name for one in alerts.ongoing()] == ["bot-paused"]
            alerts([events.BotResumed(bot_id=5)])
            await asyncio.sleep(5)
            assert ear.kinds == ["over"]

    play_alerts(story, tmp_path)
