"""The one place that speaks to redis-py: connections, scripts, and its errors in our words."""

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import hiredis
import msgspec
import redis
import redis.asyncio as aioredis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from peik.errors import InDoubt, StartError, StoreUnavailable
from peik.settings.config import shown_address
from peik.storage.redis.records import encode
from peik.wakeup import heeding

# The Lua scripts of the Redis store, put together from files of one idea each.


# A script is read by the server at every call, so that most calls should not bring what they do not need (measured: 65 µs
# for all of it). The first that knows all operations of a commit is taken.
_ACCEPT = ("prelude", "moving", "lease", "accept", "advance", "commit_end")
_NODES = ("prelude", "moving", "lease", "nodes", "commit_end")
_INTAKE = ("prelude", "moving", "arrivals", "spans", "consumers", "intake", "commit_end")
_COMMIT = (
    "prelude", "moving", "lease", "nodes", "accept", "advance", "time", "people", "remember",
    "arrivals", "spans", "consumers", "intake", "replay", "sweeping", "commit_end",
)  # fmt: skip
# So seldom asked for that no other commit is to bring it along.
_FORGETTING = (*_COMMIT[:-1], "forgetting", "commit_end")
_READ_LETTERS = ("prelude", "reading", "read_end")
_READ_NODES = ("prelude", "nodes_reading", "read_end")
_READ = ("prelude", "reading", "nodes_reading", "arrivals", "inbox_reading", "read_end")

_OPERATION = re.compile(r"^function ops\.(\w+)", re.MULTILINE)


class Script(msgspec.Struct, frozen=True):
    text: str
    digest: str
    operations: frozenset[str]


@cache
def commit_script(operations: frozenset[str]) -> Script:
    return _fitting((_ACCEPT, _INTAKE, _NODES, _COMMIT, _FORGETTING), operations)


def read_script(operations: Iterable[str]) -> Script:
    return _fitting((_READ_LETTERS, _READ_NODES, _READ), operations)


def keep_part_script() -> Script:
    return _script(("prelude", "keep_part"))


def _fitting(scripts: tuple[tuple[str, ...], ...], operations: Iterable[str]) -> Script:
    wanted = frozenset(operations)
    for names in scripts:
        script = _script(names)
        if wanted <= script.operations:
            return script
    raise AssertionError(wanted)


@cache
def _script(names: tuple[str, ...]) -> Script:
    folder = files("peik.storage.redis") / "lua"
    text = "\n".join((folder / f"{name}.lua").read_text(encoding="utf-8") for name in names)
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(text, digest, frozenset(_OPERATION.findall(text)))


# The writer's own connection. redis-py makes it (TLS, password, database); after that commands and answers go
# straight over it.
#
# What redis-py does around each command (a pool, a check of the socket, timeouts within timeouts) costs more than a
# commit of twenty letters does here, and a commit is never repeated, so that nothing of it is needed.


# Its stub means a tuple of one.
_packed = cast("Callable[[tuple[str | int | bytes, ...]], bytes]", hiredis.pack_command)
_GONE = "the server closed the connection"


class RedisLine:
    """Asks one thing after the other. A connection that is lost is made anew for the next question; what was asked and not
    answered on the old one fails, whether it was done or not."""

    def __init__(self, make: Callable[[], AbstractConnection], *, patience_s: float) -> None:
        self._make = make
        self._patience_s = patience_s
        self._wire: _Wire | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, *command: str | int | bytes) -> Any:
        """The answer. Raises RedisError if there is none, or if it is a refusal."""
        return answered(await (self.send(*command) or await self._send_anew(*command)))

    def send(self, *command: str | int | bytes) -> "asyncio.Future[Any] | None":
        """The same at once, for who cannot wait a turn of the event loop: the bytes are on their way when it returns, and the
        answer is to be read by `answered`. None: there is no connection, and nothing was sent."""
        wire = self._wire
        return None if wire is None or wire.is_lost else wire.send(_packed(command), self._patience_s)

    async def _send_anew(self, *command: str | int | bytes) -> "asyncio.Future[Any]":
        wire = await self._connected()
        return wire.send(_packed(command), self._patience_s)

    async def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def _connected(self) -> "_Wire":
        async with self._connecting:
            if self._wire is None or self._wire.is_lost:
                await self.close()
                connection = self._make()
                connect: Callable[[], Awaitable[None]] = connection.connect  # it has no types of its own
                try:
                    await heeding(connect())
                except BaseException:  # it may stand all the same: who asked was cancelled in that moment
                    await connection.disconnect(nowait=True)
                    raise
                self._wire = _Wire(connection)
            return self._wire


