"""Broadcasts from their start to their end: everybody once, replies first, and every line of the ledger right."""

import asyncio
from collections import Counter

from peik.broadcasts.audience import read_csv
from peik.broadcasts.model import BroadcastAdvanced, BroadcastMoved, Canary, Paid, Phase, RecipientState
from peik.broadcasts.service import BroadcastRequest
from peik.core.letter import Priority
from peik.core.pace import PaceLimits
from peik.core.quiet import Quiet
from tests.broadcasts.story import FIRST, Campaign, people, tell
from tests.outbox.story import BOT

S = RecipientState


MANY = 1500  # more than a page of the ledger, and ten windows


def test_many_recipients_each_get_it_once() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(MANY), start=True)
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter(people(MANY))
        assert (done.total, done.counts.delivered, done.pending) == (MANY, MANY, 0)
        ledger = await campaign.ledger(made.id)
        assert [line.chat for line in ledger.values()] == people(MANY)
        assert all(line.state is S.DELIVERED and line.messages and line.ended_at_ms for line in ledger.values())
        took_s = (done.ended_at_ms - done.started_at_ms) / 1000  # type: ignore[operator]
        assert MANY / 30 <= took_s <= MANY / 30 * 1.2, "the bot's pace is used, and not more"
        assert [one.state for one in campaign.stage.events_of(BroadcastMoved)] == [
            "snapshotting",
            "running",
            "completed",
        ]
        assert campaign.stage.events_of(BroadcastAdvanced)[-1].done == MANY

    tell(story)


def test_a_reply_goes_out_at_once_while_a_broadcast_runs() -> None:
    async def story(campaign: Campaign) -> None:
        stage = campaign.stage
        made = await campaign.create(people(500), start=True)
        await campaign.when(made.id, lambda one: one.counts.delivered > 100)
        for chat in (FIRST + 450, 77):  # one whose turn is still to come, and one who is no recipient
            began = stage.clock.mono()
            letter = await stage.text(chat, "reply", priority=Priority.HIGH)
            await stage.ended(letter)
            assert stage.clock.mono() - began < 0.5
        tally = (await stage.peik.outbox.service.tallies())[BOT]
        assert tally.waiting + tally.active + tally.delayed <= 150, "only a window of it is in the outbox"
        await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter(people(500)) + Counter([FIRST + 450, 77])

    tell(story)


def test_values_of_a_csv_are_filled_in_and_escaped() -> None:
    rows = b"chat_id,name\r\n1,Ali\r\n2,<b>Sara\r\n1,Ali again\r\n"

    async def story(campaign: Campaign) -> None:
        made = await campaign.service.create(
            BroadcastRequest(
                method="sendmessage",
                params={"text": "Salam {name}!", "parse_mode": "HTML", "chat_id": 5},
                audience=read_csv(rows),
                start=True,
            )
        )
        await campaign.until(made.id, Phase.COMPLETED)
        assert (campaign.stage.texts(1), campaign.stage.texts(2)) == (["Salam Ali!"], ["Salam <b>Sara!"])
        assert campaign.got() == Counter([1, 2])

    tell(story)


def test_chats_out_of_reach_are_suppressed_and_new_refusals_are_told() -> None:
    async def story(campaign: Campaign) -> None:
        stage = campaign.stage
        for chat in (FIRST + 1, FIRST + 3):
            stage.telegram.user(chat)
            stage.telegram.write(BOT, chat, "/start")
            stage.telegram.block(BOT, chat)
        await stage.ended(await stage.text(FIRST + 1, "learns that it is blocked"))
        made = await campaign.create(people(6))
        estimate = await campaign.service.estimate(made.id)
        assert (estimate.recipients, estimate.suppressed, estimate.messages) == (5, 1, 5)
        await campaign.service.start(made.id)
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert (done.counts.delivered, done.counts.blocked, done.counts.suppressed) == (4, 1, 1)
        ledger = await campaign.ledger(made.id)
        assert (ledger[2].state, ledger[2].letter_id) == (S.SUPPRESSED, None)
        assert ledger[4].state is S.BLOCKED
        assert "blocked by the user" in (ledger[4].error or "")

    tell(story)


