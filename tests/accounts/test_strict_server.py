"""Every error that Telegram documents for a method that Peik uses, answered on demand: what the page says Peik does with it is
what it does (docs/pages/account_errors.py). And what a strict server does to an account that follows it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from telethon.sessions import StringSession

from docs.pages.account_errors import DOCUMENTED, Role, code_of_reply, done_with, errors_of, outcome_of, taken_for
from peik.accounts.budget import Budget
from peik.accounts.client import AccountClient, ClientError, HistoryGap, PhoneContact, Trouble
from peik.accounts.events import SessionFlooded
from peik.accounts.letters import AccountCarrier
from peik.accounts.registry import HealthGrade, Registry, health_of
from peik.accounts.runner import SessionEnded, SessionRunner, SessionTools
from peik.accounts.sign_in import SignInSteps
from peik.accounts.telethon.client import NOBODY, TelethonClients
from peik.archive.store import MessageFilter, SessionState
from peik.core.events import Event, Events
from peik.core.outcome import Limited, Refused, judge
from peik.core.token import Token
from peik.errors import Problem
from peik.secrets.vault import Vault
from peik.telegram.port import Request
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.inline_archive import opened
from tests.accounts.listening import until
from tests.accounts.memory_archive import MemoryBook
from tests.accounts.test_telethon_seeing import NEWS_CHAT, TEAM_CHAT, Stage, play
from tests.accounts.test_telethon_sending import carry
from tests.accounts.tl_server import (
    CODE,
    GROUP,
    INVITE,
    ME,
    NEWS,
    PASSWORD,
    PHONE,
    SARA,
    SARAS_PHONE,
    STRANGERS,
    TEAM,
    TlTelegram,
    types,
)


def rows(role: Role) -> list[Any]:
    return [
        pytest.param(method, name, id=f"{method}-{name}")
        for method in DOCUMENTED[role]
        for name in errors_of(role, method)
    ]


# ---- signing in ----

_STEP_OF = {
    "auth.sendCode": "code",
    "auth.resendCode": "sms",
    "auth.signIn": "sign in",
    "account.getPassword": "password",
    "auth.checkPassword": "password",
    "auth.exportLoginToken": "qr",
}
_STATES = {
    Trouble.FLOOD: SessionState.FLOOD_WAIT,
    Trouble.CODE_EXPIRED: SessionState.NEW,
    Trouble.BAD_PHONE: SessionState.FAILED,
    Trouble.PHONE_BANNED: SessionState.FAILED,
    Trouble.NOT_REGISTERED: SessionState.FAILED,
    Trouble.REVOKED: SessionState.FAILED,
}


@pytest.mark.parametrize(("method", "name"), [row for row in rows(Role.SIGNING_IN) if row.values[0] in _STEP_OF])
def test_a_step_of_signing_in(method: str, name: str) -> None:
    """It says what happened, leaves the state that the page says, and can be begun again."""
    step, trouble = _STEP_OF[method], taken_for(name)

    async def story(clock: VirtualClock) -> None:
        server = TlTelegram()
        server.has_password = step == "password"
        registry = Registry(MemoryBook(), clock)
        clients = TelethonClients(api_id=1, api_hash="h", clock=clock, prepare=server.prepare)
        signing = SignInSteps(registry, Vault([b"k" * 32]), clients, clock)
        session_id = (await registry.create_session("a", phone=PHONE)).session_id
        if step in ("sign in", "password"):
            await signing.begin(session_id)
        if step == "password":
            await signing.give_code(session_id, CODE)
        before = (await registry.need(session_id)).state
        server.fail(method, name)
        steps = {
            "code": lambda: signing.begin(session_id),
            "sms": lambda: signing.begin(session_id, by_sms=True),
            "sign in": lambda: signing.give_code(session_id, CODE),
            "password": lambda: signing.give_password(session_id, PASSWORD),
            "qr": lambda: signing.qr(session_id),
        }
        (said,) = await asyncio.gather(steps[step](), return_exceptions=True)
        if isinstance(said, Problem):
            assert said.detail, "it is said"
            assert code(said) == trouble
        else:
            assert trouble is Trouble.PASSWORD_NEEDED
        after = (await registry.need(session_id)).state
        if step != "qr":  # a picture that could not be had changes nothing
            wanted = (
                SessionState.PASSWORD_NEEDED if trouble is Trouble.PASSWORD_NEEDED and step == "sign in" else before
            )
            assert after is _STATES.get(trouble, after if trouble is Trouble.PASSWORD_NEEDED else wanted)
        server.always.clear()
        await asyncio.sleep(3700)
        await signing.begin(session_id)
        done = await signing.give_code(session_id, CODE)
        if server.has_password:
            done = await signing.give_password(session_id, PASSWORD)
        assert done.state is SessionState.ACTIVE
        await signing.close()

    run_virtual(story)


def code(problem: Problem) -> str:
    return "offline" if problem.code == "telegram_unreachable" else problem.code


# ---- running: one account, on the real runner, with the real client ----


class Running:
    """An account that is signed in, run on the strict server, with its archive."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.server = TlTelegram()
        self.told: list[Event] = []

    async def open(self, folder: Path) -> None:
        self.archive = await opened(folder)
        events = Events()
        events.listen(lambda told: self.told.extend(told))
        registry = self.registry = Registry(self.archive, self.clock)
        vault = Vault([b"k" * 32])
        clients = TelethonClients(api_id=1, api_hash="h", clock=self.clock, prepare=self.server.prepare)
        signing = SignInSteps(registry, vault, clients, self.clock)
        await registry.create_session("a", phone=PHONE, session_id="s1")
        await signing.begin("s1")
        await signing.give_code("s1", CODE)
        tools = SessionTools(
            registry=registry, book=self.archive, vault=vault, clients=clients, budget=Budget(self.clock),
            clock=self.clock, events=events, chance=random.Random(1),
        )  # fmt: skip
        self.runner = SessionRunner("s1", tools)
        self.task = asyncio.create_task(self.runner.run())

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.archive.close()

    async def state(self) -> SessionState:
        return (await self.registry.need("s1")).state


