"""Files that bots and people have uploaded: their ids, their places, and their contents as far as memory allows."""

import hashlib
from collections import deque

import msgspec

from peik.testing.answer import UploadedFile
from peik.testing.params import Json

# Kind: how an id of it begins (as Telegram's do), its folder, its usual ending.
KINDS = {
    "photo": ("AgACAgQAAxk", "photos", "jpg"),
    "document": ("BQACAgQAAxk", "documents", "bin"),
    "audio": ("CQACAgQAAxk", "music", "mp3"),
    "video": ("BAACAgQAAxk", "videos", "mp4"),
    "animation": ("CgACAgQAAxk", "animations", "mp4"),
    "voice": ("AwACAgQAAxk", "voice", "oga"),
    "video_note": ("DQACAgQAAxk", "video_notes", "mp4"),
    "sticker": ("CAACAgQAAxk", "stickers", "webp"),
}


class StoredFile(msgspec.Struct, kw_only=True):
    """One file as one bot knows it: ids are per bot (docs/telegram.md, Sizes and files)."""

    file_id: str
    unique_id: str
    kind: str
    size_bytes: int
    path: str
    filename: str
    content_type: str
    content: bytes | None

    def as_json(self) -> Json:
        return {"file_id": self.file_id, "file_unique_id": self.unique_id, "file_size": self.size_bytes}


class FileShelf:
    """All files of one bot. Ids are kept for ever, contents only up to a budget, oldest first to go."""

    def __init__(self, bot_id: int, *, bytes_max: int) -> None:
        self._bot_id = bot_id
        self._bytes_max = bytes_max
        self._bytes = 0
        self._by_id: dict[str, StoredFile] = {}
        self._by_path: dict[str, StoredFile] = {}
        self._full: deque[StoredFile] = deque()

    def put(self, kind: str, upload: UploadedFile) -> StoredFile:
        prefix, folder, ending = KINDS.get(kind, KINDS["document"])
        number = len(self._by_id)
        unique = hashlib.blake2b(upload.content, digest_size=9, person=kind.encode()[:16])
        suffix = upload.filename.rpartition(".")[2] if "." in upload.filename else ending
        stored = StoredFile(
            file_id=f"{prefix}{self._bot_id:x}Z{number:08x}Q",
            unique_id=f"AQAD{unique.hexdigest()}",
            kind=kind,
            size_bytes=len(upload.content),
            path=f"{folder}/file_{number}.{suffix}",
            filename=upload.filename,
            content_type=upload.content_type,
            content=upload.content,
        )
        self._by_id[stored.file_id] = self._by_path[stored.path] = stored
        self._full.append(stored)
        self._bytes += stored.size_bytes
        while self._bytes > self._bytes_max and len(self._full) > 1:
            oldest = self._full.popleft()
            oldest.content = None
            self._bytes -= oldest.size_bytes
        return stored

    def by_id(self, file_id: str) -> StoredFile | None:
        return self._by_id.get(file_id)

    def by_path(self, path: str) -> StoredFile | None:
        return self._by_path.get(path)
