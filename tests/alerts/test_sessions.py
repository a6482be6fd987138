"""Alerts about accounts, their archive and their webhook, each by its real cause."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.accounts.house import House, play_closed
from tests.accounts.test_reconciling import Failing
from tests.alerts.alarm import ADMIN, Hearing, paging
from tests.outbox.receivers import Receivers

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Apprise's plugins, not ours

HOUR_S = 3600.0
OTHER_KEY = "QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI="

Story = Callable[[House, Hearing], Coroutine[Any, Any, None]]


def alarm(story: Story, **settings: str) -> None:
    with paging() as pager:

        async def main(house: House) -> None:
            house.bots.user(ADMIN, "Admin")
            await story(house, Hearing(pager, lambda: house.peik, lambda: house.bots.sent.texts(ADMIN)))

        play_closed(main, admin_chats=str(ADMIN), alert_urls=pager.url, **settings)


@pytest.mark.raises_alert("session-ended")
def test_an_account_that_was_signed_out_elsewhere_is_told_until_it_is_signed_in() -> None:
    async def story(house: House, hearing: Hearing) -> None:
        async with house.open():
            session = await house.sign_in(house.ali)
            await house.connected(house.ali)
            house.accounts.revoke(house.ali)
            assert f"session {session.session_id}" in await hearing.begins("session-ended", within_s=600)
            await hearing.goes_on("session-ended")
            await house.service.signing_in.begin(session.session_id)
            await house.service.signing_in.give_code(session.session_id, house.accounts.code_of(house.ali.phone))
            await hearing.is_over("session-ended")

    alarm(story)


@pytest.mark.raises_alert("session-unfit")
def test_an_account_whose_key_cannot_be_opened_is_told_until_it_can() -> None:
    async def story(house: House, hearing: Hearing) -> None:
        house._settings["secret_key"] = None  # the key is in a file, and seals nothing but accounts
        async with house.open():
            session = await house.sign_in(house.ali)
            await house.connected(house.ali)
        (key,) = house.folder.glob("*.secret")
        lost = key.rename(key.with_suffix(".lost"))
        async with house.open():
            await hearing.begins("session-unfit", within_s=600)
        lost.rename(key)
        async with house.open():
            await house.service.crew.start(session.session_id)
            await hearing.is_over("session-unfit")

    alarm(story)


@pytest.mark.raises_alert("session-down")
def test_an_account_that_cannot_connect_is_told_until_it_does() -> None:
    async def story(house: House, hearing: Hearing) -> None:
        async with house.open():
            session = await house.sign_in(house.ali)
            await house.connected(house.ali)
            house.accounts.is_down = True
            house.accounts.cut(house.ali)
            assert f"session {session.session_id}" in await hearing.begins("session-down", within_s=1500)
            shown = await house.service.session(session.session_id)
            assert "cannot connect, and tries again by itself" in (shown.state_reason or "")
            await hearing.goes_on("session-down")
            house.accounts.is_down = False
            await hearing.is_over("session-down")
            assert (await house.service.session(session.session_id)).state_reason is None

    alarm(story)


@pytest.mark.raises_alert("session-behind")
def test_an_account_whose_chats_cannot_be_listed_is_told_until_they_can() -> None:
    async def story(house: House, hearing: Hearing) -> None:
        failing: set[int | None] = set()
        make = house._client
        house._client = lambda **wanted: Failing(make(**wanted), failing)  # type: ignore[assignment, method-assign]
        async with house.open():
            await house.sign_in(house.ali)
            await house.connected(house.ali)
            failing.add(None)
            assert "the list of its chats" in await hearing.begins("session-behind", within_s=3 * HOUR_S)
            await hearing.goes_on("session-behind")
            failing.clear()
            await hearing.is_over("session-behind", within_s=2 * HOUR_S)

    alarm(story)


@pytest.mark.raises_alert("session-flooded")
def test_an_account_that_telegram_lets_wait_is_told() -> None:
    async def story(house: House, hearing: Hearing) -> None:
        house.accounts.flood("dialogs", 1500)
        async with house.open():
            await house.sign_in(house.ali)
            assert "wait for 25 minutes" in await hearing.begins("session-flooded", within_s=600)
            await hearing.ends_in_silence("session-flooded")

    alarm(story)


@pytest.mark.raises_alert("archive")
def test_an_archive_that_cannot_be_opened_is_told_until_it_can() -> None:
    """As it is at a start while its server is away."""

    async def story(house: House, hearing: Hearing) -> None:
        house.archive_back_at = house.clock.mono() + 2 * HOUR_S
        async with house.open():
            assert "No way there." in await hearing.begins("archive", within_s=120)
            await hearing.goes_on("archive")
            await hearing.is_over("archive", within_s=2 * HOUR_S)

    alarm(story)


@pytest.mark.raises_alert("sessions-webhook")
def test_an_endpoint_of_accounts_that_fails_is_told_until_it_takes_something() -> None:
    async def story(house: House, hearing: Hearing) -> None:
        house.poster = receivers = Receivers(house.clock, lambda heard: 503)
        async with house.open():
            await house.sign_in(house.ali)
            await house.connected(house.ali)
            house.accounts.say(house.private, house.sara, "hello")
            assert "has taken nothing" in await hearing.begins("sessions-webhook", within_s=1200)
            await hearing.goes_on("sessions-webhook")
            receivers.answer = lambda heard: 200
            await hearing.is_over("sessions-webhook", within_s=2 * HOUR_S)

    alarm(story, sessions_webhook="https://shop.example/accounts")
