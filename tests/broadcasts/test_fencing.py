"""Whoever noted a batch may be frozen, and accept it much later: nothing goes out that was taken back meanwhile."""

import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from peik.broadcasts.dispatch import deletion_of, letter_to
from peik.broadcasts.model import Broadcast, BroadcastLettersPort, DispatchBatch, LedgerEntry, Phase, RecipientState
from peik.broadcasts.repository import BroadcastRepository
from peik.broadcasts.wiring import BroadcastLetters
from tests.broadcasts.story import Campaign, people, tell
from tests.outbox.story import BOT

COUNT = 12
NOTED = tuple(LedgerEntry(number) for number in range(1, 6))


def letters_of(campaign: Campaign) -> BroadcastLettersPort:
    peik = campaign.stage.peik
    return BroadcastLetters(peik.outbox.service, peik.store, is_paced=True)


async def left(campaign: Campaign, broadcast_id: str, phase: Phase) -> Broadcast:
    """As somebody leaves it who notes a batch and is frozen, after which another halts it."""
    batch = DispatchBatch(entries=NOTED, next=len(NOTED) + 1, at_ms=campaign.stage.clock.wall_ms())

    def as_left(old: Broadcast) -> Broadcast:
        back_to = Phase.RECALLING if old.recall_next else Phase.RUNNING
        return replace(old, phase=phase, back_to=back_to, batch=batch, is_withdrawing=True)

    changed = await BroadcastRepository(campaign.stage.peik.store.documents).change(broadcast_id, as_left)
    assert changed is not None
    campaign.stage.peik.broadcasts.engine.look()
    return changed[1]


@pytest.mark.parametrize("phase", [Phase.PAUSED, Phase.CANCELLING, Phase.RECALLING])
def test_letters_of_a_batch_that_was_noted_do_not_go_out_after_it_halted(phase: Phase) -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(COUNT))
        seen = await left(campaign, made.id, phase)
        await campaign.when(made.id, lambda one: one.is_at_rest)
        rows = await campaign.ledger(made.id)
        await letters_of(campaign).accept(BOT, [letter_to(seen, entry, rows[entry.number]) for entry in NOTED])
        await asyncio.sleep(3600)
        assert not campaign.got()
        if phase is not Phase.PAUSED:
            assert await campaign.states(made.id) == {RecipientState.CANCELLED: COUNT}
            return
        await campaign.service.resume(made.id)
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter(people(COUNT))
        assert done.counts.delivered == COUNT

    tell(story)


def test_a_recall_that_halted_deletes_nothing_later() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(COUNT), start=True)
        await campaign.until(made.id, Phase.COMPLETED)
        await BroadcastRepository(campaign.stage.peik.store.documents).change(
            made.id, lambda old: replace(old, recall_next=1)
        )
        seen = await left(campaign, made.id, Phase.PAUSED)
        await campaign.when(made.id, lambda one: one.is_at_rest)
        rows = await campaign.ledger(made.id)
        await letters_of(campaign).accept(BOT, [deletion_of(seen, entry, rows[entry.number]) for entry in NOTED])
        await asyncio.sleep(3600)
        assert await campaign.states(made.id) == {RecipientState.DELIVERED: COUNT}
        telegram = campaign.stage.telegram
        assert all(telegram.message(BOT, int(line.chat), line.messages[0]) for line in rows.values())
        await campaign.service.resume(made.id)
        done = await campaign.until(made.id, Phase.RECALLED)
        assert (done.counts.recalled, done.unrecalled) == (COUNT, 0)

    tell(story)


def test_a_batch_that_is_resumed_before_it_was_closed_goes_out_once() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(COUNT))
        await left(campaign, made.id, Phase.PAUSED)
        await campaign.service.resume(made.id)
        await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter(people(COUNT))

    tell(story)


def test_a_bot_that_is_gone_leaves_a_halted_broadcast_as_it_is() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(COUNT))
        await campaign.stage.peik.outbox.service.remove_bot(BOT)
        await left(campaign, made.id, Phase.PAUSED)
        rest = await campaign.when(made.id, lambda one: one.is_at_rest)
        assert (rest.phase, rest.pending) == (Phase.PAUSED, COUNT)
        await campaign.service.cancel(made.id)
        await campaign.until(made.id, Phase.CANCELLED)
        assert await campaign.states(made.id) == {RecipientState.CANCELLED: COUNT}

    tell(story)
