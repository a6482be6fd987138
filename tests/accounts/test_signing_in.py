"""Signing in: by code, password and QR, wrong and late, twice at once, and with Peik dying between two steps."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from peik.accounts.registry import Registry, secret_context
from peik.accounts.sign_in import PendingSignIns, SignInSteps
from peik.archive.store import Session, SessionState
from peik.errors import BadInput, Conflict, NotFound, Problem, StoreUnavailable, Unavailable
from peik.secrets.vault import Vault
from peik.testing.accounts import Accounts
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.listening import until
from tests.accounts.memory_archive import MemoryBook

PHONE = "+998901234567"
KEY = b"k" * 32


class Stage:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.telegram = Accounts(clock, seed=7)
        self.book = MemoryBook()
        self.vault = Vault([KEY])
        self.restart()

    def restart(self) -> None:
        """A new process: only the book stays."""
        self.registry = Registry(self.book, self.clock)
        self.signing = SignInSteps(self.registry, self.vault, self.telegram.clients, self.clock)

    async def new(self, phone: str | None = None) -> str:
        return (await self.registry.create_session("agent", phone=phone)).session_id

    async def state(self, session_id: str) -> SessionState:
        return (await self.registry.need(session_id)).state

    async def signed_in_as(self, session_id: str) -> int | None:
        """Whom the kept key belongs to, if one connects with it."""
        session = await self.registry.need(session_id)
        assert session.secret is not None
        secret = self.vault.open(session.secret, context=secret_context(session_id))
        client = self.telegram.clients(session_id=session_id, agent_id="a", secret=secret, file=None, proxy=None)
        me = await client.connect()
        await client.disconnect()
        return None if me is None else me.user_id


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        stage = Stage(clock)
        await story(stage)
        await stage.signing.close()

    run_virtual(main)


async def refused(step: Awaitable[object], kind: type[Problem], code: str) -> None:
    with pytest.raises(kind) as caught:
        await step
    assert caught.value.code == code


def test_by_code() -> None:
    async def story(stage: Stage) -> None:
        sara = stage.telegram.register(PHONE, first_name="Sara", username="sara")
        session_id = await stage.new()
        sent = await stage.signing.begin(session_id, "998 90 123 45 67")
        assert (sent.state, sent.phone) == (SessionState.CODE_SENT, PHONE)
        assert sent.state_until_ms == stage.clock.wall_ms() + 300_000
        done = await stage.signing.give_code(session_id, stage.telegram.code_of(PHONE))
        assert (done.state, done.user_id, done.username) == (SessionState.ACTIVE, sara.user_id, "sara")
        assert (done.state_reason, done.state_until_ms) == (None, None)
        assert await stage.signed_in_as(session_id) == sara.user_id
        await refused(stage.signing.begin(session_id), Conflict, "signed_in")
        await refused(stage.signing.give_code(session_id, "1"), Conflict, "not_due")

    play(story)


def test_by_code_and_password_with_a_restart_before_every_step() -> None:
    async def story(stage: Stage) -> None:
        sara = stage.telegram.register(PHONE, password="горшок")
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        stage.restart()
        code = stage.telegram.code_of(PHONE)
        asked = await stage.signing.give_code(session_id, f" {code[:2]} {code[2:]} ")
        assert asked.state is SessionState.PASSWORD_NEEDED
        stage.restart()
        await refused(stage.signing.give_password(session_id, "wrong"), BadInput, "bad_password")
        stage.restart()
        done = await stage.signing.give_password(session_id, "горшок")
        assert done.state is SessionState.ACTIVE
        assert await stage.signed_in_as(session_id) == sara.user_id

    play(story)


def test_five_wrong_codes_are_enough_also_over_restarts() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.register(PHONE)
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        right = stage.telegram.code_of(PHONE)
        wrong = "00000" if right != "00000" else "11111"
        for _ in range(5):
            await refused(stage.signing.give_code(session_id, wrong), BadInput, "bad_code")
            stage.restart()
        await refused(stage.signing.give_code(session_id, right), BadInput, "too_many_tries")
        assert await stage.state(session_id) is SessionState.NEW

    play(story)


def test_a_code_lasts_five_minutes() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.register(PHONE)
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        await asyncio.sleep(301)
        await refused(stage.signing.give_code(session_id, stage.telegram.code_of(PHONE)), BadInput, "code_expired")
        assert await stage.state(session_id) is SessionState.NEW

    play(story)


def test_three_codes_an_hour_for_one_phone_also_over_restarts_and_after_a_cancel() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.register(PHONE)
        session_id = await stage.new(PHONE)
        for _ in range(3):
            await stage.signing.begin(session_id)
            await stage.signing.cancel(session_id)
            stage.restart()
            await asyncio.sleep(60)
        await refused(stage.signing.begin(session_id), Conflict, "too_many_codes")
        await asyncio.sleep(3600)
        assert (await stage.signing.begin(session_id)).state is SessionState.CODE_SENT

    play(story)


def test_another_code_makes_the_first_one_worthless() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.register(PHONE)
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        first = stage.telegram.code_of(PHONE)
        sent = await stage.signing.begin(session_id, by_sms=True)
        assert "sms" in (sent.state_reason or "")
        assert stage.telegram.code_of(PHONE) != first
        await refused(stage.signing.give_code(session_id, first), BadInput, "bad_code")
        assert (await stage.signing.give_code(session_id, stage.telegram.code_of(PHONE))).state is SessionState.ACTIVE

    play(story)


def test_by_qr() -> None:
    async def story(stage: Stage) -> None:
        sara = stage.telegram.register(PHONE)
        session_id = await stage.new()
        old = await stage.signing.qr(session_id)
        await asyncio.sleep(40)
        with pytest.raises(ValueError, match="EXPIRED"):
            stage.telegram.scan(old.url, sara)
        fresh = await stage.signing.qr(session_id)
        assert fresh.url != old.url
        stage.telegram.scan(fresh.url, sara)
        await until(lambda: stage.book.kept[session_id].state is SessionState.ACTIVE)
        assert await stage.signed_in_as(session_id) == sara.user_id
        assert stage.book.kept[session_id].phone == PHONE

    play(story)


def test_who_looks_at_the_picture_while_it_is_stored_that_it_was_scanned_does_no_harm() -> None:
    async def story(stage: Stage) -> None:
        sara = stage.telegram.register(PHONE)
        session_id = await stage.new()
        go_on, told = asyncio.Event(), []

        async def slowly(session: Session) -> None:
            await go_on.wait()
            told.append(session.session_id)

        stage.signing._on_signed_in = slowly
        stage.telegram.scan((await stage.signing.qr(session_id)).url, sara)
        await until(lambda: stage.book.kept[session_id].state is SessionState.ACTIVE)
        looking = asyncio.create_task(refused(stage.signing.qr(session_id), Conflict, "signed_in"))
        giving_up = asyncio.create_task(refused(stage.signing.cancel(session_id), Conflict, "signed_in"))
        await asyncio.sleep(1)
        go_on.set()
        await asyncio.gather(looking, giving_up)
        assert told == [session_id], "all that follows a sign-in was done"

    play(story)


def test_by_qr_with_a_password() -> None:
    async def story(stage: Stage) -> None:
        sara = stage.telegram.register(PHONE, password="p")
        session_id = await stage.new()
        stage.telegram.scan((await stage.signing.qr(session_id)).url, sara)
        await until(lambda: stage.book.kept[session_id].state is SessionState.PASSWORD_NEEDED)
        stage.restart()
        assert (await stage.signing.give_password(session_id, "p")).state is SessionState.ACTIVE

    play(story)


def test_a_picture_that_nobody_scans_is_given_up() -> None:
    async def story(stage: Stage) -> None:
        session_id = await stage.new()
        await stage.signing.qr(session_id)
        await asyncio.sleep(400)
        assert await stage.state(session_id) is SessionState.NEW
        assert not stage.signing._scans

    play(story)


async def devices(stage: Stage, user_id: int) -> int:
    """In the account's own list at Telegram; also those whose password is missing."""
    keys = stage.telegram.keys._keys.values()
    people = [key.person or key.awaits_password for key in keys if key.ended is None]
    return sum(one is not None and one.user_id == user_id for one in people)


