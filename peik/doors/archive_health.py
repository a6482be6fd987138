"""How the archive of accounts stands, for /health: bots need none, so that one that is away is told and fails nothing."""

import asyncio
from typing import TYPE_CHECKING

from peik.archive_ports import SessionFilter
from peik.clock import Clock
from peik.config import Config
from peik.errors import Unavailable
from peik.ops.pulse import ANSWER_S, FRESH_S
from peik.settings_values import StoreKind

if TYPE_CHECKING:
    from peik.sessions.desk import SessionsDesk

_KINDS = {"postgres": "postgresql", "mongodb+srv": "mongodb"}
_BEHIND_ALL = "~" * 64  # after every id there is: the question costs one look into an index


def archive_kind(config: Config) -> str:
    """sqlite, postgresql or mongodb. Without a name it lies beside the store."""
    scheme = (config.archive or config.store).partition("://")[0]
    return _KINDS.get(scheme, scheme)


class ArchiveHealth:
    """An archive on a server is asked, about once a second at most; of a file, the last commit tells."""

    def __init__(self, config: Config, sessions: "SessionsDesk", clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        self._kind = archive_kind(config)
        self._has_redis = config.store_kind is StoreKind.REDIS
        self._turn = asyncio.Lock()
        self._asked_at: float | None = None
        self._why: str | None = None

    async def parts(self, store: dict[str, object]) -> dict[str, object]:
        """The parts of /health that are there with accounts. `store` is that of the store, whose Redis is the cache."""
        why = self._sessions.trouble() or await self._asked()
        parts: dict[str, object] = {
            "archive": {"status": "ok" if why is None else "away", "kind": self._kind, "why": why},
        }
        if self._has_redis:
            parts["cache"] = {"status": store["status"], "kind": "redis", "why": store["why"]}
        return parts

    async def _asked(self) -> str | None:
        if self._kind == "sqlite":
            return None
        async with self._turn:
            if self._asked_at is None or self._clock.mono() - self._asked_at >= FRESH_S:
                self._why = await self._ask()
                self._asked_at = self._clock.mono()
        return self._why

    async def _ask(self) -> str | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._sessions.sessions(SessionFilter(), after=_BEHIND_ALL, limit=1)
        except TimeoutError:
            return "The archive does not answer."
        except Unavailable as error:
            return error.detail
        return None