def answered(answer: Any) -> Any:
    """What the server said, if it is no refusal."""
    if isinstance(answer, exceptions.ResponseError):
        raise answer
    return answer


class _Wire(asyncio.Protocol):
    """One connection, from the moment on when redis-py has made it."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.is_lost = False
        self._connection = connection
        self._reader = hiredis.Reader(replyError=_refusal)
        self._asked: deque[tuple[asyncio.Future[Any], asyncio.TimerHandle]] = deque()
        self._loop = asyncio.get_running_loop()
        writer = connection._writer  # noqa: SLF001  there is no other way to what it has made
        assert writer is not None
        self._transport = writer.transport
        self._transport.set_protocol(self)

    def send(self, packed: bytes, patience_s: float) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        late = self._loop.call_later(patience_s, self._lose, exceptions.TimeoutError(f"silent for {patience_s:g} s"))
        self._asked.append((answer, late))
        self._transport.write(packed)
        return answer

    async def close(self) -> None:
        self._lose(exceptions.ConnectionError("this process closed the connection"))
        await self._connection.disconnect(nowait=True)

    def _lose(self, error: Exception) -> None:
        """Answers are told apart by their order alone: after one that did not come nothing can be read any more."""
        if not self.is_lost:  # TLS of Python 3.11.2 (Debian 12) cannot abort what is closed already
            self.is_lost = True
            self._transport.abort()
        while self._asked:
            answer, late = self._asked.popleft()
            late.cancel()
            if not answer.done():  # who asked may be gone
                answer.set_exception(error)

    # ---- what the event loop tells ----

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (answer := self._reader.gets()) is not False:
                if isinstance(answer, hiredis.PushNotification):
                    continue  # anyone who asked for RESP3 in the address may be told things that nobody asked for
                asked, late = self._asked.popleft()
                late.cancel()
                if not asked.done():
                    asked.set_result(answer)
        except (hiredis.HiredisError, IndexError) as error:
            self._lose(exceptions.ConnectionError(f"this is no answer of Redis: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(exceptions.ConnectionError(_GONE if error is None else str(error)))


class _Ears(asyncio.Protocol):
    """A connection on which one channel is heard, from the moment on when redis-py has made it. Each message costs 0.6 µs so,
    and 8.5 in redis-py's own way."""

    def __init__(
        self,
        connection: AbstractConnection,
        channel: str,
        hear: Callable[[bytes], None],
        *,
        begun: Callable[[], None],
    ) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hear = hear
        self._begun = begun
        self._reader = hiredis.Reader(replyError=_refusal)
        writer = connection._writer  # noqa: SLF001  there is no other way to what it has made
        assert writer is not None
        self._transport = writer.transport
        self._transport.set_protocol(self)
        self._transport.write(_packed(("SUBSCRIBE", channel)))

    def data_received(self, data: bytes) -> None:
        said: list[Any] = []
        try:
            self._reader.feed(data)
            while (one := self._reader.gets()) is not False:
                said.append(answered(one))
        except exceptions.RedisError as error:
            self._lose(error)
        except hiredis.HiredisError as error:
            self._lose(exceptions.ConnectionError(f"this is no message of Redis: {error}"))
        for kind, _, what in said:
            if kind == b"message":
                self._hear(what)
            elif kind == b"subscribe":
                self._begun()

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(exceptions.ConnectionError(_GONE if error is None else str(error)))

    def _lose(self, error: Exception) -> None:
        if not self.lost.done():
            self.lost.set_exception(error)


def _refusal(words: str) -> exceptions.ResponseError:
    return exceptions.NoScriptError(words) if words.startswith("NOSCRIPT") else exceptions.ResponseError(words)


T = TypeVar("T")

