"""The registry of sessions."""

import asyncio

import msgspec
import pytest

from peik.archive.store import SessionFilter, SessionState
from peik.errors import Conflict, NotFound
from tests.archive.places import Place, opened
from tests.archive.samples import NOW, message, session


async def test_a_session_is_read_as_it_was_added(place: Place) -> None:
    given = session(
        phone="+989120000000",
        user_id=2**40,
        username="سارا",
        state=SessionState.FLOOD_WAIT,
        state_reason="Telegram asks to wait.",
        state_until_ms=NOW + 1,
        is_connected=True,
        secret=b"\0\xff",
        file="anna.session",
        proxy=b"",
        metadata='{"a": 1}',
        active_at_ms=NOW,
    )
    async with opened(place) as archive:
        added = await archive.add_session(given)
        assert added == msgspec.structs.replace(given, version=1)
    async with opened(place) as archive:
        assert await archive.session("s1") == added
        assert await archive.session_by_phone("+989120000000") == added
        assert await archive.session("s2") is None
        assert await archive.session_by_phone("+1") is None


async def test_an_id_is_taken_once(place: Place) -> None:
    async with opened(place) as archive:
        await archive.add_session(session())
        with pytest.raises(Conflict) as met:
            await archive.add_session(session(agent_id="boris"))
        assert met.value.code == "session_exists"


async def test_a_phone_has_one_active_session(place: Place) -> None:
    async with opened(place) as archive:
        first = await archive.add_session(session("s1", phone="+1"))
        with pytest.raises(Conflict) as met:
            await archive.add_session(session("s2", phone="+1"))
        assert met.value.code == "phone_taken"
        await archive.save_session(msgspec.structs.replace(first, is_active=False))
        second = await archive.add_session(session("s2", phone="+1", created_at_ms=NOW + 1))
        assert await archive.session_by_phone("+1") == second
        old = await archive.session("s1")
        assert old is not None
        with pytest.raises(Conflict) as met:
            await archive.save_session(msgspec.structs.replace(old, is_active=True))
        assert met.value.code == "phone_taken"


async def test_who_saw_an_older_version_is_refused(place: Place) -> None:
    async with opened(place) as archive:
        seen = await archive.add_session(session())
        newer = await archive.save_session(msgspec.structs.replace(seen, username="anna"))
        assert newer.version == seen.version + 1
        with pytest.raises(Conflict) as met:
            await archive.save_session(msgspec.structs.replace(seen, username="boris"))
        assert met.value.code == "session_changed"
        assert await archive.session("s1") == newer
        with pytest.raises(NotFound):
            await archive.save_session(session("s9"))


async def test_of_many_who_change_a_version_one_succeeds(place: Place) -> None:
    async with opened(place) as one, opened(place) as other:
        seen = await one.add_session(session())

        async def change(count: int) -> bool:
            archive = one if count % 2 else other
            try:
                await archive.save_session(msgspec.structs.replace(seen, username=str(count)))
            except Conflict:
                return False
            return True

        assert sum(await asyncio.gather(*map(change, range(10)))) == 1
        found = await other.session("s1")
        assert found is not None
        assert found.version == seen.version + 1


async def test_sessions_are_listed_in_the_order_of_their_ids(place: Place) -> None:
    async with opened(place) as archive:
        for name in ("b", "a", "d", "c"):
            agent = "anna" if name < "c" else "boris"
            await archive.add_session(session(name, agent_id=agent, is_active=name != "a"))

        async def ids(wanted: SessionFilter, after: str | None = None, limit: int = 9) -> list[str]:
            return [one.session_id for one in await archive.sessions(wanted, after=after, limit=limit)]

        assert await ids(SessionFilter()) == ["a", "b", "c", "d"]
        assert await ids(SessionFilter(), "b", 1) == ["c"]
        assert await ids(SessionFilter(agent_id="anna")) == ["a", "b"]
        assert await ids(SessionFilter(agent_id="anna", is_active=True)) == ["b"]
        assert await ids(SessionFilter(states=frozenset({SessionState.ACTIVE}))) == []
        assert await ids(SessionFilter(states=frozenset({SessionState.ACTIVE, SessionState.NEW}))) == [
            "a",
            "b",
            "c",
            "d",
        ]


async def test_a_removed_session_leaves_what_it_saw(place: Place) -> None:
    async with opened(place) as archive:
        await archive.add_session(session())
        await archive.save_updates_state("s1", b"pts")
        await archive.keep_messages([message()])
        assert await archive.remove_session("s1")
        assert not await archive.remove_session("s1")
        assert await archive.session("s1") is None
        assert await archive.updates_state("s1") is None
        assert (await archive.tally()).messages == 1


async def test_old_sessions_go_if_nobody_used_them(place: Place) -> None:
    failed = frozenset({SessionState.FAILED})
    async with opened(place) as archive:
        await archive.add_session(session("failed", state=SessionState.FAILED))
        await archive.add_session(session("failed-but-used", state=SessionState.FAILED, active_at_ms=NOW + 10))
        await archive.add_session(session("failed-but-new", state=SessionState.FAILED, created_at_ms=NOW + 10))
        await archive.add_session(session("off", is_active=False, active_at_ms=NOW - 10))
        await archive.add_session(session("off-just-now", is_active=False, updated_at_ms=NOW + 10))
        await archive.add_session(session("idle"))
        await archive.save_updates_state("off", b"pts")
        assert await archive.remove_old_sessions(before_ms=NOW + 1, states=failed) == ["failed", "off"]
        assert await archive.updates_state("off") is None
        assert await archive.remove_old_sessions(before_ms=NOW + 1, states=failed) == []
        assert (await archive.tally()).sessions == 4


async def test_the_place_in_updates_is_the_last_one_that_was_saved(place: Place) -> None:
    async with opened(place) as archive:
        assert await archive.updates_state("s1") is None
        for state in (b"1", b"", b"\xff\0"):
            await archive.save_updates_state("s1", state)
    async with opened(place) as archive:
        assert await archive.updates_state("s1") == b"\xff\0"
