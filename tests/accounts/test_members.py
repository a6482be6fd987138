"""Who is in chats, and who came, left and changed: read now and then, within the account's pace, and kept."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from telethon import types

from peik.accounts.client import AccountClient, ClientError, Trouble
from peik.accounts.events import MembersRead
from peik.accounts.members import AGAIN_S, PAGE
from peik.accounts.registry import own_metadata, watched_of
from peik.archive.store import EventFilter, MemberRecord
from peik.errors import BadInput, Conflict
from peik.testing.accounts import Person
from tests.accounts.house import House
from tests.accounts.house import play as play_house
from tests.accounts.listening import until
from tests.accounts.stage import Stage
from tests.accounts.test_running import play, running
from tests.accounts.test_telethon_seeing import TEAM_CHAT
from tests.accounts.test_telethon_seeing import Stage as TlStage
from tests.accounts.test_telethon_seeing import play as play_tl
from tests.accounts.tl_server import GROUP, ME, SARA

DAY_S = 86_400.0


async def there(stage: Stage, *, at_ms: int | None = None, chat_id: int | None = None) -> dict[int, MemberRecord]:
    chat_id = stage.team.chat_id if chat_id is None else chat_id
    found = await stage.archive.members("s1", chat_id, at_ms=at_ms, after=0, limit=1000)
    return {one.user_id: one for one in found}


async def told(stage: Stage) -> list[tuple[str, int | None]]:
    found, _ = await stage.archive.events(EventFilter(session_id="s1"), cursor=None, limit=1000)
    return [(one.event_type, one.user_id) for one in reversed(found) if "before" in one.payload]


def crowd(stage: Stage, count: int) -> list[Person]:
    made = [stage.telegram.register(f"+99890{100000 + number}", first_name=f"P{number}") for number in range(count)]
    link = stage.telegram.invite(stage.team)
    for one in made:
        stage.telegram.let_in(one, link)
    return made


def own(stage: Stage) -> None:
    """Ali made it: of a channel, only its owner is shown the members."""
    members = stage.team.members
    members.remove(stage.ali)
    members.insert(0, stage.ali)


def test_a_list_is_read_and_what_changes_is_kept_and_told(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        own(stage)
        people = crowd(stage, 3)
        await stage.registry.update_session_metadata("s1", {"mine": 1})
        await stage.registry.watch_members("s1", stage.team.chat_id, DAY_S)
        async with running(stage) as runner:
            await until(lambda: stage.told_of(MembersRead), within_s=120)
            first = await there(stage)
            assert first.keys() == {stage.ali.user_id, stage.sara.user_id, *(one.user_id for one in people)}
            assert first[stage.ali.user_id].role == "owner"
            assert await told(stage) == [], "at the first look nobody came"
            begun_ms = stage.clock.wall_ms()

            stage.telegram.leave(people[0], stage.team)
            people[1].first_name = "Renamed"
            late = stage.telegram.register("+998907777777", first_name="Late")
            stage.telegram.let_in(late, stage.telegram.invite(stage.team))
            await asyncio.sleep(DAY_S)
            await until(lambda: len(stage.told_of(MembersRead)) == 2, within_s=600)
            assert sorted(await told(stage)) == [
                ("joined", late.user_id),
                ("left", people[0].user_id),
                ("member_changed", people[1].user_id),
            ]
            fed = [one for one in await stage.archive.fed("s1", after=0, limit=100) if one.kind == "event"]
            assert [msgspec.json.decode(one.body)["event_type"] for one in fed] == ["joined", "member_changed", "left"]
            now = await there(stage)
            assert people[0].user_id not in now
            assert now[people[1].user_id].name == "Renamed"
            assert late.user_id in now
            assert (await there(stage, at_ms=begun_ms)).keys() == first.keys()
            assert (await there(stage, at_ms=begun_ms))[people[1].user_id].name == "P1"

            await stage.registry.watch_members("s1", stage.team.chat_id, None)
            runner.ring()
            await asyncio.sleep(3 * DAY_S)
            assert len(stage.told_of(MembersRead)) == 2
            assert (await there(stage)).keys() == now.keys(), "what is known stays"
        session = await stage.session()
        assert msgspec.json.decode(own_metadata(session)) == {"mine": 1}

    play(tmp_path, story)


def test_a_long_list_is_read_in_the_turn_of_the_account_and_twice_if_somebody_is_gone(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        own(stage)
        people = crowd(stage, 3 * PAGE)
        await stage.registry.watch_members("s1", stage.team.chat_id, DAY_S)
        async with running(stage):
            await until(lambda: stage.told_of(MembersRead), within_s=300)
            assert len(await there(stage)) == 3 * PAGE + 2
            assert stage.telegram.busiest()["members"] == 1
            assert stage.told_of(MembersRead)[0].members == 3 * PAGE + 2
            asked = sum(count for (_, method, _), count in stage.telegram.asked.items() if method == "members")
            assert asked == 4
            stage.telegram.leave(people[7], stage.team)
            await asyncio.sleep(DAY_S)
            await until(lambda: len(stage.told_of(MembersRead)) == 2, within_s=600)
            again = sum(count for (_, method, _), count in stage.telegram.asked.items() if method == "members")
            assert again - asked == 2 * 4
            assert await told(stage) == [("left", people[7].user_id)]

    play(tmp_path, story)


def test_of_a_list_that_is_not_shown_whole_nobody_is_said_to_have_left(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        own(stage)
        people = crowd(stage, 10)
        await stage.registry.watch_members("s1", stage.team.chat_id, DAY_S)
        async with running(stage):
            await until(lambda: stage.told_of(MembersRead), within_s=300)
            stage.telegram.members_shown = 5
            stage.telegram.leave(people[9], stage.team)
            await asyncio.sleep(DAY_S + 600)
            assert [one.is_whole for one in stage.told_of(MembersRead)] == [True, False]
            assert await told(stage) == []
            assert len(await there(stage)) == 12
            assert watched_of(await stage.session())[stage.team.chat_id].count is None

    play(tmp_path, story)


def test_a_chat_whose_members_are_not_shown_says_so_and_is_asked_at_its_next_time(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        stage.team = stage.telegram.channel("News", stage.sara, stage.ali, is_broadcast=True)
        chat_id = stage.team.chat_id
        await stage.registry.watch_members("s1", chat_id, DAY_S)
        async with running(stage):
            await asyncio.sleep(600)
            assert "CHAT_ADMIN_REQUIRED" in (watched_of(await stage.session())[chat_id].why or "")
            await asyncio.sleep(DAY_S / 2)
            asked = sum(count for (_, method, _), count in stage.telegram.asked.items() if method == "members")
            assert asked == 1
            own(stage)
            await asyncio.sleep(DAY_S)
            assert watched_of(await stage.session())[chat_id].why is None
            assert len(await there(stage)) == 2

    play(tmp_path, story)


class Erring:
    """Telegram has trouble with the first few lists."""

    def __init__(self, inner: Any, times: list[None]) -> None:
        self._inner = inner
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def members(self, *args: Any, **more: Any) -> Any:
        if self._times:
            self._times.pop()
            raise ClientError(Trouble.OFFLINE, "Trouble inside Telegram (RPC_CALL_FAIL).")
        return await self._inner.members(*args, **more)


def test_trouble_inside_telegram_and_floods_are_waited_for_and_the_rest_goes_on(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        own(stage)
        crowd(stage, 2 * PAGE)
        await stage.registry.watch_members("s1", stage.team.chat_id, DAY_S)
        stage.telegram.flood("members", 100)
        times: list[None] = [None] * 3
        began = stage.clock.mono()
        async with running(stage, clients=lambda **w: Erring(stage.telegram.clients(**w), times)) as runner:
            await until(lambda: runner.client)
            stage.telegram.say(stage.private, stage.sara, "meanwhile")
            await asyncio.sleep(5)
            assert await stage.texts() == ["meanwhile"]
            await until(lambda: stage.told_of(MembersRead), within_s=3600)
            assert stage.clock.mono() - began >= 3 * AGAIN_S + 100
            assert len(await there(stage)) == 2 * PAGE + 2

    play(tmp_path, story)


@pytest.mark.parametrize("dies_at", ["keep_events", "feed", "save_members", "note"])
def test_a_crash_in_the_middle_tells_nothing_twice_and_forgets_nothing(
    tmp_path: Path, dies_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        own(stage)
        await stage.registry.watch_members("s1", stage.team.chat_id, DAY_S)
        async with running(stage):
            await until(lambda: stage.told_of(MembersRead), within_s=120)
        late = stage.telegram.register("+998907777777", first_name="Late")
        stage.telegram.let_in(late, stage.telegram.invite(stage.team))
        stage.telegram.leave(stage.sara, stage.team)
        died = asyncio.Event()

        async def dead(*args: object, **more: object) -> None:
            died.set()
            await asyncio.get_running_loop().create_future()

        place = stage.registry if dies_at == "note" else stage.archive
        name = "note_members" if dies_at == "note" else dies_at
        monkeypatch.setattr(place, name, dead)
        async with running(stage):
            await asyncio.wait_for(died.wait(), 2 * DAY_S)
        monkeypatch.undo()
        async with running(stage):
            await until(lambda: len(stage.told_of(MembersRead)) == 2, within_s=600)
            assert sorted(await told(stage)) == [("joined", late.user_id), ("left", stage.sara.user_id)]
            fed = [one for one in await stage.archive.fed("s1", after=0, limit=100) if one.kind == "event"]
            assert len(fed) == 2
            assert (await there(stage)).keys() == {stage.ali.user_id, late.user_id}

    play(tmp_path, story)


def test_what_may_be_asked_for() -> None:
    async def story(house: House) -> None:
        session = await house.sign_in(house.ali)
        with pytest.raises(BadInput):
            await house.service.watch_members(session.session_id, house.team.chat_id, 60)
        with pytest.raises(BadInput):
            await house.service.watch_members(session.session_id, house.sara.user_id, DAY_S)
        for number in range(50):
            await house.service.watch_members(session.session_id, -100 - number, DAY_S)
        with pytest.raises(Conflict):
            await house.service.watch_members(session.session_id, -1000, DAY_S)
        await house.service.watch_members(session.session_id, -100, 2 * DAY_S)

    play_house(story)


def test_members_as_telegram_lists_them() -> None:
    async def story(stage: TlStage) -> None:
        client: AccountClient = await stage.begin()
        at = stage.server.at
        stage.server.participants = [
            types.ChannelParticipantCreator(SARA, types.ChatAdminRights()),
            types.ChannelParticipantSelf(ME, SARA, at),
            *(types.ChannelParticipant(number, at) for number in range(2000, 2300)),
        ]
        found, offset = [], 0
        sizes: list[int] = []
        while True:
            page = await client.members(TEAM_CHAT, None, offset=offset, limit=200)
            found += page.members
            sizes.append(len(page.members))
            if page.following is None:
                assert page.is_whole
                break
            offset = page.following
        assert sizes == [200, 102]
        assert [one.role for one in found[:3]] == ["owner", "member", "member"]
        assert found[2].name == "U2000"
        group = await client.members(-GROUP, None, offset=0, limit=200)
        assert ([one.user_id for one in group.members], group.following, group.is_whole) == ([SARA, ME], None, True)
        with pytest.raises(ClientError) as caught:
            await client.members(SARA, None, offset=0, limit=200)
        assert caught.value.trouble is Trouble.REFUSED

    play_tl(story)
