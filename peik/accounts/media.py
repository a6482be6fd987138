"""Files of messages, in a folder: what an account's messages carry is fetched after they are archived, and every file once.

New messages are heard of from the session's feed, as by a reader with a place of its own; those of a crawl page by page, before
the crawl goes on. So a crash goes on with the file that it was at, and forgets none.

    .files/07/d5129…07                        every file once, by Telegram's number of it
    <session>/<chat>/<message>-d5129…07.jpg   which message came with it: the same file, by a hard link
"""

import asyncio
import mimetypes
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from peik.accounts.budget import PatientRequests
from peik.accounts.client import AccountClient, ClientError, Trouble
from peik.accounts.events import FileFetched, FileGivenUp
from peik.accounts.history import ChatStates
from peik.archive.store import Archive, ArchiveRetention, FeedRecord, LineKind, Message, MessageFilter
from peik.clock import Clock
from peik.core.events import Events, StoreFailed
from peik.errors import StoreUnavailable
from peik.storage.spool import make_private_folder

READER = "@media"
CHUNK = 512 * 1024  # what Telegram gives at once, at most
LINES = 200
TRIES_MAX = 5
AGAIN_S = 60.0
AGAIN_S_MAX = 3600.0
NO_ROOM = "no_room"
_POOL = ".files"  # no session has such a name
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")


class MessageFile(msgspec.Struct, frozen=True, kw_only=True):
    """What one message carries, as Telegram describes it."""

    session_id: str
    chat_id: int
    message_id: int
    kind: str
    file_id: str
    size_bytes: int | None
    suffix: str

    @property
    def name(self) -> str:
        return f"{'p' if self.kind == 'photo' else 'd'}{self.file_id}"  # photos and documents are numbered apart


class _Described(msgspec.Struct):
    """Of the `media` of a message."""

    id: str
    type: str | None = None
    size: int | None = None
    name: str | None = None


class _Line(msgspec.Struct):
    """Of a line of the feed."""

    chat_id: str
    message_id: str
    kind: str
    media: _Described | None = None


def file_of(message: Message) -> MessageFile | None:
    if message.media is None:
        return None
    found = msgspec.json.decode(message.media, type=_Described)
    return _file(message.session_id, message.chat_id, message.message_id, message.kind, found)


def file_of_line(line: FeedRecord) -> MessageFile | None:
    if line.kind not in (LineKind.MESSAGE, LineKind.EDITED):
        return None
    told = msgspec.json.decode(line.body, type=_Line)
    if told.media is None:
        return None
    return _file(line.session_id, int(told.chat_id), int(told.message_id), told.kind, told.media)


def _file(session_id: str, chat_id: int, message_id: int, kind: str, found: _Described) -> MessageFile | None:
    if not found.id.isascii() or not found.id.lstrip("-").isdigit():
        return None
    suffix = Path(found.name or "").suffix
    if not _SUFFIX.fullmatch(suffix):
        suffix = mimetypes.guess_extension(found.type or "") or ""
    return MessageFile(
        session_id=session_id,
        chat_id=chat_id,
        message_id=message_id,
        kind=kind,
        file_id=found.id,
        size_bytes=found.size,
        suffix=suffix,
    )