PREFIX = "peik:"
READERS_MAX = 15  # connections; who comes later waits for one, since a server counts them
CONNECT_S = 5.0
SENTINEL_S = 1.0  # for each: a dead machine says nothing, and the next is asked in time for a beat
COPIED_S = 2.0  # in which replicas take what is written, where the address asks for that
ANSWER_S = 20.0  # longer than any of our scripts takes, shorter than people wait
OLDEST = (7, 0)  # EVAL_RO, and scripts that are written to the log by their effects


_FAILED = 2  # what commit_end.lua says of an operation that the server would not do


class RedisGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What goes in one commit: which operations they are, the node and all of them in msgpack, and their records."""

    names: frozenset[str]
    asked: bytes
    records: list[bytes]


# A primary that may change: sentinels are asked who it is whenever a connection is made.


SENTINEL = "redis+sentinel"
SENTINEL_PORT = 26379


class SentinelAddress(msgspec.Struct, frozen=True, kw_only=True):
    """`redis+sentinel://user:password@one:26379,two:26379/name/0?sentinel_password=…`. User and password are the servers'."""

    sentinels: tuple[tuple[str, int], ...]
    name: str
    server: dict[str, Any]  # what redis-py is told of the primary
    sentinel: dict[str, Any]  # and of the sentinels

    @classmethod
    def read(cls, url: str) -> "SentinelAddress | None":
        """None: it is another kind of address. Raises StartError."""
        parts = urlsplit(url)
        if parts.scheme != SENTINEL:
            return None
        who, _, places = parts.netloc.rpartition("@")
        name, _, number = parts.path.strip("/").partition("/")
        found = [re.fullmatch(r"(\[[^]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", place) for place in places.split(",")]
        if not name or not all(found) or not (number or "0").isdecimal():
            raise StartError(
                "PEIK_STORE is like redis+sentinel://:password@one:26379,two:26379/mymaster/0: sentinels, the name that they "
                "have for the primary, and the number of the database."
            )
        user, _, password = who.partition(":")
        asked = dict(parse_qsl(parts.query))
        timeouts = {"socket_timeout": CONNECT_S, "socket_connect_timeout": SENTINEL_S}
        secret = asked.get("sentinel_password")
        return cls(
            sentinels=tuple((one[1].strip("[]"), int(one[2] or SENTINEL_PORT)) for one in found if one is not None),
            name=unquote(name),
            server={"db": int(number or 0)}
            | ({"username": unquote(user)} if user else {})
            | ({"password": unquote(password)} if password else {}),
            sentinel=timeouts | ({} if secret is None else {"password": secret}),
        )


class _PrimaryConnection(aioredis.Connection):
    """To whichever server the sentinels name when it connects."""

    def __init__(self, *, address: SentinelAddress, **settings: Any) -> None:
        self._sought = address
        super().__init__(**settings)

    async def connect(self) -> None:
        sought = self._sought
        ask: Callable[..., Sentinel] = Sentinel  # it has no types of its own
        found = ask(sought.sentinels, sentinel_kwargs=sought.sentinel)
        try:
            self.host, self.port = await found.discover_master(sought.name)
        finally:
            for one in found.sentinels:
                await one.aclose()
        connect: Callable[[], Awaitable[None]] = super().connect
        await connect()


