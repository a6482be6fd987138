"""Files of letters that every node can read, in parts."""

from pathlib import Path

import pytest

from tests.storage.shared_places import SHARED, SharedPlace

PART = bytes(range(256)) * 2048  # 512 KiB


@pytest.fixture(params=SHARED, ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SharedPlace:
    return request.param(tmp_path)


async def test_what_one_node_keeps_another_reads(place: SharedPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        for number, part in enumerate((PART, PART[::-1], b"\0the end")):
            await one.files.keep_part("a.png", number, part)
        assert [await other.files.part("a.png", number) for number in range(4)] == [
            PART,
            PART[::-1],
            b"\0the end",
            None,
        ]
        assert await other.files.part("b.png", 0) is None
    async with place.open() as later:
        assert await later.files.part("a.png", 2) == b"\0the end"


async def test_a_part_that_is_kept_again_is_the_newer_one(place: SharedPlace) -> None:
    async with place.open() as store:
        for part in (b"half", b"whole"):
            await store.files.keep_part("a.png", 0, part)
        assert await store.files.part("a.png", 0) == b"whole"


async def test_an_empty_part_is_a_part(place: SharedPlace) -> None:
    async with place.open() as store:
        await store.files.keep_part("a.png", 0, b"")
        assert await store.files.part("a.png", 0) == b""
        assert set(await store.files.kept_files()) == {"a.png"}


async def test_dropped_files_go_whole_and_the_others_stay(place: SharedPlace) -> None:
    async with place.open() as one, place.open(is_owner=False) as other:
        for blob in ("a", "b", "c"):
            for number in range(3):
                await one.files.keep_part(blob, number, b"x")
        await other.files.drop_files(["a", "c", "never"])
        await other.files.drop_files([])
        assert set(await one.files.kept_files()) == {"b"}
        assert [await one.files.part(blob, 2) for blob in ("a", "b", "c")] == [None, b"x", None]


async def test_a_file_is_as_old_as_its_first_part(place: SharedPlace) -> None:
    async with place.open() as store:
        assert await store.files.kept_files() == {}
        await store.files.keep_part("a", 0, b"x")
        kept = await store.files.kept_files()
        assert kept["a"] > 1_600_000_000_000  # ms since 1970, by the server's clock
        await store.files.keep_part("a", 1, b"y")
        await store.files.keep_part("a", 0, b"z")
        assert await store.files.kept_files() == kept