def test_a_scan_that_is_refused_leaves_no_device_at_telegram() -> None:
    async def story(stage: Stage) -> None:
        sara = stage.telegram.register(PHONE)
        first = await stage.new(PHONE)
        await stage.signing.begin(first)
        await stage.signing.give_code(first, stage.telegram.code_of(PHONE))
        second = await stage.new()
        stage.telegram.scan((await stage.signing.qr(second)).url, sara)
        await until(lambda: not stage.signing._scans)
        session = await stage.registry.need(second)
        assert (session.state, session.secret) == (SessionState.NEW, None)
        assert "has this phone" in (session.state_reason or "")
        assert await devices(stage, sara.user_id) == 1

        third = await stage.new()
        stage.book.__class__ = Failing
        stage.telegram.scan((await stage.signing.qr(third)).url, sara)
        await until(lambda: not stage.signing._scans)
        stage.book.__class__ = MemoryBook
        assert await devices(stage, sara.user_id) == 1
        assert await stage.signed_in_as(first) == sara.user_id

    play(story)


def test_a_sign_in_that_is_cancelled_before_its_password_leaves_no_device_at_telegram() -> None:
    async def story(stage: Stage) -> None:
        sara = stage.telegram.register(PHONE, password="p")
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        asked = await stage.signing.give_code(session_id, stage.telegram.code_of(PHONE))
        assert asked.state is SessionState.PASSWORD_NEEDED
        assert await devices(stage, sara.user_id) == 1
        assert (await stage.signing.cancel(session_id)).state is SessionState.NEW
        assert await devices(stage, sara.user_id) == 0

    play(story)


