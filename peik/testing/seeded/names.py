"""Which files the names in a folder mean, now and as of its last sync: what was made or removed since is for the power cut."""

import contextlib
import shutil
from pathlib import Path

from peik.testing.seeded.images import Image, Luck

# What durability does not matter for: locks, shared memory, and the keys that a first start makes and prints.
SPARED = (".owner", ".server", ".key", "-shm")


class Names:
    """Every name below one folder. A file that was renamed counts as a new one, which was never synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._images: dict[Path, Image] = {}  # what each means now
        self._synced: dict[Path, dict[str, Image]] = {}  # by folder: what its names meant at its last sync

    def image(self, path: Path) -> Image:
        """What a name means. What was written to the file unseen is not in it."""
        inode = path.stat().st_ino
        image = self._images.get(path)
        if image is None or image.inode != inode:
            image = self._images[path] = Image(inode, is_folder=path.is_dir())
        return image

    def image_now(self, path: Path) -> Image:
        """The same with what was written unseen."""
        image = self.image(path)
        if image.is_plain and not image.is_folder:
            image.become(path.read_bytes())
        return image

    def remove(self, path: Path) -> int:
        """How many bytes that frees. Until the folder is synced, the file may come back."""
        image = self._images.pop(path, None)
        return 0 if image is None else image.size_bytes

    def sync(self, folder: Path) -> None:
        """What the names in it mean now they mean after a power cut. What the files hold is another matter."""
        synced = self._synced[folder] = {}
        for path in _entries(folder):
            with contextlib.suppress(FileNotFoundError):  # another thread removed it
                synced[path.name] = self.image(path)

    def learn(self) -> None:
        """Everything that is there is durable."""
        self._images.clear()
        self._synced.clear()
        self._learn(self._folder)

    def cut_power(self, luck: Luck) -> None:
        """Leave in the folder what survives."""
        self._settle(self._folder, luck)
        self.learn()

    def _learn(self, folder: Path) -> None:
        for path in _entries(folder):
            if path.is_dir():
                self._learn(path)
            else:
                self.image_now(path).sync()
        self.sync(folder)

    def _settle(self, folder: Path, luck: Luck) -> None:
        synced = self._synced.get(folder, {})
        present = {path.name: self.image_now(path) for path in _entries(folder)}
        for name in sorted(synced.keys() | present.keys()):
            path = folder / name
            before, after = synced.get(name), present.get(name)
            found = after if before is after or luck.coin() else before
            if path.is_dir():
                if found is None:
                    shutil.rmtree(path)
                else:
                    self._settle(path, luck)
            elif found is None:
                path.unlink(missing_ok=True)
            elif not found.is_folder:  # one that was removed stays so: nobody misses an empty folder
                path.write_bytes(found.cut_power(luck))


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.endswith(SPARED))
