"""Ids, keys and collections: what the service and the engine rely on when many ask at once."""

import random
from collections import Counter

import pytest
from msgspec.structs import replace

from peik.broadcasts.audience import Audience, ContactAudience, listed, read_csv
from peik.broadcasts.model import ACTIVE_COLLECTION, COLLECTION, Phase, PhaseStep, written
from peik.broadcasts.repository import ACTIVE_PAGE, BroadcastRepository, moved
from peik.broadcasts.service import SCANNED_MAX, BroadcastRequest, BroadcastService, digest_of
from peik.broadcasts.wiring import BroadcastLetters
from peik.core.documents import ContactFilter, Filing
from peik.errors import BadInput
from tests.broadcasts.story import Campaign, people, tell
from tests.outbox.story import BOT


class Drawn(random.Random):
    """Draws the numbers it is given."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self._numbers = list(numbers)

    def randrange(self, *bounds: object, **more: object) -> int:
        return self._numbers.pop(0)


def test_two_of_one_millisecond_do_not_write_over_each_other() -> None:
    async def story(campaign: Campaign) -> None:
        peik = campaign.stage.peik
        service = BroadcastService(
            documents=peik.store.documents,
            contacts=peik.store.contacts,
            letters=BroadcastLetters(peik.outbox.service, peik.store, is_paced=True),
            clock=peik.clock,
            events=peik.events,
            chance=Drawn(5, 5, 7),
        )
        asked = [
            BroadcastRequest(method="sendMessage", params={"text": "a"}, audience=listed(chats))
            for chats in ([1, 2, 3], [4])
        ]
        one, other = [await service.create(request) for request in asked]
        assert one.id[:13] == other.id[:13]
        assert [line.chat for line in (await campaign.ledger(one.id)).values()] == [1, 2, 3]
        assert [line.chat for line in (await campaign.ledger(other.id)).values()] == [4]

    tell(story)


def test_what_may_not_go_stays_with_its_ledger() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(3))
        assert not await BroadcastRepository(campaign.stage.peik.store.documents).remove(made.id, may=lambda one: False)
        assert len(await campaign.ledger(made.id)) == 3

    tell(story)


def test_many_that_wait_for_next_month_keep_none_of_today_from_going() -> None:
    async def story(campaign: Campaign) -> None:
        later = await campaign.create([1], start_at_ms=campaign.stage.clock.wall_ms() + 30 * 86_400_000)
        filings = []
        for number in range(ACTIVE_PAGE):
            copy = replace(later, id=f"{number:018d}")
            filings.append(Filing(collection=COLLECTION, key=copy.id, body=written(copy)))
            filings.append(Filing(collection=ACTIVE_COLLECTION, key=copy.id, body="1"))
        await campaign.stage.peik.store.documents.file(filings)
        made = await campaign.create(people(3), start=True)
        await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter(people(3))

    tell(story)


def test_a_recall_that_is_asked_for_again_counts_anew() -> None:
    async def story(campaign: Campaign) -> None:
        made = replace(await campaign.create(people(3)), phase=Phase.CANCELLED, recall_next=3, unrecalled=2)
        again = moved(made, PhaseStep.RECALL, at_ms=1)
        assert again is not None
        assert (again.recall_next, again.unrecalled, again.is_withdrawing) == (0, 0, True)
        assert again.recalls == made.recalls + 1, "its letters have keys of their own"
        same = moved(
            replace(again, phase=Phase.PAUSED, back_to=Phase.RECALLING, recall_next=2), PhaseStep.RECALL, at_ms=2
        )
        assert same is not None
        assert (same.recall_next, same.recalls) == (2, again.recalls), "a batch may be on its way under the old keys"

    tell(story)


def test_the_same_request_has_the_same_digest_and_another_has_not() -> None:
    def asked(audience: object, **more: object) -> str:
        given = {"method": "sendMessage", "params": {"text": "a"}, "audience": audience, **more}
        return digest_of(BroadcastRequest(**given), 5)  # type: ignore[arg-type]

    known = [ContactAudience(wanted=ContactFilter(languages=frozenset(words))) for words in ("ab", "ba", "ac")]
    assert asked(known[0]) == asked(known[1]) != asked(known[2])
    assert asked(listed([1, 2])) == asked(listed([1, 2, 2]), key="k", created_by="me")
    assert len({asked(listed(chats)) for chats in ([1, 2], [2, 1], [1], [12])}) == 4
    assert asked(listed([1]), name="n") != asked(listed([1]))


def test_what_a_key_stands_for_is_the_same_in_every_version() -> None:
    """A key is kept with its broadcast, and a repeat after an upgrade is the same one: a new field counts only where it is
    given."""
    bare = BroadcastRequest(method="sendMessage", params={"text": "a"}, audience=listed([1]))
    known = replace(bare, name="n", audience=ContactAudience(wanted=ContactFilter(languages=frozenset({"fa"}))))
    assert digest_of(bare, 5) == "43c317cccf69d42c295ee27fe62a4a65dada77c23789b7b2cd424a6cca67f605"
    assert digest_of(known, 5) == "b6a678a51e14b8667363cc09c504a3ca5038102e4ac0762231e0ba2ce78a6999"


@pytest.mark.parametrize("audience", [listed([1]), read_csv(b"chat_id\n1\n"), ContactAudience()])
def test_a_placeholder_that_nobody_fills_is_refused_for_every_audience(audience: Audience) -> None:
    async def story(campaign: Campaign) -> None:
        with pytest.raises(BadInput, match=r"\{first_name\}") as refused:
            await campaign.create(audience, "Salam {first_name}")
        assert refused.value.code == "unknown_placeholder"
        assert await campaign.service.find() == []

    tell(story)


def test_braces_for_a_list_without_columns_arrive_as_they_are_meant() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create([5], "Write {{name}}, {0} or {}", start=True)
        await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.stage.texts(5) == ["Write {name}, {0} or {}"]

    tell(story)


def test_an_estimate_looks_at_so_many_lines_and_says_so() -> None:
    async def story(campaign: Campaign) -> None:
        telegram, chats = campaign.stage.telegram, people(SCANNED_MAX + 1)
        for chat in (chats[0], chats[-1]):
            telegram.user(chat)
            telegram.write(BOT, chat, "/start")
            telegram.block(BOT, chat)
            await campaign.stage.ended(await campaign.stage.text(chat, "learns that it is blocked"))
        few, many = await campaign.create(chats[:4]), await campaign.create(chats)
        one, other = [await campaign.service.estimate(made.id) for made in (few, many)]
        assert (one.recipients, one.suppressed, one.is_least) == (3, 1, False)
        assert (other.recipients, other.suppressed, other.is_least) == (SCANNED_MAX, 1, True)

    tell(story)
