"""Pages: yt-dlp with all its sites, in a process of its own, which is killed for real when somebody cancels.

yt-dlp is imported in that process only: it is large, it blocks, and what it does to its process is its own affair. What it
says goes into the bot's log word for word, and with a sentence that helps to whoever asked.
"""

import logging
import re
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from examples.downloader_bot.links import QUALITIES, host_of, is_public
from examples.downloader_bot.settings import Settings
from examples.downloader_bot.words import Words, megabytes, words_of
from peik import BlockingJob, Job, JobHopeless
from peik.jobs.job import JobAnswers
from peik.jobs.processes import run_in_process

SILENCE_S = 30.0
TELL_S = 0.5
SAID_CHARS_MAX = 160
RETRIES = 5  # within one run, where a film breaks off; the job's own attempts come after that
log = logging.getLogger("downloader_bot.downloads")

# What yt-dlp says, and the sentence that helps. The first that is found counts.
_HELP = (
    ("needs_sign_in", r"sign ?in|log ?in|logged|cookies|private (video|account)|members.only|age.restrict|registered users"),
    ("not_in_country", r"country|geo.?restrict|region|not available from your location"),
    ("is_gone", r"unavailable|removed|deleted|terminated|no longer available|does not exist|copyright"),
    ("is_protected", r"\bdrm\b"),
    ("not_yet", r"premieres? |live event|will begin|upcoming|is_live|not (yet )?started"),
    ("too_many", r"too many requests|rate.?limit|\b429\b"),
)  # fmt: skip
# A film that breaks off: another try goes on where it was.
_PASSES = re.compile(r"\[download\] Got error:|more expected|timed out|giving up after", re.IGNORECASE)
_ADVICE = re.compile(r"(?:;| |\.)\s*(?:Use --|See {1,2}https|please report|Confirm you are on|Also see|\(caused by)")


class NoSuchSite(Exception):
    """yt-dlp finds nothing to download there."""


async def look_at_site(job: Job, url: str, settings: Settings) -> dict[str, Any]:
    """What is there: `qualities`, each with its size if that can be known, or `entries`, the links of a list.

    Raises JobHopeless in the words of whoever asked, and NoSuchSite."""
    return dict(await _in_process(look, job, url, settings))


async def fetch_from_site(job: Job, url: str, *, quality: str, settings: Settings) -> Path:
    """The file, in the job's folder. Raises as `look_at_site`."""
    return job.folder / str(await _in_process(fetch, job, url, settings, quality=quality))


async def _in_process(
    work: Callable[[BlockingJob], Any], job: Job, url: str, settings: Settings, *, quality: str = ""
) -> Any:
    cookies = None if settings.cookies is None else str(settings.cookies.absolute())
    more = {"bytes_max": settings.file_bytes_max, "may_be_private": settings.may_be_private, "cookies": cookies}
    params = {**job.params, **more, "url": url, "quality": quality, "proxy": settings.proxy}
    facts = {"id": job.id, "kind": job.kind, "user": job.user, "attempt": job.attempt, "metadata": job.metadata}
    answers = JobAnswers(job)
    try:
        found = await run_in_process(
            work,
            {**facts, "params": {**params, "entries_max": settings.playlist_max}, "folder": str(job.folder)},
            folder=job.folder,
            on_message=answers.answered,
            on_line=lambda job_id, line: log.info("job %s: %s", job_id, line),
        )
    finally:
        await answers.close()
    if found is None:
        raise NoSuchSite
    return found


# ---- in the other process ----


def look(job: BlockingJob) -> dict[str, Any] | None:
    """None: yt-dlp does not know such pages."""
    found = _asked(job, {"extract_flat": "in_playlist", "playlist_items": f"1-{job.params['entries_max']}"})
    if found is None:
        return None
    downloader, page = found
    if page.get("entries") is not None:
        links = [one.get("webpage_url") or one.get("url") for one in page["entries"] if one]
        return {"title": page.get("title") or "", "entries": [str(link) for link in links if link]}
    has_ffmpeg = shutil.which("ffmpeg") is not None
    qualities: dict[str, Any] = {}
    chosen: dict[str, str] = {}  # formats that are offered already, by the quality that has them
    for quality in QUALITIES:
        spec = format_of(quality, job.params["bytes_max"], has_ffmpeg=has_ffmpeg)
        formats = _chosen(downloader, page, spec)
        name = "+".join(str(one.get("format_id")) for one in formats)
        if formats and name not in chosen.values():
            chosen[quality] = name
            qualities[quality] = _size(downloader, formats, page.get("duration"))
    return {"title": page.get("title") or "", "qualities": qualities}


