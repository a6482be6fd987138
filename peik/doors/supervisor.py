"""What the process tells systemd (sd_notify): that it is ready, that it is alive, that it ends. Nobody asks: nothing is said.

A beat comes from the event loop, so that a loop that stands still is noticed. It says nothing of the store or of Telegram:
what is down there is no reason to start Peik again.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping

_BEATS_PER_LIMIT = 3  # two may be late


class Supervisor:
    def __init__(self, address: str | None, *, beat_s: float | None = None) -> None:
        self._address = address
        self._beat_s = beat_s
        self._is_told = True

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Supervisor":
        """As systemd describes itself to the processes that it starts; these are no settings of Peik."""
        address = environment.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):  # others are not addresses of this protocol on Linux
            return cls(None)
        limit_us = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        is_watched = is_ours and limit_us.isdecimal() and int(limit_us) > 0
        name = "\0" + address[1:] if address.startswith("@") else address
        return cls(name, beat_s=int(limit_us) / 1e6 / _BEATS_PER_LIMIT if is_watched else None)

    def ready(self, status: str) -> None:
        """Calls are accepted durably from now on."""
        self._tell(f"READY=1\nSTATUS={status}")

    def ending(self) -> None:
        self._tell("STOPPING=1\nSTATUS=Waiting for what is in flight.")

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Beats meanwhile, if it is watched."""
        task = asyncio.ensure_future(self._beat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _beat(self) -> None:
        while self._beat_s is not None:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._beat_s)

    def _tell(self, words: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.setblocking(False)  # noqa: FBT003
                line.sendto(words.encode(), self._address)
        except OSError as error:
            # The next beat tries again. Said once: a supervisor that is gone would fill the log.
            if self._is_told:
                sys.stderr.write(f"systemd cannot be told how Peik is: {error.strerror}.\n")
            self._is_told = False
        else:
            self._is_told = True
