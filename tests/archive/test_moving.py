"""Everything goes from one archive to another, is proved to be there, and an interrupted copy goes on."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from peik.archive.move import ArchiveMoveWatch, move, summed
from peik.archive.store import Archive, ArchiveRetention, ChatState, Fed, MessageFilter, Record, RecordKind
from peik.errors import Conflict, StoreUnavailable
from tests.archive.places import PLACES, Place, SqlitePlace, opened
from tests.archive.samples import CHANNEL, NOW, PERSON, event, line, log, member, message, session

WAYS = list(itertools.product(PLACES, PLACES))


async def fill(archive: Archive) -> None:
    for number in range(3):
        added = await archive.add_session(session(f"s{number}", phone=f"+{number}", secret=b"\0\xff"))
        await archive.save_session(added)
        await archive.save_updates_state(f"s{number}", bytes([number]))
        await archive.save_chat_state(
            ChatState(session_id=f"s{number}", chat_id=CHANNEL, access=b"1", updated_at_ms=NOW)
        )
    for number in range(23):
        await archive.keep_messages([message(number, text=f"سلام {number}"), message(number, edited_at_ms=NOW)])
    await archive.mark_deleted("s1", None, [3, 4], at_ms=NOW + 1)
    await archive.save_members([member(1, until_ms=NOW + 1, username="x"), member(2)])
    await archive.keep_events([event(f"e{number}") for number in range(12)])
    for number in range(3):
        mine = [line(f"k{n}", session_id=f"s{number}", user_id=PERSON + n, at_ms=NOW + number) for n in range(7)]
        await archive.feed(mine)
        await archive.save_places(f"reader {number}", {"s0": number, "s1": number}, at_ms=NOW + number)
    await archive.clean(ArchiveRetention(feed_ms=9), at_ms=NOW + 10, limit=100)  # all of s0, whose numbers go on
    await archive.forget_person(PERSON + 6)  # the last of each
    await archive.keep_logs(
        [log(f"l{n}", at_ms=NOW + n // 3, session_id="s1", fields='{"سلام": 1}') for n in range(11)]
    )


@pytest.mark.parametrize(("kind", "other"), WAYS, ids=[f"{a.__name__}-{b.__name__}" for a, b in WAYS])
async def test_all_is_copied_and_compared(tmp_path: Path, kind: type[Place], other: type[Place]) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    told: list[tuple[str, int]] = []
    steps: list[int] = []
    async with opened(kind(tmp_path / "one")) as origin, opened(other(tmp_path / "two")) as target:
        await fill(origin)
        watch = ArchiveMoveWatch(begin=lambda stage, total: told.append((stage, total)), step=steps.append)
        sums = await move(origin, target, name="here", watch=watch, page=5)
        assert {one.value: count.count for one, count in sums.items()} == {
            "sessions": 3,
            "updates_states": 3,
            "chat_states": 3,
            "members": 2,
            "messages": 23,
            "versions": 23,
            "events": 12,
            "feed": 12,
            "places": 4 + 3,
            "logs": 11,
        }
        assert await summed(target) == sums == await summed(origin)
        assert await target.tally() == await origin.tally()
        assert await target.session("s1") == await origin.session("s1")
        assert await target.versions("s1", 5, 3) == await origin.versions("s1", 5, 3)
        assert await target.fed_to() == await origin.fed_to()
        assert await target.fed_to(["s0", "s1"]) == {"s0": Fed(first=8, last=7), "s1": Fed(first=1, last=7)}
        assert await target.fed("s1", after=0, limit=9) == await origin.fed("s1", after=0, limit=9)
        assert await target.places("reader 2") == {"s0": 2, "s1": 2}
        for number in range(3):
            await target.feed([line("next", session_id=f"s{number}")])
            assert [one.number for one in await target.fed(f"s{number}", after=6, limit=9)] == [8]
            await origin.feed([line("next", session_id=f"s{number}")])
        assert await target.count_messages(MessageFilter(text="message")) == 23
        assert [stage for stage, _ in told] == ["Copying", "Comparing"]
        assert await move(origin, target, name="here", page=5) == await summed(origin)  # once more: it is only compared


class Breaking(Exception):
    pass


class Interrupted:
    """A target whose connection breaks after so many pages, before or after the page was stored."""

    def __init__(self, archive: Archive, pages: int) -> None:
        self._archive = archive
        self._left = pages

    def __getattr__(self, name: str) -> object:
        return getattr(self._archive, name)

    async def put(self, kind: RecordKind, records: Sequence[Record], progress: str) -> None:
        self._left -= 1
        if self._left == 0:
            raise StoreUnavailable(code="store_gone", detail="Gone before.")
        await self._archive.put(kind, records, progress)
        if self._left == 1:
            self._left = -1
            raise StoreUnavailable(code="store_gone", detail="Gone after.")


async def test_an_interrupted_copy_goes_on(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with opened(SqlitePlace(tmp_path / "one")) as origin, opened(SqlitePlace(tmp_path / "two")) as target:
        await fill(origin)
        broken = 0
        for pages in itertools.count(2):
            try:
                sums = await move(origin, Interrupted(target, pages % 5 + 2), name="here", page=4)  # type: ignore[arg-type]
            except StoreUnavailable:
                broken += 1
                continue
            break
        assert broken > 3
        assert await summed(target) == sums


async def test_a_target_is_filled_from_one_origin_only(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with opened(SqlitePlace(tmp_path / "one")) as origin, opened(SqlitePlace(tmp_path / "two")) as target:
        await fill(origin)
        with pytest.raises(Conflict, match="not empty"):
            await move(target, origin, name="there")
        await move(origin, target, name="here")
        with pytest.raises(Conflict, match="filled from here"):
            await move(origin, target, name="elsewhere")
        await origin.keep_messages([message(99)])
        with pytest.raises(Conflict) as met:
            await move(origin, target, name="here")
        assert met.value.code == "copies_differ"