def test_cancel_leaves_nothing_and_the_code_is_worth_nothing() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.register(PHONE)
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        assert (await stage.signing.cancel(session_id)).state is SessionState.NEW
        await refused(stage.signing.give_code(session_id, stage.telegram.code_of(PHONE)), Conflict, "not_due")
        await refused(stage.signing.cancel("nobody"), NotFound, "no_such_session")

    play(story)


def test_what_telegram_says_ends_in_a_state() -> None:
    async def story(stage: Stage) -> None:
        banned = stage.telegram.register(PHONE)
        stage.telegram.ban(banned)
        first = await stage.new(PHONE)
        await refused(stage.signing.begin(first), BadInput, "phone_banned")
        assert await stage.state(first) is SessionState.FAILED

        nobody = await stage.new("+77010000000")
        await stage.signing.begin(nobody)
        code = stage.telegram.code_of("+77010000000")
        await refused(stage.signing.give_code(nobody, code), BadInput, "not_registered")
        assert await stage.state(nobody) is SessionState.FAILED

        hurried = await stage.new("+77020000000")
        stage.telegram.flood("send_code", 20)
        await refused(stage.signing.begin(hurried), Conflict, "flood")
        assert await stage.state(hurried) is SessionState.FLOOD_WAIT
        await refused(stage.signing.begin(hurried), Conflict, "flood")
        await asyncio.sleep(21)
        assert (await stage.signing.begin(hurried)).state is SessionState.CODE_SENT

        stage.telegram.is_down = True
        await refused(stage.signing.give_code(hurried, "1"), Unavailable, "telegram_unreachable")
        assert await stage.state(hurried) is SessionState.CODE_SENT

    play(story)


def test_two_steps_at_once_never_use_the_key_twice() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.register(PHONE)
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        other = SignInSteps(Registry(stage.book, stage.clock), stage.vault, stage.telegram.clients, stage.clock)
        code = stage.telegram.code_of(PHONE)
        results = await asyncio.gather(
            *(one.give_code(session_id, code) for one in (stage.signing, stage.signing, other)), return_exceptions=True
        )
        assert [one.state for one in results if isinstance(one, Session)] == [SessionState.ACTIVE]
        assert all(isinstance(one, Conflict) for one in results if not isinstance(one, Session))
        assert await stage.signed_in_as(session_id) is not None

    play(story)


def test_a_node_that_died_in_a_step_holds_up_the_others_for_a_while_only() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.register(PHONE)
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        session = await stage.registry.need(session_id)
        halves = PendingSignIns(stage.registry, stage.vault, stage.clock)
        half = halves.of(session)
        assert half is not None
        await halves.claim(session, half)  # and nothing more is heard of that node
        stage.restart()
        code = stage.telegram.code_of(PHONE)
        await refused(stage.signing.give_code(session_id, code), Conflict, "session_busy")
        await asyncio.sleep(91)
        assert (await stage.signing.give_code(session_id, code)).state is SessionState.ACTIVE

    play(story)


def test_a_crash_after_telegrams_yes_and_before_ours_loses_nothing() -> None:
    async def story(stage: Stage) -> None:
        stage.telegram.register(PHONE)
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        code = stage.telegram.code_of(PHONE)
        stage.book.__class__ = Failing
        await refused(stage.signing.give_code(session_id, code), StoreUnavailable, "gone")
        stage.book.__class__ = MemoryBook
        stage.restart()
        assert (await stage.signing.give_code(session_id, code)).state is SessionState.ACTIVE

    play(story)


class Failing(MemoryBook):
    """A book that takes no active session."""

    async def save_session(self, session: Session) -> Session:
        if session.state is SessionState.ACTIVE:
            raise StoreUnavailable(code="gone", detail="the disk is full")
        return await super().save_session(session)


def test_no_code_password_or_key_is_stored_open_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def story(stage: Stage) -> None:
        stage.telegram.register(PHONE, password="p4ssw0rd-p4ssw0rd")
        session_id = await stage.new(PHONE)
        await stage.signing.begin(session_id)
        code = stage.telegram.code_of(PHONE)
        await stage.signing.give_code(session_id, code)
        await refused(stage.signing.give_password(session_id, "wr0ng-wr0ng"), BadInput, "bad_password")
        done = await stage.signing.give_password(session_id, "p4ssw0rd-p4ssw0rd")
        for text in (repr(stage.book.kept), caplog.text, repr(done), str(done.secret)):
            for secret in (code, "p4ssw0rd", "wr0ng", "sim-"):
                assert secret not in text

    play(story)
