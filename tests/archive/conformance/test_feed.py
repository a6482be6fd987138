"""Lines of feeds and their numbers, and the places of those who read them."""

import asyncio

import msgspec
import pytest

from peik.archive.store import Archive, ArchiveRetention, Fed, LineKind
from tests.archive.places import Place, opened
from tests.archive.samples import CHANNEL, NOW, PERSON, line, session


async def _told(archive: Archive, session_id: str = "s1", *, after: int = 0) -> list[tuple[int, str]]:
    return [(one.number, one.key) for one in await archive.fed(session_id, after=after, limit=1000)]


async def test_lines_are_numbered_without_a_gap_in_their_order(place: Place) -> None:
    async with opened(place) as archive:
        assert await archive.feed([line("c"), line("a"), line("b")]) == 3
        assert await archive.feed([line("a", session_id="s2")]) == 1
        assert await archive.feed([]) == 0
    async with opened(place) as archive:
        assert await archive.feed([line("d")]) == 1
        assert await _told(archive) == [(1, "c"), (2, "a"), (3, "b"), (4, "d")]
        assert await _told(archive, "s2") == [(1, "a")]
        assert await _told(archive, "nobody") == []


async def test_a_line_comes_back_as_it_was_told(place: Place) -> None:
    given = [
        line(
            "one", kind=kind, chat_id=CHANNEL, user_id=1 << 40, body='{"text": "سلام 🙂"}', at_ms=NOW + 1, agent_id="b"
        )
        for kind in LineKind
    ]
    given = [msgspec.structs.replace(one, key=one.kind.value) for one in given]
    async with opened(place) as archive:
        # Whoever hands it in gives no number that counts.
        await archive.feed([msgspec.structs.replace(one, number=77) for one in given])
        expected = [msgspec.structs.replace(one, number=number) for number, one in enumerate(given, start=1)]
        assert await archive.fed("s1", after=0, limit=9) == expected


async def test_a_line_that_is_there_is_left_out_and_uses_no_number(place: Place) -> None:
    async with opened(place) as archive:
        assert await archive.feed([line("a"), line("b"), line("a")]) == 2
        assert await archive.feed([line("b"), line("c", body='{"n": 1}'), line("a"), line("c"), line("d")]) == 2
        assert await archive.feed([line("a"), line("d")]) == 0
        assert await archive.feed([line("e")]) == 1
        assert await _told(archive) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
        assert (await archive.fed("s1", after=2, limit=1))[0].body == '{"n": 1}'  # the first of two alike
        assert await archive.fed_to() == {"s1": Fed(first=1, last=5)}


async def test_a_feed_is_read_in_pages(place: Place) -> None:
    async with opened(place) as archive:
        await archive.feed([line(f"k{number}") for number in range(1200)])
        await archive.feed([line("other", session_id="s2")])
        numbers: list[int] = []
        while page := await archive.fed("s1", after=numbers[-1] if numbers else 0, limit=500):
            assert len(page) <= 500
            numbers += [one.number for one in page]
        assert numbers == list(range(1, 1201))
        assert await archive.fed("s1", after=1200, limit=5) == []


async def test_how_far_feeds_go_is_told_of_all_or_some(place: Place) -> None:
    async with opened(place) as archive:
        assert await archive.fed_to() == {}
        for number in range(1, 4):
            await archive.feed([line(f"k{n}", session_id=f"s{number}") for n in range(number)])
        await archive.add_session(session("s4"))  # which has no feed
        assert await archive.fed_to() == {f"s{number}": Fed(first=1, last=number) for number in range(1, 4)}
        assert await archive.fed_to(["s4", "s3", "nobody", "s3"]) == {"s3": Fed(first=1, last=3)}
        assert await archive.fed_to([]) == {}


async def test_retention_lets_go_of_lines_and_numbers_go_on(place: Place) -> None:
    async with opened(place) as archive:
        for number in range(6):
            for name in ("s1", "s2"):
                await archive.feed([line(f"k{number}", session_id=name, at_ms=NOW + number)])
        await archive.feed([line("new", session_id="s3", at_ms=NOW + 900)])
        assert await archive.clean(ArchiveRetention(), at_ms=NOW * 2, limit=100) == 0
        some = ArchiveRetention(feed_ms=1000)
        assert [await archive.clean(some, at_ms=NOW + 1004, limit=3) for _ in range(4)] == [3, 3, 2, 0]
        assert await _told(archive) == [(5, "k4"), (6, "k5")] == await _told(archive, "s2")
        whole = {"s1": Fed(first=5, last=6), "s2": Fed(first=5, last=6), "s3": Fed(first=1, last=1)}
        assert await archive.fed_to() == whole
        assert await archive.clean(some, at_ms=NOW + 1500, limit=100) == 4
        assert await archive.fed_to(["s1"]) == {"s1": Fed(first=7, last=6)}
    async with opened(place) as archive:
        assert await archive.fed_to() == whole | {"s1": Fed(first=7, last=6), "s2": Fed(first=7, last=6)}
        assert await archive.feed([line("k5"), line("k6")]) == 2  # nobody remembers a line that is gone
        assert await _told(archive) == [(7, "k5"), (8, "k6")]
        assert await archive.fed_to(["s1"]) == {"s1": Fed(first=7, last=8)}


