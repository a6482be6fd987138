"""The files of letters: durable and bounded when kept, removed when nobody needs them, never outside their folder."""

import asyncio
import contextlib
import hashlib
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import BufferedWriter
from pathlib import Path
from typing import Any

import pytest

from peik.archive.sqlite.archive import connect
from peik.backups.container import put_file
from peik.errors import NotFound, StoreUnavailable, TooLarge
from peik.storage.moving.ends import FolderFiles
from peik.storage.spool import FolderSpool
from tests.patience import PATIENCE_S

HOURS_AGO = time.time() - 2 * 3600


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_a_file_is_kept_whole_with_its_digest(tmp_path: Path) -> None:
    spool = FolderSpool(tmp_path / "new" / "files")
    kept = await spool.keep(chunks(b"one", b"", b"two"), size_bytes_max=6)
    assert spool.path_of(kept.blob).read_bytes() == b"onetwo"
    assert kept.size_bytes == 6
    assert kept.digest == hashlib.blake2b(b"onetwo", digest_size=20).hexdigest()


async def test_file_and_folder_are_synced_before_it_returns(tmp_path: Path) -> None:
    """fsync is seen from outside: an audit hook would miss it, so the kernel's own name of each handle is asked for."""
    synced: list[str] = []
    real = os.fsync

    def noting(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        real(handle)

    os.fsync = noting
    try:
        kept = await FolderSpool(tmp_path / "files").keep(chunks(b"x"), size_bytes_max=1)
    finally:
        os.fsync = real
    assert synced == [tmp_path.name, kept.blob, "files"]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
async def test_files_are_for_their_owner_alone_and_for_a_group_where_their_folder_is(tmp_path: Path) -> None:
    old, shared, chosen = tmp_path / "peik.db.files", tmp_path / "shared", tmp_path / "chosen"
    old.mkdir(mode=0o755)
    shared.mkdir(mode=0o770)
    chosen.mkdir(mode=0o755)
    for folder, own, files in (
        (tmp_path / "new", 0o700, 0o600),
        (old, 0o700, 0o600),
        (shared, 0o770, 0o660),
        (chosen, 0o755, 0o600),
    ):
        spool = FolderSpool(folder)
        kept = await spool.keep(chunks(b"x"), size_bytes_max=1)
        assert (mode_of(folder), mode_of(spool.path_of(kept.blob))) == (own, files), folder.name
        moved = FolderFiles(folder)
        await moved.keep_part(kept.blob, 0, b"y")
        await moved.finish(kept.blob)
        assert mode_of(spool.path_of(kept.blob)) == files


@pytest.mark.usefixtures("open_umask")
def test_the_archive_and_what_a_backup_puts_back_are_for_their_owner_alone(tmp_path: Path) -> None:
    with contextlib.closing(connect(tmp_path / "archive.db")) as archive:
        archive.execute("CREATE TABLE messages (text)")
        assert {mode_of(path) for path in tmp_path.iterdir()} == {0o600}
    put_file(tmp_path / "archive.db", tmp_path / "back" / "file", is_shared=True)
    assert (mode_of(tmp_path / "back"), mode_of(tmp_path / "back" / "file")) == (0o700, 0o600)


async def test_a_file_that_is_too_large_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TooLarge) as caught:
        await FolderSpool(tmp_path).keep(chunks(b"12345", b"6"), size_bytes_max=5)
    assert caught.value.code == "file_too_large"
    assert names(tmp_path) == set()


