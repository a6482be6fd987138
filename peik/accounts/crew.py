"""All sessions that this node runs: those of the accounts that it acts for (`Rights`), and each only under its lock, since two
nodes on one key at once would cost the session.

A lock is believed in for SAFE of its time since it was last proved. Beats of the node prove all of them (`beaten`); where
nobody tells of beats, each is proved by itself. One that could not be proved in time ends here before it ends in the store.
"""

import asyncio
import hashlib
import re
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

import msgspec

from peik.accounts.client import ClientError, Rights, SessionLocks, Trouble
from peik.accounts.events import SessionLockLost
from peik.accounts.registry import health_of, secret_context
from peik.accounts.runner import CONNECT_S, LEAVE_S, RUNNING, SessionRunner, SessionTools, Unfit, client_for, is_to_run
from peik.archive.store import Session, SessionFilter, SessionState
from peik.core.events import StoreFailed, Surprise
from peik.errors import Conflict, Problem, StoreUnavailable, Unavailable, described
from peik.wakeup import Wakeup

LOOK_S = 15.0  # between two looks at who came, changed or went, if no bell rings
SAFE = 0.8  # of a lock's time, from before it was proved
PROVE = 0.5  # with less than this of it left, a lock is proved by itself
LEAVE = 0.1  # of a lock's time: so long may a disconnect take, within what SAFE leaves
LOOKS = 20  # at deadlines, in a lock's time
RETRY_S = 1.0
ANSWER_S = 10.0
FOR_EVER = float("inf")

T = TypeVar("T")

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")


def lock_of(session_id: str) -> str:
    """Its name. On SQLite locks are files, so what is no plain name is hashed."""
    if _PLAIN.fullmatch(session_id):
        return f"session-{session_id}"
    return f"session-{hashlib.blake2b(session_id.encode(), digest_size=16).hexdigest()}"


def not_running(session: Session) -> Conflict:
    """Why nobody on this node can ask anything as this account."""
    if is_to_run(session):
        return Conflict(code="session_elsewhere", detail=f"Session {session.session_id} does not run on this node.")
    health = health_of(session)
    return Conflict(
        code="session_off", detail=f"Session {session.session_id} does not run: {health.line} {health.todo}"
    )


class _Held:
    """A session whose lock this node holds."""

    __slots__ = ("account", "ends_at", "is_leaving", "runner", "task")

    def __init__(self, account: int | None, ends_at: float) -> None:
        self.account = account  # None: it never connected
        self.ends_at = ends_at  # by the clock that never jumps
        self.is_leaving = False
        self.runner: SessionRunner | None = None
        self.task: asyncio.Task[object] | None = None


