"""Looks after what is secret in a store: admits a node that has the key, seals what is plain, seals again, opens all again.

Every step is a commit of its own that leaves each text whole, plain or sealed, so that after a crash in between it goes on at the
next start. Nothing is replaced that could not be read.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from peik.clock import Clock
from peik.core.documents import DocumentStore, Filing
from peik.core.events import Events, SecretsNotice
from peik.core.nodes import NodeStore
from peik.core.token import Token
from peik.errors import BadInput, Conflict, NotFound, Problem, StartError, StoreUnavailable, described
from peik.secrets.seals import (
    KeptSecret,
    SealChange,
    Seals,
    SealStore,
    bot_of,
    is_sealed,
    key_id_of,
    place_of_bot,
    place_of_secret,
)

# Is there as long as the store is to be sealed, so that a node with another key, or with none, knows although there is no bot.
CHECK = place_of_secret("sealing")
# Is there from the first text that was replaced until its traces are gone.
OWED = place_of_secret("scrub")
_OWN = frozenset({CHECK, OWED})
_AT_ONCE = 100  # secrets of no bot in one commit
_DIFFERENT = 8  # times that others changed what we were about to seal; then somebody works against us


class SecretsStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How many secrets lie in the store, and how. It takes no key to see that."""

    has_key: bool
    plain: int = 0
    sealed: int = 0  # with the first of our keys
    older: int = 0  # with another of our keys
    foreign: int = 0  # with a key that we do not have
    is_scrubbed: bool = True  # nothing of texts that were replaced is left in the store's file

    @property
    def advice(self) -> str | None:
        """The next step, in one line. None: all is well."""
        if self.foreign:
            fix = "set PEIK_SECRET_KEY_OLD to that one" if self.has_key else "set PEIK_SECRET_KEY"
            return f"Some secrets were sealed with a key that is not here: {fix}."
        if self.older:
            return "Some secrets are sealed with an older key: peik secrets rotate"
        if self.plain:
            return "Seal them: peik secrets rotate" if self.has_key else "Set PEIK_SECRET_KEY, and start Peik again."
        return None if self.is_scrubbed else "Start Peik again: it wipes what is left of the old texts out of the file."


class SealedCounts(msgspec.Struct, frozen=True, kw_only=True):
    sealed: int = 0  # that were plain
    renewed: int = 0  # that were sealed with an older key
    opened: int = 0
    left: str | None = None  # what is left of the old texts, in a sentence


async def standing(store: SealStore, seals: Seals) -> SecretsStanding:
    """Raises StartError if our key cannot be used."""
    kept = await store.kept()
    ids = seals.key_ids
    ours = [one for one in kept if one.place not in _OWN]
    sealed_with = [key_id_of(one.text) for one in kept if is_sealed(one.text)]
    counted = [sum(key == wanted for key in sealed_with) for wanted in ids]
    return SecretsStanding(
        has_key=seals.has_key,
        plain=sum(not is_sealed(one.text) for one in ours),
        sealed=counted[0] if counted else 0,
        older=sum(counted[1:]),
        foreign=len(sealed_with) - sum(counted),
        is_scrubbed=all(one.place != OWED for one in kept),
    )


async def admit(store: SealStore, seals: Seals) -> bool:
    """Whether the store is sealed already; from now on its own key seals. Raises StartError if there is something in it that our
    keys do not open."""
    kept = await store.kept()
    try:
        for one in kept:
            seals.open(one.text, place=one.place)
    except StoreUnavailable as problem:
        raise StartError(problem.detail) from None
    for one in kept:
        if one.place == CHECK and is_sealed(one.text):
            seals.use(key_id_of(one.text))
    return any(one.place == CHECK for one in kept)


async def follow(store: SealStore, seals: Seals) -> None:
    for one in await store.kept():
        if one.place == CHECK and is_sealed(one.text) and key_id_of(one.text) in seals.key_ids:
            seals.use(key_id_of(one.text))


async def settle(store: SealStore, seals: Seals, *, renews: bool = True, may_rewrite: bool = False) -> SealedCounts:
    """Seal everything with the key of the store; if it `renews`, that is from now on the first of our keys. May be repeated, and
    interrupted. Until it is renewed a new key seals nothing: nodes that do not have it yet could not read that.

    `may_rewrite`: nobody waits for the store yet, so that its file may be written again. Raises StoreUnavailable if something
    cannot be opened; then nothing of it was replaced."""
    assert seals.has_key, "who has no key seals nothing"
    check = next((one for one in await store.kept() if one.place == CHECK), None)
    if check is not None:
        seals.open(check.text, place=CHECK)
    seals.use(seals.key_ids[0] if renews or check is None else key_id_of(check.text))
    if check is None:
        await store.change([SealChange(place=CHECK, before=None, after=seals.seal("sealed", place=CHECK))])

    def after(one: KeptSecret) -> str | None:
        if not is_sealed(one.text):
            return seals.seal(one.text, place=one.place)
        opened = seals.open(one.text, place=one.place)
        return None if key_id_of(one.text) == seals.key_in_use else seals.seal(opened, place=one.place)

    done = await _replace(store, after)
    left = await _scrub(store, seals, may_rewrite=may_rewrite)
    return SealedCounts(
        sealed=sum(not is_sealed(one.text) for one in done), renewed=sum(is_sealed(one.text) for one in done), left=left
    )


async def unseal(store: SealStore, seals: Seals) -> SealedCounts:
    """Store everything as plain text again. Anyone who starts with a key seals it again."""
    if not seals.has_key:
        raise BadInput(
            code="no_secret_key", detail="Opening needs the key: set PEIK_SECRET_KEY, and take it away after."
        )
    done = await _replace(store, lambda one: seals.open(one.text, place=one.place) if is_sealed(one.text) else None)
    kept = {one.place: one.text for one in await store.kept() if one.place in _OWN}
    # Only now: while something is still sealed, a node without the key must know.
    await store.change([SealChange(place=place, before=text, after=None) for place, text in kept.items()])
    return SealedCounts(opened=len(done))


