"""What an account sees reaches the listener whole, in order, and before the state that follows it. The real TelegramClient."""

import datetime
from collections.abc import Awaitable, Callable

import pytest
from telethon import types

from peik.accounts.client import AccountClient, HistoryGap, Trouble
from peik.accounts.telethon.client import TelethonClients
from peik.accounts.telethon.updates import read_place
from peik.archive.store import Direction
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.listening import Notebook, until
from tests.accounts.tl_server import GROUP, ME, NEWS, PHONE, SARA, TEAM, TlTelegram

NEWS_CHAT, TEAM_CHAT = -1000000000000 - NEWS, -1000000000000 - TEAM


class Stage:
    def __init__(self, clock: VirtualClock) -> None:
        self.server = TlTelegram()
        self.clients = TelethonClients(api_id=1, api_hash="h", clock=clock, prepare=self.server.prepare)
        self.notebook = Notebook()
        self.secret: str | None = None
        self.client: AccountClient

    async def begin(self, state: bytes | None = None) -> AccountClient:
        """Connect, sign in if need be, and listen."""
        self.client = self.clients(session_id="s1", agent_id="a1", secret=self.secret, file=None, proxy=None)
        if await self.client.connect() is None:
            sent = await self.client.send_code(PHONE)
            await self.client.sign_in(PHONE, "12345", sent.code_hash)
        self.secret = self.client.secret()
        await self.client.listen(self.notebook, state)
        return self.client

    async def again(self, state: bytes | None) -> AccountClient:
        """A new process: nothing of the old one but what was kept."""
        await self.client.disconnect()
        self.notebook = Notebook()
        return await self.begin(state)


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        stage = Stage(clock)
        await story(stage)
        await stage.client.disconnect()

    run_virtual(main)


def test_messages_of_all_kinds_of_chats_come_as_the_archive_keeps_them() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.server.private("salom")
        stage.server.post(NEWS, "a post")
        stage.server.post(TEAM, "to all", from_id=types.PeerUser(SARA))
        await until(lambda: len(stage.notebook.messages) == 3)
        private, post, team = stage.notebook.messages
        assert (private.chat_id, private.sender_id, private.text) == (SARA, SARA, "salom")
        assert private.direction is Direction.RECEIVED
        assert (private.session_id, private.agent_id, private.kind) == ("s1", "a1", "text")
        assert private.date_ms == int(stage.server.at.timestamp()) * 1000
        assert (post.chat_id, post.sender_id) == (NEWS_CHAT, NEWS_CHAT)
        assert (team.chat_id, team.sender_id) == (TEAM_CHAT, SARA)

    play(story)


def test_the_state_follows_what_it_stands_for_within_a_second() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        for number in range(5):
            stage.server.private(f"message {number}")
        await until(lambda: stage.notebook.state and read_place(stage.notebook.state).pts == 105, within_s=1.5)
        assert stage.notebook.texts == [f"message {number}" for number in range(5)]

    play(story)


def test_the_state_waits_for_a_listener_that_is_not_done() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        stage.notebook.gate.clear()
        stage.server.private("not kept yet")
        with pytest.raises(TimeoutError):
            await until(lambda: read_place(stage.notebook.states[-1]).pts > 100, within_s=20)
        stage.notebook.gate.set()
        await until(lambda: read_place(stage.notebook.states[-1]).pts == 101)
        assert stage.notebook.texts == ["not kept yet"]

    play(story)


def test_what_the_archive_did_not_take_ends_the_connection_and_comes_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        stage.notebook.error = OSError("disk full")
        stage.server.private("precious")
        await until(lambda: stage.notebook.lost)
        assert stage.notebook.lost[0].trouble is Trouble.OFFLINE
        assert "disk full" in stage.notebook.lost[0].words
        assert not stage.client.is_connected
        await stage.again(stage.notebook.state)
        await until(lambda: stage.notebook.texts == ["precious"])

    play(story)


def test_what_happened_while_nobody_was_there_is_caught_up_in_private_chats_and_channels() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.server.private("before")
        stage.server.post(NEWS, "post before")
        await until(lambda: stage.notebook.state and read_place(stage.notebook.state).channels[NEWS].pts == 51)
        state = stage.notebook.state
        await stage.client.disconnect()
        missed = [stage.server.private("missed 1").message, stage.server.private("missed 2").message]
        stage.server.post(NEWS, "missed post")
        stage.server.tells_channels = True
        await stage.again(state)
        await until(lambda: len(stage.notebook.messages) == 3)
        assert sorted(stage.notebook.texts) == sorted([*missed, "missed post"])

    play(story)