def run(folder: Path, story: Any) -> None:
    async def main(clock: VirtualClock) -> None:
        running = Running(clock)
        await running.open(folder)
        await story(running)
        await running.close()

    run_virtual(main)


@pytest.mark.parametrize(("method", "name"), rows(Role.CONNECTING))
def test_connecting(tmp_path: Path, method: str, name: str) -> None:
    async def story(running: Running) -> None:
        if method == "updates.getState":  # asked for once, by who has not followed yet
            running.server.fail(method, name)
            if name in NOBODY:  # whatever such a key asks for, it hears the same
                running.server.fail("users.getUsers", name)
        else:
            await until(lambda: running.runner.client)
            running.server.fail(method, name)
            running.server.senders[-1].end(ConnectionError("reset"))
        await asyncio.sleep(300)
        if taken_for(name) is Trouble.REVOKED or name in NOBODY:
            assert running.task.done()
            assert running.task.result() is SessionEnded.REVOKED
            assert await running.state() is SessionState.REVOKED
            return
        assert not running.task.done()
        assert (await running.registry.need("s1")).state_reason
        asked = len(running.server.asked("GetUsers"))
        await asyncio.sleep(3600)
        assert len(running.server.asked("GetUsers")) - asked < 60, "at most every few minutes"

    run(tmp_path, story)


@pytest.mark.parametrize(("method", "name"), rows(Role.FOLLOWING))
def test_following(tmp_path: Path, method: str, name: str) -> None:
    """Telegram answers with it for half an hour. Afterwards nothing is missing, unless the session was ended."""
    is_channel = method == "updates.getChannelDifference"

    async def story(running: Running) -> None:
        await until(lambda: running.runner.client)
        await asyncio.sleep(5)
        server = running.server
        server.post(TEAM, "known")
        await asyncio.sleep(5)
        server.fail(method, name)
        server.is_deaf = True
        missed = server.post(TEAM, "missed") if is_channel else server.private("missed")
        server.is_deaf = False
        asked = len(server.requests)
        server.push(types.UpdateChannelTooLong(TEAM) if is_channel else types.UpdatesTooLong())
        if not is_channel:
            server.senders[-1].receive(types.UpdatesTooLong())
        await asyncio.sleep(1800)
        if taken_for(name) in (Trouble.REVOKED, Trouble.PASSWORD_NEEDED) and (
            running.task.done() or taken_for(name) is Trouble.REVOKED
        ):
            assert await running.state() is SessionState.REVOKED
            return
        same = [one for one in server.requests[asked:] if type(one).__name__.endswith("DifferenceRequest")]
        assert len(same) < 60, "less and less often"
        server.always.clear()
        await asyncio.sleep(3600)
        kept = {one.text for one in await kept_of(running)}
        assert missed.message in kept or "not followed" in done_with(Role.FOLLOWING, method, name)
        assert await running.state() is SessionState.ACTIVE

    run(tmp_path, story)