class RedisClient:
    """Runs scripts. What was sent may have been done, so that a write is never repeated; a read is, once."""

    def __init__(self, url: str) -> None:
        self._url, self.prefix = split_prefix(url)
        self._sentinel = SentinelAddress.read(self._url)
        self._url, self._replicas = split_replicas(self._url)
        self._pools: list[aioredis.ConnectionPool] = []
        self._writing = RedisLine(self._made, patience_s=ANSWER_S)

    async def open(self) -> None:
        """Raises StartError with what to do if this is no server for us."""
        try:
            self.redis = self._connected(connections=READERS_MAX, repeats=1)
            await self._check_version()
        except ValueError as error:
            raise StartError(f"PEIK_STORE is not an address of a Redis server: {error}.") from None
        except exceptions.RedisError as error:
            await self.close()
            raise StartError(f"Cannot use {self.shown}: {_at_start(error)}") from error
        except BaseException:
            await self.close()
            raise

    def _connected(self, *, connections: int, repeats: int) -> "aioredis.Redis":
        settings = {"max_connections": connections, "timeout": ANSWER_S, **self._settings(repeats)}
        if self._sentinel is None:
            pool = aioredis.BlockingConnectionPool.from_url(self._url, **settings)
        else:
            to = {"connection_class": _PrimaryConnection, "address": self._sentinel, **self._sentinel.server}
            pool = aioredis.BlockingConnectionPool(**to, **settings)
        self._pools.append(pool)
        return aioredis.Redis(connection_pool=pool)

    def _made(self) -> AbstractConnection:
        if self._sentinel is not None:
            return _PrimaryConnection(address=self._sentinel, **self._sentinel.server, **self._settings(repeats=0))
        make: Callable[[], AbstractConnection] = aioredis.ConnectionPool.from_url(
            self._url, **self._settings(repeats=0)
        ).make_connection
        return make()

    def _settings(self, repeats: int) -> dict[str, Any]:
        settings: dict[str, Any] = {} if self._url.startswith("unix:") else {"socket_keepalive": True}
        waits = {"socket_timeout": ANSWER_S, "socket_connect_timeout": CONNECT_S}
        return settings | waits | {"retry": Retry(NoBackoff(), repeats)}

    async def _check_version(self) -> None:
        await self._writing.ask("PING")
        await self._execute("PING")
        try:
            info = await self.redis.info("server")
        except exceptions.ResponseError:
            return  # INFO is forbidden: the first script will tell
        if "valkey_version" in info:
            return
        version = tuple(int(part) for part in re.findall(r"\d+", str(info.get("redis_version", "")))[:2])
        if version and version < OLDEST:
            raise StartError(f"{self.shown} is Redis {info['redis_version']}. Peik needs Redis 7.0 or Valkey.")

    async def close(self) -> None:
        await self._writing.close()
        for pool in self._pools:
            await pool.disconnect()

    @property
    def waits_for_replicas(self) -> bool:
        return self._replicas > 0

    @property
    def shown(self) -> str:
        """Where it is, without its password."""
        if self._sentinel is not None:
            return shown_address(self._url)
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def send_commit(self, group: RedisGroup) -> "asyncio.Future[Any] | None":
        """Begin a commit at once. None: there is no connection, and `commit` has to make one."""
        return self._writing.send(*self._commit_of(group))

    async def commit(self, group: RedisGroup, begun: "asyncio.Future[Any] | None") -> list[Any]:
        """One atomic call for all of them; their answers once they are as durable as the server is told to make them."""
        try:
            answers: list[Any] = (
                await self._writing.ask(*self._commit_of(group)) if begun is None else answered(await begun)
            )
        except exceptions.NoScriptError:  # a new server, or somebody flushed them; nothing was done
            _, _, *rest = self._commit_of(group)
            answers = await self._writing.ask("EVAL", self._commit_script(group.names).text, *rest)
        if answers and answers[0][0] == _FAILED and answers[0][1].startswith(b"READONLY"):
            await self._writing.close()  # it was the primary once: the next one is elsewhere
        elif self._replicas:
            await self._be_copied()
        return answers

    async def _be_copied(self) -> None:
        """Until so many replicas have what this connection wrote. If not, it is done here, and a failover may undo it."""
        heard = await self._writing.ask("WAIT", self._replicas, int(COPIED_S * 1000))
        if heard < self._replicas:
            raise exceptions.TimeoutError(f"{heard} of {self._replicas} replicas have it after {COPIED_S:g} s")

    def _commit_of(self, group: RedisGroup) -> tuple[str | int | bytes, ...]:
        return ("EVALSHA", self._commit_script(group.names).digest, 1, self.prefix, group.asked, *group.records)

    def _commit_script(self, names: frozenset[str]) -> Script:
        return commit_script(names)

    async def read(self, *operations: Sequence[object]) -> list[Any]:
        """All of one snapshot."""
        script = read_script(str(operation[0]) for operation in operations)
        try:
            answers: list[Any] = await _run(self._execute, "EVALSHA_RO", script, self.prefix, encode(operations))
        except exceptions.RedisError as error:
            raise translate(error) from error
        return answers

    async def publish(self, channel: str, words: str) -> None:
        """After what was sent to be committed before. Raises RedisError if it was not said, or nobody knows."""
        await self._writing.ask("PUBLISH", channel, words)

    async def hear(self, channel: str, hear: Callable[[bytes], None], *, begun: Callable[[], None]) -> None:
        """Whatever is said on a channel, until the connection is lost, which raises RedisError. `begun`: from here on."""
        connection = self._made()
        connect: Callable[[], Awaitable[None]] = connection.connect  # it has no types of its own
        try:
            await heeding(connect())
            await _Ears(connection, channel, hear, begun=begun).lost
        finally:
            await connection.disconnect(nowait=True)

    async def keep_part(self, blob: str, place: int, part: bytes) -> None:
        """See `RedisFiles`. It may be repeated."""
        try:
            await _run(self._execute, "EVALSHA", keep_part_script(), self.prefix, blob, str(place), part)
        except exceptions.RedisError as error:
            raise translate(error) from error

    async def _execute(self, *command: str | int | bytes) -> Any:
        execute: Callable[..., Awaitable[Any]] = self.redis.execute_command  # it has no types of its own
        return await heeding(execute(*command))

    async def ask(self, command: Awaitable[T] | Any) -> T:
        """Any other command."""
        try:
            answer: T = await heeding(command)
        except exceptions.RedisError as error:
            raise translate(error) from error
        return answer


