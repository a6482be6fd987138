"""Accounts in a whole Peik: signed in, run, archived, fed, and sent for through the ordinary outbox."""

import asyncio

import pytest

from peik.accounts.events import ArchiveAway, SessionDown, SessionRevoked, SessionUp
from peik.accounts.feeds import FeedFilter
from peik.archive.store import Direction, LineKind, SessionState
from peik.core.letter import LetterCall, State
from peik.core.token import Token
from peik.errors import BadInput, Conflict, NotFound, Unavailable
from tests.accounts.house import House, play, play_closed


def test_an_account_is_signed_in_runs_and_is_archived() -> None:
    async def story(house: House) -> None:
        session = await house.sign_in(house.ali)
        assert (session.state, session.user_id) == (SessionState.ACTIVE, house.ali.user_id)
        await house.connected(house.ali)
        house.accounts.say(house.private, house.sara, "hello")
        await asyncio.sleep(5)
        assert [(one.text, one.direction) for one in await house.kept(session.session_id)] == [
            ("hello", Direction.RECEIVED)
        ]
        assert [(one.number, one.kind) for one in await house.lines(session.session_id)] == [(1, LineKind.MESSAGE)]

    play(story)


def test_letters_go_out_as_the_account_in_order_and_once() -> None:
    async def story(house: House) -> None:
        session = await house.sign_in(house.ali)
        await house.connected(house.ali)
        letters = [await house.send_as(house.ali, house.sara.user_id, f"{number}") for number in range(5)]
        for letter in letters:
            assert (await house.ended(letter)).state is State.COMPLETED
        await asyncio.sleep(5)
        sent = [one for one in await house.kept(session.session_id) if one.direction is Direction.SENT]
        assert [one.text for one in reversed(sent)] == ["0", "1", "2", "3", "4"]

    play(story)


def test_an_account_is_a_bot_of_its_own_kind() -> None:
    async def story(house: House) -> None:
        await house.sign_in(house.ali)
        await house.connected(house.ali)
        service = house.peik.outbox.service
        record = service.bot(house.ali.user_id)
        assert record.token.is_account
        assert not service.bot(None).token.is_account, "who means an account says so"
        with pytest.raises(BadInput, match="account of a person"):
            await service.change_bot(house.ali.user_id, inbound="polling")
        with pytest.raises(BadInput):
            Token(record.token.reveal())  # nobody can come to a door with it

    play(story)


def test_letters_wait_while_the_account_is_away_and_cost_nothing() -> None:
    async def story(house: House) -> None:
        session = await house.sign_in(house.ali)
        await house.connected(house.ali)
        await house.service.crew.stop(session.session_id)
        letter = await house.send_as(house.ali, house.sara.user_id, "later")
        await asyncio.sleep(600)
        view = await house.peik.outbox.service.letter(letter)
        assert (view.state, view.attempts_made, view.uncertain_tries) == (State.WAITING, 0, 0)
        await house.service.crew.start(session.session_id)
        await house.connected(house.ali)
        began = house.clock.mono()
        assert (await house.ended(letter)).state is State.COMPLETED
        assert house.clock.mono() - began < 10, "it goes as soon as the account is back"

    play(story)


def test_a_revoked_account_ends_cleanly_and_disturbs_nobody() -> None:
    async def story(house: House) -> None:
        ali, sara = await house.sign_in(house.ali), await house.sign_in(house.sara)
        await house.connected(house.ali)
        await house.connected(house.sara)
        house.accounts.revoke(house.ali)
        await house.until(lambda: house.told_of(SessionRevoked))
        assert (await house.service.session(ali.session_id)).state is SessionState.REVOKED
        assert house.service.running() == [sara.session_id]
        letter = await house.send_as(house.sara, house.ali.user_id, "still here")
        assert (await house.ended(letter)).state is State.COMPLETED

    play(story)


def test_after_a_restart_it_catches_up_and_feeds_once() -> None:
    async def story(house: House) -> None:
        async with house.open():
            session = await house.sign_in(house.ali)
            await house.connected(house.ali)
            house.accounts.say(house.private, house.sara, "one")
            await asyncio.sleep(5)
        house.accounts.say(house.private, house.sara, "two")
        house.accounts.say(house.team, house.sara, "three")
        async with house.open():
            await house.connected(house.ali)
            await asyncio.sleep(60)
            assert sorted(one.text for one in await house.kept(session.session_id)) == ["one", "three", "two"]
            lines = await house.lines(session.session_id)
            assert [one.number for one in lines] == [1, 2, 3]
            assert len({one.key for one in lines}) == 3

    play_closed(story)


def test_readers_hear_at_once_and_from_their_place() -> None:
    async def story(house: House) -> None:
        session = await house.sign_in(house.ali)
        await house.connected(house.ali)
        house.accounts.say(house.private, house.sara, "before")
        await asyncio.sleep(5)
        now = await house.service.follow(FeedFilter())
        named = await house.service.follow(FeedFilter(), reader="mine")
        waiting = asyncio.create_task(now.next(timeout_s=60))
        await asyncio.sleep(1)
        house.accounts.say(house.private, house.sara, "after")
        assert [b"after" in one.body.encode() for one in await waiting] == [True]
        heard = await named.next(timeout_s=5)
        assert [one.number for one in heard] == [1, 2]
        await named.confirm()
        again = await house.service.follow(FeedFilter(), reader="mine")
        assert await again.next(timeout_s=2) == []
        other = await house.service.follow(FeedFilter(agent_id="b"), after={})
        assert await other.next(timeout_s=2) == []
        assert other.places == {session.session_id: 2}

    play(story)


def test_deleting_a_session_takes_its_account_along_but_not_its_letters() -> None:
    async def story(house: House) -> None:
        session = await house.sign_in(house.ali)
        await house.connected(house.ali)
        await house.service.crew.stop(session.session_id)
        letter = await house.send_as(house.ali, house.sara.user_id, "waits")
        with pytest.raises(Conflict):
            await house.service.delete_session(session.session_id)
        await house.peik.outbox.service.cancel(letter)
        assert await house.service.delete_session(session.session_id)
        with pytest.raises(NotFound):
            house.peik.outbox.service.bot(house.ali.user_id)
        assert not await house.service.delete_session(session.session_id)

    play(story)


def test_bots_do_not_wait_for_an_archive_that_is_away() -> None:
    async def story(house: House) -> None:
        house.archive_back_at = house.clock.mono() + 100
        house.bots.user(5)
        async with house.open():
            with pytest.raises(Unavailable):
                await house.service.create_session("a")
            call = LetterCall(method="sendMessage", params=b'{"chat_id":5,"text":"x"}')
            letter = (await house.peik.outbox.service.accept([call]))[0].letter_id
            assert (await house.ended(letter)).state is State.COMPLETED
            assert house.clock.mono() < house.archive_back_at
            assert house.told_of(ArchiveAway)[0].why == "No way there."
            await house.until(lambda: house.service.trouble() is None)
            await house.sign_in(house.ali)
            await house.connected(house.ali)

    play_closed(story)


def test_telegram_away_and_back() -> None:
    async def story(house: House) -> None:
        await house.sign_in(house.ali)
        await house.connected(house.ali)
        house.accounts.is_down = True
        house.accounts.cut(house.ali)
        letter = await house.send_as(house.ali, house.sara.user_id, "through")
        await asyncio.sleep(900)
        assert house.told_of(SessionDown)
        house.accounts.is_down = False
        view = await house.ended(letter)
        assert (view.state, view.uncertain_tries) == (State.COMPLETED, 0)
        assert len(house.told_of(SessionUp)) == 2

    play(story)
