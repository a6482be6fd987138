"""Letters of an account: each try carries the same number, so that Telegram makes one message of them."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peik.accounts.letters import AccountCarrier, random_id_of
from peik.core.outcome import Delivered, Limited, NetworkFault, Refused, Reply, Uncertain, Unsent, judge
from peik.core.pace import ACCOUNT_LIMITS, Pace, PaceLimits
from peik.core.token import Token
from peik.telegram.port import Request
from tests.accounts.listening import until
from tests.accounts.stage import Stage
from tests.accounts.test_running import play, running


def request(account: int, letter: tuple[int, int] | None, *, method: str = "sendMessage", **params: Any) -> Request:
    return Request(
        token=Token(f"{account}:account"),
        method=method,
        params=msgspec.json.encode(params),
        timeout_s=75,
        letter=letter,
    )


def test_a_try_that_may_have_arrived_is_repeated_as_the_same_message(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        async with running(stage) as runner:
            await until(lambda: runner.client)
            ali, sara = stage.ali.user_id, stage.sara.user_id
            carrier = AccountCarrier(lambda account: runner if account == ali else None)
            stage.telegram.lose_answer("sendMessage")
            first = request(ali, (7, 12), chat_id=sara, text="once")
            assert isinstance(judge(await carrier.carry(first), method="sendMessage"), Uncertain)
            assert isinstance(judge(await carrier.carry(first), method="sendMessage"), Delivered)
            assert [one.text for one in stage.telegram.deliveries] == ["once"]
            again = request(ali, (7, 30), chat_id=sara, text="once")  # a dead letter that is sent again
            await carrier.carry(again)
            assert [one.text for one in stage.telegram.deliveries] == ["once", "once"]
            for _ in range(2):
                await carrier.carry(request(ali, None, chat_id=sara, text="no letter"))
            assert len(stage.telegram.deliveries) == 4
            await asyncio.sleep(3)
            assert len(await stage.kept()) == 4
            await carrier.close()

    play(tmp_path, story)


def test_answers_are_those_of_a_bot(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        ali, sara = stage.ali.user_id, stage.sara.user_id
        async with running(stage) as runner:
            carrier = AccountCarrier(lambda account: runner if account == ali else None)
            unsent = await carrier.carry(request(ali, (1, 1), chat_id=sara, text="too soon"))
            assert isinstance(judge(unsent, method="sendMessage"), Unsent)
            await until(lambda: runner.client)
            stage.telegram.flood("sendMessage", 60)
            flood = judge(await carrier.carry(request(ali, (1, 1), chat_id=sara, text="x")), method="sendMessage")
            assert isinstance(flood, Limited)
            assert flood.retry_after_s == 60
            no = judge(await carrier.carry(request(ali, (2, 2), chat_id=5, text="x")), method="sendMessage")
            assert isinstance(no, Refused)
            me = await carrier.carry(request(ali, None, method="getMe"))
            assert msgspec.json.decode(me.body)["result"]["id"] == ali
            other = await carrier.carry(request(sara, None, method="getMe"))
            assert (other.fault, other.left) == (NetworkFault.NOT_TRIED, False)

    play(tmp_path, story)


class _Line:
    """A connection that hangs, or raises what it must not."""

    me = access_of = None

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    @property
    def client(self) -> Any:
        return self

    async def carry(self, request: Request, *, random_id: int, access_of: Any = None) -> Reply:
        if self._error is not None:
            raise self._error
        await asyncio.get_running_loop().create_future()
        return Reply()


@pytest.mark.parametrize("error", [None, RuntimeError("broken")])
def test_a_line_that_misbehaves_is_uncertain(tmp_path: Path, error: Exception | None) -> None:
    async def story(stage: Stage) -> None:
        carrier = AccountCarrier(lambda account: _Line(error))
        reply = await carrier.carry(request(5, (1, 1), chat_id=1, text="x"))
        assert (reply.fault, reply.left) == (NetworkFault.RESET if error else NetworkFault.TIMEOUT, True)

    play(tmp_path, story)


def test_closing_answers_everybody_once(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        carrier = AccountCarrier(lambda account: _Line(None))
        replies: list[Reply] = []
        carrier.start(request(5, (1, 1), chat_id=1, text="x"), replies.append)
        await asyncio.sleep(1)
        carrier.start(request(5, (2, 2), chat_id=1, text="x"), replies.append)
        assert not replies
        await carrier.close()
        assert [one.fault for one in replies] == [NetworkFault.RESET, NetworkFault.RESET]
        late = await carrier.carry(request(5, (3, 3), chat_id=1, text="x"))
        assert (late.fault, late.left) == (NetworkFault.NOT_TRIED, False)

    play(tmp_path, story)


@given(st.integers(1, 2**52), st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1))
def test_a_random_id_is_one_that_telegram_takes(account: int, letter_id: int, number: int) -> None:
    found = random_id_of(account, letter_id=letter_id, number=number)
    assert 0 < found < found + 100 < 2**63
    assert found == random_id_of(account, letter_id=letter_id, number=number)


def test_random_ids_differ_and_never_change() -> None:
    """The last line is what letters in flight rest on through an upgrade."""
    made = {random_id_of(a, letter_id=b, number=c) for a in range(1, 20) for b in range(1, 20) for c in range(1, 20)}
    assert len(made) == 19**3
    assert random_id_of(1001, letter_id=7, number=12) == RANDOM_ID


RANDOM_ID = 796357378328665223


def test_an_account_writes_like_a_quick_person() -> None:
    pace = Pace(ACCOUNT_LIMITS, now=0.0)
    now, sent = 0.0, 0
    while now < 60.0:
        now = max(now, pace.bot_ready_at(now, interactive=False), pace.chat_ready_at(1000 + sent, now))
        pace.spend(1000 + sent, now, weight=1, interactive=False)
        sent += 1
    assert 19 <= sent <= 21
    assert ACCOUNT_LIMITS.group_per_min < PaceLimits().group_per_min