class Crew:
    def __init__(self, tools: SessionTools, locks: SessionLocks, rights: Rights, *, look_s: float = LOOK_S) -> None:
        self._tools = tools
        self._locks = locks
        self._rights = rights
        self._look_s = look_s
        self._clock = tools.clock
        self._bell = Wakeup()
        self._held: dict[str, _Held] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._busy: set[str] = set()  # somebody signs out of these just now
        self._tried_failed = False
        self._undropped: set[str] = set()  # the store may think that these are ours, and beats would keep it so
        self._has_looked = False

    # ---- what others ask ----

    def ring(self) -> None:
        """A session came, changed or went, or a node did."""
        self._bell.ring()

    def beaten(self, began: float) -> None:
        """A beat that was sent at this time (by the clock that never jumps) was answered: all locks go on. One that is over
        already stays so: another node may have had it meanwhile."""
        lease_s = self._locks.lease_s
        if lease_s is None:
            return
        for held in self._held.values():
            if self._clock.mono() < held.ends_at:
                held.ends_at = max(held.ends_at, began + lease_s * SAFE)

    def runner_of(self, session_id: str) -> SessionRunner | None:
        held = self._held.get(session_id)
        return None if held is None or held.is_leaving else held.runner

    def line_of(self, user_id: int) -> SessionRunner | None:
        """Who runs an account, for its letters: while it is connected, and this node may use it."""
        for session_id, held in self._held.items():
            runner = held.runner
            if runner is not None and runner.me is not None and runner.me.user_id == user_id:
                return self.runner_of(session_id)
        return None

    async def let_go(self, account: int | None) -> None:
        """Another node acts for the account from now on (None: for sessions that never connected). Returns when what runs of
        it here is disconnected."""
        await asyncio.gather(*(self._end(one) for one in self._of(account)))

    def drop(self, account: int | None) -> None:
        """The same, and nobody waits."""
        for session_id in self._of(account):
            self._begin_to_end(session_id)

    def _of(self, account: int | None) -> list[str]:
        return [session_id for session_id, held in self._held.items() if held.account == account]

    def running(self) -> list[str]:
        return sorted(session_id for session_id, held in self._held.items() if not held.is_leaving)

    async def start(self, session_id: str) -> Session:
        """A paused or failed session is to run again. Raises NotFound, and Conflict if nobody is signed in."""

        def started(old: Session) -> Session:
            if old.state in RUNNING and old.is_active:
                return old
            is_signed_in = old.state in (*RUNNING, SessionState.PAUSED, SessionState.FAILED)
            if not is_signed_in or not self._is_fit(old):
                raise Conflict(code="not_signed_in", detail=f"The session is {old.state}: nobody is signed in.")
            return msgspec.structs.replace(
                old, is_active=True, state=SessionState.ACTIVE, state_reason=None, state_until_ms=None
            )

        session = await self._tools.registry.change(session_id, started)
        self.ring()
        return session

    async def stop(self, session_id: str, *, reason: str = "Its owner paused it.") -> Session:
        """Paused, on whichever node it runs: here when this returns, elsewhere at that node's next look."""

        def stopped(old: Session) -> Session:
            if old.state not in RUNNING:
                return old
            return msgspec.structs.replace(
                old, state=SessionState.PAUSED, state_reason=reason, state_until_ms=None, is_connected=False
            )

        session = await self._tools.registry.change(session_id, stopped)
        await self._end(session_id)
        return session

    async def restart(self, session_id: str) -> None:
        """Connect anew. Raises NotFound, and Conflict if it does not run here."""
        held = self._held.get(session_id)
        if held is None or held.is_leaving:
            raise not_running(await self._tools.registry.need(session_id))
        await self._end(session_id)
        self.ring()

    async def leave(self, session_id: str) -> None:
        """Returns when it does not run here."""
        await self._end(session_id)

    async def log_out(self, session_id: str) -> Session:
        """At Telegram, too. Raises Conflict if it runs on another node, and ClientError if Telegram cannot be reached."""
        session = await self._tools.registry.need(session_id)
        self._busy.add(session_id)
        try:
            await self._end(session_id)
            if not await self._asked(self._locks.take_lock(lock_of(session_id))):
                raise Conflict(code="session_elsewhere", detail=f"Session {session_id} runs on another node.")
            try:
                await self._sign_out(session)
            finally:
                await self._drop(session_id)
        finally:
            self._busy.discard(session_id)
        return await self._tools.registry.change(
            session_id,
            lambda old: msgspec.structs.replace(
                old,
                state=SessionState.REVOKED,
                state_reason="It was signed out.",
                state_until_ms=None,
                is_connected=False,
                secret=None,
                file=None,
            ),
        )

    async def _sign_out(self, session: Session) -> None:
        try:
            client = client_for(session, vault=self._tools.vault, clients=self._tools.clients)
        except Unfit as error:
            raise Conflict(code="unfit_session", detail=str(error)) from None
        try:
            async with asyncio.timeout(CONNECT_S):
                if await client.connect() is not None:
                    await client.log_out()
        except TimeoutError:
            raise ClientError(Trouble.OFFLINE, "Telegram does not answer.") from None
        except ClientError as error:
            if error.trouble is not Trouble.REVOKED:
                raise
        finally:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await client.disconnect()

    # ---- running ----

    async def run(self) -> None:
        """Until cancelled; then every session is disconnected, and its lock given back."""
        keeping = [asyncio.create_task(self._watch()), asyncio.create_task(self._prove_all())]
        try:
            while True:
                try:
                    await self._look()
                except StoreUnavailable as error:
                    self._tools.events.tell(StoreFailed(what="a look at sessions", why=error.detail))
                    await asyncio.sleep(RETRY_S)
                except Exception as error:  # noqa: BLE001  those that run go on
                    self._tools.events.tell(Surprise(where="a look at sessions", error=described(error)))
                await self._bell.wait(self._clock.mono() + self._look_s)
        finally:
            # Locks are proved until the last session has left.
            await asyncio.gather(*(self._end(session_id) for session_id in list(self._held)), return_exceptions=True)
            for task in keeping:
                task.cancel()

    async def _look(self) -> None:
        wanted = {one.session_id: one for one in await self._wanted()}
        await self._rights.enlist(list(wanted.values()))
        mine = {session_id for session_id, session in wanted.items() if self._rights.may_run(session)}
        if not self._has_looked:
            self._undropped.update(wanted.keys() - mine)  # a process of this name may have died with them
            self._has_looked = True
        for session_id in self._undropped - set(self._held):
            await self._drop(session_id)
        leaving = [session_id for session_id in self._held if session_id not in mine]
        for session_id in leaving:
            self._begin_to_end(session_id)
        for session_id in sorted(mine - set(self._held) - self._busy):
            await self._take(wanted[session_id])

    async def _wanted(self) -> list[Session]:
        """Those that are to run. At the first look also those that failed: what they lacked may have been mended."""
        states = RUNNING if self._tried_failed else RUNNING | {SessionState.FAILED}
        found = await self._tools.registry.all(SessionFilter(states=frozenset(states), is_active=True))
        for session in found:
            if session.state is SessionState.FAILED and session.user_id is not None and self._is_fit(session):
                await self.start(session.session_id)
        self._tried_failed = True
        return [one for one in found if is_to_run(one) and self._is_signed_in(one)]

    def _is_signed_in(self, session: Session) -> bool:
        """A flood wait may be one of signing in; then what is sealed is not the key of an account."""
        return session.state is SessionState.ACTIVE or self._is_fit(session)

    def _is_fit(self, session: Session) -> bool:
        """Whether there is a key of an account that we can open."""
        if session.secret is None:
            return session.file is not None
        try:
            self._tools.vault.open(session.secret, context=secret_context(session.session_id))
        except Unavailable:
            return False
        return True

    # ---- one session ----

    async def _take(self, session: Session) -> None:
        session_id = session.session_id
        if session_id in self._ending:
            return
        began = self._clock.mono()
        try:
            if not await self._asked(self._locks.take_lock(lock_of(session_id))):
                return
        except BaseException:
            await self._drop(session_id)  # it may be ours, and beats would keep it so
            raise
        lease_s = self._locks.lease_s
        held = _Held(session.user_id, FOR_EVER if lease_s is None else began + lease_s * SAFE)
        held.runner = SessionRunner(
            session_id,
            self._tools,
            is_ours=lambda: self._clock.mono() < held.ends_at,
            leave_s=LEAVE_S if lease_s is None else min(LEAVE_S, lease_s * LEAVE),
        )
        self._held[session_id] = held
        self._undropped.discard(session_id)
        held.task = asyncio.create_task(held.runner.run(), name=f"session {session_id}")
        held.task.add_done_callback(lambda _: self._begin_to_end(session_id))

    def _begin_to_end(self, session_id: str) -> None:
        if session_id not in self._ending and session_id in self._held:
            task = asyncio.create_task(self._ended(session_id), name=f"end of session {session_id}")
            self._ending[session_id] = task
            task.add_done_callback(lambda _: self._ending.pop(session_id, None))

    async def _end(self, session_id: str) -> None:
        """Returns when it is disconnected and its lock is given back."""
        self._begin_to_end(session_id)
        ending = self._ending.get(session_id)
        if ending is not None:
            await asyncio.wait([ending])

    async def _ended(self, session_id: str) -> None:
        held = self._held[session_id]
        held.is_leaving = True
        task = held.task
        assert task is not None, "it was begun"
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tools.events.tell(Surprise(where=f"session {session_id}", error=described(error)))
        await self._drop(session_id)
        self._held.pop(session_id, None)
        self._tools.budget.forget(session_id)

    async def _drop(self, session_id: str) -> None:
        try:
            await self._asked(self._locks.drop_lock(lock_of(session_id)))
            self._undropped.discard(session_id)
        except Problem:
            self._undropped.add(session_id)

    # ---- locks ----

    async def _asked(self, answer: Awaitable[T]) -> T:
        """A store that hangs is one that does not answer. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(ANSWER_S if self._locks.lease_s is None else self._locks.lease_s / 4):
                return await answer
        except TimeoutError:
            raise StoreUnavailable(code="store_slow", detail="The store does not answer for a lock.") from None

    async def _watch(self) -> None:
        """Locks that nobody could prove in time: disconnect while they last in the store."""
        lease_s = self._locks.lease_s
        while lease_s is not None:
            await asyncio.sleep(lease_s / LOOKS)
            for session_id, held in list(self._held.items()):
                if held.ends_at <= self._clock.mono() and not held.is_leaving:
                    self._tools.events.tell(SessionLockLost(session_id=session_id))
                    self._begin_to_end(session_id)

    async def _prove_all(self) -> None:
        lease_s = self._locks.lease_s
        while lease_s is not None:
            await asyncio.sleep(lease_s / LOOKS)
            edge = self._clock.mono() + lease_s * PROVE
            for session_id in [one for one, held in self._held.items() if held.ends_at < edge and not held.is_leaving]:
                await self._prove(session_id, lease_s)

    async def _prove(self, session_id: str, lease_s: float) -> None:
        held, began = self._held.get(session_id), self._clock.mono()
        try:
            is_ours = await self._asked(self._locks.take_lock(lock_of(session_id)))
        except Exception as error:  # noqa: BLE001  its time runs; the others are proved all the same
            if not isinstance(error, StoreUnavailable):
                self._tools.events.tell(Surprise(where=f"the lock of session {session_id}", error=described(error)))
            return
        if self._held.get(session_id) is not held or held is None:
            await self._drop(session_id)  # it was given back meanwhile
        elif not is_ours:
            held.ends_at = began
        elif self._clock.mono() < held.ends_at:
            held.ends_at = began + lease_s * SAFE
