"""After an absence: everything that Telegram kept is fetched, and what it did not keep is counted where ids allow it."""

import asyncio
import contextlib
import random
from pathlib import Path

import apsw
import pytest

from peik.app.lifetime import recover_once, running
from peik.backups.model import BackupLedger
from peik.core import events
from peik.core.token import Token
from peik.errors import Conflict, StartError, Unavailable
from peik.inbox.store import InboxState
from peik.settings.config import load
from peik.storage.executor import InlineExecutor
from peik.storage.sqlite.store import SqliteStore
from peik.testing import Options, SimServer
from peik.testing.virtual import SimCarrier
from tests.inbox.sources import SOON_S, Bench, OtherProgram, numbered, state, stored_in, text_of, texts, waiting, write
from tests.outbox.story import BOT, TOKEN, Stage, play, play_closed

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


def recovered(stage: Stage) -> events.InboxRecovered:
    found = stage.events_of(events.InboxRecovered)[-1]
    assert isinstance(found, events.InboxRecovered)
    return found


def test_the_first_start_ever_takes_what_is_there_and_claims_to_know_nothing_of_before() -> None:
    async def story(stage: Stage) -> None:
        write(stage, 0, 3)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            report = recovered(stage)
            assert (report.found, report.stored, report.duplicates) == (3, 3, 0)
            assert (report.expired, report.away_s) == (None, None)

    play_closed(story, inbound="polling")


def test_a_night_off_is_recovered_page_by_page() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            write(stage, 0, 1)
            await asyncio.sleep(SOON_S)
        asked = stage.telegram.counters.requests["getUpdates"]
        await asyncio.sleep(10 * HOUR_S)
        write(stage, 1, 2345)
        async with stage.open():
            await asyncio.sleep(10.0)
            report = recovered(stage)
            assert (report.found, report.stored, report.duplicates, report.expired) == (2345, 2345, 0, 0)
            assert report.away_s == pytest.approx(10 * HOUR_S, abs=5.0)
            assert await texts(stage) == numbered(0, 2346)
            # 24 pages, the empty one that ends the pass, and the long poll after it.
            assert stage.telegram.counters.requests["getUpdates"] - asked <= 27
            assert not stage.events_of(events.OfflineTooLong)

    play_closed(story, inbound="polling")


def test_what_came_between_a_backup_and_its_restore_was_our_own_and_a_thief_is_told_of_afterwards() -> None:
    async def story(stage: Stage) -> None:
        path = stage.config().sqlite_path
        async with stage.open():
            write(stage, 0, 2)
            await asyncio.sleep(SOON_S)
        backup = path.read_bytes()
        async with stage.open():
            write(stage, 2, 354)
            await asyncio.sleep(SOON_S)
        path.write_bytes(backup)
        store = SqliteStore(path, clock=stage.clock, is_owner=True, executor=lambda name: InlineExecutor())
        await store.open()
        await BackupLedger(store.documents).note_restored(stage.clock.wall_ms(), None)
        await store.close()
        async with stage.open():
            await asyncio.sleep(HOUR_S)  # polls that find nothing show nothing of what came before
            write(stage, 356, 1)
            await asyncio.sleep(SOON_S)
            assert await texts(stage) == [*numbered(0, 2), *numbered(356, 1)]
            assert not stage.events_of(events.Intruder)
            assert not stage.events_of(events.UpdatesExpired)
            write(stage, 357, 5)
            last_id = 0
            while found := stage.telegram.call(TOKEN, "getUpdates", {"offset": last_id + 1}).result:
                last_id = found[-1]["update_id"]
            await asyncio.sleep(SOON_S)
            write(stage, 362, 1)
            await asyncio.sleep(10.0)
            (gap,) = [one for one in stage.events_of(events.Intruder) if one.kind == "gap"]
            assert "5 updates" in gap.detail

    play_closed(story, inbound="polling")


def test_what_expired_meanwhile_is_counted() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            write(stage, 0, 1)
            await asyncio.sleep(SOON_S)
        stage.telegram.ask(TOKEN, 5, "inline")  # lives 30 s
        write(stage, 1, 1)
        stage.telegram.ask(TOKEN, 5, "pre_checkout", {})  # lives 150 s
        write(stage, 2, 1)
        await asyncio.sleep(600.0)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            assert await texts(stage) == numbered(0, 3)
            assert recovered(stage).expired == 2
            assert sum(one.count for one in stage.events_of(events.UpdatesExpired)) == 2
            assert (await state(stage)).expired == 2
            assert not stage.events_of(events.Intruder)

    play_closed(story, inbound="polling")