class SlowDisk(ThreadPoolExecutor):
    """A thread that has opened a file does not come back with it before it is let."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.opened = threading.Event()
        self.let_go = threading.Event()

    def submit(self, work: Callable[..., Any], /, *given: Any, **more: Any) -> Future[Any]:
        def run() -> Any:
            result = work(*given, **more)
            if isinstance(result, BufferedWriter):
                self.opened.set()
                self.let_go.wait(PATIENCE_S)
            return result

        return super().submit(run)


async def test_who_is_cancelled_while_a_file_is_opened_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = SlowDisk()
    asyncio.get_running_loop().set_default_executor(disk)
    keeping = asyncio.create_task(FolderSpool(tmp_path).keep(chunks(b"some"), size_bytes_max=5))
    while not disk.opened.is_set():  # noqa: ASYNC110  a thread's event
        await asyncio.sleep(0.001)
    keeping.cancel()
    await asyncio.wait([keeping])
    disk.let_go.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    await asyncio.sleep(0)  # what the thread brought is taken in the loop's next turn
    assert names(tmp_path) == set()


async def test_a_caller_that_breaks_off_leaves_nothing_behind(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"some"
        raise ConnectionAbortedError("the client went away")

    with pytest.raises(StoreUnavailable):
        await FolderSpool(tmp_path).keep(broken(), size_bytes_max=100)
    assert names(tmp_path) == set()


async def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("in the way")
    with pytest.raises(StoreUnavailable) as caught:
        await FolderSpool(tmp_path / "files").keep(chunks(b"x"), size_bytes_max=5)
    assert caught.value.code == "spool_failed"


async def test_sweeping_removes_orphans_and_nothing_else(tmp_path: Path) -> None:
    spool = FolderSpool(tmp_path)
    orphan, needed, fresh = [(await spool.keep(chunks(b"x"), size_bytes_max=1)).blob for _ in range(3)]
    (tmp_path / "README").write_text("somebody else's")
    (tmp_path / ("0" * 32)).mkdir()
    for name in (orphan, needed, "README", "0" * 32):
        os.utime(tmp_path / name, (HOURS_AGO, HOURS_AGO))
    assert await spool.sweep({needed}, at_ms=time.time_ns() // 1_000_000) == 1
    assert names(tmp_path) == {needed, fresh, "README", "0" * 32}


async def test_sweeping_where_nothing_was_ever_kept_is_no_work(tmp_path: Path) -> None:
    assert await FolderSpool(tmp_path / "never").sweep(set(), at_ms=0) == 0


async def test_removing_is_patient_with_what_is_gone_and_what_resists(tmp_path: Path) -> None:
    spool = FolderSpool(tmp_path)
    gone, stays, stuck = [(await spool.keep(chunks(b"x"), size_bytes_max=1)).blob for _ in range(3)]
    spool.path_of(gone).unlink()
    spool.path_of(stuck).unlink()
    spool.path_of(stuck).mkdir()  # what unlink refuses, even to root
    spool.remove([stuck, gone, stays])
    assert names(tmp_path) == {stuck}
    spool.path_of(stuck).rmdir()
    spool.path_of(stuck).write_bytes(b"x")
    spool.remove([])  # tried again with the next
    assert names(tmp_path) == set()


async def test_a_file_of_a_shared_folder_is_at_every_node(tmp_path: Path) -> None:
    kept = await FolderSpool(tmp_path).keep(chunks(b"some"), size_bytes_max=5)
    await FolderSpool(tmp_path).bring(kept.as_enclosed("photo", filename="a.png", content_type="image/png"))


async def test_a_file_that_is_gone_or_changed_is_told(tmp_path: Path) -> None:
    spool = FolderSpool(tmp_path)
    kept = await spool.keep(chunks(b"some"), size_bytes_max=5)
    file = kept.as_enclosed("photo", filename="a.png", content_type="image/png")
    spool.path_of(kept.blob).write_bytes(b"so")
    with pytest.raises(NotFound, match=r"the file 'a.png' has 2 bytes, and had 4"):
        await spool.bring(file)
    spool.remove([kept.blob])
    with pytest.raises(NotFound, match=r"the file 'a.png' is not in the folder of files any more"):
        await spool.bring(file)


async def test_a_folder_that_cannot_be_reached_is_no_lost_file(tmp_path: Path) -> None:
    (tmp_path / "files").symlink_to("files")  # what even root cannot follow
    kept = await FolderSpool(tmp_path / "elsewhere").keep(chunks(b"some"), size_bytes_max=5)
    with pytest.raises(StoreUnavailable) as caught:
        await FolderSpool(tmp_path / "files").bring(
            kept.as_enclosed("photo", filename="a.png", content_type="image/png")
        )
    assert caught.value.code == "spool_failed"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../peik.db", "/etc/passwd", "a/b", "A" * 32, "0" * 31, "0" * 32 + "\n"]
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a blob"):
        FolderSpool(tmp_path).path_of(name)