def test_a_crash_repeats_and_never_loses() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        old = stage.notebook.state
        stage.server.private("seen, and its state was not saved")
        await until(lambda: stage.notebook.texts)
        await stage.again(old)
        await until(lambda: stage.notebook.texts == ["seen, and its state was not saved"])

    play(story)


def test_a_lost_update_is_fetched_when_the_next_one_shows_the_hole() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        stage.server.is_deaf = True
        stage.server.private("lost on the way")
        stage.server.is_deaf = False
        stage.server.private("after it")
        await until(lambda: len(stage.notebook.messages) == 2)
        assert stage.notebook.texts == ["lost on the way", "after it"]

    play(story)


def test_after_a_reconnect_it_catches_up_by_itself() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        stage.server.is_deaf = True
        stage.server.private("while the line was dead")
        stage.server.is_deaf = False
        stage.server.requests.clear()
        stage.server.senders[-1].reconnected()
        await until(lambda: stage.notebook.texts == ["while the line was dead"], within_s=5)
        assert asked_of(stage) == ["GetDifference"]

    play(story)


def asked_of(stage: Stage) -> list[str]:
    return [type(one).__name__.lstrip("_").removesuffix("Request") for one in stage.server.requests]


def test_a_connect_asks_for_nothing_twice_and_still_learns_who_the_account_is_now() -> None:
    """Telegram counts what an account asks for, and several connects may fall into one second."""

    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        state = stage.notebook.state
        await stage.client.disconnect()
        stage.server.private("while away")
        renamed = stage.server.me()
        renamed.username, renamed.phone = "ali2", "998907654321"
        stage.server.next("GetUsers", [renamed])
        stage.server.requests.clear()
        stage.client = stage.clients(session_id="s1", agent_id="a1", secret=stage.secret, file=None, proxy=None)
        me = await stage.client.connect()
        assert me is not None
        assert (me.username, me.phone) == ("ali2", "+998907654321")
        await stage.client.listen(stage.notebook, state)
        await until(lambda: stage.notebook.texts == ["while away"])
        assert asked_of(stage) == ["GetConfig", "GetUsers", "GetDifference"]

    play(story)


def test_what_comes_while_the_first_list_of_chats_is_read_is_seen() -> None:
    async def story(stage: Stage) -> None:
        stage.client = stage.clients(session_id="s1", agent_id="a1", secret=None, file=None, proxy=None)
        await stage.client.connect()
        sent = await stage.client.send_code(PHONE)
        await stage.client.sign_in(PHONE, "12345", sent.code_hash)
        assert "GetState" not in asked_of(stage), "nobody follows yet"
        await stage.client.dialogs()
        stage.server.tells_channels = True
        stage.server.private("between")
        stage.server.post(NEWS, "between, too")
        await stage.client.listen(stage.notebook, None)
        await until(lambda: sorted(stage.notebook.texts) == ["between", "between, too"])
        assert len(stage.server.asked("GetState")) == 1

    play(story)


def test_a_hole_that_telegram_cannot_fill_is_told_for_the_account() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        state = stage.notebook.state
        await stage.client.disconnect()
        stage.server.private("gone")
        stage.server.too_long.add(None)
        await stage.again(state)
        await until(lambda: stage.notebook.gaps == [HistoryGap(chat_id=None)])
        await until(lambda: stage.notebook.states)
        assert stage.notebook.heard.index(HistoryGap(chat_id=None)) < stage.notebook.heard.index(
            stage.notebook.states[0]
        )

    play(story)


def test_a_hole_that_telegram_cannot_fill_is_told_for_a_channel() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.server.post(TEAM, "known")
        await until(lambda: stage.notebook.texts == ["known"])
        stage.server.too_long.add(TEAM)
        stage.server.push(types.UpdateChannelTooLong(TEAM))
        await until(lambda: stage.notebook.gaps == [HistoryGap(chat_id=TEAM_CHAT)])
        stage.server.post(TEAM, "and it goes on")
        await until(lambda: stage.notebook.texts[-1] == "and it goes on")

    play(story)


