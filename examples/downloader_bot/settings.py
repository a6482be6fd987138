"""All settings of the bot, read from the environment once."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from peik.core.units import parse_size_bytes


@dataclass(frozen=True, kw_only=True)
class Settings:
    token: str
    peik_url: str  # of a `peik serve`; its gateway and its REST
    peik_key: str
    store: str  # of that Peik: what the worker, or the bot with Peik inside, works on
    book: Path  # the bot's own file: people, sponsors, file ids
    admins: frozenset[int]
    support: str
    file_bytes_max: int  # 50M is what Telegram's cloud takes; 2000M with a local Bot API server
    downloads: int
    downloads_per_user: int
    downloads_a_day: int  # of one person
    timeout_s: float
    may_be_private: bool  # links to this machine and its network: for tests, and never else

    @property
    def bot_id(self) -> int:
        return int(self.token.partition(":")[0])


def settings_of(environment: Mapping[str, str] = os.environ) -> Settings:
    """Ends the program with a sentence if something is missing or cannot be read."""
    try:
        return _read(environment)
    except KeyError as error:
        sys.exit(f"Set {error.args[0]} in the environment. See docs/downloader-bot.md.")
    except ValueError as error:
        sys.exit(f"A setting cannot be read: {error}. See docs/downloader-bot.md.")


def _read(given: Mapping[str, str]) -> Settings:
    admins = given.get("ADMIN_IDS", "").replace(",", " ").split()
    return Settings(
        token=given["BOT_TOKEN"],
        peik_url=given.get("PEIK_URL", "http://127.0.0.1:8081"),
        peik_key=given.get("PEIK_KEY", ""),
        store=given.get("PEIK_STORE", "sqlite:///peik.db"),
        book=Path(given.get("BOT_BOOK", "downloader.db")),
        admins=frozenset(int(one) for one in admins),
        support=given["SUPPORT_CONTACT"],
        file_bytes_max=int(parse_size_bytes(given.get("FILE_MAX", "50M"))),
        downloads=int(given.get("MAX_CONCURRENT_DOWNLOADS", "32")),
        downloads_per_user=int(given.get("MAX_DOWNLOADS_PER_USER", "2")),
        downloads_a_day=int(given.get("DOWNLOADS_A_DAY", "50")),
        timeout_s=float(given.get("DOWNLOAD_TIMEOUT", "1800")),
        may_be_private=given.get("ALLOW_PRIVATE_LINKS", "") == "yes",
    )
