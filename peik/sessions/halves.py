"""A sign-in that is half done: what lies sealed in its record between two steps, and that one step is made at a time."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from peik.archive_ports import Session, SessionState
from peik.clock import Clock
from peik.core.problem import BadInput, Problem
from peik.errors import Conflict, Unavailable
from peik.sessions.contexts import half_context
from peik.sessions.registry import Registry
from peik.vault import Vault

CODES_AN_HOUR_MAX = 3
STEP_S = 90.0  # a step takes a few seconds; a node that died in one holds up the others no longer than this
_HOUR_MS = 3_600_000

SIGNED_IN = frozenset({SessionState.ACTIVE, SessionState.PAUSED})


class Half(msgspec.Struct, kw_only=True):
    """What lies in the record while somebody is being signed in, sealed."""

    key: str
    phone: str | None = None
    code_hash: str | None = None
    tries: int = 0
    codes_at_ms: list[int] = []
    busy_until_ms: int = 0  # some node is at a step: another on the same key at once would cost the session


class Halves:
    """Of all sessions. Other nodes may be at the same sign-in: what is claimed here is closed to them."""

    def __init__(self, registry: Registry, vault: Vault, clock: Clock) -> None:
        self._registry = registry
        self._vault = vault
        self._clock = clock
        self._codes_at_ms: dict[str, list[int]] = {}  # by phone, over all its sessions
        self._at_work: set[str] = set()
        self._claimed: set[str] = set()

    def alone(self, session_id: str) -> "_Alone":
        return _Alone(self._at_work, session_id, self._let_go)

    def of(self, session: Session) -> Half | None:
        """None: no sign-in was begun."""
        if session.secret is None or session.state in SIGNED_IN:
            return None
        try:
            text = self._vault.open(session.secret, context=half_context(session.session_id))
        except Unavailable:
            return None  # of an earlier life of this session, or sealed with a key that is gone
        return msgspec.json.decode(text, type=Half)

    async def put(
        self, session_id: str, half: Half, *, state: SessionState, state_reason: str, state_until_ms: int | None
    ) -> Session:
        half.busy_until_ms = 0
        sealed = self._sealed(session_id, half)
        return await self._registry.change(
            session_id,
            lambda old: msgspec.structs.replace(
                old, secret=sealed, state=state, state_reason=state_reason, state_until_ms=state_until_ms
            ),
        )

    async def claim(self, seen: Session, half: Half) -> Session:
        """Store the half before it is used, if nobody changed the session since: of two nodes one goes on. Raises Conflict.
        It is let go of at the end of the step, see `_Alone`."""
        now_ms = self._clock.wall_ms()
        if half.busy_until_ms > now_ms:
            raise Conflict(code="session_busy", detail="Another step of this sign-in is under way.")
        half.busy_until_ms = now_ms + int(STEP_S * 1000)
        sealed = self._sealed(seen.session_id, half)

        def claimed(old: Session) -> Session:
            if old.version != seen.version:
                raise Conflict(code="session_busy", detail="Another step of this sign-in is under way.")
            return msgspec.structs.replace(old, secret=sealed)

        session = await self._registry.change(seen.session_id, claimed)
        self._claimed.add(seen.session_id)
        return session

    async def _let_go(self, session_id: str) -> None:
        if session_id not in self._claimed:
            return
        self._claimed.discard(session_id)

        def freed(old: Session) -> Session:
            half = self.of(old)
            if half is None or not half.busy_until_ms:
                return old
            half.busy_until_ms = 0
            return msgspec.structs.replace(old, secret=self._sealed(session_id, half))

        with suppress(Problem):  # then its time runs out
            await self._registry.change(session_id, freed)

    def _sealed(self, session_id: str, half: Half) -> bytes:
        return self._vault.seal(msgspec.json.encode(half).decode(), context=half_context(session_id))

    async def due(self, session_id: str, state: SessionState) -> tuple[Session, Half]:
        """Raises Conflict if the session is not in this state."""
        session = await self._registry.need(session_id)
        half = self.of(session)
        if session.state is not state or half is None:
            raise Conflict(code="not_due", detail=f"The session is {session.state}: nothing of the kind is waited for.")
        return session, half

    async def empty(self, session_id: str, reason: str | None) -> Session:
        """Nothing stays but how often a code was asked for."""

        def emptied(old: Session) -> Session:
            half = self.of(old)
            sealed = None
            if half is not None and half.codes_at_ms:
                sealed = self._sealed(session_id, Half(key="", phone=half.phone, codes_at_ms=half.codes_at_ms))
            return msgspec.structs.replace(
                old, state=SessionState.NEW, state_reason=reason, state_until_ms=None, secret=sealed
            )

        return await self._registry.change(session_id, emptied)

    async def count_try(self, session: Session, half: Half, tries_max: int, words: str) -> Half:
        """Counted before it is made: a crash in between gives nobody another try. Raises BadInput after the last."""
        if half.tries >= tries_max:
            await self.empty(session.session_id, words)
            raise BadInput(code="too_many_tries", detail=f"{words} Begin again.")
        half.tries += 1
        await self.claim(session, half)
        return half

    def count_code(self, phone: str, half: Half) -> None:
        """Telegram bans who asks for many codes; we stop long before."""
        now_ms = self._clock.wall_ms()
        known = {*self._codes_at_ms.get(phone, ()), *half.codes_at_ms}
        recent = sorted(at_ms for at_ms in known if now_ms - at_ms < _HOUR_MS)
        if len(recent) >= CODES_AN_HOUR_MAX:
            wait_s = (recent[0] + _HOUR_MS - now_ms) // 1000
            raise Conflict(code="too_many_codes", detail=f"{len(recent)} codes within an hour; the next in {wait_s} s.")
        half.codes_at_ms = self._codes_at_ms[phone] = [*recent, now_ms]


class _Alone:
    """One step at a time in this process; what was claimed against other nodes is let go of at its end."""

    def __init__(self, at_work: set[str], session_id: str, let_go: Callable[[str], Awaitable[None]]) -> None:
        self._at_work = at_work
        self._session_id = session_id
        self._let_go = let_go

    async def __aenter__(self) -> None:
        if self._session_id in self._at_work:
            raise Conflict(code="session_busy", detail="Another step of this sign-in is under way.")
        self._at_work.add(self._session_id)

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._let_go(self._session_id)
        finally:
            self._at_work.discard(self._session_id)
