"""The way back: what a backup holds, into the places that the settings name."""

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from peik.backups import container, folders
from peik.backups.manifest import Manifest, Part
from peik.backups.parts import Plain, Source
from peik.backups.watching import Watch, on_thread
from peik.errors import Conflict

BEFORE = ".before-restore"
_DATABASES = ("archive", "store")  # in this order


async def put_back(
    path: Path,
    place: Path,
    *,
    sources: Mapping[str, Source],
    plain: Plain,
    keys: Sequence[bytes],
    known: Mapping[str, int],
    watch: Watch,
) -> Manifest:
    """See `Backups.restore`. `place` is a folder to work in."""
    _check_fit(await on_thread(watch, container.manifest_of, path, keys), sources, plain, known)
    with contextlib.ExitStack() as stack:
        for source in sources.values():
            stack.enter_context(source.reserved())
        await _refuse_used(sources, "Nothing was changed.")
        manifest = await on_thread(watch, container.unpack, path, place, keys, watch)
        # Unpacking takes long, and servers can be reserved by nobody: a node may have begun to run meanwhile.
        await _refuse_used(sources, "Nothing was changed.")
        await on_thread(watch, _put_files, place, plain, watch)
        for name in _DATABASES:
            part = manifest.part(name)
            if part is not None:
                await _refuse_used(sources, "The store was not changed.")
                await sources[name].put_back(place / name, part, watch)
    return manifest


def _check_fit(manifest: Manifest, sources: Mapping[str, Source], plain: Plain, known: Mapping[str, int]) -> None:
    for name in _DATABASES:
        part = manifest.part(name)
        if part is not None:
            _check_part(part, sources.get(name), known)
    files = manifest.part("files")
    if files is not None and files.counts["files"] and plain.files is None:
        raise Conflict(
            code="no_files_folder",
            detail="This backup has files of letters from a folder. Name the folder that they shall go to in PEIK_FILES.",
        )


def _check_part(part: Part, source: Source | None, known: Mapping[str, int]) -> None:
    setting = "PEIK_STORE" if part.name == "store" else "PEIK_ARCHIVE"
    if source is None:
        raise Conflict(
            code="no_archive",
            detail=f"This backup has an archive ({part.kind}), and the settings name none. Set {setting}.",
        )
    if source.kind != part.kind:
        raise Conflict(
            code="other_store",
            detail=f"The {part.name} in this backup is of {part.kind}, and {setting} names {source.kind}. Restore it to such "
            "a one, and move it with `peik migrate` then.",
        )
    if part.version > known.get(f"{part.name} {part.kind}", part.version):
        raise Conflict(
            code="newer_backup",
            detail=f"The {part.name} in this backup was written by a newer Peik. Upgrade this one. Nothing was changed.",
        )


async def _refuse_used(sources: Mapping[str, Source], so_far: str) -> None:
    for source in sources.values():
        used_by = await source.used_by()
        if used_by is not None:
            raise Conflict(code="in_use", detail=f"{used_by} Stop it, every node of it, and try again. {so_far}")


def _put_files(place: Path, plain: Plain, watch: Watch) -> None:
    """Before the databases that need them. Files that are there already are the same: their names are given once."""
    blobs = sorted((place / "files").iterdir()) if plain.files is not None and (place / "files").is_dir() else []
    watch.begin("Putting files back", len(blobs))
    for blob in blobs:
        assert plain.files is not None
        target = plain.files / blob.name
        if not target.is_file() or target.stat().st_size != blob.stat().st_size:
            folders.put_file(blob, target, is_shared=True)  # other nodes may run as other users
        watch.step(1)
    if plain.sessions is not None and (place / "sessions").is_dir():
        folders.put_sessions(place / "sessions", plain.sessions, watch)
    for name, path in plain.keys.items():
        kept = place / "keys" / name
        if kept.is_file():
            if path.is_file():
                shutil.copyfile(path, before := path.with_name(path.name + BEFORE))
                before.chmod(0o600)
            folders.put_file(kept, path)
