"""A downloader bot under load: people send links to pages of ours, and everything that they get back is counted.

The bot is seen from outside only: what its people get, what it asks the pages, and what its process needs. So it may be
any program that speaks to Telegram; the example in the repository is the one that is taken if nothing is said.
"""

import asyncio
import contextlib
import json
import math
import os
import random
import re
import secrets
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from peik.demo.stage import Child, plain_environment
from peik.errors import BadInput, StartError
from peik.load.place import FIRST_BOT, LoadClient, decoded, sizes_of
from peik.load.plan import HANDLES, MEMORY, Latencies, LatencyFigures, Sample, Trend, TrendVerdict, trend
from peik.load.report import Machine, mb, page, plot, thinned, this_machine
from peik.load.run import process_look
from peik.monitoring.doctor import REQUESTS

if TYPE_CHECKING:
    from rich.console import RenderableType

PROGRAM = "python -m examples.downloader_bot --in-process"
STAGES = (500, 5_000, 10_000)  # new users a day, as an advertisement would bring them
HOUR_SHARE = 0.1  # of a day comes in its busiest hour
PEOPLE, LINKS_EACH = 16, 3  # who come at the same moment; one link more than the bot does at once for one of them
FILM_S = 120.0  # what a download takes in life, for the estimate: most of it is waiting for the site
FIRST_PERSON = 20_000_001
LOOK_S, READY_S = 0.25, 60.0
WATCH_S, TREE_S = 1.0, 5.0
PIECES = 20
_MEDIA = ("video", "audio", "document", "animation")
_SIM_LISTENS = re.compile(r"^(\{.*\})")
_ANY_LINE = re.compile(r"")
_HEAD = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"


# ---- the pages ----


class PageKind(StrEnum):
    """What stands behind a link. The last two have no film: whoever asked has to be told."""

    FILM = "film"
    PLAIN = "plain file"
    BROKEN = "film that breaks off once"
    FLAKY = "page that answers 503 once"
    SIGN_IN = "page that wants a sign-in"
    GONE = "page that is gone"

    @property
    def has_file(self) -> bool:
        return self not in (PageKind.SIGN_IN, PageKind.GONE)


_SHARES = {
    PageKind.FILM: 70,
    PageKind.PLAIN: 10,
    PageKind.BROKEN: 5,
    PageKind.FLAKY: 5,
    PageKind.SIGN_IN: 5,
    PageKind.GONE: 5,
}


class AskedFilm(msgspec.Struct, kw_only=True):
    """One link that one person sends. By its size the file is known again: no two have the same."""

    number: int
    person: int
    kind: PageKind
    due_s: float
    size_bytes: int
    asked: Counter[str] = msgspec.field(default_factory=Counter)  # how often for its page, and its file
    came_s: list[float] = []