def test_a_canary_stops_it_and_somebody_lets_it_go_on() -> None:
    async def story(campaign: Campaign) -> None:
        stage = campaign.stage
        for chat in people(4):
            stage.telegram.user(chat)
            stage.telegram.write(BOT, chat, "/start")
            stage.telegram.block(BOT, chat)
        made = await campaign.create(people(100), start=True, canary=Canary(percent=10, limit=0.3))
        stopped = await campaign.until(made.id, Phase.STOPPED)
        assert "first 10 recipients" in (stopped.reason or "")
        await campaign.when(made.id, lambda one: one.is_at_rest)
        assert sum(campaign.got().values()) <= 6, "nobody beyond the slice was written to"
        await campaign.service.resume(made.id)
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert (done.counts.delivered, done.counts.blocked) == (96, 4)
        assert campaign.got() == Counter(people(100)[4:])

    tell(story)


def test_a_canary_that_goes_well_is_waited_for() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(100), start=True, canary=Canary(count=7))
        running = await campaign.until(made.id, Phase.RUNNING)
        first = [one for one in campaign.stage.telegram.sent if one.at * 1000 < running.moved_at_ms]
        assert [one.chat_id for one in first] == people(7)
        await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter(people(100))

    tell(story)


def test_nothing_is_sent_in_quiet_hours() -> None:
    async def story(campaign: Campaign) -> None:
        stage = campaign.stage
        await stage.peik.outbox.service.change_bot(BOT, limits=PaceLimits(bulk_per_s=5.0))
        start, end = _clock_time(stage.clock.wall_s() + 60), _clock_time(stage.clock.wall_s() + 3600)
        made = await campaign.create(people(400), start=True, quiet=Quiet(start=start, end=end, tz="UTC"))
        quiet = await campaign.until(made.id, Phase.QUIET)
        assert quiet.quiet_until_ms is not None
        estimate = await campaign.service.estimate(made.id)
        assert estimate.done_at_ms > quiet.quiet_until_ms
        await asyncio.sleep((quiet.quiet_until_ms - stage.clock.wall_ms()) / 1000)
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter(people(400))
        began = (quiet.moved_at_ms + 2000) / 1000  # what was in flight when they began has ended then
        assert not [one for one in stage.telegram.sent if began < one.at < quiet.quiet_until_ms / 1000]
        assert done.counts.delivered == 400

    tell(story)


def _clock_time(at_s: float) -> str:
    minutes = int(at_s // 60) % 1440
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def test_a_paid_broadcast_stops_at_its_cap() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(100), paid=Paid(stars_max=5))
        estimate = await campaign.service.estimate(made.id)
        assert (estimate.stars_most, estimate.stars, estimate.stars_max) == (10.0, 0.0, 5)
        await campaign.service.start(made.id)
        stopped = await campaign.until(made.id, Phase.STOPPED)
        assert "5 Stars" in (stopped.reason or "")
        assert sum(campaign.got().values()) == 50

    tell(story)


def test_it_starts_at_its_time() -> None:
    async def story(campaign: Campaign) -> None:
        stage = campaign.stage
        at_ms = stage.clock.wall_ms() + 3_600_000
        made = await campaign.create(people(3), start_at_ms=at_ms)
        assert made.phase is Phase.SCHEDULED
        await asyncio.sleep(3_590)
        assert not campaign.got()
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert at_ms <= (done.started_at_ms or 0) < at_ms + 2000

    tell(story)


def test_a_preview_goes_to_one_chat_ahead_of_all() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(3), "Hi")
        letter = await campaign.stage.ended(await campaign.service.preview(made.id, 9))
        assert (letter.chat, campaign.stage.texts(9)) == (9, ["Hi"])
        assert campaign.got() == Counter([9])
        assert (await campaign.service.get(made.id)).phase is Phase.DRAFT

    tell(story)


def test_two_broadcasts_of_one_bot_both_end() -> None:
    async def story(campaign: Campaign) -> None:
        one = await campaign.create(people(200), "one", start=True)
        other = await campaign.create(people(200), "other", start=True)
        await asyncio.gather(*(campaign.until(each.id, Phase.COMPLETED) for each in (one, other)))
        assert campaign.got() == Counter(people(200) * 2)

    tell(story)
