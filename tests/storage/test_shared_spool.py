"""Files of letters in the store: durable there before they are promised, whole at the node that sends them, gone when ended."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from peik.core.nodes import FileStore
from peik.errors import NotFound, StoreUnavailable, TooLarge
from peik.storage.shared_spool import AT_ONCE_MAX, IN_USE_S, PART_BYTES, SharedSpool
from peik.testing.virtual import VirtualClock, run_virtual
from tests.storage.all_places import PLACES
from tests.storage.file_stores import HOUR_MS, MemoryFiles, as_file, chunks
from tests.storage.places import SqlitePlace, StorePlace

CONTENT = bytes(range(256)) * (PART_BYTES // 256 * 5 // 2)  # two and a half parts
MAX = 10 * PART_BYTES


@asynccontextmanager
async def node(folder: Path, files: FileStore, *, bytes_max: int = MAX) -> AsyncIterator[SharedSpool]:
    spool = SharedSpool(folder, files, bytes_max=bytes_max)
    try:
        yield spool
    finally:
        await spool.close()


def copies(folder: Path) -> set[str]:
    """Every file that any node has on this machine."""
    return {path.name for path in folder.rglob("*") if path.is_file()}


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110  the story's own deadline ends it
        await asyncio.sleep(0.001)


# ---- two nodes ----


async def test_a_file_kept_at_one_node_is_brought_to_another(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path / "a", files) as first, node(tmp_path / "b", files) as second:
        kept = await first.keep(chunks(CONTENT[:1000], CONTENT[1000:]), size_bytes_max=MAX)
        assert [len(part) for part in files.parts[kept.blob].values()] == [PART_BYTES, PART_BYTES, PART_BYTES // 2]
        await second.bring(as_file(kept))
        assert second.path_of(kept.blob).read_bytes() == CONTENT
        assert copies(tmp_path / "b") == {kept.blob}


async def test_who_kept_a_file_does_not_fetch_it(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path, files) as spool:
        await spool.bring(as_file(await spool.keep(chunks(CONTENT), size_bytes_max=MAX)))
    assert files.asked["part"] == 0


async def test_an_empty_file_needs_no_part(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path, files) as first, node(tmp_path, files) as second:
        kept = await first.keep(chunks(), size_bytes_max=MAX)
        await second.bring(as_file(kept))
        assert second.path_of(kept.blob).read_bytes() == b""


async def test_a_file_that_ended_is_removed_here_and_in_the_store(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path / "a", files) as first, node(tmp_path / "b", files) as second:
        kept = await first.keep(chunks(CONTENT), size_bytes_max=MAX)
        await second.bring(as_file(kept))
        second.remove([kept.blob])
        assert copies(tmp_path / "b") == set()
        await until(lambda: not files.parts)


async def test_many_files_at_once_find_their_way(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path, files) as first, node(tmp_path, files) as second:
        contents = [b"%d" % number for number in range(5 * AT_ONCE_MAX)]
        kept = await asyncio.gather(*(first.keep(chunks(one), size_bytes_max=MAX) for one in contents))
        await asyncio.gather(*(second.bring(as_file(one)) for one in kept))
        assert [second.path_of(one.blob).read_bytes() for one in kept] == contents


async def test_nodes_on_one_machine_leave_each_others_copies_alone(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path, files) as first:
        kept = await first.keep(chunks(CONTENT), size_bytes_max=MAX)
        async with node(tmp_path, files) as second:
            await second.bring(as_file(kept))
        assert copies(tmp_path) == {kept.blob}
        assert first.path_of(kept.blob).read_bytes() == CONTENT
    assert copies(tmp_path) == set()


# ---- bounds ----


async def test_a_file_that_is_too_large_for_the_store_is_refused_with_what_to_set(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path, files, bytes_max=5) as spool:
        await spool.keep(chunks(b"12345"), size_bytes_max=MAX)
        with pytest.raises(TooLarge) as caught:
            await spool.keep(chunks(b"12345", b"6"), size_bytes_max=MAX)
        assert caught.value.code == "file_too_large"
        assert "PEIK_FILES " in caught.value.detail
        assert "PEIK_FILES_IN_STORE" in caught.value.detail
        assert len(files.parts) == len(copies(tmp_path)) == 1


async def test_a_file_that_is_too_large_for_telegram_is_refused_in_those_words(tmp_path: Path) -> None:
    async with node(tmp_path, MemoryFiles()) as spool:
        with pytest.raises(TooLarge, match="this API root takes"):
            await spool.keep(chunks(b"123456"), size_bytes_max=5)


def test_copies_make_room_for_others_unless_they_may_be_in_use(tmp_path: Path) -> None:
    async def story(_: VirtualClock) -> None:
        files = MemoryFiles()
        spool = SharedSpool(tmp_path, files, bytes_max=MAX, copies_bytes_max=2)
        kept = [await spool.keep(chunks(b"x"), size_bytes_max=1) for _ in range(3)]
        assert len(copies(tmp_path)) == 3  # all of them may be on their way out
        await asyncio.sleep(IN_USE_S)
        await spool.bring(as_file(kept[0]))
        assert copies(tmp_path) == {kept[0].blob, kept[2].blob}
        await spool.bring(as_file(kept[1]))
        assert copies(tmp_path) == {kept[0].blob, kept[1].blob}
        assert files.asked["part"] == 1
        spool.remove([kept[0].blob])
        fourth = await spool.keep(chunks(b"x"), size_bytes_max=1)
        assert copies(tmp_path) == {kept[1].blob, fourth.blob}
        await spool.close()

    run_virtual(story)


# ---- what goes wrong while it is kept ----


async def test_a_store_that_goes_away_in_the_middle_promises_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.parts_left = 2
    async with node(tmp_path, files) as spool:
        with pytest.raises(StoreUnavailable):
            await spool.keep(chunks(CONTENT), size_bytes_max=MAX)
        assert copies(tmp_path) == set()
        files.is_away = False
    assert files.parts == {}


async def test_a_process_that_dies_between_its_disk_and_the_store_leaves_nothing_for_long(tmp_path: Path) -> None:
    dying = """
