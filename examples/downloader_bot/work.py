"""What takes long: jobs. They are done by the worker, or by the bot itself if Peik is inside it.

A bot that is killed takes none of them with it, and a worker that is killed leaves them to the next one.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from examples.downloader_bot.book import Book, Stored
from examples.downloader_bot.fetching import Fetcher, PageInstead
from examples.downloader_bot.links import FILE, QUALITIES, is_plain, sent_as
from examples.downloader_bot.settings import Settings
from examples.downloader_bot.sites import NoSuchSite, fetch_from_site, look_at_site
from examples.downloader_bot.words import Words, megabytes, words_of
from peik import Call, Conflict, Job, JobHopeless, JobLater, Peik
from peik.core.letter import State

LOOK_S = 180.0
LOOK_BYTES = 10_000_000
TITLE_CHARS_MAX = 100
SEND_WAIT_S = 3.0  # short: who waits holds up the end of the worker
LATER_S = 15.0
CHUNK = 200  # people of a broadcast whose letters are on their way at the same time
CHUNK_WAIT_S = 120.0
_KINDS = ("video", "audio", "document", "animation", "voice", "photo")


class Uploads(Protocol):
    """Where files go that are too large for the Bot API: see big.py."""

    over_bytes: int

    async def send(self, job: Job, file: Path, kind: str) -> Stored: ...


def asked_job(settings: Settings, user: int, words: Words, *, key: str, label: str, **params: Any) -> dict[str, Any]:
    """What every job has that somebody waits for: one message that tells of it, and its language."""
    return {
        "user": user,
        "chat_id": user,
        "bot_id": settings.bot_id,
        "language": words.language,
        "label": words(label),
        "on_done": "delete",  # what comes of it is the best news
        "key": f"{user}:{key}",
        "params": {**params, "language": words.language, "person": user},
    }


def download_job(
    settings: Settings, user: int, words: Words, *, key: str, link: int, url: str, quality: str
) -> dict[str, Any]:
    facts = {"link": link, "url": url, "quality": quality, "is_plain": quality == FILE or is_plain(url)}
    job = asked_job(settings, user, words, key=key, label="download", **facts)
    return {**job, "timeout": settings.timeout_s}


def quality_buttons(words: Words, link: int, sizes: dict[str, int | None], *, what: str = "get") -> dict[str, Any]:
    """A keyboard with a button to each quality, with its size if that is known."""
    names = {"best": words("best"), "audio": words("audio")}
    buttons = []
    for quality, size in sizes.items():
        name = names.get(quality, quality) + (f" · {megabytes(size)}" if size else "")
        text = words("list_of", quality=name) if what == "list" else name
        buttons.append({"text": text, "callback_data": f"{what}:{link}:{quality}"})
    width = 1 if what == "list" else 2
    return {"inline_keyboard": [buttons[at : at + width] for at in range(0, len(buttons), width)]}


class Work:
    """All kinds of jobs. `add` registers them, before Peik is opened."""

    def __init__(
        self, peik: Peik, settings: Settings, book: Book, fetcher: Fetcher, uploads: Uploads | None = None
    ) -> None:
        self._uploads = uploads
        self._peik = peik
        self._settings = settings
        self._book = book
        self._fetcher = fetcher

    def add(self) -> None:
        settings = self._settings
        self._peik.job(
            "download",
            concurrency=settings.downloads,
            per_user=settings.downloads_per_user,
            timeout=settings.timeout_s,
            attempts=4,
            folder=settings.file_bytes_max * 3,  # pictures and sound apart, and both joined
            jobs_a_day=settings.downloads_a_day,
        )(self.download)
        looks: Any = {"concurrency": settings.downloads, "per_user": settings.downloads_per_user, "attempts": 3}
        self._peik.job("look", **looks, timeout=LOOK_S, folder=LOOK_BYTES)(self.look)
        self._peik.job("list", **looks, timeout=LOOK_S, folder=LOOK_BYTES)(self.list_of)
        self._peik.job("remember", concurrency=32, per_user=32, attempts=5)(self.remember)
        self._peik.job("broadcast", concurrency=1, per_user=1, attempts=10)(self.broadcast)

    async def look(self, job: Job) -> None:
        """What is on a page: people choose the quality, and see its size before it is fetched."""
        words, link = words_of(job.params["language"]), job.params["link"]
        try:
            found = await look_at_site(job, job.params["url"], self._settings)
        except NoSuchSite:  # perhaps it is no page, but a file whose name does not say so
            await self._queue(job, words, link, job.params["url"], FILE, place=0)
            return
        entries = found.get("entries")
        if entries is None:
            if not found["qualities"]:
                raise JobHopeless(words("nothing_found"))
            text = words("choose_quality", title=found["title"][:TITLE_CHARS_MAX])
            await job.send_text(text, key="menu", reply_markup=quality_buttons(words, link, found["qualities"]))
            return
        if not entries:
            raise JobHopeless(words("nothing_found"))
        text = words("choose_from_list", count=len(entries), most=self._settings.playlist_max)
        buttons = quality_buttons(words, link, dict.fromkeys(QUALITIES), what="list")
        await job.send_text(text, key="menu", reply_markup=buttons)

    async def list_of(self, job: Job) -> dict[str, int]:
        """The first of a list, each a download of its own, until the day is used up."""
        words, queued = words_of(job.params["language"]), 0
        try:
            found = await look_at_site(job, job.params["url"], self._settings)
        except NoSuchSite:
            raise JobHopeless(words("nothing_found")) from None
        for place, url in enumerate(found.get("entries", ())[: self._settings.playlist_max]):
            link = await self._book.link(url)
            if not await self._queue(job, words, link, url, job.params["quality"], place=place):
                break
            queued += 1
        return {"queued": queued}

    async def _queue(self, job: Job, words: Words, link: int, url: str, quality: str, *, place: int) -> bool:
        """False: the day of this person is used up, and they are told."""
        a_day = self._settings.downloads_a_day
        asked = download_job(
            self._settings, job.params["person"], words, key=f"{job.id}:{place}", link=link, url=url, quality=quality
        )
        try:
            if (await self._peik.jobs_used("download", job.params["person"])).jobs >= a_day:
                raise Conflict(code="quota", detail="The day is used up.")
            await self._peik.queue_job("download", **asked)
        except Conflict as problem:
            if problem.code != "quota":
                raise
            await job.send_text(words("quota", a_day=a_day), key="quota")
            return False
        return True

    async def download(self, job: Job) -> dict[str, Any]:
        """Fetch, hand over to the outbox, have the file's id remembered."""
        file = await self._fetched(job)
        size_bytes = file.stat().st_size
        if not size_bytes:
            raise JobHopeless(words_of(job.params["language"])("nothing_found"))
        kind = sent_as(file.name)
        if self._uploads is not None and size_bytes > self._uploads.over_bytes:
            stored = await self._uploads.send(job, file, kind)
            await self._book.keep(job.params["link"], job.params["quality"], stored)
            return {"bytes": size_bytes}
        letter = await job.send(f"send{kind.capitalize()}", key="file", caption=file.name, **{kind: file})
        known_as = {"link": job.params["link"], "quality": job.params["quality"]}
        await self._peik.queue_job("remember", key=f"file-of-{job.id}", letter=letter, **known_as)
        return {"letter": letter, "bytes": size_bytes}

    async def _fetched(self, job: Job) -> Path:
        words = words_of(job.params["language"])
        url, settings = job.params["url"], self._settings
        try:
            if not job.params["is_plain"] or settings.is_socks:
                with suppress(NoSuchSite):  # perhaps it is no page, but a file whose name does not say so
                    return await fetch_from_site(job, url, quality=job.params["quality"], settings=settings)
            if settings.is_socks:
                raise PageInstead
            return await self._fetcher.fetch(job, url, words)
        except PageInstead:
            raise JobHopeless(words("nothing_found")) from None

    async def remember(self, job: Job) -> None:
        """Keep the id under which Telegram has a file, so that the next one who asks is answered at once."""
        receipt = await self._peik.wait(job.params["letter"], timeout=SEND_WAIT_S)
        if not receipt.state.is_final:
            raise JobLater(LATER_S, "Telegram has not got the file yet.")
        stored = stored_in(receipt.result)
        if stored is not None:
            await self._book.keep(job.params["link"], job.params["quality"], stored)

    async def broadcast(self, job: Job) -> dict[str, int]:
        """Copy one message to everybody, behind all other letters. Run again after a crash it repeats nothing: each letter
        has a key."""
        people = await self._book.count_hearers()
        words = words_of(job.params["language"])
        counts = {"sent": 0, "failed": 0, "waiting": 0}
        after = 0
        while chunk := await self._book.hearers(after=after, limit=CHUNK):
            for state in await self._copied(job, chunk):
                counts[_counted(state)] += 1
            after = chunk[-1]
            await job.progress(sum(counts.values()) / max(people, 1), words("broadcast_counts", **counts))
        await job.send_text(words("broadcast_done", **counts), key="counts")
        return counts

    async def _copied(self, job: Job, people: list[int]) -> list[State]:
        """How the letters to these people stand, once they have ended, or after a while."""
        letters = await self._peik.send_many(_copy(job.params, person, self._settings.bot_id) for person in people)
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(self._peik.wait(letter, timeout=CHUNK_WAIT_S)) for letter in letters]
        receipts = [end.result() for end in ends]
        for person, receipt in zip(people, receipts, strict=True):
            if "blocked by the user" in (receipt.failed_reason or ""):
                await self._book.set_gone(person)
        return [receipt.state for receipt in receipts]


def stored_in(result: Any) -> Stored | None:
    """The file in what Telegram answered. It may have made another kind of it than it was sent as."""
    for kind in _KINDS:
        found = result.get(kind) if isinstance(result, dict) else None
        if isinstance(found, list) and found:  # a photo is there in several sizes
            found = found[-1]
        if isinstance(found, dict):
            return Stored(kind=kind, file_id=found["file_id"])
    return None


def _copy(params: dict[str, Any], person: int, bot_id: int) -> Call:
    number = params["number"]
    return Call(
        "copyMessage",
        bot_id=bot_id,
        chat_id=person,
        from_chat_id=params["chat"],
        message_id=params["message"],
        priority=-1,
        idempotency_key=f"broadcast:{number}:{person}",
        metadata={"message_type": f"broadcast-{number}"},
    )


def _counted(state: State) -> str:
    if state is State.COMPLETED:
        return "sent"
    return "failed" if state in {State.FAILED, State.CANCELLED} else "waiting"
