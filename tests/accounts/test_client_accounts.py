"""What is special about the simulated Telegram of accounts: its people's acts, and the ways in which it makes trouble."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from peik.accounts.client import ClientError, HistoryGap, Trouble
from peik.archive.store import Direction
from peik.core.outcome import Refused, Uncertain, judge
from peik.core.token import Token
from peik.telegram.port import Request
from peik.testing.accounts import Accounts, Person, SimClient
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.listening import Notebook, until

ALI, SARA = "+998901111111", "+998902222222"


class Stage:
    def __init__(self, clock: VirtualClock) -> None:
        self.telegram = Accounts(clock, seed=5)
        self.ali = self.telegram.register(ALI, first_name="Ali", username="ali")
        self.sara = self.telegram.register(SARA, first_name="Sara", username="sara")

    def new(self, secret: str | None = None) -> SimClient:
        return self.telegram.clients(session_id="s", agent_id="a", secret=secret, file=None, proxy=None)

    async def signed_in(self, person: Person) -> SimClient:
        client = self.new()
        await client.connect()
        sent = await client.send_code(person.phone)
        await client.sign_in(person.phone, self.telegram.code_of(person.phone), sent.code_hash)
        return client


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        await story(Stage(clock))

    run_virtual(main)


async def troubled(step: Awaitable[object], trouble: Trouble) -> ClientError:
    with pytest.raises(ClientError) as caught:
        await step
    assert caught.value.trouble is trouble
    return caught.value


async def carry(client: SimClient, method: str, random_id: int = 1, **params: Any) -> Any:
    request = Request(token=Token("1:acc"), method=method, params=json.dumps(params).encode(), timeout_s=5)
    return judge(await client.carry(request, random_id=random_id), method=method)


def test_one_key_in_two_places_costs_both() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.signed_in(stage.ali)
        notebook = Notebook()
        await first.listen(notebook, None)
        second = stage.new(first.secret())
        await troubled(second.connect(), Trouble.REVOKED)
        assert [one.trouble for one in notebook.lost] == [Trouble.REVOKED]
        assert not first.is_connected
        await troubled(stage.new(first.secret()).connect(), Trouble.REVOKED)

    play(story)


def test_codes_end_by_time_by_tries_and_by_another_key() -> None:
    async def story(stage: Stage) -> None:
        client = stage.new()
        await client.connect()
        sent = await client.send_code(ALI)
        right = stage.telegram.code_of(ALI)
        other = stage.new()
        await other.connect()
        await troubled(other.sign_in(ALI, right, sent.code_hash), Trouble.CODE_EXPIRED)
        for _ in range(5):
            await troubled(client.sign_in(ALI, "wrong", sent.code_hash), Trouble.BAD_CODE)
        await troubled(client.sign_in(ALI, right, sent.code_hash), Trouble.CODE_EXPIRED)
        sent = await client.send_code(ALI)
        await asyncio.sleep(301)
        await troubled(client.sign_in(ALI, stage.telegram.code_of(ALI), sent.code_hash), Trouble.CODE_EXPIRED)
        for _ in range(3):
            await client.send_code(ALI)
        flood = await troubled(client.send_code(ALI), Trouble.FLOOD)
        await asyncio.sleep(flood.wait_s + 1)
        assert await client.send_code(ALI, by_sms=True)

    play(story)


def test_a_ban_a_password_and_a_number_without_an_account() -> None:
    async def story(stage: Stage) -> None:
        client = stage.new()
        await client.connect()
        sent = await client.send_code("+77010000000")
        code = stage.telegram.code_of("+77010000000")
        await troubled(client.sign_in("+77010000000", code, sent.code_hash), Trouble.NOT_REGISTERED)
        stage.sara.password = "p"
        await troubled(stage.signed_in(stage.sara), Trouble.PASSWORD_NEEDED)
        ali = await stage.signed_in(stage.ali)
        stage.telegram.ban(stage.ali)
        assert not ali.is_connected
        await troubled(client.send_code(ALI), Trouble.PHONE_BANNED)

    play(story)


def test_each_side_of_a_private_chat_has_ids_of_its_own_and_a_channel_has_one_for_all() -> None:
    async def story(stage: Stage) -> None:
        telegram = stage.telegram
        private = telegram.private(stage.ali, stage.sara)
        group = telegram.group("Family", stage.ali, stage.sara)
        channel = telegram.channel("News", stage.sara, stage.ali, is_broadcast=True)
        notes = {}
        for person in (stage.ali, stage.sara):
            client = await stage.signed_in(person)
            notes[person] = Notebook()
            await client.listen(notes[person], None)
        telegram.say(telegram.private(stage.ali, stage.ali), stage.ali, "to myself")
        telegram.say(private, stage.ali, "from my phone")
        telegram.say(group, stage.sara, "all")
        telegram.say(channel, stage.sara, "post")
        await until(lambda: len(notes[stage.ali].messages) == 4 and len(notes[stage.sara].messages) == 3)
        mine, hers = notes[stage.ali].messages, notes[stage.sara].messages
        assert [(one.chat_id, one.message_id) for one in mine] == [
            (stage.ali.user_id, 1), (stage.sara.user_id, 2), (group.chat_id, 3), (channel.chat_id, 1),
        ]  # fmt: skip
        assert [(one.chat_id, one.message_id) for one in hers] == [
            (stage.ali.user_id, 1), (group.chat_id, 2), (channel.chat_id, 1),
        ]  # fmt: skip
        assert (mine[1].direction, hers[0].direction) == (Direction.SENT, Direction.RECEIVED)
        assert mine[3].sender_id == channel.chat_id

    play(story)


def test_edits_and_deletions_come_in_order_and_with_or_without_a_chat() -> None:
    async def story(stage: Stage) -> None:
        telegram = stage.telegram
        private = telegram.private(stage.ali, stage.sara)
        team = telegram.channel("Team", stage.ali, stage.sara)
        client = await stage.signed_in(stage.ali)
        notebook = Notebook()
        await client.listen(notebook, None)
        draft = telegram.say(private, stage.sara, "draft")
        await asyncio.sleep(3)
        telegram.edit(private, draft, "final")
        telegram.delete(private, draft)
        post = telegram.say(team, stage.sara, "post")
        telegram.happen(team, "reaction", emoji="👍")
        telegram.delete(team, post)
        await until(lambda: len(notebook.deleted) == 2)
        assert [(one.text, one.edited_at_ms > 0) for one in notebook.messages] == [
            ("draft", False), ("final", True), ("post", False),
        ]  # fmt: skip
        assert notebook.deleted == [(None, (1,)), (team.chat_id, (1,))]
        assert [one.event_type for one in notebook.happenings] == ["reaction"]
        assert await client.history(stage.sara.user_id, None, below=None, above=0, limit=10) == []

    play(story)


def test_a_channel_that_cannot_be_replayed_is_a_gap_of_that_channel() -> None:
    async def story(stage: Stage) -> None:
        team = stage.telegram.channel("Team", stage.ali, stage.sara)
        client = await stage.signed_in(stage.ali)
        notebook = Notebook()
        await client.listen(notebook, None)
        await until(lambda: notebook.states)
        await client.disconnect()
        stage.telegram.say(team, stage.sara, "gone")
        stage.telegram.forget(team)
        await client.connect()
        await client.listen(notebook, notebook.state)
        await until(lambda: notebook.gaps == [HistoryGap(chat_id=team.chat_id)])
        found = await client.history(team.chat_id, None, below=None, above=0, limit=10)
        assert [one.text for one in found] == ["gone"]

    play(story)


def test_a_lost_answer_is_uncertain_and_the_same_random_id_makes_no_second_message() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.signed_in(stage.ali)
        stage.telegram.lose_answer("sendMessage")
        assert isinstance(await carry(client, "sendMessage", 9, chat_id="@sara", text="once"), Uncertain)
        again = await carry(client, "sendMessage", 9, chat_id=stage.sara.user_id, text="once")
        assert json.loads(again.result)["message_id"] == 1
        assert [one.text for one in stage.telegram.deliveries] == ["once"]

    play(story)


def test_what_an_account_may_not_do() -> None:
    async def story(stage: Stage) -> None:
        news = stage.telegram.channel("News", stage.sara, stage.ali, is_broadcast=True)
        private = stage.telegram.private(stage.ali, stage.sara)
        hers = stage.telegram.say(private, stage.sara, "hers")
        client = await stage.signed_in(stage.ali)
        for method, params in (
            ("sendMessage", {"chat_id": news.chat_id, "text": "x"}),
            ("sendMessage", {"chat_id": 1, "text": "x"}),
            ("sendMessage", {"chat_id": stage.sara.user_id, "text": "x" * 5000}),
            ("sendMessage", {"chat_id": stage.sara.user_id, "text": "*x", "parse_mode": "MarkdownV2"}),
            ("editMessageText", {"chat_id": stage.sara.user_id, "message_id": hers.message_id, "text": "y"}),
            ("sendPoll", {"chat_id": stage.sara.user_id}),
        ):
            assert isinstance(await carry(client, method, **params), Refused), (method, params)
        assert not stage.telegram.deliveries

    play(story)


def test_the_same_seed_makes_the_same_world() -> None:
    made = []

    async def story(stage: Stage) -> None:
        client = await stage.signed_in(stage.ali)
        made.append((client.secret(), (await stage.new().connect()), stage.telegram.code_of(ALI)))

    play(story)
    play(story)
    assert made[0] == made[1]
