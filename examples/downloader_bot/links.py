"""Which link a message holds, how it is to be fetched, and which addresses may be asked at all."""

import ipaddress
import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

QUALITIES = ("best", "720p", "480p", "audio")
FILE = "file"  # the one "quality" of a plain file
URL_CHARS_MAX = 2000

_LINK = re.compile(r"https?://[^\s<>\"']+", re.IGNORECASE)
_VIDEOS = frozenset({".mp4", ".m4v", ".mov", ".webm", ".mkv"})
_AUDIOS = frozenset({".mp3", ".m4a", ".aac", ".ogg", ".opus", ".flac", ".wav"})
_FILES = (
    _VIDEOS | _AUDIOS | {".7z", ".apk", ".avi", ".bin", ".csv", ".doc", ".docx", ".epub", ".exe", ".gif", ".gz", ".iso"}
)
_FILES |= {".jpeg", ".jpg", ".json", ".pdf", ".png", ".ppt", ".pptx", ".rar", ".srt", ".svg", ".tar", ".txt", ".webp"}
_FILES |= {".xls", ".xlsx", ".xz", ".zip"}


def link_in(text: str) -> str | None:
    """The first link in a text, without a fragment: what comes after # never reaches a server."""
    found = _LINK.search(text)
    if found is None or len(found[0]) > URL_CHARS_MAX:
        return None
    url = found[0].rstrip(".,;:!?)]}»").partition("#")[0]
    return url if host_of(url) else None


def host_of(url: str) -> str:
    """Its name; empty if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_plain(url: str) -> bool:
    """A file by its name. All else is a page, and yt-dlp knows what to do with it, or says that it does not."""
    return _suffix(unquote(urlsplit(url).path)) in _FILES


def sent_as(name: str) -> str:
    """How Telegram shows a file best: video, audio or document. Other kinds of videos do not play there."""
    suffix = _suffix(name)
    if suffix in {".mp4", ".m4v"}:
        return "video"
    return "audio" if suffix in {".mp3", ".m4a"} else "document"


def is_public(address: str) -> bool:
    """Whether an IP address is one of the open internet. A link must not lead the bot into the network that it runs in, least
    of all to Peik itself."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_global and not found.is_multicast


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()