def test_after_more_than_a_day_it_says_how_much_is_lost() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            write(stage, 0, 1)
            await asyncio.sleep(SOON_S)
        write(stage, 1, 5)
        await asyncio.sleep(20 * HOUR_S)
        write(stage, 6, 2)
        await asyncio.sleep(10 * HOUR_S)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            (late,) = stage.events_of(events.OfflineTooLong)
            assert late.expired == 5
            assert late.away_s == pytest.approx(30 * HOUR_S, abs=10.0)
            assert await texts(stage) == [*numbered(0, 1), *numbered(6, 2)]

    play_closed(story, inbound="polling")


def test_a_quick_restart_is_no_absence_though_nobody_wrote_for_hours() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await asyncio.sleep(5 * HOUR_S)
        await asyncio.sleep(5.0)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            away_s = recovered(stage).away_s
            assert away_s is not None
            assert away_s < 10.0

    play_closed(story, inbound="polling")


@pytest.mark.parametrize("inbound", ["polling", "webhook"])
def test_a_start_that_ends_before_telegram_has_answered_was_no_contact(inbound: str) -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            await asyncio.sleep(SOON_S)
        seen_at_ms = (await _closed_state(stage)).seen_at_ms
        await asyncio.sleep(10 * HOUR_S)
        stage.telegram.faults.add("hang", seconds=60.0)
        async with stage.open():
            await asyncio.sleep(1.0)
        assert (await _closed_state(stage)).seen_at_ms == seen_at_ms
        await asyncio.sleep(60.0)
        async with stage.open():
            await asyncio.sleep(10.0)
            assert not stage.events_of(events.Intruder)

    async def _closed_state(stage: Stage) -> InboxState:
        store = SqliteStore(stage.config().sqlite_path, clock=stage.clock, executor=lambda name: InlineExecutor())
        await store.open()
        found = await store.inbox.inbox(BOT)
        await store.close()
        assert found is not None
        return found

    play_closed(story, inbound=inbound, public_url="https://peik.example.com")


def test_another_api_server_is_another_numbering() -> None:
    async def story(stage: Stage) -> None:
        async with stage.open():
            write(stage, 0, 1)
            await asyncio.sleep(SOON_S)
        stage._settings["api_root"] = "http://local.example:8081"
        write(stage, 1, 1)
        async with stage.open():
            await asyncio.sleep(SOON_S)
            assert (await state(stage)).epoch == 2
            assert await texts(stage) == numbered(0, 2)

    play_closed(story, inbound="polling")


def test_a_crash_in_a_quiet_hour_is_no_absence_if_somebody_starts_it_again_at_once() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        outages = bench.outages = _Outages()
        for quiet_s in (HOUR_S, HOUR_S + 30.0, HOUR_S + 49.0, HOUR_S + 80.0):
            await bench.run_for(quiet_s)
            await asyncio.sleep(5.0)
        assert [what for what, _ in outages.told] == ["over"] * 4
        await bench.store.close()

    play_closed(story)


# ---- outages ----


class _Outages:
    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def expect(self, bot_id: int, who: str, began_at_ms: int, /) -> None:
        self.told.append(("expect", began_at_ms))

    async def kept(self, bot_id: int, /) -> None:
        self.told.append(("kept", None))

    def over(self, bot_id: int, who: str, /) -> None:
        self.told.append(("over", who))

    def forget(self, bot_id: int, /) -> None: ...


def test_whoever_settles_outages_hears_of_an_absence_before_the_first_poll_and_of_its_end_after_the_last_page() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        outages = bench.outages = _Outages()
        await bench.run_for(SOON_S)
        assert outages.told == [("over", "source")]  # the first start is no absence
        seen_at_ms = (await bench.store.inbox.inbox(BOT)).seen_at_ms  # type: ignore[union-attr]
        await asyncio.sleep(61.0)
        write(stage, 0, 150)
        outages.told.clear()
        bench.way.asked.clear()
        bench.on_poll = lambda: outages.told.append(("poll", None))
        await bench.run_for(SOON_S)
        assert outages.told[:3] == [("expect", seen_at_ms), ("kept", None), ("poll", None)]
        assert outages.told[3:6] == [("poll", None), ("poll", None), ("over", "source")]
        await bench.store.close()

    play_closed(story)


