"""All settings of the bot, read from the environment once."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from peik.core.token import Token
from peik.core.units import parse_size_bytes
from peik.errors import BadInput

CLOUD_BYTES_MAX = 50 * 2**20  # of one upload, by the Bot API
ACCOUNT_BYTES_MAX = 2000 * 2**20  # the same over MTProto


@dataclass(frozen=True, kw_only=True)
class Settings:
    token: str
    peik_url: str  # of a `peik serve`; its gateway and its REST
    peik_key: str
    store: str  # of that Peik: what the worker, or the bot with Peik inside, works on
    book: Path  # the bot's own file: people, sponsors, file ids
    admins: frozenset[int]
    support: str
    file_bytes_max: int  # 50M is what Telegram's cloud takes; 2000M over MTProto, or with a local Bot API server
    api_id: int | None  # with these two, larger files go over MTProto: the one switch
    api_hash: str
    cookies: Path | None  # of a browser, for sites that want a sign-in
    proxy: str  # that downloads go through
    playlist_max: int  # files of one list
    logs: Path  # a folder: bot.log, universal_downloader.log
    downloads: int
    downloads_per_user: int
    downloads_a_day: int  # of one person
    timeout_s: float
    may_be_private: bool  # links to this machine and its network: for tests, and never else

    @property
    def bot_id(self) -> int:
        return int(self.token.partition(":")[0])

    @property
    def is_socks(self) -> bool:
        """Only yt-dlp speaks to such a proxy."""
        return self.proxy.startswith("socks")


def settings_of(environment: Mapping[str, str] = os.environ) -> Settings:
    """Ends the program with a sentence if something is missing or cannot be read."""
    try:
        return _read(environment)
    except KeyError as error:
        sys.exit(f"Set {error.args[0]} in the environment. See examples/downloader_bot/README.md.")
    except BadInput as problem:
        sys.exit(f"BOT_TOKEN cannot be right: {problem.detail}")
    except ValueError as error:
        sys.exit(f"A setting cannot be read: {error}. See examples/downloader_bot/README.md.")


def _read(given: Mapping[str, str]) -> Settings:
    admins = given.get("ADMIN_IDS", "").replace(",", " ").split()
    Token(given["BOT_TOKEN"])
    cookies = Path(given["COOKIES_FILE"]) if given.get("COOKIES_FILE") else None
    if cookies is not None and not cookies.is_file():
        raise ValueError(f"there is no file {cookies} (COOKIES_FILE)")
    proxy = given.get("PROXY", "")
    if proxy and not proxy.startswith(("http://", "https://", "socks5://", "socks5h://", "socks4://")):
        raise ValueError("PROXY begins with http:// or socks5://")
    api_id = int(given["API_ID"]) if given.get("API_ID") else None
    usual = "50M" if api_id is None else "2000M"
    file_bytes_max = int(parse_size_bytes(given.get("FILE_MAX", usual)))
    is_cloud = api_id is None and "api.telegram.org" in given.get("PEIK_API_ROOT", "https://api.telegram.org")
    if is_cloud and file_bytes_max > CLOUD_BYTES_MAX:
        raise ValueError("FILE_MAX over 50M needs API_ID and API_HASH, or a local Bot API server in PEIK_API_ROOT")
    return Settings(
        token=given["BOT_TOKEN"].strip(),
        peik_url=given.get("PEIK_URL", "http://127.0.0.1:8081"),
        peik_key=given.get("PEIK_KEY", ""),
        store=given.get("PEIK_STORE", "sqlite:///peik.db"),
        book=Path(given.get("BOT_BOOK", "downloader.db")),
        admins=frozenset(int(one) for one in admins),
        support=given["SUPPORT_CONTACT"],
        file_bytes_max=file_bytes_max,
        api_id=api_id,
        api_hash=given.get("API_HASH", "") if api_id is None else given["API_HASH"],
        cookies=cookies,
        proxy=proxy,
        playlist_max=int(given.get("PLAYLIST_MAX", "10")),
        logs=Path(given.get("LOG_DIR", "logs")),
        downloads=int(given.get("MAX_CONCURRENT_DOWNLOADS", "32")),
        downloads_per_user=int(given.get("MAX_DOWNLOADS_PER_USER", "2")),
        downloads_a_day=int(given.get("DOWNLOADS_A_DAY", "50")),
        timeout_s=float(given.get("DOWNLOAD_TIMEOUT", "1800")),
        may_be_private=given.get("ALLOW_PRIVATE_LINKS", "") == "yes",
    )
