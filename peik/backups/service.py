"""Backups as people ask for them: make one, list them, try one out, put one back."""

import asyncio
import contextlib
import re
import secrets
import shutil
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from peik.backups import container
from peik.backups.container import key_id_of, new_salt
from peik.backups.model import (
    FORMAT,
    BackupEntry,
    BackupHead,
    BackupPart,
    BackupSource,
    BackupWatch,
    Manifest,
    Plain,
    broken,
    hold_none,
    on_thread,
    origin_of,
    told,
)
from peik.clock import Clock
from peik.errors import Conflict, NotFound, Problem
from peik.storage.spool import sync_folder

# The way back: what a backup holds, into the places that the settings name.


BEFORE = ".before-restore"
_LAST = ("archive", "store")  # in this order
ALSO = "also-"  # before the name of a file of the program: PEIK_BACKUP_ALSO


async def put_back(
    path: Path,
    place: Path,
    *,
    sources: Mapping[str, BackupSource],
    plain: Plain,
    keys: Sequence[bytes],
    known: Mapping[str, int],
    watch: BackupWatch,
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
        for part in _databases(manifest):
            await _refuse_used(sources, "The store was not changed.")
            await sources[part.name].put_back(place / part.name, part, watch)
    return manifest


def _check_fit(manifest: Manifest, sources: Mapping[str, BackupSource], plain: Plain, known: Mapping[str, int]) -> None:
    for part in _databases(manifest):
        _check_part(part, sources.get(part.name), known)
    files = manifest.part("files")
    if files is not None and files.counts["files"] and plain.files is None:
        raise Conflict(
            code="no_files_folder",
            detail="This backup has files of letters from a folder. Name the folder for them in PEIK_FILES.",
        )


def _databases(manifest: Manifest) -> list[BackupPart]:
    """In the order in which they are put back: until the store is, nothing counts."""
    also = [part for part in manifest.parts if part.name.startswith(ALSO)]
    return also + [part for name in _LAST if (part := manifest.part(name)) is not None]


def _check_part(part: BackupPart, source: BackupSource | None, known: Mapping[str, int]) -> None:
    setting = "PEIK_STORE" if part.name == "store" else "PEIK_ARCHIVE"
    if source is None and part.name.startswith(ALSO):
        raise Conflict(
            code="no_such_file",
            detail=f"This backup has {part.name.removeprefix(ALSO)} of your program, too. Name where to put it: "
            f"PEIK_BACKUP_ALSO={part.shown.removeprefix('sqlite:///')}. Nothing was changed.",
        )
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


async def _refuse_used(sources: Mapping[str, BackupSource], so_far: str) -> None:
    for source in sources.values():
        used_by = await source.used_by()
        if used_by is not None:
            raise Conflict(code="in_use", detail=f"{used_by} Stop it, every node of it, and try again. {so_far}")


def _put_files(place: Path, plain: Plain, watch: BackupWatch) -> None:
    """Before the databases that need them. Files that are there already are the same: their names are given once."""
    blobs = sorted((place / "files").iterdir()) if plain.files is not None and (place / "files").is_dir() else []
    watch.begin("Putting files back", len(blobs))
    for blob in blobs:
        assert plain.files is not None
        target = plain.files / blob.name
        if not target.is_file() or target.stat().st_size != blob.stat().st_size:
            container.put_file(blob, target, is_shared=True)  # other nodes may run as other users
        watch.step(1)
    if plain.sessions is not None and (place / "sessions").is_dir():
        container.put_sessions(place / "sessions", plain.sessions, watch)
    for name, path in plain.keys.items():
        kept = place / "keys" / name
        if kept.is_file():
            if path.is_file():
                shutil.copyfile(path, before := path.with_name(path.name + BEFORE))
                before.chmod(0o600)
            container.put_file(kept, path)


NAME = re.compile(r"peik-\d{8}T\d{6}Z-[0-9a-f]{4}\.backup")


class MadeBackup(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    entry: BackupEntry
    manifest: Manifest
    rotated: list[str]  # names of older ones that went


class KeptBackup(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the folder as its head tells of it."""

    path: Path
    size_bytes: int
    head: BackupHead


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    at_ms: int
    manifest: Manifest


class Backups:
    """`sources` are the store and, if there is one, the archive; `keys` those of PEIK_SECRET_KEY, the first of which seals."""

    def __init__(
        self,
        *,
        folder: Path,
        keep: int,
        keys: Sequence[bytes],
        sources: Mapping[str, BackupSource],
        plain: Plain,
        known: Mapping[str, int],
        version: str,
        clock: Clock,
    ) -> None:
        self.folder = folder
        self._keep = keep
        self._keys = keys
        self._sources = sources
        self._plain = plain
        self._known = known  # by "part kind": the newest schema that this Peik knows
        self._version = version
        self._clock = clock

    @property
    def is_sealing(self) -> bool:
        return bool(self._keys)

    @property
    def _origin(self) -> str:
        return origin_of(self._sources["store"].shown)

    # ---- making ----

    async def create(self, watch: BackupWatch, *, sound: Collection[str] | None = ()) -> MadeBackup:
        """A backup as one file, durable when this returns; then older ones go, as `rotate` says, unless `sound` is None. Raises
        Problem or StartError, and leaves no half file behind; if it is killed, the next one tidies up."""
        with told("The backup"), container.workplace(self.folder) as place:
            root = place / "parts"
            root.mkdir(mode=0o700)
            parts, missing = await self._gather(root, watch)
            members = await on_thread(watch, container.survey, root, watch)
            made_at_ms = self._clock.wall_ms()
            manifest = Manifest(
                format=FORMAT,
                peik=self._version,
                made_at_ms=made_at_ms,
                parts=tuple(parts),
                members=members,
                missing_files=tuple(sorted(missing)),
            )
            unfinished = place / "unfinished"
            head = self._head(made_at_ms)
            await on_thread(watch, container.pack, unfinished, head, manifest, root, self._keys, watch)
            path = self.folder / _name(made_at_ms)
            size_bytes = unfinished.stat().st_size
            unfinished.rename(path)
            sync_folder(self.folder)
        entry = BackupEntry(
            path=str(path), made_at_ms=made_at_ms, size_bytes=size_bytes, is_sealed=self.is_sealing, verified_at_ms=None
        )
        rotated = [] if sound is None else await self.rotate(sound=sound)
        return MadeBackup(path=path, entry=entry, manifest=manifest, rotated=rotated)

    async def _gather(self, root: Path, watch: BackupWatch) -> tuple[list[BackupPart], set[str]]:
        """The store first, with the files of its letters; the archive as it is a moment later."""
        parts: list[BackupPart] = []
        missing: set[str] = set()
        for name, source in self._sources.items():
            if name != "store" and await source.is_empty():
                if name.startswith(ALSO):
                    watch.warn(f"PEIK_BACKUP_ALSO: there is nothing in {source.shown}; the backup goes without it.")
                continue  # nobody has used an archive yet
            hold = hold_none
            held: container.Letterfiles | None = None
            if name == "store" and self._plain.files is not None:
                held = container.Letterfiles(self._plain.files, root / "files", watch)
                hold = held.hold
            parts.append(await source.copy(root / name, name=name, hold=hold, watch=watch))
            if held is not None:
                missing = held.missing
                parts.append(_folder("files", self._plain.files, root))
        if self._plain.sessions is not None:
            await on_thread(watch, container.copy_sessions, self._plain.sessions, root / "sessions", watch)
            parts.append(_folder("sessions", self._plain.sessions, root))
        await on_thread(watch, self._copy_keys, root)
        parts.append(_folder("keys", self.folder, root))
        if missing:
            watch.warn(f"{len(missing)} files of letters were lost before this backup; it goes without them.")
        return parts, missing

    def _copy_keys(self, root: Path) -> None:
        for name, path in self._plain.keys.items():
            if path.is_file():
                container.put_file(path, root / "keys" / name)

    def _head(self, made_at_ms: int) -> BackupHead:
        return BackupHead(
            format=FORMAT,
            peik=self._version,
            made_at_ms=made_at_ms,
            origin=self._origin,
            salt=new_salt() if self._keys else None,
            key_id=key_id_of(self._keys[0]) if self._keys else None,
        )

    async def rotate(self, *, sound: Collection[str]) -> list[str]:
        """Lets older ones go; their names. `sound` are those that were tried out and found good: the newest of them that is
        here never goes, however many came after it."""
        return await asyncio.to_thread(self._rotate, sound)

    def _rotate(self, sound: Collection[str]) -> list[str]:
        own = self._own()
        last_sound = next((one for one in own if one.path.name in sound), None)
        gone = []
        for one in own[self._keep :]:
            if one is last_sound:
                continue
            with contextlib.suppress(OSError):  # the next one tries again
                one.path.unlink()
                gone.append(one.path.name)
        return gone

    # ---- looking ----

    def kept(self) -> list[KeptBackup]:
        """All backups of the folder, the newest first."""
        found = []
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if NAME.fullmatch(path.name):
                with contextlib.suppress(Problem, OSError):  # not ours, or gone meanwhile
                    found.append(KeptBackup(path=path, size_bytes=path.stat().st_size, head=container.head_of(path)))
        return sorted(found, key=lambda one: (one.head.made_at_ms, one.path.name), reverse=True)

    def _own(self) -> list[KeptBackup]:
        """Only this store's: another Peik may use the same folder."""
        return [one for one in self.kept() if one.head.origin == self._origin]

    def newest(self) -> Path:
        """Of this store. Raises NotFound."""
        for one in self._own():
            return one.path
        raise NotFound(code="no_backup", detail=f"There is no backup of this store in {self.folder}.")

    def newest_entry(self) -> BackupEntry | None:
        """What there is to note of the newest one of this store, as far as its file tells."""
        for one in self._own():
            return BackupEntry(
                path=str(one.path),
                made_at_ms=one.head.made_at_ms,
                size_bytes=one.size_bytes,
                is_sealed=one.head.salt is not None,
            )
        return None

    # ---- trying out, putting back ----

    async def verify(self, path: Path, watch: BackupWatch) -> Verified:
        """A real restore in a temporary place, compared with what the backup says of itself. Raises Problem."""
        with told("The trial"), container.workplace(self.folder) as place:
            manifest = await on_thread(watch, container.unpack, path, place, self._keys, watch)
            for part in manifest.parts:
                source = self._sources.get(part.name)
                if part.kind == "folder":
                    continue
                if source is None or source.kind != part.kind:
                    watch.warn(
                        f"The {part.name} in this backup is of {part.kind}, which the settings do not name: only read."
                    )
                    continue
                _compare(part, await source.check(place / part.name, part, watch))
            for part in manifest.parts:
                if part.kind == "folder":
                    _compare(part, {"files": _count_files(place / part.name)})
        return Verified(path=path, at_ms=self._clock.wall_ms(), manifest=manifest)

    async def occupied(self) -> list[str]:
        """What a restore would overwrite. Raises StoreUnavailable."""
        return [source.shown for source in self._sources.values() if not await source.is_empty()]

    async def restore(self, path: Path, watch: BackupWatch) -> Manifest:
        """In place of what is there. Raises Conflict while a Peik runs, or if the backup does not fit the settings, and has
        changed nothing then. The store comes last: until then nothing counts, and anyone who stops here can start over."""
        with told("The restore"), container.workplace(self.folder) as place:
            return await put_back(
                path, place, sources=self._sources, plain=self._plain, keys=self._keys, known=self._known, watch=watch
            )

    def places(self, manifest: Manifest) -> dict[str, str]:
        """Where a restore puts the databases of this backup: full paths and addresses, without passwords."""
        return {part.name: self._sources[part.name].shown for part in manifest.parts if part.name in self._sources}

    def restored_from(self, path: Path, manifest: Manifest, at_ms: int) -> tuple[str, BackupEntry] | None:
        """The backup as the store may know of it; None: somebody gave the file another name."""
        if NAME.fullmatch(path.name) is None:
            return None
        entry = BackupEntry(
            path=str(path),
            made_at_ms=manifest.made_at_ms,
            size_bytes=path.stat().st_size,
            is_sealed=container.head_of(path).salt is not None,
            verified_at_ms=at_ms,
        )
        return path.name, entry


def _name(made_at_ms: int) -> str:
    made_at = datetime.fromtimestamp(made_at_ms // 1000, UTC)
    return f"peik-{made_at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}.backup"


def _folder(name: str, folder: Path | None, root: Path) -> BackupPart:
    return BackupPart(name=name, kind="folder", shown=str(folder), counts={"files": _count_files(root / name)})


def _count_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*")) if folder.is_dir() else 0


def _compare(part: BackupPart, counts: Mapping[str, int]) -> None:
    different = [name for name in {*part.counts, *counts} if part.counts.get(name, 0) != counts.get(name, 0)]
    if different:
        raise broken(f"the {part.name} in it has other numbers than it should ({', '.join(sorted(different)[:5])})")


# Which backups there are, and when each will be gone: for anyone who removed something that they still hold.


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    made_at_ms: int
    goes_at_ms: int | None  # None: nobody makes new ones by the clock


def holdings(folder: Path, *, keep: int, every_s: float | None) -> list[Holding]:
    """The newest first. One more backup takes the place of the oldest, so that the newest of all lasts longest."""
    made: list[tuple[int, Path]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if NAME.fullmatch(path.name):
            with contextlib.suppress(Problem, OSError):  # not ours, or gone meanwhile
                made.append((container.head_of(path).made_at_ms, path))
    made.sort(reverse=True)
    return [
        Holding(
            path=path,
            made_at_ms=at_ms,
            goes_at_ms=None if every_s is None else made[0][0] + int(max(keep - place, 1) * every_s * 1000),
        )
        for place, (at_ms, path) in enumerate(made)
    ]