def fetch(job: BlockingJob) -> str | None:
    """The file's name; None: yt-dlp does not know such pages."""
    words = words_of(job.params["language"])
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

    more = {
        "format": format_of(job.params["quality"], limit, has_ffmpeg=shutil.which("ffmpeg") is not None),
        "outtmpl": str(job.folder / "%(title).60B.%(ext)s"),
        "progress_hooks": [on_progress],
        "playlist_items": "1",
    }
    found = _asked(job, more, is_wanted=True)
    if found is None:
        return None
    page = found[1]
    entry = page if page.get("entries") is None else next(iter(page["entries"]), {})
    files = [Path(one["filepath"]) for one in entry.get("requested_downloads") or ()]
    if not files:
        raise JobHopeless(words("nothing_found"))
    if files[0].stat().st_size > limit:
        raise JobHopeless(words("too_big", size=megabytes(limit)))
    return files[0].name


class _Said:
    """yt-dlp's logger: what it warns of and what fails is printed, and so comes into the bot's log."""

    def debug(self, words: str) -> None:
        pass  # thousands of lines

    def warning(self, words: str) -> None:
        print(f"yt-dlp: {_plain(words)}", flush=True)  # noqa: T201  it is read by the bot

    error = warning


def _asked(job: BlockingJob, more: dict[str, Any], *, is_wanted: bool = False) -> tuple[Any, dict[str, Any]] | None:
    """yt-dlp and what it found. `is_wanted`: the file, too. Raises JobHopeless in the words of whoever asked."""
    import yt_dlp  # type: ignore[import-untyped, unused-ignore]

    words, params = words_of(job.params["language"]), job.params
    proxy: str = params["proxy"]
    url: str = params["url"]
    refused: list[str] = [] if params["may_be_private"] else _stay_outside(urlsplit(proxy).hostname, url)
    options = {
        "noplaylist": True,  # a film that stands in a list is that film
        "socket_timeout": SILENCE_S,
        "retries": RETRIES,
        "fragment_retries": RETRIES,
        "cachedir": False,
        "logger": _Said(),
        "noprogress": True,
        "hls_prefer_native": True,  # ffmpeg would go to addresses that we have not looked at
        **more,
    }
    if proxy:
        options["proxy"] = proxy
    if params["cookies"]:
        # A copy: yt-dlp writes cookies back, and others do so at the same time.
        options["cookiefile"] = shutil.copy(params["cookies"], job.folder / ".cookies.txt")
    try:
        with job.host(host_of(url)):
            if refused:
                raise JobHopeless(words("not_allowed"))
            downloader = yt_dlp.YoutubeDL(options)
            try:
                return downloader, downloader.extract_info(url, download=is_wanted)
            finally:
                downloader.close()
    except yt_dlp.utils.DownloadError as error:
        if refused:
            raise JobHopeless(words("not_allowed")) from None
        _judge(error, words)
        return None


def format_of(quality: str, limit: int, *, has_ffmpeg: bool) -> str:
    """yt-dlp's words for a quality. Pictures and sound that come apart can be joined by ffmpeg only."""
    fits = f"[filesize<?{limit}]"
    if quality == "audio":
        return f"ba[ext=m4a]{fits}/ba{fits}/b{fits}"
    height = "" if quality == "best" else f"[height<=?{quality.removesuffix('p')}]"
    apart = f"bv*[ext=mp4]{height}{fits}+ba[ext=m4a]/" if has_ffmpeg else ""
    return f"{apart}b[ext=mp4]{height}{fits}/b{height}{fits}/w"


def _chosen(downloader: Any, page: dict[str, Any], spec: str) -> list[dict[str, Any]]:
    """The formats that yt-dlp would download for these words: one, or pictures and sound."""
    formats = page.get("formats") or [page]
    has_both = [one.get("acodec") != "none" and one.get("vcodec") != "none" for one in formats]
    context = {"formats": formats, "has_merged_format": any(has_both), "incomplete_formats": not any(has_both)}
    found = next(iter(downloader.build_format_selector(spec)(context)), None)
    return [] if found is None else list(found.get("requested_formats") or [found])