async def kept_of(running: Running) -> list[Any]:
    found, _ = await running.archive.messages(MessageFilter(session_id="s1"), cursor=None, limit=1000)
    return found


@pytest.mark.parametrize(("method", "name"), rows(Role.READING))
def test_reading(method: str, name: str) -> None:
    async def story(stage: Stage) -> None:
        client: AccountClient = await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        stage.server.fail(method, name)
        is_list = method == "messages.getDialogs"
        with pytest.raises(ClientError) as caught:
            await (client.dialogs() if is_list else client.history(SARA, None, below=None, above=0, limit=10))
        assert caught.value.trouble is taken_for(name)
        assert caught.value.words

    play(story)


@pytest.mark.parametrize(("method", "name"), rows(Role.MEMBERS))
def test_reading_members(method: str, name: str) -> None:
    async def story(stage: Stage) -> None:
        client: AccountClient = await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        stage.server.fail(method, name)
        chat = -GROUP if method == "messages.getFullChat" else TEAM_CHAT
        with pytest.raises(ClientError) as caught:
            await client.members(chat, None, offset=0, limit=200)
        assert caught.value.trouble is taken_for(name)
        assert caught.value.words

    play(story)


@pytest.mark.parametrize(("method", "name"), rows(Role.FILES))
def test_fetching_a_file(method: str, name: str) -> None:
    async def story(stage: Stage) -> None:
        client: AccountClient = await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        media = stage.server.document(b"whole", dc=StringSession(client.secret()).dc_id)
        is_channel = method == "channels.getMessages"
        told = stage.server.post(TEAM, "x", media=media) if is_channel else stage.server.private("x", media=media)
        await until(lambda: stage.notebook.messages)
        seen = stage.notebook.messages[0]
        got: list[bytes] = []

        async def take(chunk: bytes) -> bool:
            got.append(chunk)
            return True

        async def fetch() -> bool:
            return await client.download(
                seen.chat_id, None, told.id, file_id=str(media.document.id), offset=0, take=take
            )

        stage.server.fail(method, name)
        with pytest.raises(ClientError) as caught:
            await fetch()
        assert caught.value.trouble is taken_for(name)
        if name == "FILE_REFERENCE_EXPIRED":
            assert len(stage.server.asked("GetMessages")) == 3
        stage.server.always.clear()
        if caught.value.trouble is not Trouble.FLOOD:  # Telethon heeds that by the machine's clock
            assert await fetch()
            assert got == [b"whole"]

    play(story)


_ASKED: dict[str, Callable[[AccountClient], Awaitable[object]]] = {
    "messages.importChatInvite": lambda client: client.join(f"https://t.me/+{INVITE}"),
    "channels.joinChannel": lambda client: client.join("@news"),
    "contacts.getContacts": lambda client: client.contacts(),
    "contacts.importContacts": lambda client: client.add_contacts([PhoneContact(phone=SARAS_PHONE, first_name="S")]),
}


@pytest.mark.parametrize(("method", "name"), [row for row in rows(Role.ASKING) if row.values[0] in _ASKED])
def test_asking(method: str, name: str) -> None:
    async def story(stage: Stage) -> None:
        client = await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        stage.server.fail(method, name)
        with pytest.raises(ClientError) as caught:
            await _ASKED[method](client)
        assert caught.value.trouble is taken_for(name)
        if name == "INVITE_REQUEST_SENT":
            assert "an admin of the chat has to let it in" in caught.value.words

    play(story)