async def _run(execute: Callable[..., Awaitable[Any]], command: str, script: Script, *arguments: str | bytes) -> Any:
    try:
        return await execute(command, script.digest, 1, *arguments)
    except exceptions.NoScriptError:  # a new server, or somebody flushed them; nothing was done
        return await execute(command.replace("SHA", ""), script.text, 1, *arguments)


def split_replicas(url: str) -> tuple[str, int]:
    """The address for redis-py, and how many replicas must have what is accepted: `?replicas=1`."""
    address, _, queried = url.partition("?")
    asked = parse_qsl(queried, keep_blank_values=True)
    many = next((value for name, value in asked if name == "replicas"), "0")
    if not re.fullmatch(r"\d", many):
        raise StartError(
            "replicas in PEIK_STORE is how many replicas must have a letter before it is accepted: 0 to 9."
        )
    query = urlencode([(name, value) for name, value in asked if name not in ("replicas", "sentinel_password")])
    return f"{address}{'?' if query else ''}{query}", int(many)


def blocking_client(url: str, **settings: Any) -> redis.Redis:
    """For those who have no event loop; `url` as `split_prefix` gives it."""
    sentinel = SentinelAddress.read(url)
    if sentinel is None:
        return redis.Redis.from_url(split_replicas(url)[0], **settings)
    ask: Callable[..., Any] = redis.Sentinel  # it has no types of its own
    host, port = ask(sentinel.sentinels, sentinel_kwargs=sentinel.sentinel).discover_master(sentinel.name)
    return redis.Redis(host=host, port=port, **sentinel.server, **settings)


def split_prefix(url: str) -> tuple[str, str]:
    """The address for redis-py, and what all our keys begin with: the prefix and a hash tag, so that a cluster keeps
    them together."""
    address, _, queried = url.partition("?")
    asked = parse_qsl(queried, keep_blank_values=True)
    prefix = next((value for name, value in asked if name == "prefix"), PREFIX)
    if not re.fullmatch(r"[\w.:-]{1,64}", prefix):
        raise StartError("The prefix in PEIK_STORE may have letters, digits and . : - _ only, and at most 64 of them.")
    query = urlencode([(name, value) for name, value in asked if name != "prefix"])
    return f"{address}{'?' if query else ''}{query}", f"{prefix}{{{prefix.rstrip(':')}}}:"


_LOST = "What was being stored then may be there or not."
_NOTHING = "Nothing was accepted."

# By what the server's sentence begins with.
_REFUSALS = (
    ("OOM", "store_full", "Redis is at its maxmemory. Give it more, or free some; Peik goes on by itself."),
    ("READONLY", "store_read_only", "This Redis is a replica and cannot be written. Name the primary in PEIK_STORE."),
    ("LOADING", "store_loading", "Redis is still reading its data from disk. Wait; Peik goes on by itself."),
    ("MISCONF", "store_io", "Redis cannot write to its disk, and refuses to go on. Check its disk and its log."),
    ("NOREPLICAS", "store_io", "Redis has too few replicas to write (min-replicas-to-write)."),
    ("MASTERDOWN", "store_gone", "This Redis is a replica without its primary."),
    ("BUSY", "store_locked", "A script of another program keeps Redis busy."),
    ("NOAUTH", "store_denied", "Redis asks for a password. Put it into PEIK_STORE: redis://:password@host."),
    ("WRONGPASS", "store_denied", "Redis does not know this user with this password. Check PEIK_STORE."),
    ("NOPERM", "store_denied", "This Redis user may not do what Peik needs. Give it its keys, scripts and channel."),
)


