"""The twelve calls of the registry, and two writers at once."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from peik.accounts.registry import Registry, normal_phone
from peik.archive.sqlite.archive import SqliteArchive
from peik.archive.store import Session, SessionState
from peik.clock import SystemClock
from peik.errors import BadInput, Conflict, NotFound
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.memory_archive import MemoryBook


def on_sqlite(folder: Path, story: Callable[[Registry, SqliteArchive], Awaitable[None]]) -> None:
    async def main() -> None:
        archive = SqliteArchive(folder / "peik.db.archive")
        await archive.open()
        try:
            await story(Registry(archive, SystemClock()), archive)
        finally:
            await archive.close()

    asyncio.run(main())


def test_the_twelve_calls_on_the_real_archive(tmp_path: Path) -> None:
    async def story(registry: Registry, archive: SqliteArchive) -> None:
        made = await registry.create_session("shop", phone="+998901234567", metadata={"city": "Tashkent"})
        session_id = made.session_id
        with pytest.raises(Conflict):
            await registry.create_session("shop", phone="+998901234567")
        found = await registry.get_session_by_id(session_id)
        assert found is not None
        assert found == await registry.get_session_by_phone("998901234567")
        assert [one.session_id for one in await registry.get_sessions_by_agent("shop")] == [session_id]
        await registry.update_session_phone(session_id, "+77011234567")
        await registry.update_session_connected(session_id, True)
        await registry.update_session_activity(session_id)
        await registry.update_session_metadata(session_id, {"plan": "pro"})
        now = await registry.need(session_id)
        assert (now.phone, now.is_connected, json.loads(now.metadata)) == (
            "+77011234567", True, {"city": "Tashkent", "plan": "pro"},
        )  # fmt: skip
        assert now.active_at_ms is not None
        assert now.version > found.version
        assert len(await registry.get_all_active_sessions()) == 1
        await registry.deactivate_session(session_id)
        assert await registry.get_all_active_sessions() == []
        assert await registry.cleanup_old_sessions(days=1) == 0
        assert await registry.cleanup_old_sessions(days=-1) == 1
        assert await registry.delete_session(session_id) is False

    on_sqlite(tmp_path, story)


def test_eight_writers_at_once_on_the_real_archive_all_get_their_change(tmp_path: Path) -> None:
    async def story(registry: Registry, archive: SqliteArchive) -> None:
        made = await registry.create_session("a")
        nodes = [Registry(archive, SystemClock()) for _ in range(8)]
        changes = (node.update_session_metadata(made.session_id, {f"k{n}": n}) for n, node in enumerate(nodes))
        await asyncio.gather(*changes)
        assert len(json.loads((await registry.need(made.session_id)).metadata)) == 8

    on_sqlite(tmp_path, story)


def play(story: Callable[[Registry, MemoryBook, VirtualClock], Awaitable[None]]) -> None:
    async def main(clock: VirtualClock) -> None:
        book = MemoryBook()
        await story(Registry(book, clock), book, clock)

    run_virtual(main)


def test_a_session_from_its_beginning_to_its_end() -> None:
    async def story(registry: Registry, book: MemoryBook, clock: VirtualClock) -> None:
        made = await registry.create_session("shop", phone="+998 (90) 123-45-67", metadata={"city": "Tashkent"})
        assert (made.state, made.phone, made.is_active) == (SessionState.NEW, "+998901234567", True)
        assert await registry.get_session_by_id(made.session_id) == made
        assert await registry.get_session_by_phone("00998901234567") == made
        assert await registry.get_sessions_by_agent("shop") == [made]
        assert await registry.get_sessions_by_agent("other") == []
        assert await registry.get_all_active_sessions() == [made]

        assert (await registry.update_session_phone(made.session_id, "+77011234567")).phone == "+77011234567"
        assert (await registry.update_session_connected(made.session_id, True)).is_connected
        changed = await registry.update_session_metadata(made.session_id, {"plan": "pro", "city": None})
        assert json.loads(changed.metadata) == {"plan": "pro"}
        off = await registry.deactivate_session(made.session_id)
        assert (off.is_active, off.is_connected) == (False, False)
        assert await registry.get_all_active_sessions() == []
        assert await registry.delete_session(made.session_id) is True
        assert await registry.delete_session(made.session_id) is False
        with pytest.raises(NotFound):
            await registry.update_session_connected(made.session_id, True)

    play(story)


def test_activity_is_noted_at_most_every_few_seconds() -> None:
    async def story(registry: Registry, book: MemoryBook, clock: VirtualClock) -> None:
        made = await registry.create_session("a")
        for _ in range(200):
            await registry.update_session_activity(made.session_id)
            await asyncio.sleep(0.1)
        assert book.saves == 4
        found = await registry.need(made.session_id)
        assert found.active_at_ms is not None
        assert clock.wall_ms() - found.active_at_ms < 6000

    play(story)


def test_two_writers_at_once_both_get_their_change() -> None:
    async def story(registry: Registry, book: MemoryBook, clock: VirtualClock) -> None:
        made = await registry.create_session("a")
        other = Registry(Slow(book), clock)
        await asyncio.gather(
            *(
                one.update_session_metadata(made.session_id, {f"{name}{number}": number})
                for number in range(4)
                for name, one in (("here", Registry(Slow(book), clock)), ("there", other))
            )
        )
        assert len(json.loads((await registry.need(made.session_id)).metadata)) == 8

    play(story)


class Slow(MemoryBook):
    """The same book from another node: between reading and writing others get their turn."""

    def __init__(self, book: MemoryBook) -> None:
        self.kept = book.kept
        self.saves = 0

    async def session(self, session_id: str) -> Session | None:
        found = self.kept.get(session_id)
        await asyncio.sleep(0)
        return found


def test_a_phone_that_is_taken_is_a_conflict_and_not_tried_again() -> None:
    async def story(registry: Registry, book: MemoryBook, clock: VirtualClock) -> None:
        await registry.create_session("a", phone="+998901234567")
        second = await registry.create_session("a")
        with pytest.raises(Conflict) as caught:
            await registry.update_session_phone(second.session_id, "998901234567")
        assert caught.value.code == "phone_taken"
        with pytest.raises(Conflict):
            await registry.create_session("b", phone="+998901234567")

    play(story)


def test_old_ones_go_and_those_in_use_stay() -> None:
    async def story(registry: Registry, book: MemoryBook, clock: VirtualClock) -> None:
        revoked = await registry.create_session("a")
        await registry.change(revoked.session_id, lambda old: msgspec.structs.replace(old, state=SessionState.REVOKED))
        gone = await registry.create_session("a")
        await registry.deactivate_session(gone.session_id)
        working = await registry.create_session("a")
        await asyncio.sleep(31 * 86400)
        fresh = await registry.create_session("a")
        await registry.deactivate_session(fresh.session_id)
        assert await registry.cleanup_old_sessions() == 2
        assert set(book.kept) == {working.session_id, fresh.session_id}

    play(story)


def test_more_than_a_page_of_sessions() -> None:
    async def story(registry: Registry, book: MemoryBook, clock: VirtualClock) -> None:
        for number in range(1001):
            await registry.create_session("a", session_id=f"{number:05}")
        assert len(await registry.get_sessions_by_agent("a")) == 1001

    play(story)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("+998901234567", "+998901234567"),
        ("998 90 123 45 67", "+998901234567"),
        ("0098 (912) 345-67.89", "+989123456789"),
        ("+۹۸۹۱۲۳۴۵۶۷۸۹", "+989123456789"),
        ("\u200e+1 555 010 9999\u200f", "+15550109999"),
    ],
)
def test_phones_are_written_one_way(written: str, number: str) -> None:
    assert normal_phone(written) == number


@pytest.mark.parametrize(
    "written", ["", "+", "123", "0901234567", "+99890123456789012", "call me", "+9989012x34567", "+0123456789"]
)
def test_what_is_no_phone_is_refused_without_being_repeated(written: str) -> None:
    with pytest.raises(BadInput) as caught:
        normal_phone(written)
    assert len(written) < 4 or written not in caught.value.detail


def test_bad_names_and_metadata_are_refused() -> None:
    async def story(registry: Registry, book: MemoryBook, clock: VirtualClock) -> None:
        for agent in ("", "x" * 201):
            with pytest.raises(BadInput):
                await registry.create_session(agent)
        for metadata in ({"x": "y" * 20_000}, {"x": object()}):
            with pytest.raises(BadInput):
                await registry.create_session("a", metadata=metadata)

    play(story)