def test_joining_and_contacts() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.begin()
        stage.server.post(TEAM, "from before")
        for link in (f"https://t.me/+{INVITE}", f"tg://join?invite={INVITE}", f"t.me/joinchat/{INVITE}"):
            dialog = await client.join(link)  # from the second time on it is a member already
            assert (dialog.chat_id, dialog.title, dialog.kind, dialog.top_message_id) == (
                TEAM_CHAT,
                "Team",
                "supergroup",
                1,
            )
        for link in ("@news", "https://t.me/news"):
            assert (await client.join(link)).chat_id == NEWS_CHAT
        for link in ("https://example.com/+x", "@sara", "https://t.me/+ZZZZZZZZZZZZ", ""):
            with pytest.raises(ClientError) as caught:
                await client.join(link)
            assert caught.value.trouble is Trouble.REFUSED
        assert await client.contacts() == []
        wanted = [PhoneContact(phone=phone, first_name="x") for phone in (SARAS_PHONE, "+77010000000", "+998900000099")]
        added, later = await client.add_contacts(wanted)
        assert [(one.user_id, one.first_name) for one in added] == [(SARA, "Sara")]
        assert later == ["+77010000000"]
        assert [one.user_id for one in await client.contacts()] == [SARA]

    play(story)


_CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "contacts.resolveUsername": ("sendMessage", {"chat_id": "@somebody", "text": "x"}),
    "messages.sendMessage": ("sendMessage", {"chat_id": SARA, "text": "x"}),
    "messages.sendMedia": ("sendPhoto", {"chat_id": SARA, "photo": "https://example.com/a.jpg"}),
    "messages.forwardMessages": ("forwardMessage", {"chat_id": SARA, "from_chat_id": TEAM_CHAT, "message_id": 1}),
    "messages.editMessage": ("editMessageText", {"chat_id": SARA, "message_id": 1, "text": "y"}),
    "messages.deleteMessages": ("deleteMessage", {"chat_id": SARA, "message_id": 1}),
    "channels.deleteMessages": ("deleteMessage", {"chat_id": TEAM_CHAT, "message_id": 1}),
    "messages.updatePinnedMessage": ("pinChatMessage", {"chat_id": SARA, "message_id": 1}),
    "messages.sendReaction": (
        "setMessageReaction",
        {"chat_id": SARA, "message_id": 1, "reaction": [{"type": "emoji", "emoji": "👍"}]},
    ),
}


