"""dramatiq on Redis, with its worker threads in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

from bench.payload import fields
from bench.peers.threads import WORKERS, ThreadPeer, main


class Dramatiq(ThreadPeer):
    def open(self) -> None:
        redis.Redis.from_url(self.store).flushall()
        self._broker = RedisBroker(url=self.store)
        self._broker.add_middleware(_Settled(self))

        def send(wanted: dict[str, Any]) -> None:
            self.post(wanted)

        self._actor = dramatiq.actor(send, broker=self._broker)

    def close(self) -> None:
        self._broker.close()

    def add(self, number: int) -> None:
        self._actor.send(fields(number))

    @contextmanager
    def working(self) -> Iterator[None]:
        worker = dramatiq.Worker(self._broker, worker_threads=WORKERS)
        worker.start()
        yield
        worker.stop()


class _Settled(dramatiq.Middleware):
    def __init__(self, peer: Dramatiq) -> None:
        self._peer = peer

    def after_ack(self, broker: Any, message: Any) -> None:
        self._peer.settled()


if __name__ == "__main__":
    main(Dramatiq)
