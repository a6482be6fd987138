"""A batch was noted and its letters accepted, then nobody came for so long that keys are forgotten: they are looked for."""

from collections import Counter

from msgspec.structs import replace

from peik.broadcasts.audience import read_csv
from peik.broadcasts.model import Broadcast, DispatchBatch, LedgerEntry, Phase
from peik.broadcasts.repository import BroadcastRepository
from peik.core.letter import Priority
from tests.broadcasts.story import FIRST, Campaign, people, tell
from tests.outbox.story import BOT, call

HOUR_MS = 3_600_000


def test_letters_of_long_ago_are_found_and_not_sent_again() -> None:
    async def story(campaign: Campaign) -> None:
        stage = campaign.stage
        made = await campaign.create(people(20))
        for number in range(1, 6):  # without a key: it is forgotten
            labels = {"message_type": f"broadcast:{made.id}", "user_id": str(number), "round": 0}
            params = {"chat_id": FIRST + number - 1, "text": "Hello"}
            await stage.accept_all([call(params=params, metadata=labels, bot_id=BOT, priority=Priority.BULK)])
        at_ms = stage.clock.wall_ms() - 41 * HOUR_MS
        batch = DispatchBatch(entries=tuple(LedgerEntry(number) for number in range(1, 6)), next=6, at_ms=at_ms)

        def as_left(old: Broadcast) -> Broadcast:
            return replace(old, phase=Phase.RUNNING, batch=batch, started_at_ms=at_ms)

        await BroadcastRepository(stage.peik.store.documents).change(made.id, as_left)
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter(people(20))
        assert done.counts.delivered == 20

    tell(story)


def test_a_recipient_who_cannot_be_written_to_fails_alone() -> None:
    async def story(campaign: Campaign) -> None:
        long = "x" * 1000
        rows = "chat_id,name\n" + "".join(f"{chat},{long if chat == FIRST + 2 else 'Ali'}\n" for chat in people(5))
        made = await campaign.create(read_csv(rows.encode()), "{name}" * 5, start=True)
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert (done.counts.delivered, done.counts.failed) == (4, 1)
        assert "4096" in ((await campaign.ledger(made.id))[3].error or "")

    tell(story)
