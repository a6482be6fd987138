"""One suite for the port `AccountClient`: Telethon's over a TL server, and the simulated one. Both must pass."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest

from peik.accounts.client import AccountClient, ClientError, ClientFactory, HistoryGap, Trouble
from peik.accounts.telethon.client import TelethonClients
from peik.core.outcome import Delivered, Limited, Refused, Unsent, judge
from peik.core.token import Token
from peik.telegram.port import Request
from peik.testing.accounts import Accounts
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts import tl_server
from tests.accounts.listening import Notebook, until
from tests.accounts.tl_server import CODE, PASSWORD, PHONE, TlTelegram


class World(Protocol):
    """What a story needs of a Telegram: Ali with a phone, Sara who writes to him, a supergroup of both."""

    factory: ClientFactory
    sara: int
    team: int

    def code(self) -> str: ...
    def write(self, text: str) -> int: ...
    def post(self, text: str) -> None: ...
    def forget(self) -> None: ...
    def flood(self, wait_s: int) -> None: ...
    def revoke(self) -> None: ...
    def cut(self) -> None: ...
    def set_down(self, is_down: bool) -> None: ...
    def set_password(self, password: str) -> None: ...


class TlWorld:
    def __init__(self, clock: VirtualClock) -> None:
        self.server = TlTelegram()
        self.server.tells_channels = True
        self.factory = TelethonClients(api_id=1, api_hash="h", clock=clock, prepare=self.server.prepare)
        self.sara = tl_server.SARA
        self.team = -1000000000000 - tl_server.TEAM

    def code(self) -> str:
        return CODE

    def write(self, text: str) -> int:
        return int(self.server.private(text).id)

    def post(self, text: str) -> None:
        self.server.post(tl_server.TEAM, text)

    def forget(self) -> None:
        self.server.too_long.add(None)

    def flood(self, wait_s: int) -> None:
        self.server.next("SendMessage", f"FLOOD_WAIT_{wait_s}")

    def revoke(self) -> None:
        self.server.signed_in.clear()
        self.server.next("GetDifference", "SESSION_REVOKED")
        self.server.senders[-1].receive(tl_server.types.UpdatesTooLong())

    def cut(self) -> None:
        self.server.senders[-1].end(ConnectionError("reset"))

    def set_down(self, is_down: bool) -> None:
        self.server.is_down = is_down

    def set_password(self, password: str) -> None:
        self.server.has_password = True


class SimWorld:
    def __init__(self, clock: VirtualClock) -> None:
        self.telegram = Accounts(clock, seed=3)
        self.ali = self.telegram.register(PHONE, first_name="Ali")
        self._sara = self.telegram.register("+77010000000", first_name="Sara")
        self._team = self.telegram.channel("Team", self._sara, self.ali)
        self.private = self.telegram.private(self.ali, self._sara)
        self.factory = self.telegram.clients
        self.sara = self._sara.user_id
        self.team = self._team.chat_id

    def code(self) -> str:
        return self.telegram.code_of(PHONE)

    def write(self, text: str) -> int:
        self.telegram.say(self.private, self._sara, text)
        return max(self.ali.box.posts)

    def post(self, text: str) -> None:
        self.telegram.say(self._team, self._sara, text)

    def forget(self) -> None:
        self.telegram.forget(self.ali)

    def flood(self, wait_s: int) -> None:
        self.telegram.flood("sendMessage", wait_s)

    def revoke(self) -> None:
        self.telegram.revoke(self.ali)

    def cut(self) -> None:
        self.telegram.cut(self.ali)

    def set_down(self, is_down: bool) -> None:
        self.telegram.is_down = is_down

    def set_password(self, password: str) -> None:
        self.ali.password = password


class Stage:
    def __init__(self, world: World) -> None:
        self.world = world
        self.notebook = Notebook()
        self.secret: str | None = None
        self.client = self.new()

    def new(self) -> AccountClient:
        return self.world.factory(session_id="s", agent_id="a", secret=self.secret, file=None, proxy=None)

    async def sign_in(self) -> None:
        assert await self.client.connect() is None
        sent = await self.client.send_code(PHONE)
        await self.client.sign_in(PHONE, self.world.code(), sent.code_hash)
        self.secret = self.client.secret()

    async def begin(self) -> None:
        await self.sign_in()
        await self.client.listen(self.notebook, None)
        await until(lambda: self.notebook.state is not None)

    async def again(self, state: bytes | None) -> None:
        await self.client.disconnect()
        self.client, self.notebook = self.new(), Notebook()
        assert await self.client.connect() is not None
        await self.client.listen(self.notebook, state)

    async def send(self, random_id: int, **params: Any) -> Any:
        request = Request(token=Token("1:acc"), method="sendMessage", params=json.dumps(params).encode(), timeout_s=30)
        return judge(await self.client.carry(request, random_id=random_id), method="sendMessage")


@pytest.fixture(params=[TlWorld, SimWorld])
def play(request: pytest.FixtureRequest) -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    def played(story: Callable[[Stage], Awaitable[None]]) -> None:
        async def main(clock: VirtualClock) -> None:
            stage = Stage(request.param(clock))
            await story(stage)
            await stage.client.disconnect()

        run_virtual(main)

    return played


Play = Callable[[Callable[[Stage], Awaitable[None]]], None]


def test_a_key_is_signed_in_once_and_then_by_itself(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.sign_in()
        await stage.client.disconnect()
        assert not stage.client.is_connected
        stage.client = stage.new()
        me = await stage.client.connect()
        assert me is not None
        assert me.phone == PHONE
        assert stage.client.secret() == stage.secret
        await stage.client.log_out()
        stage.client = stage.new()
        assert await stage.client.connect() is None

    play(story)


def test_a_wrong_code_and_a_password_are_told(play: Play) -> None:
    async def story(stage: Stage) -> None:
        stage.world.set_password(PASSWORD)
        await stage.client.connect()
        sent = await stage.client.send_code(PHONE)
        with pytest.raises(ClientError) as caught:
            await stage.client.sign_in(PHONE, "x", sent.code_hash)
        assert caught.value.trouble is Trouble.BAD_CODE
        with pytest.raises(ClientError) as caught:
            await stage.client.sign_in(PHONE, stage.world.code(), sent.code_hash)
        assert caught.value.trouble is Trouble.PASSWORD_NEEDED
        assert (await stage.client.give_password(PASSWORD)).phone == PHONE

    play(story)


def test_it_sees_what_happens_and_the_state_follows(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        before = stage.notebook.state
        message_id = stage.world.write("hello")
        stage.world.post("to all")
        await until(lambda: len(stage.notebook.messages) == 2)
        private, post = stage.notebook.messages
        assert (private.chat_id, private.message_id, private.text) == (stage.world.sara, message_id, "hello")
        assert (post.chat_id, post.text, post.sender_id is not None) == (stage.world.team, "to all", True)
        await until(lambda: stage.notebook.state != before, within_s=3)
        heard = stage.notebook.heard
        assert max(heard.index(private), heard.index(post)) < len(heard) - 1

    play(story)


def test_what_was_missed_is_caught_up_and_a_crash_repeats(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.world.write("seen")
        stage.world.post("seen too")
        await until(lambda: len(stage.notebook.messages) == 2)
        await asyncio.sleep(2)
        state = stage.notebook.state
        await stage.client.disconnect()
        stage.world.write("missed")
        stage.world.post("missed too")
        for _ in range(2):  # the second time from the same old state: after a crash
            await stage.again(state)
            await until(lambda: len(stage.notebook.messages) == 2)
            assert sorted(stage.notebook.texts) == ["missed", "missed too"]

    play(story)


def test_a_hole_is_told(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        state = stage.notebook.state
        await stage.client.disconnect()
        stage.world.write("gone")
        stage.world.forget()
        await stage.again(state)
        await until(lambda: HistoryGap(chat_id=None) in stage.notebook.gaps)
        stage.world.write("after")
        await until(lambda: stage.notebook.texts[-1:] == ["after"])

    play(story)


def test_a_listener_that_fails_ends_it_and_gets_it_again(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        state = stage.notebook.state
        stage.notebook.error = OSError("full")
        stage.world.write("precious")
        await until(lambda: stage.notebook.lost)
        assert stage.notebook.lost[0].trouble is Trouble.OFFLINE
        assert stage.notebook.state == state
        await stage.again(state)
        await until(lambda: stage.notebook.texts == ["precious"])

    play(story)


def test_revoked_and_cut_are_told_once(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.world.cut()
        await until(lambda: stage.notebook.lost)
        await stage.again(stage.notebook.state)
        stage.world.revoke()
        await until(lambda: stage.notebook.lost)
        assert [one.trouble for one in stage.notebook.lost] == [Trouble.REVOKED]
        assert not stage.client.is_connected

    play(story)


def test_a_send_is_the_same_by_its_random_id_and_is_seen(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        first = await stage.send(11, chat_id=stage.world.sara, text="<b>hi</b>", parse_mode="HTML")
        again = await stage.send(11, chat_id=stage.world.sara, text="<b>hi</b>", parse_mode="HTML")
        assert isinstance(first, Delivered)
        assert isinstance(again, Delivered)
        sent, same = json.loads(first.result), json.loads(again.result)
        assert sent["message_id"] == same["message_id"]
        assert (sent["text"], sent["chat"]) == ("hi", {"id": stage.world.sara, "type": "private"})
        await until(lambda: stage.notebook.texts)
        await asyncio.sleep(5)
        assert {(one.message_id, one.text) for one in stage.notebook.messages} == {(sent["message_id"], "hi")}

    play(story)


def test_floods_refusals_and_a_dead_line(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.world.flood(30)
        limited = await stage.send(1, chat_id=stage.world.sara, text="x")
        assert isinstance(limited, Limited)
        assert limited.retry_after_s == 30
        assert isinstance(await stage.send(2, chat_id=987654, text="x"), Refused)
        await stage.client.disconnect()
        assert isinstance(await stage.send(3, chat_id=stage.world.sara, text="x"), Unsent)
        stage.world.set_down(True)
        with pytest.raises(ClientError) as caught:
            await stage.new().connect()
        assert caught.value.trouble is Trouble.OFFLINE
        stage.world.set_down(False)

    play(story)


def test_history_goes_backwards(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        ids = [stage.world.write(f"m{number}") for number in range(6)]
        [dialog] = [one for one in (await stage.client.dialogs()).dialogs if one.chat_id == stage.world.sara]
        page = await stage.client.history(stage.world.sara, dialog.access, below=None, above=0, limit=4)
        assert [one.message_id for one in page] == ids[:1:-1]
        rest = await stage.client.history(stage.world.sara, None, below=page[-1].message_id, above=ids[0], limit=4)
        assert [one.text for one in rest] == ["m1"]

    play(story)
