"""Pause, resume, cancel and recall in every phase, and what cannot be asked."""

from collections import Counter
from typing import Any

import pytest

from peik.broadcasts.audience import ContactAudience
from peik.broadcasts.model import Canary, Phase, PhaseStep, RecipientState, steps_from
from peik.broadcasts.service import BroadcastRequest
from peik.core.documents import Contact, ContactFilter
from peik.core.events import Surprise
from peik.core.quiet import Quiet
from peik.errors import BadInput, Conflict, NotFound
from tests.broadcasts.story import FIRST, Campaign, people, tell, tell_closed
from tests.outbox.story import BOT

S = RecipientState
COUNT = 300


def all_day() -> Quiet:
    return Quiet(start="00:00", end="23:59")


async def brought_to(campaign: Campaign, phase: Phase) -> str:
    """A broadcast that stands there."""
    terms: dict[str, Any] = {"start": phase is not Phase.DRAFT}
    if phase is Phase.SCHEDULED:
        terms = {"start_at_ms": campaign.stage.clock.wall_ms() + 3_600_000}
    if phase in (Phase.CANARY, Phase.STOPPED):
        terms["canary"] = Canary(count=100, limit=0.0)
    if phase is Phase.QUIET:
        terms["quiet"] = all_day()
    if phase is Phase.STOPPED:
        campaign.stage.telegram.user(FIRST)
        campaign.stage.telegram.write(BOT, FIRST, "/start")
        campaign.stage.telegram.block(BOT, FIRST)
    made = await campaign.create(people(COUNT), **terms)
    if phase in (Phase.CANARY, Phase.RUNNING, Phase.PAUSED, Phase.RECALLING):
        await campaign.when(made.id, lambda one: one.counts.delivered > 20)
    if phase is Phase.PAUSED:
        await campaign.service.pause(made.id)
    if phase is Phase.RECALLING:
        await campaign.service.recall(made.id)
    await campaign.until(made.id, phase)
    return made.id


@pytest.mark.parametrize("phase", [Phase.SNAPSHOTTING, Phase.CANARY, Phase.RUNNING])
def test_paused_nothing_more_goes_and_resumed_everybody_gets_it(phase: Phase) -> None:
    async def story(campaign: Campaign) -> None:
        made = await brought_to(campaign, phase)
        await campaign.service.pause(made)
        rest = await campaign.when(made, lambda one: one.is_at_rest)
        assert (rest.phase, rest.queued) == (Phase.PAUSED, 0)
        sent = campaign.got()
        assert rest.counts.delivered == sum(sent.values()) < COUNT
        tally = (await campaign.stage.peik.outbox.service.tallies())[BOT]
        assert tally.waiting + tally.delayed + tally.active == 0, "what waited is taken back"
        await campaign.stage.ended(await campaign.stage.text(1, "an hour later", send_at_ms=_in_an_hour(campaign)))
        assert sum(campaign.got().values()) == sum(sent.values()) + 1
        await campaign.service.resume(made)
        done = await campaign.until(made, Phase.COMPLETED)
        assert campaign.got() == Counter([*people(COUNT), 1])
        assert done.counts.delivered == COUNT

    tell(story)


def _in_an_hour(campaign: Campaign) -> int:
    return campaign.stage.clock.wall_ms() + 3_600_000


@pytest.mark.parametrize(
    "phase",
    [
        Phase.DRAFT,
        Phase.SCHEDULED,
        Phase.SNAPSHOTTING,
        Phase.CANARY,
        Phase.RUNNING,
        Phase.PAUSED,
        Phase.QUIET,
        Phase.STOPPED,
    ],
)
def test_cancelled_nobody_else_gets_it_and_everybody_has_an_end(phase: Phase) -> None:
    async def story(campaign: Campaign) -> None:
        made = await brought_to(campaign, phase)
        await campaign.service.cancel(made)
        done = await campaign.until(made, Phase.CANCELLED)
        states = await campaign.states(made)
        assert set(states) <= {S.DELIVERED, S.CANCELLED, S.BLOCKED}
        assert states[S.DELIVERED] == sum(campaign.got().values()) == done.counts.delivered
        assert states[S.CANCELLED] == done.counts.cancelled == COUNT - done.counts.delivered - done.counts.blocked
        await campaign.service.delete(made)
        with pytest.raises(NotFound):
            await campaign.service.get(made)
        assert await campaign.stage.peik.store.documents.collections("broadcast") == []

    tell(story)


def test_what_was_sent_is_recalled() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(60), start=True)
        await campaign.until(made.id, Phase.COMPLETED)
        lines = await campaign.ledger(made.id)
        await campaign.service.recall(made.id)
        done = await campaign.until(made.id, Phase.RECALLED)
        assert (done.counts.recalled, done.counts.delivered, done.unrecalled) == (60, 0, 0)
        assert await campaign.states(made.id) == {S.RECALLED: 60}
        telegram = campaign.stage.telegram
        assert all(telegram.message(BOT, int(line.chat), line.messages[0]) is None for line in lines.values())

    tell(story)


def test_a_recall_in_the_middle_ends_it_too() -> None:
    async def story(campaign: Campaign) -> None:
        made = await brought_to(campaign, Phase.RUNNING)
        await campaign.service.recall(made)
        done = await campaign.until(made, Phase.RECALLED)
        sent = sum(campaign.got().values())
        assert 20 < sent < COUNT
        assert await campaign.states(made) == {S.RECALLED: sent, S.CANCELLED: COUNT - sent}
        assert done.counts.recalled == sent

    tell(story)


