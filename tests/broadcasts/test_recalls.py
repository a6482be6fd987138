"""Recalls that are asked for again, and letters that were sent again by hand before one."""

from peik.broadcasts.model import Canary, Paid, Phase, RecipientState
from tests.broadcasts.story import FIRST, Campaign, people, tell
from tests.outbox.story import BOT

S = RecipientState
COUNT = 300


def test_a_second_recall_deletes_what_the_first_could_not() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(COUNT), start=True)
        await campaign.until(made.id, Phase.COMPLETED)
        faults = campaign.stage.telegram.faults
        faults.add("error", status=400, words="Bad Request: message can't be deleted", method="deleteMessage", count=1)
        await campaign.service.recall(made.id)
        await campaign.when(made.id, lambda one: one.unrecalled == 1)
        await campaign.service.cancel(made.id)
        await campaign.until(made.id, Phase.CANCELLED)
        await campaign.service.recall(made.id)
        done = await campaign.until(made.id, Phase.RECALLED)
        assert (done.counts.recalled, done.unrecalled) == (COUNT, 0)
        assert await campaign.states(made.id) == {S.RECALLED: COUNT}

    tell(story)


def test_what_was_sent_again_by_hand_is_recalled_too() -> None:
    async def story(campaign: Campaign) -> None:
        stage = campaign.stage
        for chat in people(2):
            stage.telegram.user(chat)
            stage.telegram.write(BOT, chat, "/start")
            stage.telegram.block(BOT, chat)
        made = await campaign.create(people(5), start=True)
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert (done.counts.blocked, done.counts.delivered) == (2, 3)
        letter_id = (await campaign.ledger(made.id))[1].letter_id
        assert letter_id is not None
        stage.telegram.unblock(BOT, FIRST)
        await stage.peik.outbox.service.open_chat(BOT, FIRST)
        await stage.peik.outbox.service.retry(letter_id)
        await stage.ended(letter_id)
        assert campaign.got()[FIRST] == 1
        await campaign.service.recall(made.id)
        done = await campaign.until(made.id, Phase.RECALLED)
        assert (done.counts.recalled, done.counts.blocked, done.unrecalled) == (4, 1, 0)
        line = (await campaign.ledger(made.id))[1]
        assert (line.state, line.error) == (S.RECALLED, None)
        assert stage.telegram.message(BOT, FIRST, line.messages[0]) is None

    tell(story)


def test_stopped_by_its_cap_a_first_slice_stays_a_first_slice() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(20), start=True, canary=Canary(count=5), paid=Paid(stars_max=0.2))
        stopped = await campaign.until(made.id, Phase.STOPPED)
        assert "Stars" in (stopped.reason or "")
        assert (await campaign.service.resume(made.id)).phase is Phase.CANARY

    tell(story)