def _at_start(error: exceptions.RedisError) -> str:
    """At a start nothing was being stored, and nobody waits for the server to come back."""
    told = translate(error)
    if told.code == "store_loading":
        return f"Redis is still reading its data from disk. Start Peik again when it is done. ({error})"
    if told.code == "store_gone" and isinstance(told, InDoubt):
        return f"Redis cannot be reached. Start it, or set PEIK_STORE to where it is. ({error})"
    return told.detail


def translate(error: BaseException) -> StoreUnavailable:
    """redis-py's errors in our words."""
    if isinstance(error, exceptions.AuthenticationError):
        return refused(f"WRONGPASS {error}")
    if isinstance(error, exceptions.BusyLoadingError):
        return refused(f"LOADING {error}")
    if isinstance(error, exceptions.ReadOnlyError):
        return refused(f"READONLY {error}")
    if isinstance(error, exceptions.OutOfMemoryError):
        return refused(f"OOM {error}")
    if isinstance(error, exceptions.TimeoutError):
        return InDoubt(code="store_gone", detail=f"Redis does not answer. {_LOST} ({error})")
    if isinstance(error, exceptions.ConnectionError):
        detail = f"Redis cannot be reached, or the connection broke. Peik goes on when it is back. {_LOST} ({error})"
        return InDoubt(code="store_gone", detail=detail)
    return refused(str(error))


def refused(words: str) -> StoreUnavailable:
    """What the server said, to a command or within a script."""
    for start, code, hint in _REFUSALS:
        if re.search(rf"\b{start}\b", words):
            return StoreUnavailable(code=code, detail=f"{hint} {_NOTHING} ({words})")
    return StoreUnavailable(code="store_error", detail=f"Redis refused: {words}.")


# How much a server keeps when it dies, told in sentences for `peik doctor` and the start.


async def weaknesses(redis: "aioredis.Redis") -> list[str]:
    """What stands between an answer and a disk, or between a letter and its delivery. Empty: nothing that can be told."""
    try:
        info: dict[str, Any] = await redis.info("everything")
    except exceptions.ResponseError:
        return ["This Redis user may not ask INFO: whether anything is durable cannot be told."]
    return [*_of_role(info), *await _of_log(redis, info), *_of_memory(info)]


async def has_replicas(redis: "aioredis.Redis") -> bool:
    try:
        return int((await redis.info("replication")).get("connected_slaves", 0)) > 0
    except exceptions.ResponseError:  # this user may not ask INFO, which `weaknesses` says
        return False


def _of_role(info: dict[str, Any]) -> list[str]:
    if info.get("role") in ("slave", "replica"):
        return ["This Redis is a replica: it takes no writes, or loses them. Name the primary in PEIK_STORE."]
    return []


async def _of_log(redis: "aioredis.Redis", info: dict[str, Any]) -> list[str]:
    if not int(info.get("aof_enabled", 0)):
        return ["Redis has no append-only file: a restart may lose everything. Set: appendonly yes."]
    found: list[str] = []
    if info.get("aof_last_write_status", "ok") != "ok":
        found.append("Redis failed to write its append-only file the last time. Check its disk.")
    try:
        policy = (await redis.config_get("appendfsync")).get("appendfsync")
    except exceptions.ResponseError:
        return [*found, "This Redis user may not ask CONFIG: how often the append-only file is synced cannot be told."]
    if policy != "always":
        lost = "up to a second" if policy == "everysec" else "some tens of seconds"
        found.append(f"Redis has appendfsync {policy}: a power cut may lose {lost} of accepted letters. Set: always.")
    return found


def _of_memory(info: dict[str, Any]) -> list[str]:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if not int(info.get("maxmemory", 0)) or not policy.startswith("allkeys"):
        return []  # the others throw away what expires by itself, and nothing of ours does
    return [f"Redis may throw away letters when its memory is full ({policy}). Set: maxmemory-policy noeviction."]
