"""Calls that go straight through: tried again for a moment where that does no harm, and never longer than they are worth."""

import pytest

from peik.core.methods import classify
from peik.core.outcome import Reply
from peik.core.token import Token
from peik.telegram.routes import patience_with
from tests.outbox.story import TOKEN, Stage, play

PARAMS = b'{"chat_id":5,"callback_query_id":"1","pre_checkout_query_id":"1","inline_query_id":"1","results":[]}'


async def carry(stage: Stage, method: str) -> Reply:
    patience = patience_with(*classify(method))
    return await stage.peik.passthrough.carry(Token(TOKEN), method, PARAMS, patience=patience)


def tries(stage: Stage, kind: str) -> int:
    return stage.telegram.counters.faults[kind]


@pytest.mark.parametrize(
    ("method", "kind", "made"),
    [
        ("getChat", "error", 3),  # reads may be repeated whatever became of them
        ("getChat", "lose_after", 3),
        ("answerCallbackQuery", "lose_after", 5),  # the same answer twice changes nothing
        ("answerInlineQuery", "error", 5),
        ("answerPreCheckoutQuery", "lose_after", 1),  # twice could matter
        ("answerWebAppQuery", "error", 1),
        ("sendChatAction", "error", 1),  # not worth it
        ("beamHologram", "error", 1),  # nobody knows what it does
    ],
)
def test_what_may_have_arrived_is_repeated_only_where_that_does_no_harm(method: str, kind: str, made: int) -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add(kind, method=method)
        began = stage.clock.mono()
        reply = await carry(stage, method)
        assert reply.status in (0, 502)
        assert tries(stage, kind) == made
        assert stage.clock.mono() - began < 16

    play(story)


def test_a_moment_of_trouble_is_not_noticed() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("error", method="getChat", count=2)
        assert (await carry(stage, "getChat")).status == 200

    play(story)


def test_nothing_is_tried_again_after_its_time() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("slow", least_s=9.0, most_s=9.0)
        stage.telegram.faults.add("error", method="getChat")
        assert (await carry(stage, "getChat")).status == 502
        assert tries(stage, "error") == 1

    play(story)


def test_while_there_is_no_way_nothing_is_tried_and_that_is_said_at_once() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("dark")
        assert not (await carry(stage, "getChat")).left
        assert stage.peik.passthrough.is_away
        began = stage.clock.mono()
        assert not (await carry(stage, "answerPreCheckoutQuery")).left
        assert stage.clock.mono() == began

    play(story)


def test_a_refusal_and_a_flood_wait_are_passed_on_and_not_repeated() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.faults.add("flood", retry_after=3, method="getChat")
        assert (await carry(stage, "getChat")).status == 429
        assert tries(stage, "flood") == 1
        assert (await carry(stage, "answerCallbackQuery")).status == 400

    play(story)