def test_a_network_that_was_gone_for_an_hour_is_an_absence_too() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        outages = bench.outages = _Outages()
        running_ = asyncio.ensure_future(bench.poller().run())
        await asyncio.sleep(SOON_S)
        outages.told.clear()
        stage.telegram.outage(HOUR_S)
        write(stage, 0, 5)
        await asyncio.sleep(HOUR_S + 60.0)
        assert [what for what, _ in outages.told] == ["expect", "kept", "over"]
        assert bench.events_of(events.InboxRecovered)[-1].found == 5
        running_.cancel()
        await asyncio.gather(running_, return_exceptions=True)
        await bench.store.close()

    play_closed(story)


def test_a_bot_that_is_written_to_all_the_time_catches_up_all_the_same() -> None:
    """Every poll brings something, so that no page is ever empty."""

    async def story(stage: Stage) -> None:
        async with stage.open():
            write(stage, 0, 1)
            await asyncio.sleep(SOON_S)
        await asyncio.sleep(HOUR_S)
        write(stage, 1, 350)
        async with stage.open():
            for number in range(351, 2351):
                write(stage, number, 1)
                await asyncio.sleep(0.01)
            assert recovered(stage).found > 350
            assert not stage.peik.inbox.outages.holds(BOT)
            asking = asyncio.ensure_future(stage.peik.inbox.service.recover(BOT))
            for number in range(2351, 2851):
                write(stage, number, 1)
                await asyncio.sleep(0.01)
            assert asking.done()
            await asyncio.sleep(SOON_S)
            assert await texts(stage) == numbered(0, 2851)

    play_closed(story, inbound="polling", missed="both")


def test_a_page_that_telegram_made_short_by_itself_is_not_taken_for_the_last() -> None:
    """Whoever asks the same again within half a second gets one update at a time (docs/telegram.md, Polling)."""

    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        write(stage, 0, 300)
        poller = bench.poller()

        def disturb() -> None:
            if len(bench.way.asked) in (1, 3, 5):  # it has to ask the same again
                asyncio.get_running_loop().call_later(0.03, poller.wake)

        bench.on_poll = disturb
        running_ = asyncio.ensure_future(poller.run())
        await asyncio.sleep(10.0)
        (report,) = bench.events_of(events.InboxRecovered)
        assert report.found == 300
        running_.cancel()
        await asyncio.gather(running_, return_exceptions=True)
        await bench.store.close()

    play_closed(story)


def test_a_page_of_large_updates_is_not_taken_for_the_last() -> None:
    async def story(stage: Stage) -> None:
        for number in range(300):
            stage.telegram.update(TOKEN, "message", {"message_id": number, "chat": {"id": 5}, "text": "x" * 60_000})
        async with stage.open():
            await asyncio.sleep(10.0)
            assert recovered(stage).found == 300
            assert 5 <= len(stage.events_of(events.Arrived)) <= 6  # of 4 MiB each

    play_closed(story, inbound="polling")


def test_updates_that_cannot_be_stored_for_hours_are_an_absence_and_near_their_end() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        outages = bench.outages = _Outages()
        poller = bench.poller()
        running_ = asyncio.ensure_future(poller.run())
        await asyncio.sleep(SOON_S)
        outages.told.clear()
        bench.unsure.refuses = 1 << 30
        write(stage, 0, 5)
        await asyncio.sleep(15 * HOUR_S)
        assert not poller.status().is_well
        assert [one.percent_left for one in bench.events_of(events.InboxNearExpiry)] == [75, 50]
        bench.unsure.refuses = 0
        await asyncio.sleep(60.0)
        assert poller.status().is_well
        assert [what for what, _ in outages.told] == ["expect", "kept", "over"]
        assert [text_of(one) for one in await stored_in(bench.store)] == numbered(0, 5)
        running_.cancel()
        await asyncio.gather(running_, return_exceptions=True)
        await bench.store.close()

    play_closed(story)


# ---- by hand ----


def test_a_pass_by_hand_is_made_by_the_running_poller() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        reports = await asyncio.gather(*(stage.peik.inbox.service.recover(BOT) for _ in range(3)))
        assert {report.found for report in reports} == {0}
        write(stage, 0, 2)
        await asyncio.sleep(100.0)
        assert await texts(stage) == numbered(0, 2)
        assert not stage.events_of(events.Intruder)
        assert not stage.events_of(events.SourceFailed)

    play(story, inbound="polling")