class FilmServer:
    """Pages and films on loopback, each film as slow as it is wanted. It counts how many are being fetched."""

    def __init__(self, *, takes_s: float) -> None:
        self._takes_s = takes_s
        self._fetching: Counter[int] = Counter()  # by person
        self._serving: set[asyncio.Task[None]] = set()
        self.films: list[AskedFilm] = []
        self.is_held = False  # films go on, and do not end
        self.most, self.most_of_one, self.bytes = 0, 0, 0
        self.port = 0

    @property
    def fetching(self) -> int:
        return sum(self._fetching.values())

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["FilmServer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            try:
                yield self
            finally:
                for task in self._serving:
                    task.cancel()
                await asyncio.gather(*self._serving, return_exceptions=True)

    def url(self, film: AskedFilm) -> str:
        # Pages that fail are another host's: a bot may well leave a host alone that fails.
        host = "127.0.0.1" if film.kind in (PageKind.FILM, PageKind.PLAIN) else "localhost"
        path = f"file-{film.number}.bin" if film.kind is PageKind.PLAIN else f"watch/{film.number}"
        return f"http://{host}:{self.port}/{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                verb, path, _ = head.split(" ", 2)
                found = re.fullmatch(r"/(watch/|film-|file-)(\d+)(?:\.\w+)?(?:\?.*)?", path)
                if found is None or int(found[2]) >= len(self.films):
                    writer.write(_answer(404, b"Not here"))
                elif found[1] == "watch/":
                    writer.write(self._page(self.films[int(found[2])], verb))
                else:
                    begin = re.search(r"(?im)^range: bytes=(\d+)-", head)
                    await self._film(self.films[int(found[2])], writer, verb, None if begin is None else int(begin[1]))
                await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _page(self, film: AskedFilm, verb: str) -> bytes:
        film.asked["page"] += verb == "GET"
        if film.kind is PageKind.SIGN_IN:
            return _answer(401, b"Please sign in to watch this film")
        if film.kind is PageKind.GONE:
            return _answer(404, b"This film has been removed")
        if film.kind is PageKind.FLAKY and film.asked["page"] == 1:
            return _answer(503, b"Please come again")
        title = f"A film about ships, part {film.number}"
        text = f'<html><head><title>{title}</title></head><body><video src="/film-{film.number}.mp4" type="video/mp4"></video>'
        return _answer(200, f"{text}</body></html>".encode(), kind="text/html")

    async def _film(self, film: AskedFilm, writer: asyncio.StreamWriter, verb: str, begin: int | None) -> None:
        at = begin or 0
        writer.write(_head(200 if begin is None else 206, film.size_bytes, begin=begin, kind="video/mp4"))
        if verb != "GET":
            return
        film.asked["film"] += 1
        end = film.size_bytes // 2 if film.kind is PageKind.BROKEN and film.asked["film"] == 1 else film.size_bytes
        content = _HEAD + (film.size_bytes - len(_HEAD)).to_bytes(4) + b"mdat" + bytes(film.size_bytes - len(_HEAD) - 8)
        piece = max(1, film.size_bytes // PIECES)
        with self._counted(film.person) as ends:
            while at < end:
                size = piece if not self.is_held or at + 2 * piece < end else 1
                if at + size >= end:
                    ends()  # whoever has the last byte may begin the next film before we are here again
                writer.write(content[at : min(end, at + size)])
                await writer.drain()
                self.bytes += min(end, at + size) - at
                at += size
                if at < end:
                    await asyncio.sleep(self._takes_s / PIECES if size > 1 else 1.0)

    @contextlib.contextmanager
    def _counted(self, person: int) -> Iterator[Callable[[], None]]:
        """Fetched until it is called, or until the end."""
        with contextlib.ExitStack() as stack:
            self._fetching[person] += 1
            stack.callback(self._fetching.subtract, [person])
            self.most, self.most_of_one = max(self.most, self.fetching), max(self.most_of_one, self._fetching[person])
            yield stack.close


def _head(status: int, size: int, *, begin: int | None = None, kind: str = "text/plain") -> bytes:
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {kind}",
        "Connection: close",
        "Accept-Ranges: bytes",
        'ETag: "one"',
    ]
    if begin is not None:
        lines.append(f"Content-Range: bytes {begin}-{size - 1}/{size}")
    return "\r\n".join([*lines, f"Content-Length: {size - (begin or 0)}", "", ""]).encode()


def _answer(status: int, body: bytes, *, kind: str = "text/plain") -> bytes:
    return _head(status, len(body), kind=kind) + body


# ---- what is to be done ----


class DownloadWork(msgspec.Struct, frozen=True, kw_only=True):
    program: str = PROGRAM
    stages: tuple[int, ...] = STAGES
    for_s: float = 900.0  # of all stages together
    takes_s: float = 10.0
    size_bytes: int = 500_000
    at_once: int = 32
    per_person: int = 2
    people: int = PEOPLE  # who come at the same moment
    quiet_s: float = 15.0  # without anything new: then it has come to rest
    patience_s: float = 150.0  # the same while somebody still waits

    @property
    def stage_s(self) -> float:
        return self.for_s / len(self.stages)


def limits_of(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """At once, and for one person: as the bot itself is told by the same names."""
    try:
        return int(environment.get("MAX_CONCURRENT_DOWNLOADS", "32")), int(
            environment.get("MAX_DOWNLOADS_PER_USER", "2")
        )
    except ValueError:
        raise BadInput(
            code="bad_setting", detail="MAX_CONCURRENT_DOWNLOADS and MAX_DOWNLOADS_PER_USER are numbers."
        ) from None


def hourly(users_a_day: int) -> float:
    """Requests in the busiest hour, by the arithmetic of the doctor: five of each user, a tenth of the day in that hour."""
    return users_a_day * REQUESTS * HOUR_SHARE


def planned(work: DownloadWork, chance: random.Random) -> list[list[AskedFilm]]:
    """First those who come at the same moment, then each stage. Moments are those of a Poisson process."""
    numbers = iter(range(10_000_000))

    def film(person: int, due_s: float, kind: PageKind) -> AskedFilm:
        number = next(numbers)
        return AskedFilm(number=number, person=person, kind=kind, due_s=due_s, size_bytes=work.size_bytes + number)

    people = iter(range(FIRST_PERSON, FIRST_PERSON + 10_000_000))
    at_once = [
        film(person, 0.0, PageKind.FILM)
        for _ in range(work.people)
        for person in [next(people)]
        for _ in range(LINKS_EACH)
    ]
    found = [at_once]
    for users in work.stages:
        moments = sorted(chance.uniform(0.0, work.stage_s) for _ in range(round(hourly(users) * work.stage_s / 3600)))
        kinds = chance.choices(list(_SHARES), list(_SHARES.values()), k=len(moments))
        found.append([film(next(people), due_s, kind) for due_s, kind in zip(moments, kinds, strict=True)])
    return found


def planned_files(work: DownloadWork) -> int:
    """About how many will come; which links have none is chance."""
    staged = sum(round(hourly(users) * work.stage_s / 3600) for users in work.stages)
    share = sum(weight for kind, weight in _SHARES.items() if kind.has_file) / sum(_SHARES.values())
    return work.people * LINKS_EACH + round(staged * share)


# ---- what is found ----


class StageFound(msgspec.Struct, frozen=True, kw_only=True):
    users_a_day: int
    asked: int
    took: LatencyFigures | None  # from the link to the file
    waiting_max: int
    waiting_at_end: int
    kept_up: bool


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    users_a_day: int
    an_hour: float  # requests in its busiest hour
    fits: bool
    words: str


class DownloadsFound(msgspec.Struct, frozen=True, kw_only=True):
    machine: Machine
    work: DownloadWork
    seconds: float
    asked: dict[str, int]  # by kind of page
    files: int
    missing: int  # links with a file, whose person did not get it
    doubled: int
    told: dict[str, int]  # to those whose page has no film, numbers as 0
    untold: int
    instead: dict[str, int]  # the last words to those whose file did not come
    most_at_once: int
    most_of_one: int
    at_once_s: float  # until all of those who came at the same moment had everything
    stages: list[StageFound]
    memory: Trend
    handles: Trend
    handles_at_rest: tuple[
        int, int
    ]  # before the first link, after the last: each download has some, and later stages have more
    tree_mib_max: float  # of the bot and all processes that it started, shared pages counted once
    tree_processes_max: int
    cpu_s_each: float  # of one download, its looks and all its processes
    sizes_before: dict[str, int]
    sizes_after: dict[str, int]
    left: list[str]  # files that nobody needs any more
    capacity: list[Capacity]
    broken: list[str]
    series: dict[str, list[Sample]]

    @property
    def is_good(self) -> bool:
        return not self.broken


def capacity_of(work: DownloadWork, *, cpu_s_each: float, cores: int) -> list[Capacity]:
    """Whether the busiest hour of such a day can be borne, if a download takes two minutes as in life."""
    by_places = work.at_once * 3600 / FILM_S
    by_cpu = cores * 3600 / cpu_s_each if cpu_s_each else by_places
    found = []
    for users in sorted({*work.stages, *STAGES}):
        wanted = hourly(users)
        needs = []
        if wanted > by_places:
            needs.append(f"{-(-int(wanted * FILM_S) // 3600)} at once instead of {work.at_once}")
        if wanted > by_cpu:
            needs.append(f"{math.ceil(wanted * cpu_s_each / 3600)} cores instead of {cores}")
        words = f"{wanted:,.0f} downloads in its busiest hour; {work.at_once} at once do {by_places:,.0f}, this CPU {by_cpu:,.0f}"
        if needs:
            words += f": it needs {' and '.join(needs)}, or people wait"
        found.append(Capacity(users_a_day=users, an_hour=wanted, fits=not needs, words=words))
    return found


# ---- one run ----


class Crowd:
    """The people: what they ask, what they get, which button they press."""

    def __init__(self, sim: LoadClient, server: FilmServer, token: str, *, grow: Callable[[int], None]) -> None:
        self._sim = sim
        self._bot = int(token.partition(":")[0])
        self._server = server
        self._grow = grow
        self._after = {"sent": 0, "applied": 0}
        self._by_size: dict[int, AskedFilm] = {}
        self._chances: Counter[int] = Counter()  # buttons that a person may still press
        self._shown: dict[int, dict[int, str]] = {}  # texts that stand in a chat, by message
        self._seen: dict[int, set[str]] = {}  # all that ever stood there
        self.began_at = time.time()
        self.changed_at = time.monotonic()
        self.odd_files = 0

    @property
    def now_s(self) -> float:
        return time.time() - self.began_at

    async def say(self, film: AskedFilm) -> None:
        self._by_size[film.size_bytes] = film
        self._chances[film.person] += film.kind is not PageKind.PLAIN
        await self.write(film.person, self._server.url(film))

    async def write(self, person: int, text: str) -> None:
        body = {"bot": self._bot, "user": person, "text": text}
        decoded(await self._sim.ask("POST", "/sim/write", body), object, "The simulated Telegram")

    async def watch(self) -> None:
        while True:
            for what in ("sent", "applied"):
                for one in await self._news(what):
                    self._after[what], self.changed_at = one.number, time.monotonic()
                    await self._came(one)
            await asyncio.sleep(LOOK_S)

    async def _news(self, what: str) -> "list[_Line]":
        reply = await self._sim.ask("GET", f"/sim/{what}?after={self._after[what]}&limit=500")
        return decoded(reply, _Lines, "The simulated Telegram").result.deliveries

    async def _came(self, one: "_Line") -> None:
        shown = self._shown.setdefault(one.chat_id, {})
        if one.method.startswith("delete"):
            shown.pop(one.message_id, None)
            return
        if not one.method.startswith(("send", "edit", "copy")):
            return
        message = await self._message(one)
        files = [message[kind] for kind in _MEDIA if isinstance(message.get(kind), dict)]
        if files and not one.method.startswith("edit"):
            self._got(files[0])
            return
        shown[one.message_id] = one.text
        self._seen.setdefault(one.chat_id, set()).add(_alike(one.text))
        await self._press(one, message)

    async def _message(self, one: "_Line") -> dict[str, object]:
        query = f"/sim/message?bot={self._bot}&chat={one.chat_id}&message_id={one.message_id}"
        return decoded(await self._sim.ask("GET", query), _Message, "The simulated Telegram").result or {}

    def _got(self, file: object) -> None:
        film = self._by_size.get(file.get("file_size", 0)) if isinstance(file, dict) else None
        if film is None:
            self.odd_files += 1
            return
        film.came_s.append(self.now_s)
        if len(film.came_s) == 1:
            self._grow(1)

    async def _press(self, one: "_Line", message: dict[str, object]) -> None:
        """The first button, as somebody does who wants the best."""
        try:
            rows = msgspec.convert(message.get("reply_markup"), _Keyboard).inline_keyboard
        except msgspec.ValidationError:
            return
        data = next((button.callback_data for row in rows for button in row if button.callback_data), None)
        if data is None or not self._chances[one.chat_id]:
            return
        self._chances[one.chat_id] -= 1
        body = {"bot": self._bot, "user": one.chat_id, "message_id": one.message_id, "data": data}
        await self._sim.ask("POST", "/sim/press", body)

    def has_heard(self, person: int) -> bool:
        return person in self._seen

    def told(self, films: list[AskedFilm]) -> tuple[dict[str, int], int]:
        """The last words to each of those who cannot have a film, and how many of them heard nothing but what is said on the
        way to a film as well."""
        on_the_way: set[str] = set()
        for film in films:
            if film.kind.has_file and film.came_s:
                on_the_way |= self._seen.get(film.person, set())
        words: Counter[str] = Counter()
        untold = 0
        for film in films:
            if film.kind.has_file:
                continue
            last = self._last_words(film)
            if not last or _alike(last) in on_the_way:
                untold += 1
            else:
                words[_alike(last)] += 1
        return dict(words.most_common()), untold

    def instead(self, films: list[AskedFilm]) -> dict[str, int]:
        """What those were told last who should have had a film, and have none."""
        missing = [film for film in films if film.kind.has_file and not film.came_s]
        words = Counter(_alike(f"{film.kind}: {self._last_words(film) or 'nothing'}") for film in missing)
        return dict(words.most_common())

    def _last_words(self, film: AskedFilm) -> str:
        return next(reversed(self._shown.get(film.person, {}).values()), "")


class _Line(msgspec.Struct):
    number: int
    chat_id: int
    message_id: int
    method: str
    text: str


class _Lines(msgspec.Struct):
    class Result(msgspec.Struct):
        deliveries: list[_Line]

    result: Result


class _Message(msgspec.Struct):
    result: dict[str, object] | None


class _Keyboard(msgspec.Struct):
    class Button(msgspec.Struct):
        callback_data: str | None = None

    inline_keyboard: list[list[Button]]


def _alike(text: str) -> str:
    """Without what differs from one to the next."""
    return re.sub(r"\d+(?:[.,]\d+)*", "0", text).strip()


class TreeWatch:
    """The bot's process, once a second, and the whole of what it has started, now and then."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.began_at = time.time()
        self.memory: list[Sample] = []
        self.handles: list[Sample] = []
        self.tree: list[Sample] = []
        self.processes_max = 0

    async def run(self) -> None:
        tree_at_s = -TREE_S
        while True:
            now_s = time.time() - self.began_at
            found = process_look(self._pid)
            if found is not None:
                self.memory.append((now_s, float(found[0])))
                self.handles.append((now_s, float(found[1])))
            if now_s - tree_at_s >= TREE_S:
                tree_at_s = now_s
                pids = list(descendants(self._pid))
                self.processes_max = max(self.processes_max, len(pids))
                self.tree.append((now_s, sum(map(_proportional_bytes, pids)) / 2**20))
            await asyncio.sleep(WATCH_S)

    def handles_now(self) -> int:
        found = process_look(self._pid)
        return 0 if found is None else found[1]

    def cpu_s(self) -> float:
        """Of the process and of all that it has started and that have ended."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> Iterator[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += children.get(one, [])


def _proportional_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    found = re.search(r"(?m)^Pss:\s+(\d+) kB", text)
    return 0 if found is None else int(found[1]) * 1024


async def run_downloads(work: DownloadWork, *, seed: int, grow: Callable[[int], None]) -> DownloadsFound:
    """`grow` is told of each file that came. Raises StartError if the bot cannot be started."""
    stages = planned(work, random.Random(seed))
    server = FilmServer(takes_s=work.takes_s)
    for stage in stages:
        server.films += stage
    async with server.listening(), _bot_running(work, seed) as (bot, token, sim, folder):
        crowd = Crowd(sim, server, token, grow=grow)
        tree = TreeWatch(bot.pid)
        tasks = [asyncio.create_task(crowd.watch()), asyncio.create_task(tree.run())]
        try:
            await _ready(crowd, bot)
            before = sizes_of(folder)
            resting = tree.handles_now()
            doing = asyncio.create_task(_all_stages(work, stages, crowd, server, tree))
            await asyncio.wait([doing, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            at_once_s, found, cpu_s = await doing
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not bot.is_running:
            raise StartError("The bot has ended in the middle of the load. It said:\n" + "\n".join(bot.lines))
        return _found(
            work,
            server,
            crowd,
            tree,
            stages=found,
            at_once_s=at_once_s,
            cpu_s=cpu_s,
            before=before,
            folder=folder,
            resting=resting,
        )


@contextlib.asynccontextmanager
async def _bot_running(work: DownloadWork, seed: int) -> AsyncIterator[tuple[Child, str, LoadClient, Path]]:
    token = f"{FIRST_BOT}:load-{secrets.token_hex(8)}"
    first, *rest = shlex.split(work.program) or [""]
    bot = Child(*rest, program=sys.executable if first in ("python", "python3") else first)
    sim = Child("-m", "peik.testing", "--port", "0", "--seed", str(seed), "--config", json.dumps({"ledger_max": None}))
    with tempfile.TemporaryDirectory(prefix="peik-load-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        try:
            places = json.loads((await sim.start(_SIM_LISTENS, folder=folder, environment=plain_environment()))[1])
            client = LoadClient(places["control_url"])
            try:
                decoded(await client.ask("POST", "/sim/bots", {"token": token}), object, "The simulated Telegram")
                environment = _environment(work, token, places["url"], folder)
                try:
                    await bot.start(_ANY_LINE, folder=folder, environment=environment)
                except OSError as error:
                    raise BadInput(
                        code="no_program", detail=f"{work.program!r} cannot be started: {error.strerror}."
                    ) from None
                yield bot, token, client, folder
            finally:
                await client.close()
        finally:
            try:
                await bot.end()
            finally:
                await sim.end()


def _environment(work: DownloadWork, token: str, api_root: str, folder: Path) -> dict[str, str]:
    """What the example bot reads, and most others under the same names."""
    given = {
        "BOT_TOKEN": token,
        "PEIK_API_ROOT": api_root,
        "TELEGRAM_API_ROOT": api_root,
        "ALLOW_PRIVATE_LINKS": "yes",
        "SUPPORT_CONTACT": "@load",
        "MAX_CONCURRENT_DOWNLOADS": str(work.at_once),
        "MAX_DOWNLOADS_PER_USER": str(work.per_person),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
    }
    return plain_environment() | given


async def _ready(crowd: Crowd, bot: Child) -> None:
    person = FIRST_PERSON - 1
    await crowd.write(person, "/start")
    try:
        async with asyncio.timeout(READY_S):
            while not crowd.has_heard(person) and bot.is_running:  # noqa: ASYNC110  the crowd looks at the ledger as well
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        pass
    if not crowd.has_heard(person):
        said = "\n".join(bot.lines)
        raise StartError(f"The bot did not answer /start within {READY_S:.0f} s. It said:\n{said}")


async def _all_stages(
    work: DownloadWork, stages: list[list[AskedFilm]], crowd: Crowd, server: FilmServer, tree: TreeWatch
) -> tuple[float, list[StageFound], float]:
    """How long those at the same moment took, each stage, and CPU seconds of one download within the stages."""
    at_once_s = await _at_once(work, stages[0], crowd, server)
    cpu_s, found = tree.cpu_s(), []
    for users, films in zip(work.stages, stages[1:], strict=True):
        found.append(await _stage(users, films, work, crowd))
    await _until_quiet(work, [film for films in stages for film in films], crowd, server)
    done = sum(len(films) for films in stages[1:])
    # Anew, since what came after the end of a stage came late, and counts.
    taken = [_with_latencies(one, films) for one, films in zip(found, stages[1:], strict=True)]
    return at_once_s, taken, (tree.cpu_s() - cpu_s) / done if done else 0.0


async def _at_once(work: DownloadWork, films: list[AskedFilm], crowd: Crowd, server: FilmServer) -> float:
    """No film ends before as many are fetched as the bot fetches at once, so that the figure is not one of this machine."""
    server.is_held = True
    began_s = crowd.now_s
    for film in films:
        film.due_s = crowd.now_s
        await crowd.say(film)
    most, since = 0, time.monotonic()
    while time.monotonic() - since < (work.quiet_s if most else work.patience_s):
        if server.most > most:
            most, since = server.most, time.monotonic()
        await asyncio.sleep(LOOK_S)
    server.is_held = False
    await _until_quiet(work, films, crowd, server)
    return max((film.came_s[0] for film in films if film.came_s), default=began_s) - began_s


async def _stage(users: int, films: list[AskedFilm], work: DownloadWork, crowd: Crowd) -> StageFound:
    began_s, waiting_max = crowd.now_s, 0
    for film in films:
        film.due_s += began_s
    for film in films:
        await asyncio.sleep(max(0.0, film.due_s - crowd.now_s))
        await crowd.say(film)
        waiting_max = max(waiting_max, _open(films, crowd.now_s))
    await asyncio.sleep(max(0.0, began_s + work.stage_s - crowd.now_s))
    waiting = _open(films, crowd.now_s)
    return StageFound(
        users_a_day=users,
        asked=len(films),
        took=None,
        waiting_max=max(waiting_max, waiting),
        waiting_at_end=waiting,
        kept_up=waiting <= work.at_once,
    )


def _open(films: list[AskedFilm], now_s: float) -> int:
    return sum(film.kind.has_file and film.due_s <= now_s and not film.came_s for film in films)


def _with_latencies(found: StageFound, films: list[AskedFilm]) -> StageFound:
    took = Latencies()
    for film in films:
        if film.came_s:
            took.add(due_s=film.due_s, done_s=film.came_s[0])
    return msgspec.structs.replace(found, took=took.figures())


async def _until_quiet(work: DownloadWork, films: list[AskedFilm], crowd: Crowd, server: FilmServer) -> None:
    """Until everybody has what they asked for and nothing is said any more, or nothing has happened for a long time."""
    seen, since = server.bytes, time.monotonic()
    while True:
        await asyncio.sleep(LOOK_S)
        if server.bytes != seen or crowd.changed_at > since:
            seen, since = server.bytes, time.monotonic()
        is_done = not _open(films, crowd.now_s) and not server.fetching
        if time.monotonic() - since > (work.quiet_s if is_done else work.patience_s):
            return


def _found(
    work: DownloadWork,
    server: FilmServer,
    crowd: Crowd,
    tree: TreeWatch,
    *,
    stages: list[StageFound],
    at_once_s: float,
    cpu_s: float,
    before: dict[str, int],
    folder: Path,
    resting: int,
) -> DownloadsFound:
    films, machine = server.films, this_machine("the bot's own")
    wanted = [film for film in films if film.kind.has_file]
    told, untold = crowd.told(films)
    memory, handles = trend(tree.memory, MEMORY), trend(tree.handles, HANDLES)
    at_rest = (resting, tree.handles_now())
    left = left_in(folder, at_least=work.size_bytes)
    missing = sum(not film.came_s for film in wanted)
    doubled = sum(max(0, len(film.came_s) - 1) for film in wanted) + crowd.odd_files
    broken = [
        words.format(f"{count:,}")
        for count, words in (
            (missing, "{} people did not get their file"),
            (doubled, "{} files came twice, or not whole"),
            (untold, "{} people were not told that there is no file"),
            (len(left), "{} files were left on the disk"),
            (max(0, server.most - work.at_once), "{} more than allowed were fetched at once"),
            (max(0, server.most_of_one - work.per_person), "{} more than allowed were fetched at once for one person"),
        )
        if count
    ]
    broken += [f"{one.users_a_day:,} users a day were not kept up with" for one in stages if not one.kept_up]
    if memory.verdict is TrendVerdict.LEAK:
        broken.append(f"memory: {memory.words}")
    if at_rest[1] - at_rest[0] > HANDLES.allowed:
        broken.append(f"open handles at rest: {at_rest[0]} before, {at_rest[1]} after")
    return DownloadsFound(
        machine=machine,
        work=work,
        seconds=crowd.now_s,
        asked={str(kind): count for kind in PageKind if (count := sum(film.kind is kind for film in films))},
        files=len(wanted) - missing,
        missing=missing,
        doubled=doubled,
        told=told,
        untold=untold,
        instead=crowd.instead(films),
        most_at_once=server.most,
        most_of_one=server.most_of_one,
        at_once_s=at_once_s,
        stages=stages,
        memory=memory,
        handles=handles,
        handles_at_rest=at_rest,
        tree_mib_max=max((value for _, value in tree.tree), default=0.0),
        tree_processes_max=tree.processes_max,
        cpu_s_each=cpu_s,
        sizes_before=before,
        sizes_after=sizes_of(folder),
        left=left,
        capacity=capacity_of(work, cpu_s_each=cpu_s, cores=machine.cores),
        broken=broken,
        series={
            "memory of the bot, MiB": [(at, value / 2**20) for at, value in thinned(tree.memory)],
            "memory with all its processes, MiB": thinned(tree.tree),
            "open handles": thinned(tree.handles),
        },
    )


def left_in(folder: Path, *, at_least: int) -> list[str]:
    """Films and parts of films, wherever they lie, and whatever is in the folder for temporary files."""
    found = []
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        with contextlib.suppress(OSError):  # it went meanwhile
            if path.is_file() and (
                name.startswith("tmp/") or path.suffix in (".part", ".ytdl") or _is_film(path, at_least)
            ):
                found.append(name)
    return sorted(found)


def _is_film(path: Path, at_least: int) -> bool:
    with path.open("rb") as file:
        return path.stat().st_size >= at_least and file.read(len(_HEAD)) == _HEAD


# ---- what is shown ----


def downloads_verdict(found: DownloadsFound) -> str:
    if not found.is_good:
        return f"Not good: {'; '.join(found.broken)}."
    fits = [f"{one.users_a_day:,}" for one in found.capacity if one.fits]
    days = f"Ready for {' and for '.join(fits)} new users a day" if fits else "For none of these days is it ready"
    over = [f"{one.users_a_day:,}" for one in found.capacity if not one.fits]
    more = f"; {' and '.join(over)} would have to wait" if over and fits else ""
    return f"Everybody got a file or was told why not, and nothing was left behind. {days} if a download takes two minutes{more}."


def downloads_facts(found: DownloadsFound) -> list[tuple[str, str]]:
    work, machine = found.work, found.machine
    rows = [
        ("machine", f"{machine.system}, {machine.cores} cores, Python {machine.python}, Peik {machine.peik}"),
        ("bot", work.program),
        ("films", f"{mb(work.size_bytes)} in {work.takes_s:g} s; {found.seconds / 60:.0f} minutes in all"),
        ("links", ", ".join(f"{kind}: {count:,}" for kind, count in found.asked.items())),
        ("files", f"{found.files:,} came, {found.missing:,} did not, {found.doubled:,} too many"),
        (
            "at once",
            f"at most {found.most_at_once} of {work.at_once}, for one person {found.most_of_one} of {work.per_person}",
        ),
        (f"{work.people} people at once", f"{LINKS_EACH} links each; all had everything after {found.at_once_s:.0f} s"),
    ]
    for stage in found.stages:
        took = (
            ""
            if stage.took is None
            else f", link → file p50 {stage.took.p50_ms / 1000:.0f} s, p99 {stage.took.p99_ms / 1000:.0f} s"
        )
        kept = "kept up" if stage.kept_up else "not kept up"
        rows.append(
            (
                f"{stage.users_a_day:,} users a day",
                f"{kept}: {stage.asked:,} links{took}, at most {stage.waiting_max} open",
            )
        )
    rows += [(f"told {count:,} times", words.replace("\n", " · ")) for words, count in found.told.items()]
    rows += [(f"no file, {count:,} times", words.replace("\n", " · ")) for words, count in found.instead.items()]
    rows += [("not told", f"{found.untold:,}")]
    memory, handles = found.memory, found.handles
    rows += [
        ("memory of the bot", f"{memory.words}; {memory.highest:.0f} MiB at most"),
        ("with its downloads", f"{found.tree_mib_max:,.0f} MiB at most, in {found.tree_processes_max} processes"),
        (
            "open handles",
            f"at rest {found.handles_at_rest[0]} before and {found.handles_at_rest[1]} after; {handles.highest:.0f} at most",
        ),
        ("CPU of one download", f"{found.cpu_s_each:.1f} s"),
        ("left on the disk", ", ".join(found.left) or "nothing"),
    ]
    for name, size in sorted(found.sizes_after.items(), key=lambda one: -one[1]):
        if size >= 1024:
            rows.append((f"size of {name}", f"{mb(found.sizes_before.get(name, 0))} → {mb(size)}"))
    rows += [
        (f"a day with {one.users_a_day:,}", ("yes: " if one.fits else "no: ") + one.words) for one in found.capacity
    ]
    return rows


def downloads_drawn(found: DownloadsFound) -> "RenderableType":
    from rich.console import Group

    from peik.cli.output import facts, plain

    return Group(
        facts(downloads_facts(found)),
        plain(""),
        plain(downloads_verdict(found), "green" if found.is_good else "red"),
    )


def downloads_html(found: DownloadsFound, *, made_at: str) -> str:
    plots = [
        plot(name.rpartition(", ")[0] or name, {name: points}, unit="")
        for name, points in found.series.items()
        if points
    ]
    return page(
        title="Load test of a downloader bot",
        made_at=made_at,
        verdict=downloads_verdict(found),
        is_good=found.is_good,
        facts=downloads_facts(found),
        parts=plots,
    )
