"""Files of messages in a folder: each fetched once, within limits, over crashes and full disks; and gone with their messages."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from peik.accounts.client import ClientError, Trouble
from peik.accounts.events import FileFetched, FileGivenUp
from peik.accounts.history import ask_for_crawl
from peik.accounts.media import CHUNK, FiledArchive, MediaFolder
from peik.accounts.runner import SessionRunner
from peik.archive.store import ArchiveRetention
from peik.core.events import StoreFailed
from peik.testing.accounts import SimClient
from peik.testing.virtual import VirtualClock, run_virtual
from tests.accounts.listening import until
from tests.accounts.stage import Stage

FILE = b"f" * (CHUNK + 7)


class Running:
    """Ali's session, with a folder for files."""

    def __init__(self, stage: Stage, folder: Path, **limits: Any) -> None:
        self.stage = stage
        self.path = folder / "media"
        self.folder = MediaFolder(self.path, **{"size_max": 10 * CHUNK, "kinds": frozenset()} | limits)

    async def begin(self) -> None:
        self.runner = SessionRunner("s1", self.stage.tools(media=self.folder))
        self.task = asyncio.create_task(self.runner.run())
        await until(lambda: self.runner.client)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    def files(self) -> dict[str, bytes]:
        return {str(one.relative_to(self.path)): one.read_bytes() for one in self.path.glob("[!.]*/*/*")}

    def pool(self) -> list[Path]:
        return [one for one in self.path.glob(".files/*/*") if one.is_file()]

    def say(self, text: str, file: bytes = FILE, kind: str = "document") -> Any:
        return self.stage.telegram.say(self.stage.private, self.stage.sara, text, kind=kind, file=file)


def play(folder: Path, story: Any, **limits: Any) -> None:
    async def main(clock: VirtualClock) -> None:
        stage = await Stage(clock).open(folder)
        await stage.sign_in(stage.ali)
        running = Running(stage, folder, **limits)
        await running.begin()
        await story(running)
        await running.end()
        await stage.archive.close()

    run_virtual(main)


def test_a_file_that_comes_with_several_messages_is_fetched_once(tmp_path: Path) -> None:
    async def story(running: Running) -> None:
        for text, file in (("one", FILE), ("two", FILE), ("other", b"other")):
            running.say(text, file)
        await asyncio.sleep(60)
        sara = running.stage.sara.user_id
        told = {int(name.split("/")[2].split("-")[0]): data for name, data in running.files().items()}
        assert sorted(told) == sorted(running.stage.ali.box.posts)
        assert sorted(told.values(), key=len) == [b"other", FILE, FILE]
        assert all(name.startswith(f"s1/{sara}/") for name in running.files())
        assert len(running.pool()) == 2
        assert [one.stat().st_mode & 0o777 for one in running.pool()] == [0o600] * 2
        assert len(running.stage.told_of(FileFetched)) == 2

    play(tmp_path, story)


def test_size_and_kind_are_limited(tmp_path: Path) -> None:
    async def story(running: Running) -> None:
        running.say("too large", b"x" * (2 * CHUNK + 1), "photo")
        running.say("another kind", b"small", "voice")
        running.say("wanted", b"small photo", "photo")
        await asyncio.sleep(60)
        assert list(running.files().values()) == [b"small photo"]
        assert running.stage.told_of(FileGivenUp) == []

    play(tmp_path, story, size_max=2 * CHUNK, kinds=frozenset({"photo"}))


def test_a_crawl_brings_files_and_what_was_begun_goes_on_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bytes(range(256)) * (3 * CHUNK // 256) + b"end"
    asked: list[int] = []
    download = SimClient.download

    async def cut(self: SimClient, *args: Any, take: Any, offset: int, **more: Any) -> bool:
        """The line goes in the middle, the first time."""
        asked.append(offset)
        pieces = 0

        async def taken(chunk: bytes) -> bool:
            nonlocal pieces
            pieces += 1
            if len(asked) == 1 and pieces == 3:
                self.cut(ClientError(Trouble.OFFLINE, "cut"))
                raise ClientError(Trouble.OFFLINE, "cut")
            return bool(await take(chunk))

        return await download(self, *args, take=taken, offset=offset, **more)

    monkeypatch.setattr(SimClient, "download", cut)

    async def story(running: Running) -> None:
        await running.end()
        stage = running.stage
        running.say("while nobody listened", whole)
        await stage.archive.save_updates_state("s1", msgspec.msgpack.encode([stage.ali.box.pts, {}]))
        await running.begin()
        await ask_for_crawl(running.runner.chats, stage.sara.user_id)
        running.runner.ring()
        await asyncio.sleep(600)
        assert asked == [0, 2 * CHUNK]
        assert list(running.files().values()) == [whole]

    play(tmp_path, story)


def test_a_file_that_cannot_be_had_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download = SimClient.download
    tries = 0

    async def refused(self: SimClient, *args: Any, file_id: str, **more: Any) -> bool:
        nonlocal tries
        if self._telegram.files[file_id] == b"bad":
            tries += 1
            raise ClientError(Trouble.OFFLINE, "Trouble inside Telegram (RPC_CALL_FAIL).")
        return await download(self, *args, file_id=file_id, **more)

    monkeypatch.setattr(SimClient, "download", refused)

    async def story(running: Running) -> None:
        running.say("bad", b"bad")
        running.say("good", b"good")
        await asyncio.sleep(60)
        assert list(running.files().values()) == [b"good"]
        assert await running.stage.archive.places("@media") == {}, "what is behind is not done"
        await asyncio.sleep(3600)
        assert tries == 5
        assert [one.why for one in running.stage.told_of(FileGivenUp)] == ["Trouble inside Telegram (RPC_CALL_FAIL)."]
        assert await running.stage.archive.places("@media") == {"s1": 2}

    play(tmp_path, story)


def test_a_disk_that_takes_nothing_is_told_and_files_come_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, is_full = MediaFolder.add, True

    def full(self: MediaFolder, *args: Any) -> int:
        if is_full:
            raise OSError(28, "No space left on device")
        return add(self, *args)

    monkeypatch.setattr(MediaFolder, "add", full)

    async def story(running: Running) -> None:
        nonlocal is_full
        running.say("one")
        await asyncio.sleep(300)
        assert running.files() == {}
        assert "No space left" in running.stage.told_of(StoreFailed)[0].why
        is_full = False
        await asyncio.sleep(120)
        assert list(running.files().values()) == [FILE]

    play(tmp_path, story)


def test_files_go_with_their_messages(tmp_path: Path) -> None:
    async def story(running: Running) -> None:
        stage = running.stage
        archive = FiledArchive(stage.archive, running.folder)
        running.say("private")
        stage.telegram.say(stage.group, stage.sara, "in the group", kind="photo", file=b"hers")
        stage.telegram.say(stage.group, stage.ali, "mine", kind="document", file=FILE)
        await asyncio.sleep(60)
        assert len(running.files()) == 3
        gone = await archive.forget_person(stage.sara.user_id)
        assert gone["files"] == 2
        assert list(running.files().values()) == [FILE], "another message came with it"
        assert len(running.pool()) == 1
        keep_a_day = ArchiveRetention(messages_ms=86_400_000)
        at_ms = stage.clock.wall_ms()
        await archive.clean(keep_a_day, at_ms=at_ms, limit=1000)
        assert len(running.files()) == 1
        await archive.clean(keep_a_day, at_ms=at_ms + 2 * 86_400_000, limit=1000)
        assert (running.files(), running.pool()) == ({}, [])

    play(tmp_path, story)
