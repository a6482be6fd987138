"""The store fails at any call of the engine, before it does what was asked or after: everybody gets it once all the same."""

import random
from collections import Counter
from typing import Any

import pytest

from peik.broadcasts.engine import Broadcaster
from peik.broadcasts.model import Phase, RecipientState
from peik.broadcasts.wiring import BroadcastLetters
from peik.core.events import StoreFailed, Surprise
from peik.errors import InDoubt, StoreUnavailable
from tests.broadcasts.story import Campaign, people, tell
from tests.outbox.story import BOT

S = RecipientState
COUNT = 300  # more than a window of them


class Doubtful:
    """What it stands for, by a line that is cut now and then: before the question left, or before the answer came."""

    def __init__(self, behind: Any, chance: random.Random) -> None:
        self._behind = behind
        self._chance = chance

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._behind, name)
        if name in ("per_s", "bot_id"):
            return found

        async def ask(*given: Any, **named: Any) -> Any:
            fate = self._chance.random()
            if fate < 0.08:
                raise StoreUnavailable(code="store_gone", detail="It cannot be reached.")
            answer = await found(*given, **named)
            if fate < 0.16:
                raise InDoubt(code="no_answer", detail="The answer was lost.")
            return answer

        return ask


class Line:
    """An engine whose store is behind such a line."""

    def __init__(self, campaign: Campaign, seed: int) -> None:
        peik, chance = campaign.stage.peik, random.Random(seed)
        peik.broadcasts.engine.stop()
        parts = (
            peik.store.documents,
            peik.store.contacts,
            BroadcastLetters(peik.outbox.service, peik.store, is_paced=True),
        )
        documents, contacts, letters = (Doubtful(part, chance) for part in parts)
        self.engine = Broadcaster(
            documents=documents,
            contacts=contacts,
            letters=letters,
            clock=peik.clock,
            settled=peik.clock,
            events=peik.events,
            chance=chance,
            is_ours=lambda: True,
            keep_ms=86_400_000,
        )


@pytest.mark.parametrize("seed", range(4))
def test_a_store_that_fails_anywhere_loses_and_doubles_nothing(seed: int) -> None:
    async def story(campaign: Campaign) -> None:
        async with campaign.beside(Line(campaign, seed).engine):
            made = await campaign.create(people(COUNT), start=True)
            await campaign.when(made.id, lambda one: one.counts.delivered > 30)
            await campaign.service.pause(made.id)
            rest = await campaign.when(made.id, lambda one: one.is_at_rest)
            assert rest.counts.delivered == sum(campaign.got().values())
            await campaign.service.resume(made.id)
            done = await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter(people(COUNT))
        assert (done.counts.delivered, await campaign.states(made.id)) == (COUNT, {S.DELIVERED: COUNT})
        assert campaign.stage.events_of(StoreFailed)
        assert not campaign.stage.events_of(Surprise)

    tell(story)


@pytest.mark.parametrize("seed", range(4))
def test_a_recall_by_a_store_that_fails_deletes_all_that_was_sent(seed: int) -> None:
    async def story(campaign: Campaign) -> None:
        async with campaign.beside(Line(campaign, seed).engine):
            made = await campaign.create(people(COUNT), start=True)
            await campaign.when(made.id, lambda one: one.counts.delivered > 30)
            await campaign.service.recall(made.id)
            done = await campaign.until(made.id, Phase.RECALLED)
        sent = campaign.got()
        assert set(sent.values()) == {1}
        assert await campaign.states(made.id) == Counter({S.RECALLED: len(sent), S.CANCELLED: COUNT - len(sent)})
        assert (done.counts.recalled, done.unrecalled) == (len(sent), 0)
        telegram = campaign.stage.telegram
        lines = (await campaign.ledger(made.id)).values()
        assert not any(telegram.message(BOT, int(line.chat), one) for line in lines for one in line.messages)

    tell(story)