async def test_the_feed_of_a_session_that_is_gone_stays_and_goes_on(place: Place) -> None:
    async with opened(place) as archive:
        await archive.add_session(session())
        await archive.feed([line("a"), line("b")])
        assert await archive.remove_session("s1")
        assert await _told(archive) == [(1, "a"), (2, "b")]
        assert await archive.clean(ArchiveRetention(feed_ms=1), at_ms=NOW + 2, limit=9) == 2
        assert await archive.fed_to() == {"s1": Fed(first=3, last=2)}
        await archive.add_session(session())
        assert await archive.feed([line("a")]) == 1
        assert await _told(archive) == [(3, "a")]


async def test_lines_of_a_person_are_forgotten_and_their_numbers_with_them(place: Place) -> None:
    async with opened(place) as archive:
        theirs = {"user_id": PERSON}
        await archive.feed([line("a", **theirs), line("b"), line("c", **theirs), line("d", user_id=1)])
        await archive.feed([line("e", **theirs)])
        await archive.feed([line("a", session_id="s2", **theirs)])
        assert (await archive.forget_person(PERSON))["feed"] == 4
        assert (await archive.forget_person(PERSON))["feed"] == 0
        assert await _told(archive) == [(2, "b"), (4, "d")]
        assert await archive.fed_to() == {"s1": Fed(first=2, last=5), "s2": Fed(first=2, last=1)}
        assert await archive.feed([line("f")]) == 1
        assert await _told(archive, after=2) == [(4, "d"), (6, "f")]


async def test_many_who_feed_one_session_at_once_leave_no_gap(place: Place) -> None:
    """Two archives, as of two nodes, and one who reads all the time: a line is never there before those that come before it."""
    async with opened(place) as one, opened(place) as other, opened(place) as third:
        is_over = False

        async def write(archive: Archive, name: str) -> int:
            new = 0
            for number in range(20):
                keys = [f"{name} {number}", "common", f"shared {number}", f"{name} {number} end"]
                new += await archive.feed([line(key) for key in keys])
            return new

        async def watch() -> int:
            looks = last = 0
            while not is_over:
                told = (await third.fed_to()).get("s1", Fed(first=1, last=0))
                numbers = [number for number, _ in await _told(third)]
                assert numbers == list(range(1, len(numbers) + 1))
                assert last <= told.last <= len(numbers)
                last, looks = told.last, looks + 1
            return looks

        watching = asyncio.create_task(watch())
        writers = [(archive, f"{name}{n}") for n in range(2) for name, archive in (("one", one), ("other", other))]
        new = await asyncio.gather(*(write(archive, name) for archive, name in writers))
        is_over = True
        assert await watching
        told = await _told(one)
        assert [number for number, _ in told] == list(range(1, sum(new) + 1))
        assert sum(new) == 4 * 20 * 2 + 20 + 1
        keys = [key for _, key in told]
        assert len(set(keys)) == len(keys)
        for _, name in writers:
            mine = [key for key in keys if key.startswith(f"{name} ")]
            assert mine == [f"{name} {number}{end}" for number in range(20) for end in ("", " end")]


async def test_lines_that_come_while_others_go_are_told_right(place: Place) -> None:
    """Retention and forgetting beside writers: how far a feed goes is right in the end, and no number is used twice."""
    async with opened(place) as archive, opened(place) as other:
        used: list[int] = []
        is_over = False

        async def write(name: str) -> None:
            for number in range(25):
                lines = [line(f"{number} {n}", session_id=name, at_ms=NOW + number, user_id=n) for n in range(3)]
                assert await archive.feed(lines) == 3

        async def remove() -> None:
            number = 0
            while not is_over:
                number += 1
                await other.clean(ArchiveRetention(feed_ms=10), at_ms=NOW + 10 + number % 25, limit=5)
                if number % 5 == 0:
                    await other.forget_person(number % 2)

        async def watch() -> None:
            last = 0
            while not is_over:
                found = [one.number for one in await other.fed("s1", after=last, limit=100)]
                used.extend(found)
                last = max([last, *found])
                assert last <= 75

        others = [asyncio.create_task(work()) for work in (remove, watch)]
        await asyncio.gather(*(write(name) for name in ("s1", "s2", "s3")))
        is_over = True
        await asyncio.gather(*others)
        assert used == sorted(set(used))
        for name in ("s1", "s2", "s3"):
            left = [number for number, _ in await _told(archive, name)]
            assert await archive.fed_to([name]) == {name: Fed(first=min(left, default=76), last=75)}
            assert await archive.feed([line("one more", session_id=name)]) == 1
            assert (await _told(archive, name))[-1] == (76, "one more")


