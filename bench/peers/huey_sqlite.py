"""huey on SQLite with fsync on, with its consumer's threads in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huey import SqliteHuey
from huey.signals import SIGNAL_COMPLETE

from bench.payload import fields
from bench.peers.threads import WORKERS, ThreadPeer, main


class Huey(ThreadPeer):
    def open(self) -> None:
        self._file = Path(self.store) / "huey.db"
        self._huey = SqliteHuey("bench", filename=str(self._file), fsync=True, results=False, timeout=60)

        def send(wanted: dict[str, Any]) -> None:
            self.post(wanted)

        self._task = self._huey.task()(send)
        self._huey.signal(SIGNAL_COMPLETE)(lambda *_: self.settled())

    def add(self, number: int) -> None:
        self._task(fields(number))

    @contextmanager
    def working(self) -> Iterator[None]:
        consumer = self._huey.create_consumer(workers=WORKERS, periodic=False, check_worker_health=False)
        consumer.start()
        yield
        consumer.stop(graceful=True)

    def bytes_kept(self) -> float:
        self._huey.storage.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return float(self._file.stat().st_size)


if __name__ == "__main__":
    main(Huey)
