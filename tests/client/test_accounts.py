"""The registry of accounts, signing in, running and sending, told the same in this process and over REST."""

import asyncio
import datetime
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from peik import BadInput, Conflict, NotFound, Peik, SessionState
from peik.testing.accounts import Accounts
from tests.client.account_ways import both, connected, play, signed_in
from tests.patience import PATIENCE_S
from tests.web.accounts import until

ALI, SARA = "+998900000001", "+998900000002"


@both
def test_the_twelve_calls_of_the_registry(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        made = await peik.create_session("agent-1", phone="+998 90 000 00 01", metadata={"team": "north", "n": 1})
        assert (made.agent_id, made.phone, made.state, made.is_active) == ("agent-1", ALI, SessionState.NEW, True)
        assert (made.runs_from, made.user_id, made.is_connected, made.has_proxy) == (None, None, False, False)
        assert (made["phone"], made.get("agent_id"), made.get("nothing", 5)) == (ALI, "agent-1", 5)
        assert "metadata" in made
        assert dict(made) == {**made} == dict(made.items()) == msgspec.structs.asdict(made)
        assert isinstance(made, Mapping)
        with pytest.raises(KeyError):
            made["nothing"]
        assert datetime.datetime.now(datetime.UTC) - made.created_at < datetime.timedelta(minutes=5)
        other = await peik.create_session("agent-2", session_id="second")
        assert other.session_id == "second"
        with pytest.raises(Conflict):
            await peik.create_session("agent-3", phone=ALI)

        assert await peik.get_session_by_id(made.session_id) == made
        assert await peik.get_session_by_id("nobody") is None
        assert await peik.get_session_by_phone("0099890 0000001") == made
        assert await peik.get_session_by_phone(SARA) is None
        assert await peik.get_sessions_by_agent("agent-1") == [made]
        assert await peik.get_sessions_by_agent("nobody") == []
        assert {one.session_id for one in await peik.get_all_active_sessions()} == {made.session_id, "second"}

        assert (await peik.update_session_phone(other, SARA)).phone == SARA
        assert (await peik.update_session_connected("second", True)).is_connected
        assert not (await peik.update_session_connected("second", False)).is_connected
        changed = await peik.update_session_metadata(made, {"n": None, "city": {"name": "Tashkent"}, "text": "null"})
        assert changed.metadata == {"team": "north", "city": {"name": "Tashkent"}, "text": "null"}
        kept = await peik.update_session_keep(made, {"all": "nothing", -1001: "all"})
        assert (kept.keep, kept.metadata) == ({"all": "nothing", "-1001": "all"}, changed.metadata)
        assert (await peik.update_session_metadata(made, {"text": None})).keep == kept.keep
        with pytest.raises(BadInput):
            await peik.update_session_keep(made, {"@name": "nothing"})
        with pytest.raises(Conflict):
            await peik.crawl_chat(made, -1002)
        kept = await peik.update_session_keep(made, {"all": None, -1001: None})
        assert (kept.keep, kept.metadata) == ({}, {"team": "north", "city": {"name": "Tashkent"}})
        await peik.update_session_activity("second")
        noted = await peik.get_session_by_id("second")
        assert noted is not None
        assert noted.active_at is not None

        assert not (await peik.deactivate_session(made)).is_active
        assert [one.session_id for one in await peik.get_all_active_sessions()] == ["second"]
        assert [one.is_active for one in await peik.get_sessions_by_agent("agent-1")] == [False]
        assert (await peik.activate_session(made)).is_active
        await peik.deactivate_session("second")
        assert await peik.cleanup_old_sessions() == 0
        assert await peik.cleanup_old_sessions(days=0) in (0, 1)  # of this very millisecond, or before
        assert await peik.delete_session(made)
        assert not await peik.delete_session(made)
        with pytest.raises(NotFound) as raised:
            await peik.update_session_phone(made, ALI)
        assert raised.value.code == "no_such_session"

    play(way, tmp_path, story)


@both
def test_many_sessions_are_listed_whole(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        for n in range(1203):
            await peik.create_session(f"agent-{n % 2}", session_id=f"s{n:04}")
        assert [one.session_id for one in await peik.get_all_active_sessions()] == [f"s{n:04}" for n in range(1203)]
        assert len(await peik.get_sessions_by_agent("agent-1")) == 601

    play(way, tmp_path, story)


@both
def test_an_account_signs_in_by_code_and_password_and_sends(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        ali = telegram.register(ALI, first_name="Ali", username="ali", password="open sesame")
        sara = telegram.register(SARA, first_name="Sara")
        telegram.private(ali, sara)
        session = await peik.create_session("a", phone=ALI)
        assert (await peik.send_code(session)).state is SessionState.CODE_SENT
        with pytest.raises(BadInput) as raised:
            await peik.give_code(session, "00000")
        assert raised.value.code == "bad_code"
        assert (await peik.give_code(session, telegram.code_of(ALI))).state is SessionState.PASSWORD_NEEDED
        with pytest.raises(BadInput) as raised:
            await peik.give_password(session, "wrong")
        assert raised.value.code == "bad_password"
        assert (await peik.give_password(session, "open sesame")).state is SessionState.ACTIVE
        running = await connected(peik, session.session_id)
        assert (running.user_id, running.username, running.runs_from) == (ali.user_id, "ali", "key")
        assert "sesame" not in repr(running) + str(msgspec.json.encode(running))

        async def enlisted() -> bool:  # the account becomes a sender a moment after it is connected
            try:
                await peik.send_text(sara.user_id, "Hello", bot_id=ali.user_id, wait=PATIENCE_S)
            except NotFound:
                return False
            return True

        await until(enlisted)
        assert [one.text for one in telegram.deliveries] == ["Hello"]
        with pytest.raises(NotFound):
            await peik.send_text(sara.user_id, "As nobody")

    play(way, tmp_path, story)


@both
def test_an_account_signs_in_by_qr_or_leaves_it(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        ali = telegram.register(ALI, first_name="Ali")
        session = await peik.create_session("a", session_id="by-qr")
        shown = await peik.qr_login(session)
        assert shown.url.startswith("tg://login?token=")
        assert shown.url not in repr(shown)
        assert shown.expires_at > datetime.datetime.now(datetime.UTC)
        telegram.scan(shown.url, ali)
        assert (await connected(peik, "by-qr")).user_id == ali.user_id
        telegram.register(SARA)
        await peik.create_session("a", session_id="left", phone=SARA)
        await peik.send_code("left")
        assert (await peik.cancel_sign_in("left")).state is SessionState.NEW

    play(way, tmp_path, story)


@both
def test_a_session_is_stopped_started_restarted_and_signed_out(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        ali = telegram.register(ALI, first_name="Ali")
        await signed_in(peik, telegram, ali, "s1")
        assert (await peik.stop_session("s1")).state is SessionState.PAUSED
        assert not (await connected(peik, "s1", is_connected=False)).is_connected
        await peik.start_session("s1")
        assert (await connected(peik, "s1")).state is SessionState.ACTIVE
        assert (await peik.restart_session("s1")).session_id == "s1"
        await connected(peik, "s1")
        secret = "socks5://me:secret@127.0.0.1:1080"
        with_proxy = await peik.set_session_proxy("s1", secret)
        assert with_proxy.has_proxy
        assert "secret" not in repr(with_proxy) + str(msgspec.json.encode(with_proxy))
        assert not (await peik.set_session_proxy("s1", None)).has_proxy
        with pytest.raises(BadInput):
            await peik.set_session_proxy("s1", "gopher://there")
        assert (await peik.log_out_session("s1")).runs_from is None
        with pytest.raises(NotFound):
            await peik.start_session("nobody")

    play(way, tmp_path, story)


@both
def test_an_account_is_exported_and_taken_in_by_its_string(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        session = await signed_in(peik, telegram, telegram.register(ALI, first_name="Ali"), "s1")
        await peik.stop_session(session)
        phrase = "a sentence that nobody guesses"
        string = await peik.export_session(session, passphrase=phrase)
        await peik.delete_session(session)
        taken = await peik.import_session_string(string, agent_id="other", passphrase=phrase)
        assert (taken.agent_id, taken.state) == ("other", SessionState.ACTIVE)
        with pytest.raises(Conflict):
            await peik.import_session_string(string, agent_id="other", passphrase=phrase)

    play(way, tmp_path, story)


@both
def test_an_account_joins_a_chat_and_knows_its_contacts(way: str, tmp_path: Path) -> None:
    async def story(peik: Peik, telegram: Accounts) -> None:
        session = await signed_in(peik, telegram, telegram.register(ALI, first_name="Ali"), "s1")
        sara = telegram.register(SARA, first_name="Sara")
        club = telegram.channel("Club", sara)
        chat = await peik.join_chat(session, telegram.invite(club))
        assert (chat.chat_id, chat.title) == (club.chat_id, "Club")
        added, later = await peik.add_contacts(session, [{"phone": SARA, "first_name": "Sara"}])
        assert ([one["user_id"] for one in added], later) == ([str(sara.user_id)], [])
        assert await peik.contacts_of_session(session) == added
        telegram.say(club, sara, "one")
        told = await peik.estimate_crawl(session, club.chat_id)
        assert (told["messages"], told["requests"], told["others"]) == (1, 1, 0)
        await peik.watch_members(session, club.chat_id, every_s=7200)
        while not (found := await peik.members_of_chat(session, club.chat_id)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert [(one.name, one.role) for one in found] == [("Ali", "member"), ("Sara", "owner")]
        assert await peik.members_of_chat(session, club.chat_id, at=0) == []
        await peik.unwatch_members(session, club.chat_id)
        assert len(await peik.members_of_chat(session, club.chat_id)) == 2

    play(way, tmp_path, story)