async def test_feeds_of_many_sessions_are_apart(place: Place) -> None:
    async with opened(place) as archive:
        names = [f"s{number}" for number in range(12)]
        await asyncio.gather(
            *(archive.feed([line(f"k{number}", session_id=name)]) for number in range(5) for name in names)
        )
        assert await archive.fed_to() == {name: Fed(first=1, last=5) for name in names}
        for name in names:
            assert [number for number, _ in await _told(archive, name)] == [1, 2, 3, 4, 5]


async def test_lines_are_of_one_session(place: Place) -> None:
    async with opened(place) as archive:
        with pytest.raises(AssertionError):
            await archive.feed([line("a"), line("b", session_id="s2")])
        assert await archive.fed_to() == {}


async def test_what_no_database_keeps_becomes_a_sign(place: Place) -> None:
    async with opened(place) as archive:
        assert await archive.feed([line("a\0b\ud800", body='"x\0y\udfffz"'), line("plain")]) == 2
        assert await archive.feed([line("a\0b\ud800")]) == 0
        assert await archive.feed([line("new")]) == 1
        found = await archive.fed("s1", after=0, limit=9)
        assert [one.key for one in found] == ["a\ufffdb\ufffd", "plain", "new"]
        assert found[0].body == '"x\ufffdy\ufffdz"'


# ---- places ----


async def test_a_place_never_goes_back(place: Place) -> None:
    async with opened(place) as archive:
        assert await archive.places("r1") == {}
        await archive.save_places("r1", {"s1": 5, "s2": 1}, at_ms=NOW)
        await archive.save_places("r1", {"s1": 3, "s2": 2, "s3": 9}, at_ms=NOW + 1)
        await archive.save_places("r2", {"s1": 1}, at_ms=NOW)
        await archive.save_places("r2", {}, at_ms=NOW)
    async with opened(place) as archive:
        assert await archive.places("r1") == {"s1": 5, "s2": 2, "s3": 9}
        assert await archive.places("r2") == {"s1": 1}


async def test_places_saved_at_once_end_at_the_highest(place: Place) -> None:
    async with opened(place) as archive, opened(place) as other:
        names = [f"s{number}" for number in range(5)]
        await asyncio.gather(
            *(
                (archive, other)[number % 2].save_places(
                    "r1", dict.fromkeys(names if number % 3 else reversed(names), number), at_ms=NOW
                )
                for number in range(30)
            )
        )
        assert await archive.places("r1") == dict.fromkeys(names, 29)


async def test_a_reader_is_removed_with_its_places(place: Place) -> None:
    async with opened(place) as archive:
        await archive.save_places("r1", {"s1": 5, "s2": 1}, at_ms=NOW)
        await archive.save_places("r2", {"s1": 4}, at_ms=NOW)
        assert await archive.remove_reader("r1")
        assert not await archive.remove_reader("r1")
        assert await archive.places("r1") == {}
        assert await archive.places("r2") == {"s1": 4}
        await archive.save_places("r1", {"s1": 2}, at_ms=NOW)
        assert await archive.places("r1") == {"s1": 2}


async def test_places_of_readers_that_are_away_for_long_are_let_go(place: Place) -> None:
    async with opened(place) as archive:
        await archive.save_places("gone", {"s1": 5, "s2": 5}, at_ms=NOW)
        await archive.save_places("quiet", {"s1": 5, "s2": 5}, at_ms=NOW)
        await archive.save_places("quiet", {"s1": 5, "s2": 4}, at_ms=NOW + 100)  # it is alive where nothing happens
        await archive.save_places("moving", {"s1": 5}, at_ms=NOW)
        await archive.save_places("moving", {"s1": 6}, at_ms=NOW + 100)
        assert await archive.clean(ArchiveRetention(feed_ms=50), at_ms=NOW + 50, limit=100) == 0
        assert await archive.places("gone") == {"s1": 5, "s2": 5}
        assert await archive.clean(ArchiveRetention(messages_ms=1, logs_ms=1), at_ms=NOW + 120, limit=100) == 0
        assert await archive.places("gone") == {"s1": 5, "s2": 5}
        assert await archive.clean(ArchiveRetention(feed_ms=50), at_ms=NOW + 120, limit=100) == 0  # they are no lines
        assert await archive.places("gone") == {}
        assert await archive.places("quiet") == {"s1": 5}
        assert await archive.places("moving") == {"s1": 6}
