"""The bot's own small store: one SQLite file in WAL mode, one thread. The bot and its worker may have it open together."""

import asyncio
import datetime
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

_T = TypeVar("_T")
BUSY_S = 15.0


@dataclass(frozen=True, kw_only=True)
class Person:
    id: int
    language: str
    is_banned: bool
    is_new: bool = False


@dataclass(frozen=True, kw_only=True)
class Sponsor:
    chat: str
    title: str
    url: str
    told_at: int = 0


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A file that Telegram has already."""

    kind: str
    file_id: str


@dataclass(frozen=True, kw_only=True)
class Figures:
    people: int
    new_today: int
    gone: int
    banned: int
    asked_today: int
    at_once_today: int
    campaigns: list[tuple[str, int]]


class Book:
    """`async with Book(path) as book:`. What a method wrote is on disk when it returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="book")

    async def __aenter__(self) -> Self:
        self._file = await self._do(self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._do(lambda: self._file.close())
        self._thread.shutdown()

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        _write_ahead(file)
        file.executescript(Path(__file__).with_name("book.sql").read_text(encoding="utf-8"))
        return file

    async def _do(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _rows(self, sql: str, *values: Any) -> list[Any]:
        return await self._do(lambda: self._file.execute(sql, values).fetchall())

    async def _row(self, sql: str, *values: Any) -> Any:
        rows = await self._rows(sql, *values)
        return rows[0] if rows else None

    # ---- people ----

    async def meet(self, person_id: int, language: str) -> Person:
        """Who it is; a stranger is written down. Whoever writes has not blocked the bot."""
        made = await self._row(
            "INSERT INTO people (id, language, came_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING id",
            *(person_id, language, int(time.time())),
        )
        language, is_banned = await self._row(
            "UPDATE people SET is_gone = 0 WHERE id = ? RETURNING language, is_banned", person_id
        )
        return Person(id=person_id, language=language, is_banned=bool(is_banned), is_new=made is not None)

    async def set_language(self, person_id: int, language: str) -> None:
        await self._rows("UPDATE people SET language = ? WHERE id = ?", language, person_id)

    async def language(self, person_id: int) -> str | None:
        row = await self._row("SELECT language FROM people WHERE id = ?", person_id)
        return None if row is None else str(row[0])

    async def set_gone(self, person_id: int) -> None:
        await self._rows("UPDATE people SET is_gone = 1 WHERE id = ?", person_id)

    async def set_banned(self, person_id: int, *, is_banned: bool) -> bool:
        """Whether there is such a person."""
        sql = "UPDATE people SET is_banned = ? WHERE id = ? RETURNING id"
        return await self._row(sql, int(is_banned), person_id) is not None

    async def started(self, person_id: int, campaign: str) -> None:
        """Somebody came by `/start <campaign>`."""
        await self._rows(
            "INSERT INTO campaigns VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET starts = starts + 1", campaign
        )
        await self._rows("UPDATE people SET campaign = coalesce(campaign, ?) WHERE id = ?", campaign, person_id)

    async def hearers(self, *, after: int, limit: int) -> list[int]:
        """Whom a broadcast goes to, in the order of their ids."""
        rows = await self._rows(
            "SELECT id FROM people WHERE id > ? AND NOT is_banned AND NOT is_gone ORDER BY id LIMIT ?", after, limit
        )
        return [person_id for (person_id,) in rows]

    async def count_hearers(self) -> int:
        (count,) = await self._row("SELECT count(*) FROM people WHERE NOT is_banned AND NOT is_gone")
        return int(count)

    # ---- links and files ----

    async def link(self, url: str) -> int:
        """The number of a link, the same each time."""
        await self._rows("INSERT INTO links (url) VALUES (?) ON CONFLICT DO NOTHING", url)
        (link,) = await self._row("SELECT id FROM links WHERE url = ?", url)
        return int(link)

    async def url(self, link: int) -> str | None:
        row = await self._row("SELECT url FROM links WHERE id = ?", link)
        return None if row is None else str(row[0])

    async def stored(self, link: int, quality: str) -> Stored | None:
        row = await self._row("SELECT kind, file_id FROM files WHERE link = ? AND quality = ?", link, quality)
        return None if row is None else Stored(kind=row[0], file_id=row[1])

    async def keep(self, link: int, quality: str, stored: Stored) -> None:
        await self._rows("REPLACE INTO files VALUES (?, ?, ?, ?)", link, quality, stored.kind, stored.file_id)

    async def drop(self, link: int, quality: str) -> None:
        """Telegram does not know that file any more."""
        await self._rows("DELETE FROM files WHERE link = ? AND quality = ?", link, quality)

    async def asked(self, *, at_once: bool) -> None:
        await self._rows(
            "INSERT INTO requests VALUES (?, 1, ?) "
            "ON CONFLICT (day) DO UPDATE SET asked = asked + 1, at_once = at_once + excluded.at_once",
            *(_today(), int(at_once)),
        )

    # ---- sponsors ----

    async def sponsors(self) -> list[Sponsor]:
        rows = await self._rows("SELECT chat, title, url, told_at FROM sponsors ORDER BY rowid")
        return [Sponsor(chat=chat, title=title, url=url, told_at=told_at) for chat, title, url, told_at in rows]

    async def add_sponsor(self, sponsor: Sponsor) -> None:
        await self._rows(
            "INSERT INTO sponsors (chat, title, url) VALUES (?, ?, ?) "
            "ON CONFLICT (chat) DO UPDATE SET title = excluded.title, url = excluded.url",
            *(sponsor.chat, sponsor.title, sponsor.url),
        )

    async def remove_sponsor(self, chat: str) -> None:
        await self._rows("DELETE FROM sponsors WHERE chat = ?", chat)

    async def may_tell_of(self, chat: str, *, every_s: int) -> bool:
        """Whether it is time to tell admins (again) that the bot cannot see a channel. Whoever is told so tells them."""
        now = int(time.time())
        sql = "UPDATE sponsors SET told_at = ? WHERE chat = ? AND told_at <= ? RETURNING chat"
        return await self._row(sql, now, chat, now - every_s) is not None

    # ---- broadcasts and figures ----

    async def broadcast(self, chat: int, message: int) -> int:
        """The number of a broadcast of that message, the same however often somebody presses."""
        values = (chat, message)
        await self._rows(
            "INSERT INTO broadcasts (chat, message, begun_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            *(*values, int(time.time())),
        )
        (number,) = await self._row("SELECT id FROM broadcasts WHERE chat = ? AND message = ?", *values)
        return int(number)

    async def figures(self) -> Figures:
        midnight = int(datetime.datetime.now(datetime.UTC).replace(hour=0, minute=0, second=0).timestamp())
        people, new_today, gone, banned = await self._row(
            "SELECT count(*), coalesce(sum(came_at >= ?), 0), coalesce(sum(is_gone), 0), coalesce(sum(is_banned), 0) FROM people",
            midnight,
        )
        asked, at_once = await self._row("SELECT asked, at_once FROM requests WHERE day = ?", _today()) or (0, 0)
        campaigns = await self._rows("SELECT name, starts FROM campaigns ORDER BY starts DESC, name LIMIT 20")
        return Figures(
            people=people,
            new_today=new_today,
            gone=gone,
            banned=banned,
            asked_today=asked,
            at_once_today=at_once,
            campaigns=campaigns,
        )

    # ---- conversations ----

    async def step(self, place: str) -> tuple[str | None, str]:
        return await self._row("SELECT state, data FROM steps WHERE place = ?", place) or (None, "{}")

    async def set_step(self, place: str, *, state: str | None) -> None:
        await self._rows(
            "INSERT INTO steps (place, state) VALUES (?, ?) ON CONFLICT (place) DO UPDATE SET state = excluded.state",
            *(place, state),
        )
        await self._rows("DELETE FROM steps WHERE place = ? AND state IS NULL AND data = '{}'", place)

    async def set_step_data(self, place: str, data: str) -> None:
        await self._rows(
            "INSERT INTO steps (place, data) VALUES (?, ?) ON CONFLICT (place) DO UPDATE SET data = excluded.data",
            *(place, data),
        )
        await self._rows("DELETE FROM steps WHERE place = ? AND state IS NULL AND data = '{}'", place)


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _write_ahead(file: sqlite3.Connection) -> None:
    """The bot and its worker may both be the first. SQLite does not wait for the other here, whatever its timeout is."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return
