"""The network of the seeded world: between Peik and Telegram, and between Peik's doors and everybody who comes to them."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from peik.core.outcome import NetworkFault, Reply
from peik.telegram.port import Request
from peik.testing.telegram import Telegram
from peik.testing.virtual import SimCarrier
from simulation.processes import OUTSIDE, Process

LATENCY_S = 0.05
CONNECT_S = 10.0  # how long a connection is tried for

App = Callable[[dict[str, Any], Callable[..., Any], Callable[..., Any]], Any]


class Lost(Exception):
    """No answer came. Whether the request was heard is not known."""


class Answered(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    headers: dict[str, str]

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Weather(msgspec.Struct):
    """How the network is now. Probabilities are of each message; `is_cut` parts the two sides altogether."""

    refused: float = 0.0  # the connection cannot be made: nothing left
    lost_before: float = 0.0  # it left and never came
    lost_after: float = 0.0  # it was heard, and the answer is lost
    hangs: float = 0.0  # of what is lost: how often nobody hears of it before the time is up, instead of a reset
    delay_s: float = 0.0  # at most so much more, each way
    is_cut: bool = False

    def clear(self) -> None:
        self.refused = self.lost_before = self.lost_after = self.hangs = self.delay_s = 0.0
        self.is_cut = False


class Tally(msgspec.Struct):
    """What the network did, for the report."""

    requests: int = 0
    refused: int = 0
    lost_requests: int = 0
    lost_answers: int = 0


class Try:
    """One request of a process to Telegram, and what is known of it on either side."""

    __slots__ = ("epoch", "is_bulk", "process", "reply", "request", "started_at")

    def __init__(self, request: Request, process: Process, started_at: float) -> None:
        self.request = request
        self.process = process
        self.started_at = started_at
        self.reply: Reply | None = None  # what the process was told; None: nothing so far
        self.is_bulk = False
        self.epoch: int | None = None  # under which its letter was marked


class WeatherCarrier(SimCarrier):
    """Takes the calls of one process to Telegram. What has left goes its way, even if the process dies on the next line."""

    def __init__(
        self,
        telegram: Telegram,
        process: Process,
        weather: Weather,
        *,
        chance: random.Random,
        tally: Tally,
        left: Callable[[Try], None],
        told: Callable[[Try], None],
        is_apart: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_apart`: whether just this process is cut off from Telegram."""
        super().__init__(telegram, latency_s=LATENCY_S, context=OUTSIDE)
        self._owner = process
        self._weather = weather
        self._chance = chance
        self._tally = tally
        self._left = left
        self._told = told
        self._is_apart = is_apart

    def start(self, request: Request, done: Callable[[Reply], None]) -> None:
        one = Try(request, self._owner, self._loop.time())
        self._left(one)
        self._tally.requests += 1
        weather, chance = self._weather, self._chance

        def is_cut() -> bool:
            return weather.is_cut or self._is_apart()

        def tell(reply: Reply) -> None:
            if one.reply is None:
                one.reply = reply
                self._owner.tell(hear, reply)

        def hear(reply: Reply) -> None:
            self._told(one)
            done(reply)

        def vanish() -> None:
            """Nobody hears of it any more: a reset, or silence until the time is up."""
            silent = Reply(fault=NetworkFault.TIMEOUT, detail="no answer in time")
            if is_cut() or chance.random() < weather.hangs:
                self._later(max(0.0, one.started_at + request.timeout_s - self._loop.time()), lambda: tell(silent))
            else:
                tell(Reply(fault=NetworkFault.RESET, detail="connection reset"))

        def answered(reply: Reply) -> None:
            if is_cut() or chance.random() < weather.lost_after:
                self._tally.lost_answers += 1
                vanish()
            else:
                self._later(chance.uniform(0.0, weather.delay_s), lambda: tell(reply))

        def arrive() -> None:
            if is_cut() or chance.random() < weather.lost_before:
                self._tally.lost_requests += 1
                vanish()
            else:
                SimCarrier.start(self, request, answered)

        if chance.random() < weather.refused or (is_cut() and chance.random() < 0.5):
            # No connection was open, and none can be had.
            self._tally.refused += 1
            fault = NetworkFault.CONNECT_TIMEOUT if is_cut() else NetworkFault.REFUSED
            gone = Reply(fault=fault, left=False, detail="no connection")
            self._later(CONNECT_S if is_cut() else LATENCY_S, lambda: tell(gone))
        else:
            self._later(chance.uniform(0.0, weather.delay_s), arrive)

    async def close(self) -> None:
        """What has left is with the network now."""


class Doors:
    """The way to the HTTP applications of a process for all who are not in it."""

    def __init__(self, weather: Weather, *, chance: random.Random, tally: Tally) -> None:
        self._weather = weather
        self._chance = chance
        self._tally = tally

    async def ask(
        self,
        process: Process | None,
        app: App | None,
        verb: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        timeout_s: float = 60.0,
    ) -> Answered:
        """One HTTP request. Raises Lost."""
        weather, chance = self._weather, self._chance
        self._tally.requests += 1
        await asyncio.sleep(LATENCY_S / 2 + chance.uniform(0.0, weather.delay_s))
        if process is None or app is None or process.is_dead or weather.is_cut or chance.random() < weather.refused:
            self._tally.refused += 1
            raise Lost("connection refused")
        if chance.random() < weather.lost_before:
            self._tally.lost_requests += 1
            raise Lost("connection reset")
        answered: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        gone = _Gone()
        take_back = process.when_dead(lambda: _hang_up(answered))
        process.start(_serve(app, _scope(verb, path, headers, body), body, answered, gone))
        try:
            async with asyncio.timeout(timeout_s):
                answer = await _heard(answered)
        except TimeoutError:
            raise Lost("no answer in time") from None
        finally:
            take_back()
            process.tell(gone.set)
        await asyncio.sleep(LATENCY_S / 2 + chance.uniform(0.0, weather.delay_s))
        if weather.is_cut or chance.random() < weather.lost_after:
            self._tally.lost_answers += 1
            raise Lost("connection reset")
        return answer


def _hang_up(answered: "asyncio.Future[Answered]") -> None:
    answered.cancel()


async def _heard(answered: "asyncio.Future[Answered]") -> Answered:
    await asyncio.wait([answered])
    if answered.cancelled():
        raise Lost("connection reset")
    return answered.result()


class _Gone:
    """Whether the client has hung up, as the server will find out."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        if not self._is_set:
            self._future = asyncio.get_running_loop().create_future()
            await self._future


def _scope(verb: str, path: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    bare, _, query = path.partition("?")
    fields = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": verb,
        "scheme": "http",
        "path": bare,
        "raw_path": bare.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [*fields, (b"content-length", b"%d" % len(body))],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8081),
    }


async def _serve(
    app: App, scope: dict[str, Any], body: bytes, answered: "asyncio.Future[Answered]", gone: _Gone
) -> None:
    """In the process: what its HTTP server does with one request."""
    parts: list[bytes] = []
    status = 0
    headers: dict[str, str] = {}
    is_read = False

    async def receive() -> dict[str, Any]:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            parts.append(message.get("body", b""))
            if not message.get("more_body") and not answered.done():
                answered.set_result(Answered(status, b"".join(parts), headers))

    try:
        await app(scope, receive, send)
    except Exception as error:  # noqa: BLE001  an application must not raise; the world hears of it and calls it wrong
        asyncio.get_running_loop().call_exception_handler({"message": f"{scope['path']} raised", "exception": error})
        answered.cancel()
