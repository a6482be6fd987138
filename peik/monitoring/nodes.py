"""Who serves which bots, as REST and the dashboard show it, and the rule for draining that they share."""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from peik.clock import Clock
from peik.core.nodes import CHORES, NodeRecord, NodeStore
from peik.core.units import rfc3339
from peik.errors import Conflict, NotFound, StoreUnavailable
from peik.settings.config import Config
from peik.settings.values import StoreKind
from peik.web.access import Caller
from peik.web.operations import Id, Moment, operation
from peik.web.parse import NameInPath

if TYPE_CHECKING:
    from peik.app.runtime import Runtime

SERVING_S = 1.0  # what else is known of bots is in memory, and need not wait for a store that hangs


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str | None
    address: str | None
    started_at: Moment
    seen_at: Moment
    state: Literal["active", "draining"]
    bots: list[Id]
    does_chores: bool
    is_this: Annotated[bool, msgspec.Meta(description="Whether it is the node that answers.")]


class NodesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    nodes: list[NodeAnswer]
    lease_s: float | None
    store: StoreKind


class Nodes:
    """The nodes of a store. On SQLite they are the process that owns the file, and this one if it waits for the file."""

    def __init__(
        self,
        config: Config,
        store: NodeStore,
        *,
        clock: Clock,
        bot_ids: Callable[[], Iterable[int]],
        is_whole: Callable[[], bool] = lambda: False,
        is_node: bool = True,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._bot_ids = bot_ids
        self._is_whole = is_whole
        self._is_node = is_node

    async def known(self) -> list[NodeRecord]:
        found = await self._store.nodes()
        if self._config.store_kind is not StoreKind.SQLITE:
            return found
        bots = (CHORES, *sorted(self._bot_ids()))
        if self._is_whole():
            return [msgspec.structs.replace(one, bots=bots) for one in found]
        owner = self._owner(bots)
        return [*([owner] if owner is not None else []), *(found if self._is_node else [])]

    def _owner(self, bots: tuple[int, ...]) -> NodeRecord | None:
        path = self._config.sqlite_path.absolute()
        holder = holder_of(path)
        if holder is None:
            return None
        since_ms = now_ms = self._clock.wall_ms()
        with contextlib.suppress(OSError):
            since_ms = int(lock_of(path).stat().st_mtime * 1000)
        name = f"{socket.gethostname()}-{holder}"
        return NodeRecord(
            name=name, version="", address=None, started_at_ms=since_ms, seen_at_ms=now_ms, bots=bots
        )  # its version is not written anywhere

    async def serving(self) -> dict[int, str]:
        """By bot, the node that acts for it. Empty if the store does not say: what else is shown is still right."""
        try:
            async with asyncio.timeout(SERVING_S):
                return {bot_id: node.name for node in await self.known() for bot_id in node.bots}
        except (StoreUnavailable, TimeoutError):
            return {}

    async def drain(self, name: str, *, is_draining: bool) -> NodeRecord:
        """Ask a node to let its bots go, or to take some again; the node as it stands. Raises NotFound, and Conflict where
        one process holds the whole."""
        await self._named(name)
        if self._store.lease_s is None:
            raise Conflict(
                code="one_process",
                detail="On SQLite one process owns the file and acts for all bots. Stop it: another that waits takes over.",
            )
        await self._store.drain_node(name, is_draining=is_draining)
        return await self._named(name)

    async def _named(self, name: str) -> NodeRecord:
        for node in await self.known():
            if node.name == name:
                return node
        raise NotFound(
            code="unknown_node",
            detail="There is no such node, or it gave no sign of life. `peik nodes` lists those that do.",
        )

    # ---- shown ----

    def view(self, node: NodeRecord) -> NodeAnswer:
        return NodeAnswer(
            name=node.name,
            version=node.version or None,
            address=node.address,
            started_at=rfc3339(node.started_at_ms),
            seen_at=rfc3339(node.seen_at_ms),
            state="draining" if node.is_draining else "active",
            bots=[str(bot_id) for bot_id in node.bots if bot_id != CHORES],
            does_chores=CHORES in node.bots,
            is_this=self._is_node and node.name == self._store.node,
        )

    async def page(self) -> NodesAnswer:
        return NodesAnswer(
            nodes=[self.view(node) for node in await self.known()],
            lease_s=self._store.lease_s,
            store=self._config.store_kind,
        )


def nodes_of(peik: "Runtime") -> Nodes:
    return Nodes(
        peik.config,
        peik.store.nodes,
        clock=peik.clock,
        bot_ids=lambda: [bot.bot_id for bot in peik.outbox.service.bots()],
        is_whole=lambda: peik.outbox.leases.is_whole,
    )


# ---- the owner of a file ----


def lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".owner")


def holder_of(path: Path) -> str | None:
    """The number of the process that owns a SQLite store; None if there is none."""
    try:
        with lock_of(path).open(encoding="utf-8") as file:
            holder = file.read().strip()
            if not _is_alive(holder):
                return None
            # Its number may have been given to another process since. Only now is the lock itself tried, and given back
            # at once: a Peik that starts in this very moment must not be in our way, nor we in its.
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return holder
    except OSError:
        return None
    return None


def _is_alive(process: str) -> bool:
    if not process.isdigit():
        return False
    with contextlib.suppress(PermissionError):
        try:
            os.kill(int(process), 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True


# ---- over the API ----


class NodeApi:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    @operation("GET", "/v1/nodes", name="listNodes", tag="nodes", scope="read", is_for_all=True, problems=(503,))
    async def list_nodes(self, caller: Caller) -> NodesAnswer:
        """Every node that lives, and the bots that it serves."""
        return await self._nodes.page()

    @operation(
        "POST",
        "/v1/nodes/{name}/drain",
        name="drainNode",
        tag="nodes",
        scope="admin",
        is_for_all=True,
        status=202,
        problems=(404, 409, 503),
    )
    async def drain(self, caller: Caller, name: NameInPath) -> NodeAnswer:
        """Ask a node to let its bots go to the others, each as soon as nothing of it is in flight."""
        return self._nodes.view(await self._nodes.drain(name, is_draining=True))

    @operation(
        "POST",
        "/v1/nodes/{name}/resume",
        name="resumeNode",
        tag="nodes",
        scope="admin",
        is_for_all=True,
        status=202,
        problems=(404, 409, 503),
    )
    async def resume(self, caller: Caller, name: NameInPath) -> NodeAnswer:
        """Let a node that was drained take bots again."""
        return self._nodes.view(await self._nodes.drain(name, is_draining=False))
