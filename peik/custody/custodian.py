"""What is secret in the store of a running node: checked before anything starts, sealed when every node has the key.

Nodes that have keys say so on papers. One that does not could read nothing any more once tokens are sealed, so that it is
waited for.
"""

import asyncio

import msgspec

from peik.clock import Clock
from peik.custody import sealing
from peik.custody.sealing import Settled, Standing
from peik.errors import BadInput, Conflict, Problem, described
from peik.events import Events, SecretsNotice
from peik.node_ports import NodeStore
from peik.paper_ports import Filing, PaperStore
from peik.seals import Seals, SealStore

SHELF = "sealing"  # by node, the ids of the keys that it has
_LOOK_S = 10.0  # while a node is waited for
_KEEP_MS = 24 * 3600 * 1000  # of nodes that are gone; one that just starts is not to be seen yet
_NODES_MAX = 1000


class _Announced(msgspec.Struct, frozen=True):
    keys: tuple[str, ...]
    at_ms: int


class Custodian:
    def __init__(
        self,
        store: SealStore,
        seals: Seals,
        *,
        papers: PaperStore,
        nodes: NodeStore,
        clock: Clock,
        events: Events,
        renews: bool = False,
    ) -> None:
        """`renews`: what is sealed with an older key is sealed anew at the start."""
        self._store = store
        self._seals = seals
        self._papers = papers
        self._nodes = nodes
        self._clock = clock
        self._events = events
        self._renews = renews
        self._waits_for: tuple[str, ...] = ()

    async def begin(self) -> None:
        """Before anything polls or sends. Raises StartError if our keys do not open what is there; then nothing was changed.
        Without a key nothing is looked at: who reads a sealed token is told."""
        if not self._seals.has_key:
            return
        if self._seals.takes_long:
            await asyncio.to_thread(lambda: self._seals.vault)
        is_sealed = await sealing.admit(self._store, self._seals)
        await self._announce()
        if not await self._store.is_ours():
            if not is_sealed:
                self._seals.hold()  # its owner may not have the key
            return  # the process that owns the file seals it
        self._waits_for = await self._without_key()
        if self._waits_for and not is_sealed:
            self._seals.hold()
        if self._waits_for and (self._renews or not is_sealed):
            names = ", ".join(self._waits_for)
            self._tell(
                f"Secrets are sealed when all nodes have the key; {names} did not say so yet. Restart it with the key."
            )
            return
        self._waits_for = ()
        await self._settle(renews=self._renews, may_rewrite=True)

    @property
    def is_waiting(self) -> bool:
        return bool(self._waits_for)

    async def run(self) -> None:
        """Until there is nothing left to wait for."""
        while self._waits_for:
            await asyncio.sleep(_LOOK_S)
            try:
                self._waits_for = await self._without_key()
                if not self._waits_for:
                    await self._settle(renews=self._renews, may_rewrite=False)
            except Problem as error:  # of the store; it is as it was
                self._tell(f"Secrets could not be sealed yet: {described(error)}")
                self._waits_for = self._waits_for or ("the store",)

    async def follow(self) -> None:
        """Another node may have sealed the store, or with another of our keys: from now on we seal as it does."""
        if self._seals.has_key:
            await sealing.follow(self._store, self._seals)

    async def standing(self) -> Standing:
        return await sealing.standing(self._store, self._seals)

    async def rotate(self) -> Settled:
        """Seal everything with the first key, while letters go on. Raises Conflict if a node does not have it."""
        if not self._seals.has_key:
            raise BadInput(
                code="no_secret_key", detail="There is no key to seal with. Set PEIK_SECRET_KEY, and start Peik again."
            )
        if missing := await self._without_key():
            raise Conflict(
                code="node_without_key",
                detail=f"These nodes do not have the new key, or did not say so: {', '.join(missing)}. Restart them with it.",
            )
        self._waits_for = ()
        return await self._settle(renews=True, may_rewrite=False)

    async def _settle(self, *, renews: bool, may_rewrite: bool) -> Settled:
        done = await sealing.settle(self._store, self._seals, renews=renews, may_rewrite=may_rewrite)
        if done.sealed or done.renewed:
            self._tell(f"Secrets in the store: {done.sealed} sealed, {done.renewed} sealed anew with the new key.")
        if done.left is not None:
            self._tell(done.left)
        return done

    def _tell(self, words: str) -> None:
        self._events.tell(SecretsNotice(words=words))

    # ---- which node has which keys ----

    async def _announce(self) -> None:
        now = self._clock.wall_ms()
        living = {node.name for node in await self._nodes.nodes()} | {self._nodes.node}
        known = await self._papers.papers(SHELF, limit=_NODES_MAX)
        gone = [one.key for one in known if one.key not in living and now - _read(one.body).at_ms > _KEEP_MS]
        own = msgspec.json.encode(_Announced(keys=tuple(self._seals.key_ids), at_ms=now)).decode()
        await self._papers.file(
            [Filing(shelf=SHELF, key=self._nodes.node, body=own)]
            + [Filing(shelf=SHELF, key=name, body=None) for name in gone]
        )

    async def _without_key(self) -> tuple[str, ...]:
        """Nodes that live and cannot open what we seal."""
        living = [node.name for node in await self._nodes.nodes() if node.name != self._nodes.node]
        papers = await self._papers.those(SHELF, living)
        first = self._seals.key_ids[0]
        return tuple(name for name in living if name not in papers or first not in _read(papers[name].body).keys)


def _read(body: str) -> _Announced:
    return msgspec.json.decode(body, type=_Announced)