@pytest.mark.parametrize(("method", "name"), [row for row in rows(Role.SENDING) if row.values[0] in _CALLS])
def test_sending(method: str, name: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        stage.server.fail(method, name)
        bot_method, params = _CALLS[method]
        reply = await carry(stage, bot_method, **params)
        if method == "contacts.resolveUsername" and taken_for(name) is Trouble.OFFLINE:
            assert reply.left is False, "nothing was sent"
            return
        assert type(judge(reply, method=bot_method)) is type(outcome_of(method, name))
        if isinstance(outcome_of(method, name), Refused):
            assert reply.status == code_of_reply(name)

    play(story)


# ---- what Telegram does to who follows it ----


def test_the_list_of_many_chats_is_asked_for_in_the_turn_of_the_account(tmp_path: Path) -> None:
    """Telegram limits accounts that ask for dozens of pages at once."""

    async def story(running: Running) -> None:
        await until(lambda: running.runner.client, within_s=120)
        running.server.strangers = 450
        running.server.rates.clear()
        await asyncio.sleep(2000)  # two looks
        assert len(running.server.asked("GetDialogs")) >= 10
        assert running.server.busiest()["messages.getDialogs"] == 1
        states = {one.chat_id: one.title for one in await running.archive.chat_states("s1")}
        assert {states.get(STRANGERS + number) for number in range(450)} == {f"Stranger {n}" for n in range(450)}

    run(tmp_path, story)


@pytest.mark.parametrize("name", ["PEER_FLOOD", "FLOOD_WAIT_7200", "SLOWMODE_WAIT_900"])
def test_an_account_whose_messages_telegram_does_not_take_says_so_and_goes_on_reading(
    tmp_path: Path, name: str
) -> None:
    async def story(running: Running) -> None:
        await until(lambda: running.runner.client)
        carrier = AccountCarrier(lambda account: running.runner)
        params = msgspec.json.encode({"chat_id": SARA, "text": "x"})
        request = Request(token=Token(f"{ME}:account"), method="sendMessage", params=params, timeout_s=30)
        running.server.next("SendMessage", name)
        assert isinstance(judge(await carrier.carry(request), method="sendMessage"), Limited)
        await asyncio.sleep(60)
        running.server.private("and it reads on")
        await asyncio.sleep(5)
        assert "and it reads on" in {one.text for one in await kept_of(running)}
        session = await running.registry.need("s1")
        health, told = health_of(session), [one for one in running.told if isinstance(one, SessionFlooded)]
        if name == "SLOWMODE_WAIT_900":
            assert (health.grade, told) == (HealthGrade.OK, [])
            return
        assert session.state is SessionState.ACTIVE
        assert health.grade is HealthGrade.FAILING
        assert name.partition("_WAIT")[0] in health.line
        assert ("@SpamBot" in (health.todo or "")) is (name == "PEER_FLOOD")
        assert [one.wait_s for one in told] == [7200 if name == "FLOOD_WAIT_7200" else 3600]
        await asyncio.sleep(9000)
        assert health_of(await running.registry.need("s1")).grade is HealthGrade.OK

    run(tmp_path, story)


@pytest.mark.parametrize(
    "why", ["SESSION_REVOKED", "AUTH_KEY_UNREGISTERED", "AUTH_KEY_DUPLICATED", "USER_DEACTIVATED_BAN"]
)
def test_a_key_that_is_ended_while_it_listens(tmp_path: Path, why: str) -> None:
    async def story(running: Running) -> None:
        await until(lambda: running.runner.client)
        await asyncio.sleep(5)
        running.server.end_keys(why)
        running.server.senders[-1].reconnected()  # Telegram cuts the line; Telethon is back at once
        await until(running.task.done, within_s=60)
        assert running.task.result() is SessionEnded.REVOKED
        session = await running.registry.need("s1")
        assert (session.state, session.is_connected) == (SessionState.REVOKED, False)
        assert session.state_reason

    run(tmp_path, story)


def test_a_server_that_breaks_every_connection_off_is_not_asked_again_and_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        before = len(stage.server.requests)
        for _ in range(20):
            if stage.server.senders[-1].is_connected():
                stage.server.senders[-1].reconnected()
            await asyncio.sleep(0.05)
        assert [one.trouble for one in stage.notebook.lost] == [Trouble.OFFLINE]
        assert "times within a minute" in stage.notebook.lost[0].words
        assert len(stage.server.requests) - before <= 12

    play(story)


def test_differences_in_slices_bring_everything_once_and_in_order() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.server.post(TEAM, "known")
        await until(lambda: stage.notebook.texts == ["known"] and stage.notebook.state is not None)
        await asyncio.sleep(2)
        state = stage.notebook.state
        await stage.client.disconnect()
        stage.server.slice_max = 3
        stage.server.tells_channels = True
        wanted = [stage.server.private(f"p{number}").message for number in range(10)]
        posts = [stage.server.post(TEAM, f"t{number}").message for number in range(10)]
        await stage.again(state)
        await until(lambda: len(stage.notebook.messages) == 20)
        await asyncio.sleep(5)
        assert [one for one in stage.notebook.texts if one[0] == "p"] == wanted
        assert [one for one in stage.notebook.texts if one[0] == "t"] == posts
        assert len(stage.server.asked("GetChannelDifference")) >= 4

    play(story)


def test_edits_and_deletions_of_the_time_away_come_with_the_difference() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        server = stage.server
        private = [server.private(f"p{number}") for number in range(2)]
        posts = [server.post(TEAM, f"t{number}") for number in range(2)]
        await until(lambda: len(stage.notebook.texts) == 4 and stage.notebook.state is not None)
        await asyncio.sleep(2)
        state = stage.notebook.state
        await stage.client.disconnect()
        server.tells_channels = True
        server.change(private[0], "p0 edited")
        server.change(posts[0], "t0 edited")
        server.remove(private[1])
        server.remove(posts[1])
        server.private("p2, gone before anybody saw it")
        server.remove(server.private("p3"))
        await stage.again(state)
        await until(lambda: {"p0 edited", "t0 edited"} <= set(stage.notebook.texts))
        await until(lambda: len(stage.notebook.deleted) >= 2)
        gone = {(chat, number) for chat, numbers in stage.notebook.deleted for number in numbers}
        assert {(None, private[1].id), (TEAM_CHAT, posts[1].id)} <= gone

    play(story)


def test_updates_that_overtake_each_other_are_put_in_order_and_none_is_lost() -> None:
    """Telegram pushes by several ways at once: pts 3 may come before pts 2, and one may come twice."""

    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        server = stage.server
        server.is_deaf = True
        first, second, third = (server.private(f"m{number}") for number in range(3))
        server.is_deaf = False
        for message, pts in ((third, 103), (first, 101), (first, 101), (second, 102), (third, 103)):
            server.push(types.UpdateNewMessage(message, pts, 1))
        await until(lambda: len(stage.notebook.messages) >= 3)
        await asyncio.sleep(5)
        assert stage.notebook.texts == ["m0", "m1", "m2"]

    play(story)


def test_a_hole_in_seq_is_asked_for() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        server = stage.server
        server.is_deaf = True
        server.private("hidden behind a seq that never came")
        server.is_deaf = False
        status = types.UpdateUserStatus(SARA, types.UserStatusOnline(server.at))
        server.senders[-1].receive(types.Updates([status], [server.sara()], [], server.at, 7))
        await until(lambda: stage.notebook.texts == ["hidden behind a seq that never came"], within_s=60)

    play(story)


def test_a_hole_in_qts_is_asked_for_and_what_comes_with_the_difference_is_not_dropped() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        server, at = stage.server, stage.server.at

        def joined(user_id: int) -> Any:
            here = types.ChannelParticipant(user_id, at)
            return server.happen_to_members(
                lambda qts: types.UpdateChannelParticipant(TEAM, at, ME, user_id, qts, new_participant=here)
            )

        server.is_deaf = True
        joined(601)
        server.is_deaf = False
        joined(602)
        await until(lambda: {one.user_id for one in stage.notebook.happenings} == {601, 602})
        await asyncio.sleep(5)
        state = stage.notebook.state
        await stage.client.disconnect()
        joined(603)
        await stage.again(state)
        await until(lambda: {one.user_id for one in stage.notebook.happenings} == {603})

    play(story)


def test_a_difference_that_brings_nothing_but_hints_of_channels() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.server.post(TEAM, "known")
        await until(lambda: stage.notebook.texts == ["known"] and stage.notebook.state is not None)
        await asyncio.sleep(2)
        state = stage.notebook.state
        await stage.client.disconnect()
        stage.server.tells_channels = True
        stage.server.post(TEAM, "missed")
        await stage.again(state)
        await until(lambda: stage.notebook.texts == ["missed"])
        assert HistoryGap(chat_id=None) not in stage.notebook.gaps

    play(story)


def test_a_channel_whose_difference_never_comes_costs_few_requests_and_is_told_as_a_hole() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.server.post(NEWS, "known")
        stage.server.post(TEAM, "known too")
        await until(lambda: len(stage.notebook.texts) == 2)
        stage.server.fail("updates.getChannelDifference", "HISTORY_GET_FAILED")
        for channel in (NEWS, TEAM):
            stage.server.push(types.UpdateChannelTooLong(channel))
        before = len(stage.server.requests)
        await asyncio.sleep(86_400)
        assert len(stage.server.asked("GetChannelDifference")) < 1000, (
            "two channels in a day, each asked twice at a time"
        )
        assert len(stage.server.requests) - before < 1500
        assert {one.chat_id for one in stage.notebook.gaps} == {NEWS_CHAT, TEAM_CHAT}
        stage.server.private("others go on")
        await until(lambda: stage.notebook.texts[-1] == "others go on")
        assert HistoryGap(chat_id=None) not in stage.notebook.gaps

    play(story)
