"""The file itself: sealed or not, what was changed or cut off is never taken for a backup."""

import asyncio
import gzip
import io
import tarfile
from pathlib import Path

import msgspec
import pytest

from peik.backups import container
from peik.backups.container import CHUNK_BYTES, key_id_of, new_salt
from peik.backups.model import FORMAT, MAGIC, MANIFEST, BackupHead, BackupMember, BackupWatch, Manifest, on_thread
from peik.errors import Problem

KEY = bytes(range(32))
PIECES = {"store/database.sqlite": b"rows " * 700_000, "files/aa": b"", "files/bb": bytes(range(256)) * 9000}


def packed(folder: Path, keys: tuple[bytes, ...]) -> Path:
    root = folder / "parts"
    for name, content in PIECES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    members = container.survey(root, BackupWatch())
    manifest = Manifest(format=FORMAT, peik="1", made_at_ms=5, parts=(), members=members)
    sealed = {"salt": new_salt(), "key_id": key_id_of(keys[0])} if keys else {}
    head = BackupHead(format=FORMAT, peik="1", made_at_ms=5, origin="a", **sealed)
    path = folder / "one.backup"
    container.pack(path, head, manifest, root, keys, BackupWatch())
    return path


def refused(path: Path, folder: Path, keys: tuple[bytes, ...]) -> str:
    with pytest.raises(Problem) as caught:
        container.unpack(path, folder, keys, BackupWatch())
    return caught.value.code


@pytest.mark.parametrize("keys", [(), (KEY,)], ids=["open", "sealed"])
def test_what_goes_in_comes_out(keys: tuple[bytes, ...], tmp_path: Path) -> None:
    path = packed(tmp_path, keys)
    manifest = container.unpack(path, tmp_path / "out", keys, BackupWatch())
    assert manifest == container.manifest_of(path, keys)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in PIECES} == PIECES
    assert not any(one.is_file() for one in (tmp_path / "parts").rglob("*")), "the disk need not hold it twice"