def _size(downloader: Any, formats: list[dict[str, Any]], duration_s: float | None) -> int | None:
    """Of all of them together. A server is asked where the page does not say. None: it cannot be known."""
    total = 0
    for one in formats:
        size = one.get("filesize") or one.get("filesize_approx")
        if not size and one.get("tbr") and duration_s:
            size = int(one["tbr"] * 125 * duration_s)
        if not size and str(one.get("protocol") or urlsplit(one.get("url", "")).scheme) in {"http", "https"}:
            size = _asked_size(downloader, one)
        if not size:
            return None
        total += int(size)
    return total


def _asked_size(downloader: Any, one: dict[str, Any]) -> int:
    from yt_dlp.networking import HEADRequest  # type: ignore[import-untyped, unused-ignore]
    from yt_dlp.networking.exceptions import RequestError  # type: ignore[import-untyped, unused-ignore]

    try:
        with downloader.urlopen(HEADRequest(one["url"], headers=one.get("http_headers") or {})) as answer:
            return int(answer.headers.get("Content-Length") or 0)
    except (RequestError, ValueError):  # a size is a courtesy
        return 0


def _plain(words: str) -> str:
    """Without colours, and without what yt-dlp says to people at a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", words).removeprefix("ERROR: ").strip()


def said_of(words: str) -> str:
    """yt-dlp's own words, short enough for a chat: without the name of its part, and without advice about its options."""
    text = re.sub(r"^\[[\w:+-]+\] (?:[^\s:]+: )?", "", _plain(words))
    text = _ADVICE.split(text, maxsplit=1)[0]
    return text.partition("\n")[0][:SAID_CHARS_MAX].rstrip(" .;,")


def help_of(words: str) -> str:
    """Which sentence helps: a name in texts/*.toml."""
    return next((name for name, form in _HELP if re.search(form, words, re.IGNORECASE)), "site_said")


def _judge(error: Any, words: Words) -> None:
    """Returns if it is a page that yt-dlp does not know. A fault that may pass is raised again, and so is what we said."""
    from yt_dlp.networking.exceptions import HTTPError, TransportError  # type: ignore[import-untyped, unused-ignore]
    from yt_dlp.utils import UnsupportedError  # type: ignore[import-untyped, unused-ignore]

    cause = error.exc_info[1] if error.exc_info else None
    said = str(error)
    for one in (cause, getattr(cause, "cause", None), getattr(cause, "orig_msg", None)):
        if isinstance(one, JobHopeless):
            raise one
        if isinstance(one, UnsupportedError):
            return
        if isinstance(one, HTTPError) and one.status < 500 and one.status not in {408, 425, 429}:
            name = help_of(said)
            if name == "needs_sign_in" or one.status in {401, 407}:
                raise JobHopeless(words("needs_sign_in", said=said_of(said))) from None
            raise JobHopeless(words("not_there", status=one.status)) from None
        if isinstance(one, TransportError | HTTPError):
            raise error
    if _PASSES.search(said):
        raise error
    raise JobHopeless(words(help_of(said), said=said_of(said))) from None


def _stay_outside(proxy: str | None, url: str) -> list[str]:
    """This process speaks to the open internet only, whatever a page says; and to the proxy of the settings, which looks names
    up by itself, so that the link is looked at before. It is ours alone, so this harms nobody. The list gets the names that
    were refused."""
    ask = socket.getaddrinfo
    refused: list[str] = []

    def getaddrinfo(*given: Any, **more: Any) -> list[Any]:
        everything = ask(*given, **more)
        found = [one for one in everything if proxy == given[0] or is_public(str(one[4][0]))]
        if not found:
            refused.append(str(given[0]))
            raise socket.gaierror(socket.EAI_NONAME, "That address is not on the open internet.")
        return found

    if proxy:
        with suppress(OSError):  # unknown here is no harm: the proxy may know it
            getaddrinfo(host_of(url), None)
    socket.getaddrinfo = getaddrinfo
    return refused
