"""What a TelegramClient is made of: the session it signs in with, the way it goes, and the device it says to be."""

import contextlib
import re
import sqlite3
import struct
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
from telethon.sessions import SQLiteSession, StringSession

from peik.core.problem import BadInput

ENTITIES_MAX = 20_000  # people and chats whose access hashes are remembered; others are looked up again

_FILE = re.compile(r"[A-Za-z0-9+@_-][A-Za-z0-9+@._-]{0,120}")
_PROXIES = {"socks5": "socks5", "socks5h": "socks5", "socks4": "socks4", "http": "http"}
_PORTS = {"socks5": 1080, "socks4": 1080, "http": 8080}


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What Telegram shows in its list of devices. It never follows the machine, the kernel or our version: a session whose
    device changes looks stolen."""

    model: str = "Peik"
    system: str = "Linux"
    app: str = "1.0"
    language: str = "en"

    def options(self) -> dict[str, str]:
        return {
            "device_model": self.model,
            "system_version": self.system,
            "app_version": self.app,
            "lang_code": self.language,
            "system_lang_code": self.language,
        }


def session_of(secret: str | None, file: str | None, folder: Path | None) -> Callable[[], Any]:
    """How to open the session. Raises BadInput, now or when it is opened."""
    if file is not None:
        path = session_path(file, folder)
        return lambda: _open_file(path)
    return lambda: _open_string(secret)


def session_path(file: str, folder: Path | None) -> Path:
    """Where a session file lies: in the folder, never elsewhere."""
    if folder is None:
        raise BadInput(code="no_sessions_dir", detail="This session is kept in a file: set PEIK_SESSIONS_DIR.")
    if not _FILE.fullmatch(file):
        raise BadInput(
            code="malformed_session_file", detail="A session file is named by letters, digits and . _ - + @ only."
        )
    name = file if file.endswith(".session") else f"{file}.session"
    return folder / name


def _open_string(secret: str | None) -> Any:
    try:
        session = StringSession(secret or None)
    except (ValueError, struct.error):
        # Not "from error": what it quotes could be part of the key.
        raise BadInput(code="malformed_session", detail="This is not a session string of Telethon 1.") from None
    session._entities = _Rows()  # noqa: SLF001  a set there: it grows with everybody ever seen
    return session


class _Rows(dict[Any, tuple[Any, ...]]):
    """What Telethon knows of people and chats, the latest seen, in place of a set of rows that only grows."""

    def __ior__(self, rows: Iterable[tuple[Any, ...]]) -> Self:  # type: ignore[override, misc]
        for row in rows:
            self.pop(row[0], None)
            self[row[0]] = row
        while len(self) > ENTITIES_MAX:
            del self[next(iter(self.keys()))]
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())


def _open_file(path: Path) -> Any:
    if not path.is_file():
        raise BadInput(code="no_session_file", detail=f"There is no session file {path.name} in PEIK_SESSIONS_DIR.")
    with contextlib.suppress(sqlite3.Error, ValueError, TypeError):
        return SQLiteSession(str(path))
    raise BadInput(code="malformed_session_file", detail=f"{path.name} is not a session file of Telethon 1.")


def proxy_of(url: str | None) -> dict[str, Any] | None:
    """A proxy as Telethon takes it. Raises BadInput: Telethon would go without a proxy that it cannot use."""
    if url is None:
        return None
    try:
        parts = urllib.parse.urlsplit(url)
        kind, host, port = _PROXIES.get(parts.scheme), parts.hostname, parts.port
    except ValueError:
        kind = host = port = None
    if kind is None or not host:
        raise BadInput(
            code="malformed_proxy",
            detail="A session's proxy should be like socks5://user:password@host:1080 or http://host:8080.",
        )
    try:
        import python_socks  # noqa: F401  only who uses a proxy needs it
    except ImportError:
        raise BadInput(
            code="no_proxy_support",
            detail="A session needs python-socks to use a proxy: pip install peik[sessions].",
        ) from None
    return {
        "proxy_type": kind,
        "addr": host,
        "port": port or _PORTS[kind],
        "username": urllib.parse.unquote(parts.username) if parts.username else None,
        "password": urllib.parse.unquote(parts.password) if parts.password else None,
        "rdns": True,
    }
