"""Pages: yt-dlp with all its sites, in a process of its own, which is killed for real when somebody cancels.

yt-dlp is imported in that process only: it is large, it blocks, and what it does to its process is its own affair.
"""

import shutil
import socket
import time
from pathlib import Path
from typing import Any

from examples.downloader_bot.links import host_of, is_public
from examples.downloader_bot.words import Words, megabytes, words_of
from peik import BlockingJob, Job, JobHopeless
from peik.jobs.job import JobAnswers
from peik.jobs.processes import run_in_process

SILENCE_S = 30.0
TELL_S = 0.5


class NoSuchSite(Exception):
    """yt-dlp finds nothing to download there."""


async def fetch_from_site(job: Job, url: str, *, quality: str, bytes_max: int, may_be_private: bool) -> Path:
    """The file, in the job's folder. Raises JobHopeless in the words of whoever asked, and NoSuchSite."""
    params = {**job.params, "url": url, "quality": quality, "bytes_max": bytes_max, "may_be_private": may_be_private}
    facts = {"id": job.id, "kind": job.kind, "user": job.user, "params": params, "attempt": job.attempt}
    answers = JobAnswers(job)
    try:
        name = await run_in_process(
            fetch,
            {**facts, "metadata": job.metadata, "folder": str(job.folder)},
            folder=job.folder,
            on_message=answers.answered,
        )
    finally:
        await answers.close()
    if name is None:
        raise NoSuchSite
    return job.folder / str(name)


def fetch(job: BlockingJob) -> str | None:
    """In the other process: the file's name; None: yt-dlp does not know such pages."""
    import yt_dlp  # type: ignore[import-untyped, unused-ignore]

    words = words_of(job.params["language"])
    refused: list[str] = [] if job.params["may_be_private"] else _stay_outside()
    told_at = 0.0
    limit: int = job.params["bytes_max"]

    def on_progress(told: dict[str, Any]) -> None:
        done, whole = told.get("downloaded_bytes") or 0, told.get("total_bytes") or told.get("total_bytes_estimate")
        if max(done, told.get("total_bytes") or 0) > limit:
            raise JobHopeless(words("too_big", size=megabytes(limit)))
        nonlocal told_at
        if time.monotonic() < told_at + TELL_S:
            return  # it calls with every block, and each word to Peik is waited for
        told_at = time.monotonic()
        job.progress(done / whole if whole else None, megabytes(done))

    options = {
        "format": format_of(job.params["quality"], limit, has_ffmpeg=shutil.which("ffmpeg") is not None),
        "outtmpl": str(job.folder / "%(title).60B.%(ext)s"),
        "progress_hooks": [on_progress],
        "noplaylist": True,
        "playlist_items": "1",
        "socket_timeout": SILENCE_S,
        "cachedir": False,
        "quiet": True,
        "no_warnings": True,
        "noprogress": True,
        "hls_prefer_native": True,  # ffmpeg would go to addresses that we have not looked at
    }
    url = job.params["url"]
    try:
        with job.host(host_of(url)), yt_dlp.YoutubeDL(options) as downloader:
            found = downloader.extract_info(url)
    except yt_dlp.utils.DownloadError as error:
        if refused:
            raise JobHopeless(words("not_allowed")) from error
        _judge(error, words)
        return None
    files = [Path(one["filepath"]) for one in _entry(found).get("requested_downloads") or ()]
    if not files:
        raise JobHopeless(words("nothing_found"))
    return _fitting(files[0], limit, words).name


def format_of(quality: str, limit: int, *, has_ffmpeg: bool) -> str:
    """yt-dlp's words for a quality. Pictures and sound that come apart can be joined by ffmpeg only."""
    fits = f"[filesize<?{limit}]"
    if quality == "audio":
        return f"ba[ext=m4a]{fits}/ba{fits}/b{fits}"
    height = "" if quality == "best" else f"[height<=?{quality.removesuffix('p')}]"
    apart = f"bv*[ext=mp4]{height}{fits}+ba[ext=m4a]/" if has_ffmpeg else ""
    return f"{apart}b[ext=mp4]{height}{fits}/b{height}{fits}/w"


def _entry(found: Any) -> dict[str, Any]:
    entries = found.get("entries")
    return found if entries is None else next(iter(entries), {})


def _fitting(file: Path, limit: int, words: Words) -> Path:
    if file.stat().st_size > limit:
        raise JobHopeless(words("too_big", size=megabytes(limit)))
    return file


def _judge(error: Any, words: Words) -> None:
    """Returns if it is a page that yt-dlp does not know. A fault that may pass is raised again, and so is what we said."""
    from yt_dlp.networking.exceptions import HTTPError, TransportError  # type: ignore[import-untyped, unused-ignore]
    from yt_dlp.utils import UnsupportedError  # type: ignore[import-untyped, unused-ignore]

    cause = error.exc_info[1] if error.exc_info else None
    for one in (cause, getattr(cause, "cause", None), getattr(cause, "orig_msg", None)):
        if isinstance(one, JobHopeless):
            raise one
        if isinstance(one, UnsupportedError):
            return
        if isinstance(one, HTTPError) and one.status < 500 and one.status not in {408, 425, 429}:
            raise JobHopeless(words("not_there", status=one.status)) from error
        if isinstance(one, TransportError | HTTPError):
            raise error
    raise JobHopeless(words("nothing_found")) from error


def _stay_outside() -> list[str]:
    """This process speaks to the open internet only, whatever a page says. It is ours alone, so this harms nobody. The list
    gets the names that were refused."""
    ask = socket.getaddrinfo
    refused: list[str] = []

    def getaddrinfo(*given: Any, **more: Any) -> list[Any]:
        found = [one for one in ask(*given, **more) if is_public(str(one[4][0]))]
        if not found:
            refused.append(str(given[0]))
            raise socket.gaierror(socket.EAI_NONAME, "That address is not on the open internet.")
        return found

    socket.getaddrinfo = getaddrinfo
    return refused