import asyncio, os, sys
from pathlib import Path
from peik.storage.shared_spool import PART_BYTES, SharedSpool
from tests.storage.file_stores import MemoryFiles, chunks

class Deadly(MemoryFiles):
    async def keep_part(self, blob, place, part):
        print(blob)
        sys.stdout.flush()
        os._exit(9)

asyncio.run(SharedSpool(Path(sys.argv[1]), Deadly(), bytes_max=9).keep(chunks(b"content"), size_bytes_max=9))
"""
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", dying, str(tmp_path)], capture_output=True, text=True
    )
    assert ended.returncode == 9, ended.stderr
    blob = ended.stdout.strip()
    assert copies(tmp_path) == {blob}
    files = MemoryFiles()
    await files.keep_part(blob, 0, b"the half that came")
    async with node(tmp_path, files) as spool:
        kept = await spool.keep(chunks(CONTENT), size_bytes_max=MAX)
        assert copies(tmp_path) == {kept.blob}
        files.now_ms += 2 * HOUR_MS
        assert await spool.sweep({kept.blob}, at_ms=0) == 1
    assert set(files.parts) == {kept.blob}


async def test_a_machine_that_cannot_take_the_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("in the way")
    files = MemoryFiles()
    async with node(tmp_path / "elsewhere", files) as other, node(tmp_path / "files", files) as spool:
        kept = await other.keep(chunks(b"x"), size_bytes_max=1)
        with pytest.raises(StoreUnavailable) as caught:
            await spool.bring(as_file(kept))
        assert caught.value.code == "spool_failed"
        with pytest.raises(StoreUnavailable):
            await spool.keep(chunks(b"x"), size_bytes_max=1)


# ---- what goes wrong while it is brought ----


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda parts: parts.clear(), "is not in the store any more"),
        (lambda parts: parts.pop(1), "is not whole in the store"),
        (lambda parts: parts.pop(2), "is not whole in the store"),
        (lambda parts: parts.update({1: parts[1][:-1] + b"?"}), "is not in the store as it was accepted"),
        (lambda parts: parts.update({2: parts[2] + b"?"}), "is not in the store as it was accepted"),
    ],
)
async def test_a_file_that_is_not_whole_is_gone_for_good(
    tmp_path: Path, harm: Callable[[dict[int, bytes]], object], words: str
) -> None:
    files = MemoryFiles()
    async with node(tmp_path / "a", files) as first, node(tmp_path / "b", files) as second:
        kept = await first.keep(chunks(CONTENT), size_bytes_max=MAX)
        harm(files.parts[kept.blob])
        with pytest.raises(NotFound) as caught:
            await second.bring(as_file(kept))
        assert caught.value.code == "file_gone"
        assert caught.value.detail == f"the file 'report.pdf' {words}"
        assert copies(tmp_path / "b") == set()


async def test_a_letter_without_a_digest_has_its_size_checked(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path, files) as first, node(tmp_path, files) as second:
        kept = await first.keep(chunks(b"some"), size_bytes_max=MAX)
        old = msgspec.structs.replace(as_file(kept), digest="")
        await second.bring(old)
        assert second.path_of(kept.blob).read_bytes() == b"some"
        with pytest.raises(NotFound):
            await second.bring(msgspec.structs.replace(old, size_bytes=3))


async def test_a_store_that_is_away_is_asked_again_another_time(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path / "a", files) as first, node(tmp_path / "b", files) as second:
        kept = await first.keep(chunks(CONTENT), size_bytes_max=MAX)
        files.is_away = True
        with pytest.raises(StoreUnavailable):
            await second.bring(as_file(kept))
        assert copies(tmp_path / "b") == set()
        files.is_away = False
        await second.bring(as_file(kept))
        assert second.path_of(kept.blob).read_bytes() == CONTENT


class SlowFiles(MemoryFiles):
    """Gives no part before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()

    async def part(self, blob: str, place: int) -> bytes | None:
        found = await super().part(blob, place)
        await self.let_go.wait()
        return found