class MediaFolder:
    """The files on the disk. Everything here blocks, for as long as the disk does."""

    def __init__(self, path: Path, *, size_max: int, kinds: frozenset[str]) -> None:
        """`kinds`: of messages; none: all of them."""
        self._path = path
        self._size_max = size_max
        self._kinds = kinds

    def wants(self, file: MessageFile, *, size_bytes: int = 0) -> bool:
        is_small = max(file.size_bytes or 0, size_bytes) <= self._size_max
        return is_small and (not self._kinds or file.kind in self._kinds)

    def path_of(self, file: MessageFile) -> Path:
        """Where the file of a message is, or will be."""
        return self._path / file.session_id / str(file.chat_id) / f"{file.message_id}-{file.name}{file.suffix}"

    def _pooled(self, name: str) -> Path:
        return self._path / _POOL / name[-2:] / name

    def has(self, file: MessageFile, *, at_s: float) -> bool:
        """Whether it is here for this message; also because it came with another one before."""
        path = self.path_of(file)
        if path.exists():
            return True
        make_private_folder(path.parent)
        try:
            os.link(self._pooled(file.name), path)
        except FileNotFoundError:
            return False
        except FileExistsError:
            return True
        os.utime(path, (at_s, at_s))  # it is as old as the last message that came with it
        return True

    def begun(self, file: MessageFile) -> int:
        """How much of it is here already, in whole chunks."""
        part = self._part(file)
        make_private_folder(part.parent)
        size = part.stat().st_size if part.exists() else 0
        whole = size - size % CHUNK
        with part.open("ab") as opened:
            opened.truncate(whole)
        part.chmod(0o600)
        return whole

    def add(self, file: MessageFile, chunk: bytes) -> int:
        """Its size now."""
        with self._part(file).open("ab") as opened:
            opened.write(chunk)
            return opened.tell()

    def finish(self, file: MessageFile, *, at_s: float) -> int:
        """All of it is here: keep it. Its size."""
        part = self._part(file)
        with part.open("rb") as opened:
            os.fsync(opened.fileno())
            size = os.fstat(opened.fileno()).st_size
        part.replace(self._pooled(file.name))
        self.has(file, at_s=at_s)
        return size

    def drop(self, file: MessageFile) -> None:
        self._part(file).unlink(missing_ok=True)

    def _part(self, file: MessageFile) -> Path:
        """Of this session: two accounts may fetch the same file at the same time."""
        return self._path / _POOL / file.name[-2:] / f"{file.name}.{file.session_id}.part"

    # ---- letting go ----

    def forget_chats(self, user_id: int) -> int:
        """The private chats with somebody. How many files went."""
        return sum(self._remove(path) for place in self._path.glob(f"[!.]*/{user_id}") for path in [*place.iterdir()])

    def forget_messages(self, messages: Sequence[Message]) -> int:
        found = 0
        for one in messages:
            place = self._path / one.session_id / str(one.chat_id)
            found += sum(self._remove(path) for path in [*place.glob(f"{one.message_id}-*")])
        return found

    def clean(self, *, before_s: float) -> int:
        return sum(self._remove(path) for path in self._all() if path.stat().st_mtime < before_s)

    def _all(self) -> Iterator[Path]:
        yield from [*self._path.glob("[!.]*/*/*")]

    def _remove(self, path: Path) -> int:
        """With the last message that came with it a file is gone."""
        name = path.name.partition("-")[2].partition(".")[0]
        path.unlink(missing_ok=True)
        pooled = self._pooled(name)
        if pooled.exists() and pooled.stat().st_nlink == 1:
            pooled.unlink(missing_ok=True)
        return 1


class _Behind(msgspec.Struct, frozen=True):
    due_at: float
    file: MessageFile


