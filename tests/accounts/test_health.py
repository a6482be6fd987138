"""How an account stands, in one line: the rule, and that every door shows it."""

import asyncio

import pytest

from peik.accounts.registry import HealthGrade, health_of, own_metadata
from peik.archive.store import Session, SessionState
from peik.errors import Conflict
from tests.accounts.house import House, play, play_closed


def session(state: SessionState, **more: object) -> Session:
    return Session(session_id="s1", agent_id="a", state=state, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "grade", "line"),
    [
        (session(SessionState.ACTIVE, is_connected=True), HealthGrade.OK, "Connected."),
        (session(SessionState.ACTIVE), HealthGrade.WAITING, "Not connected yet."),
        (session(SessionState.ACTIVE, state_reason="No way."), HealthGrade.FAILING, "No way."),
        (
            session(SessionState.ACTIVE, is_connected=True, state_reason="A chat is behind."),
            HealthGrade.FAILING,
            "Connected. A chat is behind.",
        ),
        (session(SessionState.FLOOD_WAIT, state_reason="Wait 5 s."), HealthGrade.WAITING, "Wait 5 s."),
        (session(SessionState.REVOKED), HealthGrade.ENDED, "Telegram ended the session."),
        (session(SessionState.FAILED, state_reason="Its proxy is wrong."), HealthGrade.ENDED, "Its proxy is wrong."),
        (session(SessionState.PAUSED), HealthGrade.OFF, "Its owner paused it."),
        (session(SessionState.NEW), HealthGrade.OFF, "Nobody is signed in."),
        (session(SessionState.ACTIVE, is_active=False), HealthGrade.OFF, "Deactivated by its owner."),
    ],
)
def test_the_rule(one: Session, grade: HealthGrade, line: str) -> None:
    health = health_of(one)
    assert (health.grade, health.line) == (grade, line)
    assert (health.todo is None) is (grade is HealthGrade.OK), "what to do is said wherever something may be done"


@pytest.mark.parametrize("state", SessionState)
def test_every_state_has_its_line(state: SessionState) -> None:
    assert health_of(session(state)).line.endswith(".")


def test_an_account_that_cannot_connect_is_failing_until_it_can() -> None:
    async def story(house: House) -> None:
        made = await house.sign_in(house.ali)
        await house.connected(house.ali)
        assert house.service.unconnected() == []
        house.accounts.is_down = True
        house.accounts.cut(house.ali)
        await house.until(lambda: house.service.unconnected() == [made.session_id])
        health = health_of(await house.service.session(made.session_id))
        assert health.grade is HealthGrade.FAILING
        assert "tries again by itself" in health.line
        house.accounts.is_down = False
        await house.until(lambda: house.service.unconnected() == [])
        assert health_of(await house.service.session(made.session_id)).grade is HealthGrade.OK

    play(story)


def test_an_account_joins_only_so_many_chats_a_day() -> None:
    async def story(house: House) -> None:
        made = await house.sign_in(house.ali)
        await house.until(lambda: house.service.crew.runner_of(made.session_id))
        await house.until(lambda: house.service.unconnected() == [] and house.clients[-1].is_connected)
        links = [house.accounts.invite(house.accounts.channel(f"c{number}", house.sara)) for number in range(21)]
        await asyncio.sleep(30)
        began = house.clock.mono()
        for link in links[:20]:
            await house.service.join(made.session_id, link)
        assert house.clock.mono() - began >= 19 * 3, "each in its turn of the account"
        with pytest.raises(Conflict) as caught:
            await house.service.join(made.session_id, links[20])
        assert caught.value.code == "too_many_a_day"
        await asyncio.sleep(86_400)
        await house.service.join(made.session_id, links[20])

    play(story)


def test_what_an_account_did_today_is_known_after_a_restart() -> None:
    async def story(house: House) -> None:
        links = [house.accounts.invite(house.accounts.channel(f"c{number}", house.sara)) for number in range(21)]
        async with house.open():
            made = await house.sign_in(house.ali)
            await house.connected(house.ali)
            for link in links[:12]:
                await house.service.join(made.session_id, link)
        async with house.open():
            await house.connected(house.ali)
            for link in links[12:20]:
                await house.service.join(made.session_id, link)
            with pytest.raises(Conflict) as caught:
                await house.service.join(made.session_id, links[20])
            assert caught.value.code == "too_many_a_day"
            assert own_metadata(await house.service.session(made.session_id)) == "{}"

    play_closed(story)