@pytest.mark.parametrize("keys", [(), (KEY,)], ids=["open", "sealed"])
def test_a_changed_byte_or_a_missing_end_is_found(keys: tuple[bytes, ...], tmp_path: Path) -> None:
    path = packed(tmp_path, keys)
    whole = path.read_bytes()
    body = whole.index(b"}\n") + 2
    for number, place in enumerate([body + 30, (body + len(whole)) // 2, len(whole) - 6, len(whole) - 1]):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert refused(path, tmp_path / f"changed{number}", keys) == "backup_broken"
        path.write_bytes(whole[:place])
        assert refused(path, tmp_path / f"cut{number}", keys) == "backup_broken"
    path.write_bytes(whole + b"more")
    assert refused(path, tmp_path / "longer", keys) == "backup_broken"


def test_no_changed_byte_of_a_sealed_one_is_taken(tmp_path: Path) -> None:
    """Each byte, the head's too. Where one that is not sealed is taken all the same, what it holds is as it was: only words of
    its head, or of the head of the compression, were changed."""
    for name, keys in (("open", ()), ("sealed", (KEY,))):
        (tmp_path / name / "parts" / "a").mkdir(parents=True)
        (tmp_path / name / "parts" / "a" / "b").write_bytes(b"x" * 500)
        path = small(tmp_path / name, keys)
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            try:
                container.unpack(path, tmp_path / name / f"{place}", keys, BackupWatch())
            except Problem:
                continue
            assert not keys, place
            assert (tmp_path / name / f"{place}" / "a" / "b").read_bytes() == b"x" * 500


def small(folder: Path, keys: tuple[bytes, ...]) -> Path:
    members = container.survey(folder / "parts", BackupWatch())
    manifest = Manifest(format=FORMAT, peik="1", made_at_ms=5, parts=(), members=members)
    sealed = {"salt": new_salt(), "key_id": key_id_of(keys[0])} if keys else {}
    head = BackupHead(format=FORMAT, peik="1", made_at_ms=5, origin="a", **sealed)
    container.pack(folder / "one.backup", head, manifest, folder / "parts", keys, BackupWatch())
    return folder / "one.backup"


def test_a_sealed_stream_that_ends_between_two_chunks_is_not_whole(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from peik.backups.container import SealedReader, SealingWriter

    path = tmp_path / "sealed"
    with path.open("wb") as file:
        writer = SealingWriter(file, AESGCM(KEY), b"head")
        writer.write(bytes(CHUNK_BYTES * 2 + 5))
        writer.finish()
    with path.open("rb") as file:
        assert SealedReader(file, AESGCM(KEY), b"head").readall() == bytes(CHUNK_BYTES * 2 + 5)
    chunk = CHUNK_BYTES + 16 + 4
    path.write_bytes(path.read_bytes()[: 2 * chunk])
    with path.open("rb") as file, pytest.raises(Problem) as caught:
        SealedReader(file, AESGCM(KEY), b"head").readall()
    assert caught.value.code == "backup_broken"


def test_a_foreign_file_a_newer_one_and_a_missing_one_are_told_apart(tmp_path: Path) -> None:
    path = packed(tmp_path, (KEY,))
    whole = path.read_bytes()
    assert refused(tmp_path / "none", tmp_path, ()) == "no_backup"
    assert refused(path, tmp_path, ()) == "no_secret_key"
    assert refused(path, tmp_path, (bytes(32),)) == "wrong_secret_key"
    path.write_bytes(whole.replace(b'"format":1', b'"format":9', 1))
    assert refused(path, tmp_path, (KEY,)) == "newer_backup"
    for other in (b"", b"something else", b"PEIKBACKUP\n", b"PEIKBACKUP\n[]\n", b"PEIKBACKUP\n" + b"x" * 9000):
        path.write_bytes(other)
        assert refused(path, tmp_path, (KEY,)) == "not_a_backup"


def test_a_name_that_leads_out_is_refused(tmp_path: Path) -> None:
    from peik.backups.model import BackupMember, read_manifest

    for name in ("../up", "/etc/passwd", "manifest.json", ""):
        member = BackupMember(path=name, size_bytes=0, sha256="")
        manifest = Manifest(format=FORMAT, peik="1", made_at_ms=5, parts=(), members=(member,))
        with pytest.raises(Problem):
            read_manifest(container.msgspec.json.encode(manifest))


async def test_whoever_is_cancelled_waits_until_the_thread_has_stopped() -> None:
    watch = BackupWatch()
    steps: list[int] = []
    loop, began = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        try:
            while True:
                watch.step(1)
                loop.call_soon_threadsafe(began.set)
        finally:
            steps.append(1)

    task = asyncio.create_task(on_thread(watch, work))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == [1]


def test_one_that_lacks_a_member_which_its_manifest_names_is_refused(tmp_path: Path) -> None:
    """Whole in every other way: nothing but the manifest can tell."""
    missing = BackupMember(path="files/aa", size_bytes=0, sha256="")
    manifest = msgspec.json.encode(Manifest(format=FORMAT, peik="1", made_at_ms=5, parts=(), members=(missing,)))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w|") as tar:
        entry = tarfile.TarInfo(MANIFEST)
        entry.size = len(manifest)
        tar.addfile(entry, io.BytesIO(manifest))
    head = msgspec.json.encode(BackupHead(format=FORMAT, peik="1", made_at_ms=5, origin="a"))
    path = tmp_path / "one.backup"
    path.write_bytes(MAGIC + head + b"\n" + gzip.compress(packed.getvalue()))
    with pytest.raises(Problem, match="1 of its files are missing"):
        container.unpack(path, tmp_path / "out", (), BackupWatch())


def test_where_somebody_works_nobody_tidies_up_and_what_the_dead_left_goes(tmp_path: Path) -> None:
    with container.workplace(tmp_path) as first:
        dead = first.with_name(f"{first.name}0")
        dead.mkdir()
        with container.workplace(tmp_path) as second:
            assert (first.is_dir(), second.is_dir(), dead.exists()) == (True, True, False)
    assert list(tmp_path.iterdir()) == []