def test_what_is_older_than_two_days_cannot_be_recalled_and_is_counted() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(5), start=True)
        await campaign.until(made.id, Phase.COMPLETED)
        campaign.stage.clock.wall_offset_s += 49 * 3600
        await campaign.service.recall(made.id)
        done = await campaign.until(made.id, Phase.RECALLED)
        assert (done.counts.delivered, done.counts.recalled, done.unrecalled) == (5, 0, 5)
        assert all("48 hours" in (line.error or "") for line in (await campaign.ledger(made.id)).values())

    tell(story)


def test_a_recall_is_paused_resumed_and_ended() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(COUNT), start=True)
        await campaign.until(made.id, Phase.COMPLETED)
        await campaign.service.recall(made.id)
        await campaign.service.pause(made.id)
        await campaign.when(made.id, lambda one: one.is_at_rest)
        await campaign.service.resume(made.id)
        done = await campaign.until(made.id, Phase.RECALLED)
        assert (done.counts.recalled, done.unrecalled) == (COUNT, 0)

    tell(story)


def test_a_cancelled_recall_can_be_asked_for_again() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(COUNT), start=True)
        await campaign.until(made.id, Phase.COMPLETED)
        await campaign.service.recall(made.id)
        await campaign.when(made.id, lambda one: one.recall_next > 0)
        await campaign.service.cancel(made.id)
        done = await campaign.until(made.id, Phase.CANCELLED)
        assert done.counts.delivered + done.counts.recalled == COUNT
        await campaign.service.recall(made.id)
        done = await campaign.until(made.id, Phase.RECALLED)
        assert (done.counts.recalled, done.unrecalled) == (COUNT, 0)

    tell(story)


def test_what_cannot_be_asked_is_refused() -> None:
    async def story(campaign: Campaign) -> None:
        for phase in (Phase.DRAFT, Phase.RUNNING, Phase.QUIET):
            made = await brought_to(campaign, phase)
            for step in (PhaseStep.START, PhaseStep.PAUSE, PhaseStep.RESUME, PhaseStep.CANCEL, PhaseStep.RECALL):
                if step not in steps_from(phase):
                    with pytest.raises(Conflict, match=r".") as refused:
                        await getattr(campaign.service, step)(made)
                    assert refused.value.code == "wrong_phase"
            if phase is not Phase.DRAFT:
                with pytest.raises(Conflict):
                    await campaign.service.delete(made)
                await campaign.service.cancel(made)
        with pytest.raises(NotFound):
            await campaign.service.get("123")
        with pytest.raises(BadInput, match="does not send"):
            await campaign.service.create(_request("deleteMessage", {"message_id": 1}))
        with pytest.raises(BadInput, match="stars_max"):
            await campaign.service.create(_request("sendMessage", {"text": "a", "allow_paid_broadcast": True}))

    tell(story)


def _request(method: str, params: dict[str, Any]) -> Any:
    return BroadcastRequest(method=method, params=params, audience=ContactAudience())


def test_known_chats_are_written_down_when_it_starts() -> None:
    async def story(campaign: Campaign) -> None:
        contacts = campaign.stage.peik.store.contacts
        await contacts.save_contacts(BOT, [_contact(chat, "fa", is_gone=chat == 3) for chat in range(1, 6)], place=1)
        wanted = ContactAudience(wanted=ContactFilter(languages=frozenset({"fa"})))
        made = await campaign.create(wanted, "Salam {name}")
        assert (await campaign.service.estimate(made.id)).recipients == 4
        await contacts.save_contacts(BOT, [_contact(6, "fa"), _contact(7, "en")], place=2)
        await campaign.service.start(made.id)
        done = await campaign.until(made.id, Phase.COMPLETED)
        assert campaign.got() == Counter([1, 2, 4, 5, 6])
        assert campaign.stage.texts(6) == ["Salam chat 6"]
        assert (done.total, done.counts.suppressed) == (6, 1)

    tell(story)


def _contact(chat_id: int, language: str, *, is_gone: bool = False) -> Contact:
    return Contact(
        bot_id=BOT,
        chat_id=chat_id,
        type="private",
        name=f"chat {chat_id}",
        language=language,
        first_seen_ms=1,
        last_seen_ms=1,
        is_gone=is_gone,
    )


def test_the_same_key_is_the_same_broadcast() -> None:
    async def story(campaign: Campaign) -> None:
        made = await campaign.create(people(3), key="once")
        again = await campaign.create(people(3), key="once")
        assert made.id == again.id
        with pytest.raises(Conflict) as refused:
            await campaign.create(people(4), key="once")
        assert refused.value.code == "idempotency_key_reused"
        assert len(await campaign.service.find()) == 1

    tell(story)


# ---- what a restart, or a store that says no, leaves ----


def test_ends_that_came_while_nobody_listened_are_found() -> None:
    async def story(campaign: Campaign) -> None:
        stage = campaign.stage
        async with campaign.open():
            stage.telegram.dark(True)
            made = await campaign.create(people(3), start=True)
            await campaign.when(made.id, lambda one: len(one.open) == 3, timeout_s=60.0)
            stage.peik.broadcasts.engine.stop()
            stage.telegram.dark(False)
            await stage.quiet()
        async with campaign.open():
            await campaign.until(made.id, Phase.COMPLETED, timeout_s=30.0)
        assert campaign.got() == Counter(people(3))

    tell_closed(story)


def test_an_outbox_that_is_full_for_a_moment_is_no_surprise_and_costs_a_moment() -> None:
    async def story(campaign: Campaign) -> None:
        stage = campaign.stage
        stage.refuse("accept", 2)
        async with campaign.open():
            made = await campaign.create(people(3), start=True)
            await campaign.until(made.id, Phase.COMPLETED, timeout_s=20.0)
        assert (campaign.got(), stage.refusals["accept"]) == (Counter(people(3)), 0)
        assert not stage.events_of(Surprise)

    tell_closed(story)