class MediaFetch:
    """Of one connection of one session: one file at a time, within the account's pace."""

    def __init__(
        self,
        session_id: str,
        folder: MediaFolder,
        chats: ChatStates,
        *,
        book: Archive,
        asking: PatientRequests,
        clock: Clock,
        events: Events,
    ) -> None:
        self._session_id = session_id
        self._folder = folder
        self._chats = chats
        self._book = book
        self._asking = asking
        self._clock = clock
        self._events = events
        self._place: int | None = None  # up to this line nothing is left to be fetched, but what is behind
        self._saved = 0
        self._lines: list[FeedRecord] = []
        self._behind: dict[int, _Behind] = {}  # by line
        self._failures: Counter[str] = Counter()
        self._rests_until = float("-inf")  # the disk did not take the last one

    def next_at(self) -> float | None:
        """When something that failed is due again."""
        resting = [self._rests_until] if self._rests_until > self._clock.mono() else []
        return max(resting, default=min((one.due_at for one in self._behind.values()), default=None))

    async def step(self, client: AccountClient) -> bool:
        """One file of new messages. Whether there may be another. Raises ClientError if the line is gone."""
        if self._clock.mono() < self._rests_until:
            return False
        try:
            return await self._step(client)
        except StoreUnavailable as error:
            if error.code != NO_ROOM:
                raise
            self._rests_until = self._clock.mono() + AGAIN_S
            self._events.tell(StoreFailed(what=f"files of session {self._session_id}", why=error.detail))
            return False

    async def _step(self, client: AccountClient) -> bool:
        if self._place is None:
            self._place = self._saved = (await self._book.places(READER)).get(self._session_id, 0)
        now = self._clock.mono()
        due = next((number for number, one in self._behind.items() if one.due_at <= now), None)
        if due is not None:
            await self._try(client, due, self._behind[due].file)
            await self._save()
            return True
        if not self._lines:
            self._lines = (await self._book.fed(self._session_id, after=self._place, limit=LINES))[::-1]
        has_asked = False
        while self._lines and not has_asked:
            line = self._lines[-1]
            file = file_of_line(line)
            if file is not None and (await self._chats.kept()).has(file.chat_id):
                has_asked = await self._try(client, line.number, file)
            self._lines.pop()
            self._place = line.number
        await self._save()
        return has_asked or bool(self._lines)

    async def _save(self) -> None:
        assert self._place is not None
        done = min((number - 1 for number in self._behind), default=self._place)
        if done > self._saved:
            await self._book.save_places(READER, {self._session_id: done}, at_ms=self._clock.wall_ms())
            self._saved = done

    async def _try(self, client: AccountClient, number: int, file: MessageFile) -> bool:
        """Whether Telegram was asked."""
        try:
            asked = await self._fetch(client, file)
        except ClientError as error:
            if not client.is_connected or error.trouble is Trouble.REVOKED:
                raise
            asked = True
            if not self._is_given_up(file, error):
                pause_s = min(AGAIN_S * 2 ** (self._failures[file.name] - 1), AGAIN_S_MAX)
                self._behind[number] = _Behind(self._clock.mono() + pause_s, file)
                return True
        else:
            self._failures.pop(file.name, None)
        self._behind.pop(number, None)
        return asked

    async def fetch_page(self, client: AccountClient, page: Sequence[Message]) -> None:
        """What a page of history carries. Raises ClientError: the page is not done with then."""
        kept = await self._chats.kept()
        for message in page:
            file = file_of(message)
            if file is None or not kept.has(file.chat_id):
                continue
            try:
                await self._fetch(client, file)
            except ClientError as error:
                if not client.is_connected or error.trouble is Trouble.REVOKED or not self._is_given_up(file, error):
                    raise

    def _is_given_up(self, file: MessageFile, error: ClientError) -> bool:
        self._failures[file.name] += 1
        if error.trouble is not Trouble.REFUSED and self._failures[file.name] < TRIES_MAX:
            return False
        self._events.tell(
            FileGivenUp(session_id=file.session_id, chat_id=file.chat_id, message_id=file.message_id, why=error.words)
        )
        return True

    async def _fetch(self, client: AccountClient, file: MessageFile) -> bool:
        """Whether Telegram was asked. Raises ClientError, and StoreUnavailable for a disk that does not take it."""
        folder, at_s = self._folder, self._clock.wall_ms() / 1000
        if not folder.wants(file):
            return False
        try:
            if await asyncio.to_thread(folder.has, file, at_s=at_s):
                return False
            states = await self._chats.all()
            state = states.get(file.chat_id)
            access = None if state is None else self._chats.access(state)

            async def ask() -> bool:
                size = await asyncio.to_thread(folder.begun, file)

                async def take(chunk: bytes) -> bool:
                    nonlocal size
                    size = await asyncio.to_thread(folder.add, file, chunk)
                    return folder.wants(file, size_bytes=size)

                return await client.download(
                    file.chat_id, access, file.message_id, file_id=file.file_id, offset=size, take=take
                )

            if await self._asking.file(ask):
                size = await asyncio.to_thread(folder.finish, file, at_s=at_s)
                self._events.tell(FileFetched(session_id=file.session_id, chat_id=file.chat_id, size_bytes=size))
            else:
                await asyncio.to_thread(folder.drop, file)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise StoreUnavailable(code=NO_ROOM, detail=f"PEIK_SESSIONS_MEDIA cannot be written: {why}.") from error
        return True


class FiledArchive:
    """An archive whose messages may have files in a folder: they go with their messages. All else is the archive's own."""

    def __init__(self, archive: Archive, folder: MediaFolder) -> None:
        self._archive = archive
        self._folder = folder

    async def forget_person(self, user_id: int) -> Mapping[str, int]:
        """The files first: afterwards nobody knows any more which were theirs."""
        files, cursor = await asyncio.to_thread(self._folder.forget_chats, user_id), None
        while True:
            page, cursor = await self._archive.messages(MessageFilter(sender_id=user_id), cursor=cursor, limit=500)
            files += await asyncio.to_thread(self._folder.forget_messages, page)
            if cursor is None:
                break
        return {**await self._archive.forget_person(user_id), "files": files}

    async def clean(self, retention: ArchiveRetention, *, at_ms: int, limit: int) -> int:
        gone = await self._archive.clean(retention, at_ms=at_ms, limit=limit)
        if retention.messages_ms is not None and gone < limit:  # once, at the end: all files are looked at
            await asyncio.to_thread(self._folder.clean, before_s=(at_ms - retention.messages_ms) / 1000)
        return gone

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)