def test_a_pass_by_hand_ends_with_its_poller() -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(SOON_S)
        stage.telegram.dark(True)
        asking = asyncio.ensure_future(stage.peik.inbox.service.recover(BOT))
        await asyncio.sleep(30.0)
        await stage.peik.outbox.service.change_bot(BOT, inbound="off")
        with pytest.raises(Unavailable):
            await asking

    play(story, inbound="polling")


def test_who_asks_a_source_that_has_just_ended_is_told_so() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        poller = bench.poller()
        running_ = asyncio.ensure_future(poller.run())
        await asyncio.sleep(SOON_S)
        running_.cancel()
        await asyncio.gather(running_, return_exceptions=True)
        async with asyncio.timeout(HOUR_S):
            with pytest.raises(Unavailable):
                await poller.recover()
        await bench.store.close()

    play_closed(story)


def test_a_visit_gives_up_when_the_store_does_not_answer() -> None:
    async def story(stage: Stage) -> None:
        bench = await Bench.open(stage)
        blocker = apsw.Connection(str(stage.config().sqlite_path))
        blocker.execute("BEGIN IMMEDIATE")
        bench.store._connection.set_busy_timeout(0)
        async with asyncio.timeout(HOUR_S):
            with pytest.raises(Unavailable):
                await bench.poller().once()
        blocker.close()
        await bench.store.close()

    play_closed(story)


def test_a_bot_whose_updates_are_off_can_be_visited_once() -> None:
    async def story(stage: Stage) -> None:
        write(stage, 0, 120)
        report = await stage.peik.inbox.service.recover(BOT)
        assert (report.found, report.stored) == (120, 120)
        assert await texts(stage) == numbered(0, 120)
        asked = stage.telegram.counters.requests["getUpdates"]
        await asyncio.sleep(HOUR_S)
        assert stage.telegram.counters.requests["getUpdates"] == asked

    play(story, inbound="off")


def test_a_visitor_leaves_another_programs_webhook_and_polls_alone() -> None:
    async def story(stage: Stage) -> None:
        other = OtherProgram(stage)
        await other.call("setWebhook", url="https://bot.example.com/hook")
        with pytest.raises(Conflict, match=r"bot\.example\.com"):
            await stage.peik.inbox.service.recover(BOT)
        assert stage.telegram.bots[BOT].webhook is not None
        stage.telegram.dark(True)
        with pytest.raises(Unavailable):
            await stage.peik.inbox.service.recover(BOT)

    play(story, inbound="off")


def test_only_the_owner_of_the_store_polls_and_its_heir_goes_on() -> None:
    async def story(stage: Stage) -> None:
        stage.is_alone = False
        async with contextlib.AsyncExitStack() as after:
            async with stage.open():
                guest = await after.enter_async_context(_guest(stage))
                write(stage, 0, 1)
                await asyncio.sleep(SOON_S)
                with pytest.raises(Conflict):
                    await guest.inbox.service.recover(BOT)
                assert guest.inbox.receiver.status(BOT).source == "off"
                assert not stage.events_of(events.Intruder)
                assert await texts(stage) == numbered(0, 1)
            write(stage, 1, 1)
            await asyncio.sleep(10.0)
            assert guest.inbox.receiver.status(BOT).is_well
            assert waiting(stage) == 0
            assert [text_of(one) for one in await stored_in(guest.store)] == numbered(0, 2)

    def _guest(stage: Stage):  # type: ignore[no-untyped-def]
        return running(
            stage.config(),
            clock=stage.clock,
            carrier=SimCarrier(stage.telegram),
            chance=random.Random(9),
            executor=lambda name: InlineExecutor(),
            must_own=False,
        )

    play_closed(story, inbound="polling")


def test_a_command_can_make_one_pass_without_a_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with SimServer(options=Options(anti_busy_loop=False)) as sim:
            sim.telegram.bot(TOKEN)
            flags = {"store": f"sqlite:///{tmp_path}/peik.db", "api_root": sim.url, "inbound": "off"}
            config = load(flags, environment={}, folder=tmp_path)
            async with running(config) as peik:
                await peik.outbox.service.save_bot(Token(TOKEN), inbound="polling")
                with pytest.raises(StartError):
                    await recover_once(config, BOT)
            for number in range(230):
                sim.telegram.write(TOKEN, 5, f"n{number}")
            report = await recover_once(config, BOT)
            assert (report.found, report.stored, report.duplicates) == (230, 230, 0)
            assert sim.telegram.bots[BOT].queue.size == 0
            report = await recover_once(config, BOT)
            assert report.found == 0

    asyncio.run(story())