def test_a_channel_whose_access_hash_is_not_known_is_told_as_a_hole() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.server.post(NEWS, "known")
        await until(lambda: stage.notebook.texts == ["known"])
        stage.client._telegram._mb_entity_cache.hash_map.pop(NEWS)  # type: ignore[attr-defined]
        stage.server.senders[-1].receive(types.Updates([types.UpdateChannelTooLong(NEWS)], [], [], stage.server.at, 0))
        await until(lambda: stage.notebook.gaps == [HistoryGap(chat_id=NEWS_CHAT)])

    play(story)


def test_news_of_a_channel_that_was_never_seen_is_told_as_a_hole() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.client._telegram._message_box.map.pop(NEWS)  # type: ignore[attr-defined]
        stage.server.push(types.UpdateChannelTooLong(NEWS))
        await until(lambda: stage.notebook.gaps == [HistoryGap(chat_id=NEWS_CHAT)])

    play(story)


def test_a_flood_while_catching_up_is_asked_again_soon_and_not_in_a_quarter_of_an_hour() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        state = stage.notebook.state
        await stage.client.disconnect()
        stage.server.private("missed")
        await stage.again(state)
        for _ in range(4):  # twice: each is repeated once
            stage.server.next("GetDifference", "RPC_CALL_FAIL")
        await until(lambda: stage.notebook.texts == ["missed"], within_s=30)

    play(story)


def test_edits_deletions_and_service_messages_are_seen_in_order() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        first = stage.server.private("draft")
        edited_at = stage.server.at + datetime.timedelta(seconds=5)
        edited = types.Message(
            id=first.id, peer_id=first.peer_id, date=first.date, message="final", edit_date=edited_at
        )
        stage.server.happen(lambda pts: types.UpdateEditMessage(edited, pts, 1))
        stage.server.happen(lambda pts: types.UpdateDeleteMessages([first.id], pts, 1))
        service = types.MessageService(
            id=77, peer_id=types.PeerChat(GROUP), date=first.date, action=types.MessageActionChatEditTitle("New title"),
            from_id=types.PeerUser(SARA),
        )  # fmt: skip
        stage.server.happen(lambda pts: types.UpdateNewMessage(service, pts, 1))
        stage.server.channel_pts[TEAM] += 1
        stage.server.push(types.UpdateDeleteChannelMessages(TEAM, [5, 6], stage.server.channel_pts[TEAM], 1))
        await until(lambda: len(stage.notebook.deleted) == 2)
        await until(lambda: len(stage.notebook.messages) == 3)
        draft, final, told = stage.notebook.messages
        assert (draft.text, draft.edited_at_ms) == ("draft", 0)
        assert (final.text, final.edited_at_ms) == ("final", int(edited_at.timestamp()) * 1000)
        assert (told.kind, told.text, told.chat_id) == ("service", "chat_edit_title: New title", -GROUP)
        assert stage.notebook.deleted == [(None, (first.id,)), (TEAM_CHAT, (5, 6))]
        assert stage.notebook.heard.index(final) < stage.notebook.heard.index((None, (first.id,)))

    play(story)


def test_telegrams_abbreviations_become_whole_messages() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        server = stage.server
        sender = server.senders[-1]
        server.pts += 1
        sender.receive(types.UpdateShortMessage(900, SARA, "short", server.pts, 1, server.at))
        server.pts += 1
        sender.receive(types.UpdateShortMessage(901, SARA, "mine, from my phone", server.pts, 1, server.at, out=True))
        server.pts += 1
        sender.receive(types.UpdateShortChatMessage(902, SARA, GROUP, "in the group", server.pts, 1, server.at))
        await until(lambda: len(stage.notebook.messages) == 3)
        short, mine, group = stage.notebook.messages
        assert (short.chat_id, short.sender_id, short.direction) == (SARA, SARA, Direction.RECEIVED)
        assert (mine.chat_id, mine.sender_id, mine.direction) == (SARA, ME, Direction.SENT)
        assert (group.chat_id, group.sender_id, group.text) == (-GROUP, SARA, "in the group")

    play(story)