async def mend(store: SealStore, seals: Seals, token: Token) -> None:
    """Give a bot its token again where what is stored does not open. Raises NotFound if there is no such bot."""
    place = place_of_bot(token.bot_id)
    for one in await store.kept():
        if one.place == place:
            change = SealChange(place=place, before=one.text, after=seals.seal(token.reveal(), place=place))
            if not await store.change([change]):
                raise Conflict(code="bot_changed", detail=f"Bot {token.bot_id} was changed meanwhile. Look again.")
            return
    raise NotFound(code="unknown_bot", detail=f"Bot {token.bot_id} is not known here. Add it: peik bots add")


async def _replace(store: SealStore, after: Callable[[KeptSecret], str | None]) -> list[KeptSecret]:
    """Texts as they were that were replaced, one commit for each bot. What somebody else changes meanwhile is looked at again."""
    done: list[KeptSecret] = []
    for _ in range(_DIFFERENT):
        kept = await store.kept()
        new = {one.place: text for one in kept if one.place != OWED and (text := after(one)) is not None}
        wanted = [one for one in kept if one.place in new]
        if not wanted:
            return done
        if all(one.place != OWED for one in kept):
            await store.change([SealChange(place=OWED, before=None, after="owed")])
        for group in _by_bot(wanted):
            made = await store.change(
                [SealChange(place=one.place, before=one.text, after=new[one.place]) for one in group]
            )
            done += group if made == len(group) else []
    raise StoreUnavailable(
        code="secrets_change",
        detail="Somebody else changes the secrets of this store all the time. Stop that, and try again.",
    )


def _by_bot(kept: Sequence[KeptSecret]) -> Iterable[list[KeptSecret]]:
    """What is of one bot together; then the rest, with the sign that the store is sealed at the very end."""
    groups: dict[int, list[KeptSecret]] = {}
    others = []
    for one in kept:
        bot_id = bot_of(one.place)
        if bot_id is None:
            others.append(one)
        else:
            groups.setdefault(bot_id, []).append(one)
    yield from groups.values()
    others.sort(key=lambda one: one.place == CHECK)
    for start in range(0, len(others), _AT_ONCE):
        yield others[start : start + _AT_ONCE]


async def _scrub(store: SealStore, seals: Seals, *, may_rewrite: bool) -> str | None:
    kept = await store.kept()
    owed = next((one for one in kept if one.place == OWED), None)
    if owed is None:
        return None
    plain = [seals.open(one.text, place=one.place) for one in kept if one.place not in _OWN and is_sealed(one.text)]
    # What older keys sealed is as open as those keys are.
    older = [f"sealed:{key_id}:" for key_id in seals.key_ids]
    in_use = {key_id_of(one.text) for one in kept if is_sealed(one.text)}
    traces = plain + [one for one in older if one.split(":")[1] not in in_use]
    left = await store.scrub(traces, may_rewrite=may_rewrite)
    if left is None:
        await store.change([SealChange(place=OWED, before=owed.text, after=None)])
    return left


# What is secret in the store of a running node: checked before anything starts, sealed when every node has the key.
#
# Nodes that have keys say so on documents. One that does not could read nothing any more once tokens are sealed, so that
# it is waited for.


COLLECTION = "sealing"  # by node, the ids of the keys that it has
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
        documents: DocumentStore,
        nodes: NodeStore,
        clock: Clock,
        events: Events,
        renews: bool = False,
    ) -> None:
        """`renews`: what is sealed with an older key is sealed again at the start."""
        self._store = store
        self._seals = seals
        self._documents = documents
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
        is_sealed = await admit(self._store, self._seals)
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
            await follow(self._store, self._seals)

    async def standing(self) -> SecretsStanding:
        return await standing(self._store, self._seals)

    async def rotate(self) -> SealedCounts:
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

    async def _settle(self, *, renews: bool, may_rewrite: bool) -> SealedCounts:
        done = await settle(self._store, self._seals, renews=renews, may_rewrite=may_rewrite)
        if done.sealed or done.renewed:
            self._tell(f"Secrets in the store: {done.sealed} sealed, {done.renewed} sealed again with the new key.")
        if done.left is not None:
            self._tell(done.left)
        return done

    def _tell(self, words: str) -> None:
        self._events.tell(SecretsNotice(words=words))

    # ---- which node has which keys ----

    async def _announce(self) -> None:
        now = self._clock.wall_ms()
        living = {node.name for node in await self._nodes.nodes()} | {self._nodes.node}
        known = await self._documents.documents(COLLECTION, limit=_NODES_MAX)
        gone = [one.key for one in known if one.key not in living and now - _read(one.body).at_ms > _KEEP_MS]
        own = msgspec.json.encode(_Announced(keys=tuple(self._seals.key_ids), at_ms=now)).decode()
        await self._documents.file(
            [Filing(collection=COLLECTION, key=self._nodes.node, body=own)]
            + [Filing(collection=COLLECTION, key=name, body=None) for name in gone]
        )

    async def _without_key(self) -> tuple[str, ...]:
        """Nodes that live and cannot open what we seal."""
        living = [node.name for node in await self._nodes.nodes() if node.name != self._nodes.node]
        documents = await self._documents.those(COLLECTION, living)
        first = self._seals.key_ids[0]
        return tuple(name for name in living if name not in documents or first not in _read(documents[name].body).keys)


def _read(body: str) -> _Announced:
    return msgspec.json.decode(body, type=_Announced)
