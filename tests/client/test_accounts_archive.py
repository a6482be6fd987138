"""What accounts saw: messages, versions, events, chats and crawls, told the same in this process and over REST."""

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pytest

from peik import ArchivedEvent, BadInput, Conflict, Direction, NotFound, Peik, SessionChat
from peik.testing.accounts import Accounts, Chat, Person
from tests.client.account_ways import both, counted, play, signed_in
from tests.web.accounts import KEY, house, until

ALI, SARA = "+998900000001", "+998900000002"


async def staged(peik: Peik, telegram: Accounts) -> tuple[Person, Person, Chat]:
    """Ali's account is the session `s1`, and Sara writes to him."""
    ali = telegram.register(ALI, first_name="Ali")
    sara = telegram.register(SARA, first_name="Sara")
    chat = telegram.private(ali, sara)
    await signed_in(peik, telegram, ali, "s1")
    return ali, sara, chat


@both
def test_messages_are_found_page_by_page_and_counted_by_filter(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        ali, sara, chat = await staged(peik, telegram)
        group = telegram.group("Family", ali, sara)
        for n in range(1100):
            telegram.say(chat, sara, f"n{n} {'tea' if n % 2 else 'coffee'}")
        telegram.say(chat, ali, "mine")
        telegram.say(group, sara, "null")
        await counted(peik, 1102)
        found = [one async for one in peik.find_messages(session_id="s1", chat_id=sara.user_id, sender_id=sara.user_id)]
        assert sorted(one.text for one in found) == sorted(f"n{n} {'tea' if n % 2 else 'coffee'}" for n in range(1100))
        assert {one.direction for one in found} == {Direction.RECEIVED}
        assert {(one.chat_id, one.sender_id, one.session_id, one.agent_id) for one in found} == {
            (sara.user_id, sara.user_id, "s1", "a")
        }
        assert [one.text async for one in peik.find_messages(direction="sent")] == ["mine"]
        assert [one.text async for one in peik.find_messages(chat_id=group.chat_id, kind="text")] == ["null"]
        assert await peik.count_messages(text="TEA", agent_id="a") == 550
        assert await peik.count_messages(agent_id="somebody else") == 0
        now = datetime.datetime.now(datetime.UTC)
        assert await peik.count_messages(since=now - datetime.timedelta(hours=1)) == 1102
        assert await peik.count_messages(until=now - datetime.timedelta(hours=1)) == 0
        assert await peik.count_messages(since=now.timestamp() + 3600, deleted=False) == 0

    play(way, tmp_path, story)


@both
def test_versions_events_deletions_and_a_person_who_is_forgotten(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        _, sara, chat = await staged(peik, telegram)
        post, gone = telegram.say(chat, sara, "frist"), telegram.say(chat, sara, "gone")
        await counted(peik, 2)
        telegram.edit(chat, post, "first")
        telegram.delete(chat, gone)
        telegram.happen(chat, "reaction", emoji="+")
        await counted(peik, 1, deleted=True)

        async def reaction() -> ArchivedEvent | None:
            return await anext(aiter(peik.find_events(event_type="reaction", session_id="s1")), None)

        event = await until(reaction)
        assert (event.chat_id, event.payload, event.agent_id) == (sara.user_id, {"emoji": "+"}, "a")
        assert [one async for one in peik.find_events(event_type="nothing", chat_id=5)] == []
        (deleted,) = [one async for one in peik.find_messages(deleted=True)]
        assert deleted.text == "gone"
        assert deleted.deleted_at is not None
        (kept,) = [one async for one in peik.find_messages(deleted=False)]
        assert (kept.text, kept.raw) == ("first", None)
        old, new = await peik.message_versions("s1", chat_id=sara.user_id, message_id=kept.message_id)
        assert (old.text, old.edited_at, new.text) == ("frist", None, "first")
        assert new.edited_at is not None
        with pytest.raises(NotFound) as raised:
            await peik.message_versions("s1", chat_id=5, message_id=6)
        assert raised.value.code == "no_such_message"
        removed = await peik.forget_person(sara.user_id)
        assert (removed["messages"], removed["versions"]) == (2, 1)
        assert await peik.count_messages() == 0

    play(way, tmp_path, story)


@both
def test_a_chat_is_crawled_backwards_and_can_be_stopped(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        ali, sara = telegram.register(ALI), telegram.register(SARA)
        team = telegram.channel("Team", sara, ali)
        for n in range(150):
            telegram.say(team, sara, f"before {n}")
        await signed_in(peik, telegram, ali, "s1")
        asked = await peik.crawl_chat("s1", team.chat_id)
        assert (asked.chat_id, asked.crawl.until) == (team.chat_id, None)
        await counted(peik, 150, chat_id=team.chat_id)

        async def whole() -> SessionChat | None:
            (found,) = [one for one in await peik.chats_of_session("s1") if one.chat_id == team.chat_id]
            return found if found.crawl.state == "whole" else None

        assert (await until(whole)).crawl.crawled == 150
        stopped = await peik.stop_crawl("s1", team.chat_id)
        assert stopped.crawl.state in ("whole", "stopped")
        with pytest.raises(NotFound):
            await peik.stop_crawl("s1", 999)
        with pytest.raises(NotFound):
            await peik.crawl_chat("nobody", 5, until=1_700_000_000)

    play(way, tmp_path, story)


@both
def test_what_cannot_be_right_is_refused_the_same(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        for which, code in (
            ({"chatid": 5}, "unknown_filter"),
            ({"since": datetime.datetime(2026, 1, 1)}, "bad_time"),  # noqa: DTZ001
            ({"direction": "sideways"}, "bad_request"),
        ):
            with pytest.raises(BadInput) as raised:
                await peik.count_messages(**which)  # type: ignore[arg-type]
            assert raised.value.code == code
        for listened, code in (
            ({"kinds": ["gossip"]}, "bad_request"),
            ({"reader": "r", "after": {}}, "two_places"),
            ({"after": 5}, "whose_place"),
            ({"reader": ""}, "bad_reader"),
            ({"reader": "a/b"}, "bad_reader"),
        ):
            with pytest.raises(BadInput) as raised:
                peik.listen(**listened)  # type: ignore[arg-type]
            assert raised.value.code == code
        with pytest.raises(BadInput) as raised:
            await peik.create_session("a", metadata={"not": object()})
        assert raised.value.code == "malformed_metadata"
        with pytest.raises(BadInput):
            await peik.create_session("a", phone="12")

    play(way, tmp_path, story)


def everything(peik: Peik) -> list[Any]:
    return [
        lambda: peik.create_session("a"),
        lambda: peik.get_session_by_id("s"),
        lambda: peik.get_all_active_sessions(),
        lambda: peik.send_code("s"),
        lambda: peik.chats_of_session("s"),
        lambda: peik.count_messages(),
        lambda: anext(aiter(peik.find_messages())),
        lambda: anext(aiter(peik.find_events())),
        lambda: anext(peik.listen()),
        lambda: anext(peik.listen(reader="crm")),
        lambda: peik.forget_person(5),
    ]


@both
def test_without_settings_for_accounts_every_call_says_what_to_set(way: str, tmp_path: Path) -> None:
    async def ask(peik: Peik) -> None:
        for call in everything(peik):
            with pytest.raises(Conflict) as raised:
                await call()
            assert raised.value.code == "no_sessions"
            assert "TELEGRAM_API_ID" in raised.value.detail

    async def main() -> None:
        if way == "open":
            async with Peik.open(f"sqlite:///{tmp_path}/peik.db", api_root="http://127.0.0.1:9") as peik:
                await ask(peik)
            return
        async with house(tmp_path, has_accounts=False) as built, Peik.connect(built.url, key=KEY) as peik:
            await ask(peik)

    asyncio.run(main())