def test_an_album_keeps_its_group_and_happenings_are_told_once_by_name() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.server.private("", media=types.MessageMediaPhoto(), grouped_id=31)
        stage.server.private("both", media=types.MessageMediaPhoto(), grouped_id=31)
        stage.server.push(types.UpdateUserStatus(SARA, types.UserStatusOnline(stage.server.at)))
        stage.server.push(types.UpdateUserStatus(SARA, types.UserStatusOnline(stage.server.at)))
        await until(lambda: len(stage.notebook.messages) == 2 and len(stage.notebook.happenings) == 2)
        assert [(one.kind, one.grouped_id) for one in stage.notebook.messages] == [("photo", 31)] * 2
        first, second = stage.notebook.happenings
        assert (first.event_type, first.chat_id, first.user_id) == ("online", SARA, SARA)
        assert first.event_id == second.event_id

    play(story)


def test_what_somebody_did_is_known_by_their_number() -> None:
    """By which `peik forget` finds it."""

    async def story(stage: Stage) -> None:
        await stage.begin()
        at, sara = stage.server.at, types.PeerUser(SARA)
        joined = types.ChannelParticipant(SARA, at)
        liked = types.MessagePeerReaction(sara, at, types.ReactionEmoji("👍"))
        for update in (
            types.UpdateChannelParticipant(TEAM, at, ME, SARA, 2, new_participant=joined),
            types.UpdateChatParticipant(GROUP, at, ME, SARA, 3),
            types.UpdateMessageReactions(
                types.PeerChannel(TEAM), 1, types.MessageReactions([], recent_reactions=[liked])
            ),
            types.UpdateUserName(SARA, "Sara", "", []),
        ):
            stage.server.push(update)
        stage.server.happen(lambda pts: types.UpdateReadHistoryOutbox(sara, 5, pts, 1))
        await until(lambda: len(stage.notebook.happenings) == 5)
        assert {one.user_id for one in stage.notebook.happenings} == {SARA}

    play(story)


def test_an_update_that_cannot_be_read_is_kept_and_stops_nothing() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        broken = types.UpdateNewMessage(types.PeerUser(SARA), 0, 0)
        await stage.client._intake.put([broken, broken], None)  # type: ignore[attr-defined]
        stage.server.private("after it")
        await until(lambda: stage.notebook.texts == ["after it"] and stage.notebook.happenings)
        assert len({one.event_id for one in stage.notebook.happenings}) == 1
        assert stage.notebook.happenings[0].event_type == "unreadable"
        assert "PeerUser(user_id=501)" in stage.notebook.happenings[0].payload
        assert not stage.notebook.lost

    play(story)


@pytest.mark.parametrize(
    "name", ["AUTH_KEY_UNREGISTERED", "SESSION_REVOKED", "AUTH_KEY_DUPLICATED", "USER_DEACTIVATED_BAN"]
)
def test_a_session_that_telegram_ended_is_told_as_revoked(name: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        await until(lambda: stage.notebook.state is not None)
        stage.server.next("GetDifference", name)
        stage.server.senders[-1].receive(types.UpdatesTooLong())
        await until(lambda: stage.notebook.lost)
        assert stage.notebook.lost[0].trouble is Trouble.REVOKED

    play(story)


def test_a_dead_line_is_told_once_as_offline() -> None:
    async def story(stage: Stage) -> None:
        await stage.begin()
        stage.server.senders[-1].end(ConnectionError("reset"))
        await until(lambda: stage.notebook.lost)
        assert [one.trouble for one in stage.notebook.lost] == [Trouble.OFFLINE]
        assert not stage.client.is_connected

    play(story)


def test_history_and_dialogs() -> None:
    async def story(stage: Stage) -> None:
        client = await stage.begin()
        for number in range(1, 8):
            stage.server.private(f"m{number}")
        found = (await client.dialogs()).dialogs
        assert [(one.chat_id, one.kind, one.title) for one in found] == [
            (SARA, "private", "Sara"),
            (NEWS_CHAT, "channel", "News"),
            (TEAM_CHAT, "supergroup", "Team"),
            (-GROUP, "group", "Family"),
        ]
        newest = await client.history(SARA, found[0].access, below=None, above=0, limit=3)
        assert [one.text for one in newest] == ["m7", "m6", "m5"]
        assert await client.count(SARA, found[0].access) == await client.count(SARA, None) == 7
        older = await client.history(SARA, None, below=newest[-1].message_id, above=3, limit=100)
        assert [one.text for one in older] == ["m4", "m3"]

    play(story)