async def test_a_file_that_several_want_is_fetched_once_and_one_who_goes_does_not_stop_it(tmp_path: Path) -> None:
    files = SlowFiles()
    async with node(tmp_path, files) as first, node(tmp_path, files) as second:
        kept = await first.keep(chunks(CONTENT), size_bytes_max=MAX)
        wanting = [asyncio.create_task(second.bring(as_file(kept))) for _ in range(4)]
        await until(lambda: files.asked["part"] == 1)
        wanting[0].cancel()
        files.let_go.set()
        ended = await asyncio.gather(*wanting, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError)
        assert ended[1:] == [None, None, None]
        assert files.asked["part"] == 3
        assert second.path_of(kept.blob).read_bytes() == CONTENT


async def test_closing_breaks_off_what_is_under_way_and_leaves_nothing(tmp_path: Path) -> None:
    files = SlowFiles()
    async with node(tmp_path / "a", files) as first:
        kept = await first.keep(chunks(CONTENT), size_bytes_max=MAX)
        async with node(tmp_path / "b", files) as second:
            wanting = asyncio.create_task(second.bring(as_file(kept)))
            await until(lambda: files.asked["part"] == 1)
        with pytest.raises(asyncio.CancelledError):
            await wanting
        assert list((tmp_path / "b").iterdir()) == []


# ---- removing ----


def test_what_ended_while_the_store_was_away_is_removed_when_it_is_back(tmp_path: Path) -> None:
    async def story(_: VirtualClock) -> None:
        files = MemoryFiles()
        async with node(tmp_path, files) as spool:
            kept = [await spool.keep(chunks(b"x"), size_bytes_max=1) for _ in range(3)]
            files.is_away = True
            spool.remove([kept[0].blob])
            spool.remove([kept[1].blob])
            await asyncio.sleep(60)
            assert len(files.parts) == 3
            files.is_away = False
            await asyncio.sleep(2)
            assert set(files.parts) == {kept[2].blob}

    run_virtual(story)


async def test_closing_removes_what_it_still_can_and_does_not_wait_for_a_store_that_is_away(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path, files) as spool:
        kept = [await spool.keep(chunks(b"x"), size_bytes_max=1) for _ in range(2)]
        spool.remove([kept[0].blob])
    assert set(files.parts) == {kept[1].blob}
    async with node(tmp_path, files) as spool:
        files.is_away = True
        spool.remove([kept[1].blob])
    files.is_away = False
    files.now_ms += 2 * HOUR_MS
    async with node(tmp_path, files) as spool:
        assert await spool.sweep(set(), at_ms=0) == 1
    assert files.parts == {}


async def test_sweeping_goes_by_the_clock_of_the_store(tmp_path: Path) -> None:
    files = MemoryFiles()
    async with node(tmp_path, files) as spool:
        orphan, needed = [(await spool.keep(chunks(b"x"), size_bytes_max=1)).blob for _ in range(2)]
        files.now_ms += HOUR_MS + 1
        fresh = (await spool.keep(chunks(b"x"), size_bytes_max=1)).blob
        assert await spool.sweep({needed}, at_ms=0) == 1
        assert set(files.parts) == {needed, fresh}, orphan


async def test_sweeping_says_so_when_the_store_is_away(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.is_away = True
    async with node(tmp_path, files) as spool:
        with pytest.raises(StoreUnavailable):
            await spool.sweep(set(), at_ms=0)


# ---- real stores ----

SERVERS = [kind for kind in PLACES if kind is not SqlitePlace]

if SERVERS:

    @pytest.mark.parametrize("kind", SERVERS)
    async def test_two_nodes_share_files_through_a_real_store(
        tmp_path: Path, kind: Callable[[Path], StorePlace]
    ) -> None:  # type: ignore[type-arg]
        place = kind(tmp_path)
        async with place.open() as one, place.open(is_owner=False) as other:
            assert one.files is not None
            assert other.files is not None
            async with node(tmp_path, one.files) as first, node(tmp_path, other.files) as second:
                kept = [await first.keep(chunks(CONTENT), size_bytes_max=MAX) for _ in range(2)]
                for file in map(as_file, kept):
                    await second.bring(file)
                    assert second.path_of(file.blob).read_bytes() == CONTENT
                assert await second.sweep(set(), at_ms=0) == 0  # they are new
                second.remove([kept[0].blob])
            assert set(await one.files.kept_files()) == {kept[1].blob}
            async with node(tmp_path, other.files) as third:
                await third.bring(as_file(kept[1]))
                with pytest.raises(NotFound):
                    await third.bring(as_file(kept[0]))
