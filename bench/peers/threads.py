"""The same questions for queues whose callers and workers are threads."""

import http.client
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from queue import Queue
from typing import Any

import msgspec
import psutil

from bench.figures import percentiles
from bench.ground import Ground
from bench.payload import TOKEN
from bench.peers.harness import CALLERS, IDLE, IDLE_PAUSE_S, PATIENCE_S

WORKERS = 8  # threads; more of them only wait for the interpreter


class ThreadPeer:
    def __init__(self, ground: Ground, store: str) -> None:
        self.ground = ground
        self.store = store
        self.seen_at: Queue[float] | None = None
        self._done = 0
        self._wanted = -1
        self._lock = threading.Lock()
        self._enough = threading.Event()
        self._own = threading.local()

    def open(self) -> None: ...

    def close(self) -> None: ...

    def add(self, number: int) -> None:
        raise NotImplementedError

    def working(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def bytes_kept(self) -> float | None:
        return None

    def post(self, fields: Any) -> None:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = http.client.HTTPConnection("127.0.0.1", self.ground.stub_port)
        body = msgspec.json.encode(fields)
        connection.request("POST", f"/bot{TOKEN}/sendMessage", body, {"Content-Type": "application/json"})
        said = msgspec.json.decode(connection.getresponse().read())
        assert said["ok"], said
        if self.seen_at is not None:
            self.seen_at.put(said["result"]["seen_at"])

    def settled(self) -> None:
        with self._lock:
            self._done += 1
            if self._done == self._wanted:
                self._enough.set()

    def settle(self, wanted: int) -> None:
        with self._lock:
            self._wanted = wanted
            if self._done == wanted:
                self._enough.set()
        assert self._enough.wait(PATIENCE_S), f"{self._done} of {wanted} in {PATIENCE_S} s"


def measure(peer: ThreadPeer, work: str) -> dict[str, float]:
    letters = peer.ground.letters
    peer.open()
    try:
        match work:
            case "accept_1":
                singles = peer.ground.share(2_000)
                return {work: singles / _add_all(peer, singles, callers=1)}
            case "accept_50":
                empty = peer.bytes_kept()
                taken_s = _add_all(peer, letters, callers=CALLERS)
                full = peer.bytes_kept()
                kept = {"bytes_each": (full - empty) / letters} if full is not None and empty is not None else {}
                return {work: letters / taken_s} | kept
            case "drain":
                _add_all(peer, letters, callers=1)
                began = time.monotonic()
                with peer.working():
                    peer.settle(letters)
                    taken_s = time.monotonic() - began
                rss_mb = psutil.Process().memory_info().rss / 1e6
                return {"drain": letters / taken_s, "rss_mb": rss_mb}
            case "idle":
                return _idle(peer, peer.ground.share(IDLE))
    finally:
        peer.close()
    raise ValueError(work)


def _add_all(peer: ThreadPeer, letters: int, *, callers: int) -> float:
    def one_caller(first: int) -> None:
        for number in range(first, letters, callers):
            peer.add(number)

    began = time.monotonic()
    if callers == 1:
        one_caller(0)
    else:
        with ThreadPoolExecutor(callers) as pool:
            list(pool.map(one_caller, range(callers)))
    return time.monotonic() - began


def _idle(peer: ThreadPeer, letters: int) -> dict[str, float]:
    peer.seen_at = Queue()
    taken: list[float] = []
    with peer.working():
        for number in range(letters + 1):
            time.sleep(IDLE_PAUSE_S)
            began = time.monotonic()
            peer.add(number)
            taken.append(peer.seen_at.get(timeout=PATIENCE_S) - began)
    half, most = percentiles(taken[1:])
    return {"idle_p50_ms": half * 1000, "idle_p99_ms": most * 1000}


def main(make: Callable[[Ground, str], ThreadPeer]) -> None:
    work, store, text = sys.argv[1:]
    ground = msgspec.json.decode(text, type=Ground)
    found = measure(make(ground, str(getattr(ground, store, None) or ground.folder)), work)
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
